"""Special functions on NumPy arrays: accurate to a few units in the last place of a double.

Each is evaluated in double precision, block by block so that temporaries stay in cache; those that
are common in single precision have evaluations of their own for it. Knows nothing of tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from evergrad.ops.rows.special import evaluate_float32 as single
from evergrad.ops.rows.special import tables
from evergrad.ops.rows.special.blocks import Array, blockwise, chebyshev, polynomial

_SQRT2 = math.sqrt(2)
_SQRT_PI = math.sqrt(math.pi)


# -- error functions ----------------------------------------------------------------------------


def _exp_of_square(factor: float, x: Array) -> Array:
    """``exp(factor * x * x)``, with the square taken to twice the precision."""
    high = x.astype(np.float32).astype(np.float64)
    return np.exp(factor * high * high) * np.exp(factor * (x - high) * (x + high))


def _erf_near(x: Array) -> Array:
    """For -1 <= x <= 1."""
    result: Array = x + x * polynomial(tables.ERF_NEAR, x * x)
    return result


def _erfcx_positive(x: Array) -> Array:
    result: Array = polynomial(tables.ERFCX, 1 - 7.5 / (x + 3.75)) / (1 + 2 * x)
    return result


def _erfc_positive(x: Array) -> Array:
    x = np.minimum(x, 30)  # where it has long been 0
    return _exp_of_square(-1, x) * _erfcx_positive(x)


def _erf(x: Array) -> object:
    out = _erf_near(x)
    far = np.abs(x) > 1
    out[far] = np.copysign(1 - _erfc_positive(np.abs(x[far])), x[far])
    return out


def _erfc(x: Array) -> Array:
    out = 1 - _erf_near(x)
    far = np.abs(x) > 0.5
    tail = _erfc_positive(np.abs(x[far]))
    out[far] = np.where(x[far] > 0, tail, 2 - tail)
    return out


def _erfcx(x: Array) -> object:
    tail = _erfcx_positive(np.abs(x))
    return np.where(x >= 0, tail, 2 * _exp_of_square(1, np.clip(x, -30, 0)) - tail)


def _erfcinv_small(q: Array) -> Array:
    """The y with ``erfc(y) = q``, for q <= 1/2: Newton's method on the logarithm of both sides."""
    target = np.log(q)
    y = np.sqrt(np.maximum(-target - 0.5 * np.log(np.maximum(-target, 0.5)) - 0.5, 0.05))
    for _ in range(5):
        scaled = _erfcx_positive(y)
        y = y + (np.log(scaled) - y * y - target) * (scaled * (_SQRT_PI / 2))
    return y


def _erfinv(x: Array) -> Array:
    """Newton's method, in the middle on ``erf``, outside on ``log(erfc)``."""
    size = np.abs(x)
    middle = np.minimum(size, 0.5)
    y = middle * (_SQRT_PI / 2)
    for _ in range(4):
        step = (_erf_near(y) - middle) * (_SQRT_PI / 2) * np.exp(y * y)
        y = y - step / (1 + y * step)
    y = np.where(size > 0.5, _erfcinv_small(np.where(size > 0.5, 1 - size, 0.5)), y)
    y = np.where(size == 1, np.inf, np.where(size <= 1, y, np.nan))
    return np.copysign(y, x)


def _ndtr(x: Array) -> Array:
    low = np.clip(x, -40, 0)
    left = _exp_of_square(-0.5, low) * _erfcx_positive(low / -_SQRT2) / 2
    return np.where(x < -1, left, 1 - _erfc(x / _SQRT2) / 2)


def _log_ndtr(x: Array) -> object:
    low = np.minimum(x, 0)
    left = np.log(_erfcx_positive(low / -_SQRT2) / 2) - low * low / 2
    return np.where(x < -1, left, np.log1p(-_ndtr(-x)))


def _ndtri(p: Array) -> Array:
    tail = np.minimum(p, 1 - p)
    outer = tail < 0.25
    y = np.where(outer, _erfcinv_small(np.where(outer, 2 * tail, 0.5)), _erfinv(np.abs(2 * p - 1)))
    y = np.where(tail == 0, np.inf, np.where(tail > 0, y, np.nan))
    return _SQRT2 * np.where(p < 0.5, -y, y)


erf: Any = blockwise(_erf, single.erf)
erfc: Any = blockwise(_erfc, single.erfc)
erfcx: Any = blockwise(_erfcx)
erfinv: Any = blockwise(_erfinv, single.erfinv)
ndtr: Any = blockwise(_ndtr, single.ndtr)
log_ndtr: Any = blockwise(_log_ndtr)
ndtri: Any = blockwise(_ndtri)


