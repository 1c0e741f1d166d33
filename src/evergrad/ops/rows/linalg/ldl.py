"""Factors of symmetric and Hermitian matrices that need not be definite: A = P L D L^T P^T.

D has blocks of one and two on its diagonal (Bunch and Kaufman's choice), L ones on it. Both stand
in one lower triangle. ``pivots`` are LAPACK's: ``p > 0`` says that row k was exchanged with row p,
two equal ``-p`` that a block of two begins whose second row was; both count from 1.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from evergrad import return_types
from evergrad.core import dtypes
from evergrad.core.bind import bind
from evergrad.core.families import opaque
from evergrad.core.shapes import TensorType, broadcast_shapes, tensor_type
from evergrad.core.tensor import Tensor
from evergrad.ops.rows.elementwise.magnitude import conj
from evergrad.ops.rows.linalg.base import LINALG, check_square, complain
from evergrad.ops.rows.linalg.solve import batch_stack
from evergrad.ops.surface.public import expose

_GROWTH = (1 + math.sqrt(17)) / 8  # the choice of pivots that bounds how elements grow


# -- factoring ----------------------------------------------------------------------------------


def _size(x: Any) -> Any:
    """How large elements are; of complex ones as LAPACK takes it, without a root."""
    return np.abs(x.real) + np.abs(x.imag) if np.iscomplexobj(x) else np.abs(x)


def _choose_pivot(a: Any, k: int) -> tuple[int, int]:
    """Which row to bring to the front of what is left, and the size of the block."""
    own = _size(a[k, k])
    below = _size(a[k + 1 :, k])
    if not below.size or own >= _GROWTH * below.max():
        return k, 1
    largest = k + 1 + int(below.argmax())
    column = below.max()
    row = max(_size(a[largest, k:largest]).max(), _size(a[largest + 1 :, largest]).max(initial=0))
    if own >= _GROWTH * column * (column / row):
        return k, 1
    return largest, 1 if _size(a[largest, largest]) >= _GROWTH * row else 2


def _exchange(a: Any, first: int, second: int, hermitian: bool) -> None:
    """Exchange two rows and columns of the lower triangle from ``first`` on."""
    a[second + 1 :, [first, second]] = a[second + 1 :, [second, first]]
    between = a[first + 1 : second, first].copy()
    crossing = a[second, first + 1 : second].copy()
    if hermitian:
        between, crossing = between.conj(), crossing.conj()
        a[second, first] = a[second, first].conj()
    a[first + 1 : second, first], a[second, first + 1 : second] = crossing, between
    a[first, first], a[second, second] = a[second, second], a[first, first].copy()


def _eliminate(a: Any, k: int, block: int, hermitian: bool) -> None:
    """Take a block's part out of what is below it, and leave its columns of L."""
    rest = k + block
    columns = a[rest:, k:rest].copy()
    d = a[k:rest, k:rest].copy()
    if block == 2:
        d[0, 1] = d[1, 0].conj() if hermitian else d[1, 0]
    multipliers = np.linalg.solve(d.T, columns.T).T
    a[rest:, rest:] -= multipliers @ (columns.conj() if hermitian else columns).T
    a[rest:, k:rest] = multipliers
    if hermitian:
        np.fill_diagonal(a, a.diagonal().real)


def _factor(a: Any, hermitian: bool) -> tuple[Any, Any, int]:
    a = np.tril(a)
    n = len(a)
    if hermitian:
        np.fill_diagonal(a, a.diagonal().real)
    pivots = np.zeros(n, np.int32)
    info = k = 0
    while k < n:
        if not np.abs(a[k:, k]).max() > 0:
            info, pivots[k], k = info or k + 1, k + 1, k + 1
            continue
        chosen, block = _choose_pivot(a, k)
        front = k + block - 1
        if chosen != front:
            if block == 2:
                a[k + 1, k], a[chosen, k] = a[chosen, k], a[k + 1, k].copy()
            _exchange(a, front, chosen, hermitian)
        _eliminate(a, k, block, hermitian)
        pivots[k : k + block] = chosen + 1 if block == 1 else -(chosen + 1)
        k += block
    return np.tril(a), pivots, info


