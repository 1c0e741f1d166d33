"""Rows over sliding windows of the last dimensions: the largest, the sum, all elements.

Dimensions before the windowed ones are left alone, so samples and channels need no care here.
Reductions go through one dimension after the other: a window of 3 x 3 takes 6 passes, not 9. The
functions are in :mod:`evergrad.ops.composite.pool`.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import bind
from evergrad.core.composite import composite
from evergrad.core.families import linear, opaque
from evergrad.core.op import NONDIFFERENTIABLE, Op
from evergrad.core.row_facts import AutocastPolicy, EagerKernel, lowered, numpy_evaluates
from evergrad.core.shapes import Shape, TensorType, contiguous_strides, tensor_type
from evergrad.core.tensor import Array, Tensor
from evergrad.memory import pool
from evergrad.ops.rows.indexing.scatter import GATHER, SCATTER_SUM
from evergrad.ops.rows.movement.views import reshape, to_front
from evergrad.ops.rows.pool.geometry import Windows


def _lead(x: Any, windows: Windows) -> Shape:
    return tuple(x.shape[: len(x.shape) - len(windows.size)])


def _batch_lead(
    op: Op, args: Sequence[Tensor], dims: Sequence[int], **attrs: object
) -> tuple[Tensor, int]:
    return bind(op, to_front(args[0], dims[0]), **attrs), 0


def _windowed_type(x: TensorType, *, windows: Windows) -> TensorType:
    return tensor_type((*_lead(x, windows), *windows.counts), x.dtype)


def _last_become(x: TensorType, new: Shape) -> TensorType:
    return tensor_type((*x.shape[: len(x.shape) - len(new)], *new), x.dtype)


def _along(axis: int, windows: Windows, dim: int) -> list[tuple[slice, ...]]:
    """For every place in the window along one dimension, where all windows have it."""
    count, stride, dilation = windows.counts[dim], windows.stride[dim], windows.dilation[dim]
    before = (slice(None),) * axis
    return [
        (*before, slice(k * dilation, k * dilation + (count - 1) * stride + 1, stride))
        for k in range(windows.kernel[dim])
    ]


def _fold(ufunc: np.ufunc, padded: Array, windows: Windows) -> Array:
    """Every window of a padded array folded into one element, in memory of its own."""
    lead = padded.ndim - len(windows.size)
    result = padded
    for dim, extent in enumerate(windows.padded):
        if windows.kernel[dim] == extent:  # one window, of everything
            result = ufunc.reduce(result, lead + dim, keepdims=True)
            continue
        first, *rest = (result[place] for place in _along(lead + dim, windows, dim))
        result = ufunc(first, rest[0]) if rest else first
        for part in rest[1:]:
            ufunc(result, part, out=result)
    return np.ascontiguousarray(result) if max(windows.kernel) > 1 else result.copy()


# -- the largest --------------------------------------------------------------------------------


def _lowest(numpy_type: np.dtype[Any]) -> float:
    return np.iinfo(numpy_type).min if numpy_type.kind in "iu" else -np.inf


def _max_pool_eval(x: Array, *, windows: Windows) -> Array:
    return _fold(np.maximum, windows.pad(x, _lowest(x.dtype)), windows)


@composite("max_pool_backward", derivative=False)
def _max_pool_spread(g: Tensor, x: Tensor, *, windows: Windows) -> Tensor:
    return spread_to(g, bind(MAX_POOL_PLACES, x, windows=windows), windows.size)


def _max_pool_jvp(
    tangents: Sequence[Tensor], out: Tensor, x: Tensor, *, windows: Windows
) -> Tensor:
    return picked_at(tangents[0], bind(MAX_POOL_PLACES, x, windows=windows), len(windows.size))


def picked_at(x: Tensor, places: Tensor, rank: int) -> Tensor:
    """The elements at places that count through the last ``rank`` dimensions of ``x``."""
    found = bind(GATHER, _flat(x, rank), _flat(places, rank), dim=x.ndim - rank)
    return reshape(found, places._type.shape)


def spread_to(g: Tensor, places: Tensor, size: Shape) -> Tensor:
    """Zeros with ``g`` added at places that count through dimensions of ``size``."""
    rank = len(size)
    lead = g._type.shape[: g.ndim - rank]
    shape = (*lead, math.prod(size))
    total = bind(SCATTER_SUM, _flat(g, rank), _flat(places, rank), dim=len(lead), shape=shape)
    return reshape(total, (*lead, *size))


def _flat(x: Tensor, rank: int) -> Tensor:
    shape = x._type.shape
    lead = len(shape) - rank
    return reshape(x, (*shape[:lead], math.prod(shape[lead:])))


@functools.lru_cache(maxsize=256)
def _shared(windows: Windows) -> list[tuple[tuple[slice, ...], tuple[slice, ...], Shape]]:
    """For every place in the window: the windows that have it inside the unpadded dimensions, the
    elements they have there, and its distance from where windows begin."""
    found = []
    for offset in itertools.product(*map(range, windows.kernel)):
        those, elements, shifts = [], [], []
        for dim, k in enumerate(offset):
            step, extent = windows.stride[dim], windows.size[dim]
            shift = k * windows.dilation[dim] - windows.padding[dim][0]
            first = max(0, -(shift // step))
            last = min(windows.counts[dim], (extent - 1 - shift) // step + 1)
            those.append(slice(first, max(first, last)))
            begin = first * step + shift
            elements.append(slice(begin, begin + max(0, (last - first - 1) * step + 1), step))
            shifts.append(shift)
        found.append((tuple(those), tuple(elements), tuple(shifts)))
    return found


def _max_pool_places_eval(x: Array, *, windows: Windows) -> Array:
    """Of equal elements the first counts; of NaNs, which are larger than anything, the last.

    Places in the window are numbered backwards from 1, in few bits, so that a running maximum
    keeps the first that was found.
    """
    best = _max_pool_eval(x, windows=windows)
    shared = _shared(windows)
    found = np.zeros(best.shape, np.min_scalar_type(len(shared)))
    for number, (those, elements, _) in enumerate(reversed(shared), 1):
        equal = x[(..., *elements)] == best[(..., *those)]
        seen = found[(..., *those)]
        np.maximum(seen, equal.view(np.uint8) * found.dtype.type(number), out=seen)
    if x.dtype.kind == "f" and np.isnan(best).any():
        for number, (those, elements, _) in enumerate(reversed(shared), 1):
            unordered = np.isnan(x[(..., *elements)]) & (found[(..., *those)] == 0)
            found[(..., *those)][unordered] = number
    return _as_places(found, [shifts for _, _, shifts in reversed(shared)], windows)


def _as_places(numbers: Array, shifts: Sequence[Shape], windows: Windows) -> Array:
    """Numbers of places in the window as places in the windowed dimensions."""
    steps = contiguous_strides(windows.size)
    flat = [sum(n * step for n, step in zip(shift, steps, strict=True)) for shift in shifts]
    begin = _grid([np.arange(count) * stride * step for count, stride, step in zip(
        windows.counts, windows.stride, steps, strict=True)])  # fmt: skip
    places = np.array([0, *flat], np.int64).take(numbers)
    places += begin
    return places


def _grid(along: Sequence[Array]) -> Array:
    """The sum of one vector per dimension, at every combination."""
    rank = len(along)
    total: Any = 0
    for dim, values in enumerate(along):
        total = total + values.reshape((-1,) + (1,) * (rank - 1 - dim))
    result: Array = total
    return result


MAX_POOL_PLACES = opaque(
    "max_pool_places", _max_pool_places_eval,
    lambda x, *, windows: tensor_type((*_lead(x, windows), *windows.counts), dtypes.int64),
    NONDIFFERENTIABLE, batch=_batch_lead,
    emit=lowered("kernels.pooling"), autocast=AutocastPolicy.KEEP, eager=EagerKernel(1 << 5),
    eager_derivative=1 << 9,
    doc="Where each window has its largest element, counted through the windowed dimensions.",
)  # fmt: skip
MAX_POOL = opaque(
    "max_pool", _max_pool_eval, _windowed_type,
    lambda g, out, x, *, windows: _max_pool_spread(g, x, windows=windows),
    jvp=_max_pool_jvp, batch=_batch_lead,
    emit=lowered("kernels.pooling"), autocast=AutocastPolicy.KEEP, eager=EagerKernel(1 << 5),
    aten="max_pool2d_with_indices", doc="The largest element of each window.",
)  # fmt: skip


# -- the largest of unequal windows -------------------------------------------------------------


def adaptive_bounds(extent: int, count: int) -> list[tuple[int, int]]:
    """Where ``count`` windows that cover a dimension begin and end."""
    return [(i * extent // count, -(-(i + 1) * extent // count)) for i in range(count)]


def _adaptive_max_places_eval(x: Any, *, count: Shape) -> Array:
    lead = x.shape[: x.ndim - len(count)]
    size = x.shape[len(lead) :]
    steps = contiguous_strides(size)
    places: Any = np.empty((*lead, *count), np.int64)
    bounds = [adaptive_bounds(n, c) for n, c in zip(size, count, strict=True)]
    for at in itertools.product(*map(range, count)):
        spans = [bounds[dim][i] for dim, i in enumerate(at)]
        window = x[(..., *[slice(*span) for span in spans])]
        extents = window.shape[len(lead) :]
        best = window.reshape(*lead, math.prod(extents)).argmax(-1)
        inside = np.unravel_index(best, extents)
        places[(..., *at)] = sum(
            (i + span[0]) * step for i, span, step in zip(inside, spans, steps, strict=True)
        )
    result: Array = places
    return result


ADAPTIVE_MAX_PLACES = opaque(
    "adaptive_max_places", _adaptive_max_places_eval,
    lambda x, *, count: tensor_type(_last_become(x, count).shape, dtypes.int64),
    NONDIFFERENTIABLE, batch=_batch_lead,
    emit=numpy_evaluates("windows of unequal extents"), autocast=AutocastPolicy.KEEP,
    doc="Where each of ``count`` windows that cover the last dimensions has its largest element.",
)  # fmt: skip


# -- the mean of unequal windows ----------------------------------------------------------------


@functools.lru_cache(maxsize=256)
def _window_places(extent: int, count: int) -> Array:
    """Where each of ``count`` windows begins and ends, without the last end."""
    bounds = adaptive_bounds(extent, count)
    return np.array([place for pair in bounds for place in pair][:-1], np.intp)


@functools.lru_cache(maxsize=256)
def window_sizes(size: Shape, count: Shape, numpy_type: np.dtype[np.generic]) -> Array:
    """How many elements each of ``count`` windows has."""
    sizes: Any = np.ones((), np.int64)
    for extent, wanted in zip(size, count, strict=True):
        lengths = [end - begin for begin, end in adaptive_bounds(extent, wanted)]
        sizes = np.multiply.outer(sizes, np.array(lengths, np.int64))
    result: Array = sizes.astype(numpy_type)
    return result


def _sum_windows(x: Array, axis: int, count: int) -> Array:
    extent = x.shape[axis]
    if extent == count or not count:
        return x[(slice(None),) * axis + (slice(count),)]
    if count > extent:  # windows before the last may reach the end: a place behind it
        x = np.concatenate((x, np.zeros_like(x[(slice(None),) * axis + (slice(1),)])), axis)
    # Sums between neighbouring positions; the odd ones, between windows, are not used.
    places = _window_places(extent, count)
    return np.add.reduceat(x, places, axis)[(slice(None),) * axis + (slice(None, None, 2),)]


def _spread_windows(g: Array, axis: int, extent: int) -> Array:
    count = g.shape[axis]
    if extent == count:
        return g
    before = (slice(None),) * axis
    out = np.zeros((*g.shape[:axis], extent, *g.shape[axis + 1 :]), g.dtype)
    for i, (begin, end) in enumerate(adaptive_bounds(extent, count)):
        out[(*before, slice(begin, end))] += g[(*before, slice(i, i + 1))]
    return out


def _adaptive_mean_eval(x: Array, *, count: Shape) -> Array:
    lead = x.ndim - len(count)
    sizes = window_sizes(x.shape[lead:], count, x.real.dtype)
    for axis, wanted in enumerate(count, lead):
        x = _sum_windows(x, axis, wanted)
    return x / sizes


def _adaptive_spread_eval(g: Array, *, size: Shape) -> Array:
    lead = g.ndim - len(size)
    g = g / window_sizes(size, g.shape[lead:], g.real.dtype)
    for axis in reversed(range(lead, g.ndim)):
        g = _spread_windows(g, axis, size[axis - lead])
    return g


ADAPTIVE_MEAN: Op = linear(
    "adaptive_mean", _adaptive_mean_eval, lambda x, *, count: _last_become(x, count),
    lambda g, x, *, count: bind(ADAPTIVE_SPREAD, g, size=x._type.shape[-len(count) :]),
    batch=_batch_lead, upcast=True,
    emit=lowered("passes.decompose_windows"), autocast=AutocastPolicy.KEEP,
    doc="The mean of each of ``count`` windows that cover the last dimensions.",
)  # fmt: skip
ADAPTIVE_SPREAD: Op = linear(
    "adaptive_spread", _adaptive_spread_eval, lambda g, *, size: _last_become(g, size),
    lambda g, x, *, size: bind(ADAPTIVE_MEAN, g, count=x._type.shape[-len(size) :]),
    batch=_batch_lead, upcast=True,
    emit=lowered("passes.decompose_windows"), autocast=AutocastPolicy.KEEP,
    doc="To each element its share of the windows it is in: the transpose of those means.",
)  # fmt: skip


# -- the sum ------------------------------------------------------------------------------------


def _window_sum_eval(x: Array, *, windows: Windows) -> Array:
    return _fold(np.add, windows.pad(x), windows)


def _window_spread_eval(g: Array, *, windows: Windows) -> Array:
    lead = g.ndim - len(windows.size)
    for dim, extent in enumerate(windows.padded):
        axis = lead + dim
        total = np.zeros((*g.shape[:axis], extent, *g.shape[axis + 1 :]), g.dtype)
        for place in _along(axis, windows, dim):
            total[place] += g
        g = total
    return _cropped(g, windows)


def _cropped(padded: Array, windows: Windows) -> Array:
    if not windows.is_padded:
        return padded
    out = pool.empty((*_lead(padded, windows), *windows.size), padded.dtype)
    windows.crop(padded, out)
    return out


def _spread_type(g: TensorType, *, windows: Windows) -> TensorType:
    return tensor_type((*_lead(g, windows), *windows.size), g.dtype)


WINDOW_SUM: Op = linear(
    "window_sum", _window_sum_eval, _windowed_type,
    lambda g, x, *, windows: bind(WINDOW_SPREAD, g, windows=windows),
    batch=_batch_lead, upcast=True,
    emit=lowered("kernels.pooling"), autocast=AutocastPolicy.KEEP, eager=EagerKernel(1 << 5),
    doc="The sum of each window.",
)  # fmt: skip
WINDOW_SPREAD: Op = linear(
    "window_spread", _window_spread_eval, _spread_type,
    lambda g, x, *, windows: bind(WINDOW_SUM, g, windows=windows),
    batch=_batch_lead, upcast=True,
    emit=lowered("kernels.pooling"), autocast=AutocastPolicy.KEEP, eager=EagerKernel(1 << 5),
    doc="To each element the sum of its windows: its transpose.",
)  # fmt: skip


# -- all elements -------------------------------------------------------------------------------


def _im2col_eval(x: Array, *, windows: Windows) -> Array:
    return windows.view(windows.pad(x)).copy()


def _col2im_eval(columns: Any, *, windows: Windows) -> Array:
    rank = len(windows.size)
    lead = columns.shape[: columns.ndim - 2 * rank]
    total: Any = np.zeros((*lead, *windows.padded), columns.dtype)
    for offset, place in windows.offsets():
        total[(..., *place)] += columns[(..., *offset, *(slice(None),) * rank)]
    return _cropped(total, windows)


def _im2col_type(x: TensorType, *, windows: Windows) -> TensorType:
    return tensor_type((*_lead(x, windows), *windows.kernel, *windows.counts), x.dtype)


def _col2im_type(columns: TensorType, *, windows: Windows) -> TensorType:
    lead = columns.shape[: len(columns.shape) - 2 * len(windows.size)]
    return tensor_type((*lead, *windows.size), columns.dtype)


IM2COL: Op = linear(
    "im2col", _im2col_eval, _im2col_type,
    lambda g, x, *, windows: bind(COL2IM, g, windows=windows),
    batch=_batch_lead,
    emit=lowered("passes.decompose_windows"), autocast=AutocastPolicy.KEEP,
    doc="The elements of every window: [..., *kernel, *counts].",
)  # fmt: skip
COL2IM: Op = linear(
    "col2im", _col2im_eval, _col2im_type,
    lambda g, x, *, windows: bind(IM2COL, g, windows=windows),
    batch=_batch_lead, upcast=True,
    emit=lowered("passes.decompose_windows"), autocast=AutocastPolicy.KEEP,
    doc="The elements of windows added up where they came from.",
)  # fmt: skip
