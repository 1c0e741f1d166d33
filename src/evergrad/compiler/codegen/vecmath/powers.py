"""``pow``: of float32 by a logarithm in double precision, of float64 by one of twice that."""

from __future__ import annotations

import math
from functools import cache

from evergrad.compiler.codegen.vecmath.body import Body, Definitions, typed
from evergrad.compiler.codegen.vecmath.exponentials import Reduced, exp, format_of
from evergrad.compiler.codegen.vecmath.logarithms import Parts, log

# Of log((1 + s) / (1 - s)) / 2s = 1 + z / 3 + z**2 * (1/5 + z / 7 + ...), with z = s**2 < 0.0295.
_SERIES = tuple(1 / (2 * k + 5) for k in range(12))
_THIRD = 1 / 3, 1.850371707708594e-17  # and what is missing


@cache
def pow(type: str) -> Definitions:
    """At most 1 ulp: ``exp(y log |x|)`` with the sign of ``x`` for odd ``y``. Special values as in
    C: 1 for ``y = 0`` and for ``x = 1``, NaN for roots of negative numbers. 0 where the result
    would be denormal."""
    f = typed(type)
    size, one = f.fabs("%x"), f.hex(1.0)
    if f.is_single:
        b = f.double
        exponent = b.mul(f.widened("%y"), b.use(log, "vm_log", f.widened(size)))
        value = f.narrowed(b.use(exp, "vm_exp", exponent))
    else:
        value = _double_power(f, size)
    half = f.mul("%y", f.hex(0.5))
    is_whole = f.compare("oeq", f.intrinsic("rint", "%y"), "%y")
    is_odd = f.both(is_whole, f.compare("one", f.intrinsic("rint", half), half))
    value = f.choose(is_odd, f.copysign(value, "%x"), value)
    is_negative = f.both(f.less("%x", f.hex(0.0)), f.less(size, f.hex(math.inf)))
    is_root = f.both(is_negative, f.compare("une", f.intrinsic("rint", "%y"), "%y"))
    value = f.choose(is_root, f.hex(math.nan), value)
    # One to an infinite power is no product of 0 and infinity.
    is_one = f.both(f.compare("oeq", size, one), f.compare("oeq", f.fabs("%y"), f.hex(math.inf)))
    is_one = f.either(is_one, f.compare("oeq", "%x", one))
    is_one = f.either(is_one, f.compare("oeq", "%y", f.hex(0.0)))
    return f.end("vm_pow", f.choose(is_one, one, value), 2)


def _double_power(b: Body, size: str) -> str:
    """``size ** y`` in float64, for a size that is not negative."""
    high, low = _long_log(b, size)
    infinity = b.hex(math.inf)
    # Zero and infinity: the sign of their logarithm decides.
    at_end = b.either(b.compare("oeq", size, b.hex(0.0)), b.compare("oeq", size, infinity))
    end = b.choose(b.compare("oeq", size, infinity), infinity, b.neg(infinity))
    product = b.mul("%y", b.choose(at_end, end, b.nan_for_nan(size, high)))
    f = format_of(b)
    is_inside = b.less(b.fabs(product), b.hex(f.most + 1.0))
    lost = b.fma("%y", low, b.fma("%y", high, b.neg(product)))
    reduced = Reduced(b, b.choose(is_inside, product, b.hex(0.0)))
    r = b.add(reduced.r, b.choose(is_inside, lost, b.hex(0.0)))
    near = b.fma(b.polynomial(r, (1.0, *f.exponential)), r, b.hex(1.0))
    value = b.number(b.op(f"add {b.integer} {b.bits(near)}, {reduced.exponent}"))
    value = b.choose(b.less(product, b.hex(f.least)), b.hex(0.0), value)
    value = b.choose(b.compare("ogt", product, b.hex(f.most)), infinity, value)
    return b.nan_for_nan(product, value)


def _long_log(b: Body, size: str) -> tuple[str, str]:
    """The logarithm of a positive number as the sum of a large and a small term, with 66 bits."""
    f, parts = format_of(b), Parts(b, size)
    # s = f / (2 + f), and z = s**2, each with what its rounding lost
    below = b.add(parts.f, b.hex(2.0))
    missing = b.sub(parts.f, b.sub(below, b.hex(2.0)))
    s = b.div(parts.f, below)
    rest = b.fma(b.neg(s), missing, b.fma(b.neg(s), below, parts.f))
    s_low = b.div(rest, below)
    z = b.mul(s, s)
    z_low = b.fma(b.add(s, s), s_low, b.fma(s, s, b.neg(z)))
    # 1 + z / 3 + z**2 * series
    third = b.mul(z, b.hex(_THIRD[0]))
    third_low = b.fma(z, b.hex(_THIRD[0]), b.neg(third))
    third_low = b.fma(z_low, b.hex(_THIRD[0]), b.fma(z, b.hex(_THIRD[1]), third_low))
    third_low = b.fma(b.mul(z, z), b.polynomial(z, _SERIES), third_low)
    factor = b.add(third, b.hex(1.0))
    factor_low = b.add(b.sub(third, b.sub(factor, b.hex(1.0))), third_low)
    # 2 s times that, and the logarithm of the power of 2
    twice = b.add(s, s)
    log_high = b.mul(twice, factor)
    log_low = b.fma(twice, factor, b.neg(log_high))
    log_low = b.fma(b.add(s_low, s_low), factor, b.fma(twice, factor_low, log_low))
    power = b.mul(parts.power, b.hex(f.log_2_high))
    high = b.add(power, log_high)
    low = b.add(b.sub(log_high, b.sub(high, power)), log_low)
    low = b.fma(parts.power, b.hex(f.log_2_low), low)
    total = b.add(high, low)
    return total, b.add(b.sub(high, total), low)
