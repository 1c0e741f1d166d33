"""Factorizations and linear systems on stacks of matrices, by LAPACK.

Plain arrays; knows no tensor. A row-major matrix is LAPACK's transpose of it, which is factored in
its place wherever the result allows: for inverses, determinants, solutions and Cholesky factors.

Small matrices are left to NumPy, which calls LAPACK without Python in between; what it lacks is
computed one row or column of all matrices at a time where there are many of them.
"""

from __future__ import annotations

import math

import numpy as np

from evergrad.core import blas, openblas
from evergrad.core.types import Array
from evergrad.memory import pool
from evergrad.ops.rows.linalg import lapack
from evergrad.ops.rows.linalg.stacks import (
    are_many_small,
    clear_beside,
    copied,
    to_columns,
    to_rows,
    triangle,
    work_of,
)
from evergrad.ops.rows.linalg.triangular import in_place, substitute

# Up to this order NumPy's own calls of LAPACK, without Python for each matrix, take less time.
_SMALL = 32
# From this order on OpenBLAS's lower Cholesky factor and two transposes take less than its upper
# one: float32 of order 300 in 338 us instead of 374, float64 in 534 instead of 600.
_BY_COLUMNS = 200
# From this order on an LU factorization on several threads gains by being split in two.
_WORTH_SPLITTING = 256


def is_small(*shape: int) -> bool:
    """Whether NumPy computes such matrices in less time than calls of LAPACK from here."""
    return min(shape) > 0 and max(shape) <= _SMALL


def _first(marked: Array) -> Array:
    """Where the first mark of each row is (from 1), or 0."""
    if not marked.any():
        return np.zeros(marked.shape[:-1], np.int32)
    return np.where(marked.any(-1), marked.argmax(-1) + 1, 0).astype(np.int32)


def fill_failed(found: Array, info: Array) -> None:
    """NaN in the matrices of a flat stack that a routine refused."""
    if info.any():
        found[info != 0] = np.nan


# -- LU -----------------------------------------------------------------------------------------


def lu_factor(a: Array) -> tuple[Array, Array, Array]:
    """Both factors of ``P a = L U`` in one matrix, the row (from 1) that each row was exchanged
    with, and the first zero pivot (from 1), or 0."""
    *batch, rows, width = a.shape
    if are_many_small(math.prod(batch), rows, width):
        packed = copied(a)
        pivots, info = _factor_together(packed)
    else:
        packed = to_columns(a)
        pivots, info = factor_columns(packed)
        packed = to_rows(packed, a.shape)
    count = min(rows, width)
    return packed.reshape(a.shape), pivots.reshape(*batch, count), info.reshape(batch)


def factor_columns(columns: Array) -> tuple[Array, Array]:
    """Replace a column-major stack by its LU factors; gives the pivots and the first zeros."""
    stack, width, height = columns.shape
    order = min(width, height)
    if are_many_small(stack, width, height):
        return _factor_together(np.swapaxes(columns, 1, 2))
    pivots = np.empty((stack, order), np.int32)
    if not columns.size:
        return pivots, np.zeros(stack, np.int32)
    with openblas.threads_for(work_of(order, max(width, height), columns.dtype)) as threads:
        if threads > 1 and order >= _WORTH_SPLITTING:
            return pivots, _factor_halves(columns, pivots)
        return pivots, _getrf(columns, pivots)


def _getrf(columns: Array, pivots: Array) -> Array:
    stack, width, height = columns.shape
    lda = columns.strides[1] // columns.itemsize
    return lapack.call(
        "getrf", columns.dtype, stack, m=height, n=width, a=columns, lda=lda, ipiv=pivots
    )


