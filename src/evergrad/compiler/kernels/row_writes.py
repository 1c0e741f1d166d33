"""The lowering of writes of rows by number."""

from __future__ import annotations

from math import prod

from evergrad.compiler.kernels.indexed import ADD, COPY, add_write, by_one_index
from evergrad.compiler.schedule.lower import Lowering
from evergrad.compiler.schedule.lowering_registry import lowers
from evergrad.compiler.schedule.row_writes import add_row_write
from evergrad.core.trace import Equation, Var
from evergrad.ops.rows.indexing.index import INDEX_ADD, INDEX_COPY


@lowers(INDEX_ADD, INDEX_COPY)
def lower_row_write(lowering: Lowering, eqn: Equation) -> bool:
    if add_row_write(lowering, eqn):
        return True
    table, source, *indices = eqn.args
    if len(indices) != 1 or not isinstance(source, Var):
        return False
    start, (index,) = eqn.attrs["start"], indices
    size = (*table.type.shape[:start], index.type.numel, *table.type.shape[start + 1 :])
    if source.type.numel != prod(size):
        return False  # it is broadcast
    how = ADD if eqn.op is INDEX_ADD else COPY
    extents = by_one_index(table.type.shape, start, index.type.numel)
    return add_write(lowering, eqn, table, index, source, how, extents, eqn.attrs["wrap"])
