"""Random number generators in LLVM IR: the Mersenne twister, which is sequential, and Philox, which
is counter-based and can start anywhere.

The twister's state is 624 words and the number of those that are consumed. Vector loads of it may
reach a little beyond its end, where its buffer goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import ceil
from typing import NamedTuple

from evergrad.compiler.codegen.function_builder import (
    FunctionBuilder,
    Helper,
    helper,
    lanes,
)
from evergrad.compiler.codegen.ir_builder import Vector
from evergrad.compiler.native.jit import name_of

# Elements that are sampled at once: of fewer words than the twister generates at once.
PIECE = 256
# The scratch memory of their words, with what a vector store may write beyond them.
PIECE_BYTES = PIECE * 8 + 64
STATE_WORDS = 624
STATE_BYTES = STATE_WORDS * 4
# The buffer of a generator's state: the twister's words, its position, whether it has a spare
# normal number and that number, and slack for vector loads.
SPARE_BYTES = STATE_BYTES + 8
STATE_BUFFER_BYTES = STATE_BYTES + 128
_MIDDLE = 397


class KernelIR(NamedTuple):
    """IR of a kernel, and the functions it calls."""

    name: str
    ir: str
    helpers: dict[str, str]


def threshold_of(keep: float) -> int:
    """The bound below which a random 53-bit number means one below ``keep``."""
    return ceil(keep * 2.0**53)


def finished(w: FunctionBuilder, kind: str) -> KernelIR:
    """A kernel of the builder's text."""
    head = (
        "define void @SELF(ptr %args, i64 %chunk, ptr %scratch) nounwind "
        f'"prefer-vector-width"="{lanes() * 32}"'
    )
    ir = w.function(head)
    name = name_of(ir, kind)
    return KernelIR(name, ir.replace("@SELF", f"@{name}"), w.helpers)


# -- the Mersenne twister -----------------------------------------------------------------------


class _IntegerBuilder(FunctionBuilder):
    """A builder with vectors of 32-bit integers."""

    def __init__(self) -> None:
        super().__init__()
        self.words: Vector = Vector("i32", lanes(), 4)
        self.int_vector: str = self.words.type

    def int_splat(self, number: int) -> str:
        return self.splat_constant(number, "i32")

    def int_op(self, word: str, a: str, b: str | int) -> str:
        return self.op(
            f"{word} {self.int_vector} {a}, {b if isinstance(b, str) else self.int_splat(b)}"
        )

    def int_load(self, address: str) -> str:
        return self.load_vector(address, self.words)

    def int_store(self, value: str, address: str) -> None:
        self.do(f"store {self.int_vector} {value}, ptr {address}, align 4")

    def int_masked_store(self, value: str, address: str, mask: str) -> None:
        self.store_masked(value, address, mask, self.words)

    def twisted(self, here: str, after: str, far: str) -> str:
        """New state words, each from three old ones."""
        joined = self.int_op(
            "or", self.int_op("and", here, -0x80000000), self.int_op("and", after, 0x7FFFFFFF)
        )
        odd = self.int_op("icmp ne", self.int_op("and", after, 1), "zeroinitializer")
        factor = self.op(
            f"select {self.mask_type} {odd}, {self.int_vector} {self.int_splat(-0x66F74F21)}, "
            f"{self.int_vector} zeroinitializer"
        )
        return self.int_op("xor", self.int_op("xor", far, self.int_op("lshr", joined, 1)), factor)

    def tempered(self, word: str) -> str:
        word = self.int_op("xor", word, self.int_op("lshr", word, 11))
        for shift, mask in ((7, -0x62D3A980), (15, -0x103A0000)):
            moved = self.int_op("and", self.int_op("shl", word, shift), mask)
            word = self.int_op("xor", word, moved)
        return self.int_op("xor", word, self.int_op("lshr", word, 18))


