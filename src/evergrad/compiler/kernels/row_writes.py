"""The lowering of writes of rows by number."""

from __future__ import annotations

from evergrad.compiler.schedule.lower import Lowering
from evergrad.compiler.schedule.lowering_registry import lowers
from evergrad.compiler.schedule.row_writes import add_row_write
from evergrad.core.trace import Equation
from evergrad.ops.rows.indexing.index import INDEX_ADD, INDEX_COPY


@lowers(INDEX_ADD, INDEX_COPY)
def lower_row_write(lowering: Lowering, eqn: Equation) -> bool:
    return add_row_write(lowering, eqn)
