"""LU factorizations with row exchanges, and solving with them.

The exchanges are taken as fixed when differentiating, as they are everywhere but at ties.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evergrad import return_types
from evergrad.core import dtypes
from evergrad.core.autocast import autocast_policy
from evergrad.core.bind import bind
from evergrad.core.families import linear, opaque
from evergrad.core.op import NONDIFFERENTIABLE
from evergrad.core.row_facts import AutocastPolicy, numpy_evaluates
from evergrad.core.shapes import TensorType, broadcast_shapes, tensor_type
from evergrad.core.tensor import Array, Tensor
from evergrad.ops.rows.creation.constants import eye, zeros
from evergrad.ops.rows.indexing.scatter import scatter
from evergrad.ops.rows.linalg import kernels
from evergrad.ops.rows.linalg.base import (
    BY_LAPACK,
    LINALG,
    adjoint,
    check_equation,
    check_matrix,
    check_same_dtype,
    complain,
    split_at,
)
from evergrad.ops.rows.linalg.solve import batch_stack, substitute, substitute_right
from evergrad.ops.rows.matmul import matmul
from evergrad.ops.rows.movement.diagonals import tril, triu
from evergrad.ops.rows.movement.joining import cat
from evergrad.ops.rows.movement.slices import narrow
from evergrad.ops.rows.movement.views import sum_to_type, unsqueeze
from evergrad.ops.surface.public import expose

if TYPE_CHECKING:
    from evergrad import return_types
    from evergrad.core.types import DtypeLike


def _lu_type(a: TensorType, *, check: bool) -> tuple[TensorType, TensorType, TensorType]:
    *batch, rows, columns = a.shape
    exchanges = tensor_type((*batch, min(rows, columns)), dtypes.int32)
    return a, exchanges, tensor_type(tuple(batch), dtypes.int32)


def _lu_eval(a: Array, *, check: bool) -> tuple[Array, Array, Array]:
    packed, pivots, info = kernels.lu_factor(a)
    if check and info.any():
        text = (
            "U[{0},{0}] is zero and using it on lu_solve would result in a division by zero. "
            "If you still want to perform the factorization, consider calling "
            "linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)"
        )
        raise complain("linalg.lu_factor", info, text)
    return packed, pivots, info


def _lu_vjp(
    g: tuple[Tensor, Tensor, Tensor], out: tuple[Tensor, Tensor, Tensor], a: Tensor, *, check: bool
) -> Tensor:
    """For ``A = P [L1; L2] [U1 U2]`` with square L1 and U1, where L2 or U2 has no elements."""
    packed, pivots, _ = out
    rows, columns = a._type.shape[-2:]
    count = min(rows, columns)
    l_factor, u_factor = _unpack_factors(packed)
    for_l, for_u = tril(narrow(g[0], -1, 0, count), -1), triu(narrow(g[0], -2, 0, count))
    square_l, rest_l = split_at(l_factor, -2, count)
    square_u, rest_u = split_at(u_factor, -1, count)
    for_l, for_rest_l = split_at(for_l, -2, count)
    for_u, for_rest_u = split_at(for_u, -1, count)
    below = substitute_right(for_rest_l, adjoint(square_u), is_upper=False)
    beside = substitute(adjoint(square_l), for_rest_u, is_upper=True, unit=True)
    for_u = for_u - matmul(adjoint(rest_l), below)
    for_l = for_l - matmul(beside, adjoint(rest_u))
    inner = tril(matmul(adjoint(square_l), for_l), -1) + triu(matmul(for_u, adjoint(square_u)))
    inner = substitute(adjoint(square_l), inner, is_upper=True, unit=True)
    square = substitute_right(inner, adjoint(square_u), is_upper=False)
    top = cat([square, beside], -1)
    ordered = cat([top, below], -2) if rows > columns else top
    return permuted_rows(ordered, _order(pivots, rows), inverse=True)


LU_FACTOR = opaque(
    "lu_factor", _lu_eval, _lu_type, _lu_vjp, batch=batch_stack, outputs=3,
    emit=BY_LAPACK, autocast=AutocastPolicy.KEEP,
    doc="L and U of A = P L U in one matrix, the row exchanges, and the first zero pivot (or 0).",
)  # fmt: skip


def _order_eval(pivots: Array, *, rows: int) -> Array:
    """Pivots may be the user's, and LAPACK exchanges whatever rows they name."""
    count = pivots.shape[-1]
    if count > rows or (pivots.size and (pivots.min() < 1 or pivots.max() > rows)):
        raise RuntimeError(
            f"the pivots of an LU factorization of {rows} rows must be at most {rows} numbers "
            f"between 1 and {rows}, as lu_factor gives them"
        )
    return kernels.permutation_of(pivots, rows)


