"""Elementary functions as IR that LLVM vectorizes: no branches, no calls.

:func:`definitions` gives the IR of a function. float32 is computed with polynomials (error bounds
are stated at each and held by a test); float64 calls the C library. The cost is the number of
instructions, but for divisions, whose latency twenty of them hide.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from evergrad.ops.rows.special.tables import (
    ERF_NEAR_SINGLE,
    EXP_SINGLE,
    LOG_ERFC_SINGLE,
    LOG_SINGLE,
    NORMAL_TAIL_SINGLE,
)

_LIBRARY = {
    "vm_exp": "exp", "vm_log": "log", "vm_tanh": "tanh", "vm_erf": "erf", "vm_log1p": "log1p",
    "vm_expm1": "expm1",
}  # fmt: skip


@cache
def definitions(function: str, type: str) -> dict[str, str]:
    """IR of a function for ``f32`` or ``f64`` and of those it calls, by name."""
    name = f"{function}_{type}"
    if name == "vm_ndtr_f64":
        return {
            "library_erfc": "declare double @erfc(double)",
            name: f"define internal double @{name}(double %x) alwaysinline nounwind {{\n"
            "  %z = fmul double %x, 0xBFE6A09E667F3BCD\n  %e = call double @erfc(double %z)\n"
            "  %r = fmul double %e, 0.5\n  ret double %r\n}",
        }
    if name == "vm_sigmoid_f64":
        return {
            "library_exp": "declare double @exp(double)",
            name: f"define internal double @{name}(double %x) alwaysinline nounwind {{\n"
            "  %m = fneg double %x\n  %e = call double @exp(double %m)\n"
            "  %s = fadd double %e, 1.0\n  %r = fdiv double 1.0, %s\n  ret double %r\n}",
        }
    if type == "f64":
        library = _LIBRARY[function]
        return {
            f"library_{library}": f"declare double @{library}(double)",
            name: f"define internal double @{name}(double %x) alwaysinline nounwind {{\n"
            f"  %r = call double @{library}(double %x)\n  ret double %r\n}}",
        }
    return _FLOAT32[function]()


@cache
def vector_definitions(function: str, lanes: int) -> dict[str, str]:
    """IR of a function for vectors of float32: that of the scalar one, with types and constants
    for each lane."""
    return {
        name.replace("_f32", f".v{lanes}f32").replace(".f32", f".v{lanes}f32"): _vectorized(
            body, lanes
        )
        for name, body in definitions(function, "f32").items()
    }


def _vectorized(body: str, lanes: int) -> str:
    def each(found: re.Match[str]) -> str:
        type = "float" if found[0].startswith("0x") else "i32"
        return f"<{', '.join([f'{type} {found[0]}'] * lanes)}>"

    body = re.sub(r"\b(float|i32|i1)\b", rf"<{lanes} x \1>", body)
    body = re.sub(r"[_.]f32\b", f".v{lanes}f32", body)
    return re.sub(r"(?<= )(0x[0-9A-F]{16}|-?\d+)(?=[,)\n])", each, body)


def _declare(*names: str) -> dict[str, str]:
    given = {"fma": 3, "copysign": 2}
    return {
        f"llvm.{n}.f32": f"declare float @llvm.{n}.f32({', '.join(['float'] * given.get(n, 1))})"
        for n in names
    }


def _hex(value: float) -> str:
    import struct

    (rounded,) = struct.unpack("<f", struct.pack("<f", value))
    (bits,) = struct.unpack("<Q", struct.pack("<d", rounded))
    return f"0x{bits:016X}"


class _Body:
    """IR of one float32 function of ``%x``."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def op(self, instruction: str) -> str:
        name = f"%v{len(self.lines)}"
        self.lines.append(f"  {name} = {instruction}")
        return name

    def fma(self, a: str, b: str, c: str) -> str:
        return self.op(f"call float @llvm.fma.f32(float {a}, float {b}, float {c})")

    def mul(self, a: str, b: str) -> str:
        return self.op(f"fmul float {a}, {b}")

    def add(self, a: str, b: str) -> str:
        return self.op(f"fadd float {a}, {b}")

    def sub(self, a: str, b: str) -> str:
        return self.op(f"fsub float {a}, {b}")

    def div(self, a: str, b: str) -> str:
        return self.op(f"fdiv float {a}, {b}")

    def fabs(self, a: str) -> str:
        return self.op(f"call float @llvm.fabs.f32(float {a})")

    def copysign(self, a: str, sign: str) -> str:
        return self.op(f"call float @llvm.copysign.f32(float {a}, float {sign})")

    def bits(self, a: str) -> str:
        return self.op(f"bitcast float {a} to i32")

    def number(self, bits: str) -> str:
        return self.op(f"bitcast i32 {bits} to float")

    def choose(self, condition: str, a: str, b: str) -> str:
        return self.op(f"select i1 {condition}, float {a}, float {b}")

    def less(self, a: str, b: str) -> str:
        return self.op(f"fcmp olt float {a}, {b}")

    def polynomial(self, x: str, *coefficients: float) -> str:
        """By Horner's rule, the highest power first."""
        value = _hex(coefficients[0])
        for c in coefficients[1:]:
            value = self.fma(value, x, _hex(c))
        return value

    def end(self, name: str, result: str) -> str:
        body = "\n".join(self.lines)
        return (
            f"define internal float @{name}(float %x) alwaysinline nounwind {{\n"
            f"{body}\n  ret float {result}\n}}"
        )


