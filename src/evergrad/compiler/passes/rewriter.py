"""How a pass goes from graph to graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from evergrad.core.op import TABLE, Specialization
from evergrad.core.trace import Equation, Graph, Trace, Var
from evergrad.core.tracing import tracing

Environment = dict[Var, Any]
Replace = Callable[[Trace, Equation, tuple[Any, ...], Environment], Sequence[Any] | None]


def rule_of(name: str, *args: Any, **attrs: Any) -> Specialization:
    """How a row of the table answers to values and numbers, for an equation that a pass writes."""
    op = TABLE[name]
    types = tuple([a.type if isinstance(a, Var) else type(a) for a in args])
    key: Any = (types, tuple(attrs.items())) if attrs else types
    return op.specializations.get(key) or op.resolve(key, types, attrs)


def copied(graph: Graph, replace: Replace) -> Graph:
    """Copy a graph equation by equation into a new trace, which finds equal equations and keeps
    one; without dead code.

    ``replace(trace, equation, args, env)`` gives the values that stand for an equation's results,
    or ``None`` to have it copied. What it writes gets the equation's line.
    """
    env: Environment = {}
    with tracing() as tracer:
        trace = tracer.trace
        for var in graph.inputs:
            env[var] = trace.add_input(var.type)
            env[var]._layout = var._layout
        for eqn in graph.equations:
            args = tuple([env[a] if isinstance(a, Var) else a for a in eqn.args])
            first = len(trace.equations)
            outs = replace(trace, eqn, args, env)
            if outs is None:
                outs = trace.emit(eqn.specialization, args, eqn.location, _layout(eqn, args))
            for made in trace.equations[first:]:
                made.location = eqn.location
            env.update(zip(eqn.outs, outs, strict=True))
        outputs = [env[o] if isinstance(o, Var) else o for o in graph.outputs]
        return trace.finish(outputs).without_dead_code()


def _layout(eqn: Equation, args: tuple[Any, ...]) -> Any:
    """How a copied result lies, where it does not lie in order."""
    if eqn.op.alias:
        return eqn.op.eval(args[0].layout, **eqn.attrs)
    if eqn.op.name != "update" or eqn.outs[0].layout.flags.c_contiguous:
        return None  # a derivative's update lies in order, though its base may be turned
    return args[0].layout
