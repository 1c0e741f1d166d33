"""Error functions, gamma functions and distances.

Bounds are in units in the last place of float32. Of float64, ``erf`` and ``erfc`` call the C
library, ``fmod`` and ``hypot`` are computed here, and the others have no code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

from evergrad.compiler.codegen.vecmath.body import Body, Definitions, typed
from evergrad.compiler.codegen.vecmath.exponentials import Reduced, exp_or_zero
from evergrad.compiler.codegen.vecmath.logarithms import log
from evergrad.compiler.codegen.vecmath.rare import library_where
from evergrad.compiler.codegen.vecmath.tables import COS_DOUBLE, SIN_DOUBLE
from evergrad.ops.rows.special.tables import (
    ERF_NEAR_SINGLE,
    ERFCX_SINGLE,
    ERFINV_FAR_SINGLE,
    ERFINV_NEAR_SINGLE,
    LOG_ERFC_SINGLE,
    NORMAL_TAIL_SINGLE,
)


@cache
def _from_library(name: str) -> Definitions:
    """A function of float64 by that of the C library."""
    b = Body("double")
    return b.end(f"vm_{name}", b.library(name, "%x"))


# -- error functions ----------------------------------------------------------------------------


@cache
def erf(type: str) -> Definitions:
    """At most 2 ulp: powers of ``x**2`` up to 1, ``1 - exp(log erfc)`` beyond."""
    if type == "f64":
        return _from_library("erf")
    b = typed(type)
    a = b.fabs("%x")
    z = b.mul("%x", "%x")
    near = b.fma(b.polynomial(z, ERF_NEAR_SINGLE), "%x", "%x")
    logarithm = b.polynomial(b.least(a, 4.0), LOG_ERFC_SINGLE)
    far = b.copysign(b.sub(b.hex(1.0), Reduced(b, logarithm).exp()), "%x")
    # NaN takes the near branch.
    return b.end("vm_erf", b.choose(b.compare("oge", a, b.hex(1.0)), far, near))


@cache
def erfc(type: str) -> Definitions:
    """At most 5 ulp; 0 where the result would be denormal (from 9.19 on)."""
    if type == "f64":
        return _from_library("erfc")
    b = typed(type)
    a = b.least(b.fabs("%x"), 10.0)
    t = b.sub(b.hex(1.0), b.div(b.hex(7.5), b.add(a, b.hex(3.75))))
    scaled = b.div(b.polynomial(t, ERFCX_SINGLE), b.fma(a, b.hex(2.0), b.hex(1.0)))
    # The exponential amplifies the rounding of the square: what it lost is a factor.
    square = b.mul(a, a)
    lost = b.fma(a, a, b.neg(square))
    grown = exp_or_zero(b, b.neg(square))
    grown = b.fma(b.neg(lost), grown, grown)
    right = b.mul(scaled, grown)
    value = b.choose(b.less("%x", b.hex(0.0)), b.sub(b.hex(2.0), right), right)
    return b.end("vm_erfc", b.nan_for_nan("%x", value))


@cache
def ndtr(type: str) -> Definitions:
    """At most 24 ulp (float64: 100) from -8 on: the tail is ``exp(-x**2 / 2)`` times a polynomial,
    which amplifies the rounding of the square. The density shares the exponential: where both are
    needed it is computed once."""
    b = typed(type)
    if type == "f64":
        far = b.library("erfc", b.mul("%x", b.hex(-math.sqrt(0.5))))
        return b.end("vm_ndtr", b.mul(far, b.hex(0.5)))
    t = b.div(b.hex(1.0), b.add(b.fabs("%x"), b.hex(4.0)))
    grown = exp_or_zero(b, b.mul(b.mul("%x", "%x"), b.hex(-0.5)))
    tail = b.mul(grown, b.polynomial(t, NORMAL_TAIL_SINGLE))
    value = b.choose(b.less("%x", b.hex(0.0)), tail, b.sub(b.hex(1.0), tail))
    return b.end("vm_ndtr", value)


@cache
def erfinv(type: str) -> Definitions:
    """At most 4 ulp: two polynomials, in ``w = -log(1 - x**2)`` and in its root. float32 alone."""
    b = typed(type)
    product = b.mul(b.sub(b.hex(1.0), "%x"), b.add(b.hex(1.0), "%x"))
    w = b.neg(b.use(log, "vm_log", product))
    near = b.polynomial(b.sub(w, b.hex(2.5)), ERFINV_NEAR_SINGLE)
    far = b.polynomial(b.sub(b.sqrt(w), b.hex(3.0)), ERFINV_FAR_SINGLE)
    ratio = b.choose(b.compare("ogt", w, b.hex(5.0)), far, near)
    ends = b.compare("oeq", b.fabs("%x"), b.hex(1.0))
    return b.end("vm_erfinv", b.mul("%x", b.choose(ends, b.hex(math.inf), ratio)))


# -- gamma functions ----------------------------------------------------------------------------
# In double precision, as digits cancel. Six steps up whatever the argument: the factors x, x + 1,
# ..., x + 5 make three pairs with equal sums, whose products are q, q + 4 and q + 6.

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_LGAMMA_TAIL = (
    1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400,
)  # fmt: skip
_DIGAMMA_TAIL = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132)


class _Steps:
    """Six steps up from a number that is not negative."""

    def __init__(self, b: Body, z: str) -> None:
        self.q = b.mul(z, b.add(z, b.hex(5.0)))
        product = b.mul(b.add(self.q, b.hex(4.0)), b.add(self.q, b.hex(6.0)))
        self.product = b.mul(self.q, product)
        self.far = b.add(z, b.hex(6.0))


def _turn(b: Body, x: str) -> tuple[str, str, str]:
    """What ``x`` has over the nearest integer, and the sine and cosine of pi times that.

    Halved and doubled: polynomials hold up to pi / 4.
    """
    rest = b.sub(x, b.intrinsic("rint", x))
    half = b.mul(rest, b.hex(math.pi / 2))
    z = b.mul(half, half)
    sine = b.fma(b.mul(z, b.polynomial(z, SIN_DOUBLE)), half, half)
    cosine = b.fma(b.mul(z, z), b.polynomial(z, COS_DOUBLE), b.fma(z, b.hex(-0.5), b.hex(1.0)))
    doubled = b.mul(b.add(sine, sine), cosine)
    return rest, doubled, b.fma(b.mul(sine, b.hex(-2.0)), sine, b.hex(1.0))


@cache
def lgamma(type: str) -> Definitions:
    """At most 2 ulp (4 near the zeros between -3 and 0). float32 alone."""
    f = typed(type)
    b = f.double
    x = f.widened("%x")
    z = b.fabs(x)
    steps = _Steps(b, z)
    far = steps.far
    out = b.mul(b.sub(far, b.hex(0.5)), b.sub(b.use(log, "vm_log", far), b.hex(1.0)))
    tail = b.div(b.polynomial(b.div(b.hex(1.0), b.mul(far, far)), _LGAMMA_TAIL), far)
    out = b.add(out, b.add(tail, b.hex(_HALF_LOG_2PI - 0.5)))
    out = b.sub(out, b.use(log, "vm_log", steps.product))
    _, sine, _ = _turn(b, x)
    reflected = b.use(log, "vm_log", b.mul(z, b.fabs(sine)))
    reflected = b.sub(b.sub(b.hex(math.log(math.pi)), reflected), out)
    value = b.choose(b.less(x, b.hex(0.0)), reflected, out)
    exact = f.op(f"or i1 {b.compare('oeq', x, b.hex(1.0))}, {b.compare('oeq', x, b.hex(2.0))}")
    value = b.choose(exact, b.hex(0.0), value)
    infinite = b.compare("oeq", z, b.hex(math.inf))
    return f.end("vm_lgamma", f.narrowed(b.choose(infinite, b.hex(math.inf), value)))


@cache
def digamma(type: str) -> Definitions:
    """At most 2 ulp (more near its zeros). float32 alone."""
    f = typed(type)
    b = f.double
    x = f.widened("%x")
    negative = b.less(x, b.hex(0.0))
    z = b.choose(negative, b.sub(b.hex(1.0), x), x)
    steps = _Steps(b, z)
    one_over = b.div(b.hex(1.0), steps.far)
    square = b.mul(one_over, one_over)
    out = b.sub(b.use(log, "vm_log", steps.far), b.mul(one_over, b.hex(0.5)))
    out = b.sub(out, b.mul(square, b.polynomial(square, _DIGAMMA_TAIL)))
    sum_of_products = b.polynomial(steps.q, (24.0, 20.0, 3.0))
    numerator = b.mul(b.fma(z, b.hex(2.0), b.hex(5.0)), sum_of_products)
    out = b.sub(out, b.div(numerator, steps.product))
    rest, sine, cosine = _turn(b, x)
    reflected = b.sub(out, b.div(b.mul(cosine, b.hex(math.pi)), sine))
    pole = b.compare("oeq", rest, b.hex(0.0))
    reflected = b.choose(pole, b.hex(math.nan), reflected)
    value = b.choose(negative, reflected, out)
    value = b.choose(b.compare("oeq", x, b.hex(math.inf)), x, value)
    at_zero = b.copysign(b.hex(math.inf), b.neg(x))
    value = b.choose(b.compare("oeq", x, b.hex(0.0)), at_zero, value)
    return f.end("vm_digamma", f.narrowed(value))


# -- distances and remainders -------------------------------------------------------------------


def _is_extreme(b: Body, args: Sequence[str]) -> str:
    """Whether the square of one of two numbers is infinite or denormal."""
    sizes = [b.fabs(a) for a in args]
    longer = b.choose(b.compare("ugt", *sizes), *sizes)
    large = b.compare("ugt", longer, b.hex(1e150))
    return b.either(large, b.less(longer, b.hex(1e-140)))


@cache
def hypot(type: str) -> Definitions:
    """At most 1 ulp; infinite if one is, whatever the other."""
    f = typed(type)
    if type == "f64":
        value = f.sqrt(f.fma("%x", "%x", f.mul("%y", "%y")))
        return f.end("vm_hypot", library_where(f, "hypot", _is_extreme, ("%x", "%y"), value), 2)
    b = f.double
    x, y = f.widened("%x"), f.widened("%y")
    value = f.narrowed(b.sqrt(b.fma(x, x, b.mul(y, y))))
    infinite = [f.compare("oeq", f.fabs(v), f.hex(math.inf)) for v in ("%x", "%y")]
    either = f.op(f"or i1 {infinite[0]}, {infinite[1]}")
    return f.end("vm_hypot", f.choose(either, f.hex(math.inf), value), 2)


# Quotients below are whole numbers and those next to them: of the remainder nothing is lost.
_QUOTIENT = {"float": 2.0**23, "double": 2.0**52}


def _has_large_quotient(b: Body, args: Sequence[str]) -> str:
    """Whether a quotient is large or undefined, or the divisor infinite."""
    x, y = args
    most = _QUOTIENT[getattr(b, "element", b.type)]
    large = b.compare("uge", b.fabs(b.div(x, y)), b.hex(most))
    return b.either(large, b.compare("oeq", b.fabs(y), b.hex(math.inf)))


@cache
def fmod(type: str) -> Definitions:
    """Exact: the quotient is right or off by one, and the remainder is rounded once, to itself."""
    b = typed(type)
    a, d = b.fabs("%x"), b.fabs("%y")
    whole = b.intrinsic("trunc", b.div(a, d))
    rest = b.fma(b.neg(whole), d, a)
    rest = b.choose(b.less(rest, b.hex(0.0)), b.add(rest, d), rest)
    rest = b.choose(b.compare("oge", rest, d), b.sub(rest, d), rest)
    value = b.copysign(rest, "%x")
    return b.end("vm_fmod", library_where(b, "fmod", _has_large_quotient, ("%x", "%y"), value), 2)
