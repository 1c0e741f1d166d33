"""Normal numbers in LLVM IR: Box-Muller transforms of random words, with PyTorch's roundings.

Blocks of 16 words give 16 numbers: word j is the radius, word j + 8 the angle of numbers j (cosine)
and j + 8 (sine). Float32 is the arithmetic of :func:`evergrad.core.exact.box_muller` with fused
multiply-adds, in vectors; float64 calls the C library, as do single numbers, of which a generator
keeps the second of a pair.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from functools import cache

from evergrad.compiler.codegen.ir_builder import Vector
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.kernel_builder import KernelBuilder
from evergrad.compiler.codegen.rng import SPARE_BYTES, words
from evergrad.core.exact import (
    COS_POLYNOMIAL,
    LOG_POLYNOMIAL,
    PI_OVER_4,
    SIN_POLYNOMIAL,
)

BLOCK = 16
_HALF = BLOCK // 2
# A vector of the radii, or of the angles, of two blocks.
_LANES = Vector("float", BLOCK, 4)
_LIBM = ("log", "log1p", "sin", "cos")


class _Builder(KernelBuilder):
    """Vectors of 16 float32 numbers whose products and sums are not fused but where it says so, and
    functions of float64 from the C library."""

    def float_number(self, value: float) -> str:
        (rounded,) = struct.unpack("<f", struct.pack("<f", value))
        (bits,) = struct.unpack("<Q", struct.pack("<d", rounded))
        return self.splat(f"0x{bits:016X}", "float")

    def whole(self, word: str, a: str, b: int | str) -> str:
        """An operation on vectors of integers."""
        other = self.splat(str(b), "i32") if isinstance(b, int) else b
        return self.op(f"{word} {self.vector.of('i32')} {a}, {other}")

    def convert(self, word: str, value: str, source: str, target: str) -> str:
        return self.op(f"{word} {self.vector.of(source)} {value} to {self.vector.of(target)}")

    def polynomial(self, coefficients: Sequence[float], x: str) -> str:
        """The highest coefficient first, each step fused."""
        value = self.float_number(coefficients[0])
        for coefficient in coefficients[1:]:
            value = self.multiply_add(value, x, self.float_number(coefficient))
        return value

    def root(self, value: str) -> str:
        many, name = self.vector.type, f"llvm.sqrt.{self.vector.mangled}"
        self.helpers[name] = f"declare {many} @{name}({many})"
        return self.op(f"call {many} @{name}({many} {value})")

    def double(self, function: str, *args: str) -> str:
        """A function of float64, of the C library or an intrinsic."""
        name = function if function in _LIBM else f"llvm.{function}.f64"
        self.helpers[name] = f"declare double @{name}({', '.join(['double'] * len(args))})"
        given = ", ".join(f"double {a}" for a in args)
        return self.op(f"call double @{name}({given})")

    def unit64(self, address: str) -> str:
        """A float64 in [0, 1) of the low 53 bits of two words, the high one first."""
        stored = self.op(f"load i64, ptr {address}, align 4")
        top = self.op(f"shl i64 {self.op(f'and i64 {stored}, {(1 << 21) - 1}')}, 32")
        bits = self.op(f"or i64 {top}, {self.op(f'lshr i64 {stored}, 32')}")
        value = self.op(f"uitofp i64 {bits} to double")
        return self.op(f"fmul double {value}, {_hex(2.0**-53)}")

    def scaled(self, value: str) -> str:
        """A float64 with the wanted mean and deviation, rounded once."""
        std, mean = (self.op(f"bitcast i64 {self[name]} to double") for name in ("std", "mean"))
        return self.double("fma", value, std, mean)


def _hex(value: float) -> str:
    (bits,) = struct.unpack("<Q", struct.pack("<d", value))
    return f"0x{bits:016X}"


# -- blocks of float32 --------------------------------------------------------------------------


def _log(b: _Builder, x: str) -> str:
    """Cephes' ``logf`` of numbers in (0, 1]."""
    bits = b.convert("bitcast", x, "float", "i32")
    exponent = b.whole("sub", b.whole("lshr", bits, 23), 126)
    fraction = b.whole("or", b.whole("and", bits, 0x7FFFFF), 0x3F000000)
    mantissa = b.convert("bitcast", fraction, "i32", "float")
    below = b.lanewise("fcmp olt", mantissa, b.float_number(math.sqrt(0.5)))
    exponent = b.whole("add", exponent, b.convert("sext", below, "i1", "i32"))
    power = b.convert("sitofp", exponent, "i32", "float")
    m = b.plus(
        b.minus(mantissa, b.float_number(1.0)), b.choose(below, mantissa, b.float_number(0.0))
    )
    square = b.lanewise("fmul", m, m)
    y = b.lanewise("fmul", b.polynomial(LOG_POLYNOMIAL, m), m)
    y = b.multiply_add(y, square, b.lanewise("fmul", power, b.float_number(-2.12194440e-4)))
    y = b.multiply_add(square, b.float_number(-0.5), y)
    return b.multiply_add(power, b.float_number(0.693359375), b.plus(m, y))