# -- gamma functions ----------------------------------------------------------------------------

# Bernoulli numbers B2, B4, ..., B20: the tails of the asymptotic series below.
_BERNOULLI = (
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798,
    -174611 / 330,
)  # fmt: skip
_STIRLING = tuple(b / (2 * k * (2 * k - 1)) for k, b in enumerate(_BERNOULLI[:8], 1))
_DIGAMMA_TAIL = tuple(b / (2 * k) for k, b in enumerate(_BERNOULLI[:8], 1))
_EULER_MACLAURIN = tuple(b / math.factorial(2 * k) for k, b in enumerate(_BERNOULLI, 1))


def _fraction(x: Array) -> Array:
    """What ``x`` has over the nearest integer: enough to know functions of period 1."""
    return x - np.rint(x)


def _lgamma_far(x: Array) -> Array:
    """Stirling's series, for x >= 8."""
    tail = polynomial(_STIRLING, 1 / (x * x)) / x
    result: Array = (x - 0.5) * (np.log(x) - 1) + (0.5 * math.log(2 * math.pi) - 0.5 + tail)
    return result


def _lgamma_near(x: Array) -> Array:
    """For 0 < x < 8: moved to between 1 and 2, where a polynomial knows it.

    ``one`` and ``two`` are the distances from the zeros there, kept exact.
    """
    below = x < 1
    one, two = np.where(below, x, x - 1), np.where(below, x - 1, x - 2)
    product = np.ones_like(x)
    for _ in range(6):
        above = two >= 0
        product = np.where(above, product * one, product)
        one, two = np.where(above, one - 1, one), np.where(above, two - 1, two)
    moved = np.log(np.where(below, x, product))
    core = one * two * polynomial(tables.LGAMMA, one + two)
    return core + np.where(below, -moved, moved)


def _lgamma_positive(x: Array) -> Array:
    far = x >= 8
    near = _lgamma_near(np.where(far, 1, x))
    return np.where(far, _lgamma_far(np.where(far, x, 8)), near)


def _lgamma(x: Array) -> Array:
    out = _lgamma_positive(np.abs(x))
    negative = x < 0
    if negative.any():
        z = x[negative]
        sine = np.abs(np.sin(math.pi * _fraction(z)))
        out[negative] = math.log(math.pi) - np.log(np.abs(z) * sine) - out[negative]
        out[np.isneginf(x)] = np.inf
    return np.where(x == 0, np.inf, out)


def _digamma_positive(x: Array) -> Array:
    total = np.zeros_like(x)
    for _ in range(10):
        below = x < 10
        total -= np.where(below, 1 / x, 0)
        x = np.where(below, x + 1, x)
    square = 1 / (x * x)
    return total + np.log(x) - 0.5 / x - square * polynomial(_DIGAMMA_TAIL, square)


def _digamma(x: Array) -> Array:
    negative = x < 0
    out = _digamma_positive(np.where(negative, 1 - x, x))
    rest = _fraction(x)
    reflected = out - math.pi / np.tan(math.pi * rest)
    out = np.where(negative, np.where(rest == 0, np.nan, reflected), out)
    return np.where(x == 0, np.copysign(np.inf, -x), out)


def _trigamma(x: Array) -> Array:
    """Ten steps up, then the asymptotic series; below zero by reflection."""
    negative = x < 0
    z = np.where(negative, 1 - x, x)
    far = 1 / (z + 10)
    square = far * far
    out = far + square * (0.5 + far * polynomial(_BERNOULLI, square))
    for k in range(10):
        out += (z + k) ** -2.0
    if negative.any():
        sine = np.sin(math.pi * _fraction(x[negative]))
        out[negative] = (math.pi / sine) ** 2 - out[negative]
    return out


def _zeta(s: Array, q: Array) -> Array:
    """The sum of ``(q + k) ** -s`` over k >= 0: some terms, then the Euler-Maclaurin formula."""
    pole = (q <= 0) & (q == np.floor(q))
    outside = (s < 1) | ((q <= 0) & (s != np.floor(s))) | np.isnan(s) | np.isnan(q)
    w = np.where(pole | outside, 1000, q)
    total = np.zeros_like(w)
    enough = np.minimum(12 + s, 1000)  # the larger s, the later the formula begins to hold
    while (below := w < enough).any():
        total += np.where(below, np.where(below, w, 1) ** -s, 0)
        w = np.where(below, w + 1, w)
    power = w**-s
    total += power * w / (s - 1) + power / 2
    factor = s * power / w
    for k, b in enumerate(_EULER_MACLAURIN, 1):
        total += b * factor
        factor = factor * (s + 2 * k - 1) * (s + 2 * k) / (w * w)
    total = np.where(np.isposinf(q), 0, total)
    return np.where(outside, np.nan, np.where(pole | (s == 1), np.inf, total))


