"""Trigonometric functions and their inverses.

Bounds are in units in the last place, for float32 and float64.

Arguments below 2**32 (float64: 2**28) are reduced to ``n * pi / 2 + r`` in double precision, with
pi in two parts (three). Larger ones are left to the C library, which has all bits of pi that they
need.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

from evergrad.compiler.codegen.vecmath.body import Body, Definitions, typed
from evergrad.compiler.codegen.vecmath.rare import library_where
from evergrad.compiler.codegen.vecmath.tables import (
    ASIN_DOUBLE,
    ASIN_SINGLE,
    ATAN_DOUBLE,
    ATAN_SINGLE,
    COS_DOUBLE,
    COS_SINGLE,
    SIN_DOUBLE,
    SIN_SINGLE,
    TAN_SINGLE,
)

_PI_IN_PARTS = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33)
# Added to a double, it leaves the nearest integer in the low bits.
_MAGIC = 6755399441055744.0
_MOST = {"float": 2.0**32, "double": 2.0**28}
# pi / 2 and pi rounded to the type, and what the rounding lost.
_HALF_PI = {
    "float": (1.5707963705062866, -4.371139000186241e-08),
    "double": (1.5707963267948966, 6.123233995736766e-17),
}
_PI = {key: (2 * high, 2 * rest) for key, (high, rest) in _HALF_PI.items()}

# -- sines --------------------------------------------------------------------------------------


def _is_large(b: Body, args: Sequence[str]) -> str:
    # Whether the size, which is NaN for NaN, is large or infinite.
    size = b.fabs(args[0])
    return b.compare("oge", size, b.hex(_MOST[getattr(b, "element", b.type)]))


class _Reduced:
    """``x = n * pi / 2 + r + rest`` of an argument that is not large. ``rest``, what ``r`` has lost
    by rounding, is of float64 alone."""

    def __init__(self, b: Body) -> None:
        self.b = b
        wide = b.double
        x = b.widened("%x")
        moved = wide.fma(x, wide.hex(2 / math.pi), wide.hex(_MAGIC))
        count = wide.sub(moved, wide.hex(_MAGIC))
        self.n = b.op(f"trunc i64 {wide.bits(moved)} to i32")
        first, second, third = (wide.hex(-part) for part in _PI_IN_PARTS)
        # Exact: a multiple of the last bit of the first part.
        r = wide.fma(count, first, x)
        if b.is_single:
            self.r = b.narrowed(wide.fma(count, second, r))
            return
        product = b.mul(count, second)
        lost = b.fma(count, second, b.neg(product))
        self.r = b.add(r, product)
        rest = b.add(b.sub(r, self.r), product)
        self.rest = b.add(rest, b.fma(count, third, lost))

    def has_bit(self, bit: int, more: int = 0) -> str:
        """Whether a bit of ``n + more`` is set."""
        b = self.b
        found = b.op(f"and i32 {b.op(f'add i32 {self.n}, {more}')}, {bit}")
        return b.op(f"icmp ne i32 {found}, 0")

    def sine(self) -> str:
        """Of ``r + rest``, up to pi / 4."""
        b, r = self.b, self.r
        z = b.mul(r, r)
        if b.is_single:
            return b.fma(b.mul(z, b.polynomial(z, SIN_SINGLE)), r, r)
        more = b.fma(b.mul(z, b.polynomial(z, SIN_DOUBLE)), r, self.rest)
        return b.add(r, b.fma(b.mul(z, b.hex(-0.5)), self.rest, more))

    def cosine(self) -> str:
        """Of ``r + rest``, up to pi / 4."""
        b, r = self.b, self.r
        z = b.mul(r, r)
        if b.is_single:
            near = b.fma(z, b.hex(-0.5), b.hex(1.0))
            return b.fma(b.mul(z, z), b.polynomial(z, COS_SINGLE), near)
        half = b.mul(z, b.hex(0.5))
        near = b.sub(b.hex(1.0), half)
        lost = b.sub(b.sub(b.hex(1.0), near), half)
        more = b.fma(b.mul(z, z), b.polynomial(z, COS_DOUBLE), lost)
        return b.add(near, b.sub(more, b.mul(r, self.rest)))


def _sine_of(b: Body, quarter_turns: int) -> str:
    """The sine of the argument and some quarter turns."""
    reduced = _Reduced(b)
    odd = reduced.has_bit(1, quarter_turns)
    value = b.choose(odd, reduced.cosine(), reduced.sine())
    return b.choose(reduced.has_bit(2, quarter_turns), b.neg(value), value)


def _argument_at_zero(b: Body, value: str) -> str:
    """Zeros of either sign are their own result."""
    return b.choose(b.compare("oeq", "%x", b.hex(0.0)), "%x", value)


@cache
def sin(type: str) -> Definitions:
    """At most 1.5 ulp (float64: 1), for all arguments; NaN for infinities."""
    b = typed(type)
    value = library_where(b, "sin", _is_large, ("%x",), _sine_of(b, 0))
    return b.end("vm_sin", _argument_at_zero(b, value))


@cache
def cos(type: str) -> Definitions:
    """At most 1.5 ulp (float64: 1), for all arguments; NaN for infinities."""
    b = typed(type)
    return b.end("vm_cos", library_where(b, "cos", _is_large, ("%x",), _sine_of(b, 1)))


@cache
def tan(type: str) -> Definitions:
    """At most 3 ulp, for all arguments; NaN for infinities."""
    b = typed(type)
    reduced = _Reduced(b)
    odd = reduced.has_bit(1)
    if b.is_single:
        r = reduced.r
        z = b.mul(r, r)
        near = b.fma(b.mul(z, b.polynomial(z, TAN_SINGLE)), r, r)
        value = b.choose(odd, b.div(b.hex(-1.0), near), near)
    else:
        sine, cosine = reduced.sine(), reduced.cosine()
        upper = b.choose(odd, b.neg(cosine), sine)
        value = b.div(upper, b.choose(odd, sine, cosine))
    value = library_where(b, "tan", _is_large, ("%x",), value)
    return b.end("vm_tan", _argument_at_zero(b, value))


# -- inverses -----------------------------------------------------------------------------------


def _atan_near(b: Body, t: str) -> str:
    """The inverse tangent up to tan(pi / 8) in size."""
    z = b.mul(t, t)
    return b.fma(b.mul(z, b.polynomial(z, ATAN_SINGLE if b.is_single else ATAN_DOUBLE)), t, t)


def _atan_of_ratio(b: Body, opposite: str, adjacent: str) -> str:
    """The angle between 0 and pi / 2 of a triangle's two sides, which are not negative."""
    # Beyond tan(pi / 8): pi / 4 + atan((t - 1) / (t + 1)); beyond tan(3 pi / 8): pi / 2 - atan(1/t)
    middle = b.compare("ogt", opposite, b.mul(adjacent, b.hex(math.tan(math.pi / 8))))
    steep = b.compare("ogt", opposite, b.mul(adjacent, b.hex(math.tan(3 * math.pi / 8))))
    upper = b.choose(middle, b.sub(opposite, adjacent), opposite)
    upper = b.choose(steep, b.neg(adjacent), upper)
    lower = b.choose(middle, b.add(opposite, adjacent), adjacent)
    lower = b.choose(steep, opposite, lower)
    near = _atan_near(b, b.div(upper, lower))
    high, rest = _HALF_PI[b.type]
    base = b.choose(steep, b.hex(high), b.choose(middle, b.hex(high / 2), b.hex(0.0)))
    more = b.choose(steep, b.hex(rest), b.choose(middle, b.hex(rest / 2), b.hex(0.0)))
    return b.add(base, b.add(near, more))


