"""Linear systems and inverses.

At the edges: a singular matrix is an error for ``solve`` and ``inv``, and gives NaN in their forms
with ``_ex``; ``solve_triangular`` divides by the zero it finds.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from evergrad import return_types
from evergrad.core import dtypes
from evergrad.core.bind import bind
from evergrad.core.families import batch_elementwise, opaque
from evergrad.core.op import NONDIFFERENTIABLE
from evergrad.core.shapes import Shape, TensorType, broadcast_shapes, tensor_type
from evergrad.core.tensor import Tensor
from evergrad.ops.rows.linalg import kernels
from evergrad.ops.rows.linalg.base import (
    LINALG,
    adjoint,
    check_equation,
    check_rank,
    check_same_dtype,
    check_square,
    complain,
    one_by_one,
)
from evergrad.ops.rows.matmul import matmul
from evergrad.ops.rows.movement.diagonals import tril, triu
from evergrad.ops.rows.movement.views import clone, expand, movedim, reshape, sum_to_type, transpose
from evergrad.ops.surface.public import expose

# A batching rule for rows on stacks of matrices: one more leading dimension, which broadcasts.
batch_stack = batch_elementwise


# -- which matrices can be inverted -------------------------------------------------------------


def _lu_info(a: Any) -> Any:
    """For each matrix the first zero pivot (from 1), or 0 if it is invertible."""
    info = np.zeros(a.shape[:-2], np.int32)
    try:
        np.linalg.inv(a)
    except np.linalg.LinAlgError:
        refused = np.isnan(one_by_one(lambda m: np.linalg.inv(m) * 0, a.shape, a)).any((-2, -1))
        pivots = np.diagonal(kernels.lu_factor(a)[0], axis1=-2, axis2=-1)
        zero = pivots == 0
        first = np.where(zero.any(-1), zero.argmax(-1), a.shape[-1] - 1) + 1
        info = np.where(refused, first, 0).astype(np.int32)
    return info


def _cholesky_info(a: Any) -> Any:
    """For each matrix the order of the first leading minor that is not positive, or 0."""
    info = np.zeros(a.shape[:-2], np.int32)
    for at in np.ndindex(info.shape):
        for order in range(1, a.shape[-1] + 1):
            if not _is_positive_definite(a[(*at, slice(order), slice(order))]):
                info[at] = order
                break
    return info


def _is_positive_definite(matrix: Any) -> bool:
    try:
        return not bool(np.isnan(np.linalg.cholesky(matrix)).any())
    except np.linalg.LinAlgError:
        return False


INFO_BY_KIND = {"lu": _lu_info, "cholesky": _cholesky_info}

FACTOR_INFO = opaque(
    "factor_info", lambda a, *, kind: INFO_BY_KIND[kind](a),
    lambda a, *, kind: tensor_type(a.shape[:-2], dtypes.int32), NONDIFFERENTIABLE,
    batch=batch_stack, doc="Where a factorization of each matrix would fail; 0 where it would not.",
)  # fmt: skip


# -- solve --------------------------------------------------------------------------------------


def _solution_type(a: TensorType, b: TensorType, **attrs: Any) -> TensorType:
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return tensor_type((*batch, *b.shape[-2:]), a.dtype)


def _solve_eval(a: Any, b: Any, *, check: bool) -> Any:
    try:
        return np.linalg.solve(a, b)
    except np.linalg.LinAlgError:
        if check:
            text = "The solver failed because the input matrix is singular."
            raise complain("linalg.solve", _lu_info(a), text) from None
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        return one_by_one(np.linalg.solve, batch + b.shape[-2:], a, b)


def _solve_vjp(g: Tensor, x: Tensor, a: Tensor, b: Tensor, *, check: bool) -> Any:
    for_b = bind(SOLVE, adjoint(a), g, check=check)
    for_a = -matmul(for_b, adjoint(x))
    return sum_to_type(for_a, a._type), sum_to_type(for_b, b._type)


def _solve_jvp(tangents: Any, x: Tensor, a: Tensor, b: Tensor, *, check: bool) -> Any:
    ta, tb = tangents
    right = None if ta is None else -matmul(ta, x)
    if tb is not None:
        right = tb if right is None else right + tb
    return expand(bind(SOLVE, a, right, check=check), x._type.shape)


SOLVE = opaque("solve", _solve_eval, _solution_type, _solve_vjp, jvp=_solve_jvp, batch=batch_stack,
               doc="The solution X of A X = B.")  # fmt: skip


def _as_columns(name: str, A: Tensor, B: Tensor, left: bool) -> tuple[Tensor, bool]:
    """``B`` as matrices, and whether it held vectors."""
    vector = B.ndim == 1 or (A.ndim - 1 == B.ndim and B._type.shape == A._type.shape[:-1])
    columns = reshape(B, (*B._type.shape, 1)) if vector else B
    check_rank(name, columns, "B")
    check_equation(name, A, columns, left)
    return columns, vector


def _solve(name: str, A: Tensor, B: Tensor, left: bool, check: bool) -> Tensor:
    check_square(name, A)
    check_same_dtype(name, A, B)
    columns, vector = _as_columns(name, A, B, left)
    if left:
        x = bind(SOLVE, A, columns, check=check)
    else:
        turned = bind(SOLVE, transpose(A, -2, -1), transpose(columns, -2, -1), check=check)
        x = transpose(turned, -2, -1)
    return reshape(x, x._type.shape[:-1]) if vector else x


@expose(method=False, into=LINALG)
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """The solution of ``A X = B``, or without ``left`` of ``X A = B``; ``B`` may hold vectors."""
    return _solve("linalg.solve", A, B, left, check=True)


@expose(method=False, into=LINALG)
def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> Any:
    """The solution, and for each matrix the first zero pivot (0 if there is none)."""
    x = _solve("linalg.solve_ex", A, B, left, check=check_errors)
    return return_types.linalg_solve_ex(x, bind(FACTOR_INFO, A, kind="lu"))


# -- triangular systems -------------------------------------------------------------------------


def _triangle(x: Tensor, is_upper: bool, unit: bool) -> Tensor:
    """The part of a matrix that a triangular solve reads."""
    return triu(x, int(unit)) if is_upper else tril(x, -int(unit))


def _triangular_vjp(
    g: Tensor, x: Tensor, a: Tensor, b: Tensor, *, is_upper: bool, unit: bool
) -> Any:
    for_b = bind(SOLVE_TRIANGULAR, adjoint(a), g, is_upper=not is_upper, unit=unit)
    for_a = -_triangle(matmul(for_b, adjoint(x)), is_upper, unit)
    return sum_to_type(for_a, a._type), sum_to_type(for_b, b._type)


def _triangular_jvp(
    tangents: Any, x: Tensor, a: Tensor, b: Tensor, *, is_upper: bool, unit: bool
) -> Any:
    ta, tb = tangents
    right = None if ta is None else -matmul(_triangle(ta, is_upper, unit), x)
    if tb is not None:
        right = tb if right is None else right + tb
    moved = bind(SOLVE_TRIANGULAR, a, right, is_upper=is_upper, unit=unit)
    return expand(moved, x._type.shape)


SOLVE_TRIANGULAR = opaque(
    "solve_triangular",
    lambda a, b, *, is_upper, unit: kernels.substitute(a, b, upper=is_upper, unit=unit),
    _solution_type, _triangular_vjp, jvp=_triangular_jvp, batch=batch_stack,
    doc="The solution X of A X = B for triangular A.",
)  # fmt: skip


def substitute(A: Tensor, B: Tensor, *, is_upper: bool, unit: bool = False) -> Tensor:
    """``A^-1 B`` for triangular ``A``, without checks."""
    return bind(SOLVE_TRIANGULAR, A, B, is_upper=is_upper, unit=unit)  # type: ignore[no-any-return]


def substitute_right(B: Tensor, A: Tensor, *, is_upper: bool, unit: bool = False) -> Tensor:
    """``B A^-1`` for triangular ``A``, without checks."""
    turned = substitute(
        transpose(A, -2, -1), transpose(B, -2, -1), is_upper=not is_upper, unit=unit
    )
    return transpose(turned, -2, -1)


@expose(method=False, into=LINALG)
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


@expose(out=False)
def triangular_solve(
    input: Tensor, A: Tensor, upper: bool = True, transpose: bool = False,
    unitriangular: bool = False,
) -> Any:  # fmt: skip
    """``linalg.solve_triangular`` under its first name, and a copy of ``A``."""
    turned, is_upper = (A.mT, not upper) if transpose else (A, upper)
    x = solve_triangular(turned, input, upper=is_upper, unitriangular=unitriangular)
    return return_types.triangular_solve(x, clone(A))


# -- inverses -----------------------------------------------------------------------------------


def _inv_eval(a: Any, *, check: bool) -> Any:
    try:
        return np.linalg.inv(a)
    except np.linalg.LinAlgError:
        if check:
            text = (
                "The diagonal element {} is zero, the inversion could not be completed because "
                "the input matrix is singular."
            )
            raise complain("linalg.inv", _lu_info(a), text) from None
        return one_by_one(np.linalg.inv, a.shape, a)


def _inv_vjp(g: Tensor, y: Tensor, a: Tensor, *, check: bool) -> Tensor:
    return -matmul(adjoint(y), matmul(g, adjoint(y)))


def _inv_jvp(tangents: Any, y: Tensor, a: Tensor, *, check: bool) -> Tensor:
    return -matmul(y, matmul(tangents[0], y))


INV = opaque("inv", _inv_eval, lambda a, *, check: a, _inv_vjp, jvp=_inv_jvp, batch=batch_stack,
             doc="The inverse of each matrix.")  # fmt: skip


@expose(method=False, into=LINALG)
def inv(A: Tensor) -> Tensor:
    """The inverse of each matrix."""
    check_square("linalg.inv", A)
    return bind(INV, A, check=True)  # type: ignore[no-any-return]


@expose(method=False, into=LINALG)
def inv_ex(A: Tensor, *, check_errors: bool = False) -> Any:
    """The inverse, and for each matrix the first zero pivot (0 if there is none)."""
    check_square("linalg.inv", A)
    inverted = bind(INV, A, check=bool(check_errors))
    return return_types.linalg_inv_ex(inverted, bind(FACTOR_INFO, A, kind="lu"))


@expose()
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
def tensorinv(input: Tensor, ind: int = 2) -> Tensor:
    """The inverse of ``tensordot(input, ., input.ndim - ind)``."""
    if ind <= 0:
        raise RuntimeError(f"Expected a strictly positive integer for 'ind', but got {ind}")
    shape = input._type.shape
    size = _tensor_halves("ind", shape, ind)
    return reshape(inv(reshape(input, (size, size))), shape[ind:] + shape[:ind])


@expose(method=False, into=LINALG)
def tensorsolve(input: Tensor, other: Tensor, dims: Any = None) -> Tensor:
    """The tensor X with ``tensordot(input, X, X.ndim) == other``; ``dims`` are moved last first."""
    if dims is not None:
        input = movedim(input, dims, tuple(range(input.ndim - len(dims), input.ndim)))
    shape = input._type.shape
    size = _tensor_halves("other.ndim", shape, other.ndim)
    x = solve(reshape(input, (size, size)), reshape(other, (size,)))
    return reshape(x, shape[other.ndim :])
