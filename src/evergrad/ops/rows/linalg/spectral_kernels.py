"""Orthogonal factorizations, eigenvalues, singular values and least squares, by LAPACK.

Plain arrays on stacks of matrices; knows no tensor. Routines may fail to converge: then they raise
``numpy.linalg.LinAlgError``, as NumPy's do, which compute stacks of many small matrices.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from evergrad.core import openblas
from evergrad.core.blas import small_call
from evergrad.core.types import Array
from evergrad.ops.rows.linalg import lapack
from evergrad.ops.rows.linalg.kernels import is_small
from evergrad.ops.rows.linalg.stacks import flat, to_columns, to_rows, triangle, work_of, zeros

UpLo = Literal["L", "U"]


def _call(name: str, stack: Array, size: int, **given: object) -> Array:
    """A routine on a column-major stack, with threads for its ``size``."""
    with openblas.threads_for(work_of(size, size, stack.dtype)):
        return lapack.call(name, stack.dtype, len(stack), **given)


def _check_convergence(info: Array) -> None:
    if info.any():
        raise np.linalg.LinAlgError("the algorithm did not converge")


def _named(name: str, dtype: np.dtype[np.generic]) -> str:
    """The unitary or Hermitian routine for complex matrices."""
    renamed = {"orgqr": "ungqr", "ormqr": "unmqr", "syevd": "heevd"}
    return renamed[name] if dtype.kind == "c" else name


def _real(dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    return np.dtype(dtype.char.lower())


# -- QR -----------------------------------------------------------------------------------------


def geqrf(a: Array) -> tuple[Array, Array]:
    """R, below it the vectors of the reflections, and their factors."""
    columns, tau = _reflections(a)
    return to_rows(columns, a.shape), tau.reshape(*a.shape[:-2], tau.shape[1])


def _reflections(a: Array) -> tuple[Array, Array]:
    rows, width = a.shape[-2:]
    columns = to_columns(a)
    tau = np.zeros((len(columns), min(rows, width)), a.dtype)
    if columns.size:
        _call("geqrf", columns, min(rows, width), m=rows, n=width, a=columns, lda=rows, tau=tau)
    return columns, tau


def qr(a: Array, *, complete: bool) -> tuple[Array, Array]:
    """Q and R of matrices at least as high as wide."""
    *batch, rows, width = a.shape
    if is_small(rows, width):
        q, r = small_call(np.linalg.qr, a, mode="complete" if complete else "reduced")
        return q, r
    inner = rows if complete else width
    columns, tau = _reflections(a)
    r = to_rows(triangle(columns, upper=True, rows=inner), (*batch, inner, width))
    if complete:
        basis = zeros((len(columns), rows, rows), a.dtype)
        basis[:, :width] = columns
        columns = basis
    return to_rows(_basis(columns, tau), (*batch, rows, inner)), r


def _basis(columns: Array, tau: Array) -> Array:
    """The first columns of the product of reflections, in place of their vectors."""
    _, width, rows = columns.shape
    if columns.size:
        _call(_named("orgqr", columns.dtype), columns, width, m=rows, n=width, k=tau.shape[1],
              a=columns, lda=rows, tau=tau)  # fmt: skip
    return columns


def householder_product(vectors: Array, tau: Array) -> Array:
    """The first columns of the product of reflections; ``tau`` holds a column for each matrix."""
    batch = np.broadcast_shapes(vectors.shape[:-2], tau.shape[:-2])
    shape = batch + vectors.shape[-2:]
    columns = to_columns(np.broadcast_to(vectors, shape))
    factors = np.ascontiguousarray(np.broadcast_to(tau, batch + tau.shape[-2:]))
    return to_rows(_basis(columns, factors.reshape(len(columns), tau.shape[-2])), shape)


def multiply_by_reflections(vectors: Array, tau: Array, c: Array, *, adjoint: bool) -> Array:
    """``Q c``, or ``Q^H c``, with the whole product Q of the reflections."""
    batch = np.broadcast_shapes(vectors.shape[:-2], tau.shape[:-2], c.shape[:-2])
    count = tau.shape[-2]
    rows, width = c.shape[-2:]
    columns = to_columns(np.broadcast_to(vectors, batch + vectors.shape[-2:]))
    factors = np.ascontiguousarray(np.broadcast_to(tau, batch + tau.shape[-2:]))
    found = to_columns(np.broadcast_to(c, batch + c.shape[-2:]))
    if found.size and count:
        trans = b"N" if not adjoint else b"C" if c.dtype.kind == "c" else b"T"
        _call(_named("ormqr", c.dtype), found, max(rows, width), side=b"L", trans=trans, m=rows,
              n=width, k=count, a=columns, lda=rows, tau=factors.reshape(-1, count), c=found,
              ldc=rows)  # fmt: skip
    return to_rows(found, batch + c.shape[-2:])


# -- eigenvalues --------------------------------------------------------------------------------


def eigh(a: Array, uplo: UpLo) -> tuple[Array, Array]:
    """Ascending eigenvalues and eigenvectors of one triangle of each matrix."""
    if is_small(a.shape[-1]):
        values, vectors = small_call(np.linalg.eigh, a, uplo)
        return values, vectors
    values, columns = _syevd(a, uplo, b"V")
    return values, to_rows(columns, a.shape)


def eigvalsh(a: Array, uplo: UpLo) -> Array:
    """The ascending eigenvalues of one triangle of each matrix."""
    if is_small(a.shape[-1]):
        return np.asarray(small_call(np.linalg.eigvalsh, a, uplo))
    return _syevd(a, uplo, b"N")[0]


def _syevd(a: Array, uplo: UpLo, job: bytes) -> tuple[Array, Array]:
    order = a.shape[-1]
    columns = to_columns(a)
    values = np.zeros((len(columns), order), _real(a.dtype))
    if columns.size:
        _check_convergence(
            _call(_named("syevd", a.dtype), columns, order, jobz=job, uplo=uplo.encode(), n=order,
                  a=columns, lda=order, w=values)
        )  # fmt: skip
        if np.isnan(values).any():  # larger matrices of NaN count as converged in LAPACK
            raise np.linalg.LinAlgError("the eigenvalues are not defined")
    return values.reshape(a.shape[:-1]), columns


def eig(a: Array, *, vectors: bool) -> tuple[Array, Array]:
    """The eigenvalues and, if wanted, eigenvectors of any square matrices; complex."""
    order = a.shape[-1]
    kind = np.dtype(a.dtype.char.upper())
    if is_small(order):
        values, found = (
            small_call(np.linalg.eig, a) if vectors else (small_call(np.linalg.eigvals, a), a)
        )
        return values.astype(kind, copy=False), found.astype(kind, copy=False)
    columns = to_columns(a)
    count = len(columns)
    values = np.zeros((count, order), kind)
    found = np.zeros((count if vectors else 0, order, order), a.dtype)
    if columns.size:
        given: dict[str, Any] = {"w": values, "rwork": 2 * order}
        if a.dtype.kind != "c":
            given = {
                "wr": np.zeros((count, order), a.dtype),
                "wi": np.zeros((count, order), a.dtype),
            }
        info = _call("geev", columns, order, jobvl=b"N", jobvr=b"V" if vectors else b"N", n=order,
                     a=columns, lda=order, vl=columns, ldvl=order, vr=found, ldvr=order,
                     **given)  # fmt: skip
        _check_convergence(info)
        if a.dtype.kind != "c":
            values.real, values.imag = given["wr"], given["wi"]
    if a.dtype.kind != "c":
        found = _complex_vectors(found, values)
    return values.reshape(a.shape[:-1]), to_rows(found, a.shape if vectors else found.shape)


def _complex_vectors(columns: Array, values: Array) -> Array:
    """Of a conjugate pair LAPACK gives the real part in the first column, the imaginary part in
    the second."""
    found = columns.astype(values.dtype)
    if len(columns):
        first = values.imag > 0
        second = np.zeros_like(first)
        second[:, 1:] = first[:, :-1]
        found[first] = columns[first] + 1j * columns[second]
        found[second] = np.conj(found[first])
    return found


# -- singular values ----------------------------------------------------------------------------


def svd(a: Array, *, full: bool) -> tuple[Array, Array, Array]:
    """U, the descending singular values and V^H."""
    *batch, rows, width = a.shape
    if is_small(rows, width):
        u, s, vh = small_call(np.linalg.svd, a, full_matrices=full)
        return u, s, vh
    count, inner = math.prod(batch), min(rows, width)
    left, right = (rows, width) if full else (inner, inner)
    u, vh = np.zeros((count, left, rows), a.dtype), np.zeros((count, width, right), a.dtype)
    if not inner:  # any basis serves
        u[:], vh[:] = np.eye(left, rows), np.eye(width, right)
    s = _gesdd(a, b"A" if full else b"S", u, vh)
    return to_rows(u, (*batch, rows, left)), s, to_rows(vh, (*batch, right, width))


def svdvals(a: Array) -> Array:
    """The descending singular values."""
    if is_small(*a.shape[-2:]):
        return np.asarray(small_call(np.linalg.svd, a, compute_uv=False))
    nothing = np.zeros((1, 1, 1), a.dtype)
    return _gesdd(a, b"N", nothing, nothing)


def _gesdd(a: Array, job: bytes, u: Array, vh: Array) -> Array:
    rows, width = a.shape[-2:]
    least, most = sorted((rows, width))
    columns = to_columns(a)
    s = np.zeros((len(columns), least), _real(a.dtype))
    if columns.size:
        scratch = max(5 * least * least + 5 * least, 2 * most * least + 2 * least * least + least)
        extra = {"rwork": 7 * least if job == b"N" else scratch} if a.dtype.kind == "c" else {}
        _check_convergence(
            _call("gesdd", columns, least, jobz=job, m=rows, n=width, a=columns, lda=rows, s=s,
                  u=u, ldu=rows, vt=vh, ldvt=vh.shape[2], iwork=8 * least, **extra)
        )  # fmt: skip
    return s.reshape(*a.shape[:-2], least)


# -- least squares ------------------------------------------------------------------------------


def lstsq(a: Array, b: Array, rcond: float, driver: str) -> tuple[Array, Array, Array, Array]:
    """The solution, ranks and singular values that a driver of LAPACK gives, and its ``info``."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    (rows, width), right = a.shape[-2:], b.shape[-1]
    count, least, high = math.prod(batch), min(rows, width), max(rows, width)
    columns = to_columns(np.broadcast_to(a, (*batch, rows, width)))
    x = zeros((count, right, high), a.dtype)
    x[:, :, :rows] = np.swapaxes(flat(np.broadcast_to(b, (*batch, rows, right))), 1, 2)
    rank, s = np.zeros((count, 1), np.int32), np.zeros((count, least), _real(a.dtype))
    info = np.zeros(count, np.int32)
    if columns.size and right:
        given = _driver_arguments(driver, columns, rcond, rank, s)
        info = _call(driver, columns, least, m=rows, n=width, nrhs=right, a=columns, lda=rows, b=x,
                     ldb=high, **given)  # fmt: skip
    elif not least:
        x[:] = 0
    found = to_rows(x[:, :, :width], (*batch, width, right))
    return found, rank.astype(np.int64).reshape(batch), s.reshape(*batch, least), info


def _driver_arguments(
    driver: str, columns: Array, rcond: float, rank: Array, s: Array
) -> dict[str, object]:
    count, width, rows = columns.shape
    if driver == "gels":
        return {"trans": b"N"}
    given: dict[str, object] = {"rcond": np.full(1, rcond, s.dtype), "rank": rank}
    if driver == "gelsy":
        given["jpvt"] = np.zeros((count, width), np.int32)
    else:
        given["s"] = s
    if columns.dtype.kind == "c" and driver != "gelsd":
        given["rwork"] = 2 * width if driver == "gelsy" else 5 * min(rows, width)
    return given
