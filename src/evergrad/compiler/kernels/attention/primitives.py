"""What the kernels of attention are made of, in LLVM IR: a writer of loops, tiles that are turned
(transposed), and the exponential of a vector.

Matrices in scratch memory have rows of whole vectors; whatever lies beyond the edges of a value is
read as zero or as a copy of its last row, and never written back.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from math import log

from evergrad.compiler.codegen.vecmath import EXP_LEAST, LOG_2_E, MAGIC
from evergrad.compiler.native.jit import vector_bits
from evergrad.compiler.native.target import machine
from evergrad.ops.rows.special.tables import EXP_SINGLE

LOG_2 = log(2.0)
# Queries of a block: they lie side by side in the lanes of vectors.
QUERIES = 64
ROW = QUERIES * 4
LINE = machine().line_bytes
# Rows of scratch matrices are counted in eights, the most rows of a tile.
EIGHT = 8


def lanes() -> int:
    return vector_bits() // 32


def up(number: int, step: int) -> int:
    return -(-number // step) * step


def float_text(value: float) -> str:
    """A float32 as IR writes it."""
    (rounded,) = struct.unpack("<f", struct.pack("<f", value))
    (bits,) = struct.unpack("<Q", struct.pack("<d", rounded))
    return f"0x{bits:016X}"


def splat_text(value: str, type: str) -> str:
    return f"<{', '.join([f'{type} {value}'] * lanes())}>"


class Writer:
    """The text of one function, with loops, branches and variables.

    Variables are places on the stack that LLVM turns into registers.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.slots: list[str] = []
        self.helpers: dict[str, str] = {}
        self.block = "entry"
        self._count = 0
        self.vector = f"<{lanes()} x float>"
        self.whole = f"<{lanes()} x i32>"
        self.bits = f"<{lanes()} x i1>"

    def fresh(self, word: str) -> str:
        self._count += 1
        return f"{word}{self._count}"

    def do(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def op(self, text: str) -> str:
        name = f"%{self.fresh('t')}"
        self.do(f"{name} = {text}")
        return name

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.block = name

    # -- numbers and addresses ------------------------------------------------------------------

    def add(self, *terms: str | int) -> str:
        total = str(terms[0])
        for term in terms[1:]:
            total = self.op(f"add i64 {total}, {term}")
        return total

    def sub(self, a: str | int, b: str | int) -> str:
        return self.op(f"sub i64 {a}, {b}")

    def mul(self, a: str | int, b: str | int) -> str:
        return self.op(f"mul i64 {a}, {b}")

    def least(self, a: str | int, b: str | int) -> str:
        self.helpers["llvm.smin.i64"] = "declare i64 @llvm.smin.i64(i64, i64)"
        return self.op(f"call i64 @llvm.smin.i64(i64 {a}, i64 {b})")

    def most(self, a: str | int, b: str | int) -> str:
        self.helpers["llvm.smax.i64"] = "declare i64 @llvm.smax.i64(i64, i64)"
        return self.op(f"call i64 @llvm.smax.i64(i64 {a}, i64 {b})")

    def at(self, base: str, *offsets: str | int) -> str:
        """An address some bytes further."""
        return self.op(f"getelementptr i8, ptr {base}, i64 {self.add(*offsets)}")

    def spaced(self, base: str, step: str, count: int) -> list[str]:
        """Some addresses, the same number of bytes apart."""
        found = [base]
        while len(found) < count:
            found.append(self.at(found[-1], step))
        return found

    # -- vectors --------------------------------------------------------------------------------

    def load(self, address: str, type: str | None = None) -> str:
        return self.op(f"load {type or self.vector}, ptr {address}, align 4")

    def store(self, value: str, address: str) -> None:
        self.do(f"store {self.vector} {value}, ptr {address}, align 4")

    def fetch(self, address: str) -> None:
        """Have what lies there come near while other work is done."""
        name = "llvm.prefetch.p0"
        self.helpers[name] = f"declare void @{name}(ptr, i32, i32, i32)"
        self.do(f"call void @{name}(ptr {address}, i32 0, i32 2, i32 1)")

    def number(self, value: float) -> str:
        return splat_text(float_text(value), "float")

    def splat(self, value: str, type: str = "float") -> str:
        vector = f"<{lanes()} x {type}>"
        first = self.op(f"insertelement {vector} poison, {type} {value}, i32 0")
        zeros = f"<{lanes()} x i32> zeroinitializer"
        return self.op(f"shufflevector {vector} {first}, {vector} poison, {zeros}")

    def calc(self, word: str, a: str, b: str) -> str:
        return self.op(f"{word} {self.vector} {a}, {b}")

    def fma(self, a: str, b: str, c: str) -> str:
        v, name = self.vector, f"llvm.fma.v{lanes()}f32"
        self.helpers[name] = f"declare {v} @{name}({v}, {v}, {v})"
        return self.op(f"call {v} @{name}({v} {a}, {v} {b}, {v} {c})")

    def choose(self, condition: str, a: str, b: str) -> str:
        v = self.vector
        return self.op(f"select {self.bits} {condition}, {v} {a}, {v} {b}")

    def larger(self, a: str, b: str) -> str:
        return self.choose(self.calc("fcmp ogt", a, b), a, b)

    def first_lanes(self, count: str) -> str:
        """Which lanes come before a count."""
        numbers = f"<{', '.join(f'i32 {n}' for n in range(lanes()))}>"
        limit = self.splat(self.op(f"trunc i64 {count} to i32"), "i32")
        return self.op(f"icmp slt {self.whole} {numbers}, {limit}")

    def masked_load(self, address: str, mask: str, type: str = "float") -> str:
        vector = f"<{lanes()} x {type}>"
        name = f"llvm.masked.load.v{lanes()}{'f32' if type == 'float' else type}.p0"
        self.helpers[name] = f"declare {vector} @{name}(ptr, i32, {self.bits}, {vector})"
        align = 4 if type == "float" else 1
        return self.op(
            f"call {vector} @{name}(ptr {address}, i32 {align}, {self.bits} {mask}, "
            f"{vector} zeroinitializer)"
        )

    def masked_store(self, value: str, address: str, mask: str) -> None:
        name = f"llvm.masked.store.v{lanes()}f32.p0"
        self.helpers[name] = f"declare void @{name}({self.vector}, ptr, i32, {self.bits})"
        self.do(
            f"call void @{name}({self.vector} {value}, ptr {address}, i32 4, {self.bits} {mask})"
        )

    def any_of(self, bits: str) -> str:
        name = f"llvm.vector.reduce.or.v{lanes()}i1"
        self.helpers[name] = f"declare i1 @{name}({self.bits})"
        return self.op(f"call i1 @{name}({self.bits} {bits})")

    def sum_of(self, x: str) -> str:
        """All lanes of a vector, added in pairs."""
        name = f"llvm.vector.reduce.fadd.v{lanes()}f32"
        self.helpers[name] = f"declare float @{name}(float, {self.vector})"
        zero = float_text(0.0)
        return self.op(f"call reassoc float @{name}(float {zero}, {self.vector} {x})")

    def exp(self, x: str) -> str:
        """For ``x`` up to 0; 0 where the result would be denormal. At most 1 ulp where it is above
        1e-12, and 3 ulp below: one number stands for the logarithm of 2."""
        large = self.calc("fcmp uge", x, self.number(EXP_LEAST))
        magic = self.number(MAGIC)
        shifted = self.fma(x, self.number(LOG_2_E), magic)
        n = self.calc("fsub", shifted, magic)
        r = self.fma(n, self.number(-LOG_2), x)
        value = self.number(EXP_SINGLE[-1])
        for factor in (*reversed(EXP_SINGLE[:-1]), 1.0, 1.0):
            value = self.fma(value, r, self.number(factor))
        bits = self.op(f"bitcast {self.vector} {shifted} to {self.whole}")
        power = self.op(f"shl {self.whole} {bits}, {splat_text('23', 'i32')}")
        biased = self.op(f"add {self.whole} {power}, {splat_text('1065353216', 'i32')}")
        factor_2n = self.op(f"bitcast {self.whole} {biased} to {self.vector}")
        return self.choose(large, self.calc("fmul", value, factor_2n), "zeroinitializer")

    # -- control --------------------------------------------------------------------------------

    def slot(self, type: str, value: str) -> str:
        """A variable of the function, set here to a value."""
        name = f"%{self.fresh('slot')}"
        self.slots.append(f"  {name} = alloca {type}")
        self.do(f"store {type} {value}, ptr {name}")
        return name

    def keep(self, slot: str, value: str) -> None:
        self.do(f"store {self.vector} {value}, ptr {slot}")

    def kept(self, slot: str) -> str:
        return self.op(f"load {self.vector}, ptr {slot}")

    @contextmanager
    def loop(self, start: str | int, end: str | int, step: int = 1) -> Iterator[str]:
        """What is written inside runs for each number below ``end``."""
        word = self.fresh("loop")
        before, index = self.block, f"%{word}_i"
        self.do(f"br label %{word}")
        self.label(word)
        self.do(f"{index} = phi i64 [{start}, %{before}], [%{word}_next, %{word}_end]")
        more = self.op(f"icmp slt i64 {index}, {end}")
        self.do(f"br i1 {more}, label %{word}_body, label %{word}_done")
        self.label(f"{word}_body")
        yield index
        self.do(f"br label %{word}_end")
        self.label(f"{word}_end")
        self.do(f"%{word}_next = add nuw nsw i64 {index}, {step}")
        self.do(f"br label %{word}{self.loop_tag()}")
        self.label(f"{word}_done")

    def loop_tag(self) -> str:
        """What is said to LLVM about a loop."""
        return ""

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        word = self.fresh("when")
        self.do(f"br i1 {condition}, label %{word}, label %{word}_done")
        self.label(word)
        yield
        self.do(f"br label %{word}_done")
        self.label(f"{word}_done")

    def call(self, helper: tuple[str, str, dict[str, str]], *args: str) -> None:
        """Call a helper function; arguments are written with their types."""
        name, text, needs = helper
        self.helpers.update(needs)
        self.helpers[name] = text
        self.do(f"call void @{name}({', '.join(args)})")

    def function(self, head: str) -> str:
        body = "\n".join(["entry:", *self.slots, *self.lines, "  ret void", "}", ""])
        return f"{head} {{\n{body}"


Helper = tuple[str, str, dict[str, str]]


def helper(w: Writer, word: str, parameters: str) -> Helper:
    """What a writer has written as a function that others call. Its loops stay as they are:
    unrolled they are no faster, and take long to compile."""
    name = f"{word}_{lanes()}"
    head = f"define internal void @{name}({parameters}) noinline nounwind optsize"
    return name, w.function(head), w.helpers


# -- matrices into scratch memory and back ------------------------------------------------------

_MOVED = "ptr %from, i64 %from_row, i64 %rows, i64 %columns, ptr %to, i64 %to_row"


def _turned(w: Writer, rows: Sequence[str]) -> list[str]:
    """A square tile of vectors, transposed."""
    rows = list(rows)
    n = lanes()
    half = 1
    while half < n:
        low = [i if not i & half else i - half + n for i in range(n)]
        high = [i + half if not i & half else i + n for i in range(n)]
        found = list(rows)
        for i in range(n):
            if not i & half:
                for target, order in ((i, low), (i + half, high)):
                    text = ", ".join(f"i32 {o}" for o in order)
                    found[target] = w.op(
                        f"shufflevector {w.vector} {rows[i]}, {w.vector} {rows[i + half]}, "
                        f"<{n} x i32> <{text}>"
                    )
        rows = found
        half *= 2
    return rows


def _turned_in(word: str, keeps_rows: bool) -> Helper:
    w = Writer()
    n = lanes()
    with w.loop(0, "%rows", n) as r, w.loop(0, "%columns", n) as c:
        mask = w.first_lanes(w.sub("%columns", c))
        last = w.sub(w.sub("%rows", r), 1)
        start = w.at("%from", w.mul(r, "%from_row"), w.mul(c, 4))
        places = [w.at(start, w.mul(w.least(x, last), "%from_row")) for x in range(n)]
        rows = [w.masked_load(place, mask) for place in places]
        if keeps_rows:
            target = w.at("%copy", w.mul(r, "%copy_row"), w.mul(c, 4))
            for row, place in zip(rows, w.spaced(target, "%copy_row", n), strict=True):
                w.store(row, place)
        target = w.at("%to", w.mul(c, "%to_row"), w.mul(r, 4))
        for row, place in zip(_turned(w, rows), w.spaced(target, "%to_row", n), strict=True):
            w.store(row, place)
    return helper(w, word, f"{_MOVED}, ptr %copy, i64 %copy_row" if keeps_rows else _MOVED)


@cache
def turn_in() -> Helper:
    """Rows of memory become columns of scratch: ``to[c, r] = from[r, c]``."""
    return _turned_in("attention_turn_in", keeps_rows=False)


@cache
def turn_and_copy() -> Helper:
    """Rows of memory become columns of scratch, and rows of whole vectors too."""
    return _turned_in("attention_turn_and_copy", keeps_rows=True)


@cache
def row_products() -> Helper:
    """For each row the sum of its elements times those of a row of whole vectors."""
    w = Writer()
    with w.loop(0, "%rows") as r:
        start, other = w.at("%from", w.mul(r, "%from_row")), w.at("%by", w.mul(r, "%by_row"))
        total = w.slot(w.vector, "zeroinitializer")
        with w.loop(0, "%columns", lanes()) as c:
            mask, shift = w.first_lanes(w.sub("%columns", c)), w.mul(c, 4)
            found = w.masked_load(w.at(start, shift), mask)
            w.keep(total, w.fma(found, w.load(w.at(other, shift)), w.kept(total)))
        w.do(f"store float {w.sum_of(w.kept(total))}, ptr {w.at('%to', w.mul(r, 4))}, align 4")
    return helper(
        w, "attention_row_products",
        "ptr %from, i64 %from_row, ptr %by, i64 %by_row, i64 %rows, i64 %columns, ptr %to",
    )  # fmt: skip


@cache
def rows_in() -> Helper:
    """Rows of memory as rows of whole vectors, filled up with zeros."""
    w = Writer()
    with w.loop(0, "%rows") as r, w.loop(0, "%columns", lanes()) as c:
        mask = w.first_lanes(w.sub("%columns", c))
        start = w.at("%from", w.mul(r, "%from_row"), w.mul(c, 4))
        w.store(w.masked_load(start, mask), w.at("%to", w.mul(r, "%to_row"), w.mul(c, 4)))
    return helper(w, "attention_rows_in", _MOVED)


def _moved_out(word: str, scales: bool) -> Helper:
    w = Writer()
    with w.loop(0, "%rows") as r:
        factor = w.splat(w.load(w.at("%factors", w.mul(r, 4)), "float")) if scales else ""
        with w.loop(0, "%columns", lanes()) as c:
            mask = w.first_lanes(w.sub("%columns", c))
            found = w.load(w.at("%from", w.mul(r, "%from_row"), w.mul(c, 4)))
            if scales:
                found = w.calc("fmul", found, factor)
            w.masked_store(found, w.at("%to", w.mul(r, "%to_row"), w.mul(c, 4)), mask)
    return helper(w, word, f"{_MOVED}, ptr %factors" if scales else _MOVED)


@cache
def rows_out() -> Helper:
    """Rows of whole vectors as rows of memory."""
    return _moved_out("attention_rows_out", scales=False)


@cache
def scaled_rows_out() -> Helper:
    """Rows of whole vectors as rows of memory, each times a factor."""
    return _moved_out("attention_scaled_rows_out", scales=True)


@cache
def scale_rows() -> Helper:
    """Multiply rows of whole vectors, each by a factor."""
    w = Writer()
    with w.loop(0, "%count") as r:
        factor = w.splat(w.load(w.at("%factors", w.mul(r, 4)), "float"))
        with w.loop(0, "%row", lanes() * 4) as c:
            place = w.at("%rows", w.mul(r, "%row"), c)
            w.store(w.calc("fmul", w.load(place), factor), place)
    return helper(w, "attention_scale_rows", "ptr %rows, i64 %row, i64 %count, ptr %factors")


@cache
def clear() -> Helper:
    """Zeros in scratch memory, in whole vectors."""
    w = Writer()
    with w.loop(0, "%bytes", lanes() * 4) as i:
        w.store("zeroinitializer", w.at("%to", i))
    return helper(w, "attention_clear", "ptr %to, i64 %bytes")
