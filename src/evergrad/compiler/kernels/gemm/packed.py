"""Products with a packed weight, as one kernel for any number of rows.

A chunk is some panels of outputs. A tile of rows times a panel stays in registers while the panel
is read once, from its beginning to its end; elements of X are broadcast. A single row is multiplied
by several panels at once. Each output is accumulated over K in order by one chain of multiply-adds,
so that a row gives the same bits in every tile: serving relies on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from math import prod
from typing import NamedTuple

from evergrad.compiler.codegen.elementwise import KINDS
from evergrad.compiler.codegen.ir_builder import Vector, vector_for
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.kernel_builder import KernelBuilder, items_per_chunk, with_numbers
from evergrad.compiler.kernels.gemm.select import flattened
from evergrad.compiler.native.jit import has_fma
from evergrad.compiler.schedule.lower import Lowering
from evergrad.compiler.schedule.lowering_registry import lowers
from evergrad.core import dtypes
from evergrad.core.dtypes import dtype
from evergrad.core.trace import Equation
from evergrad.ops.rows.packed_linear import PACKABLE, PACKED_LINEAR, PANEL

# Registers of sums in a tile, of a register file of 32 and of 16; with more of them LLVM spills.
_SUMS_OF_32, _SUMS_OF_16 = 16, 12
_PANELS_OF_ONE_ROW = 4
_UNROLL = 4  # steps along K, which share addresses


class _Sizes(NamedTuple):
    """Extents, and the stride of rows of X in elements."""

    m: int
    n: int
    k: int
    x_row: int
    panels: int
    per_chunk: int


@cache
def _ir(vector: Vector, narrow: dtype) -> Kernel:
    ir = KernelBuilder(vector, ("x", "w", "c"), _Sizes._fields)
    panels = _Panels(ir, narrow)
    first, last = ir.items("%chunk", ir["per_chunk"], ir["panels"])
    is_one = ir.op(f"icmp eq i64 {ir['m']}, 1")
    with ir.when(is_one):
        whole = ir.sub(last, ir.op(f"urem i64 {ir.sub(last, first)}, {_PANELS_OF_ONE_ROW}"))
        for count, begin, end in ((_PANELS_OF_ONE_ROW, first, whole), (1, whole, last)):
            with ir.loop(end, count, begin) as panel:
                panels.multiply("0", 1, panel, count)
    with ir.when(ir.op(f"xor i1 {is_one}, true")), ir.loop(last, first=first) as panel:
        for row, rows in _row_tiles(ir):
            panels.multiply(row, rows, panel, 1)
    return ir.kernel("gemm_packed")


def _row_tiles(ir: KernelBuilder) -> Iterator[tuple[str, int]]:
    """Loops over tiles of all rows: of the most rows, and of fewer for the rest."""
    sums = _SUMS_OF_32 if ir.vector.has_32_registers else _SUMS_OF_16
    most = max(1, sums * ir.vector.lanes // PANEL)
    begin = "0"
    for size in sorted({most, *(n for n in (1, 2, 4) if n < most)}, reverse=True):
        rest = ir.op(f"urem i64 {ir.sub(ir['m'], begin)}, {size}")
        end = ir.sub(ir["m"], rest)
        with ir.loop(end, size, begin) as row:
            yield row, size
        begin = end


class _Panels:
    """Emits the product of a tile of rows and of panels."""

    def __init__(self, ir: KernelBuilder, narrow: dtype) -> None:
        self.ir = ir
        self.narrow = narrow
        self.registers: int = PANEL // ir.vector.lanes
        self.many: str = ir.vector.type

    def multiply(self, row: str, rows: int, panel: str, panels: int) -> None:
        ir = self.ir
        xs = [ir.at(ir["x"], ir.mul(ir.add(row, r), ir["x_row"])) for r in range(rows)]
        size = ir.mul(ir["k"], PANEL)
        starts = [self.element(ir["w"], ir.mul(ir.add(panel, p), size)) for p in range(panels)]
        sums = ["zeroinitializer"] * (rows * panels * self.registers)
        whole = ir.op(f"and i64 {ir['k']}, {-_UNROLL}")
        for count, begin, end in ((_UNROLL, "0", whole), (1, whole, ir["k"])):
            given = [(self.many, total) for total in sums]
            with ir.carrying_loop(end, given, count, begin) as (step, carried):
                after = carried.values
                for s in range(count):
                    after = self.step(xs, starts, ir.add(step, s), after)
                carried.after = after
            sums = carried.after
        self.store(sums, row, rows, panel, panels)

    def step(self, xs: list[str], starts: list[str], step: str, sums: list[str]) -> list[str]:
        """Add the products of one element of each row and one row of each panel."""
        ir = self.ir
        place = ir.mul(step, PANEL)
        weights = [
            self.load(start, ir.add(place, v * ir.vector.lanes))
            for start in starts
            for v in range(self.registers)
        ]
        found = []
        for r, x in enumerate(xs):
            factor = ir.splat(ir.load(ir.at(x, step)), ir.vector.element)
            own = sums[r * len(weights) : (r + 1) * len(weights)]
            found += [
                ir.multiply_add(factor, w, total) for w, total in zip(weights, own, strict=True)
            ]
        return found

    def element(self, start: str, offset: str) -> str:
        storage = KINDS[self.narrow].storage
        return self.ir.op(f"getelementptr {storage}, ptr {start}, i64 {offset}")

    def load(self, start: str, offset: str) -> str:
        """A register of a panel, widened to float32."""
        ir, kind = self.ir, KINDS[self.narrow]
        address = self.element(start, offset)
        if self.narrow is dtypes.float32:
            return ir.load_vector(address)
        stored = Vector(kind.storage, ir.vector.lanes, kind.bits // 8)
        raw, integers = ir.load_vector(address, stored), ir.vector.of("i32")
        if self.narrow is dtypes.bfloat16:
            wide = ir.op(f"zext {stored.type} {raw} to {integers}")
            wide = ir.op(f"shl {integers} {wide}, {ir.splat('16', 'i32')}")
            return ir.op(f"bitcast {integers} {wide} to {self.many}")
        wide = ir.op(f"sext {stored.type} {raw} to {integers}")
        return ir.op(f"sitofp {integers} {wide} to {self.many}")

    def store(self, sums: list[str], row: str, rows: int, panel: str, panels: int) -> None:
        ir, lanes = self.ir, self.ir.vector.lanes
        for p in range(panels):
            for v in range(self.registers):
                column = ir.add(ir.mul(ir.add(panel, p), PANEL), v * lanes)
                mask = ir.range_mask(ir.lane_indices("0"), "0", ir.sub(ir["n"], column))
                for r in range(rows):
                    place = ir.add(ir.mul(ir.add(row, r), ir["n"]), column)
                    value = sums[(r * panels + p) * self.registers + v]
                    ir.store_masked(value, ir.at(ir["c"], place), mask)


@lowers(PACKED_LINEAR)
def lower_packed_linear(lowering: Lowering, eqn: Equation) -> bool:
    x, weight = eqn.args
    rows = flattened(x.layout)
    if rows is None or not has_fma() or 0 in (*rows.shape, *weight.type.shape):
        return False
    if rows.strides[1] != rows.itemsize and rows.shape[1] > 1:
        return False
    out = eqn.outs[0]
    if out.type.dtype is not dtypes.float32 or weight.type.dtype not in PACKABLE:
        return False
    (m, k), n, panels = rows.shape, eqn.attrs["outputs"], weight.type.shape[0]
    per_chunk = items_per_chunk(panels, m * k * PANEL)
    if m == 1:  # several panels are read at once
        per_chunk = -(-per_chunk // _PANELS_OF_ONE_ROW) * _PANELS_OF_ONE_ROW
    sizes = _Sizes(m, n, k, rows.strides[0] // rows.itemsize, panels, per_chunk)
    kernel = _ir(vector_for(dtypes.float32), weight.type.dtype)
    chunks = -(-panels // per_chunk)
    label = f"packed linear {m}x{n}x{k}"
    given = with_numbers(kernel, sizes, (), chunks)
    lowering.add_kernel(label, given, [x, weight], [out], prod((m, n, k)) // 8)
    return True
