"""Elementary functions as IR that LLVM vectorises: no branches, no calls.

:func:`text` gives the definitions that a function needs. float32 is computed with polynomials
(error bounds are stated at each and held by a test); float64 goes to the C library.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

_LIBRARY = {
    "vm_exp": "exp", "vm_log": "log", "vm_tanh": "tanh", "vm_erf": "erf", "vm_log1p": "log1p",
    "vm_expm1": "expm1",
}  # fmt: skip


@cache
def text(function: str, type: str) -> dict[str, str]:
    """The definitions of a function for ``f32`` or ``f64``, by name, with those it calls."""
    name = f"{function}_{type}"
    if name == "vm_ndtr_f64":
        return {
            "library_erfc": "declare double @erfc(double)",
            name: f"define internal double @{name}(double %x) alwaysinline nounwind {{\n"
            "  %z = fmul double %x, 0xBFE6A09E667F3BCD\n  %e = call double @erfc(double %z)\n"
            "  %r = fmul double %e, 0.5\n  ret double %r\n}",
        }
    if type == "f64":
        library = _LIBRARY[function]
        return {
            f"library_{library}": f"declare double @{library}(double)",
            name: f"define internal double @{name}(double %x) alwaysinline nounwind {{\n"
            f"  %r = call double @{library}(double %x)\n  ret double %r\n}}",
        }
    return _FLOAT32[function]()


def _declare(*names: str) -> dict[str, str]:
    given = {"fma": 3}
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
    """The text of one float function of ``%x``."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def op(self, text: str) -> str:
        name = f"%v{len(self.lines)}"
        self.lines.append(f"  {name} = {text}")
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


def _exp() -> dict[str, str]:
    """At most 1.2 ulp; inf above 88.73, and 0 where the result would be denormal (below -87.34):
    denormal products cost a hundred times as much, and masked scores are full of them."""
    b = _Body()
    low = b.less("%x", _hex(-87.33654))
    x = b.choose(low, _hex(0.0), "%x")
    high = b.op(f"fcmp ogt float {x}, {_hex(89.0)}")
    x = b.choose(high, _hex(89.0), x)
    n = b.op(f"call float @llvm.rint.f32(float {b.mul(x, _hex(1.4426950408889634))})")
    r = b.fma(n, _hex(-0.693145751953125), x)
    r = b.fma(n, _hex(-1.428606765330187e-06), r)
    p = b.polynomial(r, 1 / 5040 * 1.0021, 1 / 720 * 1.0003, 1 / 120, 1 / 24, 1 / 6, 0.5)
    value = b.fma(p, b.mul(r, r), b.add(r, _hex(1.0)))
    # 2**n in two factors, so that neither overflows.
    number = b.op(f"fptosi float {n} to i32")
    half = b.op(f"ashr i32 {number}, 1")
    rest = b.op(f"sub i32 {number}, {half}")
    for part in (half, rest):
        biased = b.op(f"shl i32 {b.op(f'add i32 {part}, 127')}, 23")
        value = b.mul(value, b.op(f"bitcast i32 {biased} to float"))
    value = b.choose(low, _hex(0.0), value)
    nan = b.op("fcmp uno float %x, %x")
    value = b.choose(nan, "%x", value)
    return _declare("fma", "rint") | {"vm_exp_f32": b.end("vm_exp_f32", value)}


def _log() -> dict[str, str]:
    """At most 2 ulp; -inf at 0, NaN below, denormals included."""
    b = _Body()
    tiny = b.less("%x", _hex(1.17549435e-38))
    x = b.choose(tiny, b.mul("%x", _hex(8388608.0)), "%x")
    bits = b.op(f"bitcast float {x} to i32")
    # The exponent of x / sqrt(1/2), so that the mantissa lies in [sqrt(1/2), sqrt(2)).
    shifted = b.op(f"sub i32 {bits}, 1060439283")
    e = b.op(f"ashr i32 {shifted}, 23")
    mantissa = b.op(f"sub i32 {bits}, {b.op(f'shl i32 {e}, 23')}")
    f = b.sub(b.op(f"bitcast i32 {mantissa} to float"), _hex(1.0))
    power = b.op(f"sitofp i32 {e} to float")
    power = b.choose(tiny, b.sub(power, _hex(23.0)), power)
    s = b.div(f, b.add(f, _hex(2.0)))
    z = b.mul(s, s)
    # log(1 + f) = f - s (f - 2 z p(z)), with log((1+s)/(1-s)) = 2 s (1 + z/3 + z**2/5 + ...)
    p = b.polynomial(z, 2 / 11, 2 / 9, 2 / 7, 2 / 5, 2 / 3)
    tail = b.mul(z, p)
    inner = b.sub(f, tail)
    value = b.sub(f, b.mul(s, inner))
    value = b.fma(power, _hex(1.4286068203094172e-06), value)
    value = b.fma(power, _hex(0.693145751953125), value)
    value = b.choose(b.op(f"fcmp oeq float %x, {_hex(0.0)}"), _hex(float("-inf")), value)
    value = b.choose(b.less("%x", _hex(0.0)), _hex(float("nan")), value)
    large = b.op(f"fcmp oeq float %x, {_hex(float('inf'))}")
    value = b.choose(large, "%x", value)
    value = b.choose(b.op("fcmp uno float %x, %x"), "%x", value)
    return _declare("fma") | {"vm_log_f32": b.end("vm_log_f32", value)}


