"""Decompositions of convolution and pooling over three dimensions into those over two, which have
kernels, and loops over the first one, the depth.

The windows of a convolution along the depth become channels (im2col in that dimension alone): what
is copied is small beside the products. Pooling is separable: planes are pooled, and then as many
planes as a window is deep are combined by elementwise equations, which fuse.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from evergrad.core import dtypes
from evergrad.core.bind import bind
from evergrad.core.op import Op
from evergrad.core.tensor import Tensor
from evergrad.ops.rows.conv import CONV, CONV_INPUT, CONV_WEIGHT
from evergrad.ops.rows.creation.constants import arange, full
from evergrad.ops.rows.elementwise.basic import CLONE, maximum, where
from evergrad.ops.rows.elementwise.logic import isnan
from evergrad.ops.rows.movement.joining import cat
from evergrad.ops.rows.movement.rearrange import flip
from evergrad.ops.rows.movement.slices import slice_dim
from evergrad.ops.rows.movement.views import expand, permute, reshape, unsqueeze
from evergrad.ops.rows.pool.geometry import Windows
from evergrad.ops.rows.pool.windows import MAX_POOL, MAX_POOL_PLACES, WINDOW_SPREAD, WINDOW_SUM

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction

_WIDE = (dtypes.float32, dtypes.float64)
# Windows of more planes are left to NumPy: there is an equation for each.
_DEEPEST = 16
_DEPTH = 2  # its dimension in images [N, C, D, H, W]


def _is_deep(x: Tensor, windows: Windows) -> bool:
    is_small = len(windows.size) == 3 and windows.kernel[0] <= _DEEPEST
    return is_small and x.dtype in _WIDE and bool(x.numel()) and min(windows.counts) > 0


def _planes(windows: Windows) -> Windows:
    """The windows without their depth."""
    size, kernel, stride, padding, dilation = windows
    return Windows(size[1:], kernel[1:], stride[1:], padding[1:], dilation[1:])


# -- along the depth ----------------------------------------------------------------------------


def padded_dim(x: Tensor, dim: int, low: int, high: int, fill: float = 0.0) -> Tensor:
    """A dimension with elements before and after; negative numbers leave some out."""
    extent = x._type.shape[dim]
    x = slice_dim(x, dim, max(0, -low), extent - max(0, -high))

    def planes(count: int) -> list[Tensor]:
        size = [count if d == dim else n for d, n in enumerate(x._type.shape)]
        return [full(size, fill, dtype=x.dtype)] if count > 0 else []

    parts = [*planes(low), x, *planes(high)]
    return cat(parts, dim) if len(parts) > 1 else x


def _spaced(x: Tensor, dim: int, step: int) -> Tensor:
    """Planes with ``step`` - 1 planes of zeros after each but the last."""
    if step == 1:
        return x
    shape = x._type.shape
    wide = unsqueeze(x, dim + 1)
    zeros = full((*shape[: dim + 1], step - 1, *shape[dim + 1 :]), 0, dtype=x.dtype)
    joined = reshape(cat([wide, zeros], dim + 1), (*shape[:dim], shape[dim] * step,
                                                   *shape[dim + 1 :]))  # fmt: skip
    return slice_dim(joined, dim, 0, (shape[dim] - 1) * step + 1)


def _shifts(x: Tensor, dim: int, windows: Windows) -> list[Tensor]:
    """For each plane of a window, where all windows along a padded depth have it."""
    count, stride, dilation = windows.counts[0], windows.stride[0], windows.dilation[0]
    last = (count - 1) * stride + 1
    return [
        slice_dim(x, dim, k * dilation, k * dilation + last, stride)
        for k in range(windows.kernel[0])
    ]


def _mirrored(windows: Windows) -> Windows:
    """The windows along the depth that gather from spaced planes what these windows spread."""
    reach, (low, high) = windows.reach[0], windows.padding[0]
    spaced = (windows.counts[0] - 1) * windows.stride[0] + 1
    # Planes behind the last window get nothing.
    behind = windows.padded[0] - (spaced + reach - 1)
    return Windows(
        (spaced, *windows.size[1:]), windows.kernel, (1, *windows.stride[1:]),
        ((reach - 1 - low, reach - 1 - high + behind), *windows.padding[1:]), windows.dilation,
    )  # fmt: skip


# -- convolution --------------------------------------------------------------------------------


def _unfolded(x: Tensor, windows: Windows) -> Tensor:
    """The planes of each window along the depth as channels: [N * count, C * kernel, H, W]."""
    shifts = _shifts(padded_dim(x, _DEPTH, *windows.padding[0]), _DEPTH, windows)
    samples, channels, _, *plane = x._type.shape
    parts = [unsqueeze(permute(part, (0, 2, 1, 3, 4)), 3) for part in shifts]
    joined = cat(parts, 3) if len(parts) > 1 else bind(CLONE, parts[0])
    return reshape(joined, (samples * windows.counts[0], channels * len(parts), *plane))


def _as_planes(y: Tensor) -> Tensor:
    """[N, C, D, H, W] as [N * D, C, H, W]."""
    samples, channels, depth, *plane = y._type.shape
    moved = bind(CLONE, permute(y, (0, 2, 1, 3, 4)))
    return reshape(moved, (samples * depth, channels, *plane))


def _as_images(y: Tensor, samples: int) -> Tensor:
    """[N * D, C, H, W] as [N, C, D, H, W]."""
    planes, channels, *plane = y._type.shape
    split = reshape(y, (samples, planes // samples, channels, *plane))
    found: Tensor = bind(CLONE, permute(split, (0, 2, 1, 3, 4)))
    return found


def _conv(x: Tensor, w: Tensor, *, windows: Windows, groups: int) -> Tensor | None:
    if not _is_deep(x, windows):
        return None
    outputs, inputs, depth, *kernel = w._type.shape
    weight = reshape(w, (outputs, inputs * depth, *kernel))
    y = bind(CONV, _unfolded(x, windows), weight, windows=_planes(windows), groups=groups)
    return _as_images(y, x._type.shape[0])


def _conv_input(y: Tensor, w: Tensor, *, windows: Windows, groups: int) -> Tensor | None:
    """Spaced planes of the gradient are gathered with the weights of a window from the last to the
    first."""
    if not _is_deep(y, windows):
        return None
    outputs, inputs, depth, *kernel = w._type.shape
    flipped = permute(flip(w, (2,)), (0, 2, 1, 3, 4)) if depth > 1 else permute(w, (0, 2, 1, 3, 4))
    weight = reshape(bind(CLONE, flipped), (outputs * depth, inputs, *kernel))
    gathered = _unfolded(_spaced(y, _DEPTH, windows.stride[0]), _mirrored(windows))
    x = bind(CONV_INPUT, gathered, weight, windows=_planes(windows), groups=groups)
    return _as_images(x, y._type.shape[0])


def _conv_weight(y: Tensor, x: Tensor, *, windows: Windows, groups: int) -> Tensor | None:
    if not _is_deep(x, windows) or not y.numel():
        return None
    outputs, inputs = y._type.shape[1], x._type.shape[1] // groups
    planes = _planes(windows)
    w = bind(CONV_WEIGHT, _as_planes(y), _unfolded(x, windows), windows=planes, groups=groups)
    return reshape(w, (outputs, inputs, *windows.kernel))


# -- pooling ------------------------------------------------------------------------------------


def _max_pool(x: Tensor, *, windows: Windows) -> Tensor | None:
    if not _is_deep(x, windows):
        return None
    dim = x.ndim - 3
    planes = bind(MAX_POOL, x, windows=_planes(windows))
    first, *rest = _shifts(padded_dim(planes, dim, *windows.padding[0], -inf), dim, windows)
    for part in rest:
        first = maximum(first, part)
    return first if rest else bind(CLONE, first)


def _max_pool_places(x: Tensor, *, windows: Windows) -> Tensor | None:
    """Of equal elements the first counts, of NaNs the last; planes of padding never do."""
    if not _is_deep(x, windows):
        return None
    dim, (depth, height, width) = x.ndim - 3, windows.size
    low, high = windows.padding[0]
    values = padded_dim(bind(MAX_POOL, x, windows=_planes(windows)), dim, low, high, -inf)
    inside = bind(MAX_POOL_PLACES, x, windows=_planes(windows))
    numbers = reshape(arange(depth, dtype=dtypes.int64), (depth, 1, 1)) * (height * width)
    places = padded_dim(inside + numbers, dim, low, high, -1)
    pairs = zip(_shifts(values, dim, windows), _shifts(places, dim, windows), strict=True)
    best, found = next(pairs)
    for value, place in pairs:
        is_better = ((value > best) | isnan(value) | (found < 0)) & (place >= 0)
        best, found = where(is_better, value, best), where(is_better, place, found)
    return found if windows.kernel[0] > 1 else bind(CLONE, found)


def _window_sum(x: Tensor, *, windows: Windows) -> Tensor | None:
    if not _is_deep(x, windows):
        return None
    dim = x.ndim - 3
    planes = bind(WINDOW_SUM, x, windows=_planes(windows))
    return _summed(_shifts(padded_dim(planes, dim, *windows.padding[0]), dim, windows))


def _summed(parts: list[Tensor]) -> Tensor:
    first, *rest = parts
    for part in rest:
        first = first + part
    return first if rest else bind(CLONE, first)


def _window_spread(g: Tensor, *, windows: Windows) -> Tensor | None:
    if not _is_deep(g, windows):
        return None
    dim = g.ndim - 3
    planes = bind(WINDOW_SPREAD, g, windows=_planes(windows))
    if windows.kernel[0] == windows.stride[0] and windows.padding[0] == (0, 0) and (
        windows.dilation[0] == 1
    ):  # fmt: skip
        return _repeated(planes, dim, windows)
    mirrored = _mirrored(windows)
    spaced = padded_dim(_spaced(planes, dim, windows.stride[0]), dim, *mirrored.padding[0])
    return _summed(_shifts(spaced, dim, mirrored))


def _repeated(x: Tensor, dim: int, windows: Windows) -> Tensor:
    """Each plane as often as windows, which do not overlap, are deep."""
    shape, deep = x._type.shape, windows.kernel[0]
    wide = expand(unsqueeze(x, dim + 1), (*shape[: dim + 1], deep, *shape[dim + 1 :]))
    joined = reshape(bind(CLONE, wide), (*shape[:dim], shape[dim] * deep, *shape[dim + 1 :]))
    return padded_dim(joined, dim, 0, windows.size[0] - shape[dim] * deep)


RULES: dict[Op, AnyFunction] = {
    CONV: _conv,
    CONV_INPUT: _conv_input,
    CONV_WEIGHT: _conv_weight,
    MAX_POOL: _max_pool,
    MAX_POOL_PLACES: _max_pool_places,
    WINDOW_SUM: _window_sum,
    WINDOW_SPREAD: _window_spread,
}
