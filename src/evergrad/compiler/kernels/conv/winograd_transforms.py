"""The sums and products that Winograd's convolutions are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from evergrad.compiler.codegen.ir_builder import KernelBuilder
from evergrad.compiler.kernels.gemm.microkernel import Tile, microkernel, use

# The elements of a square of x, and of one of its sides.
SIDE = 4
PLACES = SIDE * SIDE

# What makes as many or more or fewer registers of some along a side of a square.
Change = Callable[[KernelBuilder, list[str]], list[str]]


class Matrix(NamedTuple):
    """Where a matrix begins, and the elements from one of its rows to the next."""

    start: str
    step: str | int


def both_ways(text: KernelBuilder, values: list[str], change: Change) -> list[str]:
    """A square of registers, changed along its columns and then along its rows."""
    side = round(len(values) ** 0.5)
    columns = [change(text, values[n::side]) for n in range(side)]
    rows = zip(*columns, strict=True)
    return [value for row in rows for value in change(text, list(row))]


def of_inputs(text: KernelBuilder, d: list[str]) -> list[str]:
    """The sums of a square's elements, along one of its sides."""
    return [
        text.minus(d[0], d[2]),
        text.plus(d[1], d[2]),
        text.minus(d[2], d[1]),
        text.minus(d[1], d[3]),
    ]


def multiply(
    text: KernelBuilder, tile: Tile, a: Matrix, b: Matrix, c: Matrix,
    depth: str, rows: str, columns: str, panel: str, more: str = "false",
) -> None:  # fmt: skip
    """``C = [C +] A B`` in panels of columns. Columns of A lie one after the other (``a.step``
    elements from one to the next), in blocks of a tile's rows or as a whole."""
    with text.loop(columns, panel) as column:
        width = text.least(text.sub(columns, column), panel)
        for vectors in range(1, tile.vectors + 1):
            low = text.op(f"icmp sgt i64 {width}, {(vectors - 1) * tile.lanes}")
            high = text.op(f"icmp sle i64 {width}, {vectors * tile.lanes}")
            with text.when(text.op(f"and i1 {low}, {high}")):
                use(
                    text, microkernel(tile, vectors, False),
                    f"ptr {a.start}", f"i64 {depth if a.step == tile.rows else 1}",
                    f"i64 {a.step}",
                    f"ptr {text.at(b.start, column)}", f"i64 {b.step}",
                    f"ptr {text.at(c.start, column)}", f"i64 {c.step}",
                    f"i64 {depth}", f"i64 {rows}", f"i64 {width}", f"i1 {more}",
                    f"ptr {text.at(c.start, column)}", f"i64 {c.step}",
                )  # fmt: skip


def panel_of(tile: Tile, columns: int) -> int:
    """The columns of a panel: panels are of about the same width."""
    vectors = -(-columns // tile.lanes)
    return -(-vectors // -(-vectors // tile.vectors)) * tile.lanes