lgamma: Any = blockwise(_lgamma, single.lgamma)
digamma: Any = blockwise(_digamma, single.digamma)
trigamma: Any = blockwise(_trigamma, single.trigamma)
zeta: Any = blockwise(_zeta)


def polygamma(x: Array, *, n: int) -> object:
    """The derivative number ``n`` >= 1 of digamma."""
    if n == 1:
        return trigamma(x)
    order = np.asarray(n + 1, x.dtype)
    return (-1) ** (n + 1) * math.factorial(n) * zeta(order, x)


_LARGEST_SERIES = 4000


def _gamma_prefix(a: Array, x: Array) -> Array:
    result: Array = np.exp(a * np.log(x) - x - _lgamma(a))
    return result


def _lower_series(a: Array, x: Array) -> Array:
    """The regularised lower incomplete gamma function, for x not much larger than a."""
    term = 1 / a
    total = term.copy()
    for k in range(1, _LARGEST_SERIES):
        term = term * (x / (a + k))
        total += term
        if not (term > total * 1e-17).any():
            break
    return total * _gamma_prefix(a, x)


def _upper_fraction(a: Array, x: Array) -> Array:
    """The regularised upper incomplete gamma function by its continued fraction, for x > a."""
    b = x + 1 - a
    c = np.full_like(x, 1e300)
    d = 1 / b
    total = d.copy()
    for k in range(1, _LARGEST_SERIES):
        numerator = -k * (k - a)
        b = b + 2
        d = 1 / (numerator * d + b)
        c = b + numerator / c
        total = total * (d * c)
        if not (np.abs(d * c - 1) > 1e-16).any():
            break
    return total * _gamma_prefix(a, x)


def _incomplete_gamma(a: Array, x: Array, upper: bool) -> Array:
    inside = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
    by_series = x <= a + 1
    one, two = np.where(inside & by_series, a, 1), np.where(inside & by_series, x, 1)
    lower = _lower_series(one, two)
    one, two = np.where(inside & ~by_series, a, 1), np.where(inside & ~by_series, x, 3)
    tail = _upper_fraction(one, two)
    found = np.where(by_series, 1 - lower, tail) if upper else np.where(by_series, lower, 1 - tail)
    # At the borders all of the mass is on one side.
    wrong = (a < 0) | (x < 0) | ((a == 0) & (x == 0)) | (np.isinf(a) & np.isinf(x))
    all_below = (a == 0) | np.isinf(x)
    border = np.where(all_below ^ upper, 1.0, 0.0)
    border = np.where(wrong | np.isnan(a) | np.isnan(x), np.nan, border)
    return np.where(inside, found, border)


gammainc: Any = blockwise(lambda a, x: _incomplete_gamma(a, x, upper=False))
gammaincc: Any = blockwise(lambda a, x: _incomplete_gamma(a, x, upper=True))


# -- modified Bessel functions of the first kind ------------------------------------------------


def _bessel(order: int, scaled: bool) -> Callable[[Array], Array]:
    near, far = (
        (tables.I0_NEAR, tables.I0_FAR), (tables.I1_NEAR, tables.I1_FAR),
    )[order]  # fmt: skip

    def function(x: Array) -> Array:
        size = np.abs(x)
        small = np.minimum(size, 8)
        large = np.maximum(size, 8)
        inner = chebyshev(small / 4 - 1, near) * small**order
        out = np.where(size <= 8, inner, chebyshev(16 / large - 1, far) / np.sqrt(large))
        if not scaled:
            out = out * np.exp(size)
        return np.copysign(out, x) if order else out

    return function


i0: Any = blockwise(_bessel(0, scaled=False), single.bessel(0, scaled=False))
i0e: Any = blockwise(_bessel(0, scaled=True), single.bessel(0, scaled=True))
i1: Any = blockwise(_bessel(1, scaled=False), single.bessel(1, scaled=False))
i1e: Any = blockwise(_bessel(1, scaled=True), single.bessel(1, scaled=True))
