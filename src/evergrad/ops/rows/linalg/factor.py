"""Factorizations into triangles: Cholesky and QR, and what is computed from them.

At the edges: Cholesky factors read one triangle of the matrix; their gradient is that of a
Hermitian matrix, so it is Hermitian too. QR of a matrix with dependent columns has no derivative
and gives inf or NaN. The rows that only complete an orthogonal basis (``mode="complete"``) have
one as far as the space they span goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evergrad import return_types
from evergrad.core import dtypes
from evergrad.core.autocast import autocast_policy
from evergrad.core.bind import bind, cast
from evergrad.core.families import opaque
from evergrad.core.op import NONDIFFERENTIABLE
from evergrad.core.row_facts import AutocastPolicy
from evergrad.core.shapes import TensorType, broadcast_shapes, tensor_type
from evergrad.core.tensor import Array, Tensor
from evergrad.ops.rows.creation.constants import eye, zeros
from evergrad.ops.rows.elementwise.magnitude import conj
from evergrad.ops.rows.linalg import kernels
from evergrad.ops.rows.linalg import spectral_kernels as spectral
from evergrad.ops.rows.linalg.base import (
    BY_LAPACK,
    LINALG,
    adjoint,
    check_floating,
    check_matrix,
    check_rank,
    check_same_dtype,
    check_square,
    complain,
    diagonal_of,
    split_at,
)
from evergrad.ops.rows.linalg.solve import (
    batch_stack,
    substitute,
    substitute_right,
)
from evergrad.ops.rows.matmul import matmul
from evergrad.ops.rows.movement.complex_parts import real
from evergrad.ops.rows.movement.diagonals import diag_embed, tril, triu
from evergrad.ops.rows.movement.joining import cat
from evergrad.ops.rows.movement.slices import narrow
from evergrad.ops.rows.movement.views import sum_to_type, unsqueeze
from evergrad.ops.rows.reduce.sums import sum as total
from evergrad.ops.surface.public import expose

if TYPE_CHECKING:
    from evergrad import return_types


def _real_diagonal(x: Tensor) -> Tensor:
    return diag_embed(cast(real(diagonal_of(x)), x.dtype))


def _mirrored(x: Tensor) -> Tensor:
    """The Hermitian matrix with the given lower triangle."""
    below = tril(x, -1)
    return below + adjoint(below) + _real_diagonal(x)


# -- Cholesky -----------------------------------------------------------------------------------


def _cholesky_eval(a: Array, *, is_upper: bool, check: bool) -> tuple[Array, Array]:
    factor, info = kernels.cholesky(a, upper=is_upper)
    if check and info.any():
        text = (
            "The factorization could not be completed because the input is not positive-definite "
            "(the leading minor of order {} is not positive-definite)."
        )
        raise complain("linalg.cholesky", info, text)
    return factor, info


def _cholesky_vjp(g: Tensor, out: Tensor, a: Tensor, *, is_upper: bool, check: bool) -> Tensor:
    g, y = g[0], out[0]
    if is_upper:
        g, y = adjoint(g), adjoint(y)
    middle = _mirrored(matmul(adjoint(y), g)) * 0.5
    left = substitute(adjoint(y), middle, is_upper=True)
    return substitute_right(left, y, is_upper=False)


def _cholesky_jvp(
    tangents: Sequence[Tensor], out: Tensor, a: Tensor, *, is_upper: bool, check: bool
) -> tuple[Tensor, None]:
    factor = adjoint(out[0]) if is_upper else out[0]
    left = substitute(factor, tangents[0], is_upper=False)
    inner = substitute_right(left, adjoint(factor), is_upper=True)
    inner = (inner + adjoint(inner)) * 0.5
    moved = matmul(factor, tril(inner, -1) + _real_diagonal(inner) * 0.5)
    return (adjoint(moved) if is_upper else moved), None


CHOLESKY = opaque(
    "cholesky", _cholesky_eval, lambda a, **attrs: (a, tensor_type(a.shape[:-2], dtypes.int32)),
    _cholesky_vjp, jvp=_cholesky_jvp, batch=batch_stack, outputs=2,
    emit=BY_LAPACK, autocast=AutocastPolicy.KEEP,
    doc="The factor L of A = L L^H, or U of A = U^H U, and the first minor not positive (or 0).",
)  # fmt: skip


@expose("cholesky", method=False, into=LINALG)
@autocast_policy(AutocastPolicy.FLOAT32)
def _linalg_cholesky(input: Tensor, *, upper: bool = False) -> Tensor:
    """The triangular ``L`` with ``L L^H = A``, or with ``upper`` its adjoint."""
    check_square("linalg.cholesky", input)
    return bind(CHOLESKY, input, is_upper=bool(upper), check=True)[0]  # type: ignore[no-any-return]


@expose()
@autocast_policy(AutocastPolicy.FLOAT32)
def cholesky(input: Tensor, upper: bool = False) -> Tensor:
    """The triangular ``L`` with ``L L^H = A``, or with ``upper`` its adjoint."""
    return _linalg_cholesky(input, upper=upper)


@expose(method=False, into=LINALG)
@autocast_policy(AutocastPolicy.FLOAT32)
def cholesky_ex(
    input: Tensor, *, upper: bool = False, check_errors: bool = False
) -> return_types.linalg_cholesky_ex:
    """The factor, and the order of the first leading minor that is not positive (or 0): what is
    before it is factored, the rest is NaN.

    Args:
        input: symmetric or Hermitian matrices (*, n, n)
        upper: give the upper factor; default ``False``
        check_errors: raise for a failure in place of reporting it; default ``False``
        out: where to write the results

    >>> A = eg.tensor([[4.0, 2.0], [2.0, 3.0]])
    >>> L, info = eg.linalg.cholesky_ex(A)
    >>> eg.allclose(L @ L.T, A), info
    (True, tensor(0, dtype=evergrad.int32))
    """
    check_square("linalg.cholesky", input)
    found = bind(CHOLESKY, input, is_upper=bool(upper), check=bool(check_errors))
    return return_types.linalg_cholesky_ex(*found)


@expose()
@autocast_policy(AutocastPolicy.FLOAT32)
def cholesky_solve(input: Tensor, input2: Tensor, upper: bool = False) -> Tensor:
    """The solution of ``A X = input``, given the Cholesky factor ``input2`` of ``A``.

    Args:
        input: right-hand sides (*, n, k)
        input2: the factor (*, n, n)
        upper: whether it is the upper one; default ``False``
        out: where to write the result

    >>> A = eg.tensor([[4.0, 2.0], [2.0, 3.0]])
    >>> L = eg.linalg.cholesky(A)
    >>> x = eg.cholesky_solve(eg.ones(2, 1), L)
    >>> eg.allclose(A @ x, eg.ones(2, 1), atol=1e-6)
    True
    """
    for name, x in (("b", input), ("u", input2)):
        if x.ndim < 2:
            raise RuntimeError(
                f"{name} should have at least 2 dimensions, but has {x.ndim} dimensions instead"
            )
    check_square("cholesky_solve", input2)
    check_same_dtype("cholesky_solve", input2, input)
    if input._type.shape[-2] != input2._type.shape[-1]:
        sizes = [" by ".join(map(str, x._type.shape[-2:])) for x in (input2, input)]
        raise RuntimeError(
            f"Incompatible matrix sizes for cholesky_solve: each A matrix is {sizes[0]} but each b "
            f"matrix is {sizes[1]}"
        )
    first, second = (adjoint(input2), input2) if upper else (input2, adjoint(input2))
    return substitute(second, substitute(first, input, is_upper=False), is_upper=True)


def _inverse_eval(factor: Array) -> Array:
    found, info = kernels.cholesky_inverse(factor)
    if info.any():
        text = (
            "The diagonal element {} is zero, the inversion could not be completed because the "
            "input matrix is singular."
        )
        raise complain("cholesky_inverse", info, text)
    return found


def _inverse_vjp(g: Tensor, y: Tensor, factor: Tensor) -> Tensor:
    return -tril(matmul(y, matmul(g + adjoint(g), matmul(y, tril(factor)))))


def _inverse_jvp(tangents: Sequence[Tensor], y: Tensor, factor: Tensor) -> Tensor:
    half = matmul(y, matmul(matmul(tril(tangents[0]), adjoint(tril(factor))), y))
    return -(half + adjoint(half))


CHOLESKY_INVERSE = opaque(
    "cholesky_inverse", _inverse_eval, lambda factor: factor, _inverse_vjp,
    jvp=_inverse_jvp, batch=batch_stack,
    emit=BY_LAPACK, autocast=AutocastPolicy.KEEP,
    doc="The inverse of L L^H, of which L is given.",
)  # fmt: skip


@expose()
@autocast_policy(AutocastPolicy.FLOAT32)
def cholesky_inverse(input: Tensor, upper: bool = False) -> Tensor:
    """The inverse of ``A``, given its Cholesky factor.

    Args:
        input: the factor (*, n, n)
        upper: whether it is the upper one; default ``False``
        out: where to write the result

    >>> A = eg.tensor([[4.0, 2.0], [2.0, 3.0]])
    >>> L = eg.linalg.cholesky(A)
    >>> eg.allclose(eg.cholesky_inverse(L) @ A, eg.eye(2), atol=1e-6)
    True
    """
    check_square("cholesky_inverse", input)
    factor = adjoint(input) if upper else input
    return bind(CHOLESKY_INVERSE, factor)  # type: ignore[no-any-return]


# -- QR -----------------------------------------------------------------------------------------


def _qr_type(a: TensorType, *, complete: bool) -> tuple[TensorType, TensorType]:
    *batch, rows, columns = a.shape
    inner = rows if complete else columns
    return (
        tensor_type((*batch, rows, inner), a.dtype),
        tensor_type((*batch, inner, columns), a.dtype),
    )


def pulled_from_complement(g: Tensor, basis: Tensor, complement: Tensor) -> Tensor:
    """The cotangent of an orthogonal basis from that of the basis of its complement.

    The complement only turns against the basis: its change is ``-basis (d basis)^H complement``.
    """
    return -matmul(complement, matmul(adjoint(g), basis))


def _qr_vjp(g: Tensor, out: Tensor, a: Tensor, *, complete: bool) -> Tensor:
    (gq, gr), (q, r) = g, out
    if complete:
        columns = a._type.shape[-1]
        q, complement = split_at(q, -1, columns)
        gq, g_complement = split_at(gq, -1, columns)
        gq = gq + pulled_from_complement(g_complement, q, complement)
        gr, r = narrow(gr, -2, 0, columns), narrow(r, -2, 0, columns)
    inner = matmul(r, adjoint(gr)) - matmul(adjoint(gq), q)
    return substitute_right(gq + matmul(q, _mirrored(inner)), adjoint(r), is_upper=False)


def _qr_jvp(
    tangents: Sequence[Tensor], out: Tensor, a: Tensor, *, complete: bool
) -> tuple[Tensor, Tensor]:
    q, r = out
    *batch, rows, columns = a._type.shape
    if complete:
        q, complement = split_at(q, -1, columns)
        r = narrow(r, -2, 0, columns)
    scaled = substitute_right(tangents[0], r, is_upper=True)
    inner = matmul(adjoint(q), scaled)
    growth = triu(inner, 1) + adjoint(tril(inner, -1)) + _real_diagonal(inner)
    tq, tr = scaled - matmul(q, growth), matmul(growth, r)
    if complete:
        turned = -matmul(q, matmul(adjoint(tq), complement))
        tq = cat([tq, turned], -1)
        tr = cat([tr, zeros((*batch, rows - columns, columns), dtype=r.dtype)], -2)
    return tq, tr


QR = opaque("qr", spectral.qr, _qr_type, _qr_vjp, jvp=_qr_jvp, batch=batch_stack, outputs=2,
            emit=BY_LAPACK, autocast=AutocastPolicy.KEEP,
            doc="A = Q R for matrices at least as high as wide.")  # fmt: skip


def _qr(A: Tensor, complete: bool) -> tuple[Tensor, Tensor]:
    rows, columns = A._type.shape[-2:]
    if rows >= columns:
        return bind(QR, A, complete=complete and rows > columns)  # type: ignore[no-any-return]
    # The leading square decides about Q; the other columns are only rotated by it.
    q, r = bind(QR, narrow(A, -1, 0, rows), complete=False)
    rest = matmul(adjoint(q), narrow(A, -1, rows, columns - rows))
    return q, cat([r, rest], -1)


@expose("qr", method=False, into=LINALG)
@autocast_policy(AutocastPolicy.FLOAT32)
def _linalg_qr(A: Tensor, mode: str = "reduced") -> return_types.linalg_qr:
    """Orthonormal columns times an upper triangle; with ``mode="r"`` the triangle only."""
    check_matrix("linalg.qr", A)
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), "
            "'r', or 'complete'"
        )
    q, r = _qr(A, mode == "complete")
    return return_types.linalg_qr(zeros((0,), dtype=A.dtype) if mode == "r" else q, r)


@expose()
@autocast_policy(AutocastPolicy.FLOAT32)
def qr(input: Tensor, some: bool = True) -> Any:
    """Orthonormal columns times an upper triangle; a full basis without ``some``.

    Args:
        input: matrices (*, m, n)
        some: as many columns as needed; default ``True``
        out: where to write the result

    The older name of :func:`linalg.qr`.

    >>> A = eg.tensor([[4.0, 2.0], [2.0, 3.0]])
    >>> Q, R = eg.qr(A)
    >>> eg.allclose(Q @ R, A, atol=1e-6)
    True
    """
    return return_types.qr(*_linalg_qr(input, "reduced" if some else "complete"))


# -- Householder reflections --------------------------------------------------------------------


def _geqrf_type(a: TensorType) -> tuple[TensorType, TensorType]:
    return a, tensor_type((*a.shape[:-2], min(a.shape[-2:])), a.dtype)


GEQRF = opaque("geqrf", spectral.geqrf, _geqrf_type, NONDIFFERENTIABLE, batch=batch_stack,
               outputs=2,
               emit=BY_LAPACK, autocast=AutocastPolicy.KEEP,
               doc="R of A = Q R, and below it the vectors for Q.")  # fmt: skip


@expose()
@autocast_policy(AutocastPolicy.FLOAT32)
def geqrf(input: Tensor) -> Any:
    """QR as LAPACK leaves it: R, below it the reflection vectors, and their factors.

    Args:
        input: matrices (*, m, n)
        out: where to write the result

    >>> A = eg.tensor([[4.0, 2.0], [2.0, 3.0]])
    >>> a, tau = eg.geqrf(A)
    >>> a.shape, tau.shape
    (evergrad.Size([2, 2]), evergrad.Size([2]))
    """
    check_matrix("geqrf", input)
    return return_types.geqrf(*bind(GEQRF, input))


def _reflection_vectors(x: Tensor, count: int) -> Tensor:
    """The vectors V below the diagonal of a matrix, each with the 1 that is not stored."""
    first = narrow(x, -1, 0, count)
    return tril(first, -1) + eye(*first._type.shape[-2:], dtype=x.dtype)


def _reflection_cotangents(
    g: Tensor, x: Tensor, tau: Tensor, c: Tensor, of_adjoint: bool
) -> tuple[Tensor, Tensor]:
    """Those of vectors and factors, from that of ``Q c`` (or ``Q^H c``), by the compact form
    ``Q = I - V T V^H`` with ``T = (I + D S)^-1 D``, ``D = diag(tau)``, ``S = triu(V^H V, 1)``."""
    v = _reflection_vectors(x, tau._type.shape[-2])
    s = triu(matmul(adjoint(v), v), 1)
    scaled = tau * s
    t = substitute(scaled, tau * eye(tau._type.shape[-2], dtype=x.dtype), is_upper=True, unit=True)
    used = adjoint(t) if of_adjoint else t
    coefficients, along = matmul(adjoint(v), c), matmul(adjoint(v), g)
    for_used = -matmul(along, adjoint(coefficients))
    for_t = adjoint(for_used) if of_adjoint else for_used
    inner = substitute(adjoint(scaled), for_t, is_upper=False, unit=True)
    for_scaled = -triu(matmul(inner, adjoint(t)), 1)
    products = conj(tau) * for_scaled
    for_v = (
        matmul(v, products + adjoint(products))
        - matmul(g, adjoint(matmul(used, coefficients)))
        - matmul(c, adjoint(matmul(adjoint(used), along)))
    )
    for_tau = unsqueeze(diagonal_of(inner), -1) + total(for_scaled * conj(s), -1, keepdim=True)
    return for_v, for_tau


def _for_stored(for_v: Tensor, x: Tensor) -> Tensor:
    """The cotangent of the matrix in which the vectors stand."""
    missing = x._type.shape[-1] - for_v._type.shape[-1]
    below = tril(for_v, -1)
    if missing:
        below = cat([below, zeros((*below._type.shape[:-1], missing), dtype=x.dtype)], -1)
    return sum_to_type(below, x._type)


def _product_vjp(g: Tensor, q: Tensor, x: Tensor, tau: Tensor) -> tuple[Tensor, Tensor]:
    identity = eye(*x._type.shape[-2:], dtype=x.dtype)
    for_v, for_tau = _reflection_cotangents(g, x, tau, identity, of_adjoint=False)
    return _for_stored(for_v, x), sum_to_type(for_tau, tau._type)


HOUSEHOLDER_PRODUCT = opaque(
    "householder_product", spectral.householder_product,
    lambda x, tau: tensor_type(
        broadcast_shapes(x.shape[:-2], tau.shape[:-2]) + x.shape[-2:], x.dtype),
    _product_vjp, batch=batch_stack,
    emit=BY_LAPACK, autocast=AutocastPolicy.KEEP,
    doc="The first columns of a product of reflections.",
)  # fmt: skip


def _ormqr_vjp(
    g: Tensor, out: Tensor, x: Tensor, tau: Tensor, c: Tensor, *, adjoint: bool
) -> tuple[Tensor, Tensor, Tensor]:
    for_v, for_tau = _reflection_cotangents(g, x, tau, c, of_adjoint=adjoint)
    for_c = bind(ORMQR, x, tau, g, adjoint=not adjoint)
    return _for_stored(for_v, x), sum_to_type(for_tau, tau._type), sum_to_type(for_c, c._type)


ORMQR = opaque(
    "ormqr", spectral.multiply_by_reflections,
    lambda x, tau, c, *, adjoint: tensor_type(
        broadcast_shapes(x.shape[:-2], tau.shape[:-2], c.shape[:-2]) + c.shape[-2:], c.dtype),
    _ormqr_vjp, batch=batch_stack,
    emit=BY_LAPACK, autocast=AutocastPolicy.KEEP,
    doc="A product Q of reflections, or Q^H, times a matrix.",
)  # fmt: skip


@expose(method=False, into=LINALG)
@autocast_policy(AutocastPolicy.FLOAT32)
def householder_product(input: Tensor, tau: Tensor) -> Tensor:
    """The first columns of the product of reflections whose vectors stand below a diagonal.

    Args:
        input: (*, m, n) with n <= m, vectors below the diagonal, as ``geqrf`` gives them
        tau: (*, k) factors of the reflections
        out: where to write the results

    >>> A = eg.tensor([[4.0, 2.0], [2.0, 3.0]])
    >>> a, tau = eg.geqrf(A)
    >>> Q = eg.linalg.householder_product(a, tau)
    >>> eg.allclose(Q.T @ Q, eg.eye(2), atol=1e-6)
    True
    """
    name = "linalg.householder_product"
    check_rank(name, input, "input")
    check_floating(name, input)
    rows, columns = input._type.shape[-2:]
    count = tau._type.shape[-1]
    if rows < columns:
        raise RuntimeError(
            f"{name}: input.shape[-2] must be greater than or equal to input.shape[-1]"
        )
    if columns < count:
        raise RuntimeError(
            f"{name}: input.shape[-1] must be greater than or equal to tau.shape[-1]"
        )
    return bind(HOUSEHOLDER_PRODUCT, input, unsqueeze(tau, -1))  # type: ignore[no-any-return]


@expose()
@autocast_policy(AutocastPolicy.FLOAT32)
def orgqr(input: Tensor, input2: Tensor) -> Tensor:
    """``linalg.householder_product`` under LAPACK's name.

    Args:
        input, input2: what :func:`geqrf` gave
        out: where to write the result

    >>> A = eg.tensor([[4.0, 2.0], [2.0, 3.0]])
    >>> Q = eg.orgqr(*eg.geqrf(A))
    >>> eg.allclose(Q.T @ Q, eg.eye(2), atol=1e-6)
    True
    """
    return householder_product(input, input2)


@expose()
@autocast_policy(AutocastPolicy.FLOAT32)
def ormqr(
    input: Tensor, input2: Tensor, input3: Tensor, left: bool = True, transpose: bool = False
) -> Tensor:
    """``input3`` times the whole Q of a QR factorization in the form ``geqrf`` leaves it.

    Args:
        input, input2: what :func:`geqrf` gave
        input3: the other factor (*, m, k)
        left: Q on the left (default) or on the right
        transpose: Q transposed; default ``False``
        out: where to write the result

    >>> A = eg.tensor([[4.0, 2.0], [2.0, 3.0]])
    >>> a, tau = eg.geqrf(A)
    >>> eg.allclose(eg.ormqr(a, tau, eg.eye(2)), eg.orgqr(a, tau), atol=1e-6)
    True
    """
    if input.ndim < 2 or input3.ndim < 2:
        raise RuntimeError("torch.ormqr: input must have at least 2 dimensions.")
    if input2.ndim and input2.shape[-1] != min(input3.shape[-2 if left else -1], input.shape[-1]):
        raise RuntimeError(
            f"torch.ormqr: tau.shape[-1] must be equal to min(other.shape[{-2 if left else -1}], "
            "input.shape[-1])"
        )
    tau = unsqueeze(input2, -1)
    if left:
        return bind(ORMQR, input, tau, input3, adjoint=bool(transpose))  # type: ignore[no-any-return]
    return adjoint(bind(ORMQR, input, tau, adjoint(input3), adjoint=not transpose))
