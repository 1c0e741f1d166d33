"""Exponentials and hyperbolic functions.

Bounds are in units in the last place, for float32 and float64. Where the result of a single
exponential would be denormal it is 0: denormal operands cost a hundred times as much, and masked
scores yield many.
"""

from __future__ import annotations

import math
from functools import cache, cached_property

from evergrad.compiler.codegen.vecmath.body import Body, Definitions, typed
from evergrad.compiler.codegen.vecmath.tables import EXP_DOUBLE
from evergrad.ops.rows.special.tables import EXP_SINGLE

LOG_2_E = 1.4426950408889634
# Added to a float, it leaves the nearest integer in the low bits.
MAGIC = 12582912.0
LOG_2_HIGH = 0.693145751953125
LOG_2_LOW = 1.428606765330187e-06
# The results of float32 would be denormal below.
EXP_LEAST = -87.33654


class Format:
    """Constants of a width of floats."""

    most: float
    least: float
    log_2_low: float
    log_2_high: float

    def __init__(
        self,
        magic: float,
        log_2: tuple[float, float],
        exponential: tuple[float, ...],
        bits: int,
        bias: int,
        least: float,
        most: float,
    ) -> None:
        self.magic = magic
        self.log_2_high, self.log_2_low = log_2
        self.exponential = exponential
        self.mantissa_bits = bits
        self.bias = bias
        # Where exp would be denormal, and where it is infinite.
        self.least, self.most = least, most


_SINGLE = Format(MAGIC, (LOG_2_HIGH, LOG_2_LOW), EXP_SINGLE, 23, 127, EXP_LEAST, 88.72283172607422)
_DOUBLE = Format(
    6755399441055744.0, (0.6931471803691238, 1.9082149292705877e-10), EXP_DOUBLE, 52, 1023,
    -708.3964185322641, 709.782712893384,
)  # fmt: skip


def format_of(b: Body) -> Format:
    return _SINGLE if b.is_single else _DOUBLE


class Reduced:
    """Range reduction: ``x = n log(2) + r`` with an integer ``n``, for ``x`` of at most 2**20."""

    format: Format

    def __init__(self, b: Body, x: str) -> None:
        self.b = b
        self.format = f = format_of(b)
        moved = b.fma(x, b.hex(LOG_2_E), b.hex(f.magic))
        n = b.sub(moved, b.hex(f.magic))
        r = b.fma(n, b.hex(-f.log_2_high), x)
        self.r: str = b.fma(n, b.hex(-f.log_2_low), r)
        # n in the exponent bits of a float: the bits of the magic number are shifted out.
        self.exponent: str = b.op(f"shl {b.integer} {b.bits(moved)}, {f.mantissa_bits}")

    @cached_property
    def quotient(self) -> str:
        """``(exp(r) - 1) / r``"""
        return self.b.polynomial(self.r, (1.0, *self.format.exponential))

    def exp(self) -> str:
        """exp(x), where that is a normal number; undefined elsewhere, and for NaN."""
        b = self.b
        near = b.fma(self.quotient, self.r, b.hex(1.0))
        return b.number(b.op(f"add {b.integer} {b.bits(near)}, {self.exponent}"))

    def one_plus_exp(self) -> str:
        """1 + exp(x), where 2**n is a normal number."""
        b = self.b
        near = b.fma(self.quotient, self.r, b.hex(1.0))
        return b.fma(near, self._power(0), b.hex(1.0))

    def half_expm1(self) -> str:
        """(exp(x) - 1) / 2, exact near zero, where 2**n is a normal number."""
        b = self.b
        # 2**(n - 1): 2**n may overflow where the result does not.
        half = self._power(-1)
        below = b.mul(self.quotient, self.r)
        return b.fma(half, below, b.sub(half, b.hex(0.5)))

    def _power(self, more: int) -> str:
        """``2**(n + more)``"""
        b, f = self.b, self.format
        one = (f.bias + more) << f.mantissa_bits
        return b.number(b.op(f"add {b.integer} {self.exponent}, {one}"))


def exp_or_zero(b: Body, x: str) -> str:
    """exp(x) while it does not overflow; 0 where the result would be denormal."""
    least = b.hex(format_of(b).least)
    return b.choose(b.less(x, least), b.hex(0.0), Reduced(b, x).exp())


def _infinite_above(b: Body, value: str) -> str:
    """Infinity where ``exp`` of the argument overflows, NaN for NaN."""
    beyond = b.compare("ugt", "%x", b.hex(format_of(b).most))
    return b.choose(beyond, b.add("%x", b.hex(math.inf)), value)


