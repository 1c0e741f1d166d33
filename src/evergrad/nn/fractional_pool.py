"""Max pooling over windows whose places are drawn at random, in PyTorch's way.

The windows have one size and start at increasing places that cover the input; a sample in [0, 1)
for each channel and dimension shifts them. Plain functions over rows, so every derivative follows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from evergrad.core.autocast import autocast_policy
from evergrad.core.dtypes import int64
from evergrad.core.row_facts import AutocastPolicy
from evergrad.core.shapes import Shape
from evergrad.core.tensor import Tensor
from evergrad.errors import ShapeError
from evergrad.ops.rows.creation.constants import arange, full
from evergrad.ops.rows.indexing.functions import gather
from evergrad.ops.rows.movement.joining import cat
from evergrad.ops.rows.pool.geometry import per_dim
from evergrad.ops.rows.random.draws import UNIFORM, draw

if TYPE_CHECKING:
    from evergrad.core.types import Ints


def _starts(sample: Tensor, size: int, count: int, reach: int) -> Tensor:
    """Where each window starts, (N, C, count)."""
    sample = sample.unsqueeze(-1)
    last = full((*sample.shape[:-1], 1), size - reach, dtype=int64)
    if count == 1:
        return last
    step = full((), size - reach, dtype=sample.dtype) / (count - 1)
    shifted = (arange(count - 1, dtype=sample.dtype) + sample) * step
    return cat([shifted.to(int64) - (sample * step).to(int64), last], -1)


def _places(samples: Tensor, size: Shape, count: Shape, kernel: Shape) -> Tensor:
    """For each window the numbers of its elements in their plane, (N, C, *count, elements)."""
    rank = len(size)
    order = range(rank) if rank > 2 else reversed(range(rank))  # planes take the width's first
    places: Any = 0
    for dim, column in zip(range(rank), order, strict=True):
        starts = _starts(samples[..., column], size[dim], count[dim], kernel[dim])
        ahead, behind = dim, rank - 1 - dim
        outer = starts.reshape(*starts.shape[:2], *(1,) * ahead, count[dim], *(1,) * behind)
        inner = arange(kernel[dim]).reshape(*(1,) * ahead, kernel[dim], *(1,) * behind)
        windows = outer.reshape(*outer.shape, *(1,) * rank) + inner
        places = places * size[dim] + windows
    return places.flatten(-rank)  # type: ignore[no-any-return]


def _sizes(
    name: str,
    rank: int,
    input: Tensor,
    output_size: Ints | Sequence[int | None] | None,
    output_ratio: object,
) -> Shape:
    if output_size is None and output_ratio is None:
        raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
    if output_size is not None:
        return per_dim("output_size", output_size, rank)
    ratios = output_ratio if isinstance(output_ratio, tuple | list) else (output_ratio,) * rank
    own = input._type.shape[-rank:]
    return tuple(int(n * ratio) for n, ratio in zip(own, ratios, strict=True))


def _check(name: str, rank: int, input: Tensor, count: Shape, kernel: Shape) -> None:
    shape = input._type.shape
    if len(shape) not in (rank + 1, rank + 2):
        raise ShapeError(
            f"{name}: Expected {rank + 1}D or {rank + 2}D tensor, but got: {list(shape)}"
        )
    for size, outputs, reach in zip(shape[-rank:], count, kernel, strict=True):
        if outputs + reach - 1 > size:
            raise ShapeError(
                f"{name}: pool size ({reach}) and output size ({outputs}) are too large for an "
                f"input of {size}"
            )


def _fractional_max_pool(
    rank: int,
) -> tuple[Callable[..., tuple[Tensor, Tensor] | Tensor], Callable[..., tuple[Tensor, Tensor]]]:
    name = f"fractional_max_pool{rank}d"

    def with_indices(
        input: Tensor, kernel_size: Ints, output_size: Ints | Sequence[int | None] | None = None,
        output_ratio: object = None, return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        count = _sizes(name, rank, input, output_size, output_ratio)
        kernel = per_dim("kernel_size", kernel_size, rank)
        _check(name, rank, input, count, kernel)
        unbatched = input.ndim == rank + 1
        x = input.unsqueeze(0) if unbatched else input
        samples = _random_samples
        if samples is None:
            samples = draw(UNIFORM, (*x._type.shape[:2], rank), x.dtype, None, 0.0, 1.0)
        places = _places(samples, x._type.shape[-rank:], count, kernel)
        elements = gather(x.flatten(-rank), 2, places.flatten(2)).view_as(places)
        values, chosen = elements.max(-1)
        indices = gather(places, -1, chosen.unsqueeze(-1)).squeeze(-1)
        return (values.squeeze(0), indices.squeeze(0)) if unbatched else (values, indices)

    def function(
        input: Tensor, kernel_size: Ints, output_size: Ints | Sequence[int | None] | None = None,
        output_ratio: object = None, return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> tuple[Tensor, Tensor] | Tensor:  # fmt: skip
        found = with_indices(
            input, kernel_size, output_size, output_ratio, return_indices, _random_samples
        )
        return found if return_indices else found[0]

    with_indices.__name__ = with_indices.__qualname__ = f"{name}_with_indices"
    with_indices.__doc__ = f"``{name}``, and which element of its plane each number was."
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The largest numbers of windows at random places, in {rank} dimensions."
    return autocast_policy(AutocastPolicy.FLOAT32)(function), with_indices


fractional_max_pool2d: Callable[..., object]
fractional_max_pool2d_with_indices: Callable[..., tuple[Tensor, Tensor]]
fractional_max_pool2d, fractional_max_pool2d_with_indices = _fractional_max_pool(2)
fractional_max_pool3d: Callable[..., object]
fractional_max_pool3d_with_indices: Callable[..., tuple[Tensor, Tensor]]
fractional_max_pool3d, fractional_max_pool3d_with_indices = _fractional_max_pool(3)
