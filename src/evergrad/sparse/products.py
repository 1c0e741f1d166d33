"""Matrix products with sparse factors.

A sparse matrix is its elements or blocks, and the row and column of each. A batch of matrices is
one block diagonal matrix: rows and columns of matrix ``i`` follow those of matrix ``i - 1``. So all
layouts and batches share the rows ``block_product`` and ``block_samples``, whose derivatives are
the derivatives.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from evergrad.core.compound import no_form
from evergrad.core.op import Op
from evergrad.core.shapes import Shape, broadcast_shapes
from evergrad.core.tensor import Array, Tensor
from evergrad.core.types import Args, Attrs
from evergrad.errors import DTypeError, ShapeError
from evergrad.extension import provides
from evergrad.ops.rows.block_products import block_product, block_samples
from evergrad.ops.surface.convert import adopt
from evergrad.sparse.compressed import CompressedTensor, is_by_row
from evergrad.sparse.coo import SparseTensor, coo, taken
from evergrad.sparse.gradients import MultiplySparse
from evergrad.sparse.pattern import Patterned
from evergrad.sparse.places import block_places, keys_of, pairs_at, places_of


def product(op: Op, args: Args, attrs: Attrs) -> Tensor:
    """``a @ b``, one or both sparse. A sparse leaf's gradient is the whole dense one."""
    a, b = args
    check_factors(a, b)
    both = isinstance(a, Patterned) and isinstance(b, Patterned)
    leaf = next((x for x in args if isinstance(x, Patterned) and x.is_sparse_leaf()), None)
    if leaf is None or both:
        return masked_product(a, b)
    dense = b if leaf is a else a
    return MultiplySparse.apply(leaf, dense, leaf is a)  # type: ignore[no-any-return]


def masked_product(a: Tensor, b: Tensor) -> Tensor:
    """``a @ b``, one or both sparse; the gradient of a sparse factor is at its own places."""
    if not isinstance(a, Patterned):
        assert isinstance(b, Patterned)
        turned: Any = b.transpose(-2, -1)
        return times_dense(turned, a.transpose(-2, -1)).transpose(-2, -1)
    if isinstance(b, Patterned):
        return times_sparse(a.to_sparse_coo(), b.to_sparse_coo())
    return times_dense(a, b)


def linear(op: Op, args: Args, attrs: Attrs) -> object:
    """``x @ weight^T`` with a sparse weight."""
    x, weight = args
    if isinstance(x, Patterned) or weight.ndim != 2:
        raise no_form(op.name, next(a for a in args if isinstance(a, Patterned)))
    rows = x.reshape(-1, x.shape[-1]) if x.ndim != 2 else x
    found = (weight @ rows.transpose(-2, -1)).transpose(-2, -1)
    return found.reshape(*x.shape[:-1], weight.shape[0])


# -- checks -------------------------------------------------------------------------------------


def check_matrices(a: Tensor, b: Tensor) -> None:
    """Refuse what are not two matrices that go together, in the user's words."""
    for name, factor in (("mat1", a), ("mat2", b)):
        if factor.ndim != 2:
            raise RuntimeError(
                f"{name} must be a matrix, got {factor.ndim}-D tensor\n"
                "  fix: use @ or bmm for batches of sparse matrices"
            )
    check_factors(a, b)


def check_factors(a: Tensor, b: Tensor) -> None:
    """Refuse matrices, or batches of them, that do not go together."""
    for factor in (a, b):
        if isinstance(factor, CompressedTensor | SparseTensor) and factor.dense_dim():
            raise RuntimeError(
                "mm: a sparse factor must have two sparse dimensions and no dense one, but this "
                f"has {factor.sparse_dim()} and {factor.dense_dim()}"
            )
    if a.ndim < 2 or b.ndim < 2:
        raise RuntimeError(
            f"products with sparse tensors take matrices; got {list(a.shape)} and {list(b.shape)}"
        )
    (m, k), (found, n) = a._type.shape[-2:], b._type.shape[-2:]
    if k != found:
        raise ShapeError(f"mat1 and mat2 shapes cannot be multiplied ({m}x{k} and {found}x{n})")
    if a.dtype is not b.dtype:
        raise DTypeError(
            f"expected m1 and m2 to have the same dtype, but got: {a.dtype.name} != {b.dtype.name}"
        )


# -- sparse times dense -------------------------------------------------------------------------


class _Blocks(NamedTuple):
    """The blocks ``[n, m, k]`` of a batch of sparse matrices, and where each of them is."""

    elements: Tensor
    batch: Array
    rows: Array
    columns: Array
    batch_shape: Shape
    grid: tuple[int, int]  # rows and columns of blocks


