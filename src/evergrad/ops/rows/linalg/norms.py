"""Norms, powers and products of matrices: what ``evergrad.linalg`` offers beside decompositions.

At the edges: norms that choose (``inf``, ``1``, ``2`` and their negatives) share the gradient among
equal candidates; a Euclidean norm of 0 has slope 0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evergrad.core import dtypes
from evergrad.core.autocast import autocast_policy
from evergrad.core.bind import bind, cast
from evergrad.core.dtypes import as_dtype
from evergrad.core.families import opaque
from evergrad.core.row_facts import AutocastPolicy
from evergrad.core.shapes import normalize_dim, normalize_dims
from evergrad.core.tensor import Tensor
from evergrad.core.types import DimsLike
from evergrad.ops.composite.einsum import einsum
from evergrad.ops.composite.products import cross_product
from evergrad.ops.rows.creation.constants import eye, ones_like, zeros, zeros_like
from evergrad.ops.rows.elementwise.basic import reciprocal, where
from evergrad.ops.rows.elementwise.magnitude import abs as absolute
from evergrad.ops.rows.elementwise.magnitude import conj
from evergrad.ops.rows.linalg import exponential, spectra
from evergrad.ops.rows.linalg.base import (
    BY_LAPACK,
    LINALG,
    adjoint,
    check_floating,
    check_rank,
    check_same_dtype,
    check_square,
    check_square_shape,
    diagonal_of,
)
from evergrad.ops.rows.linalg.solve import INV, batch_stack, inv
from evergrad.ops.rows.matmul import matmul
from evergrad.ops.rows.movement.joining import cat, stack
from evergrad.ops.rows.movement.slices import narrow
from evergrad.ops.rows.movement.strided import diagonal
from evergrad.ops.rows.movement.views import clone, expand, movedim, squeeze, unsqueeze
from evergrad.ops.rows.reduce import variance
from evergrad.ops.rows.reduce.extrema import amax, amin
from evergrad.ops.rows.reduce.sums import sum as total
from evergrad.ops.surface.public import expose

if TYPE_CHECKING:
    from evergrad.core.types import DtypeLike

# -- norms --------------------------------------------------------------------------------------


def _in_dtype(x: Tensor, dtype: DtypeLike) -> Tensor:
    return x if dtype is None else cast(x, as_dtype(dtype))


@expose(method=False, into=LINALG, numpy_names=True)
def vector_norm(
    input: Tensor,
    ord: Any = 2,
    dim: DimsLike = None,
    keepdim: bool = False,
    *,
    dtype: DtypeLike = None,
) -> Tensor:
    """``sum(|x|**ord) ** (1/ord)`` over all or the given dimensions."""
    check_floating("linalg.vector_norm", input, low_precision=True)
    dims = normalize_dims(dim, input.ndim)
    return variance.vector_norm(_in_dtype(input, dtype), ord, dims, bool(keepdim))


@expose(method=False, into=LINALG, numpy_names=True)
def matrix_norm(
    input: Tensor, ord: object = "fro", dim: Any = (-2, -1), keepdim: bool = False, *,
    dtype: DtypeLike = None,
) -> Tensor:  # fmt: skip
    """The norm of the matrices in two dimensions.

    ``"fro"``: Euclidean; ``"nuc"``: the sum of the singular values; 2 and -2: the largest and
    smallest of them; 1, -1, inf and -inf: the largest or smallest sum of a column or row.
    """
    name = "linalg.matrix_norm"
    check_floating(name, input, low_precision=True)
    check_rank(name, input)
    if isinstance(dim, int) or len(dim) != 2:
        raise RuntimeError(f"{name}: dim must be a 2-tuple. Got {dim}")
    rows, columns = (normalize_dim(d, input.ndim) for d in dim)
    if rows == columns:
        raise RuntimeError(f"{name}: dims must be different. Got {tuple(dim)}")
    x = _in_dtype(input, dtype)
    if ord == "fro":
        return variance.vector_norm(x, 2, (rows, columns), bool(keepdim))
    if ord == "nuc" or (not isinstance(ord, str) and ord in (2, -2)):
        return _singular_norm(x, ord, rows, columns, keepdim)
    if isinstance(ord, str) or ord not in (1, -1, math.inf, -math.inf):
        raise RuntimeError(f"{name}: Order {ord} not supported.")
    summed, chosen = (rows, columns) if ord in (1, -1) else (columns, rows)
    sums = total(absolute(x), summed, keepdim=True)
    found = _extreme(sums, ord, chosen)
    return found if keepdim else squeeze(found, (rows, columns))


def _extreme(sizes: Tensor, ord: float, dim: int) -> Tensor:
    """The largest size along a dimension, which is 0 of none; the smallest for negative ``ord``."""
    if ord > 0 and not sizes._type.shape[dim]:
        return total(sizes, dim, keepdim=True)
    return (amax if ord > 0 else amin)(sizes, dim, keepdim=True)


def _singular_norm(x: Tensor, ord: Any, rows: int, columns: int, keepdim: bool) -> Tensor:
    s = spectra.svdvals(movedim(x, (rows, columns), (-2, -1)))
    if ord == "nuc":
        found = total(s, -1)
    else:
        found = squeeze(_extreme(s, ord, -1), -1)
    if not keepdim:
        return found
    first, second = sorted((rows, columns))
    return unsqueeze(unsqueeze(found, first), second)


@expose(method=False, into=LINALG, numpy_names=True)
def norm(
    input: Tensor,
    ord: object = None,
    dim: DimsLike = None,
    keepdim: bool = False,
    *,
    dtype: DtypeLike = None,
) -> Tensor:
    """A vector or matrix norm, by how many dimensions there are; Euclidean without ``ord``."""
    name = "linalg.norm"
    check_floating(name, input, low_precision=True)
    dims: Any = (dim,) if isinstance(dim, int) else dim
    if dims is not None and len(dims) not in (1, 2):
        raise RuntimeError(
            f"{name}: If dim is specified, it must be of length 1 or 2. Got {list(dims)}"
        )
    if dims is None and ord is not None and input.ndim not in (1, 2):
        raise RuntimeError(
            f"{name}: If dim is not specified but ord is, the input must be 1D or 2D. Got "
            f"{input.ndim}D."
        )
    rank = input.ndim if dims is None else len(dims)
    if isinstance(ord, str) or (ord is not None and rank == 2):
        return matrix_norm(input, ord, (0, 1) if dims is None else dims, keepdim, dtype=dtype)
    return vector_norm(input, 2 if ord is None else ord, dims, keepdim, dtype=dtype)


@expose(method=False, numpy_names=True)
def frobenius_norm(input: Tensor, dim: DimsLike, keepdim: bool = False) -> Tensor:
    """The Euclidean norm over one or two dimensions.

    Args:
        input: the tensor
        dim: one or two dimensions
        keepdim: keep them with extent 1; default ``False``
        out: where to write the result

    >>> eg.frobenius_norm(eg.tensor([[3.0, 4.0]]), (0, 1))
    tensor(5.)
    """
    return norm(input, None, dim, keepdim)


@expose(method=False, numpy_names=True)
def nuclear_norm(input: Tensor, dim: DimsLike = (-2, -1), keepdim: bool = False) -> Tensor:
    """The sum of the singular values of the matrices in two dimensions.

    Args:
        input: the tensor
        dim: two dimensions; default the last
        keepdim: keep them with extent 1; default ``False``
        out: where to write the result

    >>> eg.nuclear_norm(eg.eye(3))
    tensor(3.)
    """
    return matrix_norm(input, "nuc", dim, keepdim)


@expose(method=False, into=LINALG)
@autocast_policy(AutocastPolicy.FLOAT32)
def cond(input: Tensor, p: object = None) -> Tensor:
    """How much an error may grow when a system is solved: ``norm(A) * norm(A^-1)``."""
    check_rank("linalg.cond", input)
    if p is None or p in (2, -2):
        return _cond_by_singular_values(input, p)
    valid = ("fro", "nuc") if isinstance(p, str) else (1, -1, math.inf, -math.inf)
    if p not in valid:
        raise RuntimeError(f"linalg.cond got an invalid norm type: {p}")
    check_square(f"linalg.cond(ord={p})", input)
    if p == "nuc":
        s = spectra.svdvals(input)
        return total(s, -1) * total(reciprocal(s), -1)
    inverted, info = bind(INV, input, check=False)
    return where(info > 0, math.inf, matrix_norm(input, p) * matrix_norm(inverted, p))


def _cond_by_singular_values(input: Tensor, p: object) -> Tensor:
    s = spectra.svdvals(input)
    count = s._type.shape[-1]
    if not count:
        return zeros(s._type.shape[:-1], dtype=s.dtype)
    largest, smallest = narrow(s, -1, 0, 1), narrow(s, -1, count - 1, 1)
    return squeeze(smallest / largest if p == -2 else largest / smallest, -1)


# -- powers and exponentials --------------------------------------------------------------------


@expose("matrix_power", method=False, into=LINALG)
def _linalg_matrix_power(input: Tensor, n: int) -> Tensor:
    """The product of ``n`` copies of a square matrix; of its inverse for negative ``n``."""
    check_square_shape("linalg.matrix_power", input)
    if n == 0:
        shape = input._type.shape
        return clone(expand(eye(shape[-1], dtype=input.dtype), shape))
    base = inv(input) if n < 0 else input
    exponent = abs(n)
    result: Tensor | None = None
    while exponent:
        if exponent & 1:
            result = base if result is None else matmul(result, base)
        exponent >>= 1
        if exponent:
            base = matmul(base, base)
    assert result is not None
    return clone(result) if n == 1 else result


@expose()
def matrix_power(input: Tensor, n: int) -> Tensor:
    """The product of ``n`` copies of a square matrix; of its inverse for negative ``n``."""
    return _linalg_matrix_power(input, n)


def _exp_change(a: Tensor, change: Tensor) -> Tensor:
    """The change of ``exp(a)``: the corner of the exponential of ``[[a, change], [0, a]]``."""
    size = a._type.shape[-1]
    top, bottom = cat([a, change], -1), cat([zeros_like(a), a], -1)
    block = bind(MATRIX_EXP, cat([top, bottom], -2))
    return narrow(narrow(block, -2, 0, size), -1, size, size)


MATRIX_EXP = opaque(
    "matrix_exp", exponential.matrix_exp, lambda a: a,
    lambda g, y, a: _exp_change(adjoint(a), g),
    jvp=lambda tangents, y, a: _exp_change(a, tangents[0]),
    batch=batch_stack,
    emit=BY_LAPACK, autocast=AutocastPolicy.KEEP,
    doc="The exponential of each matrix.",
)  # fmt: skip


@expose("matrix_exp", out=False, method=False, into=LINALG)
def _linalg_matrix_exp(input: Tensor) -> Tensor:
    """The matrix exponential: ``I + A + A A / 2 + ...``"""
    check_square("linalg.matrix_exp", input, low_precision=True)
    return bind(MATRIX_EXP, input)  # type: ignore[no-any-return]


@expose(out=False)
def matrix_exp(input: Tensor) -> Tensor:
    """The matrix exponential: ``I + A + A A / 2 + ...``"""
    return _linalg_matrix_exp(input)


# -- products -----------------------------------------------------------------------------------


@expose("matmul", method=False, into=LINALG)
def _linalg_matmul(input: Tensor, other: Tensor) -> Tensor:
    """The matrix product.

    Args:
        input, other: as :func:`evergrad.matmul` takes them
        out: where to write the results

    >>> eg.linalg.matmul(eg.ones(2, 3), eg.ones(3)).shape
    evergrad.Size([2])
    """
    return matmul(input, other)


def _check_chain(tensors: Sequence[Tensor]) -> None:
    if len(tensors) < 2:
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors but got {len(tensors)}")
    last = len(tensors) - 1
    for i, x in enumerate(tensors):
        at_end = i in (0, last)
        if x.ndim != 2 and not (at_end and x.ndim == 1):
            which = {0: "the first tensor", last: "the last tensor"}.get(i, f"tensor {i}")
            raise RuntimeError(
                f"multi_dot(): {which} must be {'1D or 2D' if at_end else '2D'} but got {x.ndim}D"
            )
    for i, (a, b) in enumerate(itertools.pairwise(tensors)):
        if a.dtype is not b.dtype:
            raise RuntimeError(
                f"multi_dot(): all tensors must have be the same dtype but tensor 0 is "
                f"{tensors[0].dtype.name} and tensor {i + 1} {b.dtype.name}"
            )
        if a._type.shape[-1] != b._type.shape[0]:
            raise RuntimeError(
                f"multi_dot(): tensors {i} and {i + 1} with shapes {list(a._type.shape)} and "
                f"{list(b._type.shape)} cannot be multiplied"
            )


@expose(method=False, into=LINALG)
def multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """The product of several matrices, in the order that costs least."""
    tensors = list(tensors)
    _check_chain(tensors)
    labels = [[i, i + 1] for i in range(len(tensors))]
    labels[0] = labels[0][-tensors[0].ndim :]
    labels[-1] = labels[-1][: tensors[-1].ndim]
    operands = [part for pair in zip(tensors, labels, strict=True) for part in pair]
    kept = labels[0][:-1] + labels[-1][1:]
    return einsum(*operands, kept)


@expose(method=False, into=LINALG, numpy_names=True)
def cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """The cross product of vectors of length 3 along ``dim``; the other dimensions broadcast."""
    return cross_product(input, other, dim)


@expose(method=False, into=LINALG)
@autocast_policy(AutocastPolicy.LOWER)
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """The sum of the products of two vectors' elements, the first conjugated."""
    check_floating("linalg.vecdot", x, low_precision=True)
    check_same_dtype("linalg.vecdot", x, y)
    return total(conj(x) * y, dim)


