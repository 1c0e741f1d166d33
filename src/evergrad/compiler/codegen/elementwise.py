"""How one element of an op is computed, in LLVM IR.

Owns the element types as IR knows them, and :class:`Element`, the builder against which rows write
their ``emit``. A row without one, or an
element type that is not here, runs its NumPy evaluation inside the program.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.compiler.codegen.code import Code
from evergrad.compiler.codegen.rng import counted_element, threshold_of
from evergrad.core import dtypes
from evergrad.core.dtypes import dtype
from evergrad.core.op import Op
from evergrad.core.types import Attrs

if TYPE_CHECKING:
    from evergrad.core.shapes import TensorType


class Kind:
    """An element type: its storage type in memory, and the IR type it is computed in."""

    __slots__ = ("bits", "compute", "is_float", "signed", "storage")

    def __init__(self, storage: str, compute: str, bits: int, is_float: bool, signed: bool) -> None:
        self.storage: str = storage
        self.compute: str = compute
        self.bits: int = bits
        self.is_float: bool = is_float
        self.signed: bool = signed


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
# Without ``nsz``, which vectorization does not need: with it LLVM looks through the terms of a sum,
# whatever flags they have, and cancels ``x - x`` where x is infinite or NaN.
FUSED = "contract"
ANY_ORDER = "reassoc contract"


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
    return _bits(number)


def _bits(number: float) -> str:
    """A number as IR writes floats of either width."""
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
    return decoded(code, found, raw)


def decoded(code: Code, found: dtype, raw: str) -> str:
    """An element in its computing type, given as it is stored."""
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
    value = encoded(code, found, value)
    code.do(f"store {kind.storage} {value}, ptr {address}, align {kind.bits // 8}{tag}")


def encoded(code: Code, found: dtype, value: str) -> str:
    """An element as it is stored."""
    if found is dtypes.bool_:
        return code.op(f"zext i1 {value} to i8")
    if found is dtypes.bfloat16:
        return _to_bfloat16(code, value)
    if found is dtypes.float16:
        return code.op(f"fptrunc float {value} to half")
    return value


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


def _truncated(code: Code, value: str, type: str, bits: int) -> str:
    """A float as a signed integer: the least one for what is out of range, as on x86. LLVM leaves
    that undefined."""
    least = -(2.0 ** (bits - 1))
    # The next float below the least integer, if there is a fraction between.
    word, bound = ("ogt", least - 1) if type == "double" and bits == 32 else ("oge", least)
    above = code.op(f"fcmp {word} {type} {value}, {_bits(bound)}")
    below = code.op(f"fcmp olt {type} {value}, {_bits(-least)}")
    inside = code.op(f"and i1 {above}, {below}")
    found = code.op(f"fptosi {type} {value} to i{bits}")
    return code.op(f"select i1 {inside}, i{bits} {found}, i{bits} {int(least)}")


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
        bits = dtypes.conversion_type(target).itemsize * 8
        wide = _truncated(code, value, a.compute, bits)
        return wide if b.bits == bits else code.op(f"trunc i{bits} {wide} to {b.compute}")
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


class Element:
    """Emits the operations of one element: the :class:`~evergrad.core.row_facts.Builder` of rows.

    ``found`` is the element type of the arguments, ``out`` that of the result.
    """

    __slots__ = ("attrs", "code", "found", "kind", "out")

    def __init__(self, code: Code, found: dtype, out: dtype, attrs: Attrs) -> None:
        self.code: Code = code
        self.found: dtypes.dtype = found
        self.kind: Kind = KINDS[found]
        self.out: dtypes.dtype = out
        self.attrs: Attrs = attrs

    @property
    def type(self) -> str:
        return self.kind.compute

    @property
    def is_float(self) -> bool:
        return self.kind.is_float

    def number(self, value: object) -> str:
        return constant(value, self.found)

    def op(self, text: str) -> str:
        return self.code.op(text)

    @property
    def width(self) -> int:
        """The bits of an element while it is computed."""
        return {"float": 32, "i1": 1}.get(self.kind.compute, self.kind.bits)

    @property
    def is_signed(self) -> bool:
        return self.kind.signed

    def call(self, function: str, *args: str) -> str:
        """Call a function of floats: an intrinsic or a helper of :mod:`.vecmath.functions`."""
        if not self.kind.is_float:
            raise TypeError(f"{function} is for floats, not {self.found.name}: state floats=True")
        return self.code.call(function, self.type, *args)

    def cast(self, x: str) -> str:
        return convert(self.code, x, self.found, self.out)

    def cast_bool(self, x: str) -> str:
        """A truth value in the element type of the result."""
        return convert(self.code, x, dtypes.bool_, self.out)

    # -- arithmetic -----------------------------------------------------------------------------

    def arith(self, word: str, a: str, b: str) -> str:
        """``add``, ``sub``, ``mul`` or ``div``."""
        if self.kind.is_float:
            return self.op(f"f{word} {FUSED} {self.type} {a}, {b}")
        if self.type == "i1":
            return self.op(f"{'or' if word == 'add' else 'and'} i1 {a}, {b}")
        return self.op(f"{word} {self.type} {a}, {b}")

    def add(self, a: str, b: str) -> str:
        return self.arith("add", a, b)

    def sub(self, a: str, b: str) -> str:
        return self.arith("sub", a, b)

    def mul(self, a: str, b: str) -> str:
        return self.arith("mul", a, b)

    def div(self, a: str, b: str) -> str:
        return self.arith("div", a, b)

    def int_div(self, a: str, b: str) -> str:
        """The quotient of integers towards zero; undefined for a divisor of 0, and of -1 if it
        overflows."""
        return self.op(f"{'s' if self.kind.signed else 'u'}div {self.type} {a}, {b}")

    def neg(self, x: str) -> str:
        return self.op(f"fneg {self.type} {x}" if self.is_float else f"sub {self.type} 0, {x}")

    def abs(self, x: str) -> str:
        if self.kind.is_float:
            return self.call("llvm.fabs", x)
        if not self.kind.signed:
            return x
        return self.choose(self.lt(x, self.number(0)), self.neg(x), x)

    def maximum(self, a: str, b: str) -> str:
        return self._extreme("max", a, b)

    def minimum(self, a: str, b: str) -> str:
        return self._extreme("min", a, b)

    def _extreme(self, word: str, a: str, b: str) -> str:
        if self.kind.is_float:  # the sign of the greater of two zeros is open
            return self.code.call(f"llvm.{word}imum", self.type, a, b, flags="nsz contract")
        if self.type == "i1":
            return self.op(f"{'or' if word == 'max' else 'and'} i1 {a}, {b}")
        return self.code.call(f"llvm.{'s' if self.kind.signed else 'u'}{word}", self.type, a, b)

    # -- comparisons ----------------------------------------------------------------------------

    def compare(self, float_word: str, int_word: str, a: str, b: str) -> str:
        if self.kind.is_float:
            return self.op(f"fcmp {float_word} {self.type} {a}, {b}")
        if int_word not in ("eq", "ne"):
            int_word = ("s" if self.kind.signed else "u") + int_word
        return self.op(f"icmp {int_word} {self.type} {a}, {b}")

    def eq(self, a: str, b: str) -> str:
        return self.compare("oeq", "eq", a, b)

    def ne(self, a: str, b: str) -> str:
        return self.compare("une", "ne", a, b)

    def lt(self, a: str, b: str) -> str:
        return self.compare("olt", "lt", a, b)

    def le(self, a: str, b: str) -> str:
        return self.compare("ole", "le", a, b)

    def gt(self, a: str, b: str) -> str:
        return self.compare("ogt", "gt", a, b)

    def ge(self, a: str, b: str) -> str:
        return self.compare("oge", "ge", a, b)

    def is_nan(self, x: str) -> str:
        return self.op(f"fcmp uno {self.type} {x}, {x}") if self.is_float else "false"

    def is_inf(self, x: str) -> str:
        return self.eq(self.abs(x), self.number(math.inf)) if self.is_float else "false"

    def is_finite(self, x: str) -> str:
        if not self.is_float:
            return "true"
        return self.op(f"fcmp one {self.type} {self.abs(x)}, {self.number(math.inf)}")

    def choose(self, condition: str, a: str, b: str) -> str:
        return self.op(f"select i1 {condition}, {self.type} {a}, {self.type} {b}")

    # -- truth values and bits ------------------------------------------------------------------

    def truth(self, x: str) -> str:
        return convert(self.code, x, self.found, dtypes.bool_)

    def logical_and(self, a: str, b: str) -> str:
        return self.op(f"and i1 {a}, {b}")

    def logical_or(self, a: str, b: str) -> str:
        return self.op(f"or i1 {a}, {b}")

    def logical_xor(self, a: str, b: str) -> str:
        return self.op(f"xor i1 {a}, {b}")

    def logical_not(self, x: str) -> str:
        return self.op(f"xor i1 {x}, true")

    def bit_and(self, a: str, b: str) -> str:
        return self.op(f"and {self.type} {a}, {b}")

    def bit_or(self, a: str, b: str) -> str:
        return self.op(f"or {self.type} {a}, {b}")

    def bit_xor(self, a: str, b: str) -> str:
        return self.op(f"xor {self.type} {a}, {b}")

    def bit_not(self, x: str) -> str:
        return self.op(f"xor {self.type} {x}, {'true' if self.type == 'i1' else '-1'}")

    def shift_left(self, a: str, b: str) -> str:
        return self.op(f"shl {self.type} {a}, {b}")

    def shift_right(self, a: str, b: str) -> str:
        """Of signed integers, copies of the sign come in from the left."""
        return self.op(f"{'ashr' if self.kind.signed else 'lshr'} {self.type} {a}, {b}")

    def bits(self, x: str) -> str:
        """The bits of a float as a signed integer of its width."""
        return self.op(f"bitcast {self.type} {x} to i{self.width}")

    def sign_bit(self, x: str) -> str:
        """Whether a number is negative, or -0.0."""
        return self.op(f"icmp slt i{self.width} {self.bits(x)}, 0")

    def random_bit(self, seed: str, offset: str, number: str, keep: float) -> str:
        """Whether the random number of an element is below a probability."""
        return counted_element(self.op, seed, offset, number, str(threshold_of(keep)))

    # -- functions of floats --------------------------------------------------------------------

    def sqrt(self, x: str) -> str:
        return self.call("llvm.sqrt", x)

    def floor(self, x: str) -> str:
        return self.call("llvm.floor", x)

    def ceil(self, x: str) -> str:
        return self.call("llvm.ceil", x)

    def trunc(self, x: str) -> str:
        return self.call("llvm.trunc", x)

    def round(self, x: str) -> str:
        """To the nearest integer, ties to the even one."""
        return self.call("llvm.roundeven", x)

    def math(self, name: str, *args: str) -> str:
        """A function of :mod:`.vecmath.functions`."""
        return self.call(f"vm_{name}", *args)

    def copysign(self, size: str, sign: str) -> str:
        return self.call("llvm.copysign", size, sign)

    def pow(self, a: str, b: str) -> str:
        return self.math("pow", a, b)


def emit_op(code: Code, op: Op, found: dtype, out: dtype, attrs: Attrs, args: Sequence[str]) -> str:
    """One element of an elementwise op, of arguments of type ``found``."""
    emit = op.emit
    assert emit.function is not None, f"{op.name} is not elementwise"
    value = emit.function(Element(code, found, out, attrs), *args)
    return value if emit.exact else rounded(code, out, value)


def supports(
    op: Op, operands: tuple[TensorType, ...], outs: tuple[TensorType] | tuple[TensorType, ...]
) -> bool:
    """Whether an element of a row can be emitted for these types."""
    if op.emit.function is None or not all(t.dtype in KINDS for t in (*operands, *outs)):
        return False
    kind = KINDS[operands[0].dtype]
    return (kind.is_float or not op.emit.floats) and not (op.emit.single and kind.bits == 64)
