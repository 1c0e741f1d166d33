"""Reads and writes of parts where nothing is recorded, traced or cast: NumPy's own indexing, and
indices that were read before.

What an index binds depends on the type of the tensor, its own numbers and slices, and the types of
its index tensors. It is read once; further reads look up the specializations. A function here that
does not apply gives false or ``None``, and the general way is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import bind_prepared, bind_prepared_list
from evergrad.core.errstate import QUIET, numpy_errors
from evergrad.core.inplace import note_write
from evergrad.core.op import Specialization, prepared_calls
from evergrad.core.shapes import Shape, TensorType, tensor_type
from evergrad.core.state import STATE, State
from evergrad.core.storage import Storage
from evergrad.core.tensor import Tensor, from_array, new_result
from evergrad.core.views import View
from evergrad.memory import pool
from evergrad.ops.rows.movement.slices import SLICE, Slices

if TYPE_CHECKING:
    from evergrad.core.types import Array, Index

_NoneType, _Ellipsis = type(None), type(Ellipsis)
_BOUNDS = frozenset((int, _NoneType))
_INTS = frozenset((int,))
# Element types whose arrays take Python's numbers as rows do, by the types of these numbers.
_NUMBERS = {
    dtypes.float32: frozenset((float, int)),
    dtypes.float64: frozenset((float, int)),
    dtypes.int64: frozenset((int, bool)),
    dtypes.bool_: frozenset((bool,)),
}
_PLACES = (dtypes.int64, dtypes.int32)

# By the type of a tensor and the description of an index: the rows that give the view, and the row
# that picks elements of it with the numbers of its index tensors in the index, or ``None``.
PREPARED: dict[object, Any] = prepared_calls()

Reading = tuple[tuple[Specialization, ...], Specialization | None]


def describe(index: object, key: list[Any], tensors: list[Tensor]) -> bool:
    """Add what an index binds to the key of a call; false if that is to be read each time."""
    for item in index if index.__class__ is tuple else (index,):
        kind = item.__class__
        if kind is int or kind is _NoneType or kind is _Ellipsis:
            key.append(item)
        elif kind is slice:
            bounds = item.start, item.stop, item.step
            if not _BOUNDS.issuperset(map(type, bounds)):
                return False
            key.append(bounds)
        elif isinstance(item, Tensor):
            type_ = item._type
            if type_.__class__ is not TensorType or type_.dtype not in _PLACES:
                return False
            if type_.shape:
                key.append(type_)
                tensors.append(item)
            else:
                key.append(int(item._value))
        elif kind is list and item and _INTS.issuperset(map(type, item)):
            places = from_array(np.array(item))
            if places._type.dtype is not dtypes.int64:
                return False
            key.append(places._type)
            tensors.append(places)
        else:
            return False
    return True


def read(x: Tensor, found: Reading, tensors: list[Tensor]) -> Tensor:
    """What an index gives that was read before."""
    rows, pick = found
    for row in rows:
        x = bind_prepared(row, x)
    return x if pick is None else bind_prepared_list(pick, (x, *tensors))


def masked(x: Tensor, mask: Tensor) -> Tensor | None:
    """The elements under a mask of the leading dimensions."""
    state = STATE.get()
    if state.intercepted or not _is_mask(x, mask) or not _is_plain(state, x):
        return None
    array = x._value[mask._value]
    if not array.flags.c_contiguous:
        array = pool.copy(array)
    return new_result(array, tensor_type(array.shape, x._type.dtype), state.inference)


def _is_mask(x: Tensor, mask: Tensor) -> bool:
    shape = mask._type.shape
    return (
        mask._type.__class__ is TensorType
        and mask._type.dtype is dtypes.bool_
        and bool(shape)
        and x._type.shape[: len(shape)] == shape
    )


def _is_plain(state: State, x: Tensor) -> bool:
    """Whether a tensor has elements, and what is done to it is no part of a graph."""
    is_apart = not state.grad or (x._node is None and x._view is None)
    return is_apart and x._type.__class__ is TensorType and x._value.__class__ is np.ndarray


def write(x: Tensor, index: object, slices: Slices, value: object) -> bool:
    """``x[index] = value`` for numbers and slices, which are ``slices`` in the terms of their row,
    if that is a write of memory alone."""
    if isinstance(value, Tensor) and value._storage is x._storage:
        return _is_part(x, slices, value._view)  # the end of x[index] += y
    array = _writable(x)
    if array is None:
        return False
    if isinstance(value, Tensor):
        part = array[(*index, ...) if index.__class__ is tuple else (index, ...)]
        if not _fits(x, value, part.shape):
            return False
        np.copyto(part, value._value)
    elif value.__class__ in _NUMBERS.get(x._type.dtype, ()):
        _assign(array, index, value)
    else:
        return False
    note_write(x._storage)
    return True


def _is_part(x: Tensor, slices: Slices, view: View | None) -> bool:
    """Whether a view is that part of a tensor already."""
    if view is None or x._view is not None or view.base is not x or len(view.chain) != 1:
        return False
    ((op, attrs),) = view.chain
    return op is SLICE and attrs["slices"] == slices and not STATE.get().intercepted


def write_picked(x: Tensor, index: object, value: object) -> bool:
    """The same for a mask of the leading dimensions and a number, for index tensors of the leading
    dimensions, and for numbers at index tensors beside numbers and slices."""
    array = _writable(x)
    if array is None or not array.size:
        return False
    if index.__class__ is not tuple and isinstance(index, Tensor) and _is_mask(x, index):
        places: Any = index._value
        shape: Shape | None = None
    else:
        items = index if index.__class__ is tuple else (index,)
        places = tuple([_place(item) for item in items])
        if _NoneType in map(type, places):
            return False
        shape = _picked_shape(places, array.shape)
    if isinstance(value, Tensor):
        if shape is None or not _fits(x, value, shape):
            return False
        value = value._value
    elif value.__class__ not in _NUMBERS.get(x._type.dtype, ()):
        return False
    try:
        _assign(array, places, value)
    except IndexError:  # all bounds are checked before anything is written
        return False
    note_write(x._storage)
    return True


def _writable(x: Tensor) -> Array | None:
    """The array of a tensor that may be written without further ado, or ``None``."""
    state = STATE.get()
    if state.intercepted or not _is_plain(state, x) or x._storage.__class__ is not Storage:
        return None
    array = x._value
    return array if array.flags.c_contiguous else None  # else elements may share memory


def _fits(x: Tensor, value: Tensor, shape: Shape) -> bool:
    """Whether a value may be copied to a part of this shape."""
    found = value._type
    return (
        value._storage is not x._storage
        and not x._storage.shared
        and found.dtype is x._type.dtype
        and (not found.shape or found.shape == shape)
        and _is_plain(STATE.get(), value)
    )


def _assign(array: Array, index: Index, value: object) -> None:
    token = numpy_errors.set(QUIET)
    try:
        array[index] = value
    finally:
        numpy_errors.reset(token)


def _place(item: Any) -> object:
    """An item of an index as NumPy takes it; ``None`` for what is to be read."""
    kind = item.__class__
    if kind is int:
        return item
    if kind is slice:
        is_forward = item.step is None or (item.step.__class__ is int and item.step > 0)
        return item if is_forward else None
    if isinstance(item, Tensor) and item._type.dtype in _PLACES:
        return item._value if item._value.__class__ is np.ndarray else None
    return None


def _picked_shape(places: tuple[Any, ...], shape: Shape) -> Shape | None:
    """The shape of what stands at index arrays of one shape in the leading dimensions."""
    arrays = [p for p in places if isinstance(p, np.ndarray)]
    is_uniform = len(arrays) == len(places) <= len(shape) and len({p.shape for p in arrays}) == 1
    return (*arrays[0].shape, *shape[len(places) :]) if is_uniform else None
