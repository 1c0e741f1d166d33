"""Pooling, unpooling, and windows as columns, over the last one, two or three dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import bind
from evergrad.core.shapes import Shape
from evergrad.core.tensor import Tensor, from_array
from evergrad.errors import ShapeError
from evergrad.ops.elementwise import abs as absolute
from evergrad.ops.elementwise import div, relu, sign, where
from evergrad.ops.movement import movedim, reshape
from evergrad.ops.public import expose
from evergrad.ops.sliding import Windows, per_dim
from evergrad.ops.sliding_rows import (
    ADAPTIVE_MAX_PLACES,
    COL2IM,
    IM2COL,
    MAX_POOL,
    MAX_POOL_PLACES,
    WINDOW_SUM,
    adaptive_bounds,
    picked_at,
)

# -- windows ------------------------------------------------------------------------------------


def _windows(
    name: str, rank: int, input: Tensor, kernel_size: Any, stride: Any, padding: Any,
    dilation: Any, ceil_mode: bool,
) -> Windows:  # fmt: skip
    """The windows of a pooling call; with ``ceil_mode`` also those that begin inside but reach
    beyond the end, which is padded for them."""
    if input.ndim not in (rank + 1, rank + 2):
        raise ShapeError(
            f"{name}: Expected {rank + 1}D or {rank + 2}D (batch mode) tensor with optional 0 dim "
            f"batch size for input, but got:{list(input._type.shape)}"
        )
    kernel = per_dim("kernel_size", kernel_size, rank)
    unset = stride is None or (isinstance(stride, Sequence) and not stride)
    stride = kernel if unset else per_dim("stride", stride, rank)
    padding, dilation = per_dim("padding", padding, rank), per_dim("dilation", dilation, rank)
    _check_windows(kernel, stride, padding, dilation)
    size = input._type.shape[-rank:]
    windows = Windows(size, kernel, stride, tuple((p, p) for p in padding), dilation)
    if ceil_mode:
        windows = windows._replace(padding=_reaching_beyond(windows))
    if min(windows.count) < 1:
        lead = "x".join(map(str, input._type.shape[-rank - 1 : -rank]))
        raise ShapeError(
            f"Given input size: ({lead}x{'x'.join(map(str, size))}). Calculated output size: "
            f"({lead}x{'x'.join(map(str, windows.count))}). Output size is too small"
        )
    return windows


def _check_windows(kernel: Shape, stride: Shape, padding: Shape, dilation: Shape) -> None:
    if min(stride) <= 0:
        raise RuntimeError("stride should not be zero")
    if min(kernel) <= 0:
        raise RuntimeError("kernel size should be greater than zero")
    if min(dilation) <= 0:
        raise RuntimeError(
            f"dilation should be greater than zero, but got dilation: {list(dilation)}"
        )
    for k, p, d in zip(kernel, padding, dilation, strict=True):
        if p < 0:
            raise RuntimeError(f"pad must be non-negative, but got pad: {p}")
        if p > ((k - 1) * d + 1) // 2:
            raise RuntimeError(
                "pad should be at most half of effective kernel size, but got "
                f"pad={p}, kernel_size={k} and dilation={d}"
            )


def _reaching_beyond(windows: Windows) -> tuple[tuple[int, int], ...]:
    padding = []
    for n, reach, step, (low, high) in zip(
        windows.size, windows.reach, windows.stride, windows.padding, strict=True
    ):
        count = -(-(n + low + high - reach) // step) + 1
        if (count - 1) * step >= n + low:  # the last window must begin inside
            count -= 1
        padding.append((low, max(high, (count - 1) * step + reach - n - low)))
    return tuple(padding)


# -- the largest --------------------------------------------------------------------------------


def _max_pool(rank: int) -> Any:
    def function(
        input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
        ceil_mode: bool = False, return_indices: bool = False,
    ) -> Any:  # fmt: skip
        windows = _windows(
            function.__name__, rank, input, kernel_size, stride, padding, dilation, ceil_mode
        )
        largest = bind(MAX_POOL, input, windows=windows)
        if not return_indices:
            return largest
        return largest, bind(MAX_POOL_PLACES, input, windows=windows)

    function.__name__ = function.__qualname__ = f"max_pool{rank}d"
    function.__doc__ = f"The largest element of each window of the last {rank} dimension(s)."
    return expose(method=False, out=False)(function)


def _max_pool_with_indices(rank: int, plain: Any) -> Any:
    def function(
        input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
        ceil_mode: bool = False, return_indices: bool = False,
    ) -> Any:  # fmt: skip
        return plain(input, kernel_size, stride, padding, dilation, ceil_mode, True)

    function.__name__ = function.__qualname__ = f"max_pool{rank}d_with_indices"
    function.__doc__ = f"``max_pool{rank}d`` and where the largest elements stand."
    return function


max_pool1d, max_pool2d, max_pool3d = (_max_pool(rank) for rank in (1, 2, 3))
max_pool1d_with_indices = _max_pool_with_indices(1, max_pool1d)
max_pool2d_with_indices = _max_pool_with_indices(2, max_pool2d)
max_pool3d_with_indices = _max_pool_with_indices(3, max_pool3d)


def _max_unpool(rank: int) -> Any:
    def function(
        input: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0,
        output_size: Any = None,
    ) -> Tensor:  # fmt: skip
        kernel = per_dim("kernel_size", kernel_size, rank)
        stride = kernel if stride is None else per_dim("stride", stride, rank)
        padding = per_dim("padding", padding, rank)
        size = _unpooled_size(input, kernel, stride, padding, output_size)
        return _unpooled(input, indices, size)

    function.__name__ = function.__qualname__ = f"max_unpool{rank}d"
    function.__doc__ = f"Zeros with each element back where ``max_pool{rank}d`` took it from."
    return function


def _unpooled_size(
    input: Tensor, kernel: Shape, stride: Shape, padding: Shape, output_size: Any
) -> Shape:
    rank = len(kernel)
    default = tuple(
        (n - 1) * s + k - 2 * p
        for n, k, s, p in zip(input._type.shape[-rank:], kernel, stride, padding, strict=True)
    )
    if output_size is None:
        return default
    wanted = tuple(output_size)[-rank:]
    if len(output_size) not in (rank, rank + 2):
        raise ValueError(
            f"output_size should be a sequence containing {rank} or {rank + 2} elements, but it "
            f"has a length of '{len(output_size)}'"
        )
    for dim, (n, own, s) in enumerate(zip(wanted, default, stride, strict=True)):
        if not own - s < n < own + s:
            raise ValueError(
                f'invalid output_size "{wanted}" (dim {dim} must be between {own - s} and '
                f"{own + s})"
            )
    return wanted


def _unpooled(input: Tensor, indices: Tensor, size: Shape) -> Tensor:
    from evergrad.ops.creation import zeros
    from evergrad.ops.scatter import scatter

    if indices.dtype is not dtypes.int64:
        raise RuntimeError(
            f"elements in indices should be type int64 but got: {indices.dtype.name}"
        )
    if indices._type.shape != input._type.shape:
        raise ShapeError(
            "Expected shape of indices to be same as that of the input tensor "
            f"({list(input._type.shape)}) but got indices tensor with shape: "
            f"{list(indices._type.shape)}"
        )
    lead = input._type.shape[: -len(size)]
    flat = (*lead, math.prod(input._type.shape[-len(size) :]))
    start = zeros((*lead, math.prod(size)), dtype=input.dtype)
    filled = scatter(start, -1, reshape(indices, flat), reshape(input, flat))
    return reshape(filled, (*lead, *size))


max_unpool1d, max_unpool2d, max_unpool3d = (_max_unpool(rank) for rank in (1, 2, 3))


# -- the mean -----------------------------------------------------------------------------------


def _avg_pool(
    rank: int, input: Tensor, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool,
    count_include_pad: bool, divisor_override: int | None,
) -> Tensor:  # fmt: skip
    windows = _windows(f"avg_pool{rank}d", rank, input, kernel_size, stride, padding, 1, ceil_mode)
    if divisor_override == 0:
        raise RuntimeError("divisor must be not zero")
    total = bind(WINDOW_SUM, input, windows=windows)
    outside = per_dim("padding", padding, rank) if count_include_pad else (0,) * rank
    divisor = divisor_override or _divisor(windows, outside, input)
    whole = input.dtype.category < dtypes.FLOATING
    return div(total, divisor, rounding_mode="trunc" if whole else None)


def _divisor(windows: Windows, outside: Shape, like: Tensor) -> Any:
    """How many elements each window has, counting ``outside`` of the padding as elements: one
    number if it is the same for all windows."""
    counts: Any = 1
    for dim, extra in enumerate(outside):
        begin = np.arange(windows.count[dim]) * windows.stride[dim] - windows.padding[dim][0]
        end = np.minimum(begin + windows.kernel[dim], windows.size[dim] + extra)
        along = end - np.maximum(begin, -extra)
        counts = counts * along.reshape((-1,) + (1,) * (len(outside) - 1 - dim))
    if (counts == counts.flat[0]).all():
        return int(counts.flat[0])
    return from_array(np.ascontiguousarray(counts, like.dtype.np))


@expose(method=False, out=False)
def avg_pool1d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True,
) -> Tensor:  # fmt: skip
    """The mean of each window of the last dimension."""
    return _avg_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


def avg_pool2d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """The mean of each window of the last two dimensions."""
    return _avg_pool(
        2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


def avg_pool3d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """The mean of each window of the last three dimensions."""
    return _avg_pool(
        3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


def _lp_pool(
    rank: int, input: Tensor, norm_type: Any, kernel_size: Any, stride: Any, ceil_mode: bool
) -> Tensor:
    means = _avg_pool(rank, input**norm_type, kernel_size, stride, 0, ceil_mode, True, None)
    count = math.prod(per_dim("kernel_size", kernel_size, rank))
    return (sign(means) * relu(absolute(means)) * count) ** (1.0 / norm_type)  # type: ignore[no-any-return]


def lp_pool1d(
    input: Tensor, norm_type: Any, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Tensor:
    """The p-norm of each window of the last dimension."""
    return _lp_pool(1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(
    input: Tensor, norm_type: Any, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Tensor:
    """The p-norm of each window of the last two dimensions."""
    return _lp_pool(2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(
    input: Tensor, norm_type: Any, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Tensor:
    """The p-norm of each window of the last three dimensions."""
    return _lp_pool(3, input, norm_type, kernel_size, stride, ceil_mode)


# -- windows that cover -------------------------------------------------------------------------


def _adaptive_size(name: str, rank: int, input: Tensor, output_size: Any) -> Shape:
    shape = input._type.shape
    if len(shape) not in (rank + 1, rank + 2):
        raise ShapeError(
            f"{name}(): Expected {rank + 1}D or {rank + 2}D tensor, but got {list(shape)}"
        )
    sizes = (output_size,) * rank if isinstance(output_size, int) else tuple(output_size)
    if len(sizes) != rank:
        raise RuntimeError(f"{name}: output_size must be {rank}")
    for dim in range(len(shape) - rank, len(shape)):
        if shape[dim] == 0:
            raise ShapeError(
                f"{name}(): Expected input to have non-zero size for non-batch dimensions, but "
                f"input has sizes {list(shape)} with dimension {dim} being empty"
            )
    own = shape[-rank:]
    return tuple(n if wanted is None else int(wanted) for n, wanted in zip(own, sizes, strict=True))


def adaptive_mean(input: Tensor, count: Shape) -> Tensor:
    """The mean of each of ``count`` windows that cover the last dimensions."""
    rank = len(count)
    size = input._type.shape[-rank:]
    if all(c and n % c == 0 for n, c in zip(size, count, strict=True)):
        kernel = tuple(n // c for n, c in zip(size, count, strict=True))
        windows = Windows(size, kernel, kernel, ((0, 0),) * rank, (1,) * rank)
        return bind(WINDOW_SUM, input, windows=windows) / math.prod(kernel)  # type: ignore[no-any-return]
    for dim, wanted in enumerate(count, input.ndim - rank):
        input = _adaptive_mean_along(input, dim, wanted)
    return input


def _adaptive_mean_along(input: Tensor, dim: int, count: int) -> Tensor:
    """Every window filled up to the longest with elements that then do not count."""
    from evergrad.ops.indexing import index_select
    from evergrad.ops.reduce import sum as total

    shape = input._type.shape
    if shape[dim] == count:
        return input
    bounds = np.array(adaptive_bounds(shape[dim], count), np.int64).reshape(count, 2)
    lengths = bounds[:, 1] - bounds[:, 0]
    longest = int(lengths.max(initial=1))
    places = np.minimum(bounds[:, :1] + np.arange(longest), bounds[:, 1:] - 1)
    taken = index_select(input, dim, from_array(places.reshape(-1)))
    taken = movedim(reshape(taken, (*shape[:dim], count, longest, *shape[dim + 1 :])), dim + 1, -1)
    behind = (1,) * (len(shape) - 1 - dim)
    counted = np.arange(longest) < lengths[:, None]
    inside = where(from_array(counted.reshape(count, *behind, longest)), taken, 0)
    divisor = from_array(lengths.astype(input.dtype.np).reshape(count, *behind))
    return total(inside, -1) / divisor


def _adaptive_avg_pool(rank: int) -> Any:
    def function(input: Tensor, output_size: Any) -> Tensor:
        name = function.__name__
        count = _adaptive_size(name, rank, input, output_size)
        if input.dtype.category < dtypes.FLOATING:
            raise NotImplementedError(f"\"{name}\" not implemented for '{input.dtype.name}'")
        return adaptive_mean(input, count)

    function.__name__ = function.__qualname__ = f"adaptive_avg_pool{rank}d"
    function.__doc__ = f"The means of windows that cover the last {rank} dimension(s)."
    return expose(method=False, out=False)(function) if rank == 1 else function


def _adaptive_max_pool(rank: int) -> Any:
    def function(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
        count = _adaptive_size(function.__name__, rank, input, output_size)
        places = bind(ADAPTIVE_MAX_PLACES, input, count=count)
        largest = picked_at(input, places, rank)
        return (largest, places) if return_indices else largest

    function.__name__ = function.__qualname__ = f"adaptive_max_pool{rank}d"
    function.__doc__ = f"The largest elements of windows that cover the last {rank} dimension(s)."
    return function


def _adaptive_max_pool_with_indices(rank: int, plain: Any) -> Any:
    def function(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
        return plain(input, output_size, True)

    function.__name__ = function.__qualname__ = f"adaptive_max_pool{rank}d_with_indices"
    function.__doc__ = f"``adaptive_max_pool{rank}d`` and where the largest elements stand."
    return function


adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = (
    _adaptive_avg_pool(rank) for rank in (1, 2, 3)
)
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = (
    _adaptive_max_pool(rank) for rank in (1, 2, 3)
)
adaptive_max_pool1d_with_indices = _adaptive_max_pool_with_indices(1, adaptive_max_pool1d)
adaptive_max_pool2d_with_indices = _adaptive_max_pool_with_indices(2, adaptive_max_pool2d)
adaptive_max_pool3d_with_indices = _adaptive_max_pool_with_indices(3, adaptive_max_pool3d)


# -- windows as columns -------------------------------------------------------------------------


def _column_windows(
    size: Shape, kernel_size: Any, dilation: Any, padding: Any, stride: Any
) -> Windows:
    kernel, dilation = per_dim("kernel_size", kernel_size, 2), per_dim("dilation", dilation, 2)
    padding, stride = per_dim("padding", padding, 2), per_dim("stride", stride, 2)
    windows = Windows(size, kernel, stride, tuple((p, p) for p in padding), dilation)
    if min(windows.count) < 1:
        raise ShapeError(
            f"Given input with spatial size {size}, kernel_size={kernel}, dilation={dilation}, "
            f"padding={padding}, calculated shape of the array of sliding blocks as "
            f"{windows.count}, but its components must be at least one."
        )
    return windows


def unfold(
    input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Tensor:
    """The windows of images as columns: [N, C * kernel, windows]."""
    if input.ndim not in (3, 4):
        raise ShapeError(
            f"Expected 3D or 4D (batch mode) tensor for input, but got: {list(input._type.shape)}"
        )
    *lead, channels, height, width = input._type.shape
    windows = _column_windows((height, width), kernel_size, dilation, padding, stride)
    columns = bind(IM2COL, input, windows=windows)
    rows = channels * math.prod(windows.kernel)
    return reshape(columns, (*lead, rows, math.prod(windows.count)))


def fold(
    input: Tensor, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0,
    stride: Any = 1,
) -> Tensor:  # fmt: skip
    """Columns added up to images: the transpose of ``unfold``."""
    if input.ndim not in (2, 3):
        raise ShapeError(
            "Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size, but got: "
            f"{list(input._type.shape)}"
        )
    size = per_dim("output_size", output_size, 2)
    windows = _column_windows(size, kernel_size, dilation, padding, stride)
    *lead, rows, blocks = input._type.shape
    window = math.prod(windows.kernel)
    if rows % window:
        raise ShapeError(
            f"Expected size of input's dimension {len(lead)} to be divisible by the product of "
            f"kernel_size, but got input.size({len(lead)})={rows} and kernel_size={windows.kernel}."
        )
    if blocks != math.prod(windows.count):
        raise ShapeError(
            f"Given output_size={size}, kernel_size={windows.kernel}, dilation={windows.dilation}, "
            f"padding={tuple(low for low, _ in windows.padding)}, stride={windows.stride}, expected "
            f"size of input's dimension {len(lead) + 1} to match the calculated number of sliding "
            f"blocks {' * '.join(map(str, windows.count))} = {math.prod(windows.count)}, but got "
            f"input.size({len(lead) + 1})={blocks}."
        )
    columns = reshape(input, (*lead, rows // window, *windows.kernel, *windows.count))
    return bind(COL2IM, columns, windows=windows)  # type: ignore[no-any-return]
