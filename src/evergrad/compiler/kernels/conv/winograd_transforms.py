"""Winograd transforms of tiles of registers, and the matrix product between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from evergrad.compiler.codegen.kernel_builder import KernelBuilder
from evergrad.compiler.kernels.gemm.microkernel import UNFINISHED, Tile, microkernel, use

# The rows or columns of an input tile, and its elements.
SIDE = 4
PLACES = SIDE * SIDE

# A transform along one dimension of a tile of registers.
Transform1d = Callable[[KernelBuilder, list[str]], list[str]]


class Matrix(NamedTuple):
    """The start of a matrix and its leading dimension."""

    start: str
    leading: str | int


def transform_2d(ir: KernelBuilder, values: list[str], transform: Transform1d) -> list[str]:
    """A square tile of registers, transformed along its columns and then along its rows."""
    side = round(len(values) ** 0.5)
    columns = [transform(ir, values[n::side]) for n in range(side)]
    rows = zip(*columns, strict=True)
    return [value for row in rows for value in transform(ir, list(row))]


def input_transform(ir: KernelBuilder, d: list[str]) -> list[str]:
    """The input transform along one dimension."""
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
    """``C = [C +] A B`` in panels of columns. A is column-major with the leading dimension
    ``a.leading``, in blocks of a tile's rows or as a whole."""
    with ir.loop(columns, panel) as column:
        width = ir.least(ir.sub(columns, column), panel)
        for vectors in range(1, tile.vectors + 1):
            low = ir.op(f"icmp sgt i64 {width}, {(vectors - 1) * tile.lanes}")
            high = ir.op(f"icmp sle i64 {width}, {vectors * tile.lanes}")
            with ir.when(ir.op(f"and i1 {low}, {high}")):
                use(
                    ir, microkernel(tile, vectors, False),
                    f"ptr {a.start}", f"i64 {depth if a.leading == tile.rows else 1}",
                    f"i64 {a.leading}",
                    f"ptr {ir.at(b.start, column)}", f"i64 {b.leading}",
                    f"ptr {ir.at(c.start, column)}", f"i64 {c.leading}",
                    f"i64 {depth}", f"i64 {rows}", f"i64 {width}", f"i1 {more}",
                    *UNFINISHED,
                )  # fmt: skip


def panel_width(tile: Tile, columns: int) -> int:
    """The columns of a panel: all panels have about the same width."""
    vectors = -(-columns // tile.lanes)
    return -(-vectors // -(-vectors // tile.vectors)) * tile.lanes