@cache
def _twist() -> Helper:
    """Generate all words of the state, from the first to the last."""
    w = _IntegerBuilder()
    first = STATE_WORDS - _MIDDLE
    for start, end, far in ((0, first, _MIDDLE), (first, STATE_WORDS - 1, -first)):
        with w.loop(end, lanes(), first=start) as i:
            here = w.at_byte("%state", w.mul(i, 4))
            made = w.twisted(
                w.int_load(here),
                w.int_load(w.at_byte(here, 4)),
                w.int_load(w.at_byte(here, far * 4)),
            )
            w.int_masked_store(made, here, w.first_lanes(w.sub(end, i)))
    last = w.at_byte("%state", (STATE_WORDS - 1) * 4)
    far_word = w.at_byte("%state", (_MIDDLE - 1) * 4)
    made = w.twisted(w.int_load(last), w.int_load("%state"), w.int_load(far_word))
    w.int_masked_store(made, last, w.first_lanes("1"))
    return helper(w, "twist", "ptr %state")


@cache
def words() -> Helper:
    """The next words, at most as many as the twister generates at once."""
    w = _IntegerBuilder()
    held = w.at_byte("%state", STATE_BYTES)
    position = w.op(f"load i64, ptr {held}")
    ready = w.least(w.sub(STATE_WORDS, position), "%count")
    rest = w.sub("%count", ready)
    _temper(w, w.at_byte("%state", w.mul(position, 4)), ready, "%to")
    w.do(f"store i64 {w.add(position, ready)}, ptr {held}")
    with w.when(w.op(f"icmp sgt i64 {rest}, 0")):
        w.call_helper(_twist(), "ptr %state")
        _temper(w, "%state", rest, w.at_byte("%to", w.mul(ready, 4)))
        w.do(f"store i64 {rest}, ptr {held}")
    return helper(w, "words", "ptr %state, i64 %count, ptr %to")


def _temper(w: _IntegerBuilder, start: str, count: str, to: str) -> None:
    with w.loop(count, lanes()) as i:
        shift = w.mul(i, 4)
        w.int_store(w.tempered(w.int_load(w.at_byte(start, shift))), w.at_byte(to, shift))


@cache
def random_words() -> KernelIR:
    """The next words, in memory of their own."""
    w = _IntegerBuilder()
    w.load_arguments(("state", "out"), ("total",))
    copy = "llvm.memcpy.p0.p0.i64"
    w.helpers[copy] = f"declare void @{copy}(ptr, ptr, i64, i1)"
    with w.loop("%total", 2 * PIECE) as first:
        count = w.least(w.sub("%total", first), 2 * PIECE)
        w.call_helper(words(), "ptr %state", f"i64 {count}", "ptr %scratch")
        target = w.at_byte("%out", w.mul(first, 4))
        w.do(f"call void @{copy}(ptr {target}, ptr %scratch, i64 {w.mul(count, 4)}, i1 false)")
    return finished(w, "random_words")


class _BernoulliBuilder(_IntegerBuilder):
    """What the kernels that sample masks from the twister share."""

    def __init__(self, numbers: tuple[str, ...]) -> None:
        super().__init__()
        self.load_arguments(("state", "out"), numbers)
        halves = (self.op("lshr i64 %limit, 32"), "%limit")
        self.limit = [self.splat(self.op(f"trunc i64 {half} to i32"), "i32") for half in halves]

    def generate(self, count: str) -> None:
        """Generate the words of ``count`` elements, at most a piece, in scratch memory."""
        self.call_helper(words(), "ptr %state", f"i64 {self.mul(count, 2)}", "ptr %scratch")

    def is_kept(self, i: str) -> str:
        """A mask of the elements that are kept: 53 bits of two words, the high one first."""
        start = self.at_byte("%scratch", self.mul(i, 8))
        both = [self.int_load(self.at_byte(start, n * lanes() * 4)) for n in (0, 1)]
        high, low = (
            self.op(
                f"shufflevector {self.int_vector} {both[0]}, {self.int_vector} {both[1]}, "
                f"<{lanes()} x i32> "
                f"<{', '.join(f'i32 {2 * n + half}' for n in range(lanes()))}>"
            )
            for half in (0, 1)
        )
        high = self.int_op("and", high, (1 << 21) - 1)
        less = self.int_op("icmp ult", high, self.limit[0])
        same = self.int_op("icmp eq", high, self.limit[0])
        below = self.int_op("icmp ult", low, self.limit[1])
        return self.op(
            f"or {self.mask_type} {less}, {self.op(f'and {self.mask_type} {same}, {below}')}"
        )