def _factor_halves(columns: Array, pivots: Array) -> Array:
    """One step of the recursive factorization: most of its work is a product, which several
    threads share better than they do ``getrf``."""
    stack, width, height = columns.shape
    dtype, half = columns.dtype, min(width, height) // 2
    left, right = columns[:, :half], columns[:, half:]
    one, lda = np.ones(1, dtype), height
    info = _getrf(left, pivots[:, :half])
    lapack.call("laswp", dtype, stack, n=width - half, a=right, lda=lda, k1=1, k2=half,
                ipiv=pivots, incx=1)  # fmt: skip
    lapack.call("trsm", dtype, stack, side=b"L", uplo=b"L", trans=b"N", diag=b"U", m=half,
                n=width - half, alpha=one, a=left, lda=lda, b=right, ldb=lda)  # fmt: skip
    below = right[:, :, half:]
    lapack.call("gemm", dtype, stack, transa=b"N", transb=b"N", m=height - half, n=width - half,
                k=half, alpha=-one, a=left[:, :, half:], lda=lda, b=right, ldb=lda, beta=one,
                c=below, ldc=lda)  # fmt: skip
    rest = _getrf(below, pivots[:, half:])
    later = left[:, :, half:]
    lapack.call("laswp", dtype, stack, n=half, a=later, lda=lda, k1=1, k2=pivots.shape[1] - half,
                ipiv=pivots[:, half:], incx=1)  # fmt: skip
    pivots[:, half:] += half
    return np.where(info, info, np.where(rest, rest + half, 0)).astype(np.int32)


def _factor_together(a: Array) -> tuple[Array, Array]:
    """Replace a flat stack by its LU factors, one column of all matrices at a time."""
    stack, rows, columns = a.shape
    each = np.arange(stack)
    pivots = np.empty((stack, min(rows, columns)), np.int32)
    for column in range(pivots.shape[1]):
        below = a[:, column:, column]
        size = np.abs(below.real) + np.abs(below.imag)  # LAPACK's measure of a complex number
        pivot = column + np.argmax(size, axis=1)
        pivots[:, column] = pivot + 1
        chosen = a[each, pivot].copy()
        a[each, pivot] = a[:, column]
        a[:, column] = chosen
        divisor = chosen[:, column, None]
        factors = a[:, column + 1 :, column]
        np.divide(factors, divisor, out=factors, where=divisor != 0)
        a[:, column + 1 :, column + 1 :] -= factors[:, :, None] * a[:, column, None, column + 1 :]
    return pivots, _first(np.diagonal(a, axis1=1, axis2=2) == 0)


def permutation_of(pivots: Array, rows: int) -> Array:
    """Which row of the matrix stands where after all exchanges."""
    *batch, count = pivots.shape
    swaps = pivots.reshape(math.prod(batch), count)
    together = are_many_small(len(swaps), count)
    # LAPACK exchanges rows of numbers: indices are exact in float64.
    dtype = np.dtype(np.int64 if together else np.float64)
    order = np.broadcast_to(np.arange(rows, dtype=dtype), (len(swaps), rows)).copy()
    if together:
        each = np.arange(len(swaps))
        for i in range(count):
            other = swaps[:, i] - 1
            order[each, other], order[:, i] = order[:, i], order[each, other]
    elif order.size:
        lapack.call("laswp", dtype, len(swaps), n=1, a=order, lda=rows, k1=1, k2=count,
                    ipiv=np.ascontiguousarray(swaps), incx=1)  # fmt: skip
    return order.astype(np.int64, copy=False).reshape(*batch, rows)


def permute_rows(x: Array, order: Array, *, inverse: bool) -> Array:
    """``x[order]``, or the array ``y`` with ``y[order] = x``; ``order`` is a column of indices."""
    batch = np.broadcast_shapes(x.shape[:-2], order.shape[:-2])
    found = pool.empty(batch + x.shape[-2:], x.dtype)
    if order.ndim == 2:
        if inverse:
            found[..., order[:, 0], :] = x
        else:
            np.take(x, order[:, 0], axis=-2, out=found, mode="clip")
        return found
    order = np.broadcast_to(order, batch + order.shape[-2:])
    x = np.broadcast_to(x, found.shape)
    if inverse:
        np.put_along_axis(found, order, x, axis=-2)
    else:
        found[...] = np.take_along_axis(x, order, axis=-2)
    return found


