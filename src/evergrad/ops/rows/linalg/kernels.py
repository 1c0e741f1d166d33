"""The matrix algorithms NumPy lacks, on stacks of matrices: substitution, LU, the exponential.

Plain NumPy on arrays; knows no tensor. The first two divide and conquer, so that most of their
work is matrix products.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# Up to this many rows or columns are handled without dividing further.
_SMALL_TRIANGLE = 32
_NARROW_PANEL = 8


# -- triangular systems -------------------------------------------------------------------------


def substitute(a: Array, b: Array, *, upper: bool, unit: bool) -> Array:
    """Solve ``a x = b``, reading only one triangle of ``a`` (without its diagonal if ``unit``)."""
    n = a.shape[-1]
    triangle = np.triu(a) if upper else np.tril(a)
    diagonal = np.arange(n)
    if unit:
        triangle[..., diagonal, diagonal] = 1
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    x = np.broadcast_to(b, batch + b.shape[-2:]).copy()
    # A zero on the diagonal must divide, not raise: then every block is a single number.
    regular = bool(np.all(triangle[..., diagonal, diagonal] != 0))
    _substitute(triangle, x, upper, _SMALL_TRIANGLE if regular else 1)
    return x


def _substitute(a: Array, x: Array, upper: bool, small: int) -> None:
    """Turn the right side ``x`` into the solution, where it stands."""
    n = a.shape[-1]
    if n == 1:
        np.divide(x, a, out=x)
        return
    if n <= small:
        # LU of an upper triangle is that triangle, so this is plain back substitution.
        turn = slice(None) if upper else slice(None, None, -1)
        x[..., turn, :] = np.linalg.solve(a[..., turn, turn], x[..., turn, :])
        return
    first, second = slice(0, n // 2), slice(n // 2, n)
    if upper:
        first, second = second, first
    _substitute(a[..., first, first], x[..., first, :], upper, small)
    x[..., second, :] -= a[..., second, first] @ x[..., first, :]
    _substitute(a[..., second, second], x[..., second, :], upper, small)


# -- LU -----------------------------------------------------------------------------------------


def lu_factor(a: Array) -> tuple[Array, Array]:
    """Both factors of ``P a = L U`` in one matrix, and which row (from 1) each row changed with."""
    *batch, rows, columns = a.shape
    count = min(rows, columns)
    packed = a.reshape(math.prod(batch), rows, columns).copy()
    swaps = np.zeros((len(packed), count), np.int32)
    _factor_columns(packed, swaps, 0, count)
    if columns > count:
        packed[:, :, count:] = substitute(
            packed[:, :, :count], packed[:, :, count:], upper=False, unit=True
        )
    return packed.reshape(a.shape), swaps.reshape(*batch, count)


def _factor_columns(a: Array, swaps: Array, start: int, stop: int) -> None:
    """Factor some columns, once those to their left are done; rows change over the full width."""
    if stop - start <= _NARROW_PANEL:
        for column in range(start, stop):
            _eliminate(a, swaps, column, stop)
        return
    middle = (start + stop) // 2
    _factor_columns(a, swaps, start, middle)
    left, right = slice(start, middle), slice(middle, stop)
    a[:, left, right] = substitute(a[:, left, left], a[:, left, right], upper=False, unit=True)
    a[:, middle:, right] -= a[:, middle:, left] @ a[:, left, right]
    _factor_columns(a, swaps, middle, stop)


def _eliminate(a: Array, swaps: Array, column: int, stop: int) -> None:
    """Bring the largest element of a column to the diagonal and clear what is below it."""
    below = a[:, column:, column]
    size = np.abs(below.real) + np.abs(below.imag)  # LAPACK's measure of a complex number
    pivot = column + np.argmax(size, axis=1)
    swaps[:, column] = pivot + 1
    each = np.arange(len(a))
    chosen = a[each, pivot].copy()
    a[each, pivot] = a[:, column]
    a[:, column] = chosen
    divisor = chosen[:, column, None]
    factors = a[:, column + 1 :, column]
    np.divide(factors, divisor, out=factors, where=divisor != 0)
    rest = slice(column + 1, stop)
    a[:, column + 1 :, rest] -= factors[:, :, None] * a[:, column, None, rest]


def permutation_of(swaps: Array, rows: int) -> Array:
    """Which row of the matrix stands where after all swaps."""
    *batch, count = swaps.shape
    flat = swaps.reshape(math.prod(batch), count)
    order = np.broadcast_to(np.arange(rows), (len(flat), rows)).copy()
    each = np.arange(len(flat))
    for i in range(count):
        other = flat[:, i] - 1
        chosen = order[each, other]
        order[each, other] = order[:, i]
        order[:, i] = chosen
    return order.reshape(*batch, rows)


# -- the exponential ----------------------------------------------------------------------------

# For each precision the coefficients of a Pade approximant and the norm up to which it is exact to
# rounding (Higham, "The scaling and squaring method for the matrix exponential revisited", 2005).
_PADE_7 = (17297280.0, 8648640.0, 1995840.0, 277200.0, 25200.0, 1512.0, 56.0, 1.0)
_PADE_13 = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0,
    129060195264000.0, 10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0,
    40840800.0, 960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
_APPROXIMANTS = {4: (_PADE_7, 3.925724783138660), 8: (_PADE_13, 5.371920351148152)}


def matrix_exp(a: Array) -> Array:
    """The exponential of each matrix, by scaling, a rational approximation, and squaring."""
    coefficients, reach = _APPROXIMANTS[a.real.dtype.itemsize]
    norm = np.max(np.sum(np.abs(a), axis=-2), axis=-1, initial=0)
    finite = np.isfinite(norm)
    ratio = np.where(finite & (norm > reach), norm / reach, 1)
    halvings = np.ceil(np.log2(ratio)).astype(np.int64)
    scale = np.exp2(-halvings).astype(a.real.dtype)[..., None, None]
    result = _pade(np.where(finite[..., None, None], a, 0) * scale, coefficients)
    for step in range(int(np.max(halvings, initial=0))):
        result = np.where((halvings > step)[..., None, None], result @ result, result)
    return np.where(finite[..., None, None], result, np.nan).astype(a.dtype, copy=False)


def _pade(a: Array, coefficients: tuple[float, ...]) -> Array:
    """``q(-a)^-1 q(a)`` with the polynomial ``q``, split into its even and odd part."""
    first = coefficients[0]  # divided by, so that the exponential of 0 is exactly 1
    identity = np.eye(a.shape[-1], dtype=a.dtype)
    square = a @ a
    power = identity
    even, odd = identity, coefficients[1] / first * identity
    for lower, higher in zip(coefficients[2::2], coefficients[3::2], strict=True):
        power = power @ square
        even = even + lower / first * power
        odd = odd + higher / first * power
    odd = a @ odd
    return np.asarray(np.linalg.solve(even - odd, even + odd))