@cache
def chance_bits() -> KernelIR:
    """Masks of a batch of matrices, in row-major order; 32 elements of a column form a word."""
    w = _BernoulliBuilder(("matrices", "rows", "columns", "blocks", "limit"))
    with w.loop("%matrices") as m, w.loop("%rows") as r:
        block = w.add(w.mul(m, "%blocks"), w.op(f"lshr i64 {r}, 5"))
        row = w.at_byte("%out", w.mul(w.mul(block, "%columns"), 4))
        position = w.op(f"trunc i64 {w.op(f'and i64 {r}, 31')} to i32")
        bit = w.splat(w.op(f"shl i32 1, {position}"), "i32")
        begun = w.splat(w.op(f"icmp ne i32 {position}, 0"), "i1")
        with w.loop("%columns", PIECE) as first:
            count = w.least(w.sub("%columns", first), PIECE)
            w.generate(count)
            with w.loop(count, lanes()) as i:
                valid = w.first_lanes(w.sub(count, i))
                target = w.at_byte(row, w.mul(w.add(first, i), 4))
                mask = w.op(f"and {w.mask_type} {valid}, {begun}")
                found = w.load_masked(target, mask, vector=w.words)
                new = w.op(
                    f"select {w.mask_type} {w.is_kept(i)}, {w.int_vector} {bit}, "
                    f"{w.int_vector} zeroinitializer"
                )
                w.int_masked_store(w.int_op("or", found, new), target, valid)
    return finished(w, "chance_bits")


@cache
def chance_bytes() -> KernelIR:
    """A contiguous mask of bytes."""
    w = _BernoulliBuilder(("total", "limit"))
    bytes_ = f"<{lanes()} x i8>"
    store = f"llvm.masked.store.v{lanes()}i8.p0"
    w.helpers[store] = f"declare void @{store}({bytes_}, ptr, i32, {w.mask_type})"
    with w.loop("%total", PIECE) as first:
        count = w.least(w.sub("%total", first), PIECE)
        w.generate(count)
        with w.loop(count, lanes()) as i:
            valid = w.first_lanes(w.sub(count, i))
            value = w.op(f"zext {w.mask_type} {w.is_kept(i)} to {bytes_}")
            target = w.at_byte("%out", w.add(first, i))
            w.do(
                f"call void @{store}({bytes_} {value}, ptr {target}, i32 1, {w.mask_type} {valid})"
            )
    return finished(w, "chance")


# -- Philox -------------------------------------------------------------------------------------

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = 0xFFFFFFFF


class _Rounds:
    """The rounds of Philox, scalar or vectorized: 32-bit words in 64-bit lanes, whose high halves
    are undefined."""

    def __init__(self, op: Callable[[str], str], width: int) -> None:
        self.emit = op
        self.width = width
        self.type = f"<{width} x i64>" if width > 1 else "i64"

    def number(self, value: int) -> str:
        if self.width == 1:
            return str(value)
        return f"<{', '.join([f'i64 {value}'] * self.width)}>"

    def op(self, word: str, a: str, b: str | int) -> str:
        other = b if isinstance(b, str) else self.number(b)
        return self.emit(f"{word} {self.type} {a}, {other}")

    def blocks(self, counter: str, seed: str) -> list[str]:
        """The four words of the block of a counter."""
        c0, c1, c2, c3 = counter, self.op("lshr", counter, 32), self.number(0), self.number(0)
        k0, k1 = seed, self.op("lshr", seed, 32)
        for _ in range(10):
            first = self.op("mul", self.op("and", c0, _LOW), _MULTIPLIERS[0])
            second = self.op("mul", self.op("and", c2, _LOW), _MULTIPLIERS[1])
            c0 = self.op("xor", self.op("xor", self.op("lshr", second, 32), c1), k0)
            c2 = self.op("xor", self.op("xor", self.op("lshr", first, 32), c3), k1)
            c1, c3 = second, first
            k0, k1 = self.op("add", k0, _WEYL[0]), self.op("add", k1, _WEYL[1])
        return [c0, c1, c2, c3]

    def is_below(self, high: str, low: str, limit: str) -> str:
        """Whether the 53 bits of two words are below a threshold."""
        top = self.op("shl", self.op("and", high, (1 << 21) - 1), 32)
        bits = self.op("or", top, self.op("and", low, _LOW))
        return self.op("icmp ult", bits, limit)


