"""Simplification: one sweep of algebraic identities and decompositions, with CSE and DCE."""

from __future__ import annotations

from typing import Any

from evergrad.compiler.passes.algebra import IDENTITIES, SumOfSlices, ones_of
from evergrad.compiler.passes.decompose import DECOMPOSITIONS
from evergrad.compiler.passes.decompose_depth import RULES as DEPTH
from evergrad.compiler.passes.rewriter import rewrite
from evergrad.core.tensor import fresh
from evergrad.core.trace import Equation, Graph, Trace, Var
from evergrad.core.types import Args
from evergrad.ops.rows.elementwise.basic import MUL

RULES = {**IDENTITIES, **DECOMPOSITIONS}


def simplify(graph: Graph) -> Graph:
    """The graph in the ops that later passes and kernels cover, without dead code."""
    slices, ones = SumOfSlices(), ones_of(graph)

    def replace(trace: Trace, eqn: Equation, args: Args, env: dict[Var, Var]) -> Any:
        if eqn.op is MUL and not ones.isdisjoint(eqn.args):
            factor = args[eqn.args[0] in ones]
            same = isinstance(factor, Var) and factor.type.same(eqn.outs[0].type)
            if same and factor.layout.flags.c_contiguous:
                return (factor,)
        return _replaced(eqn, args) or slices.replace(trace, eqn, args)

    return rewrite(graph, replace)


def _replaced(eqn: Equation, args: tuple[Var | float, ...]) -> tuple[Var] | None:
    if eqn.op not in RULES and eqn.op not in DEPTH:
        return None
    operands = [fresh(a, a.type) if isinstance(a, Var) else a for a in args]
    for rules in (RULES, DEPTH):
        found = rules[eqn.op](*operands, **eqn.attrs) if eqn.op in rules else None
        if found is not None:
            value = found._value
            return (
                (value,) if isinstance(value, Var) and value.type.same(eqn.outs[0].type) else None
            )
    return None
