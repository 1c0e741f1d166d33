"""The functions of ``evergrad.sparse``. Their gradients stay at the places of sparse arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.autocast import autocast_policy, under_autocast
from evergrad.core.bind import cast
from evergrad.core.dtypes import as_dtype
from evergrad.core.memory_format import layout as Layout
from evergrad.core.memory_format import sparse_csr
from evergrad.core.row_facts import AutocastPolicy
from evergrad.core.shapes import normalize_dim, normalize_dims
from evergrad.core.tensor import Tensor
from evergrad.core.types import Array
from evergrad.ops.composite.products import addmm as dense_addmm
from evergrad.ops.rows.elementwise.basic import exp, log
from evergrad.ops.surface.convert import adopt
from evergrad.sparse.compressed import CompressedTensor, is_blocked
from evergrad.sparse.construct import sparse_coo_tensor
from evergrad.sparse.convert import to_compressed, to_layout
from evergrad.sparse.coo import SparseTensor, summed_at, taken
from evergrad.sparse.pattern import Patterned
from evergrad.sparse.places import keys_of
from evergrad.sparse.products import check_matrices, masked_product, sampled
from evergrad.sparse.rows import sum_over

if TYPE_CHECKING:
    from evergrad.core.types import DimsLike, DtypeLike


@under_autocast
@autocast_policy(AutocastPolicy.LOWER)
def mm(mat1: Tensor, mat2: Tensor) -> Tensor:
    """The product of two matrices, of which any may be sparse.

    Args:
        mat1: (n, k)
        mat2: (k, m)

    >>> a = eg.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse()
    >>> eg.sparse.mm(a, eg.eye(2))
    tensor([[0., 2.],
            [3., 0.]])
    """
    if not isinstance(mat1, Patterned) and not isinstance(mat2, Patterned):
        return mat1 @ mat2
    check_matrices(mat1, mat2)
    found = masked_product(mat1, mat2)
    if isinstance(found, SparseTensor) and isinstance(mat1, CompressedTensor):
        if is_blocked(mat1._layout):
            return found
        differ = isinstance(mat2, CompressedTensor) and mat2._layout is not mat1._layout
        return to_compressed(found, sparse_csr if differ else mat1._layout)
    return found


@under_autocast
@autocast_policy(AutocastPolicy.LOWER)
def addmm(
    mat: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1.0, alpha: float = 1.0
) -> Tensor:
    """``beta * mat + alpha * (mat1 @ mat2)``

    Args:
        mat: the summand (n, m)
        mat1: a sparse matrix (n, k)
        mat2: a matrix (k, m)
        beta, alpha: factors; default 1

    >>> a = eg.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse()
    >>> eg.sparse.addmm(eg.ones(2, 2), a, eg.eye(2))
    tensor([[1., 3.],
            [4., 1.]])
    """
    if not isinstance(mat1, Patterned) and not isinstance(mat2, Patterned):
        return dense_addmm(mat, mat1, mat2, beta=beta, alpha=alpha)
    added = mm(mat1, mat2)
    scaled = added if alpha == 1 else added * alpha
    if beta == 0:
        return scaled
    return (mat if beta == 1 else mat * beta) + scaled


def sampled_addmm(
    input: Any, mat1: Tensor, mat2: Tensor, *, beta: float = 1.0, alpha: float = 1.0
) -> Any:
    """``beta * input + alpha * (mat1 @ mat2)`` at the places of a sparse ``input``, which may be a
    batch of matrices; elements of the product elsewhere are not computed.

    Args:
        input: a sparse matrix (n, m) in CSR
        mat1: (n, k)
        mat2: (k, m)
        beta, alpha: factors; default 1

    >>> pattern = eg.eye(2).to_sparse_csr()
    >>> eg.sparse.sampled_addmm(pattern, eg.ones(2, 3), eg.ones(3, 2)).values()
    tensor([4., 4.])
    """
    if not isinstance(input, Patterned):
        raise RuntimeError(
            f"sampled_addmm: Expected self to have sparse csr layout, but got {input.layout}"
        )
    pattern = input.coalesce() if isinstance(input, SparseTensor) else input
    added = sampled(pattern, mat1, mat2) * alpha
    return pattern.with_elements(pattern.live_elements() * beta + added)


def sum(input: Tensor, dim: DimsLike = None, dtype: DtypeLike = None) -> Tensor:
    """The sum over all or some dimensions, of a sparse tensor; sparse if an indexed one is left.

    Args:
        input: a sparse tensor
        dim: the dimensions; default all, for one number
        dtype: element type of the result

    >>> a = eg.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse()
    >>> eg.sparse.sum(a), eg.sparse.sum(a, dim=1).to_dense()
    (tensor(5.), tensor([2., 3.]))
    """
    sparse = _require_coordinates("coalesce", input)
    if dtype is not None:
        sparse = cast(sparse, as_dtype(dtype))  # type: ignore[assignment]
    if dim is None:
        return sparse.live_elements().sum()
    return sum_over(sparse, normalize_dims(dim, sparse.ndim), False)


def _require_coordinates(name: str, input: Tensor) -> SparseTensor:
    if isinstance(input, SparseTensor):
        return input
    found = input.layout_name if isinstance(input, Patterned) else "Strided"
    raise RuntimeError(f"{name} expected sparse coordinate tensor layout but got {found}")


# -- softmax ------------------------------------------------------------------------------------


def softmax(input: Tensor, dim: int, *, dtype: DtypeLike = None) -> Tensor:
    """The softmax over the elements that are stored; all others count as minus infinity.

    Args:
        input: a sparse tensor
        dim: the dimension
        dtype: element type to compute in; default that of the input

    >>> a = eg.tensor([[1.0, 1.0, 0.0]]).to_sparse()
    >>> eg.sparse.softmax(a, 1).values()
    tensor([0.5000, 0.5000])
    """
    sparse = _ready_for_softmax(input, dtype)
    dim = normalize_dim(dim, sparse.ndim)
    if dim >= sparse.sparse_dim():
        inner = sparse.live_elements().softmax(dim - sparse.sparse_dim() + 1)
        return sparse.with_elements(inner)  # type: ignore[no-any-return]
    shifted, group, count = _shifted(sparse, dim)
    powers = exp(shifted)
    totals = taken(summed_at(powers, group, count), group)
    return sparse.with_elements(powers / totals)  # type: ignore[no-any-return]


def log_softmax(input: Tensor, dim: int, *, dtype: DtypeLike = None) -> Tensor:
    """The logarithm of :func:`softmax`.

    Args:
        input: a sparse tensor
        dim: the dimension
        dtype: element type to compute in; default that of the input

    >>> a = eg.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse()
    >>> eg.sparse.log_softmax(a, 1).values()
    tensor([0., 0.])
    """
    sparse = _ready_for_softmax(input, dtype)
    dim = normalize_dim(dim, sparse.ndim)
    if dim >= sparse.sparse_dim():
        inner = sparse.live_elements().log_softmax(dim - sparse.sparse_dim() + 1)
        return sparse.with_elements(inner)  # type: ignore[no-any-return]
    shifted, group, count = _shifted(sparse, dim)
    totals = taken(log(summed_at(exp(shifted), group, count)), group)
    return sparse.with_elements(shifted - totals)  # type: ignore[no-any-return]


def _ready_for_softmax(input: Tensor, dtype: DtypeLike) -> SparseTensor:
    sparse = _require_coordinates("softmax", input)
    if dtype is not None:
        sparse = cast(sparse, as_dtype(dtype))  # type: ignore[assignment]
    if sparse.dtype.category < dtypes.FLOATING:
        raise NotImplementedError(f'"softmax" not implemented for {sparse.dtype.name!r}')
    return sparse.coalesce()


def _shifted(sparse: SparseTensor, dim: int) -> tuple[Tensor, Array, int]:
    """Elements less the largest of their group, the number of each one's group, and how many
    groups there are. Elements form a group that differ in ``dim`` alone."""
    others = [d for d in range(sparse.sparse_dim()) if d != dim]
    extents = [sparse._type.shape[d] for d in others]
    keys = keys_of(sparse._places[others], extents)
    found, group = np.unique(keys, return_inverse=True)
    group = group.reshape(-1)
    elements = sparse.live_elements()
    array = elements.detach().array()
    largest = np.full((len(found), *array.shape[1:]), -np.inf, array.dtype)
    np.maximum.at(largest, group, array)
    return elements - adopt(largest[group]), group, len(found)


# -- diagonals ----------------------------------------------------------------------------------


def spdiags(diagonals: Tensor, offsets: Tensor, shape: Any, layout: Layout | None = None) -> Tensor:
    """A sparse matrix with the rows of ``diagonals`` along the diagonals that ``offsets`` names;
    an element stands in the column it has in its row.

    Args:
        diagonals: (diagonals, n)
        offsets: which, one number for each row
        shape: of the matrix
        layout: default COO

    >>> eg.sparse.spdiags(eg.ones(1, 2), eg.tensor([0]), (2, 2)).to_dense()
    tensor([[1., 0.],
            [0., 1.]])
    """
    rows, columns = (int(n) for n in shape)
    table = diagonals.unsqueeze(0) if diagonals.ndim == 1 else diagonals
    starts = np.atleast_1d(offsets.array())
    if len(np.unique(starts)) != len(starts):
        raise RuntimeError("spdiags(): Offset tensor contains duplicate values")
    if table._type.shape[0] != len(starts):
        raise RuntimeError(
            f"spdiags(): Number of diagonals ({table.shape[0]}) does not match the number of "
            f"offsets ({len(starts)})"
        )
    number, column = np.nonzero(np.ones((len(starts), min(table.shape[1], columns)), bool))
    row = column - starts[number]
    inside = (row >= 0) & (row < rows)
    number, column, row = number[inside], column[inside], row[inside]
    elements = table[adopt(number), adopt(column)]
    made = sparse_coo_tensor(adopt(np.stack([row, column])), elements, (rows, columns))
    found: Tensor = made if layout is None else to_layout(made, layout)
    return found