# -- systems, inverses, determinants ------------------------------------------------------------


def _first_zeros(a: Array, info: Array) -> Array:
    """Where the factorization of ``a`` meets its first zero pivot, if that of its transpose met
    one: the two may differ in the place."""
    if not info.any():
        return info
    own = lu_factor(a)[2].reshape(info.shape)
    return np.where(info, np.where(own, own, a.shape[-1]), 0).astype(np.int32)


def factor_system(a: Array) -> tuple[Array, Array, Array]:
    """``U^T L^T = a[:, order]`` in one matrix, ``order`` as a column, and the first zero pivot
    (from 1), or 0."""
    packed = copied(a)
    pivots, info = factor_columns(packed)  # of the transposes
    info = _first_zeros(a, info)
    order = permutation_of(pivots, a.shape[-1])
    return packed.reshape(a.shape), order.reshape(*a.shape[:-1], 1), info.reshape(a.shape[:-2])


def solve(packed: Array, order: Array, b: Array, *, adjoint: bool) -> Array:
    """``a^-1 b``, or ``a^-H b``, by what :func:`factor_system` made of ``a``; NaN if singular."""
    if adjoint:
        y = permute_rows(b, order, inverse=False)
        y = substitute(packed, y, upper=True, unit=True, adjoint=True)
        x = substitute(packed, y, upper=False, adjoint=True)
    else:
        y = substitute(packed, substitute(packed, b, upper=False), upper=True, unit=True)
        x = permute_rows(y, order, inverse=True)
    singular = (np.diagonal(packed, axis1=-2, axis2=-1) == 0).any(-1)
    if singular.any():
        x[np.broadcast_to(singular, x.shape[:-2])] = np.nan
    return x


def inverse(a: Array) -> tuple[Array, Array]:
    """The inverses, NaN of singular matrices, and the first zero pivots (from 1), or 0."""
    *batch, order = a.shape[:-1]
    if is_small(order):
        try:
            return blas.small_call(np.linalg.inv, a), np.zeros(batch, np.int32)
        except np.linalg.LinAlgError:
            pass
    found = copied(a)
    pivots, info = factor_columns(found)
    _invert(found, pivots)
    fill_failed(found, info)
    return found.reshape(a.shape), _first_zeros(a, info).reshape(batch)


def _invert(packed: Array, pivots: Array) -> None:
    """Replace LU factors by the inverses."""
    count, order, _ = packed.shape
    if packed.size:
        with openblas.threads_for(work_of(order, order, packed.dtype)):
            lapack.call("getri", packed.dtype, count, n=order, a=packed, lda=order, ipiv=pivots)


def det(a: Array) -> Array:
    """The determinants."""
    if is_small(a.shape[-1]):
        return _nan_if_not_finite(a, np.asarray(blas.small_call(np.linalg.det, a)))
    packed = copied(a)
    pivots, _ = factor_columns(packed)
    return _product_of_pivots(packed, pivots).reshape(a.shape[:-2])


def _nan_if_not_finite(a: Array, found: Array) -> Array:
    """Determinants; NumPy's are 0 for matrices whose elimination ends at a NaN."""
    if np.count_nonzero(found) != found.size and not np.isfinite(a).all():
        found = np.where(np.isfinite(a).all((-2, -1)) | (found != 0), found, np.nan)
    return found


def inverse_and_det(a: Array) -> tuple[Array, Array]:
    """The inverses, inf or NaN of singular matrices, and the determinants, by the same factors."""
    found = copied(a)
    pivots, info = factor_columns(found)
    product = _product_of_pivots(found, pivots)
    _invert(found, pivots)
    fill_failed(found, info)
    return found.reshape(a.shape), product.reshape(a.shape[:-2])


