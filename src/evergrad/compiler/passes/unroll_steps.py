"""Recurrent layers over one time step of few sequences, as in streaming: products and loops.

The kernel of a layer packs the hidden weight, which pays off over many steps or sequences. Layers
whose residuals a derivative reads stay as they are.
"""

from __future__ import annotations

from typing import Any

from evergrad.compiler.kernels.gemm.skinny import MOST_ROWS
from evergrad.compiler.passes.rewriter import rewrite
from evergrad.compiler.schedule.def_use import def_use_of
from evergrad.core.tensor import fresh
from evergrad.core.trace import Equation, Graph, Trace, Var
from evergrad.core.types import Args
from evergrad.ops.rows.matmul import linear
from evergrad.ops.rows.recurrent.layer import CELLS, ROWS, by_steps

_CELLS = {ROWS[name]: cell for name, cell in CELLS.items()}


def unroll_steps(graph: Graph) -> Graph:
    """The graph with recurrent layers of a single step in ops."""
    if not any(eqn.op in _CELLS and len(eqn.attrs["course"].sizes) == 1 for eqn in graph.equations):
        return graph
    values = def_use_of(graph)

    def is_used(var: Var) -> bool:
        return bool(values.uses.get(var)) or var in values.outputs

    def replace(trace: Trace, eqn: Equation, args: Args, env: object) -> Any:
        cell = _CELLS.get(eqn.op)
        if cell is None:
            return None
        course, residuals = eqn.attrs["course"], eqn.outs[1 + cell.state :]
        is_single = len(course.sizes) == 1 and 0 < course.batch <= MOST_ROWS
        if not is_single or any(map(is_used, residuals)):
            return None
        x, *state, w_ih, w_hh, b_ih, b_hh = [fresh(a, a.type) for a in args]
        found = by_steps(cell, course, linear(x, w_ih, b_ih), *state, w_hh, b_hh)
        values = [part._value for part in found]
        return [*values, *[values[0]] * len(residuals)]  # nothing reads these

    return rewrite(graph, replace)
