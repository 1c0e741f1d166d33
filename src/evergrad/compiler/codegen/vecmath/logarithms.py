"""Logarithms and the inverse hyperbolic functions, which are made of them.

Bounds are in units in the last place, for float32 and float64.
"""

from __future__ import annotations

import math
from functools import cache

from evergrad.compiler.codegen.vecmath.body import Body, Definitions, typed
from evergrad.compiler.codegen.vecmath.exponentials import format_of
from evergrad.compiler.codegen.vecmath.tables import LOG_DOUBLE
from evergrad.ops.rows.special.tables import LOG_SINGLE

# The exponent of x / sqrt(1/2), so that the mantissa is in [sqrt(1/2), sqrt(2)).
_ROOT_BITS = {"float": 1060439283, "double": 0x3FE6A09E667F3BCD}
_TINY = {"float": 1.17549435e-38, "double": 2.2250738585072014e-308}
_UP = {"float": 8388608.0, "double": 4503599627370496.0}


class Parts:
    """A positive number as ``2**power * (1 + f)``, and ``log(1 + f)`` as the sum ``f + rest``."""

    def __init__(self, b: Body, argument: str) -> None:
        f = format_of(b)
        tiny = b.less(argument, b.hex(_TINY[b.type]))
        x = b.choose(tiny, b.mul(argument, b.hex(_UP[b.type])), argument)
        integer = b.integer
        distance = b.op(f"sub {integer} {b.bits(x)}, {_ROOT_BITS[b.type]}")
        e = b.op(f"ashr {integer} {distance}, {f.mantissa_bits}")
        shifted = b.op(f"shl {integer} {e}, {f.mantissa_bits}")
        self.f = b.sub(b.number(b.op(f"sub {integer} {b.bits(x)}, {shifted}")), b.hex(1.0))
        power = b.op(f"sitofp {self._narrow(b, e)} to {b.type}")
        self.power = b.choose(tiny, b.sub(power, b.hex(float(f.mantissa_bits))), power)
        self.b = b

    @staticmethod
    def _narrow(b: Body, e: str) -> str:
        """32 bits: not all processors convert vectors of 64."""
        return f"i32 {e}" if b.is_single else f"i32 {b.op(f'trunc i64 {e} to i32')}"

    def rest(self) -> tuple[str, str]:
        """``log(1 + f) - f`` as a large and a small term, ``-f**2 / 2`` the large one."""
        b, f = self.b, self.f
        square = b.mul(f, f)
        if b.is_single:
            return square, b.mul(b.mul(f, square), b.polynomial(f, LOG_SINGLE))
        s = b.div(f, b.add(f, b.hex(2.0)))
        z = b.mul(s, s)
        half = b.mul(square, b.hex(0.5))
        series = b.mul(z, b.polynomial(z, LOG_DOUBLE))
        return square, b.mul(s, b.add(half, series))

    def log(self) -> str:
        """log(x): the terms of the exponent are added to the smallest first."""
        b, f = self.b, format_of(self.b)
        square, rest = self.rest()
        rest = b.fma(self.power, b.hex(f.log_2_low), rest)
        rest = b.fma(square, b.hex(-0.5), rest)
        return b.fma(self.power, b.hex(f.log_2_high), b.add(self.f, rest))

    def of_mantissa(self) -> str:
        """log(1 + f)"""
        b = self.b
        square, rest = self.rest()
        return b.add(self.f, b.fma(square, b.hex(-0.5), rest))


def _at_the_edges(b: Body, value: str) -> str:
    """Infinity and NaN are their own result; zeros give -inf, negative numbers NaN."""
    usual = b.less(b.fabs("%x"), b.hex(math.inf))
    value = b.choose(usual, value, "%x")
    value = b.choose(b.compare("oeq", "%x", b.hex(0.0)), b.hex(-math.inf), value)
    return b.choose(b.less("%x", b.hex(0.0)), b.hex(math.nan), value)


@cache
def log(type: str) -> Definitions:
    """At most 1 ulp; -inf at 0, NaN below, denormals included."""
    b = typed(type)
    return b.end("vm_log", _at_the_edges(b, Parts(b, "%x").log()))


@cache
def log2(type: str) -> Definitions:
    """At most 2 ulp; exact for powers of 2."""
    b = typed(type)
    parts = Parts(b, "%x")
    value = b.fma(parts.of_mantissa(), b.hex(1 / math.log(2)), parts.power)
    return b.end("vm_log2", _at_the_edges(b, value))


@cache
def log10(type: str) -> Definitions:
    """At most 2.5 ulp."""
    b = typed(type)
    parts = Parts(b, "%x")
    high = 0.301025390625  # of few bits: its products with exponents are exact
    low = 4.605038981195214e-06
    value = b.mul(parts.of_mantissa(), b.hex(1 / math.log(10)))
    value = b.fma(parts.power, b.hex(high), b.fma(parts.power, b.hex(low), value))
    return b.end("vm_log10", _at_the_edges(b, value))


@cache
def log1p(type: str) -> Definitions:
    """At most 3 ulp: a quotient corrects the rounding of ``1 + x``."""
    b = typed(type)
    u = b.add("%x", b.hex(1.0))
    d = b.sub(u, b.hex(1.0))
    found = b.use(log, "vm_log", u)
    exact = b.compare("oeq", d, b.hex(0.0))
    divisor = b.choose(exact, b.hex(1.0), d)
    value = b.mul(found, b.div("%x", divisor))
    value = b.choose(exact, "%x", value)
    large = b.compare("ogt", "%x", b.hex(1e30))
    value = b.choose(large, found, value)
    low = b.compare("ole", "%x", b.hex(-1.0))
    return b.end("vm_log1p", b.choose(low, found, value))


_LARGE = 1e9


def _log_of_double(b: Body, a: str) -> str:
    """log(2 a)"""
    return b.add(b.use(log, "vm_log", a), b.hex(math.log(2)))


@cache
def asinh(type: str) -> Definitions:
    """At most 4 ulp."""
    b = typed(type)
    a = b.fabs("%x")
    square = b.mul(a, a)
    root = b.sqrt(b.add(square, b.hex(1.0)))
    more = b.add(a, b.div(square, b.add(root, b.hex(1.0))))
    value = b.use(log1p, "vm_log1p", more)
    large = b.compare("ogt", a, b.hex(_LARGE))
    value = b.choose(large, _log_of_double(b, a), value)
    return b.end("vm_asinh", b.copysign(value, "%x"))


@cache
def acosh(type: str) -> Definitions:
    """At most 4 ulp; NaN below 1."""
    b = typed(type)
    t = b.sub("%x", b.hex(1.0))
    more = b.add(t, b.sqrt(b.mul(t, b.add("%x", b.hex(1.0)))))
    value = b.use(log1p, "vm_log1p", more)
    large = b.compare("ogt", "%x", b.hex(_LARGE))
    value = b.choose(large, _log_of_double(b, "%x"), value)
    below = b.less("%x", b.hex(1.0))
    return b.end("vm_acosh", b.choose(below, b.hex(math.nan), value))


@cache
def atanh(type: str) -> Definitions:
    """At most 4 ulp; NaN beyond 1."""
    b = typed(type)
    a = b.fabs("%x")
    ratio = b.div(b.add(a, a), b.sub(b.hex(1.0), a))
    value = b.mul(b.use(log1p, "vm_log1p", ratio), b.hex(0.5))
    return b.end("vm_atanh", b.copysign(value, "%x"))
