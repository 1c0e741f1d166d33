"""Reads and writes at indices, and the largest few of rows, by native loops on contiguous arrays.

Each function gives ``None`` or false where it does not apply: for small arrays, other layouts and
element types, indices out of bounds (which the caller reports), and where there is no machine code.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from ctypes import addressof, c_char
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad import config
from evergrad.core import dtypes
from evergrad.core.eager.reductions import reduced_extents
from evergrad.core.shapes import Shape, TensorType, reduced_shape
from evergrad.core.types import Array
from evergrad.extension import ExtensionPoint
from evergrad.memory import pool

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction

_lane_kernel: ExtensionPoint[..., object] = ExtensionPoint("lane_kernel")

# NumPy takes several calls for one element, too. Of fewer elements than these topk() orders equal
# ones as sorting does.
_LEAST_ELEMENTS = 1
_LEAST_FOR_TOPK = 64
# Loops over fewer elements keep the GIL: releasing it would take as long.
_BRIEF = 1 << 14
# The largest number that topk keeps of a row, and which part of a long row at most.
_MOST_KEPT = 64
_SHARE_KEPT = 4
# Variances of more elements take NumPy's vectors.
_MOST_FOR_VARIANCE = 1 << 12
_LONG_ROW = 256

# By the code of an element type: its name is computed anew each time.
_FLOATS = {"f": "float32", "d": "float64"}
# The codes of other element types that are moved as they are.
_MOVED = frozenset("fdlqihbB?")
_INT64 = np.dtype(np.int64)
# Kernels by name and element type; false: there is none.
_kernels: dict[object, Any] = {}


def _function(name: str, element: Any, count: int, *options: object) -> Any:
    forced = config.EAGER_KERNEL_ELEMENTS
    least = _LEAST_ELEMENTS if forced is None else forced
    if count < max(least, 1) or not config.EAGER_KERNELS:
        return None
    key = name, element, *options
    found: Any = _kernels.get(key)
    if found is None:
        found = _kernels[key] = _lane_kernel(*key) or False
    return found[count >= _BRIEF] if found else None


def address_of(array: Any, from_buffer: AnyFunction = c_char.from_buffer) -> int:
    """The address of a writable contiguous array whose elements have a buffer."""
    return addressof(from_buffer(array))


def buffer_address(array: Any) -> int:
    """The address of the first element of a contiguous array."""
    if array.dtype.char == "E":  # bfloat16 and float8 have no buffers
        array = array.view(f"u{array.itemsize}")
    return addressof(c_char.from_buffer(array))


def _extents(shape: Shape, index: Shape, dim: int) -> tuple[int, int, int, int] | None:
    """The extents around a dimension and in it, of an array and of an index that differ there."""
    if shape[:dim] != index[:dim] or shape[dim + 1 :] != index[dim + 1 :]:
        return None
    return math.prod(shape[:dim]), shape[dim], index[dim], math.prod(shape[dim + 1 :])


def _around(shape: Shape, dim: int) -> tuple[int, int, int]:
    """The extents before a dimension, of it and after it."""
    return math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :])


def _is_index(index: Array) -> bool:
    return index.dtype is _INT64 and bool(index.flags.carray)


def gather_evaluator(
    x: TensorType, index: TensorType, dim: int, plain: Callable[..., object]
) -> Callable[..., object]:
    """The same with extents known beforehand; ``plain`` where the loop does not apply."""
    extents = _extents(x.shape, index.shape, dim)
    count, itemsize = index.numel, x.dtype.itemsize
    if extents is None or itemsize > 8 or index.dtype is not dtypes.int64 or not x.numel:
        return plain
    allocate = pool.allocator(index.shape, x.dtype.np)

    def run(array: Any, places: Any) -> Any:
        function = _function("gather_elements", itemsize, count)
        if not function or not (array.flags.carray and places.flags.carray):
            return plain(array, places)
        out = allocate()
        missed = function(address_of(out), address_of(array), address_of(places), *extents)
        return plain(array, places) if missed else out

    return run


def take_evaluator(
    x: TensorType, index: TensorType, start: int, plain: Callable[..., object]
) -> Callable[..., object]:
    """An evaluator of lookups of whole slices; ``plain`` where the loop does not apply, and where
    an index is negative or out of bounds."""
    outer, extent, width = _around(x.shape, start)
    count, itemsize = index.numel, x.dtype.itemsize
    shape = (*x.shape[:start], *index.shape, *x.shape[start + 1 :])
    total = outer * count * width
    if itemsize > 8 or index.dtype is not dtypes.int64 or not total or not x.numel:
        return plain
    allocate = pool.allocator(shape, x.dtype.np)
    name = "take_elements" if width == 1 else "take_rows"
    extents = (outer, extent, count) if width == 1 else (outer, extent, count, width)

    def run(array: Any, places: Any) -> Any:
        function = _function(name, itemsize, total)
        if not function or not (array.flags.carray and places.flags.carray):
            return plain(array, places)
        out = allocate()
        addresses = address_of(out), address_of(array), address_of(places)
        missed = function(*addresses, *extents)
        return plain(array, places) if missed else out

    return run


def reverse_evaluator(x: TensorType, dims: Shape, plain: AnyFunction) -> AnyFunction:
    """An evaluator of contiguous arrays with the last dimensions in reverse order; ``plain`` for
    others."""
    rank, itemsize = len(x.shape), x.dtype.itemsize
    if not dims or set(dims) != set(range(rank - len(dims), rank)) or itemsize > 8 or not x.numel:
        return plain
    extent = math.prod(x.shape[rank - len(dims) :])
    outer, total = x.numel // extent, x.numel
    allocate = pool.allocator(x.shape, x.dtype.np)

    def run(array: Any, out: Any = None) -> Any:
        function = _function("reverse", itemsize, total)
        if not function or out is not None or not array.flags.carray:
            return plain(array) if out is None else plain(array, out=out)
        made = allocate()
        function(address_of(made), address_of(array), outer, extent)
        return made

    return run


def variance_evaluator(
    x: TensorType, dims: Shape, keepdim: bool, root: bool, plain: AnyFunction
) -> AnyFunction:
    """An evaluator of the variance, or its root, of few float32 over neighbouring dimensions, in
    float64; ``plain`` for others."""
    outer, extent, inner = reduced_extents(x.shape, dims)
    total = outer * extent * inner
    if x.dtype is not dtypes.float32 or not 0 < total <= _MOST_FOR_VARIANCE:
        return plain
    shape, numpy_type = reduced_shape(x.shape, dims, keepdim), x.dtype.np

    def run(array: Any, correction: Any) -> Any:
        function = _function("squared_distances", "float32", total)
        if not function:
            return plain(array, correction)
        if not array.flags.carray:
            array = array.copy()
        squares = np.empty(shape, np.float64)
        function(address_of(squares), address_of(array), outer, extent, inner)
        squares /= max(extent - float(correction), 0.0)
        return (np.sqrt(squares, out=squares) if root else squares).astype(numpy_type)

    return run


def add_rows_evaluator(
    x: TensorType, source: TensorType, index: TensorType, start: int, plain: Callable[..., object]
) -> Callable[..., object]:
    """The same for slices that are added to a copy, in their order."""
    outer, extent, width = _around(x.shape, start)
    count, name = index.numel, _FLOATS.get(x.dtype.np.char)
    total = outer * count * width
    if name is None or index.dtype is not dtypes.int64 or source.numel != total:
        return plain
    if not total or not x.numel:
        return plain

    def run(array: Any, added: Any, places: Any, out: object = None) -> Any:
        function = _function("add_rows", name, total)
        is_plain = array.flags.carray and added.flags.carray and places.flags.carray
        if not function or out is not None or not is_plain:
            return plain(array, added, places)
        made = pool.copy(array)
        addresses = address_of(made), address_of(added), address_of(places)
        missed = function(*addresses, outer, extent, count, width)
        return plain(array, added, places) if missed else made

    return run


def scatter_add_evaluator(
    x: TensorType, index: TensorType, source: TensorType, dim: int, plain: Callable[..., object]
) -> Callable[..., object]:
    """The same for single elements."""
    extents = _extents(x.shape, index.shape, dim)
    count, name = index.numel, _FLOATS.get(x.dtype.np.char)
    if name is None or extents is None or source.shape != index.shape:
        return plain
    if index.dtype is not dtypes.int64 or not count or not x.numel:
        return plain

    def run(array: Any, places: Any, added: Any, out: object = None) -> Any:
        function = _function("scatter_add", name, count)
        is_plain = array.flags.carray and added.flags.carray and places.flags.carray
        if not function or out is not None or not is_plain:
            return plain(array, places, added)
        made = pool.copy(array)
        missed = function(address_of(made), address_of(added), address_of(places), *extents)
        return plain(array, places, added) if missed else made

    return run


def gather(x: Array, index: Array, dim: int) -> Array | None:
    """The elements at indices along a dimension."""
    if x.itemsize > 8 or not x.flags.carray or not _is_index(index):
        return None
    extents = _extents(x.shape, index.shape, dim)
    function = _function("gather_elements", x.itemsize, index.size)
    if extents is None or not function:
        return None
    out = pool.empty(index.shape, x.dtype)
    missed = function(buffer_address(out), buffer_address(x), buffer_address(index), *extents)
    return None if missed else out


def scatter_add(out: Array, index: Array, source: object, dim: int) -> bool:
    """Add a source to an array at indices along a dimension, in the order of the source."""
    if (
        out.dtype.char not in _FLOATS
        or not isinstance(source, np.ndarray)
        or source.shape != index.shape
        or source.dtype != out.dtype
        or not (out.flags.carray and source.flags.carray and _is_index(index))
        or np.may_share_memory(out, source)
    ):
        return False
    extents = _extents(out.shape, index.shape, dim)
    function = _function("scatter_add", _FLOATS[out.dtype.char], index.size)
    if extents is None or not function:
        return False
    function(buffer_address(out), buffer_address(source), buffer_address(index), *extents)
    return True


def put(out: Array, index: Array, source: object, dim: int, of_rows: bool) -> bool:
    """Write a source to an array at indices along a dimension, in its order: whole slices
    (``of_rows``), or elements each at an index of its own. False, and nothing is written, where an
    index is out of bounds."""
    if (
        not isinstance(source, np.ndarray)
        or source.dtype != out.dtype
        or out.dtype.char not in _MOVED
        or not source.size
        or not (out.flags.carray and source.flags.carray and _is_index(index))
        or np.may_share_memory(out, source)
    ):
        return False
    if of_rows:
        outer, extent, inner = _around(out.shape, dim)
        count = index.size
        if source.size != outer * count * inner:
            return False
        extents: Any = outer, extent, count, inner
    else:
        extents = _extents(out.shape, index.shape, dim)
        if source.shape != index.shape or extents is None:
            return False
    function = _function("put_rows" if of_rows else "put_elements", out.itemsize, source.size)
    if not function:
        return False
    return not function(address_of(out), address_of(source), address_of(index), *extents)


def add_rows(target: Array, source: Array, rows: Array) -> bool:
    """Add the rows of a matrix to those of another at indices, in their order."""
    if (
        target.dtype.char not in _FLOATS
        or source.dtype != target.dtype
        or not (target.flags.carray and source.flags.carray and _is_index(rows))
        or np.may_share_memory(target, source)
    ):
        return False
    function = _function("add_rows", _FLOATS[target.dtype.char], source.size)
    if function:
        extents = 1, target.shape[0], rows.size, target.shape[1]
        function(buffer_address(target), buffer_address(source), buffer_address(rows), *extents)
    return bool(function)


def topk(x: Array, kept: int, largest: bool) -> Array | None:
    """Where the largest or smallest of each row stand, in order."""
    extent = x.shape[-1]
    most = extent if extent <= _LONG_ROW else extent // _SHARE_KEPT
    if not 0 < kept <= min(_MOST_KEPT, most) or not x.flags.carray or x.size < _LEAST_FOR_TOPK:
        return None
    name = _FLOATS.get(x.dtype.char)
    function = None if name is None else _function("topk", name, x.size, largest)
    if not function:
        return None
    out = np.empty((*x.shape[:-1], kept), np.int64)
    function(buffer_address(out), buffer_address(x), x.size // extent, extent, kept)
    return out
