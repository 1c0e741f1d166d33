"""Parts that are joined, turned and then laid out in order: joined in that order at once.

Queries, keys and values that were cut out of one projection and turned leave their gradients so.
"""

from __future__ import annotations

from typing import Any

from evergrad.compiler.passes.rewriter import Environment, copied
from evergrad.core.tensor import fresh
from evergrad.core.trace import Equation, Graph, Trace, Var


def join_in_order(graph: Graph) -> Graph:
    """The graph in which each join gives what is wanted of it in the order of memory."""
    found = _found(graph)
    if not found:
        return graph

    def replace(trace: Trace, eqn: Equation, args: tuple[Any, ...], env: Environment) -> Any:
        return (_joined(*found[id(eqn)], env),) if id(eqn) in found else None

    return copied(graph, replace)


def _found(graph: Graph) -> dict[int, tuple[Equation, tuple[int, ...]]]:
    """For each copy (by ``id``) of a turned join that nothing else reads: the join, and how its
    dimensions are turned."""
    maker = {out: eqn for eqn in graph.equations for out in eqn.outs}
    readers: dict[Any, int] = {}
    for value in [a for eqn in graph.equations for a in eqn.args] + list(graph.outputs):
        if isinstance(value, Var):
            readers[value] = readers.get(value, 0) + 1
    found = {}
    for eqn in graph.equations:
        turn = maker.get(eqn.args[0]) if eqn.op.name == "clone" else None
        if turn is None or turn.op.name != "permute" or readers[turn.outs[0]] > 1:
            continue
        join = maker.get(turn.args[0])
        if join is not None and join.op.name == "cat" and readers[join.outs[0]] == 1:
            found[id(eqn)] = join, turn.attrs["order"]
    return found


def _joined(join: Equation, order: tuple[int, ...], env: Environment) -> Any:
    from evergrad.ops.rows.movement.joining import cat
    from evergrad.ops.rows.movement.views import permute

    parts = [permute(fresh(env[part], part.type), order) for part in join.args]
    dim = join.attrs["dim"] % len(order)
    return cat(parts, order.index(dim))._value
