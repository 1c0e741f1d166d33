"""Sums of arrays by blocks, whichever dimensions are reduced and however they are strided.

NumPy's sums are pairwise only along the dimension with the smallest stride; along any other one
rows are added one after the other, and the error grows with their number. Here blocks of
``_BLOCK`` rows are added so, and the sums of blocks in the same way. The order of
additions depends on shapes and strides alone.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from evergrad.core.shapes import Shape
from evergrad.core.types import Array

# Rows of a block: in one chain of as many additions the error is four times that of one rounding.
_BLOCK = 32
# Elements of a row worth one call of NumPy's inner loop: narrower rows are joined.
_ROW = 512


def pairwise_sum(x: Any, dims: Shape, keepdim: bool = False, out: Any = None) -> Any:
    """``np.add.reduce(x, dims)`` in the array's own type, with an error that grows with the
    logarithm of the count."""
    if x.size <= _BLOCK or x.dtype.kind not in "fc":
        return np.add.reduce(x, axis=dims, dtype=x.dtype, keepdims=keepdim, out=out)
    strides = x.strides
    if 0 in strides and any(strides[d] == 0 and x.shape[d] > 1 for d in dims):
        return _sum_of_copies(x, dims, keepdim, out)
    if _is_pairwise(x, dims):
        return np.add.reduce(x, axis=dims, dtype=x.dtype, keepdims=keepdim, out=out)
    kept = [extent for d, extent in enumerate(x.shape) if d not in dims]
    shape = [1 if d in dims else n for d, n in enumerate(x.shape)] if keepdim else kept
    found = _sum_of_runs(x, dims).reshape(shape)
    if out is None:
        return found
    np.copyto(out, found)
    return out


def _sum_of_copies(x: Array, dims: Shape, keepdim: bool, out: object) -> Array:
    """The sum over expanded dimensions is that of one copy times their number."""
    expanded = [d for d in dims if x.strides[d] == 0]
    once = x[tuple(slice(1) if d in expanded else slice(None) for d in range(x.ndim))]
    copies = math.prod(x.shape[d] for d in expanded)
    found = np.asarray(pairwise_sum(once, dims, keepdim, out))
    found.real *= copies  # part by part: a complex product makes NaN of infinities
    if found.dtype.kind == "c":
        found.imag *= copies
    return found


def _is_pairwise(x: Array, dims: Shape) -> bool:
    """Whether NumPy adds in pairs itself, or adds few elements."""
    if len(dims) == 1:
        extent, stride = x.shape[dims[0]], abs(x.strides[dims[0]])
        if extent <= _BLOCK:
            return True
        return all(stride <= abs(s) or n == 1 for n, s in zip(x.shape, x.strides, strict=True))
    if len(dims) == len(x.shape) and (x.flags.c_contiguous or x.flags.f_contiguous):
        return True
    return bool(math.prod(x.shape[d] for d in dims) <= _BLOCK)


def _sum_of_runs(x: Array, dims: Shape) -> Array:
    """The sums over several dimensions: from the smallest strides to the greatest, neighbouring
    dimensions joined where they are contiguous. Of the shape that is kept."""
    if dims == tuple(range(len(dims))) and x.flags.c_contiguous:
        kept = x.shape[len(dims) :]
        return _column_sums(x.reshape(-1, math.prod(kept))).reshape(kept)
    order = sorted(range(x.ndim), key=lambda d: -abs(x.strides[d]))
    extents, reduced = _joined(x, order, dims)
    y = x.transpose(order).reshape(extents)
    while reduced:
        if not reduced[-1]:
            if True not in reduced:
                break
            # The last reduced dimension is moved behind all that are kept.
            at = len(reduced) - 1 - reduced[::-1].index(True)
            y = _column_sums(y.reshape(*y.shape[: at + 1], -1) if at + 2 < y.ndim else y)
            reduced = [*reduced[:at], False]
        else:
            y = np.add.reduce(y, axis=-1)
            reduced = reduced[:-1]
    left = [d for d in order if d not in dims]
    y = y.reshape([x.shape[d] for d in left])
    return y.transpose(np.argsort(left)) if left else y


def _joined(x: Array, order: list[int], dims: Shape) -> tuple[list[int], list[bool]]:
    """Extents of the dimensions in an order, and whether they are reduced, with neighbours joined
    that can be traversed as one."""
    extents: list[int] = []
    reduced: list[bool] = []
    stride = 0
    for d in order:
        extent = x.shape[d]
        if extent == 1:
            continue
        if reduced and reduced[-1] is (d in dims) and stride == extent * x.strides[d]:
            extents[-1] *= extent
        else:
            extents.append(extent)
            reduced.append(d in dims)
        stride = x.strides[d]
    return extents, reduced


def _column_sums(x: Array) -> Array:
    """The sums over the last dimension but one."""
    *before, rows, columns = x.shape
    together = _ROW // columns
    if together > 1 and rows >= 2 * together * _BLOCK and _has_contiguous_rows(x):
        whole = rows // together * together
        wide = x[..., :whole, :].reshape(*before, whole // together, together * columns)
        found = _column_sums(_column_sums(wide).reshape(*before, together, columns))
        return found if whole == rows else found + np.add.reduce(x[..., whole:, :], axis=-2)
    while rows > _BLOCK:
        runs, rest = divmod(rows, _BLOCK)
        parts = np.empty((*before, runs + (rest > 0), columns), x.dtype)
        head = x[..., : runs * _BLOCK, :].reshape(*before, runs, _BLOCK, columns)
        np.add.reduce(head, axis=-2, out=parts[..., :runs, :])
        if rest:
            np.add.reduce(x[..., runs * _BLOCK :, :], axis=-2, out=parts[..., runs, :])
        x, rows = parts, parts.shape[-2]
    result: Array = np.add.reduce(x, axis=-2)
    return result


def _has_contiguous_rows(x: Array) -> bool:
    return bool(x.strides[-1] == x.itemsize and x.strides[-2] == x.itemsize * x.shape[-1])
