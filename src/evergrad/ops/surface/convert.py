"""Tensors from Python numbers, nested lists, NumPy arrays, buffers and DLPack.

Owns the way in: inferring the element type as PyTorch does, and deciding whether memory is copied
or shared. Memory shared with code outside is marked, so that a write from there does not go
unnoticed by backward.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import bind, cast
from evergrad.core.dtypes import as_dtype, dtype
from evergrad.core.errstate import QUIET, numpy_errors
from evergrad.core.families import opaque
from evergrad.core.functionalize import SymbolicNumber
from evergrad.core.meta import placed
from evergrad.core.namespace import late_bound
from evergrad.core.op import NONDIFFERENTIABLE, TABLE
from evergrad.core.python_numbers import PythonNumber
from evergrad.core.row_facts import AutocastPolicy, numpy_evaluates
from evergrad.core.shapes import Shape, tensor_type
from evergrad.core.state import STATE
from evergrad.core.tensor import Array, Tensor, from_array
from evergrad.interop.dlpack import import_array
from evergrad.ops.rows.creation.constants import check_place, finish
from evergrad.ops.surface.handles import detach
from evergrad.ops.surface.public import expose
from evergrad.ops.surface.storages import UntypedStorage

if TYPE_CHECKING:
    from evergrad.core.types import DeviceLike, DtypeLike

_DEEPEST = 64

_LISTS = frozenset((list, tuple))
_WIDE = {float: np.dtype(np.float64), int: np.dtype(np.int64), bool: np.dtype(np.bool_)}

# -- a constant in a program --------------------------------------------------------------------


class Constant:
    """An array as an attribute of a row. It is never written, and equal only to itself."""

    __slots__ = ("array",)

    def __init__(self, array: Array) -> None:
        self.array: Array = array

    def __repr__(self) -> str:
        return f"<array {self.array.dtype}{list(self.array.shape)}>"


CONSTANT = opaque(
    "constant", lambda *, value: value.array.copy(),
    lambda *, value: tensor_type(value.array.shape, dtypes.from_numpy_dtype(value.array.dtype)),
    NONDIFFERENTIABLE, upcast=False,
    emit=numpy_evaluates("evaluated once, when constants are folded"), autocast=AutocastPolicy.KEEP,
    doc="Numbers that stood in the program.",
)  # fmt: skip


def adopt(array: Array) -> Tensor:
    """A tensor that owns an array; inside a trace, a constant of its program."""
    if STATE.get().trace is None:
        return from_array(array)
    # A constant is used by its program alone: caching its specialization would leak.
    CONSTANT.specializations.clear()
    return bind(CONSTANT, value=Constant(array))  # type: ignore[no-any-return]


# -- numbers and lists --------------------------------------------------------------------------


def _is_sequence(data: object) -> bool:
    if isinstance(data, list | tuple):
        return True
    if isinstance(data, str | bytes | Mapping | Tensor | np.generic):
        return False
    if isinstance(data, np.ndarray):
        return data.ndim > 0
    return hasattr(data, "__getitem__") and hasattr(data, "__len__")


def _shape_of(data: Any) -> Shape:
    """The shape that the first elements of a nested sequence suggest."""
    shape: list[int] = []
    while _is_sequence(data):
        if len(shape) == _DEEPEST:
            raise ValueError(f"too many dimensions '{type(data).__name__}'")
        shape.append(len(data))
        if not shape[-1]:
            break
        data = data[0]
    if shape and isinstance(data, str | bytes):
        raise ValueError(f"too many dimensions '{type(data).__name__}'")
    return tuple(shape)


def _flatten(data: Any, shape: Shape) -> list[object]:
    """The elements of a nested sequence in order, after checking that it has this shape."""
    level = [data]
    for dim, extent in enumerate(shape):
        for item in level:
            if not _is_sequence(item):
                raise TypeError("not a sequence")
            if len(item) != extent:
                raise ValueError(
                    f"expected sequence of length {extent} at dim {dim} (got {len(item)})"
                )
        level = list(chain.from_iterable(level))
    return level


def _element_dtype(element: object) -> dtype:
    if isinstance(element, Tensor):
        return element.dtype
    if isinstance(element, np.generic | np.ndarray):
        return dtypes.from_numpy_dtype(element.dtype)
    for kind in (bool, int, float, complex):
        if isinstance(element, kind):
            return dtypes.scalar_type(kind)
    if isinstance(element, list | tuple):
        raise TypeError(f"'{type(element).__name__}' object cannot be interpreted as an integer")
    raise RuntimeError(f"Could not infer dtype of {type(element).__name__}")


def _common_dtype(elements: list[object], kinds: set[type]) -> dtype:
    if not elements:
        return dtypes.get_default_dtype()
    if kinds <= {bool, int, float, complex}:
        found = [dtypes.scalar_type(kind) for kind in kinds]
    else:
        found = list({_element_dtype(element) for element in elements})
    return functools.reduce(dtypes.promote_types, found)


def _plain(element: object) -> object:
    """An element as a Python number."""
    if isinstance(element, Tensor):
        if element._type.numel != 1:
            raise ValueError("only one element tensors can be converted to Python scalars")
        return element.array().item()
    return element.item() if isinstance(element, np.generic | np.ndarray) else element


def _array_of_numbers(elements: list[object], target: dtype | None) -> Array:
    """Numbers as an array of the given type, or of the one that holds them all."""
    kinds = set(map(type, elements))
    common = _common_dtype(elements, kinds)
    if not kinds <= {bool, int, float, complex}:
        elements = [_plain(element) for element in elements]
    if target is None:
        target = common
    if target.category < dtypes.COMPLEX <= common.category and target is not dtypes.bool_:
        raise TypeError("must be real number, not complex")
    return _narrow(_wide_array(elements, common.category, target), target)


def _array_of_one_kind(data: Any, target: dtype | None) -> Array | None:
    """The same for numbers of one kind in a sequence, or in equally long lists; ``None`` for
    anything else."""
    kinds = set(map(type, data))
    if kinds <= _LISTS and len(set(map(len, data))) == 1:
        kinds = set(map(type, chain.from_iterable(data)))
    if len(kinds) != 1:
        return None
    (kind,) = kinds
    wide: np.dtype[np.generic] | type | None = _WIDE.get(kind)
    if wide is None:
        return None
    if target is None:
        target = dtypes.get_default_dtype() if kind is float else dtypes.scalar_type(kind)
    if target is dtypes.float32 or target is dtypes.float64:
        wide = _WIDE[float]
    elif kind is float or target.np is not wide:
        return None
    token = numpy_errors.set(QUIET)
    try:
        return np.array(data, wide).astype(target.np, copy=False)
    except OverflowError:
        return None
    finally:
        numpy_errors.reset(token)


def _wide_array(elements: list[object], category: int, target: dtype) -> Array:
    if category == dtypes.COMPLEX or target.is_complex:
        return np.array(elements, np.complex128)
    if category == dtypes.FLOATING or target.is_floating_point:
        return np.array(elements, np.float64)
    try:
        return np.array(elements, np.int64 if category == dtypes.INTEGRAL else np.bool_)
    except OverflowError:
        raise ValueError("Overflow when unpacking long long") from None


def _narrow(wide: Array, target: dtype) -> Array:
    if target.category == dtypes.INTEGRAL and wide.dtype.kind != "b":
        limits = np.iinfo(target.np)
        lowest = limits.min if target.is_signed else -limits.max  # negatives wrap around
        if not np.all((wide >= lowest) & (wide <= limits.max)):
            raise RuntimeError(f"value cannot be converted to type {target.name} without overflow")
    with np.errstate(over="ignore"):
        if target.compute is not target.np:  # 16 bits are reached through float32
            wide = wide.astype(target.compute)
        return wide.astype(target.np)


# -- copies -------------------------------------------------------------------------------------


@late_bound
@expose(method=False, out=False)
@placed
def tensor(
    data: object, *, dtype: DtypeLike = None, device: DeviceLike = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor with a copy of the data: a number, a nested list, an array, another tensor."""
    check_place(device)
    target = None if dtype is None else as_dtype(dtype)
    return finish(copied(data, target), requires_grad)


