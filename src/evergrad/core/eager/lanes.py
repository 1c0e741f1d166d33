"""Reads and writes at indices, and the largest few of rows, by native loops on contiguous arrays.

Each function gives ``None`` or false where it does not apply: for small arrays, other layouts and
element types, indices out of bounds (which the caller reports), and where there is no machine code.
"""

from __future__ import annotations

import math
from ctypes import addressof, c_char
from typing import Any

import numpy as np

from evergrad import config
from evergrad.core.shapes import Shape
from evergrad.extension import ExtensionPoint
from evergrad.memory import pool

Array = np.ndarray[Any, Any]

_lane_kernel: ExtensionPoint[..., Any] = ExtensionPoint("lane_kernel")

# From so many elements on: NumPy takes several calls for fewer, too. Of fewer elements than these
# topk() orders equal ones as sorting does.
_LEAST_ELEMENTS = 8
_LEAST_FOR_TOPK = 64
# Loops over fewer elements keep the GIL: releasing it would take as long.
_BRIEF = 1 << 14
# The largest number that topk keeps of a row, and which part of a long row at most.
_MOST_KEPT = 64
_SHARE_KEPT = 4
_LONG_ROW = 256

# By the code of an element type: its name is computed anew each time.
_FLOATS = {"f": "float32", "d": "float64"}
_INT64 = np.dtype(np.int64)
# Kernels by name and element type; false: there is none.
_kernels: dict[Any, Any] = {}


def _function(name: str, element: Any, count: int, *options: Any) -> Any:
    forced = config.EAGER_KERNEL_ELEMENTS
    least = _LEAST_ELEMENTS if forced is None else forced
    if count < max(least, 1) or not config.EAGER_KERNELS:
        return None
    key = name, element, *options
    found: Any = _kernels.get(key)
    if found is None:
        found = _kernels[key] = _lane_kernel(*key) or False
    return found[count >= _BRIEF] if found else None


def _address(array: Any) -> int:
    if array.dtype.char == "E":  # bfloat16 and float8 have no buffers
        array = array.view(f"u{array.itemsize}")
    return addressof(c_char.from_buffer(array))


def _extents(shape: Shape, index: Shape, dim: int) -> tuple[int, int, int, int] | None:
    """The extents around a dimension and in it, of an array and of an index that differ there."""
    if shape[:dim] != index[:dim] or shape[dim + 1 :] != index[dim + 1 :]:
        return None
    return math.prod(shape[:dim]), shape[dim], index[dim], math.prod(shape[dim + 1 :])


def _is_index(index: Array) -> bool:
    return index.dtype is _INT64 and bool(index.flags.carray)


def gather(x: Array, index: Array, dim: int) -> Array | None:
    """The elements at indices along a dimension."""
    if x.itemsize > 8 or not x.flags.carray or not _is_index(index):
        return None
    extents = _extents(x.shape, index.shape, dim)
    function = _function("gather_elements", x.itemsize, index.size)
    if extents is None or not function:
        return None
    out = pool.empty(index.shape, x.dtype)
    missed = function(_address(out), _address(x), _address(index), *extents)
    return None if missed else out


def scatter_add(out: Array, index: Array, source: Any, dim: int) -> bool:
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
    function(_address(out), _address(source), _address(index), *extents)
    return True


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
        function(_address(target), _address(source), _address(rows), *extents)
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
    function(_address(out), _address(x), x.size // extent, extent, kept)
    return out
