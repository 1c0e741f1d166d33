"""The rows of histograms: how much weight falls into each bin, and the edges of equal bins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core.dtypes import from_numpy_dtype
from evergrad.core.families import opaque
from evergrad.core.op import NONDIFFERENTIABLE
from evergrad.core.row_facts import AutocastPolicy, numpy_evaluates
from evergrad.core.shapes import TensorType, tensor_type
from evergrad.core.state import using
from evergrad.ops.rows.creation.linspace import linspace

if TYPE_CHECKING:
    from evergrad.core.tensor import Array


def range_of(values: Any, given: Sequence[float] | None, dim: int) -> tuple[float, float]:
    """Where the bins of a dimension begin and end; wide enough to have a width."""
    if given is not None:
        low, high = given[2 * dim : 2 * dim + 2]
    elif values.size:
        low, high = float(values.min()), float(values.max())
    else:
        low, high = 0.0, 1.0
    if not (np.isfinite(low) and np.isfinite(high)):
        raise RuntimeError(
            f"torch.histogramdd: dimension {dim}'s range [{low:g}, {high:g}] is not finite"
        )
    if low > high:
        raise RuntimeError(
            f"torch.histogramdd: min should not exceed max, but got min {low:g} max {high:g} for "
            f"dimension {dim}"
        )
    return (low - 0.5, high + 0.5) if low == high else (low, high)


def _edges_eval(points: Array, *, bins: int, dim: int) -> Array:
    low, high = range_of(points, None, dim)
    with using(trace=None):
        return linspace(low, high, bins + 1, dtype=from_numpy_dtype(points.dtype)).array()


HISTOGRAM_EDGES = opaque(
    "histogram_edges", _edges_eval,
    lambda points, *, bins, dim: tensor_type((bins + 1,), points.dtype), NONDIFFERENTIABLE,
    emit=numpy_evaluates("of the size of a result"), autocast=AutocastPolicy.KEEP,
    doc="The edges of equal bins between the smallest and the largest element.",
)  # fmt: skip


def _counts(points: Array, edges: Sequence[Array], weights: Array | None) -> Array:
    """The weight in each bin; points outside all bins, or without a place, are left out. The last
    bin of a dimension has its upper edge too."""
    shape = tuple(len(e) - 1 for e in edges)
    inside = np.ones(len(points), bool)
    flat = np.zeros(len(points), np.int64)
    for dim, (edge, count) in enumerate(zip(edges, shape, strict=True)):
        values = points[:, dim]
        inside &= (values >= edge[0]) & (values <= edge[-1])
        flat = flat * count + np.minimum(np.searchsorted(edge, values, "right") - 1, count - 1)
    weights = None if weights is None else weights[inside]
    found = np.bincount(flat[inside], weights, int(np.prod(shape)))
    return found.reshape(shape)


def _density(counts: Array, edges: Sequence[Array]) -> Array:
    total = counts.sum()
    for dim, edge in enumerate(edges):
        counts = counts / np.diff(edge).reshape((-1,) + (1,) * (len(edges) - 1 - dim))
    result: Array = counts / total
    return result


def _histogram_eval(points: Array, *others: Array, density: bool) -> Array:
    edges, weights = list(others[: points.shape[1]]), others[points.shape[1] :]
    counts = _counts(points, edges, weights[0].astype(np.float64) if weights else None)
    return np.asarray(_density(counts, edges) if density else counts, points.dtype)


def _histogram_type(points: TensorType, *others: TensorType, density: bool) -> TensorType:
    edges = others[: points.shape[1]]
    return tensor_type(tuple(e.shape[0] - 1 for e in edges), points.dtype)


HISTOGRAM = opaque(
    "histogram", _histogram_eval, _histogram_type, NONDIFFERENTIABLE,
    emit=numpy_evaluates("counts at computed positions"), autocast=AutocastPolicy.KEEP,
    doc="How much weight falls into each bin of a grid.",
)  # fmt: skip
