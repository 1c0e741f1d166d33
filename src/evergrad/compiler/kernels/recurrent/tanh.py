"""The hyperbolic tangent of gates, in LLVM IR without branches.

A time step of an LSTM computes two of them for every hidden unit, beside three sigmoids, which
takes longer than its loads and stores. In float32 it is therefore a quotient
of two short polynomials, with fewer operations than that of :mod:`.vecmath.functions`; float64 goes
to the C library.
"""

from __future__ import annotations

from evergrad.compiler.codegen.code import Code
from evergrad.compiler.codegen.elementwise import constant
from evergrad.core import dtypes

# tanh(x) = x P(x**2) / Q(x**2) up to 9.1, where it is 1: 2.3e-8 from it. The lowest power first.
_TANH_END = 9.1
_TANH_P = (0.999999977, 0.133744785, 0.00348781475, 2.04812409e-05, 1.31775866e-08)
_TANH_Q = (1.0, 0.467077923, 0.0258474032, 0.000327292594, 7.70407463e-07)


def tanh(code: Code, element: str, x: str) -> str:
    """At most 5 ulp, and never beyond 1."""
    if element == "double":
        return code.call("vm_tanh", element, x)
    x = _clamp(code, x, -_TANH_END, _TANH_END)
    square = _times(code, x, x)
    above = _times(code, x, _polynomial(code, square, _TANH_P))
    quotient = code.op(f"fdiv float {above}, {_polynomial(code, square, _TANH_Q)}")
    return _clamp(code, quotient, -1.0, 1.0)


def _number(value: float) -> str:
    return constant(value, dtypes.float32)


def _times(code: Code, a: str, b: str) -> str:
    return code.op(f"fmul float {a}, {b}")


def _multiply_add(code: Code, a: str, b: str, c: str) -> str:
    return code.call("llvm.fma", "float", a, b, c)


def _polynomial(code: Code, x: str, factors: tuple[float, ...]) -> str:
    value = _number(factors[-1])
    for factor in factors[-2::-1]:
        value = _multiply_add(code, value, x, _number(factor))
    return value


def _clamp(code: Code, x: str, low: float, high: float) -> str:
    """Clamp to ``low`` and ``high``; NaN stays."""
    for word, limit in (("olt", _number(low)), ("ogt", _number(high))):
        beyond = code.op(f"fcmp {word} float {x}, {limit}")
        x = code.op(f"select i1 {beyond}, float {limit}, float {x}")
    return x
