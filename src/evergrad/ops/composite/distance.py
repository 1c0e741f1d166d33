"""Distances and directions of vectors: plain functions over rows."""

from __future__ import annotations

import numpy as np

from evergrad.core import dtypes
from evergrad.core.autocast import autocast_policy
from evergrad.core.bind import cast
from evergrad.core.eager.fusion import eager_composite
from evergrad.core.families import result_dtype
from evergrad.core.prepared import prepared
from evergrad.core.row_facts import AutocastPolicy
from evergrad.core.shapes import broadcast_shapes, normalize_dim
from evergrad.core.tensor import Tensor
from evergrad.core.types import DimsLike
from evergrad.errors import DTypeError, ShapeError
from evergrad.ops.rows.elementwise.basic import sqrt, where
from evergrad.ops.rows.elementwise.clamp import clamp
from evergrad.ops.rows.indexing.functions import index_select
from evergrad.ops.rows.matmul import matmul
from evergrad.ops.rows.movement.views import expand, transpose, unsqueeze
from evergrad.ops.rows.reduce.sums import sum as total
from evergrad.ops.rows.reduce.variance import norm
from evergrad.ops.surface.convert import adopt
from evergrad.ops.surface.handles import detach
from evergrad.ops.surface.public import expose, write_out

# From this many vectors on, PyTorch forms Euclidean distances from a matrix product.
_MANY = 25


def _norm(input: Tensor, p: float, dim: int, keepdim: bool = False) -> Tensor:
    return norm(input, p, dim, keepdim)


@expose(method=False, out=False)
@autocast_policy(AutocastPolicy.FLOAT32)
@prepared
def cdist(
    x1: Tensor, x2: Tensor, p: float = 2.0,
    compute_mode: str | None = "use_mm_for_euclid_dist_if_necessary",
) -> Tensor:  # fmt: skip
    """The distance of every row of ``x1`` to every row of ``x2``; slope 0 where they coincide."""
    _check_rows(x1, x2, p)
    many = x1._type.shape[-2] > _MANY or x2._type.shape[-2] > _MANY
    mode = compute_mode or "use_mm_for_euclid_dist_if_necessary"
    if p == 2 and (
        mode == "use_mm_for_euclid_dist" or (mode == "use_mm_for_euclid_dist_if_necessary" and many)
    ):
        return _euclidean_by_product(x1, x2)
    return _norm(unsqueeze(x1, -2) - unsqueeze(x2, -3), p, -1)


def _check_rows(x1: Tensor, x2: Tensor, p: float) -> None:
    for name, x in (("X1", x1), ("X2", x2)):
        if x.dtype.category < dtypes.FLOATING:
            raise DTypeError(
                f"cdist only supports floating-point dtypes, {name} got: {x.dtype.name}"
            )
        if x.ndim < 2:
            raise ShapeError(f"cdist only supports at least 2D tensors, {name} got: {x.ndim}D")
    if x1._type.shape[-1] != x2._type.shape[-1]:
        raise ShapeError(
            f"X1 and X2 must have the same number of columns. X1: {x1._type.shape[-1]} X2: "
            f"{x2._type.shape[-1]}"
        )
    if p < 0:
        raise RuntimeError("cdist only supports non-negative p values")


def _euclidean_by_product(x1: Tensor, x2: Tensor) -> Tensor:
    """``|a - b|^2 = |a|^2 - 2 a.b + |b|^2``; what rounds below 0 is 0, with slope 0."""
    squares1, squares2 = total(x1 * x1, -1, True), total(x2 * x2, -1, True)
    squared = squares1 + transpose(squares2, -2, -1) - matmul(x1, transpose(x2, -2, -1)) * 2
    apart = squared > 0
    return where(apart, sqrt(where(apart, squared, 1)), 0)


@expose(method=False, out=False)
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """The distances of all pairs of different rows, in the order of the rows."""
    if input.ndim != 2:
        raise ShapeError(f"pdist only supports 2D tensors, got: {input.ndim}D")
    if input.dtype.category < dtypes.FLOATING:
        raise DTypeError("pdist only supports floating-point dtypes")
    if p < 0:
        raise RuntimeError("pdist only supports non-negative p values")
    first, second = np.triu_indices(input._type.shape[0], 1)
    rows = [index_select(input, 0, adopt(i.astype(np.int64))) for i in (first, second)]
    return _norm(rows[0] - rows[1], p, 1)


@expose(method=False, out=False, numpy_names=True)
@prepared
def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """The norm of ``x1 - x2 + eps`` along the last dimension."""
    return _norm(x1 - x2 + eps, p, -1, keepdim)


@expose(method=False, out=False, numpy_names=True)
@prepared
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between vectors; lengths below ``eps`` count as ``eps``."""
    shape = broadcast_shapes(x1._type.shape, x2._type.shape)
    dim = normalize_dim(dim, len(shape))
    found = result_dtype((x1._type, x2._type))
    x1, x2 = (expand(cast(x, found), shape) for x in (x1, x2))
    return _cosine(x1, x2, dim=dim, eps=eps)  # type: ignore[no-any-return]


@eager_composite(least=512)
def _cosine(x1: Tensor, x2: Tensor, *, dim: int, eps: float) -> Tensor:
    product = _direction(x1, dim, eps) * _direction(x2, dim, eps)
    return total(product, dim)


def _direction(x: Tensor, dim: int, eps: float) -> Tensor:
    length = _norm(x, 2, dim, True)
    # The slope is that of the length itself.
    raised = detach(where(length < eps, eps - length, 0))
    return x / (length + raised)


@prepared
def normalize(
    input: Tensor, p: float = 2.0, dim: DimsLike = 1, eps: float = 1e-12, out: Tensor | None = None
) -> Tensor:
    """Divided by the norm along a dimension, or by ``eps`` where the norm is smaller."""
    length = clamp(norm(input, p, dim, True), min=eps)
    result = input / length
    return result if out is None else write_out("normalize", out, result)