def _sincos(b: _Builder, x: str) -> tuple[str, str]:
    """Cephes' ``sinf`` and ``cosf`` of numbers in [0, 2 pi)."""
    scaled = b.lanewise("fmul", x, b.float_number(4 / math.pi))
    octant = b.convert("fptosi", scaled, "float", "i32")
    octant = b.whole("add", octant, b.whole("and", octant, 1))
    turns = b.convert("sitofp", octant, "i32", "float")
    for part in PI_OVER_4:
        x = b.multiply_add(turns, b.float_number(-part), x)
    square = b.lanewise("fmul", x, x)
    sine = b.lanewise("fmul", b.polynomial(SIN_POLYNOMIAL, square), square)
    sine = b.multiply_add(sine, x, x)
    cosine = b.lanewise("fmul", b.polynomial(COS_POLYNOMIAL, square), square)
    cosine = b.multiply_add(cosine, square, b.lanewise("fmul", square, b.float_number(-0.5)))
    cosine = b.plus(cosine, b.float_number(1.0))
    swap = b.whole("icmp ne", b.whole("and", octant, 2), 0)
    found = b.choose(swap, cosine, sine), b.choose(swap, sine, cosine)
    signs = octant, b.whole("add", octant, 2)
    return _signed(b, found[0], signs[0]), _signed(b, found[1], signs[1])


def _signed(b: _Builder, value: str, octant: str) -> str:
    """Negated in the octants whose third bit is set."""
    flip = b.whole("shl", b.whole("and", octant, 4), 29)
    bits = b.whole("xor", b.convert("bitcast", value, "float", "i32"), flip)
    return b.convert("bitcast", bits, "i32", "float")


def _transform(b: _Builder, blocks: tuple[str, str], is_standard: bool) -> tuple[str, str]:
    """The numbers of two blocks from their words."""
    units = []
    for stored in blocks:
        bits = b.whole("and", b.op(f"load {b.vector.of('i32')}, ptr {stored}, align 4"), 0xFFFFFF)
        value = b.convert("sitofp", bits, "i32", "float")
        units.append(b.lanewise("fmul", value, b.float_number(2.0**-24)))
    radius = b.shuffled(units, [*range(_HALF), *range(BLOCK, BLOCK + _HALF)])
    angle = b.shuffled(units, [*range(_HALF, BLOCK), *range(BLOCK + _HALF, 2 * BLOCK)])
    logarithm = _log(b, b.minus(b.float_number(1.0), radius))
    length = b.root(b.lanewise("fmul", logarithm, b.float_number(-2.0)))
    sin, cos = _sincos(b, b.lanewise("fmul", angle, b.float_number(2 * math.pi)))
    pair = [b.lanewise("fmul", length, part) for part in (cos, sin)]
    if not is_standard:
        std, mean = (b.splat(_narrow(b, b[name]), "float") for name in ("std", "mean"))
        pair = [b.multiply_add(part, std, mean) for part in pair]
    return (
        b.shuffled(pair, [*range(_HALF), *range(BLOCK, BLOCK + _HALF)]),
        b.shuffled(pair, [*range(_HALF, BLOCK), *range(BLOCK + _HALF, 2 * BLOCK)]),
    )


def _narrow(b: _Builder, number: str) -> str:
    return b.op(f"fptrunc double {b.op(f'bitcast i64 {number} to double')} to float")


_NUMBERS = ("blocks", "per_chunk", "count", "tail", "mean", "std")


