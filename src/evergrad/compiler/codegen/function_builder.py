"""IR builder of functions with float32 vectors: loops, branches, stack variables.

For the kernels of attention and of random numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from math import log

from evergrad.compiler.codegen.vecmath.exponentials import EXP_LEAST, LOG_2_E, MAGIC
from evergrad.compiler.native.jit import vector_bits
from evergrad.ops.rows.special.tables import EXP_SINGLE

LOG_2 = log(2.0)


def lanes() -> int:
    """The float32 lanes of a vector."""
    return vector_bits() // 32


def float_constant(value: float) -> str:
    """A float32 constant in IR."""
    (rounded,) = struct.unpack("<f", struct.pack("<f", value))
    (bits,) = struct.unpack("<Q", struct.pack("<d", rounded))
    return f"0x{bits:016X}"


def splat_constant(value: str, type: str) -> str:
    return f"<{', '.join([f'{type} {value}'] * lanes())}>"


class FunctionBuilder:
    """IR of one function, with loops, branches and stack variables, which LLVM promotes to
    registers."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.slots: list[str] = []
        self.helpers: dict[str, str] = {}
        self.block: str = "entry"
        self._count = 0
        self.vector: str = f"<{lanes()} x float>"
        self.int_vector: str = f"<{lanes()} x i32>"
        self.bits: str = f"<{lanes()} x i1>"

    def fresh(self, word: str) -> str:
        self._count += 1
        return f"{word}{self._count}"

    def do(self, instruction: str) -> None:
        self.lines.append(f"  {instruction}")

    def op(self, instruction: str) -> str:
        name = f"%{self.fresh('t')}"
        self.do(f"{name} = {instruction}")
        return name

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.block = name

    # -- integers and addresses -----------------------------------------------------------------

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
        """The address at an offset in bytes."""
        return self.op(f"getelementptr i8, ptr {base}, i64 {self.add(*offsets)}")

    def spaced(self, base: str, stride: str, count: int) -> list[str]:
        """Addresses a stride in bytes apart."""
        found = [base]
        while len(found) < count:
            found.append(self.at(found[-1], stride))
        return found

    # -- vectors --------------------------------------------------------------------------------

    def load(self, address: str, type: str | None = None) -> str:
        return self.op(f"load {type or self.vector}, ptr {address}, align 4")

    def store(self, value: str, address: str) -> None:
        self.do(f"store {self.vector} {value}, ptr {address}, align 4")

    def fetch(self, address: str) -> None:
        """Prefetch a cache line."""
        name = "llvm.prefetch.p0"
        self.helpers[name] = f"declare void @{name}(ptr, i32, i32, i32)"
        self.do(f"call void @{name}(ptr {address}, i32 0, i32 2, i32 1)")

    def number(self, value: float) -> str:
        return splat_constant(float_constant(value), "float")

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
        """A mask of the first ``count`` lanes."""
        numbers = f"<{', '.join(f'i32 {n}' for n in range(lanes()))}>"
        limit = self.splat(self.op(f"trunc i64 {count} to i32"), "i32")
        return self.op(f"icmp slt {self.int_vector} {numbers}, {limit}")

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
        """Store the lanes of a mask. Narrower registers than those of 512 bits have slow masked
        stores, or none: a whole register is stored without."""
        if lanes() == 16:
            self._store_lanes(value, address, mask)
            return
        word, name = self.fresh("masked"), f"llvm.vector.reduce.and.v{lanes()}i1"
        self.helpers[name] = f"declare i1 @{name}({self.bits})"
        every = self.op(f"call i1 @{name}({self.bits} {mask})")
        self.do(f"br i1 {every}, label %{word}_whole, label %{word}_part")
        self.label(f"{word}_whole")
        self.store(value, address)
        self.do(f"br label %{word}_done")
        self.label(f"{word}_part")
        self._store_lanes(value, address, mask)
        self.do(f"br label %{word}_done")
        self.label(f"{word}_done")

    def _store_lanes(self, value: str, address: str, mask: str) -> None:
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
        """The sum of all lanes, added in pairs."""
        name = f"llvm.vector.reduce.fadd.v{lanes()}f32"
        self.helpers[name] = f"declare float @{name}(float, {self.vector})"
        zero = float_constant(0.0)
        return self.op(f"call reassoc float @{name}(float {zero}, {self.vector} {x})")

    def exp(self, x: str) -> str:
        """For ``x`` up to 0; 0 where the result would be denormal. At most 1 ulp where it is above
        1e-12, and 3 ulp below: the logarithm of 2 is one float."""
        large = self.calc("fcmp uge", x, self.number(EXP_LEAST))
        magic = self.number(MAGIC)
        shifted = self.fma(x, self.number(LOG_2_E), magic)
        n = self.calc("fsub", shifted, magic)
        r = self.fma(n, self.number(-LOG_2), x)
        value = self.number(EXP_SINGLE[-1])
        for factor in (*reversed(EXP_SINGLE[:-1]), 1.0, 1.0):
            value = self.fma(value, r, self.number(factor))
        bits = self.op(f"bitcast {self.vector} {shifted} to {self.int_vector}")
        power = self.op(f"shl {self.int_vector} {bits}, {splat_constant('23', 'i32')}")
        biased = self.op(f"add {self.int_vector} {power}, {splat_constant('1065353216', 'i32')}")
        factor_2n = self.op(f"bitcast {self.int_vector} {biased} to {self.vector}")
        return self.choose(large, self.calc("fmul", value, factor_2n), "zeroinitializer")

    # -- control --------------------------------------------------------------------------------

    def slot(self, type: str, value: str) -> str:
        """A stack variable, set here to a value."""
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
        """A loop over the numbers from ``start`` up to but without ``end``."""
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
        """The loop metadata."""
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
        """Call a helper function with typed arguments."""
        name, ir, needs = helper
        self.helpers.update(needs)
        self.helpers[name] = ir
        self.do(f"call void @{name}({', '.join(args)})")

    def function(self, head: str) -> str:
        body = "\n".join(["entry:", *self.slots, *self.lines, "  ret void", "}", ""])
        return f"{head} {{\n{body}"


# The name of a function, its IR and the helpers it calls.
Helper = tuple[str, str, dict[str, str]]


def helper(b: FunctionBuilder, word: str, parameters: str) -> Helper:
    """A finished function that kernels call. Its loops are not unrolled: that is no faster, and
    takes long to compile."""
    name = f"{word}_{lanes()}"
    head = f"define internal void @{name}({parameters}) noinline nounwind optsize"
    return name, b.function(head), b.helpers