def _factor_eval(a: Any, *, hermitian: bool, check: bool) -> tuple[Any, Any, Any]:
    batch = a.shape[:-2]
    factors = np.empty_like(a)
    pivots, info = np.empty(a.shape[:-1], np.int32), np.zeros(batch, np.int32)
    for at in np.ndindex(batch):
        factors[at], pivots[at], info[at] = _factor(a[at], hermitian and a.dtype.kind == "c")
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
    doc="L and D of A = P L D L^T P^T in one triangle, pivots, the first zero on D (or 0).",
)  # fmt: skip


# -- solving ------------------------------------------------------------------------------------


def _blocks(pivots: Any) -> list[tuple[int, int, int]]:
    """Where each block begins, its size, and the row that was brought to its end."""
    found, k = [], 0
    while k < len(pivots):
        block = 1 if pivots[k] > 0 else 2
        found.append((k, block, abs(int(pivots[k])) - 1))
        k += block
    return found


def _solve(factors: Any, pivots: Any, b: Any, hermitian: bool) -> Any:
    b = b.copy()
    blocks = _blocks(pivots)
    for k, block, row in blocks:
        end = k + block
        b[[end - 1, row]] = b[[row, end - 1]]
        b[end:] -= factors[end:, k:end] @ b[k:end]
        d = factors[k:end, k:end].copy()
        if block == 2:
            d[0, 1] = d[1, 0].conj() if hermitian else d[1, 0]
        b[k:end] = np.linalg.solve(d, b[k:end])
    for k, block, row in reversed(blocks):
        end = k + block
        below = factors[end:, k:end]
        b[k:end] -= (below.conj() if hermitian else below).T @ b[end:]
        b[[end - 1, row]] = b[[row, end - 1]]
    return b


def _solve_eval(factors: Any, pivots: Any, b: Any, *, hermitian: bool) -> Any:
    batch = np.broadcast_shapes(factors.shape[:-2], b.shape[:-2])
    out = np.empty((*batch, *b.shape[-2:]), b.dtype)
    factors = np.broadcast_to(factors, batch + factors.shape[-2:])
    pivots = np.broadcast_to(pivots, batch + pivots.shape[-1:])
    b = np.broadcast_to(b, out.shape)
    for at in np.ndindex(batch):
        out[at] = _solve(factors[at], pivots[at], b[at], hermitian and b.dtype.kind == "c")
    return out


def _solve_type(
    factors: TensorType, pivots: TensorType, b: TensorType, *, hermitian: bool
) -> TensorType:
    batch = broadcast_shapes(factors.shape[:-2], b.shape[:-2])
    return tensor_type((*batch, *b.shape[-2:]), b.dtype)


def _solve_vjp(
    g: Tensor, out: Tensor, factors: Tensor, pivots: Tensor, b: Tensor, *, hermitian: bool
) -> Any:
    """A Hermitian matrix is its own adjoint; a symmetric one has its conjugate for it."""
    from evergrad.ops.rows.movement.views import sum_to_type

    if hermitian:
        solved = bind(LDL_SOLVE, factors, pivots, g, hermitian=True)
    else:
        solved = conj(bind(LDL_SOLVE, factors, pivots, conj(g), hermitian=False))
    return None, None, sum_to_type(solved, b._type)


LDL_SOLVE = opaque(
    "ldl_solve", _solve_eval, _solve_type, _solve_vjp,
    doc="The X with A X = B, for A given by its L and D.",
)  # fmt: skip


# -- public -------------------------------------------------------------------------------------


@expose(method=False, into=LINALG)
def ldl_factor_ex(A: Tensor, *, hermitian: bool = False, check_errors: bool = False) -> Any:
    """``L`` and ``D`` of ``A = P L D L^T P^T`` in one matrix, the row exchanges, and where ``D``
    first has a zero (0 if nowhere)."""
    check_square("torch.linalg.ldl_factor_ex", A)
    found = bind(LDL_FACTOR, A, hermitian=bool(hermitian), check=bool(check_errors))
    return return_types.linalg_ldl_factor_ex(*found)


@expose(method=False, into=LINALG)
def ldl_factor(A: Tensor, *, hermitian: bool = False) -> Any:
    """``L`` and ``D`` of ``A = P L D L^T P^T`` in one matrix, and the row exchanges."""
    factors, pivots, _ = ldl_factor_ex(A, hermitian=hermitian, check_errors=True)
    return return_types.linalg_ldl_factor(factors, pivots)


@expose(method=False, into=LINALG)
def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False) -> Tensor:
    """The ``X`` with ``A X = B``, for ``A`` given by what ``ldl_factor`` made of it."""
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
