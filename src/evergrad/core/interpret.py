"""The interpreter of graphs: equations through ``bind``, then the writes to outside tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evergrad.core.bind import bind
from evergrad.core.inplace import assign, copy_saved_values
from evergrad.core.node import next_sequence
from evergrad.core.op import Op
from evergrad.core.state import without_autocast
from evergrad.core.tensor import Tensor
from evergrad.core.trace import Graph, Var

if TYPE_CHECKING:
    from evergrad.core.types import Args


@without_autocast
def interpret(graph: Graph, *args: object) -> Args:
    """The outputs of a graph, one equation after the other."""
    since = next_sequence()
    env: dict[Var, Any] = dict(zip(graph.inputs, args, strict=True))
    env.update(graph.captures)
    for eqn in graph.equations:
        given = [env[a] if a.__class__ is Var else a for a in eqn.args]
        if eqn.op.__class__ is Op and not eqn.no_grad:  # what apply() does, in one call
            out = bind(eqn.op, *given, **eqn.attrs)
        else:
            out = eqn.apply(*given)
        if eqn.op.outputs == 1:
            env[eqn.outs[0]] = out
        else:
            env.update(zip(eqn.outs, out, strict=True))
    for handle, var in graph.writes:
        write_back(handle, env[var], since)
    return tuple(env[o] if isinstance(o, Var) else o for o in graph.outputs)


def write_back(handle: Tensor, value: Tensor, since: int) -> None:
    """Write the final value of a graph to an outside tensor. Residuals of nodes newer than
    ``since`` that alias it are copied first."""
    if value._node is not None:
        copy_saved_values(value._node, handle._storage, since)
    assign(handle, value)
