"""Matrix products with sparse factors.

A sparse matrix times a dense one is rows of the dense one, picked, scaled and summed: three rows of
the op table, whose derivatives are the derivatives.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from evergrad.core.op import Op
from evergrad.core.tensor import Tensor
from evergrad.errors import DTypeError, ShapeError
from evergrad.extension import provides
from evergrad.sparse.coo import SparseTensor, coo, summed_at, taken
from evergrad.sparse.gradients import MultiplySparse
from evergrad.sparse.pattern import Patterned
from evergrad.sparse.places import pairs_at


def product(op: Op, args: tuple[Any, ...], attrs: dict[str, Any]) -> Tensor:
    """``a @ b``, one or both sparse. A sparse leaf's gradient is the whole dense one."""
    a, b = args
    check_matrices(a, b)
    leaf = next((x for x in args if isinstance(x, SparseTensor) and x.is_sparse_leaf()), None)
    both = isinstance(a, Patterned) and isinstance(b, Patterned)
    if leaf is None or both:
        return masked_product(a, b)
    dense = b if leaf is a else a
    return MultiplySparse.apply(leaf, dense, leaf is a)  # type: ignore[no-any-return]


def masked_product(a: Tensor, b: Tensor) -> Tensor:
    """``a @ b``, one or both sparse; the gradient of a sparse factor is at its own places."""
    if not isinstance(a, Patterned):
        assert isinstance(b, Patterned)
        return times_dense(b.to_sparse_coo().t(), a.t()).t()  # type: ignore[no-any-return]
    if isinstance(b, Patterned):
        return times_sparse(a.to_sparse_coo(), b.to_sparse_coo())
    return times_dense(a.to_sparse_coo(), b)


def check_matrices(a: Tensor, b: Tensor) -> None:
    """Refuse what does not fit, in the user's words."""
    if a.ndim != 2 or b.ndim != 2:
        raise RuntimeError(
            f"products with sparse tensors take matrices; got {list(a.shape)} and {list(b.shape)} "
            "(expand is unsupported for Sparse tensors)"
        )
    for factor in (a, b):
        if isinstance(factor, SparseTensor) and factor.dense_dim():
            raise RuntimeError(
                "mm: a sparse factor must have two sparse dimensions and no dense one, but this "
                f"has {factor.sparse_dim()} and {factor.dense_dim()}"
            )
    if a._type.shape[1] != b._type.shape[0]:
        (m, k), (found, n) = a._type.shape, b._type.shape
        raise ShapeError(f"mat1 and mat2 shapes cannot be multiplied ({m}x{k} and {found}x{n})")
    if a.dtype is not b.dtype:
        raise DTypeError(
            f"expected m1 and m2 to have the same dtype, but got: {a.dtype.name} != {b.dtype.name}"
        )


@provides("sparse_times_dense")
def times_dense(sparse: SparseTensor, dense: Tensor) -> Tensor:
    """A sparse matrix times a dense one."""
    rows, columns = sparse._places
    scaled = sparse.live_elements().unsqueeze(1) * taken(dense, columns)
    return summed_at(scaled, rows, sparse._type.shape[0])


def times_sparse(a: SparseTensor, b: SparseTensor) -> SparseTensor:
    """The product of two sparse matrices: sparse and coalesced."""
    b = b.coalesce()
    left, right = pairs_at(a._places[1], b._places[0])
    elements = taken(a.live_elements(), left) * taken(b.live_elements(), right)
    places = np.stack([a._places[0][left], b._places[1][right]])
    return coo(places, elements, (a._type.shape[0], b._type.shape[1])).coalesce()
