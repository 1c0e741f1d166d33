"""Pooling by windows over the last one, two or three dimensions, and its undoing.

Pooling to a given size is in :mod:`evergrad.ops.composite.adaptive_pool`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.autocast import as_float32, autocast_policy
from evergrad.core.bind import bind
from evergrad.core.prepared import prepared
from evergrad.core.row_facts import AutocastPolicy
from evergrad.core.shapes import Shape
from evergrad.core.tensor import Tensor
from evergrad.core.types import Array
from evergrad.errors import ShapeError
from evergrad.ops.rows.creation.constants import zeros
from evergrad.ops.rows.elementwise.basic import div, relu
from evergrad.ops.rows.elementwise.magnitude import abs as absolute
from evergrad.ops.rows.elementwise.magnitude import sign
from evergrad.ops.rows.indexing.scatter import scatter
from evergrad.ops.rows.movement.views import reshape
from evergrad.ops.rows.pool.geometry import Windows, per_dim
from evergrad.ops.rows.pool.windows import MAX_POOL, MAX_POOL_PLACES, WINDOW_SUM
from evergrad.ops.surface.convert import adopt
from evergrad.ops.surface.public import TensorFunction, expose

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction, Ints

# -- windows ------------------------------------------------------------------------------------


def _windows(
    name: str, rank: int, input: Tensor, kernel_size: Ints, stride: Ints, padding: Ints | str,
    dilation: Ints, ceil_mode: bool,
) -> Windows:  # fmt: skip
    """The windows of a pooling call; with ``ceil_mode`` also those that begin inside but reach
    beyond the end, which is padded for them."""
    if input.ndim not in (rank + 1, rank + 2):
        raise ShapeError(
            f"{name}: Expected {rank + 1}D or {rank + 2}D (batch mode) tensor with optional 0 dim "
            f"batch size for input, but got:{list(input._type.shape)}"
        )
    if 0 in input._type.shape[input.ndim - rank - 1 :]:
        raise ShapeError(
            f"{name}(): Expected input's non-batch dimensions to have positive length, but input "
            f"has a shape of {list(input._type.shape)}"
        )
    kernel = per_dim("kernel_size", kernel_size, rank)
    unset = stride is None or (isinstance(stride, Sequence) and not stride)
    stride = kernel if unset else per_dim("stride", stride, rank)
    padding, dilation = per_dim("padding", padding, rank), per_dim("dilation", dilation, rank)
    shape = input._type.shape[-rank - 1 :]
    return _checked_windows(shape, kernel, stride, padding, dilation, bool(ceil_mode))


@functools.lru_cache(256)
def _checked_windows(
    shape: Shape, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, ceil_mode: bool
) -> Windows:
    _check_windows(kernel, stride, padding, dilation)
    size = shape[1:]
    windows = Windows(size, kernel, stride, tuple((p, p) for p in padding), dilation)
    if ceil_mode:
        windows = windows._replace(padding=_reaching_beyond(windows))
    if min(windows.counts) < 1:
        lead = shape[0]
        raise ShapeError(
            f"Given input size: ({lead}x{'x'.join(map(str, size))}). Calculated output size: "
            f"({lead}x{'x'.join(map(str, windows.counts))}). Output size is too small"
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


def _max_pool(rank: int) -> Callable[..., object]:
    def function(
        input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
        ceil_mode: bool = False, return_indices: bool = False,
    ) -> Any:  # fmt: skip
        windows = _windows(
            function.__name__, rank, input, kernel_size, stride, padding, dilation, ceil_mode
        )
        # PyTorch's policy is that of the function without indices.
        given = input if return_indices or rank < 3 else as_float32(input)
        largest = bind(MAX_POOL, given, windows=windows)
        if not return_indices:
            return largest
        return largest, bind(MAX_POOL_PLACES, input, windows=windows)

    function.__name__ = function.__qualname__ = f"max_pool{rank}d"
    function.__doc__ = f"The largest element of each window of the last {rank} dimension(s)."
    return expose(method=False, out=False)(function)


def _max_pool_with_indices(rank: int, plain: AnyFunction) -> Callable[..., tuple[Tensor, Tensor]]:
    def function(
        input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints | str = 0,
        dilation: Ints = 1, ceil_mode: bool = False, return_indices: bool = False,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        found: tuple[Tensor, Tensor] = plain(
            input, kernel_size, stride, padding, dilation, ceil_mode, True
        )
        return found

    function.__name__ = function.__qualname__ = f"max_pool{rank}d_with_indices"
    function.__doc__ = f"``max_pool{rank}d`` and where the largest elements stand."
    return function


max_pool1d: AnyFunction = _max_pool(1)
max_pool2d: AnyFunction = _max_pool(2)
max_pool3d: AnyFunction = _max_pool(3)
max_pool1d_with_indices: Callable[..., tuple[Tensor, Tensor]] = _max_pool_with_indices(
    1, max_pool1d
)
max_pool2d_with_indices: Callable[..., tuple[Tensor, Tensor]] = _max_pool_with_indices(
    2, max_pool2d
)
max_pool3d_with_indices: Callable[..., tuple[Tensor, Tensor]] = _max_pool_with_indices(
    3, max_pool3d
)


def _max_unpool(rank: int) -> TensorFunction:
    def function(
        input: Tensor, indices: Tensor, kernel_size: Ints, stride: Ints | None = None,
        padding: Ints | str = 0, output_size: Ints | Sequence[int | None] | None = None,
    ) -> Tensor:  # fmt: skip
        kernel = per_dim("kernel_size", kernel_size, rank)
        stride = kernel if stride is None else per_dim("stride", stride, rank)
        padding = per_dim("padding", padding, rank)
        size = _unpooled_size(input, kernel, stride, padding, output_size)
        return _unpooled(input, indices, size)

    function.__name__ = function.__qualname__ = f"max_unpool{rank}d"
    function.__doc__ = f"Zeros with each element back where ``max_pool{rank}d`` took it from."
    return autocast_policy(AutocastPolicy.FLOAT32)(function)


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


max_unpool1d: TensorFunction = _max_unpool(1)
max_unpool2d: TensorFunction = _max_unpool(2)
max_unpool3d: TensorFunction = _max_unpool(3)


# -- the mean -----------------------------------------------------------------------------------


def _avg_pool(
    rank: int, input: Tensor, kernel_size: Ints, stride: Ints, padding: Ints | str, ceil_mode: bool,
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


def _divisor(windows: Windows, outside: Shape, like: Tensor) -> Tensor | int:
    """How many elements each window has, counting ``outside`` of the padding as elements: one
    number if it is the same for all windows."""
    counts = _window_counts(windows, outside)
    if isinstance(counts, int):
        return counts
    return adopt(counts.astype(like.dtype.np))


@functools.lru_cache(256)
def _window_counts(windows: Windows, outside: Shape) -> int | Array:
    counts: Any = 1
    for dim, extra in enumerate(outside):
        begin = np.arange(windows.counts[dim]) * windows.stride[dim] - windows.padding[dim][0]
        end = np.minimum(begin + windows.kernel[dim], windows.size[dim] + extra)
        along = end - np.maximum(begin, -extra)
        counts = counts * along.reshape((-1,) + (1,) * (len(outside) - 1 - dim))
    if (counts == counts.flat[0]).all():
        return int(counts.flat[0])
    return np.ascontiguousarray(counts)


@expose(method=False, out=False)
@prepared
def avg_pool1d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True,
) -> Tensor:  # fmt: skip
    """The mean of each window of the last dimension."""
    return _avg_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


@prepared
def avg_pool2d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """The mean of each window of the last two dimensions."""
    return _avg_pool(
        2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


@autocast_policy(AutocastPolicy.FLOAT32)
@prepared
def avg_pool3d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """The mean of each window of the last three dimensions.

    Args:
        input: (N, C, D, H, W), the first dimension may be missing
        kernel_size: extent of the window
        stride: distance of the windows; default ``kernel_size``
        padding: border at both sides; default 0
        ceil_mode: whether a window may reach beyond the end; default ``False``
        count_include_pad: whether the border counts in the mean; default ``True``
        divisor_override: divide by it in place of the number of elements
        out: where to write the result

    >>> F.avg_pool3d(eg.arange(8.0).view(1, 2, 2, 2), 2)
    tensor([[[[3.5000]]]])
    """
    return _avg_pool(
        3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


def _lp_pool(
    rank: int, input: Tensor, norm_type: float, kernel_size: Any, stride: Any, ceil_mode: bool
) -> Tensor:
    if norm_type == math.inf:
        largest = (max_pool1d, max_pool2d, max_pool3d)[rank - 1]
        return largest(absolute(input), kernel_size, stride, ceil_mode=ceil_mode)  # type: ignore[no-any-return]
    means = _avg_pool(rank, input**norm_type, kernel_size, stride, 0, ceil_mode, True, None)
    count = math.prod(per_dim("kernel_size", kernel_size, rank))
    return (sign(means) * relu(absolute(means)) * count) ** (1.0 / norm_type)


def lp_pool1d(
    input: Tensor,
    norm_type: Any,
    kernel_size: object,
    stride: object = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The p-norm of each window of the last dimension.

    Args:
        input: (N, C, L), the first dimension may be missing
        norm_type: the power p
        kernel_size: extent of the window
        stride: distance of the windows; default ``kernel_size``
        ceil_mode: whether a window may reach beyond the end; default ``False``

    >>> F.lp_pool1d(eg.tensor([[1.0, 5.0, 2.0, 3.0]]), 2, 2)
    tensor([[5.0990, 3.6056]])
    """
    return _lp_pool(1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(
    input: Tensor,
    norm_type: Any,
    kernel_size: object,
    stride: object = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The p-norm of each window of the last two dimensions.

    Args:
        input: (N, C, H, W), the first dimension may be missing
        norm_type: the power p
        kernel_size: extent of the window
        stride: distance of the windows; default ``kernel_size``
        ceil_mode: whether a window may reach beyond the end; default ``False``

    >>> F.lp_pool2d(eg.arange(16.0).view(1, 4, 4), 2, 2)
    tensor([[[ 6.4807,  9.8995],
             [21.4009, 25.3377]]])
    """
    return _lp_pool(2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(
    input: Tensor,
    norm_type: Any,
    kernel_size: object,
    stride: object = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The p-norm of each window of the last three dimensions.

    Args:
        input: (N, C, D, H, W), the first dimension may be missing
        norm_type: the power p
        kernel_size: extent of the window
        stride: distance of the windows; default ``kernel_size``
        ceil_mode: whether a window may reach beyond the end; default ``False``

    >>> F.lp_pool3d(eg.arange(8.0).view(1, 2, 2, 2), 2, 2)
    tensor([[[[11.8322]]]])
    """
    return _lp_pool(3, input, norm_type, kernel_size, stride, ceil_mode)
