"""Kernels that write whole rows by number into a table that is already there.

A chunk owns some columns and takes the rows in order, so that rows which repeat are added, or
overwritten, in the order of the source on any number of threads. The numbers are checked by a
kernel of its own, which runs before anything is written.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from evergrad.compiler.codegen.ir_builder import Vector
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.kernel_builder import KernelBuilder, with_numbers

COLUMNS = 64  # of a chunk
_INDEX = Vector("i64", 1, 8)


class RowNumbers(NamedTuple):
    """The rows that are written, and the columns and rows of the table."""

    rows: int
    columns: int
    height: int


# -- parts of kernels ---------------------------------------------------------------------------


def own_columns(ir: KernelBuilder) -> tuple[str, str]:
    """The first column of a chunk, and its end."""
    return ir.items("%chunk", str(COLUMNS), ir["columns"])


def row_number(ir: KernelBuilder, row: str) -> str:
    """The number in ``places`` at a row, counted from the front."""
    given = ir.number(ir["places"], row)
    is_low = ir.op(f"icmp slt i64 {given}, 0")
    return ir.op(f"select i1 {is_low}, i64 {ir.add(given, ir['height'])}, i64 {given}")


def row_at(ir: KernelBuilder, pointer: str, row: str) -> str:
    """The address of a row."""
    return ir.at(ir[pointer], ir.mul(row, ir["columns"]))


def write_columns(
    ir: KernelBuilder, source: str, target: str, columns: tuple[str, str], is_sum: bool
) -> None:
    """Add some columns of a row to those of another one, or copy them."""
    first, end = columns
    count = ir.sub(end, first)
    whole = ir.sub(end, ir.op(f"urem i64 {count}, {ir.vector.lanes}"))
    with ir.loop(whole, ir.vector.lanes, first) as column:
        value, to = ir.load_vector(ir.at(source, column)), ir.at(target, column)
        ir.store_vector(ir.plus(ir.load_vector(to), value) if is_sum else value, to)
    with ir.loop(end, first=whole) as column:
        value, to = ir.load(ir.at(source, column)), ir.at(target, column)
        if is_sum:
            value = ir.op(f"fadd {ir.vector.element} {ir.load(to)}, {value}")
        ir.store(value, to)


# -- kernels ------------------------------------------------------------------------------------


@cache
def _check_ir() -> Kernel:
    ir = KernelBuilder(_INDEX, ("places", "status"), ("rows", "height", "least"))
    with ir.carrying_loop(ir["rows"], [("i1", "false")]) as (row, carried):
        number = ir.load(ir.at(ir["places"], row))
        is_low = ir.op(f"icmp slt i64 {number}, {ir['least']}")
        is_high = ir.op(f"icmp sge i64 {number}, {ir['height']}")
        is_outside = ir.op(f"or i1 {is_low}, {is_high}")
        carried.after = [ir.op(f"or i1 {carried.values[0]}, {is_outside}")]
    with ir.when(carried.after[0]):
        ir.store("1", ir["status"])
    return ir.kernel("check_rows")


@cache
def _write_ir(vector: Vector, is_sum: bool) -> Kernel:
    ir = KernelBuilder(vector, ("source", "places", "out"), RowNumbers._fields)
    columns = own_columns(ir)
    with ir.loop(ir["rows"]) as row:
        target = row_at(ir, "out", row_number(ir, row))
        write_columns(ir, row_at(ir, "source", row), target, columns, is_sum)
    return ir.kernel("add_rows" if is_sum else "copy_rows")


def check_rows(rows: int, height: int, wrap: bool) -> Kernel:
    """Whether all numbers of rows are in range: (numbers, status word)."""
    return with_numbers(_check_ir(), (rows, height, -height if wrap else 0), (), 1)


def write_rows(vector: Vector, is_sum: bool, numbers: RowNumbers) -> Kernel:
    """Add rows to, or copy them over, those with the given numbers: (source, numbers, table)."""
    return with_numbers(_write_ir(vector, is_sum), numbers, (), -(-numbers.columns // COLUMNS))
