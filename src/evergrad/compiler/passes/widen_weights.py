"""Weights of 8 or 16 bits are widened in the registers of skinny products.

``linear(x, weight.float())`` would write the float32 weight to memory and read it again: for few
rows that is most of the time. A cast that other equations read, too, is left as it is.
"""

from __future__ import annotations

from math import prod

from evergrad.compiler.kernels.gemm.rows import NARROW, WIDENED_LINEAR
from evergrad.compiler.kernels.gemm.skinny import MOST_ROWS
from evergrad.compiler.native.jit import has_fma
from evergrad.compiler.passes.rewriter import specialize, with_equations
from evergrad.compiler.schedule.def_use import def_use_of
from evergrad.core import dtypes
from evergrad.core.trace import Equation, Graph, Var
from evergrad.ops.rows.elementwise.basic import CAST
from evergrad.ops.rows.matmul import LINEAR


def widen_weights(graph: Graph) -> Graph:
    """The graph with skinny products of a cast weight as products of the narrow one."""
    if not has_fma() or not any(eqn.op is CAST for eqn in graph.equations):
        return graph
    values = def_use_of(graph)
    kept_alive = values.outputs | {var for _, var in graph.writes}
    widened: dict[int, Equation] = {}
    removed: set[int] = set()
    for eqn in graph.equations:
        if not _is_widening(eqn) or eqn.outs[0] in kept_alive:
            continue
        users = values.uses.get(eqn.outs[0], [])
        if users and all(_takes(user, eqn.outs[0]) for user in users):
            removed.add(id(eqn))
            widened |= {id(user): _widened(user, eqn.args[0]) for user in users}
    if not removed:
        return graph
    kept = [eqn for eqn in graph.equations if id(eqn) not in removed]
    return with_equations(graph, [widened.get(id(eqn), eqn) for eqn in kept])


def _is_widening(eqn: Equation) -> bool:
    """Whether it casts a matrix with contiguous rows from a narrow type to float32."""
    if eqn.op is not CAST or eqn.outs[0].type.dtype is not dtypes.float32:
        return False
    source = eqn.args[0]
    if not isinstance(source, Var) or source.type.dtype not in NARROW or not source.type.numel:
        return False
    layout = source.layout
    return layout.ndim == 2 and layout.strides[1] == layout.itemsize and layout.strides[0] > 0


def _takes(eqn: Equation, weight: Var) -> bool:
    """Whether it is a skinny product of rows with this weight."""
    if eqn.op is not LINEAR or eqn.args[0] is weight or eqn.args[1] is not weight:
        return False
    x = eqn.args[0].layout
    return bool(x.flags.c_contiguous) and 0 < prod(x.shape[:-1]) <= MOST_ROWS


def _widened(eqn: Equation, weight: Var) -> Equation:
    args = (eqn.args[0], weight)
    specialization = specialize(WIDENED_LINEAR, *args)
    return Equation(specialization, args, eqn.outs, eqn.location, eqn.no_grad)
