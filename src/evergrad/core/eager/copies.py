"""Copies of transposed arrays: by a native loop where NumPy would read each cache
line many times."""

from __future__ import annotations

from typing import Any

import numpy as np

from evergrad import config
from evergrad.core.types import Array
from evergrad.extension import ExtensionPoint
from evergrad.memory import pool

_transposed_copy: ExtensionPoint[..., Any] = ExtensionPoint("transposed_copy")

# NumPy is as fast for fewer elements, for matrices of fewer rows or columns, and where elements
# that are written next to each other are read from one cache line.
_LEAST_ELEMENTS = 1 << 14
_LEAST_EXTENT = 16
_LINE = 64


def copy_transposed(out: Array, x: Array) -> bool:
    """Copy an array to a contiguous one of its shape, if its elements are contiguous along another
    dimension than the last; returns whether it did."""
    itemsize = x.itemsize
    if x.size < _LEAST_ELEMENTS or x.ndim < 2 or abs(x.strides[-1]) < _LINE:
        return False
    if itemsize not in (4, 8) or x.shape[-1] < _LEAST_EXTENT or not config.EAGER_KERNELS:
        return False
    for axis in range(x.ndim - 1):
        if x.strides[axis] == itemsize and x.shape[axis] >= _LEAST_EXTENT:
            return _copy_along(out, x, axis)
    return False


def contiguous_copy(x: Array) -> Array:
    """A contiguous copy; from the pool if it is large."""
    out = pool.empty(x.shape, x.dtype)
    if not copy_transposed(out, x):
        np.copyto(out, x)
    return out


def in_rows(x: object) -> object:
    """A large transposed array as a contiguous copy, any other operand as it is: a ufunc that
    reads along columns and writes along rows touches each cache line many times."""
    if x.__class__ is not np.ndarray or x.ndim < 2 or x.flags.c_contiguous:
        return x
    out = pool.empty(x.shape, x.dtype)
    return out if copy_transposed(out, x) else x


def _copy_along(out: Array, x: Array, axis: int) -> bool:
    function = _transposed_copy(x.itemsize)
    if function is None:
        return False
    others = [d for d in range(x.ndim - 1) if d != axis]
    offsets = [_offsets(a, others) for a in (out, x)]
    function(
        out.ctypes.data, x.ctypes.data, *(found.ctypes.data for found in offsets),
        offsets[0].size, x.shape[axis], x.shape[-1],
        out.strides[axis] // out.itemsize, x.strides[-1] // x.itemsize,
    )  # fmt: skip
    return True


def _offsets(array: Array, dims: list[int]) -> Array:
    """The offsets in elements of all indices along some dimensions."""
    found = np.zeros(1, np.int64)
    for d in dims:
        steps = np.arange(array.shape[d], dtype=np.int64) * (array.strides[d] // array.itemsize)
        found = np.add.outer(found, steps).reshape(-1)
    return found
