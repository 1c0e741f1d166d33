"""Products with sparse matrices of dense blocks, and the products sampled at such blocks.

A sparse matrix is its nonzero blocks ``[blocks, m, k]`` and the block row and block column of each;
plain elements are blocks of 1 x 1. The dense factor is ``[block columns, k, n]``. The two rows are
closed under differentiation::

    block_product(values, dense)[i] = sum over blocks e of row i of  values[e] @ dense[column e]
    block_samples(a, b)[e]          = a[row e] @ b[column e]^T

Blocks are added in the order of the matrix, so results are the same on every run. No more than a
piece of the gathered rows is in memory at a time: the cost is the number of blocks times their
products, the memory is that of the operands and the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from evergrad.core.bind import bind
from evergrad.core.families import opaque
from evergrad.core.op import Op
from evergrad.core.row_facts import AutocastPolicy, numpy_evaluates
from evergrad.core.shapes import TensorType, tensor_type
from evergrad.core.tensor import Array, Tensor
from evergrad.errors import ShapeError
from evergrad.ops.rows.creation.constants import arange
from evergrad.ops.rows.elementwise.magnitude import conj
from evergrad.ops.rows.indexing.index import at_front, batch_size, in_bounds
from evergrad.ops.rows.movement.views import reshape, transpose

Dims = Sequence[int | None]

# Bytes of the gathered rows of one piece: it stays in the second-level cache.
_PIECE = 1 << 18

_EMIT = numpy_evaluates("gathered rows and products of blocks, a piece at a time")


# -- evaluation ---------------------------------------------------------------------------------


def _pieces(count: int, nbytes: int) -> Iterator[slice]:
    """Ranges of blocks whose gathered rows, of ``nbytes`` each, fill a piece."""
    size = max(1, _PIECE // max(nbytes, 1))
    return (slice(first, min(first + size, count)) for first in range(0, count, size))


def _in_range(rows: Array, extent: int, dim: int) -> Array:
    return in_bounds(rows, extent, dim, False, IndexError)


def _multiply(values: Array, dense: Array) -> Array:
    """``values[e] @ dense[e]`` for each ``e``; numbers instead of 1 x 1 matrices."""
    if values.shape[1:] == (1, 1):
        return values * dense
    result: Array = np.matmul(values, dense)
    return result


def _product(values: Array, dense: Array, rows: Array, columns: Array, *, count: int) -> Array:
    out = np.zeros((count, values.shape[1], dense.shape[2]), values.dtype)
    _in_range(rows, count, 0)
    _in_range(columns, len(dense), 1)
    if not (out.size and values.size):
        return out
    order = None if (rows[1:] >= rows[:-1]).all() else np.argsort(rows, kind="stable")
    for piece in _pieces(len(values), max(dense[0].nbytes, out[0].nbytes)):
        chosen = piece if order is None else order[piece]
        row = rows[chosen]
        added = _multiply(values[chosen], dense[columns[chosen]])
        first = np.flatnonzero(np.concatenate([[True], row[1:] != row[:-1]]))
        out[row[first]] += added if len(first) == len(row) else np.add.reduceat(added, first, 0)
    return out


def _samples(a: Array, b: Array, rows: Array, columns: Array) -> Array:
    out = np.zeros((len(rows), a.shape[1], b.shape[1]), a.dtype)
    _in_range(rows, len(a), 0)
    _in_range(columns, len(b), 1)
    if not out.size:
        return out
    for piece in _pieces(len(rows), max(a[0].nbytes, b[0].nbytes)):
        left, right = a[rows[piece]], b[columns[piece]]
        if out.shape[1:] == (1, 1):
            out[piece, 0, 0] = np.einsum("ij,ij->i", left[:, 0], right[:, 0])
        else:
            np.matmul(left, right.swapaxes(1, 2), out=out[piece])
    return out


# -- types --------------------------------------------------------------------------------------


def _product_type(
    values: TensorType, dense: TensorType, rows: TensorType, columns: TensorType, *, count: int
) -> TensorType:
    if len(values.shape) != 3 or len(dense.shape) != 3 or values.shape[2] != dense.shape[1]:
        raise ShapeError(f"blocks of {values} do not multiply block rows of {dense}")
    if rows.shape != values.shape[:1] or columns.shape != values.shape[:1]:
        raise ShapeError(f"{values.shape[0]} blocks have places {rows} and {columns}")
    return tensor_type((count, values.shape[1], dense.shape[2]), values.dtype)


def _samples_type(
    a: TensorType, b: TensorType, rows: TensorType, columns: TensorType
) -> TensorType:
    if len(a.shape) != 3 or len(b.shape) != 3 or a.shape[2] != b.shape[2]:
        raise ShapeError(f"block rows of {a} and {b} have no products")
    return tensor_type((rows.shape[0], a.shape[1], b.shape[1]), a.dtype)


# -- derivatives --------------------------------------------------------------------------------


def _product_vjp(
    g: Tensor,
    out: Tensor,
    values: Tensor,
    dense: Tensor,
    rows: Tensor,
    columns: Tensor,
    *,
    count: int,
) -> tuple[Tensor, Tensor, None, None]:
    extent = dense._type.shape[0]
    return (
        block_samples(g, conj(dense), rows, columns),
        block_product(transpose(conj(values), 1, 2), g, columns, rows, extent),
        None, None,
    )  # fmt: skip


def _samples_vjp(
    g: Tensor, out: Tensor, a: Tensor, b: Tensor, rows: Tensor, columns: Tensor
) -> tuple[Tensor, Tensor, None, None]:
    return (
        block_product(g, conj(b), rows, columns, a._type.shape[0]),
        block_product(transpose(g, 1, 2), conj(a), columns, rows, b._type.shape[0]),
        None, None,
    )  # fmt: skip


def _bilinear_jvp(
    op: Op,
    tangents: Sequence[Tensor | None],
    a: Tensor,
    b: Tensor,
    *places: Tensor,
    **attrs: object,
) -> object:
    ta, tb = tangents[:2]
    first = None if ta is None else bind(op, ta, b, *places, **attrs)
    second = None if tb is None else bind(op, a, tb, *places, **attrs)
    if first is None or second is None:
        return second if first is None else first
    return first + second


def _product_jvp(
    tangents: Sequence[Tensor | None], out: Tensor, *args: Tensor, **attrs: Any
) -> object:
    return _bilinear_jvp(BLOCK_PRODUCT, tangents, *args, **attrs)


def _samples_jvp(
    tangents: Sequence[Tensor | None], out: Tensor, *args: Tensor, **attrs: Any
) -> object:
    return _bilinear_jvp(BLOCK_SAMPLES, tangents, *args, **attrs)


# -- batching: a batch of matrices is one block diagonal matrix ---------------------------------


def _side_by_side(places: Tensor, size: int, extent: int) -> Tensor:
    """Places ``[batch, blocks]`` in matrices of ``extent`` block rows, one behind the other."""
    shifted = places + reshape(arange(size) * extent, (size, 1))
    return reshape(shifted, (shifted._type.numel,))


def _flat(x: Tensor) -> Tensor:
    shape = x._type.shape
    return reshape(x, (shape[0] * shape[1], *shape[2:]))


def _batch(op: Op, args: Sequence[Tensor], dims: Dims, **attrs: Any) -> tuple[Tensor, int]:
    size = batch_size(args, dims)
    a, b, rows, columns = (at_front(x, d, size) for x, d in zip(args, dims, strict=True))
    extent = attrs["count"] if op is BLOCK_PRODUCT else a._type.shape[1]
    row = _side_by_side(rows, size, extent)
    column = _side_by_side(columns, size, b._type.shape[1])
    if op is BLOCK_PRODUCT:
        found = block_product(_flat(a), _flat(b), row, column, extent * size)
    else:
        found = block_samples(_flat(a), _flat(b), row, column)
    shape = found._type.shape
    return reshape(found, (size, shape[0] // max(size, 1), *shape[1:])), 0


BLOCK_PRODUCT = opaque(
    "block_product", _product, _product_type, _product_vjp, jvp=_product_jvp, batch=_batch,
    emit=_EMIT, autocast=AutocastPolicy.KEEP,
    doc="A sparse matrix of dense blocks times a dense matrix.",
)  # fmt: skip
BLOCK_SAMPLES = opaque(
    "block_samples", _samples, _samples_type, _samples_vjp, jvp=_samples_jvp, batch=_batch,
    emit=_EMIT, autocast=AutocastPolicy.KEEP,
    doc="The blocks of a product of two dense matrices at given places.",
)  # fmt: skip


def block_product(
    values: Tensor, dense: Tensor, rows: Tensor, columns: Tensor, count: int
) -> Tensor:
    """Blocks ``[blocks, m, k]`` at ``rows`` and ``columns`` times ``[block columns, k, n]``, as
    ``[count, m, n]``."""
    return bind(BLOCK_PRODUCT, values, dense, rows, columns, count=count)  # type: ignore[no-any-return]


def block_samples(a: Tensor, b: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """``a[rows[e]] @ b[columns[e]]^T`` of ``[block rows, m, n]`` and ``[block columns, k, n]`` for
    each ``e``, as ``[blocks, m, k]``."""
    return bind(BLOCK_SAMPLES, a, b, rows, columns)  # type: ignore[no-any-return]
