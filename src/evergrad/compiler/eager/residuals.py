"""Partitions a composite and its derivative into two programs, the first of which saves residuals.

Function and derivative are traced into a joint graph, optimized together (what passes match depends
on both), and partitioned. Residuals of the second graph become results of the first.
"""

from __future__ import annotations

from typing import NamedTuple

from evergrad.compiler.frontend.partition import partition
from evergrad.compiler.passes.pipeline import Target, optimize
from evergrad.core.composite import Structure
from evergrad.core.trace import Graph, Var
from evergrad.ops.composite.attention import FEW_QUERIES


class Partition(NamedTuple):
    """``backward`` takes the arguments and results of ``forward`` whose indices (arguments first)
    are ``reads``, then a cotangent for each result; it returns the gradients by the arguments in
    the bit set ``needs``."""

    needs: int
    forward: Graph
    backward: Graph
    reads: tuple[int, ...]


def partition_composite(structure: Structure, differentiable: int) -> Partition | None:
    """Partition a function and its derivative by its first ``differentiable`` arguments; ``None``
    if the residuals would take more bytes than the arguments, and for attention of few queries:
    computed as products, it would have every intermediate value as a residual."""
    if structure.types[0].shape[-2] <= FEW_QUERIES:
        return None
    needs = (1 << differentiable) - 1
    arguments, _, traced = structure.derivative(needs, with_results=True)
    whole = optimize(traced, Target.DIFFERENTIABLE | Target.JOINT)
    results = len(whole.outputs) - len(arguments)
    outputs = [out for out in whole.outputs if out is not None]
    cotangents = whole.inputs[len(arguments) :]
    pure = Graph(whole.inputs, (), whole.equations, outputs)
    forward, derivative = partition(pure, results, cotangents, list(range(results)))
    own, saved = forward.outputs[:results], forward.outputs[results:]
    kept = [var for var in saved if var not in own]
    if sum(v.type.nbytes for v in kept) > sum(t.nbytes for t in structure.types):
        return None
    forward = Graph(forward.inputs, (), forward.equations, [*own, *kept])
    index = {var: len(arguments) + n for n, var in enumerate(forward.outputs)}
    reads = [n if kind == "input" else index[saved[n]] for kind, n in derivative.residuals]
    # The op-by-op derivative reads arguments only: all of them are saved.
    others = [n for n in range(len(arguments)) if n not in reads]
    given = derivative.graph.inputs
    inputs = [
        *given[: len(reads)],
        *(_unread(arguments[n]) for n in others),
        *given[len(reads) :],
        *map(_unread, kept),
    ]
    backward = Graph(inputs, (), derivative.graph.equations, derivative.graph.outputs)
    return Partition(needs, forward, backward, (*reads, *others))


def _unread(var: Var) -> Var:
    """A placeholder for an operand that is passed but not read."""
    return Var(var.type, var.trace)
