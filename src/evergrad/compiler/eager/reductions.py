"""A reduction of contiguous floats as one loop, for eager mode.

The array is read as ``[outer, count, inner]`` and its middle dimension is reduced; all three
extents are arguments, so that a new shape costs nothing. Sums are added in vector lanes by blocks,
and the sums of blocks with what their additions lose, as in
:mod:`evergrad.compiler.codegen.blocked_sums`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING

from evergrad.compiler.codegen.code import Code
from evergrad.compiler.codegen.elementwise import constant
from evergrad.compiler.codegen.ir_builder import vector_for
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.kernel_builder import KernelBuilder
from evergrad.compiler.native import jit
from evergrad.compiler.native.prototypes import functions_at
from evergrad.core.dtypes import dtype
from evergrad.core.row_facts import Combine, EagerReduction
from evergrad.extension import provides

if TYPE_CHECKING:
    from evergrad.compiler.codegen.ir_builder import Vector

# Vectors of a block along a row, and rows of a block of columns.
_BLOCK_VECTORS = 128
_BLOCK_ROWS = 16
# Accumulators whose additions overlap.
_WIDE = 4

_IDENTITIES = {Combine.SUM: 0.0, Combine.PRODUCT: 1.0, Combine.MAX: -float("inf"),
               Combine.MIN: float("inf")}  # fmt: skip
_NAN = "0x7FF8000000000000"
_EXTENTS = ("outer", "count", "inner")


@provides("reduction_kernel")
def reduction_kernel(
    reduction: EagerReduction, found: dtype, along_rows: bool
) -> tuple[Callable[..., None], Callable[..., None]] | None:
    """The loop of a reduction as a function of the addresses of result and argument and of the
    extents ``outer``, ``count`` and ``inner`` (1 where it is along rows): one that keeps the GIL
    and one that releases it. ``None`` where there is no machine code."""
    if not jit.can_jit():
        return None
    builder = ReductionBuilder(reduction, found)
    kernel = builder.rows() if along_rows else builder.columns()
    address = jit.addresses([kernel])[kernel.name]
    signature = (None, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 3)
    return functions_at(address, signature)


class ReductionBuilder(KernelBuilder):
    """The IR of one reduction, or of several one after the other (:meth:`use`)."""

    pointers: tuple[str, ...] = ("out", "x")

    def __init__(self, reduction: EagerReduction, found: dtype) -> None:
        Code.__init__(self)
        self.vector: Vector = vector_for(found)
        self.found = found
        self.named: dict[str, str] = {name: f"%{name}" for name in (*self.pointers, *_EXTENTS)}
        self.use(reduction)

    def use(self, reduction: EagerReduction) -> None:
        """Set the reduction whose IR is emitted from now on."""
        self.reduction = reduction
        number = constant(_IDENTITIES[reduction.combine], self.found)
        lanes = ", ".join([f"{self.vector.element} {number}"] * self.vector.lanes)
        self.identity: str = f"<{lanes}>"
        self.is_sum: bool = reduction.combine is Combine.SUM
        self.is_extreme: bool = reduction.combine in (Combine.MAX, Combine.MIN)

    # -- arithmetic on vectors ------------------------------------------------------------------

    def combine(self, a: str, b: str) -> str:
        """Two vectors combined; of extremes without regard to NaN, which masks keep."""
        kind, many = self.reduction.combine, self.vector.type
        if kind is Combine.SUM:
            return self.plus(a, b)
        if kind is Combine.PRODUCT:
            return self.op(f"fmul {many} {a}, {b}")
        word = "ogt" if kind is Combine.MAX else "olt"
        better = self.op(f"fcmp {word} {many} {b}, {a}")
        return self.op(f"select {self.vector.of('i1')} {better}, {many} {b}, {many} {a}")

    def either(self, a: str, b: str) -> str:
        return self.op(f"or {self.vector.of('i1')} {a}, {b}")

    def accumulators(self, wide: int) -> list[tuple[str, str]]:
        """Types and initial values of accumulators: vectors, and of extremes beside each a mask of
        the lanes that have seen a NaN."""
        start = [(self.vector.type, self.identity)] * wide
        return [*start, *[(self.vector.of("i1"), "zeroinitializer")] * (wide * self.is_extreme)]

    def accumulated(self, held: list[str], values: list[str]) -> list[str]:
        """The accumulators after one more vector of elements for each."""
        many, wide = self.vector.type, len(values)
        if self.reduction.squares:
            values = [self.op(f"fmul {many} {value}, {value}") for value in values]
        found = [self.combine(h, v) for h, v in zip(held[:wide], values, strict=True)]
        for seen, value in zip(held[wide:], values, strict=self.is_extreme):
            found.append(self.either(seen, self.op(f"fcmp uno {many} {value}, {value}")))
        return found

    def joined(self, held: list[str]) -> list[str]:
        """Accumulators joined to one."""
        vectors = held[: len(held) // 2] if self.is_extreme else held
        masks = held[len(vectors) :]
        while len(vectors) > 1:
            vectors = list(map(self.combine, vectors[::2], vectors[1::2]))
            masks = list(map(self.either, masks[::2], masks[1::2]))
        return vectors + masks

    def after_block(self, held: list[str], block: list[str]) -> list[str]:
        """Accumulators over blocks after one more block: of sums, totals and what was lost; of
        extremes, values and masks."""
        wide = len(held) // 2
        first, second = held[:wide], held[wide:]
        if self.is_sum:
            pairs = [self.flushed(*of) for of in zip(block, first, second, strict=True)]
            return [*[a for a, _ in pairs], *[b for _, b in pairs]]
        if self.is_extreme:
            seen = map(self.either, second, block[wide:])
            return [*map(self.combine, first, block[:wide]), *seen]
        return [*map(self.combine, first, block), *second]

    def flushed(self, block: str, total: str, lost: str) -> tuple[str, str]:
        """Total and lost after one more block: the two-sum of Knuth."""
        after = self.plus(total, block)
        added = self.minus(after, total)
        error = self.plus(self.minus(total, self.minus(after, added)), self.minus(block, added))
        return after, self.plus(lost, error)

    def settled(self, total: str, lost: str) -> str:
        """A sum with what was lost; where it is not finite nothing sensible was."""
        many, masks = self.vector.type, self.vector.of("i1")
        zero = self.minus(lost, lost)
        finite = self.op(f"fcmp oeq {many} {zero}, zeroinitializer")
        lost = self.op(f"select {masks} {finite}, {many} {lost}, {many} zeroinitializer")
        return self.plus(total, lost)

    def finished(self, value: str, type: str) -> str:
        """What is stored for a reduced value."""
        element = self.vector.element
        if self.reduction.mean:
            count = self.op(f"sitofp i64 {self['count']} to {element}")
            divisor = count if type == element else self.splat(count, element)
            value = self.op(f"fdiv {type} {value}, {divisor}")
        if self.reduction.root:
            scalar = "f32" if element == "float" else "f64"
            name = f"llvm.sqrt.{scalar if type == element else self.vector.mangled}"
            self.helpers[name] = f"declare {type} @{name}({type})"
            value = self.op(f"call {type} @{name}({type} {value})")
        return value

    def between_blocks(self, wide: int) -> list[tuple[str, str]]:
        """Types and initial values of the accumulators over blocks."""
        if self.is_extreme:
            return self.accumulators(wide)
        return [(self.vector.type, self.identity)] * (2 * wide)

    # -- along rows -----------------------------------------------------------------------------

    def rows(self) -> Kernel:
        with self.loop(self["outer"]) as number:
            row = self.at(self["x"], self.mul(number, self["count"]))
            self.store(self.of_row(row), self.at(self["out"], number))
        return self.kernel("reduce_rows")

    def of_row(self, row: str) -> str:
        """The reduced value of ``count`` neighbours."""
        count, block = self["count"], _BLOCK_VECTORS * self.vector.lanes
        with self.carrying_loop(count, self.between_blocks(1), block) as (first, held):
            last = self.least(self.add(first, block), count)
            held.after = self.after_block(held.values, self.block_of_row(row, first, last))
        return self.finished(self.one_number(*held.after), self.vector.element)

    def block_of_row(self, row: str, first: str, last: str) -> list[str]:
        """The elements of a row from one to another, in one accumulator."""
        lanes = self.vector.lanes
        length = self.sub(last, first)
        middle = self.add(first, self.op(f"and i64 {length}, {-lanes * _WIDE}"))
        start = self.accumulators(_WIDE)
        with self.carrying_loop(middle, start, lanes * _WIDE, first) as (at, held):
            places = [self.at(row, at, lanes * k) for k in range(_WIDE)]
            held.after = self.accumulated(held.values, list(map(self.load_vector, places)))
        types = [type for type, _ in self.accumulators(1)]
        start = list(zip(types, self.joined(held.after), strict=True))
        with self.carrying_loop(last, start, lanes, middle) as (at, tail):
            mask = self.range_mask(self.lane_indices("0"), "0", self.sub(last, at))
            value = self.load_masked(self.at(row, at), mask, self.identity)
            tail.after = self.accumulated(tail.values, [value])
        return tail.after

    def one_number(self, value: str, other: str) -> str:
        """The accumulator of a row, reduced over its lanes by halves."""
        if self.is_sum:
            value = self.settled(value, other)
        many, element, lanes = self.vector.type, self.vector.element, self.vector.lanes
        half = lanes
        while half > 1:
            half //= 2
            order = [(n + half) % lanes for n in range(lanes)]
            value = self.combine(value, self.shuffled([value, value], order))
        value = self.op(f"extractelement {many} {value}, i64 0")
        if self.is_extreme:
            bits = self.op(f"bitcast {self.vector.of('i1')} {other} to i{lanes}")
            seen = self.op(f"icmp ne i{lanes} {bits}, 0")
            value = self.op(f"select i1 {seen}, {element} {_NAN}, {element} {value}")
        return value

    # -- down columns ---------------------------------------------------------------------------

    def columns(self) -> Kernel:
        inner = self["inner"]
        with self.loop(self["outer"]) as number:
            plane = self.at(self["x"], self.mul(number, self["count"], inner))
            self.of_columns(plane, self.at(self["out"], self.mul(number, inner)))
        return self.kernel("reduce_columns")

    def of_columns(self, plane: str, out: str) -> None:
        """The reduced values of ``inner`` columns."""
        lanes, inner = self.vector.lanes, self["inner"]
        wide = self.op(f"and i64 {inner}, {-lanes * _WIDE}")
        with self.loop(wide, lanes * _WIDE) as column:
            self.strip(plane, out, [self.add(column, lanes * k) for k in range(_WIDE)], None)
        with self.loop(inner, lanes, wide) as column:
            mask = self.range_mask(self.lane_indices("0"), "0", self.sub(inner, column))
            self.strip(plane, out, [column], mask)

    def strip(self, plane: str, out: str, columns: list[str], mask: str | None) -> None:
        """The columns of one or several vectors, from the first row to the last."""
        wide, count = len(columns), self["count"]
        start = self.between_blocks(wide)
        with self.carrying_loop(count, start, _BLOCK_ROWS) as (first, held):
            last = self.least(self.add(first, _BLOCK_ROWS), count)
            with self.carrying_loop(last, self.accumulators(wide), 1, first) as (row, block):
                at = self.at(plane, self.mul(row, self["inner"]))
                values = [self.loaded(self.at(at, c), mask) for c in columns]
                block.after = self.accumulated(block.values, values)
            held.after = self.after_block(held.values, block.after)
        for column, value, other in zip(columns, held.after[:wide], held.after[wide:], strict=True):
            self.store_columns(self.at(out, column), value, other, mask)

    def store_columns(self, address: str, value: str, other: str, mask: str | None) -> None:
        many = self.vector.type
        if self.is_sum:
            value = self.settled(value, other)
        if self.is_extreme:
            nan = self.splat(_NAN, self.vector.element)
            value = self.op(f"select {self.vector.of('i1')} {other}, {many} {nan}, {many} {value}")
        value = self.finished(value, many)
        if mask is None:
            self.store_vector(value, address)
        else:
            self.store_masked(value, address, mask)

    def loaded(self, address: str, mask: str | None) -> str:
        if mask is None:
            return self.load_vector(address)
        return self.load_masked(address, mask, "zeroinitializer")

    def kernel(self, kind: str) -> Kernel:
        body = "\n".join(self.lines)
        extents = ", ".join(f"i64 %{name}" for name in _EXTENTS)
        pointers = ", ".join(f"ptr noalias %{name}" for name in self.pointers)
        width = f'"prefer-vector-width"="{jit.vector_bits()}"'
        ir = (
            f"define void @SELF({pointers}, {extents}) nounwind {width} "
            f"{{\nentry:\n{body}\n  ret void\n}}\n"
        )
        name = jit.name_of(ir + "".join(self.helpers.values()), kind)
        return Kernel(name, ir.replace("@SELF", f"@{name}"), self.helpers)
