"""Writes of rows by number (``index_add``, ``index_copy``), in place where that is possible.

A table that outside memory holds and that a program updates by rows must not be copied: time and
bytes follow the rows. Such writes come last, after a check of all their numbers, because what was
overwritten cannot be restored if something fails afterwards.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from evergrad.compiler.codegen.ir_builder import Vector, is_native, vector_for
from evergrad.compiler.codegen.row_writes import RowNumbers, check_rows, write_rows
from evergrad.compiler.native.jit import vector_bits
from evergrad.compiler.schedule.buffers import strides_of
from evergrad.compiler.schedule.nodes import ScheduleNode, SingleNode
from evergrad.core import dtypes
from evergrad.core.trace import Equation, Var
from evergrad.ops.rows.indexing.index import INDEX_ADD, INDEX_COPY

if TYPE_CHECKING:
    from evergrad.compiler.schedule.def_use import DefUse
    from evergrad.compiler.schedule.lower import Lowering
    from evergrad.core.storage import Storage


def _is_contiguous(var: Var) -> bool:
    return var.layout.strides == strides_of(var)


def fits(eqn: Equation) -> bool:
    """Whether an equation writes whole contiguous rows, by one index."""
    if eqn.op not in (INDEX_ADD, INDEX_COPY) or len(eqn.args) != 3 or eqn.attrs["start"]:
        return False
    table, source, index = eqn.args
    if not all(isinstance(arg, Var) for arg in eqn.args) or index.type.dtype is not dtypes.int64:
        return False
    known = is_native(table.type.dtype) or (
        eqn.op is INDEX_COPY and not table.type.dtype.is_complex
    )
    width = prod(table.type.shape[1:])
    has_rows = source.type.numel == index.type.numel * width and source.type.numel > 0
    return known and has_rows and _is_contiguous(source) and _is_contiguous(index)


def table_in_place(eqn: Equation, storage: Storage, values: DefUse, held: list[Var]) -> bool:
    """Whether an equation may write its rows right to the memory that holds its table: it reads
    the table as a whole, nothing else from there, and nothing reads its result."""
    if not fits(eqn) or any(values.users(eqn.outs[0])):
        return False
    table, *others = (values.root(arg) for arg in eqn.args)
    array = storage.value
    whole = table in held and eqn.args[0].layout.strides == array.strides
    return whole and not any(other in held for other in others)


def in_place_last(lowering: Lowering) -> None:
    """Move the nodes that write rows right to outside memory to the end of the schedule."""
    outputs = {var for var, _ in lowering.in_place}
    last = [n for n in lowering.nodes if _is_write(n) and n.equations[0].outs[0] in outputs]
    moved = {id(node) for node in last}
    lowering.row_writes = last
    lowering.nodes = [*(n for n in lowering.nodes if id(n) not in moved), *last]


def _is_write(node: ScheduleNode) -> bool:
    return isinstance(node, SingleNode) and fits(node.eqn)


def check_numbers(lowering: Lowering, eqn: Equation) -> None:
    """Add the check that all numbers of rows are in range."""
    table, _, index = eqn.args
    kernel = check_rows(index.type.numel, table.type.shape[0], eqn.attrs["wrap"])
    lowering.add_kernel(f"check {eqn.op.name}", kernel, [index], [None], index.type.numel)


def add_row_write(lowering: Lowering, eqn: Equation) -> bool:
    """Lower a write of rows; a table that is not overwritten in place is copied first."""
    if not fits(eqn):
        return False
    table, source, index = eqn.args
    out, is_sum = eqn.outs[0], eqn.op is INDEX_ADD
    if not any(eqn is node.equations[0] for node in lowering.row_writes):
        check_numbers(lowering, eqn)
        lowering.copy(table, lowering.buffer_view(out))
    found = table.type.dtype
    size, height = found.itemsize, table.type.shape[0]
    vector = (
        vector_for(found) if is_sum else Vector(f"i{8 * size}", vector_bits() // 8 // size, size)
    )
    numbers = RowNumbers(index.type.numel, prod(table.type.shape[1:]), height)
    kernel = write_rows(vector, is_sum, numbers)
    lowering.add_kernel(eqn.op.name, kernel, [source, index], [out], source.type.numel)
    return True