def _product_of_pivots(packed: Array, pivots: Array) -> Array:
    diagonal = np.diagonal(packed, axis1=1, axis2=2)
    return np.asarray(diagonal.prod(1) * _sign_of(pivots).astype(packed.dtype))


def _sign_of(pivots: Array) -> Array:
    """The signs of permutations, by the parity of their exchanges."""
    exchanges = (pivots != np.arange(1, pivots.shape[1] + 1)).sum(1)
    return np.asarray(1 - 2 * (exchanges % 2))


def slogdet(a: Array) -> tuple[Array, Array]:
    """The signs of the determinants, or complex numbers of size 1, and the logarithms of their
    sizes."""
    batch = a.shape[:-2]
    if is_small(a.shape[-1]):
        sign, logarithm = blas.small_call(np.linalg.slogdet, a)
        known = _nan_if_not_finite(a, np.asarray(sign))
        return np.asarray(sign), np.asarray(np.where(np.isnan(known), np.nan, logarithm))
    packed = copied(a)
    pivots, _ = factor_columns(packed)
    diagonal = np.diagonal(packed, axis1=1, axis2=2)
    sign = np.sign(diagonal).prod(1) * _sign_of(pivots).astype(a.dtype)
    return sign.reshape(batch), np.log(np.abs(diagonal)).sum(1).reshape(batch)


# -- Cholesky -----------------------------------------------------------------------------------


def cholesky(a: Array, *, upper: bool) -> tuple[Array, Array]:
    """The factors of one triangle of each matrix, NaN beyond the leading minors that are
    positive-definite, and the orders of their first leading minors that are not, or 0."""
    *batch, order = a.shape[:-1]
    if is_small(order):
        try:
            factor = blas.small_call(np.linalg.cholesky, a, upper=upper)
            if not np.isnan(factor).any():
                return factor, np.zeros(batch, np.int32)
        except np.linalg.LinAlgError:
            pass
    # Row-major, a lower triangle is LAPACK's upper one: nothing has to be transposed.
    by_columns = not upper and order >= _BY_COLUMNS
    found = to_columns(a) if by_columns else copied(a)
    info = np.zeros(len(found), np.int32)
    if found.size:
        uplo = b"L" if upper or by_columns else b"U"
        with openblas.threads_for(work_of(order, order, a.dtype)):
            info = lapack.call("potrf", a.dtype, len(found), uplo=uplo, n=order, a=found, lda=order)
        # OpenBLAS takes a NaN for positive.
        undefined = _first(np.isnan(np.diagonal(found, axis1=1, axis2=2)))
        info = np.where(undefined, undefined, info)
        if by_columns:
            found = to_rows(found, found.shape)
        clear_beside(found, upper=not upper)
    _keep_leading(found, info, upper)
    return found.reshape(a.shape), info.reshape(batch)


def _keep_leading(factors: Array, info: Array, upper: bool) -> None:
    """Leave of a failed factorization what is defined: the factor of the leading minor before the
    first that is not positive, and the pivot's row left of the diagonal."""
    for at in np.flatnonzero(info):
        order = int(info.flat[at]) - 1
        known = np.s_[:order, : order + 1] if upper else np.s_[: order + 1, :order]
        leading = factors[at][known].copy()
        factors[at] = np.nan
        factors[at][known] = leading


