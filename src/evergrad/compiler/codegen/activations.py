"""More ops for one element: activation curves and other formulas of a few steps."""

from __future__ import annotations

import math

from evergrad.compiler.codegen.elementwise import Element, writes


def _minimum(e: Element, a: str, b: str) -> str:
    return e.call("llvm.minimum", a, b)


def _maximum(e: Element, a: str, b: str) -> str:
    return e.call("llvm.maximum", a, b)


def _between(e: Element, x: str, low: str, high: str) -> str:
    return _minimum(e, _maximum(e, x, low), high)


def _less(e: Element, a: str, b: str) -> str:
    return e.op(f"fcmp olt {e.type} {a}, {b}")


def _at_most(e: Element, a: str, b: str) -> str:
    return e.op(f"fcmp ole {e.type} {a}, {b}")


def _negative(e: Element, x: str) -> str:
    return e.op(f"fneg {e.type} {x}")


@writes("clamp", "hardtanh", floats=True)
def _clamp(e: Element, x: str, low: str, high: str) -> str:
    return _between(e, x, low, high)


@writes("leaky_relu", floats=True)
def _leaky_relu(e: Element, x: str, slope: str) -> str:
    above = e.op(f"fcmp ogt {e.type} {x}, {e.number(0)}")
    return e.choose(above, x, e.arith("mul", x, slope))


@writes("elu", floats=True)
def _elu(e: Element, x: str, alpha: str, reach: str, scale: str) -> str:
    grown = e.call("vm_expm1", _minimum(e, e.arith("div", x, reach), e.number(0)))
    below = e.arith("mul", grown, e.arith("mul", alpha, scale))
    return e.choose(_at_most(e, x, e.number(0)), below, e.arith("mul", x, scale))


def _softplus_of_negative(e: Element, x: str) -> str:
    """``log(1 + exp(-|x|))``"""
    return e.call("vm_log1p", e.call("vm_exp", _negative(e, e.call("llvm.fabs", x))))


@writes("softplus", floats=True)
def _softplus(e: Element, x: str, beta: str, threshold: str) -> str:
    scaled = e.arith("mul", x, beta)
    curve = e.arith("add", _maximum(e, scaled, e.number(0)), _softplus_of_negative(e, scaled))
    straight = e.op(f"fcmp ogt {e.type} {scaled}, {threshold}")
    return e.choose(straight, x, e.arith("div", curve, beta))


@writes("logsigmoid", floats=True)
def _logsigmoid(e: Element, x: str) -> str:
    return e.arith("sub", _minimum(e, x, e.number(0)), _softplus_of_negative(e, x))


@writes("hardsigmoid", floats=True)
def _hardsigmoid(e: Element, x: str) -> str:
    held = _between(e, e.arith("add", x, e.number(3)), e.number(0), e.number(6))
    return e.arith("div", held, e.number(6))


@writes("hardswish", floats=True)
def _hardswish(e: Element, x: str) -> str:
    held = _between(e, e.arith("add", x, e.number(3)), e.number(0), e.number(6))
    return e.arith("div", e.arith("mul", x, held), e.number(6))


@writes("softshrink", floats=True)
def _softshrink(e: Element, x: str, edge: str) -> str:
    return e.arith("sub", x, _between(e, x, _negative(e, edge), edge))


@writes("hardshrink", floats=True)
def _hardshrink(e: Element, x: str, edge: str) -> str:
    return e.choose(_at_most(e, e.call("llvm.fabs", x), edge), e.number(0), x)


@writes("threshold", floats=True)
def _threshold(e: Element, x: str, edge: str, value: str) -> str:
    return e.choose(_at_most(e, x, edge), value, x)


@writes("lerp", floats=True)
def _lerp(e: Element, start: str, end: str, weight: str) -> str:
    """Reckoned from the nearer end, so that weights 0 and 1 give the ends exactly."""
    near = _less(e, e.call("llvm.fabs", weight), e.number(0.5))
    step = e.arith("sub", end, start)
    share = e.choose(near, _negative(e, weight), e.arith("sub", e.number(1), weight))
    return e.arith("sub", e.choose(near, start, end), e.arith("mul", step, share))


@writes("addcmul", floats=True)
def _addcmul(e: Element, x: str, a: str, b: str, value: str) -> str:
    return e.arith("add", x, e.arith("mul", e.arith("mul", a, value), b))


@writes("addcdiv", floats=True)
def _addcdiv(e: Element, x: str, a: str, b: str, value: str) -> str:
    return e.arith("add", x, e.arith("div", e.arith("mul", a, value), b))


@writes("sgn", floats=True)
def _sgn(e: Element, x: str) -> str:
    above = e.choose(e.op(f"fcmp ogt {e.type} {x}, {e.number(0)}"), e.number(1), x)
    return e.choose(_less(e, x, e.number(0)), e.number(-1), above)


@writes("frac", floats=True)
def _frac(e: Element, x: str) -> str:
    return e.arith("sub", x, e.call("llvm.trunc", x))


@writes("round", floats=True)
def _round(e: Element, x: str) -> str:
    return e.call("llvm.roundeven", x)


@writes("binary_cross_entropy", floats=True)
def _binary_cross_entropy(e: Element, x: str, target: str) -> str:
    of_one = _maximum(e, e.call("vm_log", x), e.number(-100))
    of_zero = _maximum(e, e.call("vm_log1p", _negative(e, x)), e.number(-100))
    missing = e.arith("mul", e.arith("sub", target, e.number(1)), of_zero)
    return e.arith("sub", missing, e.arith("mul", target, of_one))


@writes("nan_to_num", floats=True)
def _nan_to_num(e: Element, x: str, nan: str, above: str, below: str) -> str:
    value = e.choose(e.op(f"fcmp uno {e.type} {x}, {x}"), nan, x)
    value = e.choose(e.op(f"fcmp oeq {e.type} {x}, {e.number(math.inf)}"), above, value)
    return e.choose(e.op(f"fcmp oeq {e.type} {x}, {e.number(-math.inf)}"), below, value)