def _expm1() -> dict[str, str]:
    """At most 3 ulp: a polynomial near zero, ``exp(x) - 1`` elsewhere."""
    b = _Body()
    p = b.polynomial("%x", 1 / 40320, 1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 0.5)
    near = b.fma(p, b.mul("%x", "%x"), "%x")
    far = b.sub(b.op("call float @vm_exp_f32(float %x)"), _hex(1.0))
    small = b.less(b.fabs("%x"), _hex(0.5))
    result = b.choose(small, near, far)
    return _exp() | _declare("fabs") | {"vm_expm1_f32": b.end("vm_expm1_f32", result)}


def _log1p() -> dict[str, str]:
    """At most 3 ulp: the rounding of ``1 + x`` is undone by a quotient."""
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


def _tanh() -> dict[str, str]:
    """At most 5 ulp: ``(1 - e) / (1 + e)`` with ``e = exp(-2|x|)``, by ``expm1`` near zero."""
    b = _Body()
    a = b.fabs("%x")
    m = b.op(f"call float @vm_expm1_f32(float {b.mul(a, _hex(-2.0))})")
    value = b.div(b.op(f"fneg float {m}"), b.add(m, _hex(2.0)))
    value = b.op(f"call float @llvm.copysign.f32(float {value}, float %x)")
    copysign = {"llvm.copysign.f32": "declare float @llvm.copysign.f32(float, float)"}
    return _expm1() | copysign | {"vm_tanh_f32": b.end("vm_tanh_f32", value)}


def _erf() -> dict[str, str]:
    """At most 4 ulp: powers of ``x**2`` up to 1, ``1 - exp(log erfc)`` beyond."""
    from evergrad.ops.special_tables import ERF_NEAR_SINGLE, LOG_ERFC_SINGLE

    b = _Body()
    a = b.fabs("%x")
    z = b.mul("%x", "%x")
    near = b.fma(b.polynomial(z, *reversed(ERF_NEAR_SINGLE)), "%x", "%x")
    capped = b.choose(b.less(a, _hex(4.0)), a, _hex(4.0))
    log = b.polynomial(capped, *reversed(LOG_ERFC_SINGLE))
    far = b.sub(_hex(1.0), b.op(f"call float @vm_exp_f32(float {log})"))
    far = b.op(f"call float @llvm.copysign.f32(float {far}, float %x)")
    value = b.choose(b.less(a, _hex(1.0)), near, far)
    value = b.choose(b.op("fcmp uno float %x, %x"), "%x", value)
    copysign = {"llvm.copysign.f32": "declare float @llvm.copysign.f32(float, float)"}
    return _exp() | _declare("fabs") | copysign | {"vm_erf_f32": b.end("vm_erf_f32", value)}


def _ndtr() -> dict[str, str]:
    """At most 16 ulp from -8 on: the tail is ``exp(-x**2 / 2)`` times a polynomial."""
    from evergrad.ops.special_tables import NORMAL_TAIL_SINGLE

    b = _Body()
    a = b.fabs("%x")
    t = b.div(_hex(1.0), b.add(a, _hex(4.0)))
    half = b.mul(b.mul("%x", "%x"), _hex(-0.5))
    grown = b.op(f"call float @vm_exp_f32(float {half})")
    tail = b.mul(grown, b.polynomial(t, *reversed(NORMAL_TAIL_SINGLE)))
    value = b.choose(b.less("%x", _hex(0.0)), tail, b.sub(_hex(1.0), tail))
    return _exp() | _declare("fabs") | {"vm_ndtr_f32": b.end("vm_ndtr_f32", value)}


_FLOAT32: dict[str, Callable[[], dict[str, str]]] = {
    "vm_exp": _exp,
    "vm_log": _log,
    "vm_expm1": _expm1,
    "vm_log1p": _log1p,
    "vm_tanh": _tanh,
    "vm_erf": _erf,
    "vm_ndtr": _ndtr,
}
