"""Residuals: the values that a node of the autograd graph saves for its vjp.

A value is saved by reference, with the version of its storage; :func:`verify` raises if the storage
was written since. Memory shared with NumPy or DLPack can be written without a new version, so a
storage that is both shared and saved has a checksum. Memory between processes has none: that the
others write to it at any time is what it is for. With saved-tensor hooks a residual is a
:class:`Packed`.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core.settings import counts_data_writes
from evergrad.core.source_location import describe, reads_attribute
from evergrad.core.storage import InferenceStorage, Storage, checksum
from evergrad.errors import GradientError, SavedValueError
from evergrad.memory.shared import is_between_processes

if TYPE_CHECKING:
    from evergrad.core.shapes import TensorType
    from evergrad.core.tensor import Tensor

# (array, symbolic value or number; storage; its version; checksum if shared). A Python number has
# no storage.
Saved = tuple[Any, Storage | None, int, int | None]


class Packed:
    """A residual that went through ``saved_tensors_hooks``.

    The storage it came from is referenced weakly: an unpack hook that returns the same memory,
    instead of a copy, must not hide that it was overwritten.
    """

    __slots__ = ("origin", "packed", "saved_checksum", "type", "unpack", "version")

    def __init__(self, packed: object, unpack: Callable[[object], object], tensor: Tensor) -> None:
        self.packed: object = packed
        self.unpack: Callable[[object], object] = unpack
        self.type: TensorType = tensor._type
        storage = tensor._storage
        storage.watch()
        self.origin: weakref.ref[Storage] = weakref.ref(storage)
        self.version: int = storage.version
        self.saved_checksum: int | None = checksum(tensor._value) if storage.shared else None


def save_value(value: object, storage: Storage) -> Saved:
    """A residual, by reference."""
    if not storage.saved:
        if storage.__class__ is InferenceStorage:
            raise RuntimeError(
                "Inference tensors cannot be saved for backward. Please do not use Tensors created "
                "in inference mode in computation tracked by autograd. To work around this, you "
                "can make a clone to get a normal tensor and use it in autograd, or use no_grad() "
                "instead of inference_mode()."
            )
        storage.mark_saved()
    saved_checksum = None
    if storage.shared and isinstance(value, np.ndarray) and not is_between_processes(value):
        saved_checksum = checksum(value)
    return value, storage, storage.version, saved_checksum


def verify(node: object, entry: Saved) -> None:
    """Raise if the memory of a residual was written since it was saved."""
    value, storage, version, saved_checksum = entry
    assert storage is not None
    if storage.version != version:
        _report_overwritten(node, storage, version)
    if storage.shared and isinstance(value, np.ndarray) and not is_between_processes(value):
        before = storage.saved_checksum if saved_checksum is None else saved_checksum
        whole = storage.value if saved_checksum is None else value
        if before is not None and before != checksum(whole):
            _report_changed(node, storage)


def _report_changed(node: Any, storage: Storage) -> None:
    """Raise; only warn if writes that PyTorch does not notice are not counted."""
    if not counts_data_writes():
        warnings.warn(
            f"the memory of a {storage.type} that {node.name()} saved for backward was written "
            "through a NumPy array: the gradient is computed from the new elements, as PyTorch "
            f"does.\n  saved by: {describe(node.location)}",
            UserWarning,
            stacklevel=2,
        )
        return
    raise SavedValueError(
        f"one of the values needed for gradient computation was changed from outside: the "
        f"memory of a {storage.type} that {node.name()} saved is shared with a NumPy array "
        "(or another DLPack user), and was written through it after it was saved.\n"
        f"  saved by:  {describe(node.location)}\n"
        "  fix: write before the forward pass, or write to a copy "
        "(`tensor.detach().clone().numpy()`, `from_numpy(array.copy())`). Such writes pass with a "
        "warning after evergrad.autograd.graph.set_data_writes_counted(False)."
    )


def _report_overwritten(node: Any, storage: Storage, version: int) -> None:
    """Raise; only warn if the write went through ``.data`` and such writes are not counted."""
    writer = getattr(storage, "writer", None)
    if counts_data_writes() or not reads_attribute(writer, "data"):
        raise overwritten_error(node, storage, version)
    warnings.warn(
        f"a {storage.type} that {node.name()} saved for backward was written through .data: the "
        f"gradient is computed from the new elements, as PyTorch does.\n  written by: "
        f"{describe(writer)}",
        UserWarning,
        stacklevel=2,
    )


def overwritten_error(node: Any, storage: Storage, version: int) -> SavedValueError:
    writer = getattr(storage, "writer", None)
    return SavedValueError(
        "one of the variables needed for gradient computation has been modified by an inplace "
        f"operation: a {storage.type} that {node.name()} saved is at version {storage.version}; "
        f"expected version {version} instead.\n"
        f"  saved by:       {describe(node.location)}\n"
        f"  overwritten by: {describe(writer)}\n"
        "  fix: use the out-of-place form there (`x = x + y` instead of `x += y`), or overwrite a "
        "copy (`x.clone()`). Writes through `.data` pass with a warning after "
        "evergrad.autograd.graph.set_data_writes_counted(False)."
    )


def freed_error(node: Any) -> GradientError:
    return GradientError(
        "Trying to backward through the graph a second time (or directly access saved tensors "
        f"after they have already been freed): the values saved by {node.name()} are released when "
        "backward has used them.\n"
        f"  saved by: {describe(node.location)}\n"
        "  fix: specify retain_graph=True in the first backward() or grad() call."
    )