@cache
def blocks32(is_standard: bool) -> Kernel:
    """Float32 numbers of whole blocks and, if ``tail`` is not 0, the last 16 numbers of the words
    from there on. The last chunk overwrites its own numbers with these."""
    b = _Builder(_LANES, ("words", "out"), _NUMBERS)
    size = 4 * BLOCK
    first, last = b.items("%chunk", b["per_chunk"], b["blocks"])
    with b.loop(last, 2, first) as block:
        start = b.mul(block, size)
        is_whole = b.op(f"icmp slt i64 {b.add(block, 1)}, {last}")
        # An odd block is transformed twice.
        other = b.op(f"select i1 {is_whole}, i64 {b.add(start, size)}, i64 {start}")
        _store_blocks(b, start, other, start, other, is_standard)
    has_tail = b.op(f"icmp ne i64 {b['tail']}, 0")
    is_last = b.op(f"icmp eq i64 {last}, {b['blocks']}")
    with b.when(b.op(f"and i1 {has_tail}, {is_last}")):
        start, to = b.mul(b["tail"], 4), b.mul(b.sub(b["count"], BLOCK), 4)
        _store_blocks(b, start, start, to, to, is_standard)
    return b.kernel("normal_blocks")


def _store_blocks(
    b: _Builder, start: str, other: str, to: str, to_other: str, is_standard: bool
) -> None:
    found = _transform(b, (_bytes(b, "words", start), _bytes(b, "words", other)), is_standard)
    for value, offset in zip(found, (to, to_other), strict=True):
        b.store_vector(value, _bytes(b, "out", offset))


def _bytes(b: _Builder, name: str, offset: str) -> str:
    return b.op(f"getelementptr i8, ptr {b[name]}, i64 {offset}")


# -- float64 ------------------------------------------------------------------------------------


@cache
def blocks64() -> Kernel:
    """The same in float64, of two words for each number."""
    b = _Builder(Vector("double", 1, 8), ("words", "out"), _NUMBERS)
    first, last = b.items("%chunk", b["per_chunk"], b["blocks"])
    with b.loop(last, first=first) as block:
        start = b.mul(block, BLOCK)
        _store_block64(b, start, start)
    has_tail = b.op(f"icmp ne i64 {b['tail']}, 0")
    is_last = b.op(f"icmp eq i64 {last}, {b['blocks']}")
    with b.when(b.op(f"and i1 {has_tail}, {is_last}")):
        _store_block64(b, b["tail"], b.sub(b["count"], BLOCK))
    return b.kernel("normal_blocks")


def _store_block64(b: _Builder, start: str, to: str) -> None:
    with b.loop(_HALF) as j:
        radius = b.unit64(b.at(b["words"], start, j))
        angle = b.unit64(b.at(b["words"], start, j, _HALF))
        logarithm = b.double("log", b.op(f"fsub double 1.0, {radius}"))
        length, theta = _polar(b, logarithm, angle)
        for name, offset in (("cos", 0), ("sin", _HALF)):
            value = b.op(f"fmul double {length}, {b.double(name, theta)}")
            b.store(b.scaled(value), b.at(b["out"], to, j, offset))


def _polar(b: _Builder, logarithm: str, angle: str) -> tuple[str, str]:
    length = b.double("sqrt", b.op(f"fmul double {logarithm}, {_hex(-2.0)}"))
    return length, b.op(f"fmul double {angle}, {_hex(2.0 * math.pi)}")


@cache
def singles() -> Kernel:
    """Float64 numbers one after the other, in pairs of which a generator keeps the second."""
    b = _Builder(Vector("double", 1, 8), ("state", "out"), ("count", "mean", "std"))
    flag, spare = (
        b.op(f"getelementptr i8, ptr {b['state']}, i64 {SPARE_BYTES + n}") for n in (0, 8)
    )
    name, ir, needs = words()
    b.helpers |= {**needs, name: ir}
    with b.loop(b["count"]) as i:
        kept = b.op(f"load i64, ptr {flag}")
        is_kept = b.op(f"icmp ne i64 {kept}, 0")
        before = b.load(spare)
        to = b.at(b["out"], i)
        b.store(b.scaled(before), to)
        b.do(f"store i64 0, ptr {flag}")
        with b.when(b.op(f"xor i1 {is_kept}, true")):
            b.do(f"call void @{name}(ptr {b['state']}, i64 4, ptr {b.scratch})")
            angle, radius = (b.unit64(b.at(b.scratch, n)) for n in (0, 1))
            logarithm = b.double("log1p", b.op(f"fneg double {radius}"))
            length, theta = _polar(b, logarithm, angle)
            cosine, sine = (
                b.op(f"fmul double {length}, {b.double(name, theta)}") for name in ("cos", "sin")
            )
            b.store(b.scaled(cosine), to)
            b.store(sine, spare)
            b.do(f"store i64 1, ptr {flag}")
    return b.kernel("normal_singles")
