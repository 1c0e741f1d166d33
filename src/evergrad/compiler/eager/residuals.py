"""A composite and its derivative as two programs, the first of which keeps values.

Function and derivative are traced together, simplified (what is recognised in them depends on
both), and cut in two. What the second half reads of the first becomes a result of the first.
"""

from __future__ import annotations

from typing import NamedTuple

from evergrad.compiler.eager.trace import Structure
from evergrad.compiler.frontend.partition import cut
from evergrad.compiler.passes.pipeline import Target, optimize
from evergrad.core.trace import Graph, Var


class Halves(NamedTuple):
    """``backward`` takes the arguments and results of ``forward`` whose numbers (arguments first)
    are ``reads``, then a cotangent for each result; it gives the gradients by the arguments in the
    bit set ``needs``."""

    needs: int
    forward: Graph
    backward: Graph
    reads: tuple[int, ...]


def halves(structure: Structure, moving: int) -> Halves | None:
    """Cut a function from its derivative by its first arguments, ``moving`` many; ``None`` if more
    would have to be kept than the arguments take."""
    needs = (1 << moving) - 1
    arguments, _, traced = structure.derivative(needs, with_results=True)
    whole = optimize(traced, Target.DIFFERENTIABLE | Target.JOINT)
    results = len(whole.outputs) - len(arguments)
    outputs = [out for out in whole.outputs if out is not None]
    cotangents = whole.inputs[len(arguments) :]
    pure = Graph(whole.inputs, (), whole.equations, outputs)
    forward, derivative = cut(pure, results, cotangents, list(range(results)))
    own, saved = forward.outputs[:results], forward.outputs[results:]
    kept = [var for var in saved if var not in own]
    if sum(v.type.nbytes for v in kept) > sum(t.nbytes for t in structure.types):
        return None
    forward = Graph(forward.inputs, (), forward.equations, [*own, *kept])
    place = {var: len(arguments) + n for n, var in enumerate(forward.outputs)}
    reads = [n if kind == "input" else place[saved[n]] for kind, n in derivative.places]
    # The derivative op by op reads arguments only: all of them are kept.
    others = [n for n in range(len(arguments)) if n not in reads]
    given = derivative.graph.inputs
    inputs = [
        *given[: len(reads)],
        *(_unread(arguments[n]) for n in others),
        *given[len(reads) :],
        *map(_unread, kept),
    ]
    backward = Graph(inputs, (), derivative.graph.equations, derivative.graph.outputs)
    return Halves(needs, forward, backward, (*reads, *others))


def _unread(var: Var) -> Var:
    """Stands for a value that is given but not read."""
    return Var(var.type, var.trace)
