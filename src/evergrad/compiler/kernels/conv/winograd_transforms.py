"""The sums and products that Winograd's convolutions are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from evergrad.compiler.codegen.ir_builder import KernelBuilder
from evergrad.compiler.kernels.gemm.microkernel import Tile, strip, use

# The elements of a square of x, and of one of its sides.
SIDE = 4
PLACES = SIDE * SIDE

# What makes as many or more or fewer registers of some along a side of a square.
Transform1d = Callable[[KernelBuilder, list[str]], list[str]]


class Matrix(NamedTuple):
    """Where a matrix begins, and the elements from one of its rows to the next."""

    start: str
    step: str | int


def transform_2d(ir: KernelBuilder, values: list[str], transform: Transform1d) -> list[str]:
    """A square of registers, changed along its columns and then along its rows."""
    side = round(len(values) ** 0.5)
    columns = [transform(ir, values[n::side]) for n in range(side)]
    rows = zip(*columns, strict=True)
    return [value for row in rows for value in transform(ir, list(row))]


def input_transform(ir: KernelBuilder, d: list[str]) -> list[str]:
    """The sums of a square's elements, along one of its sides."""
    return [
        ir.minus(d[0], d[2]),
        ir.plus(d[1], d[2]),
        ir.minus(d[2], d[1]),
        ir.minus(d[1], d[3]),
    ]


def multiply(
    ir: KernelBuilder, tile: Tile, a: Matrix, b: Matrix, c: Matrix,
    depth: str, rows: str, columns: str, panel: str, more: str = "false",
) -> None:  # fmt: skip
    """``C = [C +] A B`` in panels of columns. Columns of A lie one after the other (``a.step``
    elements from one to the next), in blocks of a tile's rows or as a whole."""
    with ir.loop(columns, panel) as column:
        width = ir.least(ir.sub(columns, column), panel)
        for vectors in range(1, tile.vectors + 1):
            low = ir.op(f"icmp sgt i64 {width}, {(vectors - 1) * tile.lanes}")
            high = ir.op(f"icmp sle i64 {width}, {vectors * tile.lanes}")
            with ir.when(ir.op(f"and i1 {low}, {high}")):
                use(
                    ir, strip(tile, vectors, False),
                    f"ptr {a.start}", f"i64 {depth if a.step == tile.rows else 1}",
                    f"i64 {a.step}",
                    f"ptr {ir.at(b.start, column)}", f"i64 {b.step}",
                    f"ptr {ir.at(c.start, column)}", f"i64 {c.step}",
                    f"i64 {depth}", f"i64 {rows}", f"i64 {width}", f"i1 {more}",
                    f"ptr {ir.at(c.start, column)}", f"i64 {c.step}",
                )  # fmt: skip


def panel_width(tile: Tile, columns: int) -> int:
    """The columns of a panel: panels are of about the same width."""
    vectors = -(-columns // tile.lanes)
    return -(-vectors // -(-vectors // tile.vectors)) * tile.lanes