def counted_element(
    op: Callable[[str], str], seed: str, offset: str, index: str, limit: str
) -> str:
    """Whether one element of a mask is kept: two elements share the words of one block."""
    rounds = _Rounds(op, 1)
    words = rounds.blocks(rounds.op("add", offset, rounds.op("lshr", index, 1)), seed)
    odd = op(f"trunc i64 {index} to i1")
    high, low = (
        op(f"select i1 {odd}, i64 {words[n + 2]}, i64 {words[n]}") for n in (0, 1)
    )  # fmt: skip
    return rounds.is_below(high, low, limit)


@cache
def counted_bits() -> Helper:
    """Masks of a vector of matrix rows in a range of columns: one word for each column, in which
    the vector's bits start at ``lane``."""
    w = FunctionBuilder()
    rounds = _Rounds(w.op, lanes())

    def spread(value: str) -> str:
        return w.splat(value, "i64")

    numbers = f"<{', '.join(f'i64 {n}' for n in range(lanes()))}>"
    across = rounds.op("mul", spread("%columns"), numbers)
    seed, offset, limit = (spread(f"%{name}") for name in ("seed", "offset", "limit"))
    starts = rounds.op("add", spread("%index"), across)

    def words_at(column: str) -> tuple[str, list[str]]:
        index = rounds.op("add", starts, spread(column))
        counter = rounds.op("add", offset, rounds.op("lshr", index, 1))
        return index, rounds.blocks(counter, seed)

    def put(column: str, high: str, low: str) -> None:
        kept = rounds.is_below(high, low, limit)
        bits = w.op(f"bitcast {w.mask_type} {kept} to i{lanes()}")
        wide = w.op(f"shl i32 {w.op(f'zext i{lanes()} {bits} to i32')}, %place")
        target = w.at_byte("%to", w.mul(column, 4))
        before = w.op(f"load i32, ptr {target}, align 4")
        begun = w.op(f"select i1 %first, i32 0, i32 {before}")
        w.do(f"store i32 {w.op(f'or i32 {begun}, {wide}')}, ptr {target}, align 4")

    w.do("%place = trunc i64 %lane to i32")
    w.do("%first = icmp eq i64 %lane, 0")
    odd = w.op(f"and i64 {w.op('or i64 %index, %columns')}, 1")
    paired = w.op(f"icmp eq i64 {odd}, 0")
    both = w.op(f"select i1 {paired}, i64 %count, i64 0")
    with w.loop(both, 2) as column:
        _, words = words_at(column)
        put(column, *words[:2])
        put(w.add(column, 1), *words[2:])
    with w.loop("%count", first=both) as column:
        index, words = words_at(column)
        is_odd = w.op(f"trunc {rounds.type} {index} to {w.mask_type}")
        typed = [f"{rounds.type} {word}" for word in words]
        high, low = (
            w.op(f"select {w.mask_type} {is_odd}, {typed[n + 2]}, {typed[n]}") for n in (0, 1)
        )
        put(column, high, low)
    return helper(
        w, "counted_bits",
        "i64 %seed, i64 %offset, i64 %index, i64 %columns, i64 %count, i64 %limit, i64 %lane, "
        "ptr %to",
    )  # fmt: skip


@cache
def position() -> KernelIR:
    """The seed and the offset of a generator, which is advanced."""
    w = FunctionBuilder()
    w.load_arguments(("state", "seed", "offset"), ("blocks",))
    w.do(f"store i64 {w.op('load i64, ptr %state')}, ptr %seed")
    held = w.at_byte("%state", 8)
    before = w.op(f"load i64, ptr {held}")
    w.do(f"store i64 {before}, ptr %offset")
    w.do(f"store i64 {w.add(before, '%blocks')}, ptr {held}")
    return finished(w, "stream_position")
