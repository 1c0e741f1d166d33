"""Special functions of float32 blocks: within a few units in the last place of a single.

Fewer terms than double precision needs. Where digits cancel, the work is done in double; elsewhere
in single, which takes twice as many elements at a time. Choices are made on bits, since branches
on irregular conditions would cost more than the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from evergrad.ops.rows.elementwise.blocked import pick
from evergrad.ops.rows.special import tables
from evergrad.ops.rows.special.blocks import Array, polynomial

_SIGN = np.int32(-(2**31))
_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)

# Tails of the asymptotic series of lgamma, digamma and trigamma, by powers of 1 / x**2.
_LGAMMA_TAIL = (
    1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400,
)  # fmt: skip
_DIGAMMA_TAIL = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132)
_TRIGAMMA_TAIL = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66)


def _with_sign_of(x: Array, size: Array) -> Array:
    """``np.copysign`` of float32 numbers that are not negative."""
    bits = x.view(np.int32) & _SIGN
    bits |= size.view(np.int32)
    return bits.view(np.float32)


# -- error functions ----------------------------------------------------------------------------


def erf(x: Array) -> Array:
    size = np.abs(x)
    near = polynomial(tables.ERF_NEAR_SINGLE, x * x)
    near *= x
    near += x
    far = polynomial(tables.LOG_ERFC_SINGLE, np.minimum(size, 4))
    np.exp(far, out=far)
    return pick(size < 1, near, _with_sign_of(x, 1 - far))


def erfc(x: Array) -> Array:
    size = np.abs(x).astype(np.float64)
    right = polynomial(tables.ERFCX_SINGLE, 1 - 7.5 / (size + 3.75))
    right /= 1 + 2 * size
    size *= -size
    right *= np.exp(size, out=size)
    single = right.astype(np.float32)
    return pick(x < 0, 2 - single, single)


def erfinv(x: Array) -> Array:
    """By two polynomials, in ``w = -log(1 - x * x)`` and in its root."""
    w = -np.log((1 - x) * (1 + x))
    ratio = polynomial(tables.ERFINV_NEAR_SINGLE, w - 2.5)
    far = w > 5
    if far.any():
        outer = polynomial(tables.ERFINV_FAR_SINGLE, np.sqrt(w) - 3)
        ratio = pick(far, outer, ratio)
    ratio *= x
    ends = np.isposinf(w)
    if ends.any():
        ratio[ends] = np.copysign(np.inf, x[ends])
    return ratio


def ndtr(x: Array) -> Array:
    """1 minus the tail to the right of 0, the tail to the left of it."""
    size = np.abs(x)
    tail = polynomial(tables.NORMAL_TAIL_SINGLE, np.reciprocal(size + 4))
    size *= size
    size *= -0.5
    tail *= np.exp(size, out=size)
    sign = x.view(np.int32) & _SIGN
    out = (sign == 0).astype(np.float32)
    sign ^= tail.view(np.int32)
    out -= sign.view(np.float32)
    result: Array = out
    return result


# -- gamma functions ----------------------------------------------------------------------------
# All take six steps up whatever the argument. The factors x, x + 1, ..., x + 5 make three pairs
# with equal sums, whose products are ``q``, ``q + 4`` and ``q + 6``.


def _pairs(x: Array) -> Array:
    result: Array = x * (x + 5)
    return result


def lgamma(x: Array) -> Any:
    wide = x.astype(np.float64)
    z = np.abs(wide)
    q = _pairs(z)
    far = z + 6
    out = (far - 0.5) * (np.log(far) - 1)
    out += _HALF_LOG_2PI - 0.5 + polynomial(_LGAMMA_TAIL, 1 / (far * far)) / far
    out -= np.log(q * (q + 4) * (q + 6))
    negative = wide < 0
    if negative.any():
        at = wide[negative]
        sine = np.abs(np.sin(math.pi * (at - np.rint(at))))
        out[negative] = math.log(math.pi) - np.log(-at * sine) - out[negative]
    out[np.isinf(wide)] = np.inf
    out[(wide == 1) | (wide == 2)] = 0
    return out


def digamma(x: Array) -> Any:
    wide = x.astype(np.float64)
    negative = wide < 0
    reflected = negative.any()
    z = np.where(negative, 1 - wide, wide) if reflected else wide
    q = _pairs(z)
    far = z + 6
    square = 1 / (far * far)
    out = np.log(far) - 0.5 / far - square * polynomial(_DIGAMMA_TAIL, square)
    out -= (2 * z + 5) * polynomial((24.0, 20.0, 3.0), q) / (q * (q + 4) * (q + 6))
    if reflected:
        rest = wide[negative]
        rest = rest - np.rint(rest)
        out[negative] -= math.pi / np.tan(math.pi * rest)
        out[negative] = np.where(rest == 0, np.nan, out[negative])
    out[np.isposinf(wide)] = np.inf
    zero = wide == 0
    out[zero] = np.copysign(np.inf, -wide[zero])
    return out


def trigamma(x: Array) -> Array:
    wide = x.astype(np.float64)
    negative = wide < 0
    reflected = negative.any()
    z = np.where(negative, 1 - wide, wide) if reflected else wide
    q = _pairs(z)
    far = 1 / (z + 6)
    square = far * far
    out = far + square * (0.5 + far * polynomial(_TRIGAMMA_TAIL, square))
    for product in (q, q + 4, q + 6):
        out += (4 * q + 25 - 2 * product) / (product * product)
    if reflected:
        sine = np.sin(math.pi * (wide[negative] - np.rint(wide[negative])))
        out[negative] = (math.pi / sine) ** 2 - out[negative]
    out[np.isposinf(wide)] = 0
    return out


# -- modified Bessel functions of the first kind ------------------------------------------------


def bessel(order: int, scaled: bool) -> Callable[[Array], Array]:
    near: Sequence[float] = (tables.I0_NEAR_SINGLE, tables.I1_NEAR_SINGLE)[order]
    far: Sequence[float] = (tables.I0_FAR_SINGLE, tables.I1_FAR_SINGLE)[order]

    def function(x: Array) -> Array:
        wide = x.astype(np.float64)
        size = np.abs(wide)
        out = polynomial(near, np.minimum(size, 8) / 4 - 1)
        if order:
            out *= wide
        beyond = size > 8
        if beyond.any():
            large = size[beyond]
            outer = polynomial(far, 16 / large - 1) / np.sqrt(large)
            out[beyond] = np.copysign(outer, wide[beyond]) if order else outer
        return out if scaled else out * np.exp(size)

    return function
