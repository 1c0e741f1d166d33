"""Pooling to a given size: windows that cover the last dimensions, of unequal size if need be."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import bind
from evergrad.core.shapes import Shape
from evergrad.core.tensor import Tensor, from_array
from evergrad.errors import ShapeError
from evergrad.ops.elementwise import where
from evergrad.ops.movement import movedim, reshape
from evergrad.ops.public import expose
from evergrad.ops.reduce import mean
from evergrad.ops.sliding import Windows
from evergrad.ops.sliding_rows import (
    ADAPTIVE_MAX_PLACES,
    WINDOW_SUM,
    adaptive_bounds,
    picked_at,
)


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
        if shape[dim] == 0 and sizes != (1,) * rank:
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
    if count == (1,) * rank:
        return mean(input, tuple(range(input.ndim - rank, input.ndim)), True)
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
