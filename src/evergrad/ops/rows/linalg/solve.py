"""Linear systems and inverses.

At the edges: a singular matrix is an error for ``solve`` and ``inv``, and gives NaN in their forms
with ``_ex``; ``solve_triangular`` divides by the zero it finds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad import return_types
from evergrad.core import blas, dtypes
from evergrad.core.autocast import autocast_policy
from evergrad.core.bind import bind
from evergrad.core.compound import Compound
from evergrad.core.families import batch_elementwise, opaque
from evergrad.core.op import NONDIFFERENTIABLE
from evergrad.core.row_facts import AutocastPolicy
from evergrad.core.shapes import Shape, TensorType, broadcast_shapes, tensor_type
from evergrad.core.tensor import Array, Tensor
from evergrad.ops.rows.linalg import kernels, triangular
from evergrad.ops.rows.linalg.base import (
    BY_LAPACK,
    LINALG,
    adjoint,
    check_equation,
    check_rank,
    check_same_dtype,
    check_square,
    complain,
)
from evergrad.ops.rows.matmul import matmul
from evergrad.ops.rows.movement.diagonals import tril, triu
from evergrad.ops.rows.movement.views import clone, expand, movedim, reshape, sum_to_type, transpose
from evergrad.ops.surface.public import expose

if TYPE_CHECKING:
    from evergrad import return_types

# A batching rule for rows on stacks of matrices: one more leading dimension, which broadcasts.
batch_stack = batch_elementwise


# -- solve --------------------------------------------------------------------------------------


def _solution_type(a: TensorType, b: TensorType, **attrs: object) -> TensorType:
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return tensor_type((*batch, *b.shape[-2:]), a.dtype)


_SINGULAR = "The solver failed because the input matrix is singular."


def _solve_eval(a: Array, b: Array, *, check: bool) -> object:
    try:
        return blas.small_call(np.linalg.solve, a, b)
    except np.linalg.LinAlgError:
        packed, order, info = kernels.factor_system(a)
        if check and info.any():
            raise complain("linalg.solve", info, _SINGULAR) from None
        return kernels.solve(packed, order, b, adjoint=False)


def _solve_vjp(g: Tensor, x: Tensor, a: Tensor, b: Tensor, *, check: bool) -> tuple[Tensor, Tensor]:
    for_b = bind(SOLVE, adjoint(a), g, check=check)
    for_a = -matmul(for_b, adjoint(x))
    return sum_to_type(for_a, a._type), sum_to_type(for_b, b._type)


def _solve_jvp(
    tangents: Sequence[Tensor], x: Tensor, a: Tensor, b: Tensor, *, check: bool
) -> Tensor:
    ta, right = tangents
    if ta is not None:
        moved = matmul(ta, x)
        right = -moved if right is None else right - moved
    return expand(bind(SOLVE, a, right, check=check), x._type.shape)


SOLVE = opaque("solve", _solve_eval, _solution_type, _solve_vjp, jvp=_solve_jvp, batch=batch_stack,
               emit=BY_LAPACK, autocast=AutocastPolicy.KEEP,
               doc="The solution X of A X = B for small A.")  # fmt: skip


def _factor_eval(a: Array, *, check: bool) -> tuple[Array, Array, Array]:
    found = kernels.factor_system(a)
    if check and found[-1].any():
        raise complain("linalg.solve", found[-1], _SINGULAR)
    return found


def _factor_type(a: TensorType, *, check: bool) -> tuple[TensorType, TensorType, TensorType]:
    order = tensor_type((*a.shape[:-1], 1), dtypes.int64)
    return a, order, tensor_type(a.shape[:-2], dtypes.int32)


FACTOR_SYSTEM = opaque(
    "factor_system", _factor_eval, _factor_type, NONDIFFERENTIABLE, batch=batch_stack, outputs=3,
    emit=BY_LAPACK, autocast=AutocastPolicy.KEEP,
    doc="An LU factorization of A for `solve`, the order of its columns, the first zero pivot.",
)  # fmt: skip


def _factored_vjp(
    g: Tensor, x: Tensor, a: Tensor, packed: Tensor, order: Tensor, b: Tensor, *, of_adjoint: bool
) -> tuple[Tensor, None, None, Tensor]:
    for_b = bind(SOLVE_FACTORED, a, packed, order, g, of_adjoint=not of_adjoint)
    left, right = (x, for_b) if of_adjoint else (for_b, x)
    for_a = -matmul(left, adjoint(right))
    return sum_to_type(for_a, a._type), None, None, sum_to_type(for_b, b._type)


def _factored_jvp(
    tangents: Any, x: Tensor, a: Tensor, packed: Tensor, order: Tensor, b: Tensor, *,
    of_adjoint: bool,
) -> Tensor:  # fmt: skip
    ta, _, _, right = tangents
    if ta is not None:
        moved = matmul(adjoint(ta) if of_adjoint else ta, x)
        right = -moved if right is None else right - moved
    return expand(
        bind(SOLVE_FACTORED, a, packed, order, right, of_adjoint=of_adjoint), x._type.shape
    )


# The factors stand for A in the evaluation only: derivatives of any order are those by A.
SOLVE_FACTORED = opaque(
    "solve_factored",
    lambda a, packed, order, b, *, of_adjoint: kernels.solve(packed, order, b, adjoint=of_adjoint),
    lambda a, packed, order, b, *, of_adjoint: _solution_type(a, b), _factored_vjp,
    jvp=_factored_jvp, batch=batch_stack,
    emit=BY_LAPACK, autocast=AutocastPolicy.KEEP,
    doc="The solution X of A X = B, or A^H X = B, by the factors of A.",
)  # fmt: skip


def solve_system(A: Tensor, B: Tensor, *, check: bool) -> Tensor:
    """``A^-1 B`` without checks of the arguments; NaN where A is singular if that is allowed."""
    if kernels.is_small(A._type.shape[-1]):
        return bind(SOLVE, A, B, check=check)  # type: ignore[no-any-return]
    return _solve_and_info(A, B, check)[0]


def _solve_and_info(A: Tensor, B: Tensor, check: bool) -> tuple[Tensor, Tensor]:
    """The solution, and the first zero pivots."""
    packed, order, info = bind(FACTOR_SYSTEM, A, check=check)
    return bind(SOLVE_FACTORED, A, packed, order, B, of_adjoint=False), info


def _as_columns(name: str, A: Tensor, B: Tensor, left: bool) -> tuple[Tensor, bool]:
    """``B`` as matrices, and whether it held vectors."""
    vector = B.ndim == 1 or (A.ndim - 1 == B.ndim and B._type.shape == A._type.shape[:-1])
    columns = reshape(B, (*B._type.shape, 1)) if vector else B
    check_rank(name, columns, "B")
    check_equation(name, A, columns, left)
    return columns, vector


def _system(name: str, A: Tensor, B: Tensor, left: bool) -> tuple[Tensor, Tensor, bool]:
    """The checked arguments of ``A X = B``, and whether ``B`` held vectors."""
    check_square(name, A)
    check_same_dtype(name, A, B)
    columns, vector = _as_columns(name, A, B, left)
    if left:
        return A, columns, vector
    return transpose(A, -2, -1), transpose(columns, -2, -1), vector


def _as_given(x: Tensor, left: bool, vector: bool) -> Tensor:
    found = x if left else transpose(x, -2, -1)
    return reshape(found, found._type.shape[:-1]) if vector else found


@expose(method=False, into=LINALG)
@autocast_policy(AutocastPolicy.FLOAT32)
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """The solution of ``A X = B``, or without ``left`` of ``X A = B``; ``B`` may hold vectors."""
    a, columns, vector = _system("linalg.solve", A, B, left)
    return _as_given(solve_system(a, columns, check=True), left, vector)


@expose(method=False, into=LINALG)
def solve_ex(
    A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False
) -> return_types.linalg_solve_ex:
    """The solution, and for each matrix the first zero pivot (0 if there is none).

    Args:
        A: square matrices (*, n, n)
        B: right-hand sides (*, n) or (*, n, k)
        left: ``A X = B`` (default) or ``X A = B``
        check_errors: raise for a failure in place of reporting it; default ``False``
        out: where to write the results

    >>> A = eg.tensor([[4.0, 2.0], [2.0, 3.0]])
    >>> eg.linalg.solve_ex(A, eg.tensor([6.0, 5.0]))
    evergrad.return_types.linalg_solve_ex(
    result=tensor([1., 1.]),
    info=tensor(0, dtype=evergrad.int32))
    """
    a, columns, vector = _system("linalg.solve_ex", A, B, left)
    x, info = _solve_and_info(a, columns, bool(check_errors))
    return return_types.linalg_solve_ex(_as_given(x, left, vector), info)


# -- triangular systems -------------------------------------------------------------------------


def _triangle(x: Tensor, is_upper: bool, unit: bool) -> Tensor:
    """The part of a matrix that a triangular solve reads."""
    return triu(x, int(unit)) if is_upper else tril(x, -int(unit))


def _triangular_vjp(
    g: Tensor, x: Tensor, a: Tensor, b: Tensor, *, is_upper: bool, unit: bool
) -> tuple[Tensor, Tensor]:
    for_b = bind(SOLVE_TRIANGULAR, adjoint(a), g, is_upper=not is_upper, unit=unit)
    for_a = -_triangle(matmul(for_b, adjoint(x)), is_upper, unit)
    return sum_to_type(for_a, a._type), sum_to_type(for_b, b._type)


def _triangular_jvp(
    tangents: Sequence[Tensor], x: Tensor, a: Tensor, b: Tensor, *, is_upper: bool, unit: bool
) -> Tensor:
    ta, tb = tangents
    right = None if ta is None else -matmul(_triangle(ta, is_upper, unit), x)
    if tb is not None:
        right = tb if right is None else right + tb
    moved = bind(SOLVE_TRIANGULAR, a, right, is_upper=is_upper, unit=unit)
    return expand(moved, x._type.shape)


SOLVE_TRIANGULAR = opaque(
    "solve_triangular",
    lambda a, b, *, is_upper, unit: triangular.substitute(a, b, upper=is_upper, unit=unit),
    _solution_type, _triangular_vjp, jvp=_triangular_jvp, batch=batch_stack,
    emit=BY_LAPACK, autocast=AutocastPolicy.KEEP,
    doc="The solution X of A X = B for triangular A.",
)  # fmt: skip


def substitute(A: Tensor, B: Tensor, *, is_upper: bool, unit: bool = False) -> Tensor:
    """``A^-1 B`` for triangular ``A``, without checks."""
    return bind(SOLVE_TRIANGULAR, A, B, is_upper=is_upper, unit=unit)  # type: ignore[no-any-return]


def substitute_right(B: Tensor, A: Tensor, *, is_upper: bool, unit: bool = False) -> Tensor:
    """``B A^-1`` for triangular ``A``, without checks."""
    transposed = substitute(
        transpose(A, -2, -1), transpose(B, -2, -1), is_upper=not is_upper, unit=unit
    )
    return transpose(transposed, -2, -1)


@expose(method=False, into=LINALG)
@autocast_policy(AutocastPolicy.FLOAT32)
def solve_triangular(
    input: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """The solution of ``A X = B`` (or ``X A = B``) that reads one triangle of ``A`` only."""
    name = "linalg.solve_triangular"
    check_square(name, input)
    check_rank(name, B, "B")
    check_same_dtype(name, input, B)
    check_equation(name, input, B, left)
    if left:
        return substitute(input, B, is_upper=bool(upper), unit=bool(unitriangular))
    return substitute_right(B, input, is_upper=bool(upper), unit=bool(unitriangular))


@expose()
@autocast_policy(AutocastPolicy.FLOAT32)
def triangular_solve(
    input: Tensor, A: Tensor, upper: bool = True, transpose: bool = False,
    unitriangular: bool = False,
) -> return_types.triangular_solve:  # fmt: skip
    """``linalg.solve_triangular`` under its first name, and a copy of ``A``.

    Args:
        input: right-hand sides (*, n, k)
        A: triangular matrices (*, n, n)
        upper: which triangle; default ``True``
        transpose: solve with the transpose; default ``False``
        unitriangular: ones on the diagonal; default ``False``
        out: where to write the result

    >>> eg.triangular_solve(eg.ones(2, 1), eg.tensor([[1.0, 1.0], [0.0, 2.0]])).solution
    tensor([[0.5000],
            [0.5000]])
    """
    if isinstance(A, Compound):  # sparse, and read as if its other triangle were empty
        A = A.to_dense()
    matrix, is_upper = (A.mT, not upper) if transpose else (A, upper)
    x = solve_triangular(matrix, input, upper=is_upper, unitriangular=unitriangular)
    return return_types.triangular_solve(x, clone(A))


# -- inverses -----------------------------------------------------------------------------------


def _inv_eval(a: Array, *, check: bool) -> tuple[Array, Array]:
    found, info = kernels.inverse(a)
    if check and info.any():
        text = (
            "The diagonal element {} is zero, the inversion could not be completed because "
            "the input matrix is singular."
        )
        raise complain("linalg.inv", info, text)
    return found, info


def _inv_vjp(
    g: tuple[Tensor, Tensor], out: tuple[Tensor, Tensor], a: Tensor, *, check: bool
) -> Tensor:
    inverted = adjoint(out[0])
    return -matmul(inverted, matmul(g[0], inverted))


def _inv_jvp(
    tangents: Sequence[Tensor], out: tuple[Tensor, Tensor], a: Tensor, *, check: bool
) -> tuple[Tensor, None]:
    return -matmul(out[0], matmul(tangents[0], out[0])), None


INV = opaque(
    "inv", _inv_eval, lambda a, *, check: (a, tensor_type(a.shape[:-2], dtypes.int32)), _inv_vjp,
    jvp=_inv_jvp, batch=batch_stack, outputs=2,
    emit=BY_LAPACK, autocast=AutocastPolicy.KEEP,
    doc="The inverse of each matrix, and the first zero pivot (or 0).",
)  # fmt: skip


@expose(method=False, into=LINALG)
@autocast_policy(AutocastPolicy.FLOAT32)
def inv(A: Tensor) -> Tensor:
    """The inverse of each matrix."""
    check_square("linalg.inv", A)
    return bind(INV, A, check=True)[0]  # type: ignore[no-any-return]


@expose(method=False, into=LINALG)
@autocast_policy(AutocastPolicy.FLOAT32)
def inv_ex(A: Tensor, *, check_errors: bool = False) -> return_types.linalg_inv_ex:
    """The inverse, and for each matrix the first zero pivot (0 if there is none).

    Args:
        A: square matrices (*, n, n)
        check_errors: raise for a failure in place of reporting it; default ``False``
        out: where to write the results

    >>> inverse, info = eg.linalg.inv_ex(eg.tensor([[2.0, 0.0], [0.0, 4.0]]))
    >>> inverse, info
    (tensor([[0.5000, 0.0000],
            [0.0000, 0.2500]]), tensor(0, dtype=evergrad.int32))
    """
    check_square("linalg.inv", A)
    return return_types.linalg_inv_ex(*bind(INV, A, check=bool(check_errors)))


@expose()
@autocast_policy(AutocastPolicy.FLOAT32)
def inverse(input: Tensor) -> Tensor:
    """The inverse of each matrix."""
    return inv(input)


def _tensor_halves(name: str, shape: Shape, ind: int) -> int:
    """The common size of both groups of dimensions, which together make a square matrix."""
    first, second = math.prod(shape[:ind]), math.prod(shape[ind:])
    if first != second:
        raise RuntimeError(
            f"Expected self to satisfy the requirement prod(self.shape[{name}:]) == "
            f"prod(self.shape[:{name}]), but got {second} != {first}"
        )
    return first


@expose(method=False, into=LINALG)
@autocast_policy(AutocastPolicy.FLOAT32)
def tensorinv(input: Tensor, ind: int = 2) -> Tensor:
    """The inverse of ``tensordot(input, ., input.ndim - ind)``.

    Args:
        input: a tensor whose first ``ind`` extents multiply to as many as the others
        ind: default 2
        out: where to write the results

    >>> eg.linalg.tensorinv(eg.eye(6).view(2, 3, 6)).shape
    evergrad.Size([6, 2, 3])
    """
    if ind <= 0:
        raise RuntimeError(f"Expected a strictly positive integer for 'ind', but got {ind}")
    shape = input._type.shape
    size = _tensor_halves("ind", shape, ind)
    return reshape(inv(reshape(input, (size, size))), shape[ind:] + shape[:ind])


@expose(method=False, into=LINALG)
@autocast_policy(AutocastPolicy.FLOAT32)
def tensorsolve(input: Tensor, other: Tensor, dims: Sequence[int] | None = None) -> Tensor:
    """The tensor X with ``tensordot(input, X, X.ndim) == other``; ``dims`` are moved last first.

    Args:
        input: a tensor of shape ``other.shape + X.shape``
        other: the right-hand side
        dims: dimensions of ``input`` to move last first; default none
        out: where to write the results

    >>> eg.linalg.tensorsolve(2 * eg.eye(4).view(4, 2, 2), eg.ones(4))
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]])
    """
    if dims is not None:
        input = movedim(input, dims, tuple(range(input.ndim - len(dims), input.ndim)))
    shape = input._type.shape
    size = _tensor_halves("other.ndim", shape, other.ndim)
    x = solve(reshape(input, (size, size)), reshape(other, (size,)))
    return reshape(x, shape[other.ndim :])
