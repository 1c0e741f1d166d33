"""Random masks in the cheapest form that gives the random numbers of eager evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from evergrad.compiler.kernels.random_rows import COUNTED_CHANCE, STREAM_POSITION, is_counted
from evergrad.compiler.passes.rewriter import rewrite, specialize
from evergrad.core import dtypes
from evergrad.core.op import Op
from evergrad.core.trace import Equation, Graph, Trace, Var
from evergrad.ops.rows.elementwise.basic import CAST
from evergrad.ops.rows.random.draws import CHANCE


def lower_random(graph: Graph) -> Graph:
    """The graph with masks stored as bytes or, from a counter-based generator, not at all but
    computed from a stream position at each use."""
    if not any(eqn.op is CHANCE for eqn in graph.equations):
        return graph
    return rewrite(graph, lambda trace, eqn, args, env: _lowered(trace, eqn))


def _lowered(trace: Trace, eqn: Equation) -> Sequence[Var] | None:
    if eqn.op is not CHANCE or not eqn.outs[0].type.numel:
        return None
    size, dtype, generator = (eqn.attrs[name] for name in ("size", "dtype", "generator"))
    (keep,) = eqn.args
    if is_counted(generator):
        start = _emit(trace, STREAM_POSITION, (), count=prod(size), generator=generator)
        return _emit(trace, COUNTED_CHANCE, start, keep=keep, size=size, dtype=dtype)
    if dtype is dtypes.bool_:
        return None
    mask = _emit(trace, CHANCE, (keep,), size=size, dtype=dtypes.bool_, generator=generator)
    return _emit(trace, CAST, mask, dtype=dtype)


def _emit(trace: Trace, op: Op, args: Sequence[object], **attrs: object) -> tuple[Var, ...]:
    return trace.emit(specialize(op, *args, **attrs), tuple(args), None)
