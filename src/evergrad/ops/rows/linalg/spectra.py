"""Eigenvalues and singular values, with their vectors.

Eigen- and singular vectors are defined up to a sign, or for complex matrices a phase; derivatives
are those of functions that do not depend on the choice. Where values coincide, vectors have no
derivative: the formulas then divide by zero and give inf or NaN, unless no gradient flows into
the vectors at all, so functions of the values alone are safe. The columns that only complete a
basis (``full_matrices=True``) have a derivative as far as the space they span goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad import return_types
from evergrad.core.autocast import autocast_policy
from evergrad.core.bind import bind, cast
from evergrad.core.families import opaque
from evergrad.core.row_facts import AutocastPolicy
from evergrad.core.shapes import TensorType, tensor_type
from evergrad.core.state import STATE
from evergrad.core.tensor import Array, Tensor
from evergrad.ops.rows.creation.constants import eye, zeros
from evergrad.ops.rows.elementwise.basic import where
from evergrad.ops.rows.elementwise.magnitude import conj
from evergrad.ops.rows.linalg import spectral_kernels as kernels
from evergrad.ops.rows.linalg.base import (
    BY_LAPACK,
    LINALG,
    adjoint,
    check_matrix,
    check_square,
    diagonal_of,
    not_converged,
    split_at,
)
from evergrad.ops.rows.linalg.factor import pulled_from_complement
from evergrad.ops.rows.linalg.solve import batch_stack, solve_system
from evergrad.ops.rows.matmul import matmul
from evergrad.ops.rows.movement.complex_parts import real
from evergrad.ops.rows.movement.diagonals import diag_embed
from evergrad.ops.rows.movement.joining import cat
from evergrad.ops.rows.movement.slices import narrow
from evergrad.ops.rows.movement.views import unsqueeze
from evergrad.ops.surface.public import expose

if TYPE_CHECKING:
    from evergrad import return_types

# -- helpers ------------------------------------------------------------------------------------


def _differences(values: Tensor) -> Tensor:
    """``values[j] - values[i]`` at (i, j), and 1 on the diagonal."""
    size = values._type.shape[-1]
    apart = unsqueeze(values, -2) - unsqueeze(values, -1)
    return apart + eye(size, dtype=values.dtype)


def _quotient(a: Tensor, b: Tensor) -> Tensor:
    """``a / b``, and 0 for 0 / 0: what receives no cotangent passes none on."""
    return a / where((a == 0) & (b == 0), 1, b)


def _off_diagonal(x: Tensor) -> Tensor:
    return x - diag_embed(diagonal_of(x))


def _in_type_of(x: Tensor, like: Tensor) -> Tensor:
    return cast(x, like.dtype)


# -- Hermitian matrices -------------------------------------------------------------------------


def _eigh_type(a: TensorType, *, uplo: str) -> tuple[TensorType, TensorType]:
    return tensor_type(a.shape[:-1], a.dtype.to_real()), a


def _eigh_eval(a: Array, *, uplo: Any) -> tuple[Array, Array]:
    try:
        return kernels.eigh(a, uplo)
    except np.linalg.LinAlgError:
        raise not_converged("linalg.eigh") from None


def _eigh_vjp(
    g: tuple[Tensor, Tensor], out: tuple[Tensor, Tensor], a: Tensor, *, uplo: str
) -> Tensor:
    (for_values, for_vectors), (values, vectors) = g, out
    along = matmul(adjoint(vectors), for_vectors)
    turning = _quotient(_off_diagonal(along - adjoint(along)) * 0.5, _differences(values))
    inner = turning + diag_embed(_in_type_of(for_values, a))
    return matmul(vectors, matmul(inner, adjoint(vectors)))


def _eigh_jvp(
    tangents: Sequence[Tensor], out: tuple[Tensor, Tensor], a: Tensor, *, uplo: str
) -> tuple[Tensor, Tensor]:
    values, vectors = out
    inner = matmul(adjoint(vectors), matmul(tangents[0], vectors))
    inner = (inner + adjoint(inner)) * 0.5
    turning = _off_diagonal(inner / _differences(values))
    return real(diagonal_of(inner)), matmul(vectors, turning)


EIGH = opaque("eigh", _eigh_eval, _eigh_type, _eigh_vjp, jvp=_eigh_jvp, batch=batch_stack,
              outputs=2,
              emit=BY_LAPACK, autocast=AutocastPolicy.KEEP,
              doc="Eigenvalues and eigenvectors of Hermitian matrices.")  # fmt: skip


def _eigvalsh_eval(a: Array, *, uplo: Any) -> Array:
    try:
        return kernels.eigvalsh(a, uplo)
    except np.linalg.LinAlgError:
        raise not_converged("linalg.eigvalsh") from None


def _eigvalsh_vjp(g: Tensor, out: Tensor, a: Tensor, *, uplo: str) -> Tensor:
    _, vectors = bind(EIGH, a, uplo=uplo)
    return matmul(vectors * unsqueeze(_in_type_of(g, a), -2), adjoint(vectors))


def _eigvalsh_jvp(tangents: Sequence[Tensor], out: Tensor, a: Tensor, *, uplo: str) -> Tensor:
    _, vectors = bind(EIGH, a, uplo=uplo)
    return real(diagonal_of(matmul(adjoint(vectors), matmul(tangents[0], vectors))))


EIGVALSH = opaque(
    "eigvalsh", _eigvalsh_eval, lambda a, *, uplo: _eigh_type(a, uplo=uplo)[0], _eigvalsh_vjp,
    jvp=_eigvalsh_jvp, batch=batch_stack,
    emit=BY_LAPACK, autocast=AutocastPolicy.KEEP,
    doc="Eigenvalues of Hermitian matrices.",
)  # fmt: skip


def _checked_uplo(uplo: str) -> str:
    if str(uplo).upper() not in ("L", "U"):
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {uplo}")
    return uplo.upper()


@expose(method=False, into=LINALG)
@autocast_policy(AutocastPolicy.FLOAT32)
def eigh(input: Tensor, UPLO: str = "L") -> Any:
    """Ascending eigenvalues and orthonormal eigenvectors; one triangle of the matrix is read."""
    check_square("linalg.eigh", input)
    return return_types.linalg_eigh(*bind(EIGH, input, uplo=_checked_uplo(UPLO)))


@expose(method=False, into=LINALG)
@autocast_policy(AutocastPolicy.FLOAT32)
def eigvalsh(input: Tensor, UPLO: str = "L") -> Tensor:
    """The ascending eigenvalues of a Hermitian matrix, of which one triangle is read."""
    check_square("linalg.eigvalsh", input)
    if input.requires_grad and STATE.get().grad:  # the derivative needs the vectors anyway
        return bind(EIGH, input, uplo=_checked_uplo(UPLO))[0]  # type: ignore[no-any-return]
    return bind(EIGVALSH, input, uplo=_checked_uplo(UPLO))  # type: ignore[no-any-return]


# -- any square matrices ------------------------------------------------------------------------


def _eig_type(a: TensorType) -> tuple[TensorType, TensorType]:
    kind = a.dtype.to_complex()
    return tensor_type(a.shape[:-1], kind), tensor_type(a.shape, kind)


def _eig_eval(a: Array, *, vectors: bool = True) -> tuple[Array, Array]:
    if not np.isfinite(a).all():
        raise RuntimeError("linalg.eig: input tensor should not contain infs or NaNs.")
    try:
        return kernels.eig(a, vectors=vectors)
    except np.linalg.LinAlgError:
        raise not_converged("linalg.eig") from None


def _eig_vjp(g: tuple[Tensor, Tensor], out: tuple[Tensor, Tensor], a: Tensor) -> Tensor:
    (for_values, for_vectors), (values, vectors) = g, out
    turned = matmul(adjoint(vectors), for_vectors)
    lengths = unsqueeze(_in_type_of(real(diagonal_of(turned)), vectors), -2)
    across = turned - matmul(adjoint(vectors), vectors * lengths)
    turning = _quotient(across, conj(_differences(values)))
    inner = _off_diagonal(turning) + diag_embed(for_values)
    found = solve_system(adjoint(vectors), matmul(inner, adjoint(vectors)), check=False)
    return found if a.dtype.is_complex else real(found)


def _eig_jvp(
    tangents: Sequence[Tensor], out: tuple[Tensor, Tensor], a: Tensor
) -> tuple[Tensor, Tensor]:
    values, vectors = out
    moved = matmul(_in_type_of(tangents[0], vectors), vectors)
    inner = solve_system(vectors, moved, check=False)
    turned = matmul(vectors, _off_diagonal(inner / _differences(values)))
    lengths = real(diagonal_of(matmul(adjoint(vectors), turned)))
    unit = turned - vectors * unsqueeze(_in_type_of(lengths, vectors), -2)
    return diagonal_of(inner), unit


EIG = opaque("eig", _eig_eval, _eig_type, _eig_vjp, jvp=_eig_jvp, batch=batch_stack, outputs=2,
             emit=BY_LAPACK, autocast=AutocastPolicy.KEEP,
             doc="Eigenvalues and eigenvectors of square matrices.")  # fmt: skip


def _eigvals_vjp(g: Tensor, out: Tensor, a: Tensor) -> Tensor:
    _, vectors = bind(EIG, a)
    turned = adjoint(vectors)
    found = solve_system(turned, unsqueeze(g, -1) * turned, check=False)
    return found if a.dtype.is_complex else real(found)


def _eigvals_jvp(tangents: Any, out: Tensor, a: Tensor) -> Tensor:
    _, vectors = bind(EIG, a)
    inner = solve_system(vectors, matmul(_in_type_of(tangents[0], vectors), vectors), check=False)
    return diagonal_of(inner)


EIGVALS = opaque(
    "eigvals", lambda a: _eig_eval(a, vectors=False)[0], lambda a: _eig_type(a)[0], _eigvals_vjp,
    jvp=_eigvals_jvp, batch=batch_stack, emit=BY_LAPACK, autocast=AutocastPolicy.KEEP,
    doc="Eigenvalues of square matrices.",
)  # fmt: skip


@expose(method=False, into=LINALG)
@autocast_policy(AutocastPolicy.FLOAT32)
def eig(input: Tensor) -> return_types.linalg_eig:
    """The eigenvalues, in no particular order, and eigenvectors of length 1; always complex."""
    check_square("linalg.eig", input)
    return return_types.linalg_eig(*bind(EIG, input))


@expose(method=False, into=LINALG)
@autocast_policy(AutocastPolicy.FLOAT32)
def eigvals(input: Tensor) -> Tensor:
    """The eigenvalues, in no particular order; always complex."""
    check_square("linalg.eigvals", input)
    if input.requires_grad and STATE.get().grad:  # the derivative needs the vectors anyway
        return bind(EIG, input)[0]  # type: ignore[no-any-return]
    return bind(EIGVALS, input)  # type: ignore[no-any-return]


# -- singular values ----------------------------------------------------------------------------


def _svd_type(a: TensorType, *, full: bool) -> tuple[TensorType, TensorType, TensorType]:
    *batch, rows, columns = a.shape
    count = min(rows, columns)
    return (
        tensor_type((*batch, rows, rows if full else count), a.dtype),
        tensor_type((*batch, count), a.dtype.to_real()),
        tensor_type((*batch, columns if full else count, columns), a.dtype),
    )


def _svd_eval(a: Array, *, full: bool) -> tuple[Array, Array, Array]:
    try:
        return kernels.svd(a, full=full)
    except np.linalg.LinAlgError:
        raise not_converged("linalg.svd") from None


def _squared_differences(s: Tensor) -> Tensor:
    """``s[j]**2 - s[i]**2`` at (i, j), and 1 on the diagonal."""
    size = s._type.shape[-1]
    columns, rows = unsqueeze(s, -2), unsqueeze(s, -1)
    return (columns - rows) * (columns + rows) + eye(size, dtype=s.dtype)


def _reduced(g: Tensor, basis: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """A cotangent on a full basis as one on its first columns, and those columns."""
    (own, rest), (g_own, g_rest) = (split_at(x, -1, count) for x in (basis, g))
    return g_own + pulled_from_complement(g_rest, own, rest), own


def _svd_vjp(g: Sequence[Tensor], out: Sequence[Tensor], a: Tensor, *, full: bool) -> Tensor:
    gu, gs, gv = g[0], g[1], adjoint(g[2])
    u, s, v = out[0], out[1], adjoint(out[2])
    rows, columns = a._type.shape[-2:]
    count = min(rows, columns)
    if full:
        gu, u = _reduced(gu, u, count)
        gv, v = _reduced(gv, v, count)
    along_u, along_v = matmul(adjoint(u), gu), matmul(adjoint(v), gv)
    skew_u, skew_v = along_u - adjoint(along_u), along_v - adjoint(along_v)
    apart = _squared_differences(s)
    inner = (
        _quotient(_off_diagonal(skew_u), apart) * unsqueeze(s, -2)
        + _quotient(_off_diagonal(skew_v), apart) * unsqueeze(s, -1)
        + diag_embed(_in_type_of(gs, a))
    )
    if a.dtype.is_complex:
        phases = diagonal_of(skew_u) - diagonal_of(skew_v)
        inner = inner + diag_embed(_quotient(phases, s * 4))
    left = matmul(u, inner)
    if rows > count:
        left = left + _quotient(gu - matmul(u, along_u), unsqueeze(s, -2))
    found = matmul(left, adjoint(v))
    if columns > count:
        outside = _quotient(gv - matmul(v, along_v), unsqueeze(s, -2))
        found = found + matmul(u, adjoint(outside))
    return found


def _turned_complement(moved: Tensor, basis: Tensor, count: int) -> Tensor:
    """The change of a full basis from that of its first columns."""
    own, rest = split_at(basis, -1, count)
    return cat([moved, -matmul(own, matmul(adjoint(moved), rest))], -1)


def _svd_jvp(
    tangents: Sequence[Tensor], out: Sequence[Tensor], a: Tensor, *, full: bool
) -> tuple[Tensor, Tensor, Tensor]:
    change = tangents[0]
    u_all, s, v_all = out[0], out[1], adjoint(out[2])
    rows, columns = a._type.shape[-2:]
    count = min(rows, columns)
    u, v = narrow(u_all, -1, 0, count), narrow(v_all, -1, 0, count)
    image, preimage = matmul(change, v), matmul(adjoint(change), u)
    inner = matmul(adjoint(u), image)
    ts = real(diagonal_of(inner))
    apart = _squared_differences(s)
    column, row = unsqueeze(s, -2), unsqueeze(s, -1)
    turn_u = _off_diagonal((inner * column + adjoint(inner * column)) / apart)
    turn_v = _off_diagonal((inner * row + adjoint(inner * row)) / apart)
    if a.dtype.is_complex:
        phases = diag_embed((diagonal_of(inner) - _in_type_of(ts, a)) / (s * 2))
        turn_u, turn_v = turn_u + phases, turn_v - phases
    tu, tv = matmul(u, turn_u), matmul(v, turn_v)
    if rows > count:
        tu = tu + (image - matmul(u, inner)) / column
    if columns > count:
        tv = tv + (preimage - matmul(v, adjoint(inner))) / column
    if full:
        tu, tv = _turned_complement(tu, u_all, count), _turned_complement(tv, v_all, count)
    return tu, ts, adjoint(tv)


SVD = opaque("svd", _svd_eval, _svd_type, _svd_vjp, jvp=_svd_jvp, batch=batch_stack, outputs=3,
             emit=BY_LAPACK, autocast=AutocastPolicy.KEEP,
             doc="A = U diag(S) V^H with orthonormal columns of U and V.")  # fmt: skip


def _svdvals_eval(a: Array) -> Array:
    try:
        return kernels.svdvals(a)
    except np.linalg.LinAlgError:
        raise not_converged("linalg.svd") from None


def _svdvals_vjp(g: Tensor, out: Tensor, a: Tensor) -> Tensor:
    u, _, vh = bind(SVD, a, full=False)
    return matmul(u * unsqueeze(_in_type_of(g, a), -2), vh)


def _svdvals_jvp(tangents: Sequence[Tensor], out: Tensor, a: Tensor) -> Tensor:
    u, _, vh = bind(SVD, a, full=False)
    return real(diagonal_of(matmul(adjoint(u), matmul(tangents[0], adjoint(vh)))))


SVDVALS = opaque("svdvals", _svdvals_eval, lambda a: _svd_type(a, full=False)[1], _svdvals_vjp,
                 jvp=_svdvals_jvp, batch=batch_stack,
                 emit=BY_LAPACK, autocast=AutocastPolicy.KEEP,
                 doc="The singular values.")  # fmt: skip


def _check_driver(name: str, driver: str | None) -> None:
    if driver is not None:
        raise RuntimeError(
            f"{name}: keyword argument `driver=` is only supported on CUDA inputs with cuSOLVER "
            "backend."
        )


@expose("svd", method=False, into=LINALG)
@autocast_policy(AutocastPolicy.FLOAT32)
def _linalg_svd(
    A: Tensor, full_matrices: bool = True, *, driver: str | None = None
) -> return_types.linalg_svd:
    """``A = U diag(S) Vh`` with descending ``S``; without ``full_matrices`` only what it needs."""
    check_matrix("linalg.svd", A)
    _check_driver("linalg.svd", driver)
    rows, columns = A._type.shape[-2:]
    return return_types.linalg_svd(*bind(SVD, A, full=bool(full_matrices) and rows != columns))


@expose(method=False, into=LINALG)
@autocast_policy(AutocastPolicy.FLOAT32)
def svdvals(A: Tensor, *, driver: str | None = None) -> Tensor:
    """The singular values in descending order."""
    check_matrix("linalg.svdvals", A)
    _check_driver("linalg.svdvals", driver)
    if A.requires_grad and STATE.get().grad:  # the derivative needs the vectors anyway
        return bind(SVD, A, full=False)[1]  # type: ignore[no-any-return]
    return bind(SVDVALS, A)  # type: ignore[no-any-return]


@expose()
@autocast_policy(AutocastPolicy.FLOAT32)
def svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> Any:
    """``input = U diag(S) V^H``; without ``some`` full bases, without ``compute_uv`` zeros.

    Args:
        input: matrices (*, m, n)
        some: as many columns as needed; default ``True``
        compute_uv: whether U and V are wanted; default ``True``
        out: where to write the result

    The older name of :func:`linalg.svd`, which gives ``V^H``.

    >>> A = eg.tensor([[4.0, 2.0], [2.0, 3.0]])
    >>> U, S, V = eg.svd(A)
    >>> eg.allclose(U @ S.diag() @ V.T, A, atol=1e-5)
    True
    """
    if compute_uv:
        u, s, vh = _linalg_svd(input, not some)
        return return_types.svd(u, s, adjoint(vh))
    *batch, rows, columns = input._type.shape
    u, v = (zeros((*batch, size, size), dtype=input.dtype) for size in (rows, columns))
    return return_types.svd(u, svdvals(input), v)