def copied(data: object, target: dtype | None) -> Tensor:
    """The data in memory of its own, as ``target`` or the type inferred from it."""
    if isinstance(data, Tensor):
        return _copied_tensor(data, target)
    if type(data) is PythonNumber:
        data = data.read() if type(data.value) is int else data.symbolic()
    if isinstance(data, SymbolicNumber):
        return cast(data.tensor, target or dtypes.get_default_dtype())
    if isinstance(data, str | bytes):
        raise TypeError(f"new(): invalid data type '{type(data).__name__}'")
    if isinstance(data, list | tuple):
        found = _array_of_one_kind(data, target)
        return adopt(_array_of_sequence(data, target) if found is None else found)
    if isinstance(data, np.ndarray | np.generic) or hasattr(data, "__array__"):
        return adopt(_copied_array(np.asarray(data), target))
    if _is_sequence(data):
        return adopt(_array_of_sequence(data, target))
    return adopt(_array_of_numbers([data], target).reshape(()))


def _copied_tensor(data: Tensor, target: dtype | None) -> Tensor:
    data = detach(data)
    if target is not None and target is not data.dtype:
        return cast(data, target)
    return bind(TABLE["clone"], data)  # type: ignore[no-any-return]


def _copied_array(array: Array, target: dtype | None) -> Array:
    own = dtypes.from_numpy_dtype(array.dtype)
    if target is None or target is own:
        return np.array(array, own.np, order="C")
    return np.asarray(TABLE["cast"].eval(array, dtype=target))