LU_ORDER = opaque(
    "lu_order", _order_eval,
    lambda pivots, *, rows: tensor_type((*pivots.shape[:-1], rows), dtypes.int64),
    NONDIFFERENTIABLE, batch=batch_stack,
    emit=BY_LAPACK, autocast=AutocastPolicy.KEEP,
    doc="Which row stands where after the exchanges of an LU factorization.",
)  # fmt: skip


PERMUTE_ROWS = linear(
    "permute_rows", kernels.permute_rows,
    lambda x, order, *, inverse: tensor_type(
        broadcast_shapes(x.shape[:-2], order.shape[:-2]) + x.shape[-2:], x.dtype),
    lambda g, x, order, *, inverse: (
        sum_to_type(permuted_rows(g, order, inverse=not inverse), x._type), None),
    arguments=(0,), batch=batch_stack,
    emit=numpy_evaluates("indices of each matrix"), autocast=AutocastPolicy.KEEP,
    doc="The rows of X in an order (a column of indices), or brought back from it.",
)  # fmt: skip


def permuted_rows(x: Tensor, order: Tensor, *, inverse: bool) -> Tensor:
    """Rows ``x[order]``, or ``y`` with ``y[order] = x``."""
    return bind(PERMUTE_ROWS, x, order, inverse=inverse)  # type: ignore[no-any-return]


def _order(pivots: Tensor, rows: int) -> Tensor:
    """The order of the rows after the exchanges, as a column."""
    return unsqueeze(bind(LU_ORDER, pivots, rows=rows), -1)


def _unpack_factors(packed: Tensor) -> tuple[Tensor, Tensor]:
    rows, columns = packed._type.shape[-2:]
    count = min(rows, columns)
    below = tril(narrow(packed, -1, 0, count), -1)
    return below + eye(rows, count, dtype=packed.dtype), triu(narrow(packed, -2, 0, count))


def _permutation(pivots: Tensor, rows: int, dtype: DtypeLike) -> Tensor:
    """The matrix P of ``A = P L U``."""
    order = bind(LU_ORDER, pivots, rows=rows)
    nothing = zeros((*pivots._type.shape[:-1], rows, rows), dtype=dtype)
    return scatter(nothing, -2, unsqueeze(order, -2), 1)


def _check_pivoting(pivot: bool) -> None:
    if not pivot:
        raise RuntimeError("linalg.lu_factor: LU without pivoting is not implemented on the CPU")


@expose(method=False, into=LINALG)
def lu_factor_ex(
    A: Tensor, *, pivot: bool = True, check_errors: bool = False
) -> return_types.linalg_lu_factor_ex:
    """``L`` and ``U`` in one matrix, the row exchanges, and the first zero pivot (0 if none).

    Args:
        A: matrices (*, m, n)
        pivot: whether rows are exchanged; default ``True``
        check_errors: raise for a failure in place of reporting it; default ``False``
        out: where to write the results

    >>> A = eg.tensor([[4.0, 2.0], [2.0, 3.0]])
    >>> LU, pivots, info = eg.linalg.lu_factor_ex(A)
    >>> LU, info
    (tensor([[4.0000, 2.0000],
            [0.5000, 2.0000]]), tensor(0, dtype=evergrad.int32))
    """
    check_matrix("linalg.lu_factor_ex", A)
    _check_pivoting(pivot)
    return return_types.linalg_lu_factor_ex(*bind(LU_FACTOR, A, check=bool(check_errors)))


@expose(method=False, into=LINALG)
def lu_factor(A: Tensor, *, pivot: bool = True) -> return_types.linalg_lu_factor:
    """``L`` and ``U`` of ``A = P L U`` in one matrix, and the row exchanges.

    Args:
        A: matrices (*, m, n)
        pivot: whether rows are exchanged; default ``True``
        out: where to write the results

    >>> eg.linalg.lu_factor(eg.tensor([[4.0, 2.0], [2.0, 3.0]]))
    evergrad.return_types.linalg_lu_factor(
    LU=tensor([[4.0000, 2.0000],
            [0.5000, 2.0000]]),
    pivots=tensor([1, 2], dtype=evergrad.int32))
    """
    packed, pivots, _ = lu_factor_ex(A, pivot=pivot, check_errors=True)
    return return_types.linalg_lu_factor(packed, pivots)


@expose(method=False, into=LINALG)
@autocast_policy(AutocastPolicy.FLOAT32)
def lu(A: Tensor, *, pivot: bool = True) -> return_types.linalg_lu:
    """``A = P L U`` with a permutation, a unit lower and an upper triangle."""
    check_matrix("linalg.lu", A)
    _check_pivoting(pivot)
    packed, pivots, _ = bind(LU_FACTOR, A, check=False)
    p = _permutation(pivots, A._type.shape[-2], A.dtype)
    return return_types.linalg_lu(p, *_unpack_factors(packed))


