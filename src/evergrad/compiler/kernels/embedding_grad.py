"""Scatter-add of rows by index: the gradient of an embedding table.

A chunk owns some columns and adds all rows to them in order, so that the result is deterministic
and needs no atomic additions.
"""

from __future__ import annotations

from functools import cache
from math import prod

from evergrad.compiler.codegen.ir_builder import Vector, is_native, vector_for
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.kernel_builder import KernelBuilder, with_numbers
from evergrad.compiler.codegen.row_writes import (
    COLUMNS,
    RowNumbers,
    own_columns,
    row_at,
    row_number,
    write_columns,
)
from evergrad.compiler.kernels.contiguous import contiguous
from evergrad.compiler.kernels.indexed import ADD, add_write, by_one_index
from evergrad.compiler.schedule.lower import Lowering
from evergrad.compiler.schedule.lowering_registry import lowers
from evergrad.core import dtypes
from evergrad.core.trace import Equation
from evergrad.ops.rows.indexing.index import INDEX_SUM


@cache
def _row_sums(vector: Vector) -> Kernel:
    """The kernel with the arguments source, numbers of rows, table and status word."""
    ir = KernelBuilder(vector, ("source", "places", "out", "status"), RowNumbers._fields)
    first, end = own_columns(ir)
    with ir.loop(ir["height"]) as row, ir.loop(end, first=first) as column:
        ir.store("0.0", ir.at(row_at(ir, "out", row), column))
    with ir.loop(ir["rows"]) as row:
        number = row_number(ir, row)
        is_inside = ir.op(f"icmp ult i64 {number}, {ir['height']}")
        with ir.when(is_inside):
            source, target = row_at(ir, "source", row), row_at(ir, "out", number)
            write_columns(ir, source, target, (first, end), is_sum=True)
        with ir.when(ir.op(f"xor i1 {is_inside}, true")):
            ir.do(f"store i64 1, ptr {ir['status']}")
    return ir.kernel("row_sums")


def row_sum_fits(eqn: Equation) -> bool:
    """Whether an ``index_sum`` adds whole contiguous rows, by one index."""
    source, *indices = eqn.args
    return (
        len(indices) == 1
        and eqn.attrs["start"] == 0
        and is_native(source.type.dtype)
        and indices[0].type.dtype is dtypes.int64
        and source.type.numel > 0
    )


def row_sum_kernel(eqn: Equation) -> Kernel:
    source, places = eqn.args
    columns = prod(source.type.shape[len(places.type.shape) :])
    numbers = RowNumbers(places.type.numel, columns, eqn.attrs["extents"][0])
    made = _row_sums(vector_for(source.type.dtype))
    return with_numbers(made, numbers, (), -(-columns // COLUMNS))


@lowers(INDEX_SUM)
def lower_row_sum(lowering: Lowering, eqn: Equation) -> bool:
    source, *indices = eqn.args
    if row_sum_fits(eqn):
        given = [contiguous(lowering, a) for a in eqn.args]
        kernel = row_sum_kernel(eqn)
        lowering.add_kernel(eqn.op.name, kernel, given, [eqn.outs[0], None], source.type.numel)
        return True
    if len(indices) != 1:
        return False
    shape, start = eqn.outs[0].type.shape, eqn.attrs["start"]
    extents = by_one_index(shape, start, indices[0].type.numel)
    return add_write(lowering, eqn, None, indices[0], source, ADD, extents, wrap=True)
