"""How one element of an op is computed, in LLVM IR.

Owns the element types as IR knows them, :class:`Code` (the text being written) and the table
:data:`ELEMENTWISE`: op name to a function that writes the op for one element. An op or element type
that is not here runs its NumPy evaluation inside the program.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from evergrad.compiler.codegen import vecmath
from evergrad.compiler.codegen.rng import counted_element, threshold_of
from evergrad.core import dtypes
from evergrad.core.dtypes import dtype


class Kind:
    """An element type: how it lies in memory, and in which IR type it is computed with."""

    __slots__ = ("bits", "compute", "is_float", "signed", "storage")

    def __init__(self, storage: str, compute: str, bits: int, is_float: bool, signed: bool) -> None:
        self.storage = storage
        self.compute = compute
        self.bits = bits
        self.is_float = is_float
        self.signed = signed


KINDS: dict[dtype, Kind] = {
    dtypes.float32: Kind("float", "float", 32, True, True),
    dtypes.float64: Kind("double", "double", 64, True, True),
    dtypes.float16: Kind("half", "float", 16, True, True),
    dtypes.bfloat16: Kind("i16", "float", 16, True, True),
    dtypes.bool_: Kind("i8", "i1", 8, False, False),
    dtypes.uint8: Kind("i8", "i8", 8, False, False),
    dtypes.int8: Kind("i8", "i8", 8, False, True),
    dtypes.int16: Kind("i16", "i16", 16, False, True),
    dtypes.int32: Kind("i32", "i32", 32, False, True),
    dtypes.int64: Kind("i64", "i64", 64, False, True),
}

# Products and sums may be fused into one rounding; sums of many may be taken in any fixed order.
FUSED = "contract"
ANY_ORDER = "reassoc nsz contract"


class Code:
    """A function's text, and the helper functions it needs."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.helpers: dict[str, str] = {}
        self._count = 0

    def fresh(self, word: str = "t") -> str:
        self._count += 1
        return f"{word}{self._count}"

    def do(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")

    def op(self, text: str) -> str:
        name = f"%{self.fresh()}"
        self.lines.append(f"  {name} = {text}")
        return name

    def call(self, function: str, type: str, *args: str) -> str:
        """Call an intrinsic (named without its type) or a helper of :mod:`.codegen.vecmath`."""
        if function.startswith("llvm."):
            mangled = f"{function}.{_mangled(type)}"
            given = ", ".join([type] * len(args))
            self.helpers[mangled] = f"declare {type} @{mangled}({given})"
        else:
            mangled = f"{function}_{_mangled(type)}"
            self.helpers.update(vecmath.definitions(function, _mangled(type)))
        words = ", ".join(f"{type} {a}" for a in args)
        return self.op(f"call contract {type} @{mangled}({words})" if type in FLOATS
                       else f"call {type} @{mangled}({words})")  # fmt: skip


FLOATS = ("float", "double")


def _mangled(type: str) -> str:
    return {"float": "f32", "double": "f64"}.get(type, type)


def constant(value: Any, found: dtype) -> str:
    """A number as IR writes it in the computing type of an element type."""
    kind = KINDS[found]
    if kind.compute == "i1":
        return "true" if value else "false"
    if not kind.is_float:
        return str(int(value))
    number = float(value)
    if kind.compute == "float":
        number = _as_float32(number)
    (bits,) = struct.unpack("<Q", struct.pack("<d", number))
    return f"0x{bits:016X}"


def literal(value: Any, found: dtype) -> str:
    """The same for a number that is an element itself, and rounded as such."""
    if found in (dtypes.bfloat16, dtypes.float16):
        value = float(np.float64(value).astype(found.np))
    return constant(value, found)


def _as_float32(number: float) -> float:
    try:
        (rounded,) = struct.unpack("<f", struct.pack("<f", number))
    except OverflowError:
        return math.copysign(math.inf, number)
    return float(rounded)


# -- memory -------------------------------------------------------------------------------------


def load(code: Code, found: dtype, address: str, tag: str = "") -> str:
    """An element in its computing type."""
    kind = KINDS[found]
    raw = code.op(f"load {kind.storage}, ptr {address}, align {kind.bits // 8}{tag}")
    if found is dtypes.bool_:
        return code.op(f"icmp ne i8 {raw}, 0")
    if found is dtypes.bfloat16:
        wide = code.op(f"zext i16 {raw} to i32")
        return code.op(f"bitcast i32 {code.op(f'shl i32 {wide}, 16')} to float")
    if found is dtypes.float16:
        return code.op(f"fpext half {raw} to float")
    return raw


def store(code: Code, found: dtype, value: str, address: str, tag: str = "") -> None:
    kind = KINDS[found]
    if found is dtypes.bool_:
        value = code.op(f"zext i1 {value} to i8")
    elif found is dtypes.bfloat16:
        value = _to_bfloat16(code, value)
    elif found is dtypes.float16:
        value = code.op(f"fptrunc float {value} to half")
    code.do(f"store {kind.storage} {value}, ptr {address}, align {kind.bits // 8}{tag}")


def _to_bfloat16(code: Code, value: str) -> str:
    """Round to nearest, ties to even; NaN stays NaN."""
    bits = code.op(f"bitcast float {value} to i32")
    odd = code.op(f"and i32 {code.op(f'lshr i32 {bits}, 16')}, 1")
    rounded = code.op(f"add i32 {bits}, {code.op(f'add i32 {odd}, 32767')}")
    nan = code.op(f"fcmp uno float {value}, {value}")
    chosen = code.op(f"select i1 {nan}, i32 2143289344, i32 {rounded}")
    return code.op(f"trunc i32 {code.op(f'lshr i32 {chosen}, 16')} to i16")


def rounded(code: Code, found: dtype, value: str) -> str:
    """A computed element as it would be after a store and a load."""
    if found is dtypes.bfloat16:
        wide = code.op(f"zext i16 {_to_bfloat16(code, value)} to i32")
        return code.op(f"bitcast i32 {code.op(f'shl i32 {wide}, 16')} to float")
    if found is dtypes.float16:
        return code.op(f"fpext half {code.op(f'fptrunc float {value} to half')} to float")
    return value


def convert(code: Code, value: str, source: dtype, target: dtype) -> str:
    """An element in the computing type of another element type, as ``cast`` does it."""
    a, b = KINDS[source], KINDS[target]
    if b.compute == "i1":
        if a.compute == "i1":
            return value
        zero = constant(0, source)
        return code.op(f"{'fcmp une' if a.is_float else 'icmp ne'} {a.compute} {value}, {zero}")
    if a.is_float and b.is_float:
        if a.compute == b.compute:
            return value
        word = "fpext" if b.compute == "double" else "fptrunc"
        return code.op(f"{word} {a.compute} {value} to {b.compute}")
    if a.is_float:
        wide = code.op(f"fptosi {a.compute} {value} to i64")
        return wide if b.compute == "i64" else code.op(f"trunc i64 {wide} to {b.compute}")
    if b.is_float:
        word = "sitofp" if a.signed else "uitofp"
        return code.op(f"{word} {a.compute} {value} to {b.compute}")
    width_a = 1 if a.compute == "i1" else a.bits
    if width_a == b.bits:
        return value
    if width_a > b.bits:
        return code.op(f"trunc {a.compute} {value} to {b.compute}")
    return code.op(f"{'sext' if a.signed else 'zext'} {a.compute} {value} to {b.compute}")


# -- ops ----------------------------------------------------------------------------------------

Writer = Callable[..., str]
ELEMENTWISE: dict[str, Writer] = {}
# Ops worth keeping in cache rather than computing again in a later pass over a row.
EXPENSIVE = {
    "exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "tanh", "sigmoid", "erf", "erfc",
    "sin", "cos", "tan", "pow", "softplus", "logsigmoid", "elu", "sinh", "cosh", "atan", "asin",
    "acos", "ndtr", "index", "counted_chance",
}  # fmt: skip
# Ops whose elements depend on their number, which a writer is given after the arguments.
NUMBERED = ("counted_chance",)


class Element:
    """What a writer is given: the code, the arguments' and the result's types, the attributes."""

    __slots__ = ("attrs", "code", "found", "kind", "out")

    def __init__(self, code: Code, found: dtype, out: dtype, attrs: dict[str, Any]) -> None:
        self.code = code
        self.found = found
        self.kind = KINDS[found]
        self.out = out
        self.attrs = attrs

    @property
    def type(self) -> str:
        return self.kind.compute

    def number(self, value: Any) -> str:
        return constant(value, self.found)

    def op(self, text: str) -> str:
        return self.code.op(text)

    def call(self, function: str, *args: str) -> str:
        return self.code.call(function, self.type, *args)

    def arith(self, word: str, a: str, b: str) -> str:
        """``add``, ``sub``, ``mul`` or ``div``."""
        if self.kind.is_float:
            return self.op(f"f{word} {FUSED} {self.type} {a}, {b}")
        if self.type == "i1":
            return self.op(f"{'or' if word == 'add' else 'and'} i1 {a}, {b}")
        return self.op(f"{word} {self.type} {a}, {b}")

    def compare(self, float_word: str, int_word: str, a: str, b: str) -> str:
        if self.kind.is_float:
            return self.op(f"fcmp {float_word} {self.type} {a}, {b}")
        if int_word not in ("eq", "ne"):
            int_word = ("s" if self.kind.signed else "u") + int_word
        return self.op(f"icmp {int_word} {self.type} {a}, {b}")

    def choose(self, condition: str, a: str, b: str) -> str:
        return self.op(f"select i1 {condition}, {self.type} {a}, {self.type} {b}")


def supports(name: str, operands: tuple[Any, ...], outs: tuple[Any, ...]) -> bool:
    """Whether a writer exists for an op on these types."""
    if name not in ELEMENTWISE:
        return False
    found = [t.dtype for t in (*operands, *outs)]
    if not all(t in KINDS for t in found):
        return False
    return name not in FLOAT_ONLY or KINDS[operands[0].dtype].is_float


FLOAT_ONLY: set[str] = set()


def writes(*names: str, floats: bool = False) -> Callable[[Writer], Writer]:
    def enter(function: Writer) -> Writer:
        for name in names:
            ELEMENTWISE[name] = function
            if floats:
                FLOAT_ONLY.add(name)
        return function

    return enter


for _word in ("add", "sub", "mul"):
    ELEMENTWISE[_word] = lambda e, a, b, word=_word: e.arith(word, a, b)

for _name, _float, _int in (
    ("eq", "oeq", "eq"), ("ne", "une", "ne"), ("lt", "olt", "lt"), ("le", "ole", "le"),
    ("gt", "ogt", "gt"), ("ge", "oge", "ge"),
):  # fmt: skip
    ELEMENTWISE[_name] = lambda e, a, b, f=_float, i=_int: e.compare(f, i, a, b)

for _name in ("exp", "log", "tanh", "erf", "log1p", "expm1", "ndtr"):
    ELEMENTWISE[_name] = lambda e, a, name=_name: e.call(f"vm_{name}", a)
    FLOAT_ONLY.add(_name)

for _name, _intrinsic in (
    ("sqrt", "sqrt"), ("floor", "floor"), ("ceil", "ceil"), ("trunc", "trunc"), ("sin", "sin"),
    ("cos", "cos"), ("exp2", "exp2"), ("log2", "log2"), ("log10", "log10"),
):  # fmt: skip
    ELEMENTWISE[_name] = lambda e, a, name=_intrinsic: e.call(f"llvm.{name}", a)
    FLOAT_ONLY.add(_name)

for _name, _word in (("bitwise_and", "and"), ("bitwise_or", "or"), ("bitwise_xor", "xor")):
    ELEMENTWISE[_name] = lambda e, a, b, word=_word: e.op(f"{word} {e.type} {a}, {b}")

for _name, _word in (("logical_and", "and"), ("logical_or", "or"), ("logical_xor", "xor")):
    ELEMENTWISE[_name] = lambda e, a, b, word=_word: e.op(
        f"{word} i1 {convert(e.code, a, e.found, dtypes.bool_)}, "
        f"{convert(e.code, b, e.found, dtypes.bool_)}"
    )

for _name, _float, _int in (
    ("maximum", "maximum", "max"), ("clamp_min", "maximum", "max"),
    ("minimum", "minimum", "min"), ("clamp_max", "minimum", "min"),
):  # fmt: skip

    def _extreme(e: Element, a: str, b: str, f: str = _float, i: str = _int) -> str:
        if e.kind.is_float:
            return e.call(f"llvm.{f}", a, b)
        if e.type == "i1":
            return e.op(f"{'or' if i == 'max' else 'and'} i1 {a}, {b}")
        return e.call(f"llvm.{'s' if e.kind.signed else 'u'}{i}", a, b)

    ELEMENTWISE[_name] = _extreme


@writes("div", floats=True)
def _div(e: Element, a: str, b: str) -> str:
    return e.arith("div", a, b)


@writes("neg")
def _neg(e: Element, a: str) -> str:
    return e.op(f"fneg {e.type} {a}") if e.kind.is_float else e.op(f"sub {e.type} 0, {a}")


@writes("abs")
def _abs(e: Element, a: str) -> str:
    if e.kind.is_float:
        return e.call("llvm.fabs", a)
    if not e.kind.signed:
        return a
    return e.choose(e.compare("olt", "lt", a, "0"), e.op(f"sub {e.type} 0, {a}"), a)


@writes("square")
def _square(e: Element, a: str) -> str:
    return e.arith("mul", a, a)


@writes("reciprocal", floats=True)
def _reciprocal(e: Element, a: str) -> str:
    return e.arith("div", e.number(1), a)


@writes("rsqrt", floats=True)
def _rsqrt(e: Element, a: str) -> str:
    return e.arith("div", e.number(1), e.call("llvm.sqrt", a))


@writes("sigmoid", floats=True)
def _sigmoid(e: Element, a: str) -> str:
    return e.call("vm_sigmoid", a)


@writes("pow", floats=True)
def _pow(e: Element, a: str, b: str) -> str:
    return e.call("llvm.pow", a, b)


@writes("relu")
def _relu(e: Element, a: str) -> str:
    return e.choose(e.compare("olt", "lt", a, e.number(0)), e.number(0), a)


@writes("sign")
def _sign(e: Element, a: str) -> str:
    above = e.choose(e.compare("ogt", "gt", a, e.number(0)), e.number(1), e.number(0))
    return e.choose(e.compare("olt", "lt", a, e.number(0)), e.number(-1), above)


@writes("isnan")
def _isnan(e: Element, a: str) -> str:
    return e.op(f"fcmp uno {e.type} {a}, {a}") if e.kind.is_float else "false"


@writes("isinf")
def _isinf(e: Element, a: str) -> str:
    if not e.kind.is_float:
        return "false"
    return e.op(f"fcmp oeq {e.type} {e.call('llvm.fabs', a)}, {e.number(math.inf)}")


@writes("isfinite")
def _isfinite(e: Element, a: str) -> str:
    if not e.kind.is_float:
        return "true"
    return e.op(f"fcmp one {e.type} {e.call('llvm.fabs', a)}, {e.number(math.inf)}")


@writes("logical_not")
def _logical_not(e: Element, a: str) -> str:
    return e.op(f"xor i1 {convert(e.code, a, e.found, dtypes.bool_)}, true")


@writes("bitwise_not")
def _bitwise_not(e: Element, a: str) -> str:
    return e.op(f"xor {e.type} {a}, {'true' if e.type == 'i1' else '-1'}")


@writes("counted_chance")
def _counted_chance(e: Element, seed: str, offset: str, number: str) -> str:
    kept = counted_element(e.op, seed, offset, number, str(threshold_of(e.attrs["keep"])))
    return convert(e.code, kept, dtypes.bool_, e.out)


@writes("cast")
def _cast(e: Element, a: str) -> str:
    return convert(e.code, a, e.found, e.out)


@writes("clone")
def _clone(e: Element, a: str) -> str:
    return a