LOG_2_E = 1.4426950408889634
# Added to a float, it leaves the nearest integer in the low bits.
MAGIC = 12582912.0
LOG_2_HIGH = 0.693145751953125
LOG_2_LOW = 1.428606765330187e-06
# Results would be denormal below the first and infinite above the second.
EXP_LEAST = -87.33654
_EXP_MOST = 88.72283172607422


class _Reduced:
    """Range reduction: ``x = n log(2) + r`` with an integer ``n``, for ``x`` of at most 2**20."""

    def __init__(self, b: _Body, x: str) -> None:
        self.b = b
        moved = b.fma(x, _hex(LOG_2_E), _hex(MAGIC))
        n = b.sub(moved, _hex(MAGIC))
        r = b.fma(n, _hex(-LOG_2_HIGH), x)
        self.r = b.fma(n, _hex(-LOG_2_LOW), r)
        # n in the exponent bits of a float: the bits of the magic number are shifted out.
        self.exponent = b.op(f"shl i32 {b.bits(moved)}, 23")
        self.quotient = b.polynomial(self.r, *reversed(EXP_SINGLE), 1.0)  # (exp(r) - 1) / r

    def exp(self) -> str:
        """exp(x), where that is a normal number; undefined elsewhere, and for NaN."""
        b = self.b
        near = b.fma(self.quotient, self.r, _hex(1.0))
        return b.number(b.op(f"add i32 {b.bits(near)}, {self.exponent}"))

    def one_plus_exp(self) -> str:
        """1 + exp(x), where 2**n is a normal number."""
        b = self.b
        near = b.fma(self.quotient, self.r, _hex(1.0))
        return b.fma(near, self._power(0), _hex(1.0))

    def half_expm1(self) -> str:
        """(exp(x) - 1) / 2, exact near zero, where 2**n is a normal number."""
        b = self.b
        # 2**(n - 1): 2**n may overflow where the result does not.
        half = self._power(-1)
        below = b.mul(self.quotient, self.r)
        return b.fma(half, below, b.sub(half, _hex(0.5)))

    def _power(self, more: int) -> str:
        """``2**(n + more)``"""
        return self.b.number(self.b.op(f"add i32 {self.exponent}, {(127 + more) << 23}"))


def _exp_or_zero(b: _Body, x: str) -> str:
    """exp(x) for ``x`` up to 88; 0 where the result would be denormal: denormal operands cost a
    hundred times as much, and masked scores yield many."""
    return b.choose(b.less(x, _hex(EXP_LEAST)), _hex(0.0), _Reduced(b, x).exp())


def _infinite_above(b: _Body, value: str) -> str:
    """Infinity where ``exp`` of the argument overflows, NaN for NaN."""
    beyond = b.op(f"fcmp ugt float %x, {_hex(_EXP_MOST)}")
    return b.choose(beyond, b.add("%x", _hex(float("inf"))), value)


def _least(b: _Body, x: str, limit: float) -> str:
    """The minimum of a number and a limit; propagates NaN."""
    return b.choose(b.op(f"fcmp ogt float {x}, {_hex(limit)}"), _hex(limit), x)


def _exp() -> dict[str, str]:
    """At most 1 ulp; inf above 88.73, and 0 where the result would be denormal (below -87.34)."""
    b = _Body()
    value = _infinite_above(b, _exp_or_zero(b, "%x"))
    return _declare("fma") | {"vm_exp_f32": b.end("vm_exp_f32", value)}


def _expm1() -> dict[str, str]:
    """At most 2 ulp."""
    b = _Body()
    x = b.choose(b.less("%x", _hex(-80.0)), _hex(-80.0), "%x")
    half = _Reduced(b, x).half_expm1()
    value = _infinite_above(b, b.add(half, half))
    return _declare("fma") | {"vm_expm1_f32": b.end("vm_expm1_f32", value)}


def _sigmoid() -> dict[str, str]:
    """At most 3 ulp; 0 where the result would be denormal, as ``exp``."""
    b = _Body()
    opposite = b.op(f"fneg float {_least(b, '%x', 80.0)}")
    value = b.div(_hex(1.0), _Reduced(b, opposite).one_plus_exp())
    value = b.choose(b.less("%x", _hex(EXP_LEAST)), _hex(0.0), value)
    return _declare("fma") | {"vm_sigmoid_f32": b.end("vm_sigmoid_f32", value)}


