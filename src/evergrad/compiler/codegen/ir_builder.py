"""Kernels as text: loops, named arguments and vectors.

What the kernels of products, convolution and pooling are written with. A :class:`Text` is a
function under way; :class:`Vector` says how many elements of a type go into one register.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from evergrad.compiler.codegen.elementwise import Code
from evergrad.compiler.native.jit import name_of, vector_bits
from evergrad.compiler.native.target import machine, vector_registers
from evergrad.compiler.schedule.instructions import Kernel
from evergrad.core import dtypes
from evergrad.core.dtypes import dtype

# A chunk has no less than the first and no more than the second number of operations, if it can.
_CRUMB = 1 << 16
PIECE = 1 << 21
_LINE = machine().line_bytes
# Chunks that are enough for any team.
ENOUGH_CHUNKS = 16


class Vector(NamedTuple):
    """A register full of elements."""

    element: str
    lanes: int
    size: int

    @property
    def text(self) -> str:
        return f"<{self.lanes} x {self.element}>"

    @property
    def mangled(self) -> str:
        letter = {"float": "f32", "double": "f64"}.get(self.element, self.element)
        return f"v{self.lanes}{letter}"

    @property
    def has_32_registers(self) -> bool:
        """Whether there are 32 registers of this width rather than 16."""
        return vector_registers(8 * self.lanes * self.size) == 32

    def of(self, element: str) -> str:
        """As many elements of another type."""
        return f"<{self.lanes} x {element}>"


def vector_for(found: dtype) -> Vector:
    """The widest vectors of this machine for a type of elements."""
    element = "float" if found is dtypes.float32 else "double"
    return Vector(element, vector_bits() // 8 // found.itemsize, found.itemsize)


def is_native(found: dtype) -> bool:
    """Whether kernels of this kind exist for a type of elements."""
    return found is dtypes.float32 or found is dtypes.float64


class Carried:
    """The values that go from one turn of a loop to the next; set ``after`` inside of it."""

    def __init__(self, values: list[str]) -> None:
        self.values = values
        self.after = values


class Text(Code):
    """The text of a kernel that takes ``pointers``, then ``numbers``, by name; more numbers that
    follow them are tables, found at :meth:`table`."""

    def __init__(self, vector: Vector, pointers: Sequence[str], numbers: Sequence[str]) -> None:
        super().__init__()
        self.vector = vector
        self.count = len(pointers) + len(numbers)
        self.named: dict[str, str] = {}
        for place, name in enumerate((*pointers, *numbers)):
            address = self.op(f"getelementptr i64, ptr %args, i64 {place}")
            type = "ptr" if place < len(pointers) else "i64"
            self.named[name] = self.op(f"load {type}, ptr {address}")
        self.scratch = self._aligned("%scratch")

    def __getitem__(self, name: str) -> str:
        return self.named[name]

    # -- whole numbers --------------------------------------------------------------------------

    def add(self, *values: str | int) -> str:
        total, *rest = values
        for value in rest:
            total = self.op(f"add i64 {total}, {value}")
        return str(total)

    def sub(self, a: str | int, b: str | int) -> str:
        return self.op(f"sub i64 {a}, {b}")

    def mul(self, *values: str | int) -> str:
        total, *rest = values
        for value in rest:
            total = self.op(f"mul i64 {total}, {value}")
        return str(total)

    def least(self, a: str, b: str) -> str:
        return self.call("llvm.smin", "i64", a, b)

    def split(self, value: str, extent: str) -> tuple[str, str]:
        """A place in two dimensions, the inner of which has ``extent`` places."""
        return self.op(f"udiv i64 {value}, {extent}"), self.op(f"urem i64 {value}, {extent}")

    # -- memory ---------------------------------------------------------------------------------

    def at(self, pointer: str, *offsets: str | int) -> str:
        """The address so many elements behind another."""
        return self.op(
            f"getelementptr {self.vector.element}, ptr {pointer}, i64 {self.add(*offsets)}"
        )

    def table(self, start: str | int = 0) -> str:
        """The address of a number behind the named ones."""
        return self.op(f"getelementptr i64, ptr %args, i64 {self.add(start, self.count)}")

    def number(self, table: str, place: str | int) -> str:
        address = self.op(f"getelementptr i64, ptr {table}, i64 {place}")
        return self.op(f"load i64, ptr {address}")

    def load(self, address: str) -> str:
        return self.op(f"load {self.vector.element}, ptr {address}")

    def store(self, value: str, address: str) -> None:
        self.do(f"store {self.vector.element} {value}, ptr {address}")

    def _aligned(self, pointer: str) -> str:
        """The next address that is a multiple of a cache line."""
        address = self.op(f"ptrtoint ptr {pointer} to i64")
        left = self.op(f"and i64 {self.sub(0, address)}, {_LINE - 1}")
        return self.op(f"getelementptr i8, ptr {pointer}, i64 {left}")

    # -- vectors --------------------------------------------------------------------------------

    def splat(self, value: str, type: str) -> str:
        many = self.vector.of(type)
        one = self.op(f"insertelement {many} poison, {type} {value}, i64 0")
        return self.op(
            f"shufflevector {many} {one}, {many} poison, {self.vector.of('i32')} zeroinitializer"
        )

    def places(self, start: str, step: str | int = 1) -> str:
        """For each lane the place it is at, ``step`` apart; places are 32 bits wide."""
        many = self.vector.of("i32")
        counted = "<" + ", ".join(f"i32 {n}" for n in range(self.vector.lanes)) + ">"
        if step != 1:
            counted = self.op(f"mul {many} {self.narrow(str(step))}, {counted}")
        return self.op(f"add {many} {self.narrow(start)}, {counted}")

    def narrow(self, value: str) -> str:
        """A number in every lane."""
        return self.splat(self.op(f"trunc i64 {value} to i32"), "i32")

    def between(self, places: str, low: str, high: str) -> str:
        """A mask of the places from ``low`` up to but without ``high``."""
        many = self.vector.of("i32")
        above = self.op(f"icmp sge {many} {places}, {self.narrow(low)}")
        below = self.op(f"icmp slt {many} {places}, {self.narrow(high)}")
        return self.op(f"and {self.vector.of('i1')} {above}, {below}")

    def load_vector(self, address: str) -> str:
        vector = self.vector
        return self.op(f"load {vector.text}, ptr {address}, align {vector.size}")

    def store_vector(self, value: str, address: str) -> None:
        vector = self.vector
        self.do(f"store {vector.text} {value}, ptr {address}, align {vector.size}")

    def load_masked(self, address: str, mask: str, otherwise: str) -> str:
        many, masks = self.vector.text, self.vector.of("i1")
        name = f"llvm.masked.load.{self.vector.mangled}.p0"
        self.helpers[name] = f"declare {many} @{name}(ptr, i32, {masks}, {many})"
        return self.op(
            f"call {many} @{name}(ptr {address}, i32 {self.vector.size}, {masks} {mask}, "
            f"{many} {otherwise})"
        )

    def store_masked(
        self, value: str, address: str, mask: str, vector: Vector | None = None
    ) -> None:
        vector = vector or self.vector
        many, masks = vector.text, vector.of("i1")
        name = f"llvm.masked.store.{vector.mangled}.p0"
        self.helpers[name] = f"declare void @{name}({many}, ptr, i32, {masks})"
        self.do(
            f"call void @{name}({many} {value}, ptr {address}, i32 {vector.size}, {masks} {mask})"
        )

    def load_apart(
        self, kind: int, address: str, start: str, step: str, low: str, high: str, otherwise: str
    ) -> str:
        """The elements at places that are ``step`` apart from ``start`` on; places that are not
        between two others are not read. For ``kind`` see :meth:`by_step`."""
        if kind == 2:
            halves = [
                self.load_apart(1, address, begin, "1", low, high, otherwise)
                for begin in (start, self.add(start, self.vector.lanes))
            ]
            return self._shuffled(halves, [2 * n for n in range(self.vector.lanes)])
        places = self.places(start, 1 if kind == 1 else step)
        mask = self.between(places, low, high)
        if kind == 1:
            return self.load_masked(self.at(address, start), mask, otherwise)
        return self.gather(address, places, mask, otherwise)

    def store_apart(self, kind: int, value: str, address: str, step: str, count: str) -> None:
        """Write the first ``count`` lanes to places that are ``step`` apart."""
        lanes = self.vector.lanes
        if kind == 2:
            for half in range(2):
                order = [half * lanes // 2 + n // 2 for n in range(lanes)]
                spread = self._shuffled([value, value], order)
                left = self.sub(self.mul(count, 2), half * lanes)
                inside = self.between(self.places("0"), "0", left)
                even = ", ".join("i1 false" if n % 2 else "i1 true" for n in range(lanes))
                mask = self.op(f"and {self.vector.of('i1')} {inside}, <{even}>")
                self.store_masked(spread, self.at(address, half * lanes), mask)
            return
        mask = self.between(self.places("0"), "0", count)
        if kind == 1:
            self.store_masked(value, address, mask)
        else:
            self.scatter(value, address, self.places("0", step), mask)

    def _shuffled(self, pair: list[str], order: list[int]) -> str:
        """Lanes of two vectors, counted through both."""
        many = self.vector.text
        picked = ", ".join(f"i32 {n}" for n in order)
        return self.op(
            f"shufflevector {many} {pair[0]}, {many} {pair[1]}, {self.vector.of('i32')} <{picked}>"
        )

    def gather(self, pointer: str, places: str, mask: str, otherwise: str) -> str:
        """The elements at places behind an address; only what the mask says is read."""
        many, masks, pointers = (self.vector.of(t) for t in (self.vector.element, "i1", "ptr"))
        name = f"llvm.masked.gather.{self.vector.mangled}.v{self.vector.lanes}p0"
        self.helpers[name] = f"declare {many} @{name}({pointers}, i32, {masks}, {many})"
        return self.op(
            f"call {many} @{name}({pointers} {self._spread(pointer, places)}, "
            f"i32 {self.vector.size}, {masks} {mask}, {many} {otherwise})"
        )

    def scatter(self, value: str, pointer: str, places: str, mask: str) -> None:
        many, masks, pointers = (self.vector.of(t) for t in (self.vector.element, "i1", "ptr"))
        name = f"llvm.masked.scatter.{self.vector.mangled}.v{self.vector.lanes}p0"
        self.helpers[name] = f"declare void @{name}({many}, {pointers}, i32, {masks})"
        self.do(
            f"call void @{name}({many} {value}, {pointers} {self._spread(pointer, places)}, "
            f"i32 {self.vector.size}, {masks} {mask})"
        )

    def _spread(self, pointer: str, places: str) -> str:
        return self.op(
            f"getelementptr {self.vector.element}, ptr {pointer}, {self.vector.of('i32')} {places}"
        )

    def multiply_add(self, a: str, b: str, c: str) -> str:
        many, name = self.vector.text, f"llvm.fma.{self.vector.mangled}"
        self.helpers[name] = f"declare {many} @{name}({many}, {many}, {many})"
        return self.op(f"call {many} @{name}({many} {a}, {many} {b}, {many} {c})")

    def plus(self, a: str, b: str) -> str:
        return self.op(f"fadd {self.vector.text} {a}, {b}")

    def minus(self, a: str, b: str) -> str:
        return self.op(f"fsub {self.vector.text} {a}, {b}")

    def half(self, value: str) -> str:
        return self.op(f"fmul {self.vector.text} {value}, {self.splat('0.5', self.vector.element)}")

    def interleaved(self, a: str, b: str) -> list[str]:
        """The lanes of two vectors in turns, as two vectors."""
        lanes = self.vector.lanes
        order = [n // 2 + lanes * (n % 2) for n in range(2 * lanes)]
        return [self._shuffled([a, b], part) for part in (order[:lanes], order[lanes:])]

    def parted(self, a: str, b: str) -> list[str]:
        """The even and the odd lanes of two vectors, counted through both."""
        lanes = self.vector.lanes
        return [self._shuffled([a, b], [2 * n + odd for n in range(lanes)]) for odd in range(2)]

    def sum_of_lanes(self, value: str) -> str:
        element, many = self.vector.element, self.vector.text
        name = f"llvm.vector.reduce.fadd.{self.vector.mangled}"
        self.helpers[name] = f"declare {element} @{name}({element}, {many})"
        return self.op(f"call reassoc {element} @{name}({element} 0.0, {many} {value})")

    # -- control --------------------------------------------------------------------------------

    @contextmanager
    def loop(self, last: str | int, step: str | int = 1, first: str | int = 0) -> Iterator[str]:
        """The lines inside run for each number from ``first`` up to but without ``last``."""
        with self.carrying(last, [], step, first) as (index, _):
            yield index

    @contextmanager
    def carrying(
        self, last: str | int, start: Sequence[tuple[str, str]], step: str | int = 1,
        first: str | int = 0,
    ) -> Iterator[tuple[str, Carried]]:  # fmt: skip
        """A loop with values (type, first value) that change; afterwards they have the last."""
        word = self.fresh("loop")
        index = f"%{word}.i"
        carried = Carried([f"%{word}.v{n}" for n in range(len(start))])
        self.do(f"br label %{word}.before")
        self.label(f"{word}.before")
        self.do(f"br label %{word}.head")
        self.label(f"{word}.head")
        self.do(f"{index} = phi i64 [{first}, %{word}.before], [{index}.next, %{word}.next]")
        head = len(self.lines)
        self.do(f"%{word}.more = icmp slt i64 {index}, {last}")
        self.do(f"br i1 %{word}.more, label %{word}.body, label %{word}.end")
        self.label(f"{word}.body")
        yield index, carried
        self.do(f"br label %{word}.next")
        self.label(f"{word}.next")
        self.do(f"{index}.next = add i64 {index}, {step}")
        self.do(f"br label %{word}.head")
        self.label(f"{word}.end")
        self.lines[head:head] = [
            f"  {name} = phi {type} [{value}, %{word}.before], [{after}, %{word}.next]"
            for name, (type, value), after in zip(carried.values, start, carried.after, strict=True)
        ]
        carried.after = carried.values

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """The lines inside run if a condition holds."""
        word = self.fresh("when")
        self.do(f"br i1 {condition}, label %{word}.so, label %{word}.end")
        self.label(f"{word}.so")
        yield
        self.do(f"br label %{word}.end")
        self.label(f"{word}.end")

    def by_step(self, step: str) -> Iterator[int]:
        """Lets lines be written for a step of 1, of 2 and of any other number (0) known only when
        the kernel runs; one of the three runs."""
        is_one, is_two = (self.op(f"icmp eq i64 {step}, {n}") for n in (1, 2))
        either = self.op(f"or i1 {is_one}, {is_two}")
        neither = self.op(f"xor i1 {either}, true")
        for kind, condition in ((1, is_one), (2, is_two), (0, neither)):
            with self.when(condition):
                yield kind

    def items(self, chunk: str, per_chunk: str, items: str) -> tuple[str, str]:
        """The first item of a chunk, and where it ends."""
        first = self.mul(chunk, per_chunk)
        return first, self.least(self.add(first, per_chunk), items)

    def kernel(self, kind: str) -> Kernel:
        """The finished kernel, without numbers."""
        body = "\n".join(self.lines)
        text = (
            "define void @SELF(ptr %args, i64 %chunk, ptr %scratch) nounwind {\nentry:\n"
            f"{body}\n  ret void\n}}\n"
        )
        name = name_of(text + "".join(self.helpers.values()), kind)
        return Kernel(self, name, text.replace("@SELF", f"@{name}"))


def numbered(
    made: Kernel, numbers: Sequence[int], tables: Sequence[int], chunks: int, scratch: int = 0
) -> Kernel:
    """A kernel of the same text with numbers of its own."""
    code = Code()
    code.helpers = made.helpers
    kernel = Kernel(code, made.name, made.text)
    kernel.numbers = [*numbers, *tables]
    kernel.chunks = chunks
    kernel.scratch = scratch + _LINE if scratch else 0
    return kernel


def items_per_chunk(items: int, work: int) -> int:
    """How many items, each of so much work, make a chunk."""
    work = max(work, 1)
    wanted = max(-(-items // ENOUGH_CHUNKS), _CRUMB // work)
    return max(1, min(wanted, PIECE // work, items))