@cache
def atan(type: str) -> Definitions:
    """At most 2 ulp."""
    b = typed(type)
    value = _atan_of_ratio(b, b.fabs("%x"), b.hex(1.0))
    return b.end("vm_atan", b.copysign(value, "%x"))


@cache
def atan2(type: str) -> Definitions:
    """The angle of the point (y, x): at most 3 ulp. Zeros and infinities as in C."""
    b = typed(type)
    opposite, adjacent = b.fabs("%x"), b.fabs("%y")
    # Two infinities have the angle of two equal sides, two zeros that of (0, 1).
    equal = b.compare("oeq", opposite, adjacent)
    zeros = b.op(f"and i1 {equal}, {b.compare('oeq', opposite, b.hex(0.0))}")
    side = b.choose(equal, b.hex(1.0), adjacent)
    height = b.choose(zeros, b.hex(0.0), b.choose(equal, b.hex(1.0), opposite))
    # Large sides are scaled down: their sum may overflow. Small ones are scaled up, since programs
    # flush denormal numbers.
    longer = b.choose(b.compare("ogt", height, side), height, side)
    least, most, up = (1e-20, 1e37, 60) if b.is_single else (1e-200, 1e300, 600)
    factor = b.choose(b.less(longer, b.hex(least)), b.hex(2.0**up), b.hex(1.0))
    factor = b.choose(b.compare("ogt", longer, b.hex(most)), b.hex(2.0**-30), factor)
    value = _atan_of_ratio(b, b.mul(height, factor), b.mul(side, factor))
    back = b.op(f"icmp slt {b.integer} {b.bits('%y')}, 0")
    high, rest = _PI[b.type]
    reflected = b.add(b.sub(b.hex(high), value), b.hex(rest))
    value = b.copysign(b.choose(back, reflected, value), "%x")
    nan = b.compare("uno", "%x", "%y")
    return b.end("vm_atan2", b.choose(nan, b.add("%x", "%y"), value), 2)


