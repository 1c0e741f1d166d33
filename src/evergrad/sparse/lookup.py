"""Rows of a table, with a gradient that names only the rows that were looked up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from evergrad.autograd.function import Function
from evergrad.core.bind import bind
from evergrad.core.shapes import Shape
from evergrad.core.tensor import Tensor
from evergrad.extension import provides
from evergrad.ops.rows.indexing.index import INDEX
from evergrad.sparse.coo import SparseTensor, coo, raw_coo, taken

if TYPE_CHECKING:
    from evergrad.autograd.function import FunctionCtx


class Lookup(Function):
    """``weight[indices]`` whose gradient is a sparse tensor with one row for each index."""

    @staticmethod
    def forward(
        ctx: FunctionCtx, weight: Tensor, indices: Tensor, padding_idx: int, by_frequency: bool
    ) -> Tensor:
        ctx.save_for_backward(indices)
        ctx.shape, ctx.padding_idx, ctx.by_frequency = weight._type.shape, padding_idx, by_frequency
        return bind(INDEX, weight, indices, start=0, wrap=False)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: FunctionCtx, g: Tensor) -> tuple[SparseTensor, None, None, None]:
        if ctx.by_frequency:
            raise RuntimeError(
                "embedding_backward: scale_grad_by_freq not supported with sparse gradients"
            )
        (indices,) = ctx.saved_tensors
        return _row_gradient(g, indices, ctx.shape, ctx.padding_idx), None, None, None


def _row_gradient(g: Tensor, indices: Tensor, shape: Shape, padding_idx: int) -> SparseTensor:
    """The cotangents of the rows, in the order they were looked up, without the padding's."""
    numbers = indices.array().reshape(-1).astype(np.int64)
    elements = g.reshape(len(numbers), shape[1])
    if padding_idx >= 0:
        kept = np.flatnonzero(numbers != padding_idx)
        numbers, elements = numbers[kept], taken(elements, kept)
    return coo(numbers[None], elements, shape)


@provides("sparse_lookup")
def lookup(weight: Tensor, indices: Tensor, padding_idx: int, by_frequency: bool) -> Tensor:
    """Rows of a table; its gradient is sparse."""
    return Lookup.apply(weight, indices, padding_idx, by_frequency)  # type: ignore[no-any-return]


@provides("sparse_rows")
def rows(places: Tensor, elements: Tensor, count: int) -> SparseTensor:
    """A sparse tensor of so many rows, of which those at ``places`` (1, n) are given (n, ...)."""
    return raw_coo(places, elements, (count, *elements._type.shape[1:]), False)
