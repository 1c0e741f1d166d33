"""Pooling to a given size: windows that cover the last dimensions, of unequal size if need be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from evergrad.core import dtypes
from evergrad.core.autocast import autocast_policy
from evergrad.core.bind import bind
from evergrad.core.prepared import prepared
from evergrad.core.row_facts import AutocastPolicy
from evergrad.core.shapes import Shape, as_shape
from evergrad.core.tensor import Tensor
from evergrad.errors import ShapeError
from evergrad.ops.rows.pool.windows import ADAPTIVE_MAX_PLACES, ADAPTIVE_MEAN, picked_at
from evergrad.ops.rows.reduce.sums import mean
from evergrad.ops.surface.public import TensorFunction, expose

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction, Ints


def _adaptive_size(name: str, rank: int, input: Tensor, output_size: Any) -> Shape:
    shape = input._type.shape
    if rank > 1 and len(shape) <= rank and not isinstance(output_size, int):
        raise ValueError(f"{name}(): Input dimension should be at least {rank + 1}")
    if len(shape) not in (rank + 1, rank + 2):
        raise ShapeError(
            f"{name}(): Expected {rank + 1}D or {rank + 2}D tensor, but got {list(shape)}"
        )
    sizes = (output_size,) * rank if isinstance(output_size, int) else tuple(output_size)
    if len(sizes) != rank:
        raise RuntimeError(f"{name}: output_size must be {rank}")
    reads_channels = rank == 3 or name.startswith("adaptive_max")
    for dim in range(1 if reads_channels else len(shape) - rank, len(shape)):
        if shape[dim] == 0 and (sizes != (1,) * rank or name.startswith("adaptive_max")):
            raise ShapeError(
                f"{name}(): Expected input to have non-zero size for non-batch dimensions, but "
                f"input has sizes {list(shape)} with dimension {dim} being empty"
            )
    own = shape[-rank:]
    found = as_shape(tuple(n if w is None else w for n, w in zip(own, sizes, strict=True)))
    if min(found) < 0:
        raise RuntimeError(
            f"{name}: elements of output_size must be greater than or equal to 0 but received "
            f"{list(found)}"
        )
    return found


def adaptive_mean(input: Tensor, count: Shape) -> Tensor:
    """The mean of each of ``count`` windows that cover the last dimensions."""
    rank = len(count)
    if count == (1,) * rank:
        return mean(input, tuple(range(input.ndim - rank, input.ndim)), True)
    return bind(ADAPTIVE_MEAN, input, count=count)  # type: ignore[no-any-return]


def _adaptive_avg_pool(rank: int) -> TensorFunction:
    def function(input: Tensor, output_size: Ints | Sequence[int | None] | None) -> Tensor:
        name = function.__name__
        count = _adaptive_size(name, rank, input, output_size)
        if input.dtype.category < dtypes.FLOATING:
            raise NotImplementedError(f"\"{name}\" not implemented for '{input.dtype.name}'")
        return adaptive_mean(input, count)

    function.__name__ = function.__qualname__ = f"adaptive_avg_pool{rank}d"
    function.__doc__ = f"The means of windows that cover the last {rank} dimension(s)."
    if rank == 3:
        return autocast_policy(AutocastPolicy.FLOAT32)(prepared(function))
    return expose(method=False, out=False)(prepared(function)) if rank == 1 else prepared(function)


def _adaptive_max_pool(rank: int) -> Callable[..., object]:
    def function(
        input: Tensor, output_size: Ints | Sequence[int | None] | None, return_indices: bool = False
    ) -> Any:
        count = _adaptive_size(function.__name__, rank, input, output_size)
        places = bind(ADAPTIVE_MAX_PLACES, input, count=count)
        largest = picked_at(input, places, rank)
        return (largest, places) if return_indices else largest

    function.__name__ = function.__qualname__ = f"adaptive_max_pool{rank}d"
    function.__doc__ = f"The largest elements of windows that cover the last {rank} dimension(s)."
    return autocast_policy(AutocastPolicy.FLOAT32)(function) if rank == 3 else function


def _adaptive_max_pool_with_indices(
    rank: int, plain: AnyFunction
) -> Callable[..., tuple[Tensor, Tensor]]:
    def function(
        input: Tensor, output_size: object, return_indices: bool = False
    ) -> tuple[Tensor, Tensor]:
        found: tuple[Tensor, Tensor] = plain(input, output_size, True)
        return found

    function.__name__ = function.__qualname__ = f"adaptive_max_pool{rank}d_with_indices"
    function.__doc__ = f"``adaptive_max_pool{rank}d`` and where the largest elements stand."
    return function


adaptive_avg_pool1d: TensorFunction = _adaptive_avg_pool(1)
adaptive_avg_pool2d: TensorFunction = _adaptive_avg_pool(2)
adaptive_avg_pool3d: TensorFunction = _adaptive_avg_pool(3)
adaptive_max_pool1d: Callable[..., object] = _adaptive_max_pool(1)
adaptive_max_pool2d: Callable[..., object] = _adaptive_max_pool(2)
adaptive_max_pool3d: Callable[..., object] = _adaptive_max_pool(3)
adaptive_max_pool1d_with_indices: Callable[..., tuple[Tensor, Tensor]] = (
    _adaptive_max_pool_with_indices(1, adaptive_max_pool1d)
)
adaptive_max_pool2d_with_indices: Callable[..., tuple[Tensor, Tensor]] = (
    _adaptive_max_pool_with_indices(2, adaptive_max_pool2d)
)
adaptive_max_pool3d_with_indices: Callable[..., tuple[Tensor, Tensor]] = (
    _adaptive_max_pool_with_indices(3, adaptive_max_pool3d)
)
