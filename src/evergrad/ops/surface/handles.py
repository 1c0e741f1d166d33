"""Handles on the same memory: ``detach``, ``data``, storages, and where a tensor lives.

A handle made here looks at its source's storage but has no part in its history.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core.bind import bind
from evergrad.core.functionalize import functionalizing_trace, note_new_handle
from evergrad.core.inplace import assign
from evergrad.core.memory_format import strided
from evergrad.core.mutation_counter import MUTATIONS
from evergrad.core.node import Leaf
from evergrad.core.op import NONDIFFERENTIABLE, Op
from evergrad.core.shapes import as_shape, contiguous_strides
from evergrad.core.state import STATE, using
from evergrad.core.tensor import (
    Tensor,
    current_node,
    detached,
    from_array,
    materialize,
    note_handle,
    on_storage,
)
from evergrad.core.trace import Var
from evergrad.core.views import View
from evergrad.ops.surface.public import expose
from evergrad.ops.surface.storages import UntypedStorage

if TYPE_CHECKING:
    from evergrad.core.types import Ints

# -- without history ----------------------------------------------------------------------------


def _batch_detach(op: Op, args: Sequence[object], dims: Sequence[object]) -> object:
    return bind(op, *args), dims[0]


# In a trace the cut is written down: forward mode must find it there, where nodes are no help.
DETACH = Op(
    "detach", family="opaque", type=lambda x: x, eval=lambda x: x, vjp=NONDIFFERENTIABLE, jvp=None,
    batch=_batch_detach, alias="view", upcast=False, doc="The same elements without a history.",
)  # fmt: skip


@expose(out=False)
def detach(input: Tensor) -> Tensor:
    """The same elements, without a history."""
    if not isinstance(input._storage.value, Var):
        made = detached(input)
        state = STATE.get()
        if state.trace is not None:
            state.trace.note_made(made)
        if state.recorder is not None:
            state.recorder.note(detached, (input,), made)
        return made
    with using(grad=False):
        cut: Tensor = bind(DETACH, input)
    assert cut._view is not None
    # Not a view whose base has a history: what is written to it does not enter that one's.
    view = View(None, cut._view.chain, input._storage.version)
    return on_storage(cut._value, cut._type, cut._storage, view)


@expose(out=False)
def detach_(input: Tensor) -> Tensor:
    """Cut this tensor off from its history, in place."""
    if input._view is not None and input._view.base is not None:
        raise RuntimeError("Can't detach views in-place. Use detach() instead.")
    input._node = None
    input._index = 0
    MUTATIONS.advance()
    return input


def _data(self: Tensor) -> Tensor:
    """The same elements without a history. A write to them counts: backward notices it.

    ``set_data_writes_counted(False)`` lets such a write pass with a warning, as PyTorch does.
    """
    return detach(self)


def _set_data(self: Tensor, value: Tensor) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"Variable data has to be a tensor, but got {type(value).__name__}")
    trace = functionalizing_trace()
    if trace is not None and trace.set_data(self, value):
        return
    held = value._storage.value
    is_traced = isinstance(held, Var) and held.trace is not trace
    if is_traced and not isinstance(self._storage.value, Var):
        if trace is None and value._type.same(self._type):
            with using(grad=False):
                assign(self, value)
            return
        materialize(value, f".data of a {self._type} from outside was set to a {value._type}")
    source = detached(value)
    self._type = source._type
    self._value = source._value
    note_handle(self)
    self._storage = source._storage
    self._view = source._view
    MUTATIONS.advance()


Tensor.data = property(_data, _set_data)  # type: ignore[assignment]


@expose(function=False)
def set_(
    self: Tensor,
    source: Any = None,
    storage_offset: int = 0,
    size: Ints | None = None,
    stride: Ints | None = None,
) -> Tensor:
    """Let this tensor look at another storage, or at a part of it; without one, at no elements."""
    if source is None:
        source = from_array(np.empty(0, self.dtype.np))
    elif isinstance(source, UntypedStorage):
        source = source._tensor()
    if size is not None:
        shape = as_shape((size,))
        steps = contiguous_strides(shape) if stride is None else as_shape((stride,))
        source = source.as_strided(shape, steps, storage_offset)
    if isinstance(current_node(self), Leaf) and STATE.get().grad:
        raise RuntimeError(
            "a leaf Variable that requires grad is being used in an in-place operation."
        )
    if source.dtype is not self.dtype:
        raise RuntimeError(
            f"Could not set tensor of type {source.dtype.name} to a tensor of type "
            f"{self.dtype.name}"
        )
    _set_data(self, source)
    return self


@expose(function=False)
def as_subclass(self: Tensor, cls: type[Tensor]) -> Tensor:
    """The same elements and history, as another class of tensor."""
    made = on_storage(self._value, self._type, self._storage, self._view, cls)
    note_new_handle(made)
    made._node, made._index, made._leaf = current_node(self), self._index, self._leaf
    return made


def _make_subclass(cls: type[Tensor], data: Tensor, require_grad: bool = False) -> Tensor:
    """A leaf of a class on the memory of a tensor: how subclasses write their ``__new__``."""
    return detached(data).as_subclass(cls).requires_grad_(require_grad)


Tensor._make_subclass = staticmethod(_make_subclass)


# -- where a tensor lives -----------------------------------------------------------------------


def _constant_property(name: str, value: object, doc: str) -> None:
    setattr(Tensor, name, property(lambda self: value, doc=doc))


for _kind in (
    "cuda",
    "mps",
    "xpu",
    "meta",
    "sparse",
    "sparse_csr",
    "quantized",
    "mkldnn",
    "nested",
    "xla",
    "ipu",
    "maia",
    "mtia",
    "vulkan",
):
    _constant_property(f"is_{_kind}", False, "Always false: tensors are dense and on the CPU.")
_constant_property("is_cpu", True, "Always true.")
_constant_property("layout", strided, "How the elements are stored: always ``strided``.")


@expose(function=False)
def ndimension(self: Tensor) -> int:
    """The number of dimensions."""
    return self.ndim


@expose(out=False)
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape.

    Args:
        input, other: tensors

    >>> eg.is_same_size(eg.ones(2), eg.ones(2, 1))
    False
    """
    return input._type.shape == other._type.shape


@expose(function=False)
def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Whether both look at the very same elements in the same way."""
    return (
        self._storage is tensor._storage
        and self.data_ptr() == tensor.data_ptr()
        and self._type.same(tensor._type)
        and self.stride() == tensor.stride()
    )


@expose("is_neg", out=False)
def is_conj(input: Tensor) -> bool:
    """Whether the elements are to be conjugated (negated) when read: never, it is done at once.

    PyTorch puts conjugation off until elements are read.

    >>> eg.is_conj(eg.tensor([1j]).conj()), eg.is_neg(-eg.ones(2))
    (False, False)
    """
    return False


@expose(out=False)
def get_device(input: Tensor) -> int:
    """The number of the accelerator a tensor is on: -1, for none.

    >>> eg.get_device(eg.ones(2))
    -1
    """
    return -1
