"""Scans and positions of extremes along one dimension: each line of elements from its first to its
last.

A tensor is viewed as ``(outer, extent, inner)``. A unit is as many neighbouring lines as a vector
has lanes, or one line where there are fewer; a chunk is some units, so that results depend on
neither the number of threads nor the order of chunks. Running sums and products of float32 are
carried in float64, as in eager mode.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from math import prod
from typing import NamedTuple

from evergrad.compiler.codegen.ir_builder import Vector
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.kernel_builder import KernelBuilder, with_numbers
from evergrad.compiler.kernels.contiguous import contiguous
from evergrad.compiler.native.jit import vector_bits
from evergrad.compiler.schedule.lower import Lowering
from evergrad.compiler.schedule.lowering_registry import lowers
from evergrad.core import dtypes
from evergrad.core.trace import Equation
from evergrad.ops.rows.reduce.extrema import ARGMAX, ARGMIN
from evergrad.ops.rows.reduce.scan import CUMPROD, CUMSUM

_TYPES = {dtypes.float32: "float", dtypes.float64: "double", dtypes.int64: "i64"}
_CHUNK = 1 << 13  # the elements of a chunk, at least
_LONG = 4  # registers of a row that is reduced by registers


class LineNumbers(NamedTuple):
    """A tensor is ``(outer, extent, inner)``; the elements of a line are a stride apart."""

    extent: int
    inner: int
    units: int
    per_chunk: int
    blocks: int  # units of one outer index
    first: int  # element of a line, from its start
    stride: int


class Unit(NamedTuple):
    """The lines of a unit: where the first elements are, where one result for each line is, and the
    mask of the lanes that are lines (none where there is one line)."""

    start: str
    result: str
    mask: str | None


class LineBuilder(KernelBuilder):
    """The builder of kernels along lines, whose values are vectors or, if a unit is one line,
    scalars."""

    def __init__(self, vector: Vector, pointers: tuple[str, ...]) -> None:
        super().__init__(vector, pointers, LineNumbers._fields)

    def of(self, element: str) -> str:
        """The type of a value of this element type for each line."""
        return element if self.vector.lanes == 1 else self.vector.of(element)

    @contextmanager
    def units(self) -> Iterator[Unit]:
        """The units of a chunk."""
        lanes = self.vector.lanes
        first, last = self.items("%chunk", self["per_chunk"], self["units"])
        with self.loop(last, first=first) as unit:
            outer, block = self.split(unit, self["blocks"])
            column = self.mul(block, lanes)
            whole = self.mul(outer, self["extent"], self["inner"])
            mask = None if lanes == 1 else self.first_lanes(self.sub(self["inner"], column))
            yield Unit(
                self.add(whole, column, self["first"]),
                self.add(self.mul(outer, self["inner"]), column),
                mask,
            )

    def get(self, pointer: str, place: str, unit: Unit) -> str:
        """The elements of all lines, the first of which is at a place."""
        address = self.at(self[pointer], place)
        return self.load(address) if unit.mask is None else self.load_masked(address, unit.mask)

    def put(self, value: str, pointer: str, place: str, unit: Unit) -> None:
        address = self.at(self[pointer], place)
        if unit.mask is None:
            self.store(value, address)
        else:
            self.store_masked(value, address, unit.mask)

    def put_index(self, value: str, pointer: str, place: str, unit: Unit) -> None:
        """Store an index for each line."""
        address = self.op(f"getelementptr i64, ptr {self[pointer]}, i64 {place}")
        if unit.mask is None:
            self.do(f"store i64 {value}, ptr {address}")
        else:
            self.store_masked(value, address, unit.mask, Vector("i64", self.vector.lanes, 8))

    def every(self, value: str, element: str) -> str:
        """A scalar for each line."""
        return value if self.vector.lanes == 1 else self.splat(value, element)

    def pick(self, mask: str, a: str, b: str, element: str) -> str:
        """For each line ``a`` or ``b``."""
        type = self.of(element)
        return self.op(f"select {self.of('i1')} {mask}, {type} {a}, {type} {b}")

    def widened(self, value: str) -> str:
        """float32 as float64."""
        if self.vector.element != "float":
            return value
        return self.op(f"fpext {self.of('float')} {value} to {self.of('double')}")

    def narrowed(self, value: str) -> str:
        if self.vector.element != "float":
            return value
        return self.op(f"fptrunc {self.of('double')} {value} to {self.of('float')}")


def is_beyond(ir: KernelBuilder, x: str, best: str, is_largest: bool, lanes: int) -> str:
    """Whether elements are beyond the extremes so far; NaN is beyond all numbers."""
    element, word = ir.vector.element, "gt" if is_largest else "lt"
    type, masks = (t if lanes == 1 else f"<{lanes} x {t}>" for t in (element, "i1"))
    if element == "i64":
        return ir.op(f"icmp s{word} {type} {x}, {best}")
    is_number = ir.op(f"fcmp ord {type} {best}, {best}")
    is_more = ir.op(f"fcmp u{word} {type} {x}, {best}")
    return ir.op(f"and {masks} {is_more}, {is_number}")


def line_vector(element: str, size: int, inner: int) -> Vector:
    """The vector of a unit: of a whole register of neighbouring lines, or of one line."""
    lanes = vector_bits() // 8 // size
    return Vector(element, lanes if inner >= lanes else 1, size)


def inner_of(eqn: Equation) -> int:
    """The neighbouring lines of an equation along one dimension."""
    return prod(eqn.args[0].type.shape[eqn.attrs["dim"] + 1 :])


def with_lines(made: Kernel, eqn: Equation, lanes: int, scratch: int = 0) -> Kernel:
    """A kernel with the numbers of an equation along one dimension, ``lanes`` lines to a unit."""
    shape, dim = eqn.args[0].type.shape, eqn.attrs["dim"]
    extent, inner = shape[dim], inner_of(eqn)
    blocks = -(-inner // lanes)
    units = prod(shape[:dim]) * blocks
    per_chunk = max(1, _CHUNK // (extent * lanes))
    is_reverse = eqn.attrs.get("reverse", False)
    first, stride = ((extent - 1) * inner, -inner) if is_reverse else (0, inner)
    numbers = LineNumbers(extent, inner, units, per_chunk, blocks, first, stride)
    return with_numbers(made, numbers, (), -(-units // per_chunk), scratch)


@cache
def _scan(vector: Vector, is_sum: bool) -> Kernel:
    """Running sums, or products."""
    ir = LineBuilder(vector, ("x", "out"))
    is_integer = vector.element == "i64"
    element = "i64" if is_integer else "double"
    instruction = ("" if is_integer else "f") + ("add" if is_sum else "mul")
    identity = ("0" if is_sum else "1") + ("" if is_integer else ".0")
    with ir.units() as unit:
        state = [(ir.of(element), ir.every(identity, element))]
        with ir.carrying_loop(ir["extent"], state) as (i, carried):
            at = ir.add(unit.start, ir.mul(i, ir["stride"]))
            value = ir.widened(ir.get("x", at, unit))
            total = ir.op(f"{instruction} {ir.of(element)} {carried.values[0]}, {value}")
            carried.after = [total]
            ir.put(ir.narrowed(total), "out", at, unit)
    return ir.kernel("scan")


@cache
def _position(vector: Vector, is_largest: bool) -> Kernel:
    """The position of the extreme: of equal elements the first."""
    ir = LineBuilder(vector, ("x", "out"))
    with ir.units() as unit:
        state = [
            (ir.of(vector.element), ir.get("x", unit.start, unit)),
            (ir.of("i64"), ir.every("0", "i64")),
        ]
        with ir.carrying_loop(ir["extent"], state, first=1) as (i, carried):
            best, position = carried.values
            x = ir.get("x", ir.add(unit.start, ir.mul(i, ir["stride"])), unit)
            is_better = is_beyond(ir, x, best, is_largest, vector.lanes)
            carried.after = [
                ir.pick(is_better, x, best, vector.element),
                ir.pick(is_better, ir.every(i, "i64"), position, "i64"),
            ]
        ir.put_index(carried.after[1], "out", unit.result, unit)
    return ir.kernel("extreme_position")


@cache
def _row_position(vector: Vector, is_largest: bool) -> Kernel:
    """The same for contiguous lines: each lane of a register has an extreme of its own until the
    end of the row, where that of all lanes is found."""
    ir = KernelBuilder(vector, ("x", "out"), LineNumbers._fields)
    lanes, indices = vector.lanes, vector.of("i64")
    extremes, positions = ir.scratch, ir.at_byte(ir.scratch, vector.bytes)
    whole = ir.sub(ir["extent"], ir.op(f"urem i64 {ir['extent']}, {lanes}"))
    counted = f"<{', '.join(f'i64 {n}' for n in range(lanes))}>"
    first, last = ir.items("%chunk", ir["per_chunk"], ir["units"])
    with ir.loop(last, first=first) as line:
        row = ir.at(ir["x"], ir.mul(line, ir["extent"]))
        state = [(vector.type, ir.load_vector(row)), (indices, "zeroinitializer")]
        with ir.carrying_loop(whole, state, lanes, lanes) as (start, carried):
            best, begin = carried.values
            x = ir.load_vector(ir.at(row, start))
            mask = is_beyond(ir, x, best, is_largest, lanes)
            here = ir.splat(start, "i64")
            begin = ir.op(f"select {vector.of('i1')} {mask}, {indices} {here}, {indices} {begin}")
            carried.after = [ir.choose(mask, x, best), begin]
        best, begin = carried.after
        ir.store_vector(best, extremes)
        ir.do(f"store {indices} {ir.op(f'add {indices} {begin}, {counted}')}, ptr {positions}")
        found = _extreme_of_lanes(ir, extremes, positions, is_largest)
        with ir.carrying_loop(ir["extent"], found, first=whole) as (i, carried):
            x = ir.load(ir.at(row, i))
            mask = is_beyond(ir, x, carried.values[0], is_largest, 1)
            carried.after = _chosen(ir, mask, (x, i), carried.values)
        target = ir.op(f"getelementptr i64, ptr {ir['out']}, i64 {line}")
        ir.do(f"store i64 {carried.after[1]}, ptr {target}")
    return ir.kernel("row_position")


def _extreme_of_lanes(
    ir: KernelBuilder, extremes: str, positions: str, is_largest: bool
) -> list[tuple[str, str]]:
    """The extreme of some elements in memory and its position, with their types: of equal ones the
    first."""
    start = [(ir.vector.element, ir.load(extremes)), ("i64", ir.number(positions, 0))]
    with ir.carrying_loop(ir.vector.lanes, start, first=1) as (lane, carried):
        best, position = carried.values
        x, place = ir.load(ir.at(extremes, lane)), ir.number(positions, lane)
        is_more, is_less = (is_beyond(ir, *pair, is_largest, 1) for pair in ((x, best), (best, x)))
        is_before = ir.op(f"icmp slt i64 {place}, {position}")
        is_equal = ir.op(f"xor i1 {is_less}, true")
        is_first = ir.op(f"and i1 {is_equal}, {is_before}")
        mask = ir.op(f"or i1 {is_more}, {is_first}")
        carried.after = _chosen(ir, mask, (x, place), carried.values)
    return [(ir.vector.element, carried.after[0]), ("i64", carried.after[1])]


def _chosen(ir: KernelBuilder, mask: str, new: tuple[str, str], old: list[str]) -> list[str]:
    """One of two elements with its position."""
    return [
        ir.op(f"select i1 {mask}, {type} {a}, {type} {b}")
        for type, a, b in zip((ir.vector.element, "i64"), new, old, strict=True)
    ]


@lowers(CUMSUM, CUMPROD)
def lower_scan(lowering: Lowering, eqn: Equation) -> bool:
    """A scan of a contiguous tensor."""
    source = eqn.args[0]
    found = source.type.dtype
    if found not in _TYPES or not source.type.numel:
        return False
    vector = line_vector(_TYPES[found], found.itemsize, inner_of(eqn))
    kernel = with_lines(_scan(vector, eqn.op is CUMSUM), eqn, vector.lanes)
    given = contiguous(lowering, source)
    lowering.add_kernel(eqn.op.name, kernel, [given], [eqn.outs[0]], source.type.numel)
    return True


@lowers(ARGMAX, ARGMIN)
def lower_position(lowering: Lowering, eqn: Equation) -> bool:
    """The position of the extreme along a dimension of a contiguous tensor."""
    source = eqn.args[0]
    found = source.type.dtype
    if found not in _TYPES or not source.type.numel:
        return False
    element, size, is_largest = _TYPES[found], found.itemsize, eqn.op is ARGMAX
    lanes = vector_bits() // 8 // size
    if inner_of(eqn) == 1 and source.type.shape[eqn.attrs["dim"]] >= _LONG * lanes:
        row = Vector(element, lanes, size)
        scratch = lanes * (size + 8)
        kernel = with_lines(_row_position(row, is_largest), eqn, 1, scratch)
    else:
        vector = line_vector(element, size, inner_of(eqn))
        kernel = with_lines(_position(vector, is_largest), eqn, vector.lanes)
    given = contiguous(lowering, source)
    lowering.add_kernel(eqn.op.name, kernel, [given], [eqn.outs[0]], source.type.numel)
    return True