# -- parts and patterns -------------------------------------------------------------------------


@expose("diagonal", out=False, method=False, into=LINALG)
def _linalg_diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """A diagonal of two dimensions, as the last dimension of a view.

    Args:
        A: at least two dimensions
        offset: 0 (default) the main diagonal, above it for positive numbers
        dim1, dim2: the dimensions; default the last two

    >>> A = eg.tensor([[4.0, 2.0], [2.0, 3.0]])
    >>> eg.linalg.diagonal(A)
    tensor([4., 3.])
    """
    return diagonal(A, offset, dim1, dim2)


@expose(out=False)
@autocast_policy(AutocastPolicy.FLOAT32)
def trace(input: Tensor) -> Tensor:
    """The sum of a matrix's diagonal."""
    if input.ndim != 2:
        raise RuntimeError("trace: expected a matrix")
    return total(diagonal_of(input))


@expose(out=False, method=False, into=LINALG)
def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """The powers 0 to ``N - 1`` of each element, as a last dimension.

    Args:
        x: (*, n)
        N: how many powers; default n

    >>> eg.linalg.vander(eg.tensor([1, 2, 3]))
    tensor([[1, 1, 1],
            [1, 2, 4],
            [1, 3, 9]])
    """
    count = x._type.shape[-1] if N is None and x.ndim else N
    if count is None or count <= 1:
        raise RuntimeError("N must be greater than 1.")
    if x.dtype.category < dtypes.FLOATING:
        x = cast(x, dtypes.int64)
    if not x.ndim:
        x = x.reshape(1)
    powers = [ones_like(x)]
    for _ in range(count - 1):
        powers.append(powers[-1] * x)
    return stack(powers, -1)
