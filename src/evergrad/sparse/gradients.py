"""Functions of a sparse leaf whose gradient is the whole dense one, as in PyTorch.

``evergrad.sparse.mm``, ``sparse.sum`` and all else give a sparse tensor a gradient at the places it
has. The functions that dense tensors have too (``a @ b``, ``a.sum()``, ``dense + a``) give a leaf
the gradient of every place. For tensors that were computed the two are the same by the time they
reach what they were computed from, so the smaller one is taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evergrad.autograd.function import Function
from evergrad.core.bind import bind
from evergrad.core.tensor import Tensor
from evergrad.extension import ExtensionPoint
from evergrad.ops.rows.indexing.index import INDEX_ADD
from evergrad.ops.surface.convert import adopt
from evergrad.sparse.coo import SparseTensor
from evergrad.sparse.pattern import Patterned

if TYPE_CHECKING:
    from evergrad.autograd.function import FunctionCtx

_times_dense: ExtensionPoint[..., Tensor] = ExtensionPoint("sparse_times_dense")


def added_whole(dense: Tensor, sparse: Patterned) -> Tensor:
    """``dense + sparse``"""
    if sparse.is_sparse_leaf():
        return AddSparse.apply(dense, sparse)  # type: ignore[no-any-return]
    coordinates: SparseTensor = sparse.to_sparse_coo()
    return _added(dense, coordinates, coordinates.live_elements())


def _added(dense: Tensor, sparse: SparseTensor, elements: Tensor) -> Tensor:
    rows = [adopt(row.copy()) for row in sparse._places]
    if not rows:
        return dense + elements.sum(0)
    return bind(INDEX_ADD, dense, elements, *rows, start=0, wrap=False)  # type: ignore[no-any-return]


class AddSparse(Function):
    """A dense tensor plus a sparse leaf."""

    @staticmethod
    def forward(ctx: object, dense: Tensor, sparse: Patterned) -> Tensor:
        coordinates: SparseTensor = sparse.detach().to_sparse_coo()
        return _added(dense, coordinates, coordinates._elements)

    @staticmethod
    def backward(ctx: object, g: Tensor) -> tuple[Tensor, Tensor]:
        return g, g


def summed_whole(sparse: Patterned) -> Tensor:
    """The sum of all elements of a leaf."""
    return SumSparse.apply(sparse)  # type: ignore[no-any-return]


class SumSparse(Function):
    """The sum of a sparse leaf."""

    @staticmethod
    def forward(ctx: FunctionCtx, sparse: Patterned) -> Tensor:
        ctx.shape = sparse._type.shape
        return sparse._elements.sum()

    @staticmethod
    def backward(ctx: FunctionCtx, g: Tensor) -> Tensor:
        return g.expand(ctx.shape)


class MultiplySparse(Function):
    """A sparse leaf times dense matrices, or the other way round."""

    @staticmethod
    def forward(ctx: FunctionCtx, sparse: Patterned, dense: Tensor, sparse_first: bool) -> Tensor:
        ctx.sparse, ctx.sparse_first = sparse, sparse_first
        ctx.save_for_backward(dense)
        factor = sparse.detach()
        if sparse_first:
            return _times_dense(factor, dense)
        transposed = _times_dense(factor.transpose(-2, -1), dense.transpose(-2, -1))
        return transposed.transpose(-2, -1)

    @staticmethod
    def backward(ctx: FunctionCtx, g: Tensor) -> tuple[Any, Any, None]:
        (dense,) = ctx.saved_tensors
        sparse = ctx.sparse
        adjoint, other = sparse.transpose(-2, -1).conj(), dense.transpose(-2, -1).conj()
        by_sparse, by_dense = (
            (g @ other, adjoint @ g) if ctx.sparse_first else (other @ g, g @ adjoint)
        )
        return by_sparse.sum_to_size(sparse.shape), by_dense.sum_to_size(dense.shape), None
