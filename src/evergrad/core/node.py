"""The record of what was computed: nodes, leaves, and the values they keep.

A :class:`Node` points to the nodes of its arguments and to the arrays its derivative needs, never
to a tensor, and no array points back to a node: graphs have no cycles and are freed by reference
count alone.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core.mutation_counter import MUTATIONS
from evergrad.core.shapes import TensorType
from evergrad.core.source_location import SourceLocation, describe, user_location
from evergrad.core.storage import Storage, checksum
from evergrad.errors import GradientError, SavedValueError
from evergrad.extension import ExtensionPoint

if TYPE_CHECKING:
    from evergrad.core.tensor import Tensor
    from evergrad.core.vjp_program import VjpProgram

next_sequence = itertools.count(1).__next__

# A kept value: (array or symbolic value or number, storage, its version, checksum if shared).
# Values with no storage are plain numbers. With saved-tensor hooks it is a ``Packed`` instead.
Saved = tuple[Any, Storage | None, int, int | None]

_unpack: ExtensionPoint[[Packed, Any], Tensor] = ExtensionPoint("unpack")


class Packed:
    """A kept value that went through ``saved_tensors_hooks``.

    Where it came from is remembered weakly: a hook that gives back the same memory, instead of a
    copy, must not hide that it was overwritten.
    """

    __slots__ = ("origin", "packed", "saved_checksum", "type", "unpack", "version")

    def __init__(self, packed: Any, unpack: Callable[[Any], Any], tensor: Tensor) -> None:
        self.packed = packed
        self.unpack = unpack
        self.type = tensor._type
        storage = tensor._storage
        storage.watch()
        self.origin = weakref.ref(storage)
        self.version = storage.version
        self.saved_checksum = checksum(tensor._value) if storage.shared else None


class Hooks:
    """The hooks of one node: on the cotangents of its results, before it runs, after it ran."""

    __slots__ = ("after", "before", "on_result", "retained")

    def __init__(self) -> None:
        self.on_result: dict[int, dict[int, Callable[..., Any]]] = {}
        self.before: dict[int, Callable[..., Any]] = {}
        self.after: dict[int, Callable[..., Any]] = {}
        # The tensors whose gradient is wanted though they are not leaves. Weak: a gradient with a
        # history leads back here, and a cycle would never be freed.
        self.retained: dict[int, weakref.ref[Tensor]] = {}


class RemovableHandle:
    """Takes a hook away again, by :meth:`remove` or at the end of a ``with`` block."""

    __slots__ = ("_hooks", "id")

    def __init__(self, hooks: dict[int, Any], hook: Any, first: bool = False) -> None:
        self.id = next_sequence()
        self._hooks = hooks
        others = dict(hooks) if first else {}
        if first:
            hooks.clear()
        hooks[self.id] = hook
        hooks.update(others)
        MUTATIONS.count += 1

    def remove(self) -> None:
        self._hooks.pop(self.id, None)
        MUTATIONS.count += 1

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


class GraphNode:
    """What op nodes, custom functions and leaves have in common."""

    __slots__ = ("__weakref__", "hooks", "seq")

    seq: int
    hooks: Hooks | None
    parents: tuple[GraphNode | None, ...] = ()

    def ensure_hooks(self) -> Hooks:
        if self.hooks is None:
            self.hooks = Hooks()
        return self.hooks

    def register_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(grad_inputs, grad_outputs)`` after this node ran backward."""
        return RemovableHandle(self.ensure_hooks().after, hook)

    def register_prehook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(grad_outputs)`` before this node runs backward."""
        return RemovableHandle(self.ensure_hooks().before, hook)

    def name(self) -> str:
        raise NotImplementedError

    @property
    def next_functions(self) -> tuple[tuple[GraphNode | None, int], ...]:
        return ()

    def __repr__(self) -> str:
        return f"<{self.name()} object at {id(self):#x}>"


class Leaf(GraphNode):
    """The end of a graph at a tensor that asked for its gradient.

    The tensor holds the gradient and the leaf knows the tensor only weakly, so that a gradient with
    a history (``create_graph``) closes no cycle.
    """

    __slots__ = ("accumulated", "owner")

    def __init__(self, owner: Tensor) -> None:
        self.seq = next_sequence()
        self.hooks = None
        # Hooks called with the tensor after its gradient has been accumulated.
        self.accumulated: dict[int, Callable[..., Any]] | None = None
        self.owner = weakref.ref(owner)

    def name(self) -> str:
        return "AccumulateGrad"

    @property
    def variable(self) -> Tensor | None:
        return self.owner()


class Node(GraphNode):
    """One op that took part in a computation whose gradient may be asked for."""

    __slots__ = ("indices", "location", "parents", "saved", "vjp_program")

    def __init__(
        self,
        vjp_program: VjpProgram,
        parents: tuple[GraphNode | None, ...],
        indices: tuple[int, ...] | None,
        saved: Any,
    ) -> None:
        self.seq = next_sequence()
        self.hooks = None
        self.vjp_program = vjp_program
        self.parents = parents
        # Which result of each parent was used; None where it is the only one everywhere.
        self.indices = indices
        # A tuple of Saved; a list if some went through hooks; None once released.
        self.saved: Any = saved
        self.location: SourceLocation | None = user_location(1)

    def name(self) -> str:
        words = self.vjp_program.specialization.op.name.split("_")
        return "".join(word[:1].upper() + word[1:] for word in words) + "Backward0"

    @property
    def next_functions(self) -> tuple[tuple[GraphNode | None, int], ...]:
        indices = self.indices or (0,) * len(self.parents)
        return tuple(zip(self.parents, indices, strict=True))

    def out_types(self) -> tuple[TensorType, ...]:
        return self.vjp_program.specialization.out_types

    def release(self) -> None:
        """Let go of the kept values; a second backward is then an error."""
        if self.saved:
            self.saved = None

    def saved_arrays(self) -> list[Any]:
        """The kept values as arrays and numbers, after checking that they still hold."""
        if self.saved is None:
            raise freed_error(self)
        values = []
        for entry in self.saved:
            if entry.__class__ is Packed:
                values.append(_unpack(entry, self)._value)
                continue
            value, storage, version, _ = entry
            if storage is not None and (storage.version != version or storage.shared):
                verify(self, entry)
            values.append(value)
        return values


def save_value(value: Any, storage: Storage) -> Saved:
    """Keep a value for backward, by reference."""
    if not storage.saved:
        storage.mark_saved()
    saved_checksum = None
    if storage.shared and isinstance(value, np.ndarray):
        saved_checksum = checksum(value)
    return value, storage, storage.version, saved_checksum


def verify(node: Any, entry: Saved) -> None:
    """Raise if a kept value is no longer what it was."""
    value, storage, version, saved_checksum = entry
    assert storage is not None
    if storage.version != version:
        raise overwritten_error(node, storage, version)
    if storage.shared and isinstance(value, np.ndarray):
        before, now = (
            (storage.saved_checksum, storage.checksum())
            if saved_checksum is None
            else (saved_checksum, checksum(value))
        )
        if before is not None and before != now:
            raise SavedValueError(
                f"one of the values needed for gradient computation was changed from outside: the "
                f"memory of a {storage.type} that {node.name()} saved is shared with a NumPy array "
                "(or another DLPack user), and was written through it after it was saved.\n"
                f"  saved by:  {describe(node.location)}\n"
                "  fix: write before the forward pass, or write to a copy "
                "(`tensor.detach().clone().numpy()`, `from_numpy(array.copy())`)."
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
        "copy (`x.clone()`)."
    )


def freed_error(node: Any) -> GradientError:
    return GradientError(
        "Trying to backward through the graph a second time (or directly access saved tensors "
        f"after they have already been freed): the values kept by {node.name()} are released when "
        "backward has used them.\n"
        f"  saved by: {describe(node.location)}\n"
        "  fix: specify retain_graph=True in the first backward() or grad() call."
    )
