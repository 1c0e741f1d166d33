"""How many elements, or how much weight, falls into each bin. None of this has a derivative."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evergrad import return_types
from evergrad.core.bind import bind
from evergrad.core.tensor import Tensor
from evergrad.core.tracing import is_known
from evergrad.ops.rows.creation.linspace import linspace
from evergrad.ops.rows.movement.slices import select
from evergrad.ops.rows.reduce.histogram import HISTOGRAM, HISTOGRAM_EDGES, range_of
from evergrad.ops.surface.public import expose


def _edges(input: Tensor, bins: Any, given: Any, name: str) -> list[Tensor]:
    """The edges of the bins of each dimension."""
    edges = []
    for dim, wanted in enumerate(bins):
        if isinstance(wanted, Tensor):
            _check_edges(input, wanted, dim)
            edges.append(wanted)
            continue
        if wanted <= 0:
            raise RuntimeError(
                f"torch.{name}(): bins must be > 0, but got {wanted} for dimension {dim}"
            )
        if given is None and not is_known(input):
            edges.append(bind(HISTOGRAM_EDGES, select(input, 1, dim), bins=wanted, dim=dim))
            continue
        points = input.array()[:, dim] if given is None else None
        low, high = range_of(points, given, dim)
        edges.append(linspace(low, high, wanted + 1, dtype=input.dtype))
    return edges


def _check_edges(input: Tensor, edges: Tensor, dim: int) -> None:
    if edges.dtype is not input.dtype:
        raise RuntimeError(
            "torch.histogramdd: input tensor and bins tensors should have the same dtype, but got "
            f"input with dtype {input.dtype.name} and bins for dimension {dim} with dtype "
            f"{edges.dtype.name}"
        )
    if edges.ndim != 1:
        raise RuntimeError(
            f"torch.histogramdd: bins tensor should have one dimension, but got {edges.ndim} "
            f"dimensions in the bins tensor for dimension {dim}"
        )


def _histogram(
    name: str, input: Tensor, bins: object, given: object, weight: Tensor | None, density: bool
) -> tuple[Tensor, tuple[Tensor, ...]]:
    if not input.dtype.is_floating_point or input.dtype.itemsize == 2:
        raise NotImplementedError(f"\"histogramdd\" not implemented for '{input.dtype.name}'")
    if weight is not None and weight._type.shape != input._type.shape[:-1]:
        raise RuntimeError(
            "torch.histogramdd: if weight tensor is provided it should have the same shape as the "
            "input tensor excluding its innermost dimension, but got input with shape "
            f"{list(input._type.shape)} and weight with shape {list(weight._type.shape)}"
        )
    flat = input.reshape(-1, input._type.shape[-1])
    edges = _edges(flat, bins, given, name)
    weights = [] if weight is None else [weight.reshape(-1)]
    counts: Tensor = bind(HISTOGRAM, flat, *edges, *weights, density=bool(density))
    return counts, tuple(edges)


@expose()
def histogram(
    input: Tensor, bins: object = 100, *, range: Sequence[float] | None = None,
    weight: Tensor | None = None, density: bool = False,
) -> Any:  # fmt: skip
    """How many elements, or how much weight, fall into each bin, and the edges of the bins. These
    are given, or ``bins`` equal ones in a range."""
    points = input.reshape(-1, 1)
    weights = None if weight is None else weight.reshape(-1)
    counts, (edges,) = _histogram("histogram", points, [bins], range, weights, density)
    return return_types.histogram(counts, edges)


@expose(method=False, out=False)
def histogramdd(
    input: Tensor, bins: Any, range: Sequence[float] | None = None, weight: Tensor | None = None,
    density: bool = False,
) -> Any:  # fmt: skip
    """``histogram`` of points whose coordinates are the last dimension; bins form a grid.

    Args:
        input: points (*, d)
        bins: the number of bins, one or one for each coordinate; or their edges
        range: least and greatest edge of each coordinate, 2 d numbers
        weight: what each point counts
        density: divide by the sum and the volume of the bins; default ``False``

    >>> points = eg.tensor([[0.0, 0.0], [1.0, 1.0], [1.0, 0.0]])
    >>> eg.histogramdd(points, [2, 2]).hist
    tensor([[1., 0.],
            [1., 1.]])
    """
    if input.ndim < 2:
        raise RuntimeError("torch.histogramdd: input tensor should have at least 2 dimensions")
    rank = input._type.shape[-1]
    per_dim = [bins] * rank if isinstance(bins, int) else list(bins)
    if len(per_dim) != rank:
        raise RuntimeError(
            f"torch.histogramdd: The size of bins must be equal to the innermost dimension of the "
            f"input, but got {len(per_dim)} bins for {rank} dimensions"
        )
    counts, edges = _histogram("histogramdd", input, per_dim, range, weight, density)
    return return_types.histogramdd(counts, edges)
