"""The rewriter: copies a graph equation by equation into a new trace, with replacements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from evergrad.compiler.schedule.buffers import address_of
from evergrad.core.op import Op, Specialization
from evergrad.core.trace import Equation, Graph, Trace, Var
from evergrad.core.tracing import tracing
from evergrad.core.types import Args
from evergrad.ops.surface.view_forms import UPDATE

if TYPE_CHECKING:
    from evergrad.core.types import Array

Environment = dict[Var, Any]
Replace = Callable[[Trace, Equation, tuple[Any, ...], Environment], Sequence[Any] | None]


def specialize(op: Op, *args: object, **attrs: object) -> Specialization:
    """A row of the op table specialized for values and numbers: for an equation a pass emits."""
    types = tuple([a.type if isinstance(a, Var) else type(a) for a in args])
    key: Any = (types, tuple(attrs.items())) if attrs else types
    return op.specializations.get(key) or op.resolve(key, types, attrs)


def with_equations(graph: Graph, equations: Iterable[Equation]) -> Graph:
    """The graph with other equations between the same inputs and outputs."""
    return Graph(graph.inputs, graph.captures, equations, graph.outputs, graph.writes)


def eliminate_dead_code(graph: Graph) -> Graph:
    """The graph without equations that no result depends on; random numbers are still drawn."""
    live = graph.without_dead_code()
    return graph if len(live.equations) == len(graph.equations) else live


def rewrite(graph: Graph, replace: Replace) -> Graph:
    """Copy a graph into a new trace, with common subexpression and dead code elimination.

    ``replace(trace, equation, args, env)`` returns the values that replace an equation's outputs,
    or ``None`` to copy it. Equations it emits get the replaced equation's source location.
    """
    env: Environment = {}
    with tracing() as tracer:
        trace = tracer.trace
        for var in graph.inputs:
            env[var] = trace.add_input(var.type)
            env[var]._layout = var._layout
        for var, tensor in graph.captures:
            env[var] = Var(var.type, trace, var._layout)
            trace.captures.append((env[var], tensor))
        for eqn in graph.equations:
            args = tuple([env[a] if isinstance(a, Var) else a for a in eqn.args])
            first = len(trace.equations)
            outs = replace(trace, eqn, args, env)
            if outs is None:
                outs = trace.emit(eqn.specialization, args, eqn.location, layout_of(eqn, args))
            for made in trace.equations[first:]:
                made.location = eqn.location
            env.update(zip(eqn.outs, outs, strict=True))
        outputs = [env[o] if isinstance(o, Var) else o for o in graph.outputs]
        copy = trace.finish(outputs)
    writes = [(tensor, env[var]) for tensor, var in graph.writes]
    whole = Graph(copy.inputs, copy.captures, copy.equations, copy.outputs, writes)
    return whole.without_dead_code()


def with_layouts(graph: Graph) -> Graph:
    """The graph with the layouts of views recomputed. Values whose layout changes are replaced by
    new ones; all others stay."""
    env: Environment = {}
    equations = []
    for eqn in graph.equations:
        args = tuple([env.get(a, a) if isinstance(a, Var) else a for a in eqn.args])
        outs, layout = eqn.outs, layout_of(eqn, args)
        if layout is not None and not same_layout(layout, outs[0].layout):
            outs = (Var(outs[0].type, outs[0].trace, layout),)
            env[eqn.outs[0]] = outs[0]
        is_same = outs is eqn.outs and all(a is b for a, b in zip(args, eqn.args, strict=True))
        if not is_same:
            eqn = Equation(eqn.specialization, args, outs, eqn.location, eqn.no_grad)
        equations.append(eqn)
    if not env:
        return graph
    outputs = [env.get(o, o) if isinstance(o, Var) else o for o in graph.outputs]
    writes = [(tensor, env.get(var, var)) for tensor, var in graph.writes]
    return Graph(graph.inputs, graph.captures, equations, outputs, writes)


def same_layout(one: Array, other: Array) -> bool:
    """Whether two layouts address the same elements."""
    if not one.size:
        return bool(one.shape == other.shape)
    extents = zip(one.shape, one.strides, other.strides, strict=True)
    return all(n == 1 or a == b for n, a, b in extents) and address_of(one) == address_of(other)


def layout_of(eqn: Equation, args: Args) -> Any:
    """The layout of the result of a view or an update; ``None`` if contiguous."""
    if eqn.op.alias:
        return eqn.op.eval(args[0].layout, **eqn.attrs)
    if eqn.op is not UPDATE or eqn.outs[0].layout.flags.c_contiguous:
        return None  # a derivative's update is contiguous, even if its base is transposed
    return args[0].layout