def _tanh() -> dict[str, str]:
    """At most 3 ulp: ``m / (m + 1)`` with ``m = (exp(2|x|) - 1) / 2``."""
    b = _Body()
    a = _least(b, b.fabs("%x"), 10.0)
    m = _Reduced(b, b.add(a, a)).half_expm1()
    value = b.div(m, b.add(m, _hex(1.0)))
    value = b.copysign(value, "%x")
    return _declare("fma", "fabs", "copysign") | {"vm_tanh_f32": b.end("vm_tanh_f32", value)}


def _log() -> dict[str, str]:
    """At most 1 ulp; -inf at 0, NaN below, denormals included."""
    b = _Body()
    tiny = b.less("%x", _hex(1.17549435e-38))
    x = b.choose(tiny, b.mul("%x", _hex(8388608.0)), "%x")
    # The exponent of x / sqrt(1/2), so that the mantissa is in [sqrt(1/2), sqrt(2)).
    e = b.op(f"ashr i32 {b.op(f'sub i32 {b.bits(x)}, 1060439283')}, 23")
    mantissa = b.op(f"sub i32 {b.bits(x)}, {b.op(f'shl i32 {e}, 23')}")
    f = b.sub(b.number(mantissa), _hex(1.0))
    power = b.op(f"sitofp i32 {e} to float")
    power = b.choose(tiny, b.sub(power, _hex(23.0)), power)
    # f - f**2 / 2 + f**3 p(f), the terms of the exponent added to the smallest first.
    square = b.mul(f, f)
    rest = b.mul(b.mul(f, square), b.polynomial(f, *reversed(LOG_SINGLE)))
    rest = b.fma(power, _hex(LOG_2_LOW), rest)
    rest = b.fma(square, _hex(-0.5), rest)
    value = b.fma(power, _hex(LOG_2_HIGH), b.add(f, rest))
    # Infinity and NaN are their own result; zeros give -inf, negative numbers NaN.
    usual = b.op(f"fcmp olt float {b.fabs('%x')}, {_hex(float('inf'))}")
    value = b.choose(usual, value, "%x")
    value = b.choose(b.op(f"fcmp oeq float %x, {_hex(0.0)}"), _hex(float("-inf")), value)
    value = b.choose(b.less("%x", _hex(0.0)), _hex(float("nan")), value)
    return _declare("fma", "fabs") | {"vm_log_f32": b.end("vm_log_f32", value)}


def _log1p() -> dict[str, str]:
    """At most 3 ulp: a quotient corrects the rounding of ``1 + x``."""
    b = _Body()
    u = b.add("%x", _hex(1.0))
    d = b.sub(u, _hex(1.0))
    log = b.op(f"call float @vm_log_f32(float {u})")
    exact = b.op(f"fcmp oeq float {d}, {_hex(0.0)}")
    divisor = b.choose(exact, _hex(1.0), d)
    value = b.mul(log, b.div("%x", divisor))
    value = b.choose(exact, "%x", value)
    large = b.op(f"fcmp ogt float %x, {_hex(1e30)}")
    value = b.choose(large, log, value)
    low = b.op(f"fcmp ole float %x, {_hex(-1.0)}")
    value = b.choose(low, log, value)
    return _log() | {"vm_log1p_f32": b.end("vm_log1p_f32", value)}


def _erf() -> dict[str, str]:
    """At most 2 ulp: powers of ``x**2`` up to 1, ``1 - exp(log erfc)`` beyond."""
    b = _Body()
    a = b.fabs("%x")
    z = b.mul("%x", "%x")
    near = b.fma(b.polynomial(z, *reversed(ERF_NEAR_SINGLE)), "%x", "%x")
    log = b.polynomial(_least(b, a, 4.0), *reversed(LOG_ERFC_SINGLE))
    far = b.copysign(b.sub(_hex(1.0), _Reduced(b, log).exp()), "%x")
    # NaN takes the near branch.
    value = b.choose(b.op(f"fcmp oge float {a}, {_hex(1.0)}"), far, near)
    return _declare("fma", "fabs", "copysign") | {"vm_erf_f32": b.end("vm_erf_f32", value)}


def _ndtr() -> dict[str, str]:
    """At most 24 ulp from -8 on: the tail is ``exp(-x**2 / 2)`` times a polynomial, which amplifies
    the rounding of the square. The density shares the exponential: where both are needed it is
    computed once."""
    b = _Body()
    t = b.div(_hex(1.0), b.add(b.fabs("%x"), _hex(4.0)))
    grown = _exp_or_zero(b, b.mul(b.mul("%x", "%x"), _hex(-0.5)))
    tail = b.mul(grown, b.polynomial(t, *reversed(NORMAL_TAIL_SINGLE)))
    value = b.choose(b.less("%x", _hex(0.0)), tail, b.sub(_hex(1.0), tail))
    return _declare("fma", "fabs") | {"vm_ndtr_f32": b.end("vm_ndtr_f32", value)}


_FLOAT32: dict[str, Callable[[], dict[str, str]]] = {
    "vm_exp": _exp,
    "vm_log": _log,
    "vm_expm1": _expm1,
    "vm_log1p": _log1p,
    "vm_tanh": _tanh,
    "vm_erf": _erf,
    "vm_ndtr": _ndtr,
    "vm_sigmoid": _sigmoid,
}