@cache
def exp(type: str) -> Definitions:
    """At most 1 ulp; inf above 88.73 (709.78), and 0 where the result would be denormal (below
    -87.34, -708.4)."""
    b = typed(type)
    return b.end("vm_exp", _infinite_above(b, exp_or_zero(b, "%x")))


@cache
def exp2(type: str) -> Definitions:
    """At most 1 ulp; powers of 2 are exact. 0 where the result would be denormal."""
    b = typed(type)
    f = format_of(b)
    moved = b.add("%x", b.hex(f.magic))
    part = b.sub("%x", b.sub(moved, b.hex(f.magic)))
    r = b.mul(part, b.hex(math.log(2)))
    near = b.fma(b.polynomial(r, (1.0, *f.exponential)), r, b.hex(1.0))
    exponent = b.op(f"shl {b.integer} {b.bits(moved)}, {f.mantissa_bits}")
    value = b.number(b.op(f"add {b.integer} {b.bits(near)}, {exponent}"))
    value = b.choose(b.less("%x", b.hex(1.0 - f.bias)), b.hex(0.0), value)
    beyond = b.compare("uge", "%x", b.hex(f.bias + 1.0))
    return b.end("vm_exp2", b.choose(beyond, b.add("%x", b.hex(math.inf)), value))


@cache
def expm1(type: str) -> Definitions:
    """At most 2 ulp; has the sign of its argument, also at zero."""
    b = typed(type)
    x = b.choose(b.less("%x", b.hex(-80.0)), b.hex(-80.0), "%x")
    half = Reduced(b, x).half_expm1()
    value = _infinite_above(b, b.add(half, half))
    return b.end("vm_expm1", b.copysign(value, "%x"))


@cache
def sigmoid(type: str) -> Definitions:
    """At most 3 ulp; 0 where the result would be denormal, as ``exp``."""
    b = typed(type)
    least = format_of(b).least
    limited = b.least("%x", 80.0 if b.is_single else 700.0)
    value = b.div(b.hex(1.0), Reduced(b, b.neg(limited)).one_plus_exp())
    value = b.choose(b.less("%x", b.hex(least)), b.hex(0.0), value)
    return b.end("vm_sigmoid", value)


@cache
def tanh(type: str) -> Definitions:
    """At most 3 ulp: ``m / (m + 1)`` with ``m = (exp(2|x|) - 1) / 2``."""
    b = typed(type)
    a = b.least(b.fabs("%x"), 10.0 if b.is_single else 20.0)
    m = Reduced(b, b.add(a, a)).half_expm1()
    value = b.div(m, b.add(m, b.hex(1.0)))
    return b.end("vm_tanh", b.copysign(value, "%x"))


def _half_exp_of_large(b: Body, a: str) -> str:
    """exp(a) / 2 from the root: ``exp(a)`` overflows before a half of it does."""
    half = b.mul(b.least(a, 100.0 if b.is_single else 800.0), b.hex(0.5))
    root = Reduced(b, half).exp()
    return b.mul(b.mul(root, b.hex(0.5)), root)


def _hyperbolic(b: Body, a: str, near: str) -> str:
    """``near`` up to where the exponential overflows, and half of it beyond."""
    far = b.compare("ogt", a, b.hex(_NEAR[b.type]))
    return b.choose(far, _half_exp_of_large(b, a), near)


_NEAR = {"float": 88.0, "double": 709.0}


@cache
def sinh(type: str) -> Definitions:
    """At most 3 ulp: ``m + m / (2 m + 1)`` with ``m = (exp(|x|) - 1) / 2``."""
    b = typed(type)
    a = b.fabs("%x")
    m = Reduced(b, b.least(a, _NEAR[b.type])).half_expm1()
    near = b.add(m, b.div(m, b.fma(m, b.hex(2.0), b.hex(1.0))))
    return b.end("vm_sinh", b.copysign(_hyperbolic(b, a, near), "%x"))


@cache
def cosh(type: str) -> Definitions:
    """At most 3 ulp."""
    b = typed(type)
    a = b.fabs("%x")
    e = Reduced(b, b.least(a, _NEAR[b.type])).exp()
    near = b.fma(e, b.hex(0.5), b.div(b.hex(0.5), e))
    return b.end("vm_cosh", b.nan_for_nan("%x", _hyperbolic(b, a, near)))
