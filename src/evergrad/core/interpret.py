"""Running a graph row by row, with the writes it makes to tensors of the outside."""

from __future__ import annotations

from typing import Any

from evergrad.core.inplace import assign, copy_saved_values
from evergrad.core.node import next_sequence
from evergrad.core.state import without_autocast
from evergrad.core.tensor import Tensor
from evergrad.core.trace import Graph, Var


@without_autocast
def interpret(graph: Graph, *args: Any) -> tuple[Any, ...]:
    """Run a graph row by row through :func:`bind`."""
    since = next_sequence()
    env: dict[Var, Any] = dict(zip(graph.inputs, args, strict=True))
    env.update(graph.captures)
    for eqn in graph.equations:
        out = eqn.apply(*[env[a] if isinstance(a, Var) else a for a in eqn.args])
        if eqn.op.outputs == 1:
            env[eqn.outs[0]] = out
        else:
            env.update(zip(eqn.outs, out, strict=True))
    for handle, var in graph.writes:
        write_back(handle, env[var], since)
    return tuple(env[o] if isinstance(o, Var) else o for o in graph.outputs)


def write_back(handle: Tensor, value: Tensor, since: int) -> None:
    """Give a tensor of the outside the value it has at the end of a graph. What the graph's nodes
    saved of its memory, they keep as copies."""
    if value._node is not None:
        copy_saved_values(value._node, handle._storage, since)
    assign(handle, value)