class _Arc:
    """Of ``a = |x|``: ``s`` and ``asin(s)``, with ``s = a`` up to 1/2 and ``sqrt((1 - a) / 2)``
    beyond. NaN beyond 1."""

    def __init__(self, b: Body) -> None:
        a = b.fabs("%x")
        self.is_far = b.compare("ogt", a, b.hex(0.5))
        far = b.mul(b.sub(b.hex(1.0), a), b.hex(0.5))
        z = b.choose(self.is_far, far, b.mul(a, a))
        self.s = b.choose(self.is_far, b.sqrt(far), a)
        table = ASIN_SINGLE if b.is_single else ASIN_DOUBLE
        self.more = b.mul(b.mul(z, b.polynomial(z, table)), self.s)
        self.arc = b.add(self.s, self.more)


@cache
def asin(type: str) -> Definitions:
    """At most 2 ulp; NaN beyond 1."""
    b = typed(type)
    found = _Arc(b)
    high, rest = _HALF_PI[b.type]
    far = b.add(b.sub(b.hex(high), b.add(found.arc, found.arc)), b.hex(rest))
    value = b.choose(found.is_far, far, found.arc)
    return b.end("vm_asin", b.copysign(value, "%x"))


@cache
def acos(type: str) -> Definitions:
    """At most 2 ulp; NaN beyond 1."""
    b = typed(type)
    found = _Arc(b)
    high, rest = _HALF_PI[b.type]
    signed, more = (b.copysign(v, "%x") for v in (found.s, found.more))
    near = b.sub(b.hex(high), b.add(signed, b.sub(more, b.hex(rest))))
    double = b.add(found.arc, found.arc)
    high, rest = _PI[b.type]
    left = b.add(b.sub(b.hex(high), double), b.hex(rest))
    far = b.choose(b.less("%x", b.hex(0.0)), left, double)
    return b.end("vm_acos", b.choose(found.is_far, far, near))