def _array_of_sequence(data: Any, target: dtype | None) -> Array:
    if len(data) and all(isinstance(part, np.ndarray) for part in data):
        first = data[0]
        if all(part.shape == first.shape and part.dtype == first.dtype for part in data):
            return _copied_array(np.stack(data), target)
    shape = _shape_of(data)
    return _array_of_numbers(_flatten(data, shape), target).reshape(shape)


# -- shared memory ------------------------------------------------------------------------------


def _check_shareable(array: Array) -> None:
    """Refuse arrays whose elements no tensor can look at."""
    if not array.dtype.isnative:
        raise ValueError(
            "given numpy array has byte order different from the native byte order. Conversion "
            "between byte orders is currently not supported."
        )
    if any(s < 0 for s in array.strides):
        raise ValueError(
            "At least one stride in the given numpy array is negative, and tensors with negative "
            "strides are not currently supported. (You can probably work around this by making a "
            "copy of your array  with array.copy().) "
        )
    if any(s % array.itemsize for s in array.strides):
        raise ValueError(
            "given numpy array strides not a multiple of the element byte size. Copy the numpy "
            "array to reallocate the memory."
        )


def share(array: Array, stacklevel: int = 3) -> Tensor:
    """A tensor on the memory of an array that others may write to."""
    _check_shareable(array)
    if not array.flags.writeable:
        warnings.warn(
            "The given NumPy array is not writable, so writing to this tensor will be an error. "
            "You may want to copy the array, or make it writable, before converting it to a "
            "tensor.",
            UserWarning,
            stacklevel=stacklevel,
        )
    result = from_array(array.view(np.ndarray))
    if _is_written_elsewhere(array):
        result._storage.mark_shared()
    return result


def _is_written_elsewhere(array: Any) -> bool:
    """Whether there is a way to write to the memory of an array."""
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return True
        array = array.base
    if array is None:
        return False
    try:
        return not memoryview(array).readonly
    except TypeError:
        return True


@expose(method=False, out=False)
def from_numpy(ndarray: object) -> Tensor:
    """A tensor that shares the memory of a NumPy array."""
    if not isinstance(ndarray, np.ndarray):
        kind = type(ndarray)
        place = "" if kind.__module__ == "builtins" else kind.__module__ + "."
        raise TypeError(
            f"expected np.ndarray (got {place}{kind.__name__}); evergrad.tensor() takes lists and "
            "numbers"
        )
    return share(ndarray)


