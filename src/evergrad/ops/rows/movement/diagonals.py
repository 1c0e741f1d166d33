"""Diagonals and triangles: taken out, laid in, and their places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import bind
from evergrad.core.dtypes import as_dtype
from evergrad.core.families import linear
from evergrad.core.op import Op
from evergrad.core.row_facts import AutocastPolicy, lowered
from evergrad.core.shapes import TensorType, normalize_dim
from evergrad.core.tensor import Array, Tensor, from_array
from evergrad.ops.rows.linalg.stacks import cut_triangle
from evergrad.ops.rows.movement.strided import DIAGONAL_SCATTER
from evergrad.ops.rows.movement.strided import diagonal as diagonal_view
from evergrad.ops.rows.movement.views import clone, reshape, to_front
from evergrad.ops.surface.public import expose

if TYPE_CHECKING:
    from evergrad.core.types import DeviceLike, DtypeLike, LayoutLike

# -- triangles ----------------------------------------------------------------------------------


def _triangle(name: str, upper: bool, doc: str) -> Op:
    """A row that keeps one triangle of the last two dimensions; it is its own transpose."""

    def type_rule(x: TensorType, *, diagonal: int) -> TensorType:
        if len(x.shape) < 2:
            raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions")
        return x

    def evaluate(x: Array, *, diagonal: int) -> Array:
        return cut_triangle(x, diagonal, upper=upper)

    def transpose(g: Tensor, x: Tensor, *, diagonal: int) -> Tensor:
        return bind(op, g, diagonal=diagonal)  # type: ignore[no-any-return]

    def batch(
        op: Op, args: Sequence[Tensor], dims: Sequence[Any], *, diagonal: int
    ) -> tuple[Tensor, int]:
        return bind(op, to_front(args[0], dims[0]), diagonal=diagonal), 0

    op = linear(
        name, evaluate, type_rule, transpose, batch=batch,
        emit=lowered("passes.decompose_movement"), autocast=AutocastPolicy.KEEP, doc=doc,
    )  # fmt: skip
    return op


TRIL = _triangle("tril", False, "The lower triangle; zeros elsewhere.")
TRIU = _triangle("triu", True, "The upper triangle; zeros elsewhere.")


@expose(inplace=True)
def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    """The part on and below a diagonal; zeros elsewhere."""
    return bind(TRIL, input, diagonal=diagonal)  # type: ignore[no-any-return]


@expose(inplace=True)
def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """The part on and above a diagonal; zeros elsewhere."""
    return bind(TRIU, input, diagonal=diagonal)  # type: ignore[no-any-return]


def _triangle_places(
    places: Callable[..., tuple[Array, Array]],
    row: int,
    col: int,
    offset: int,
    dtype: DtypeLike,
    requires_grad: bool,
) -> Tensor:
    for name, extent in (("row", row), ("col", col)):
        if extent < 0:
            raise RuntimeError(f"{name} must be non-negative, got{extent}")
    target = dtypes.int64 if dtype is None else as_dtype(dtype)
    found = from_array(np.stack(places(row, offset, col)).astype(target.np))
    return found.requires_grad_() if requires_grad else found


@expose(method=False, out=False)
def tril_indices(
    row: int, col: int, offset: int = 0, *, dtype: DtypeLike = None, device: DeviceLike = None,
    layout: LayoutLike = None, pin_memory: bool = False, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """The places of a lower triangle: a row of row numbers, a row of column numbers."""
    return _triangle_places(np.tril_indices, row, col, offset, dtype, requires_grad)


@expose(method=False, out=False)
def triu_indices(
    row: int, col: int, offset: int = 0, *, dtype: DtypeLike = None, device: DeviceLike = None,
    layout: LayoutLike = None, pin_memory: bool = False, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """The places of an upper triangle: a row of row numbers, a row of column numbers."""
    return _triangle_places(np.triu_indices, row, col, offset, dtype, requires_grad)


# -- diagonals ----------------------------------------------------------------------------------


@expose(out=False)
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices with the last dimension as a diagonal; zeros elsewhere."""
    rank = input.ndim + 1
    first, second = normalize_dim(dim1, rank), normalize_dim(dim2, rank)
    if first == second:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    side = input._type.shape[-1] + abs(offset)
    shape = list(input._type.shape[:-1])
    for dim in sorted((first, second)):
        shape.insert(dim, side)
    return bind(  # type: ignore[no-any-return]
        DIAGONAL_SCATTER, input, offset=offset, dim1=first, dim2=second, shape=tuple(shape)
    )


@expose()
def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """A vector as the diagonal of a matrix, or the diagonal of a matrix as a vector."""
    if input.ndim == 1:
        return diag_embed(input, diagonal)
    if input.ndim == 2:
        return clone(diagonal_view(input, diagonal))
    raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {input.ndim}D")


@expose(out=False)
def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """All elements as the diagonal of a matrix."""
    return diag_embed(reshape(input, -1), offset)
