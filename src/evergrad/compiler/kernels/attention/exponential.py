"""The exponential function of attention's scores, in LLVM IR."""

from __future__ import annotations

from math import log

from evergrad.compiler.codegen.function_builder import FunctionBuilder
from evergrad.compiler.codegen.vecmath.exponentials import EXP_LEAST, LOG_2_E, MAGIC
from evergrad.ops.rows.special.tables import EXP_SINGLE

_LOG_2 = log(2.0)
_ONE_BITS = 0x3F800000


def exp(w: FunctionBuilder, x: str) -> str:
    """For ``x`` up to 0; 0 where the result would be denormal. At most 1 ulp where it is above
    1e-12, and 3 ulp below: the logarithm of 2 is one float."""
    floats, words = w.vector.type, w.vector.of("i32")
    large = w.lanewise("fcmp uge", x, w.constant(EXP_LEAST))
    magic = w.constant(MAGIC)
    shifted = w.multiply_add(x, w.constant(LOG_2_E), magic)
    n = w.minus(shifted, magic)
    r = w.multiply_add(n, w.constant(-_LOG_2), x)
    value = w.constant(EXP_SINGLE[-1])
    for factor in (*reversed(EXP_SINGLE[:-1]), 1.0, 1.0):
        value = w.multiply_add(value, r, w.constant(factor))
    bits = w.op(f"bitcast {floats} {shifted} to {words}")
    power = w.op(f"shl {words} {bits}, {w.splat_constant(23, 'i32')}")
    biased = w.op(f"add {words} {power}, {w.splat_constant(_ONE_BITS, 'i32')}")
    factor_2n = w.op(f"bitcast {words} {biased} to {floats}")
    return w.choose(large, w.lanewise("fmul", value, factor_2n), "zeroinitializer")
