"""Concatenation in the layout of its use: ``clone(permute(cat(...)))`` as ``cat`` of permuted
parts.

The gradients of queries, keys and values that were sliced from one projection and transposed have
this form.
"""

from __future__ import annotations

from typing import Any

from evergrad.compiler.passes.rewriter import Environment, rewrite
from evergrad.core.tensor import fresh
from evergrad.core.trace import Equation, Graph, Trace, Var
from evergrad.ops.rows.elementwise.basic import CLONE
from evergrad.ops.rows.movement.joining import CAT, cat
from evergrad.ops.rows.movement.views import PERMUTE, permute


def cat_layout(graph: Graph) -> Graph:
    """The graph with each such concatenation computed contiguously, without the copy."""
    found = _found(graph)
    if not found:
        return graph

    def replace(trace: Trace, eqn: Equation, args: tuple[object, ...], env: Environment) -> Any:
        return (_joined(*found[id(eqn)], env),) if id(eqn) in found else None

    return rewrite(graph, replace)


def _found(graph: Graph) -> dict[int, tuple[Equation, tuple[int, ...]]]:
    """For each copy (by ``id``) of a permuted ``cat`` that nothing else reads: the ``cat``, and the
    order of dimensions."""
    maker = {out: eqn for eqn in graph.equations for out in eqn.outs}
    readers: dict[Var, int] = {}
    for value in [a for eqn in graph.equations for a in eqn.args] + list(graph.outputs):
        if isinstance(value, Var):
            readers[value] = readers.get(value, 0) + 1
    found = {}
    for eqn in graph.equations:
        permuted = maker.get(eqn.args[0]) if eqn.op is CLONE else None
        if permuted is None or permuted.op is not PERMUTE or readers[permuted.outs[0]] > 1:
            continue
        join = maker.get(permuted.args[0])
        if join is not None and join.op is CAT and readers[join.outs[0]] == 1:
            found[id(eqn)] = join, permuted.attrs["order"]
    return found


def _joined(join: Equation, order: tuple[int, ...], env: Environment) -> object:
    parts = [permute(fresh(env[part], part.type), order) for part in join.args]
    dim = join.attrs["dim"] % len(order)
    return cat(parts, order.index(dim))._value