@expose(method=False, into=LINALG)
@autocast_policy(AutocastPolicy.FLOAT32)
def lu_solve(
    LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False
) -> Tensor:
    """``linalg.solve`` with ``A``, or its ``adjoint``, given by its LU factorization.

    Args:
        LU, pivots: what :func:`lu_factor` gave
        B: right-hand sides (*, n, k)
        left: ``A X = B`` (default) or ``X A = B``
        adjoint: solve with the adjoint of A; default ``False``
        out: where to write the results

    >>> A = eg.tensor([[4.0, 2.0], [2.0, 3.0]])
    >>> LU, pivots = eg.linalg.lu_factor(A)
    >>> eg.linalg.lu_solve(LU, pivots, eg.tensor([[6.0], [5.0]]))
    tensor([[1.],
            [1.]])
    """
    check_matrix("linalg.lu_solve", LU, "LU")
    check_same_dtype("linalg.lu_solve", LU, B)
    check_equation("linalg.lu_solve", LU, B, left)
    if pivots.dtype is not dtypes.int32:
        raise RuntimeError("linalg.lu_solve: pivots should be a Tensor of scalar type int32")
    if pivots.ndim < 1 or pivots._type.shape[-1] != LU._type.shape[-1]:
        raise RuntimeError(
            "linalg.lu_solve: Number of pivots per batch should be same as the dimension of the "
            "matrix"
        )
    if left:
        return _solve_left(LU, pivots, B, adjoint)
    return _solve_left(LU, pivots, B.mH, not adjoint).mH


def _solve_left(packed: Tensor, pivots: Tensor, B: Tensor, of_adjoint: bool) -> Tensor:
    order = _order(pivots, packed._type.shape[-2])
    if not of_adjoint:
        inner = permuted_rows(B, order, inverse=False)
        inner = substitute(packed, inner, is_upper=False, unit=True)
        return substitute(packed, inner, is_upper=True)
    transposed = adjoint(packed)
    inner = substitute(transposed, B, is_upper=False)
    inner = substitute(transposed, inner, is_upper=True, unit=True)
    return permuted_rows(inner, order, inverse=True)


# -- the older names ----------------------------------------------------------------------------


@expose("lu_solve")
@autocast_policy(AutocastPolicy.FLOAT32)
def _lu_solve(input: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """``linalg.lu_solve(LU_data, LU_pivots, input)``

    Args:
        input: right-hand sides (*, n, k)
        LU_data, LU_pivots: what ``linalg.lu_factor`` gave
        out: where to write the result

    >>> A = eg.tensor([[4.0, 2.0], [2.0, 3.0]])
    >>> eg.lu_solve(eg.tensor([[6.0], [5.0]]), *eg.linalg.lu_factor(A))
    tensor([[1.],
            [1.]])
    """
    return lu_solve(LU_data, LU_pivots, input)


@expose("lu")
@autocast_policy(AutocastPolicy.FLOAT32)
def _lu(A: Tensor, pivot: bool = True, get_infos: bool = False) -> object:
    """The factorization in one matrix, the row exchanges, and on request the first zero pivot.

    Args:
        A: matrices (*, m, n)
        pivot: whether rows are exchanged; default ``True``
        get_infos: give the first zero pivot as well; default ``False``
        out: where to write the result

    The older name of ``linalg.lu_factor``.

    >>> A = eg.tensor([[4.0, 2.0], [2.0, 3.0]])
    >>> LU, pivots = eg.lu(A)
    >>> LU
    tensor([[4.0000, 2.0000],
            [0.5000, 2.0000]])
    """
    packed, pivots, info = lu_factor_ex(A, pivot=pivot, check_errors=not get_infos)
    return (packed, pivots, info) if get_infos else (packed, pivots)


@expose(method=False)
def lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> return_types.lu_unpack:
    """The factors ``P``, ``L`` and ``U`` that ``lu_factor`` left in one matrix.

    Args:
        LU_data, LU_pivots: what ``linalg.lu_factor`` gave
        unpack_data: whether L and U are wanted; default ``True``
        unpack_pivots: whether P is wanted; default ``True``
        out: where to write the result

    >>> A = eg.tensor([[4.0, 2.0], [2.0, 3.0]])
    >>> P, L, U = eg.lu_unpack(*eg.linalg.lu_factor(A))
    >>> eg.allclose(P @ L @ U, A)
    True
    """
    nothing = zeros((0,), dtype=LU_data.dtype)
    p = nothing
    if unpack_pivots:
        if LU_pivots.dtype is not dtypes.int32:
            raise RuntimeError("torch.lu_unpack: LU_pivots is expected to be a contiguous tensor "
                               "of int32 dtype.")  # fmt: skip
        p = _permutation(LU_pivots, LU_data._type.shape[-2], LU_data.dtype)
    factors = _unpack_factors(LU_data) if unpack_data else (nothing, nothing)
    return return_types.lu_unpack(p, *factors)
