"""Factors of symmetric and Hermitian matrices that need not be definite: A = P L D L^T P^T.

D has blocks of one and two on its diagonal (Bunch and Kaufman's choice), L ones on it. Both stand
in one lower triangle. ``pivots`` are LAPACK's: ``p > 0`` says that row k was exchanged with row p,
two equal ``-p`` that a block of two begins whose second row was; both count from 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from evergrad import return_types
from evergrad.core import dtypes
from evergrad.core.bind import bind
from evergrad.core.families import opaque
from evergrad.core.row_facts import AutocastPolicy
from evergrad.core.shapes import TensorType, broadcast_shapes, tensor_type
from evergrad.core.tensor import Array, Tensor
from evergrad.ops.rows.elementwise.magnitude import conj
from evergrad.ops.rows.linalg import kernels
from evergrad.ops.rows.linalg.base import BY_LAPACK, LINALG, check_square, complain
from evergrad.ops.rows.linalg.solve import batch_stack
from evergrad.ops.rows.movement.views import sum_to_type
from evergrad.ops.surface.public import expose

if TYPE_CHECKING:
    from evergrad.return_types import linalg_ldl_factor, linalg_ldl_factor_ex

# -- factoring ----------------------------------------------------------------------------------


def _factor_eval(a: Array, *, hermitian: bool, check: bool) -> tuple[Array, Array, Array]:
    factors, pivots, info = kernels.ldl_factor(a, hermitian=hermitian)
    if check and info.any():
        raise complain("torch.linalg.ldl_factor", info, "D[{0},{0}] is zero: A is singular.")
    return factors, pivots, info


def _factor_type(
    a: TensorType, *, hermitian: bool, check: bool
) -> tuple[TensorType, TensorType, TensorType]:
    return (
        a,
        tensor_type(a.shape[:-1], dtypes.int32),
        tensor_type(a.shape[:-2], dtypes.int32),
    )


LDL_FACTOR = opaque(
    "ldl_factor", _factor_eval, _factor_type, lambda g, out, a, *, hermitian, check: None,
    batch=batch_stack, outputs=3,
    emit=BY_LAPACK, autocast=AutocastPolicy.KEEP,
    doc="L and D of A = P L D L^T P^T in one triangle, pivots, the first zero on D (or 0).",
)  # fmt: skip


# -- solving ------------------------------------------------------------------------------------


def _solve_type(
    factors: TensorType, pivots: TensorType, b: TensorType, *, hermitian: bool
) -> TensorType:
    batch = broadcast_shapes(factors.shape[:-2], b.shape[:-2])
    return tensor_type((*batch, *b.shape[-2:]), b.dtype)


def _solve_vjp(
    g: Tensor, out: Tensor, factors: Tensor, pivots: Tensor, b: Tensor, *, hermitian: bool
) -> tuple[None, None, Tensor]:
    """A Hermitian matrix is its own adjoint; a symmetric one has its conjugate for it."""
    if hermitian:
        solved = bind(LDL_SOLVE, factors, pivots, g, hermitian=True)
    else:
        solved = conj(bind(LDL_SOLVE, factors, pivots, conj(g), hermitian=False))
    return None, None, sum_to_type(solved, b._type)


def _name_rows(pivots: Array) -> bool:
    """Whether all pivots are rows, from 1 on, and negative ones come in pairs: blocks of D."""
    order = pivots.shape[-1]
    if pivots.size and (pivots.min() < -order or pivots.max() > order or not pivots.all()):
        return False
    inside = np.zeros(pivots.shape[:-1], bool)  # after the first row of a block
    if (pivots < 0).any():
        for negative in np.moveaxis(pivots < 0, -1, 0):
            if (inside & ~negative).any():
                return False
            inside = negative & ~inside
    return not inside.any()


def _solve_eval(factors: Array, pivots: Array, b: Array, *, hermitian: bool) -> Array:
    if not _name_rows(pivots):  # they may be the user's, and LAPACK reads the rows they name
        raise RuntimeError(
            f"torch.linalg.ldl_solve: pivots must be between 1 and {factors.shape[-1]} in "
            "magnitude, negative ones in pairs, as ldl_factor gives them"
        )
    return kernels.ldl_solve(factors, pivots, b, hermitian=hermitian)


LDL_SOLVE = opaque(
    "ldl_solve", _solve_eval, _solve_type, _solve_vjp,
    emit=BY_LAPACK, autocast=AutocastPolicy.KEEP,
    doc="The X with A X = B, for A given by its L and D.",
)  # fmt: skip


# -- public -------------------------------------------------------------------------------------


@expose(method=False, into=LINALG)
def ldl_factor_ex(
    input: Tensor, *, hermitian: bool = False, check_errors: bool = False
) -> linalg_ldl_factor_ex:
    """``L`` and ``D`` of ``A = P L D L^T P^T`` in one matrix, the row exchanges, and where ``D``
    first has a zero (0 if nowhere).

    Args:
        input: symmetric matrices (*, n, n)
        hermitian: whether complex ones are Hermitian; default ``False``
        check_errors: raise for a failure in place of reporting it; default ``False``
        out: where to write the results

    >>> A = eg.tensor([[4.0, 2.0], [2.0, 3.0]])
    >>> LD, pivots, info = eg.linalg.ldl_factor_ex(A)
    >>> info
    tensor(0, dtype=evergrad.int32)
    """
    check_square("torch.linalg.ldl_factor_ex", input)
    found = bind(LDL_FACTOR, input, hermitian=bool(hermitian), check=bool(check_errors))
    return return_types.linalg_ldl_factor_ex(*found)


@expose(method=False, into=LINALG)
def ldl_factor(input: Tensor, *, hermitian: bool = False) -> linalg_ldl_factor:
    """``L`` and ``D`` of ``A = P L D L^T P^T`` in one matrix, and the row exchanges.

    Args:
        input: symmetric matrices (*, n, n)
        hermitian: whether complex ones are Hermitian; default ``False``
        out: where to write the results

    >>> A = eg.tensor([[4.0, 2.0], [2.0, 3.0]])
    >>> LD, pivots = eg.linalg.ldl_factor(A)
    >>> eg.linalg.ldl_solve(LD, pivots, eg.tensor([[6.0], [5.0]]))
    tensor([[1.],
            [1.]])
    """
    factors, pivots, _ = ldl_factor_ex(input, hermitian=hermitian, check_errors=True)
    return return_types.linalg_ldl_factor(factors, pivots)


@expose(method=False, into=LINALG)
def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False) -> Tensor:
    """The ``X`` with ``A X = B``, for ``A`` given by what ``ldl_factor`` made of it.

    Args:
        LD, pivots: what :func:`ldl_factor` gave
        B: right-hand sides (*, n, k)
        hermitian: as for the factorization; default ``False``
        out: where to write the results

    >>> A = eg.tensor([[4.0, 2.0], [2.0, 3.0]])
    >>> LD, pivots = eg.linalg.ldl_factor(A)
    >>> eg.linalg.ldl_solve(LD, pivots, eg.tensor([[6.0], [5.0]]))
    tensor([[1.],
            [1.]])
    """
    check_square("torch.linalg.ldl_solve", LD, "LD")
    if B.ndim < 2:
        raise RuntimeError(
            "torch.linalg.ldl_solve: Expected B to have at least 2 dimensions, but it has "
            f"{B.ndim} dimensions instead"
        )
    rows = LD._type.shape[-1]
    if B._type.shape[-2] != rows:
        raise RuntimeError(
            "Incompatible matrix sizes for torch.linalg.ldl_solve: each A matrix is "
            f"{rows} by {rows} but each b matrix is {B._type.shape[-2]} by {B._type.shape[-1]}"
        )
    if pivots._type.shape != LD._type.shape[:-1]:
        raise RuntimeError(
            "torch.linalg.ldl_solve: Expected LD.shape[:-1] and pivots.shape to be the same, but "
            f"got pivots with shape {list(pivots._type.shape)} instead"
        )
    if pivots.dtype.category != dtypes.INTEGRAL:
        raise RuntimeError(
            f"torch.linalg.ldl_solve: Expected pivots to be integers. Got {pivots.dtype.name}"
        )
    if B.dtype is not LD.dtype:
        raise RuntimeError(
            f"torch.linalg.ldl_solve: LD dtype {LD.dtype.name} does not match b dtype "
            f"{B.dtype.name}"
        )
    return bind(LDL_SOLVE, LD, pivots, B, hermitian=bool(hermitian))  # type: ignore[no-any-return]