def _blocks(sparse: Tensor) -> _Blocks:
    high, wide = sparse._type.shape[-2:]
    if isinstance(sparse, CompressedTensor):
        by_row = is_by_row(sparse._layout)
        places = block_places(sparse._pointers.array(), sparse._plain.array(), by_row)
        m, k = sparse.blocksize()
        return _Blocks(sparse.blocks(), *places, sparse.batch_shape(), (high // m, wide // k))
    assert isinstance(sparse, SparseTensor)
    if sparse.ndim > 2:
        sparse = sparse.coalesce()  # so that each matrix has its elements side by side
    *leading, rows, columns = sparse._places
    outer = sparse._type.shape[:-2]
    batch = keys_of(np.array(leading, np.int64).reshape(len(outer), len(rows)), outer)
    elements = sparse.live_elements().reshape(len(rows), 1, 1)
    return _Blocks(elements, batch, rows, columns, outer, (high, wide))


def _repeated(blocks: _Blocks, batch_shape: Shape) -> _Blocks:
    """Matrices as often as a batch shape that they broadcast to has them."""
    if blocks.batch_shape == batch_shape:
        return blocks
    numbers = np.arange(math.prod(blocks.batch_shape)).reshape(blocks.batch_shape)
    matrix, chosen = pairs_at(np.broadcast_to(numbers, batch_shape).reshape(-1), blocks.batch)
    return _Blocks(
        taken(blocks.elements, chosen), matrix, blocks.rows[chosen], blocks.columns[chosen],
        batch_shape, blocks.grid,
    )  # fmt: skip


@provides("sparse_times_dense")
def times_dense(sparse: Patterned, dense: Tensor) -> Tensor:
    """Sparse matrices times dense ones, as ``matmul`` broadcasts batches."""
    blocks = _blocks(sparse)
    (high, _), (wide, n) = sparse._type.shape[-2:], dense._type.shape[-2:]
    outer = dense._type.shape[:-2]
    if not blocks.batch_shape and outer:  # one matrix: all dense columns side by side
        columns = dense.movedim(-2, 0).reshape(wide, math.prod(outer) * n)
        found = times_dense(sparse, columns)
        return found.reshape(high, *outer, n).movedim(0, -2)
    together = broadcast_shapes(blocks.batch_shape, outer)
    blocks = _repeated(blocks, together)
    rows = blocks.batch * blocks.grid[0] + blocks.rows
    columns_at = blocks.columns
    if math.prod(outer) != 1:
        dense = dense.expand(*together, wide, n)
        columns_at = blocks.batch * blocks.grid[1] + columns_at
    k = blocks.elements._type.shape[2]
    stacked = dense.reshape(math.prod(dense._type.shape[:-1]) // k, k, n)
    count = math.prod(together) * blocks.grid[0]
    found = block_product(blocks.elements, stacked, adopt(rows), adopt(columns_at), count)
    return found.reshape(*together, high, n)


def sampled(pattern: Patterned, a: Tensor, b: Tensor) -> Tensor:
    """The elements of ``a @ b`` at those of a sparse tensor, in their shape."""
    blocks = _blocks(pattern)
    n, outer = a._type.shape[-1], blocks.batch_shape
    _, m, k = blocks.elements._type.shape
    if a.shape != (*outer, pattern.shape[-2], n) or b.shape != (*outer, n, pattern.shape[-1]):
        raise RuntimeError(
            f"sampled_addmm: a product of {list(a.shape)} and {list(b.shape)} does not have the "
            f"shape {list(pattern.shape)} of the sparse input"
        )
    left = a.reshape(math.prod(outer) * blocks.grid[0], m, n)
    right = b.transpose(-2, -1).reshape(math.prod(outer) * blocks.grid[1], k, n)
    rows = blocks.batch * blocks.grid[0] + blocks.rows
    columns = blocks.batch * blocks.grid[1] + blocks.columns
    found = block_samples(left, right, adopt(rows), adopt(columns))
    return found.reshape(pattern._elements.shape)


# -- sparse times sparse ------------------------------------------------------------------------


def times_sparse(a: SparseTensor, b: SparseTensor) -> SparseTensor:
    """The product of two sparse matrices, or of batches of them: sparse and coalesced."""
    outer = a._type.shape[:-2]
    if outer != b._type.shape[:-2]:
        raise ShapeError(
            f"batches of sparse factors must be the same, not {list(outer)} and "
            f"{list(b._type.shape[:-2])}"
        )
    a, b = a if not outer else a.coalesce(), b.coalesce()
    left_rows, left_columns = _diagonal(a)
    right_rows, right_columns = _diagonal(b)
    left, right = pairs_at(left_columns, right_rows)
    elements = taken(a.live_elements(), left) * taken(b.live_elements(), right)
    rows, columns = left_rows[left], right_columns[right] % max(b._type.shape[-1], 1)
    leading = places_of(rows, (*outer, a._type.shape[-2]))
    places = np.concatenate([leading, columns[None]])
    return coo(places, elements, (*a._type.shape[:-1], b._type.shape[-1])).coalesce()


def _diagonal(x: SparseTensor) -> tuple[Array, Array]:
    """Rows and columns in the block diagonal matrix of a batch."""
    *leading, rows, columns = x._places
    outer = x._type.shape[:-2]
    batch = keys_of(np.array(leading, np.int64).reshape(len(outer), len(rows)), outer)
    return batch * x._type.shape[-2] + rows, batch * x._type.shape[-1] + columns
