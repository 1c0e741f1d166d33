"""The sigmoid and the hyperbolic tangent of gates, in LLVM IR without branches.

A step of a recurrent layer computes five of them for every hidden number, which takes longer than
reading and writing everything else. In float32 they are therefore written with about a third of the
operations of :mod:`.vecmath`, to the same precision; float64 goes to the C library.
"""

from __future__ import annotations

from evergrad.compiler.scalar import Code, constant
from evergrad.core import dtypes

# tanh(x) = x P(x**2) / Q(x**2) up to 9.1, where it is 1: 2.3e-8 from it. The lowest power first.
_TANH_END = 9.1
_TANH_P = (0.999999977, 0.133744785, 0.00348781475, 2.04812409e-05, 1.31775866e-08)
_TANH_Q = (1.0, 0.467077923, 0.0258474032, 0.000327292594, 7.70407463e-07)

# Powers of e are denormal numbers below the first of these, and infinite before the second.
_POWERS = -87.0, 89.0
# Adding it leaves the nearest whole number in the low bits of a float32.
_MAGIC = 12582912.0
# exp(r) - 1 - r over r**2, for r up to log(2) / 2. The lowest power first.
_EXP = (0.5, 1 / 6, 1 / 24, 1 / 120, 1 / 720 * 1.0003, 1 / 5040 * 1.0021)


def tanh(code: Code, element: str, x: str) -> str:
    """At most 5 ulp, and never beyond 1."""
    if element == "double":
        return code.call("vm_tanh", element, x)
    x = _between(code, x, -_TANH_END, _TANH_END)
    square = _times(code, x, x)
    above = _times(code, x, _polynomial(code, square, _TANH_P))
    quotient = code.op(f"fdiv float {above}, {_polynomial(code, square, _TANH_Q)}")
    return _between(code, quotient, -1.0, 1.0)


def sigmoid(code: Code, element: str, x: str) -> str:
    """``1 / (1 + exp(-x))``, at most 3 ulp; 0 where it would be a denormal number."""
    negative = code.op(f"fneg {element} {x}")
    if element == "double":
        power = code.call("vm_exp", element, negative)
    else:
        power = _power(code, _between(code, negative, *_POWERS))
    one = _number(1.0)
    return code.op(f"fdiv {element} {one}, {code.op(f'fadd {element} {power}, {one}')}")


def _power(code: Code, x: str) -> str:
    """``2**n exp(r)`` with a whole number ``n``, for an exponent that needs no further care."""
    shifted = _multiply_add(code, x, _number(1.4426950408889634), _number(_MAGIC))
    whole = code.op(f"fsub float {shifted}, {_number(_MAGIC)}")
    rest = _multiply_add(code, whole, _number(-0.693145751953125), x)
    rest = _multiply_add(code, whole, _number(-1.428606765330187e-06), rest)
    tail = _times(code, rest, rest)
    start = code.op(f"fadd float {rest}, {_number(1.0)}")
    value = _multiply_add(code, _polynomial(code, rest, _EXP), tail, start)
    bits = code.op(f"shl i32 {code.op(f'bitcast float {shifted} to i32')}, 23")
    scale = code.op(f"add i32 {bits}, {127 << 23}")
    return _times(code, value, code.op(f"bitcast i32 {scale} to float"))


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


def _between(code: Code, x: str, low: float, high: float) -> str:
    """The nearest number from ``low`` to ``high``; NaN stays."""
    for word, limit in (("olt", _number(low)), ("ogt", _number(high))):
        beyond = code.op(f"fcmp {word} float {x}, {limit}")
        x = code.op(f"select i1 {beyond}, float {limit}, float {x}")
    return x
