"""Gradients through a compiled function, asked for from outside.

The function and its derivative are traced together and cut in two: what the results need, and the
rest. The first program also gives the values that the second one reads. Where the gradient is to
be differentiated again, the whole of it is computed from the function's inputs instead, by a
compiled function that records its own derivative; gradients of any order follow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from evergrad.autograd.function import Function
from evergrad.core.interpret import interpret
from evergrad.core.state import STATE
from evergrad.core.tensor import Tensor
from evergrad.core.trace import Equation, Graph, Var
from evergrad.errors import SavedValueError


class Derivative:
    """The second half of a traced function.

    ``places`` say what it reads: (``"input"``, number of an input of the function's graph) or
    (``"saved"``, number among the saved outputs). ``whole`` computes the gradients from the inputs
    numbered ``sources``.
    """

    def __init__(
        self, graph: Graph, places: list[tuple[str, int]], whole: Graph, sources: list[int],
        moving: list[int],
    ) -> None:  # fmt: skip
        self.graph = graph
        self.places = places
        self.whole = whole
        self.sources = sources
        self.moving = moving  # which results have a gradient

    @cached_property
    def pull(self) -> Callable[..., Any]:
        """From what was saved, and cotangents, to gradients."""
        return _compiled(self.graph)

    @cached_property
    def pull_again(self) -> Callable[..., Any]:
        """From inputs and cotangents to gradients that can be differentiated."""
        return _compiled(self.whole)


def _compiled(graph: Graph) -> Callable[..., Any]:
    from evergrad.compiler.entry import Compiled

    return Compiled(lambda *given: interpret(graph, *given))


def cut(
    graph: Graph, forward: int, cotangents: Sequence[Var], moving: list[int]
) -> tuple[Graph, Derivative]:
    """Cut a graph whose first ``forward`` outputs are the function's, and the others gradients.

    Gives the graph of the function, with the values that the derivative reads as further outputs,
    and the derivative.
    """
    maker = {out: eqn for eqn in graph.equations for out in eqn.outs}
    first = _leading_to(graph.outputs[:forward], graph.equations)
    first |= {id(e) for e in graph.equations if e.op.random}
    wanted = graph.outputs[forward:]
    needed = _leading_to(wanted, graph.equations)
    second = [e for e in graph.equations if id(e) in needed and id(e) not in first]
    reads = _reads(second, wanted)
    views, reads = _views_inside(reads, maker, {id(e) for e in second})
    given = set(cotangents)
    inputs = [v for v in graph.inputs if v not in given]
    number = {var: i for i, var in enumerate(inputs)}
    places: list[tuple[str, int]] = []
    saved: list[Var] = []
    order = [v for v in reads if v not in given]
    for var in order:
        if var in number:
            places.append(("input", number[var]))
        else:
            places.append(("saved", len(saved)))
            saved.append(var)
    pulled = Graph([*order, *cotangents], (), [*views, *second], wanted)
    kept = [e for e in graph.equations if id(e) in first]
    function = Graph(inputs, (), kept, [*graph.outputs[:forward], *saved])
    leading = [e for e in graph.equations if id(e) in needed]
    used = set(_reads(leading, wanted))
    sources = [i for i, var in enumerate(inputs) if var in used]
    whole = Graph([*(inputs[i] for i in sources), *cotangents], (), leading, wanted)
    return function, Derivative(pulled, places, whole, sources, moving)


def _leading_to(outputs: Sequence[Any], equations: Sequence[Equation]) -> set[int]:
    needed = {o for o in outputs if isinstance(o, Var)}
    found: set[int] = set()
    for eqn in reversed(equations):
        if any(out in needed for out in eqn.outs):
            found.add(id(eqn))
            needed.update(a for a in eqn.args if isinstance(a, Var))
    return found


def _reads(equations: Sequence[Equation], outputs: Sequence[Any]) -> list[Var]:
    """Values that equations use but do not make, in order."""
    made = {out for eqn in equations for out in eqn.outs}
    reads: dict[Var, None] = {}
    for eqn in equations:
        reads.update((a, None) for a in eqn.args if isinstance(a, Var) and a not in made)
    reads.update((o, None) for o in outputs if isinstance(o, Var) and o not in made)
    return list(reads)


def _views_inside(
    reads: Sequence[Var], maker: dict[Var, Equation], second: set[int]
) -> tuple[list[Equation], list[Var]]:
    """Views are taken again rather than saved; gives their equations and what these read."""
    views: dict[int, Equation] = {}
    roots: dict[Var, None] = {}

    for var in reads:
        chain: list[Equation] = []
        eqn = maker.get(var)
        while eqn is not None and eqn.op.alias and id(eqn) not in views and id(eqn) not in second:
            chain.append(eqn)
            var = eqn.args[0]
            eqn = maker.get(var)
        if eqn is None or not eqn.op.alias:
            roots[var] = None
        views.update((id(eqn), eqn) for eqn in reversed(chain))
    return list(views.values()), list(roots)


class CompiledCall(Function):
    """One call of a compiled function, as a node of the graph around it."""

    @staticmethod
    def forward(ctx: Any, call: Any, *targets: Tensor) -> Any:
        results, saved = call.results()
        ctx.derivative = call.derivative
        ctx.save_for_backward(*saved)
        ctx.inputs = [call.inputs()[i] for i in call.derivative.sources]
        ctx.versions = [t._version for t in ctx.inputs]
        fixed = [r for i, r in enumerate(results) if i not in call.derivative.moving]
        ctx.mark_non_differentiable(*fixed)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        derivative: Derivative = ctx.derivative
        moving = [cotangents[i] for i in derivative.moving]
        if not STATE.get().grad:
            return None, *derivative.pull(*ctx.saved_tensors, *moving)
        if [t._version for t in ctx.inputs] != ctx.versions:
            raise SavedValueError(
                "an input of a compiled function was overwritten before its gradient was "
                "differentiated.\n  fix: write to a clone() of it."
            )
        return None, *derivative.pull_again(*ctx.inputs, *moving)
