"""Checks without their messages: kernels set the status word alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evergrad.compiler.passes.rewriter import rewrite, specialize
from evergrad.core.trace import Equation, Graph, Trace
from evergrad.ops.rows.check import CHECK

if TYPE_CHECKING:
    from evergrad.core.trace import Var


def strip_messages(graph: Graph) -> Graph:
    """The graph with checks that take their condition alone, so that what their messages show is
    not kept for them. The traced graph, which is interpreted after a failure, has the messages."""
    if not any(eqn.op is CHECK for eqn in graph.equations):
        return graph

    def replace(
        trace: Trace, eqn: Equation, args: tuple[object, ...], env: object
    ) -> tuple[Var, ...] | None:
        if eqn.op is not CHECK:
            return None
        condition = args[0]
        found = specialize(CHECK, condition, error=eqn.attrs["error"], message=())
        return trace.emit(found, (condition,), eqn.location)

    return rewrite(graph, replace)