@expose(method=False, out=False)
def as_tensor(data: object, dtype: DtypeLike = None, device: DeviceLike = None) -> Tensor:
    """The data as a tensor, without a copy where that is possible."""
    check_place(device)
    target = None if dtype is None else as_dtype(dtype)
    if isinstance(data, np.ndarray):
        data = share(data)
    if isinstance(data, Tensor):
        return data if target is None else cast(data, target)
    return copied(data, target)


@expose(method=False, out=False)
def asarray(
    obj: object, *, dtype: DtypeLike = None, device: DeviceLike = None, copy: bool | None = None,
    requires_grad: bool | None = None,
) -> Tensor:  # fmt: skip
    """The object as a tensor; ``copy`` says whether its memory must, may or must not be copied."""
    check_place(device)
    target = None if dtype is None else as_dtype(dtype)
    found = _aliased(obj, target)
    if found is None:
        if copy is False:
            raise ValueError("can't alias arbitrary sequence into a tensor.")
        return finish(copied(obj, target), bool(requires_grad))
    if target is not None and target is not found.dtype:
        if copy is False:
            raise ValueError(
                f"can't alias tensor with dtype '{found.dtype.name}' into dtype '{target.name}'."
            )
        found = cast(found, target)
    elif copy:
        found = bind(TABLE["clone"], found)
    if requires_grad is None or requires_grad == found.requires_grad:
        return found
    return finish(detach(found), requires_grad)


def _aliased(obj: object, target: dtype | None) -> Tensor | None:
    """A tensor on the object's own memory, or ``None`` if it has none to share."""
    if isinstance(obj, Tensor):
        return obj
    if isinstance(obj, np.ndarray):
        return share(obj, stacklevel=4)
    if isinstance(obj, np.generic):
        return share(np.asarray(obj), stacklevel=4)
    if isinstance(obj, UntypedStorage):
        return obj._tensor()
    if hasattr(obj, "__dlpack__"):
        return from_dlpack(obj)
    if isinstance(obj, bytes | bytearray | memoryview):
        return frombuffer(obj, dtype=target or dtypes.get_default_dtype())
    return None


@expose(method=False, out=False)
def from_dlpack(ext_tensor: Any, *, device: DeviceLike = None, copy: bool | None = None) -> Tensor:
    """A tensor that shares the memory of any DLPack object on the CPU, or with ``copy`` has its
    own."""
    check_place(device)
    found = share(import_array(ext_tensor))
    return bind(TABLE["clone"], found) if copy else found


@expose(method=False, out=False)
def frombuffer(
    buffer: Any, *, dtype: DtypeLike, count: int = -1, offset: int = 0, requires_grad: bool = False
) -> Tensor:
    """A one-dimensional tensor on the memory of a Python buffer."""
    target = as_dtype(dtype)
    try:
        view = memoryview(buffer).cast("B")
    except TypeError:
        raise ValueError("object does not implement Python buffer protocol.") from None
    size, length = target.itemsize, len(view)
    if not length or not count:
        raise ValueError(f"both buffer length ({length}) and count ({count}) must not be 0")
    if not 0 <= offset < length:
        raise ValueError(
            f"offset ({offset} bytes) must be non-negative and no greater than buffer length "
            f"({length} bytes) minus 1"
        )
    if count < 0:
        if (length - offset) % size:
            raise ValueError(
                f"buffer length ({length - offset} bytes) after offset ({offset} bytes) must be a "
                f"multiple of element size ({size})"
            )
        count = (length - offset) // size
    if offset + count * size > length:
        raise ValueError(
            f"requested buffer length ({count} * {size} bytes) after offset ({offset} bytes) must "
            f"not be greater than actual buffer length ({length} bytes)"
        )
    array = np.frombuffer(view[offset : offset + count * size], np.uint8).view(target.np)
    return finish(share(array), requires_grad)