def cholesky_inverse(factor: Array) -> tuple[Array, Array]:
    """The inverses of ``L L^H``, and the first zeros (from 1) on the diagonals of L, or 0."""
    *batch, order = factor.shape[:-1]
    if are_many_small(math.prod(batch), order):
        inverted = substitute(factor, np.eye(order, dtype=factor.dtype), upper=False)
        inverses = blas.matmul(np.conj(np.swapaxes(inverted, -2, -1)), inverted)
        return inverses, _first(np.diagonal(factor, axis1=-2, axis2=-1) == 0)
    rows, _ = in_place(factor, may_be_transposed=False)
    found = triangle(rows, upper=True)
    info = _first(np.diagonal(found, axis1=1, axis2=2) == 0)
    if found.size:
        with openblas.threads_for(work_of(order, order, factor.dtype)):
            _invert_upper(found)
            lapack.call("lauum", factor.dtype, len(found), uplo=b"U", n=order, a=found, lda=order)
    mirrored = pool.copy(np.swapaxes(found, 1, 2))
    if factor.dtype.kind == "c":
        np.conjugate(mirrored, out=mirrored)
    at = np.arange(order)
    mirrored[:, at, at] = 0
    mirrored += found
    fill_failed(mirrored, info)
    return mirrored.reshape(factor.shape), info.reshape(batch)


def _invert_upper(columns: Array) -> None:
    """Replace column-major upper triangles by their inverses. Split in two, most of the work is
    products: at order 300 ``trtri`` alone takes 1.4 (float64) to 1.7 times as long."""
    count, order, _ = columns.shape
    dtype, half, lda = columns.dtype, order // 2, columns.strides[1] // columns.itemsize
    first, right = columns[:, :half, :half], columns[:, half:]
    corner, last = right[:, :, :half], right[:, :, half:]
    one = np.ones(1, dtype)
    for part in (first, last):
        lapack.call("trtri", dtype, count, uplo=b"U", diag=b"N", n=part.shape[1], a=part, lda=lda)
    for side, part, scale in ((b"L", first, -one), (b"R", last, one)):
        lapack.call("trmm", dtype, count, side=side, uplo=b"U", transa=b"N", diag=b"N", m=half,
                    n=order - half, alpha=scale, a=part, lda=lda, b=corner, ldb=lda)  # fmt: skip


# -- LDL ----------------------------------------------------------------------------------------


def _named(name: str, dtype: np.dtype[np.generic], hermitian: bool) -> str:
    """The routine for symmetric, or for complex Hermitian matrices."""
    return name.replace("sy", "he") if hermitian and dtype.kind == "c" else name


def ldl_factor(a: Array, *, hermitian: bool) -> tuple[Array, Array, Array]:
    """L and D of the lower triangles in one, LAPACK's pivots, and the first zeros on D, or 0."""
    *batch, order = a.shape[:-1]
    found = triangle(to_columns(a), upper=False)
    pivots, info = np.zeros((len(found), order), np.int32), np.zeros(len(found), np.int32)
    if found.size:
        with openblas.threads_for(work_of(order, order, a.dtype)):
            info = lapack.call(_named("sytrf", a.dtype, hermitian), a.dtype, len(found), uplo=b"L",
                               n=order, a=found, lda=order, ipiv=pivots)  # fmt: skip
    return to_rows(found, a.shape), pivots.reshape(*batch, order), info.reshape(batch)


def ldl_solve(factors: Array, pivots: Array, b: Array, *, hermitian: bool) -> Array:
    """The solution of ``a x = b`` for ``a`` as :func:`ldl_factor` leaves it."""
    batch = np.broadcast_shapes(factors.shape[:-2], b.shape[:-2])
    order, width = b.shape[-2:]
    columns = to_columns(np.broadcast_to(factors, batch + factors.shape[-2:]))
    x = to_columns(np.broadcast_to(b, batch + b.shape[-2:]))
    pivots = np.broadcast_to(pivots, (*batch, order)).astype(np.int32).reshape(len(x), order)
    if x.size:
        with openblas.threads_for(work_of(order, width, b.dtype)):
            lapack.call(_named("sytrs", b.dtype, hermitian), b.dtype, len(x), uplo=b"L", n=order,
                        nrhs=width, a=columns, lda=order, ipiv=pivots, b=x, ldb=order)  # fmt: skip
    return to_rows(x, batch + b.shape[-2:])
