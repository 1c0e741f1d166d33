"""The IR builder: integers, addresses, vectors, loops and branches in LLVM IR.

:class:`IRBuilder` writes the body of a function with vectors of one type (:class:`Vector`).
:class:`.kernel_builder.KernelBuilder` adds the arguments of a kernel to it,
:class:`.function_builder.FunctionBuilder` stack variables and functions that kernels call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from evergrad.compiler.codegen.code import Code
from evergrad.compiler.native.jit import vector_bits
from evergrad.compiler.native.target import machine, vector_registers
from evergrad.core import dtypes
from evergrad.core.dtypes import dtype

CACHE_LINE = machine().line_bytes
# The least registers (in bytes) with masked loads, and with masked stores that are not slow.
_MASKED_LOADS, _MASKED_STORES = 32, 64


class Vector(NamedTuple):
    """The vector type of one register."""

    element: str
    lanes: int
    size: int

    @property
    def type(self) -> str:
        return f"<{self.lanes} x {self.element}>"

    @property
    def mangled(self) -> str:
        letter = {"float": "f32", "double": "f64", "half": "f16"}.get(self.element, self.element)
        return f"v{self.lanes}{letter}"

    @property
    def has_32_registers(self) -> bool:
        """Whether there are 32 registers of this width rather than 16."""
        return vector_registers(8 * self.lanes * self.size) == 32

    @property
    def bytes(self) -> int:
        return self.lanes * self.size

    def of(self, element: str) -> str:
        """The vector type of as many elements of another type."""
        return f"<{self.lanes} x {element}>"


def vector_for(found: dtype) -> Vector:
    """The widest vector type of the target for an element type."""
    element = "float" if found is dtypes.float32 else "double"
    return Vector(element, vector_bits() // 8 // found.itemsize, found.itemsize)


def is_native(found: dtype) -> bool:
    """Whether there are kernels for an element type."""
    return found is dtypes.float32 or found is dtypes.float64


class Carried:
    """Loop-carried values: ``values`` in the body, which sets ``after`` for the next iteration."""

    def __init__(self, values: list[str]) -> None:
        self.values = values
        self.after = values


class IRBuilder(Code):
    """The body of a function, with vectors of type ``vector``."""

    def __init__(self, vector: Vector) -> None:
        super().__init__()
        self.vector = vector

    # -- integers -------------------------------------------------------------------------------

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

    def least(self, a: str | int, b: str | int) -> str:
        return self.call("llvm.smin", "i64", str(a), str(b))

    def most(self, a: str | int, b: str | int) -> str:
        return self.call("llvm.smax", "i64", str(a), str(b))

    def split(self, value: str, extent: str) -> tuple[str, str]:
        """An index in two dimensions, the inner of this extent: quotient and remainder."""
        return self.op(f"udiv i64 {value}, {extent}"), self.op(f"urem i64 {value}, {extent}")

    # -- memory ---------------------------------------------------------------------------------

    def at_byte(self, pointer: str, *offsets: str | int) -> str:
        """The address at an offset in bytes."""
        return self.op(f"getelementptr i8, ptr {pointer}, i64 {self.add(*offsets)}")

    def at(self, pointer: str, *offsets: str | int) -> str:
        """The address at an offset in elements."""
        return self.op(
            f"getelementptr {self.vector.element}, ptr {pointer}, i64 {self.add(*offsets)}"
        )

    def load(self, address: str) -> str:
        return self.op(f"load {self.vector.element}, ptr {address}")

    def store(self, value: str, address: str) -> None:
        self.do(f"store {self.vector.element} {value}, ptr {address}")

    def aligned(self, pointer: str) -> str:
        """An address rounded up to a cache line."""
        address = self.op(f"ptrtoint ptr {pointer} to i64")
        left = self.op(f"and i64 {self.sub(0, address)}, {CACHE_LINE - 1}")
        return self.op(f"getelementptr i8, ptr {pointer}, i64 {left}")

    # -- vectors --------------------------------------------------------------------------------

    def splat(self, value: str, type: str) -> str:
        many = self.vector.of(type)
        one = self.op(f"insertelement {many} poison, {type} {value}, i64 0")
        return self.op(
            f"shufflevector {many} {one}, {many} poison, {self.vector.of('i32')} zeroinitializer"
        )

    def splat_constant(self, value: str | int, type: str) -> str:
        """A constant in every lane."""
        return f"<{', '.join([f'{type} {value}'] * self.vector.lanes)}>"

    def first_lanes(self, count: str) -> str:
        """A mask of the first ``count`` lanes."""
        numbers = f"<{', '.join(f'i32 {n}' for n in range(self.vector.lanes))}>"
        return self.op(f"icmp slt {self.vector.of('i32')} {numbers}, {self.splat_index(count)}")

    def lane_indices(self, start: str, stride: str | int = 1) -> str:
        """For each lane its index, ``stride`` apart; 32 bits wide."""
        many = self.vector.of("i32")
        counted = "<" + ", ".join(f"i32 {n}" for n in range(self.vector.lanes)) + ">"
        if stride != 1:
            counted = self.op(f"mul {many} {self.splat_index(str(stride))}, {counted}")
        return self.op(f"add {many} {self.splat_index(start)}, {counted}")

    def splat_index(self, value: str) -> str:
        """A number in every lane, 32 bits wide."""
        return self.splat(self.op(f"trunc i64 {value} to i32"), "i32")

    def range_mask(self, indices: str, low: str, high: str) -> str:
        """A mask of the indices from ``low`` up to but without ``high``."""
        many = self.vector.of("i32")
        above = self.op(f"icmp sge {many} {indices}, {self.splat_index(low)}")
        below = self.op(f"icmp slt {many} {indices}, {self.splat_index(high)}")
        return self.op(f"and {self.vector.of('i1')} {above}, {below}")

    def load_vector(self, address: str, vector: Vector | None = None) -> str:
        vector = vector or self.vector
        return self.op(f"load {vector.type}, ptr {address}, align {vector.size}")

    def store_vector(self, value: str, address: str) -> None:
        vector = self.vector
        self.do(f"store {vector.type} {value}, ptr {address}, align {vector.size}")

    def load_masked(
        self,
        address: str,
        mask: str,
        otherwise: str = "zeroinitializer",
        vector: Vector | None = None,
    ) -> str:
        """The lanes of a mask, and others where it is false. Registers of 128 bits have no masked
        loads: a whole register is loaded at once there, other masks lane by lane."""
        vector = vector or self.vector
        if self.vector.bytes >= _MASKED_LOADS:
            return self._load_lanes(address, mask, otherwise, vector)
        word = self.fresh("masked")
        self._branch_if_all(mask, vector, word)
        self.label(f"{word}.whole")
        whole = self.load_vector(address, vector)
        self.do(f"br label %{word}.end")
        self.label(f"{word}.part")
        part = self._load_lanes(address, mask, otherwise, vector)
        self.do(f"br label %{word}.end")
        self.label(f"{word}.end")
        return self.op(f"phi {vector.type} [{whole}, %{word}.whole], [{part}, %{word}.part]")

    def _load_lanes(self, address: str, mask: str, otherwise: str, vector: Vector) -> str:
        many, masks = vector.type, vector.of("i1")
        name = f"llvm.masked.load.{vector.mangled}.p0"
        self.helpers[name] = f"declare {many} @{name}(ptr, i32, {masks}, {many})"
        return self.op(
            f"call {many} @{name}(ptr {address}, i32 {vector.size}, {masks} {mask}, "
            f"{many} {otherwise})"
        )

    def store_masked(
        self, value: str, address: str, mask: str, vector: Vector | None = None
    ) -> None:
        """Store the lanes of a mask. Narrower registers than those of 512 bits have slow masked
        stores, or none: a whole register is stored without."""
        vector = vector or self.vector
        if vector.bytes >= _MASKED_STORES:
            self._store_lanes(value, address, mask, vector)
            return
        word = self.fresh("masked")
        self._branch_if_all(mask, vector, word)
        self.label(f"{word}.whole")
        self.do(f"store {vector.type} {value}, ptr {address}, align {vector.size}")
        self.do(f"br label %{word}.end")
        self.label(f"{word}.part")
        self._store_lanes(value, address, mask, vector)
        self.do(f"br label %{word}.end")
        self.label(f"{word}.end")

    def _store_lanes(self, value: str, address: str, mask: str, vector: Vector) -> None:
        many, masks = vector.type, vector.of("i1")
        name = f"llvm.masked.store.{vector.mangled}.p0"
        self.helpers[name] = f"declare void @{name}({many}, ptr, i32, {masks})"
        self.do(
            f"call void @{name}({many} {value}, ptr {address}, i32 {vector.size}, {masks} {mask})"
        )

    def _branch_if_all(self, mask: str, vector: Vector, word: str) -> None:
        """Branch to the label ``whole`` of a word if all lanes are in a mask, else to ``part``."""
        every = self._reduced("and", mask, vector)
        self.do(f"br i1 {every}, label %{word}.whole, label %{word}.part")

    def _reduced(self, operation: str, mask: str, vector: Vector) -> str:
        masks, name = vector.of("i1"), f"llvm.vector.reduce.{operation}.v{vector.lanes}i1"
        self.helpers[name] = f"declare i1 @{name}({masks})"
        return self.op(f"call i1 @{name}({masks} {mask})")

    def load_strided(
        self, kind: int, address: str, start: str, stride: str, low: str, high: str, otherwise: str
    ) -> str:
        """The elements at indices from ``start`` on, ``stride`` apart; masked to the range from
        ``low`` to ``high``. For ``kind`` see :meth:`by_stride`."""
        if kind == 2:
            halves = [
                self.load_strided(1, address, begin, "1", low, high, otherwise)
                for begin in (start, self.add(start, self.vector.lanes))
            ]
            return self.shuffled(halves, [2 * n for n in range(self.vector.lanes)])
        indices = self.lane_indices(start, 1 if kind == 1 else stride)
        mask = self.range_mask(indices, low, high)
        if kind == 1:
            return self.load_masked(self.at(address, start), mask, otherwise)
        return self.gather(address, indices, mask, otherwise)

    def store_strided(self, kind: int, value: str, address: str, stride: str, count: str) -> None:
        """Store the first ``count`` lanes at indices ``stride`` apart."""
        lanes = self.vector.lanes
        if kind == 2:
            for half in range(2):
                order = [half * lanes // 2 + n // 2 for n in range(lanes)]
                spread = self.shuffled([value, value], order)
                left = self.sub(self.mul(count, 2), half * lanes)
                inside = self.range_mask(self.lane_indices("0"), "0", left)
                even = ", ".join("i1 false" if n % 2 else "i1 true" for n in range(lanes))
                mask = self.op(f"and {self.vector.of('i1')} {inside}, <{even}>")
                self.store_masked(spread, self.at(address, half * lanes), mask)
            return
        mask = self.range_mask(self.lane_indices("0"), "0", count)
        if kind == 1:
            self.store_masked(value, address, mask)
        else:
            self.scatter(value, address, self.lane_indices("0", stride), mask)

    def shuffled(self, pair: list[str], order: list[int]) -> str:
        """A shuffle of two vectors, with lanes counted through both."""
        many = self.vector.type
        picked = ", ".join(f"i32 {n}" for n in order)
        return self.op(
            f"shufflevector {many} {pair[0]}, {many} {pair[1]}, {self.vector.of('i32')} <{picked}>"
        )

    def gather(self, pointer: str, indices: str, mask: str, otherwise: str) -> str:
        """The elements at indices from an address, masked."""
        many, masks, pointers = (self.vector.of(t) for t in (self.vector.element, "i1", "ptr"))
        name = f"llvm.masked.gather.{self.vector.mangled}.v{self.vector.lanes}p0"
        self.helpers[name] = f"declare {many} @{name}({pointers}, i32, {masks}, {many})"
        return self.op(
            f"call {many} @{name}({pointers} {self._addresses(pointer, indices)}, "
            f"i32 {self.vector.size}, {masks} {mask}, {many} {otherwise})"
        )

    def scatter(self, value: str, pointer: str, indices: str, mask: str) -> None:
        many, masks, pointers = (self.vector.of(t) for t in (self.vector.element, "i1", "ptr"))
        name = f"llvm.masked.scatter.{self.vector.mangled}.v{self.vector.lanes}p0"
        self.helpers[name] = f"declare void @{name}({many}, {pointers}, i32, {masks})"
        self.do(
            f"call void @{name}({many} {value}, {pointers} {self._addresses(pointer, indices)}, "
            f"i32 {self.vector.size}, {masks} {mask})"
        )

    def _addresses(self, pointer: str, indices: str) -> str:
        return self.op(
            f"getelementptr {self.vector.element}, ptr {pointer}, {self.vector.of('i32')} {indices}"
        )

    def multiply_add(self, a: str, b: str, c: str) -> str:
        many, name = self.vector.type, f"llvm.fma.{self.vector.mangled}"
        self.helpers[name] = f"declare {many} @{name}({many}, {many}, {many})"
        return self.op(f"call {many} @{name}({many} {a}, {many} {b}, {many} {c})")

    def add_dots(self, a: str, b: str, c: str) -> str:
        """``c`` plus both products of the bfloat16 of each word of ``a`` and ``b``."""
        many, words = self.vector.type, f"<{2 * self.vector.lanes} x bfloat>"
        name = "llvm.x86.avx512bf16.dpbf16ps.512"
        self.helpers[name] = f"declare {many} @{name}({many}, {words}, {words})"
        pair = [self.op(f"bitcast {many} {value} to {words}") for value in (a, b)]
        return self.op(f"call {many} @{name}({many} {c}, {words} {pair[0]}, {words} {pair[1]})")

    def lanewise(self, instruction: str, a: str, b: str) -> str:
        """An instruction with two operands, such as ``fadd`` or ``fcmp ogt``."""
        return self.op(f"{instruction} {self.vector.type} {a}, {b}")

    def plus(self, a: str, b: str) -> str:
        return self.lanewise("fadd", a, b)

    def minus(self, a: str, b: str) -> str:
        return self.lanewise("fsub", a, b)

    def choose(self, mask: str, a: str, b: str) -> str:
        """The lanes of ``a`` where a mask holds, else those of ``b``."""
        many = self.vector.type
        return self.op(f"select {self.vector.of('i1')} {mask}, {many} {a}, {many} {b}")

    def larger(self, a: str, b: str) -> str:
        return self.choose(self.lanewise("fcmp ogt", a, b), a, b)

    def any_lane(self, mask: str) -> str:
        """Whether a mask holds in any lane."""
        return self._reduced("or", mask, self.vector)

    def half(self, value: str) -> str:
        return self.op(f"fmul {self.vector.type} {value}, {self.splat('0.5', self.vector.element)}")

    def interleaved(self, a: str, b: str) -> list[str]:
        """The lanes of two vectors interleaved, as two vectors."""
        lanes = self.vector.lanes
        order = [n // 2 + lanes * (n % 2) for n in range(2 * lanes)]
        return [self.shuffled([a, b], part) for part in (order[:lanes], order[lanes:])]

    def deinterleaved(self, a: str, b: str) -> list[str]:
        """The even and the odd lanes of two vectors, counted through both."""
        lanes = self.vector.lanes
        return [self.shuffled([a, b], [2 * n + odd for n in range(lanes)]) for odd in range(2)]

    def transposed(self, rows: Sequence[str]) -> list[str]:
        """A square tile of vectors, transposed."""
        lanes, half = self.vector.lanes, 1
        found = list(rows)
        while half < lanes:
            low = [i if not i & half else i - half + lanes for i in range(lanes)]
            high = [i + half if not i & half else i + lanes for i in range(lanes)]
            rows, found = found, list(found)
            for i in range(lanes):
                if not i & half:
                    pair = [rows[i], rows[i + half]]
                    found[i] = self.shuffled(pair, low)
                    found[i + half] = self.shuffled(pair, high)
            half *= 2
        return found

    def sum_of_lanes(self, value: str) -> str:
        element, many = self.vector.element, self.vector.type
        name = f"llvm.vector.reduce.fadd.{self.vector.mangled}"
        self.helpers[name] = f"declare {element} @{name}({element}, {many})"
        return self.op(f"call reassoc {element} @{name}({element} 0.0, {many} {value})")

    def lane_sums(self, values: Sequence[str]) -> str:
        """The sum of each vector's lanes, for as many vectors as there are lanes."""
        while len(values) > 1:
            pairs = zip(values[::2], values[1::2], strict=True)
            values = [self.plus(*self.deinterleaved(a, b)) for a, b in pairs]
        return values[0]

    # -- control --------------------------------------------------------------------------------

    @contextmanager
    def loop(self, last: str | int, step: str | int = 1, first: str | int = 0) -> Iterator[str]:
        """A loop over the numbers from ``first`` up to but without ``last``."""
        with self.carrying_loop(last, [], step, first) as (index, _):
            yield index

    def loop_metadata(self) -> str:
        """What follows the branch back to the head of a loop."""
        return ""

    @contextmanager
    def carrying_loop(
        self, last: str | int, start: Sequence[tuple[str, str]], step: str | int = 1,
        first: str | int = 0,
    ) -> Iterator[tuple[str, Carried]]:  # fmt: skip
        """A loop with loop-carried values, (type, initial value); ``after`` it, the final ones."""
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
        self.do(f"br label %{word}.head{self.loop_metadata()}")
        self.label(f"{word}.end")
        self.lines[head:head] = [
            f"  {name} = phi {type} [{value}, %{word}.before], [{after}, %{word}.next]"
            for name, (type, value), after in zip(carried.values, start, carried.after, strict=True)
        ]
        carried.after = carried.values

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """A branch that is taken if a condition holds."""
        word = self.fresh("when")
        self.do(f"br i1 {condition}, label %{word}.so, label %{word}.end")
        self.label(f"{word}.so")
        yield
        self.do(f"br label %{word}.end")
        self.label(f"{word}.end")

    def by_stride(self, stride: str) -> Iterator[int]:
        """Versions of the IR for a stride of 1, of 2 and of any other number (0), selected when the
        kernel runs."""
        is_one, is_two = (self.op(f"icmp eq i64 {stride}, {n}") for n in (1, 2))
        either = self.op(f"or i1 {is_one}, {is_two}")
        neither = self.op(f"xor i1 {either}, true")
        for kind, condition in ((1, is_one), (2, is_two), (0, neither)):
            with self.when(condition):
                yield kind
