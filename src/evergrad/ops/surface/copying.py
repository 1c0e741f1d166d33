"""Copies of whole objects: ``pickle``, ``copy.copy`` and ``copy.deepcopy``.

Tensors that look at one storage still do so in the copy, if they are copied together.
"""

from __future__ import annotations

import copy
import copyreg
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from evergrad.core import dtypes
from evergrad.core.dtypes import dtype
from evergrad.core.inplace import assign
from evergrad.core.op import TABLE
from evergrad.core.shapes import Shape, tensor_type
from evergrad.core.state import STATE, using
from evergrad.core.storage import Storage
from evergrad.core.tensor import Array, Tensor, on_storage
from evergrad.core.views import View
from evergrad.ops.rows.creation.constants import constant
from evergrad.ops.surface.public import expose

if TYPE_CHECKING:
    from evergrad.core.trace import Var

# -- pickle -------------------------------------------------------------------------------------


def reduce_storage(
    storage: Storage,
) -> tuple[Callable[[Array, tuple[int, ...]], Storage], tuple[Array, tuple[int, ...]]]:
    """A storage is pickled once, however many tensors look at it."""
    return _load_storage, (np.ascontiguousarray(storage.value), storage.type.shape)


def _load_storage(array: Array, shape: Shape) -> Storage:
    type = tensor_type(shape, dtypes.from_numpy_dtype(array.dtype))
    return Storage(array.reshape(shape), type, type.nbytes)


copyreg.pickle(Storage, reduce_storage)


@expose("__reduce_ex__", function=False)
def _reduce(self: Tensor, protocol: SupportsIndex) -> tuple[object, ...]:
    array = self.array()
    storage = self._storage
    place: tuple[Shape, int] | None = None
    if self._view is not None:
        whole = storage.value
        if (
            isinstance(whole, np.ndarray)
            and whole.flags.c_contiguous
            and (self.dtype is storage.type.dtype)
        ):
            place = (self.stride(), self.storage_offset())
        else:  # the storage does not tell how this view looks at it
            storage = Storage(array.copy(), self._type, self._type.nbytes)
    state = {**self.__dict__} or None
    args = (type(self), storage, self._type.shape, self.dtype, place, self.requires_grad, state)
    return load_tensor, args


def load_tensor(
    cls: type[Tensor], storage: Storage, shape: Shape, dtype: dtype,
    place: tuple[Shape, int] | None, requires_grad: bool, state: dict[str, object] | None,
) -> Tensor:  # fmt: skip
    """A tensor on a storage; ``place`` gives the strides and offset of a view."""
    whole: Array | Var = storage.value
    value, view = whole, None
    if place is not None:
        strides, offset = place
        attrs = {
            "size": shape,
            "stride": strides,
            "offset": offset,
            "base_stride": tuple(s // whole.itemsize for s in whole.strides),
        }
        step = TABLE["as_strided"]
        value, view = step.eval(whole, **attrs), View(None, ((step, attrs),), storage.version)
    made = on_storage(value, tensor_type(shape, dtype), storage, view, cls)
    if state is not None:
        made.__dict__.update(state)
    return made.requires_grad_(requires_grad)


# -- deepcopy -----------------------------------------------------------------------------------


@expose("__deepcopy__", function=False)
def _deepcopy(self: Tensor, memo: dict[int, Any]) -> Tensor:
    if id(self) in memo:
        return memo[id(self)]  # type: ignore[no-any-return]
    if not self.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
            "protocol at the moment. Use tensor.detach().clone() to copy the elements alone."
        )
    if STATE.get().trace is not None:
        made = _copied_in_trace(self)
    else:
        made = _copied_handle(self, _copied_storage(self._storage, memo))
    memo[id(self)] = made
    made.__dict__.update(copy.deepcopy(self.__dict__, memo))
    if self.requires_grad:
        made.requires_grad_()
    if self._grad is not None:
        made._grad = copy.deepcopy(self._grad, memo)
    return made


def _copied_in_trace(self: Tensor) -> Tensor:
    """A tensor of the program, made anew and filled each time it runs."""
    with using(grad=False):
        made = assign(constant(self._type.shape, 0, self.dtype), self)
    return on_storage(made._value, made._type, made._storage, None, type(self))


def _copied_storage(storage: Storage, memo: dict[int, Any]) -> Storage:
    made: Storage | None = memo.get(id(storage))
    if made is None:
        assert isinstance(storage.value, np.ndarray)
        array = storage.value.copy(order="K")
        made = memo[id(storage)] = Storage(array, storage.type, storage.nbytes)
        made.tag(storage.category)
    return made


def _copied_handle(self: Tensor, storage: Storage) -> Tensor:
    """The same look at another storage."""
    value: Any = storage.value
    view = None
    if self._view is not None:
        for op, attrs in self._view.chain:
            value = op.eval(value, **attrs)
        view = View(None, self._view.chain, storage.version)
    return on_storage(value, self._type, storage, view, type(self))
