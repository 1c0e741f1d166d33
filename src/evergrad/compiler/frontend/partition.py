"""Gradients through a compiled function, asked for from outside.

The function and its derivative are traced together and cut in two: what the results need, and the
rest. The first program also gives the values that the second one reads. Where the gradient is to
be differentiated again, the whole of it is computed from the function's inputs instead (and from
what was drawn at random), by a compiled function that records its own derivative; gradients of any
order follow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from evergrad.autograd.function import Function
from evergrad.compiler.kernels.random_rows import MASK_OF_BITS
from evergrad.compiler.passes.pipeline import Target, optimize
from evergrad.core.interpret import interpret
from evergrad.core.state import STATE
from evergrad.core.tensor import Tensor
from evergrad.core.trace import Equation, Graph, Var
from evergrad.errors import SavedValueError
from evergrad.extension import ExtensionPoint
from evergrad.ops.rows.elementwise.basic import CAST

_compiled_function: ExtensionPoint[..., Callable[..., Any]] = ExtensionPoint("compiled_function")


class Derivative:
    """The second half of a traced function.

    ``places`` say what it reads: (``"input"``, number of an input of the function's graph) or
    (``"saved"``, number among the saved outputs). ``whole`` computes the gradients from the inputs
    numbered ``sources`` and what was drawn, at these ``draws`` among the places.
    """

    def __init__(
        self, graph: Graph, places: list[tuple[str, int]], whole: Graph, sources: list[int],
        draws: list[int], moving: list[int],
    ) -> None:  # fmt: skip
        self.graph = graph
        self.places = places
        self.whole = whole
        self.sources = sources
        self.draws = draws
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
    return _compiled_function(lambda *given: interpret(graph, *given))


def cut(
    graph: Graph, forward: int, cotangents: Sequence[Var], moving: list[int]
) -> tuple[Graph, Derivative]:
    """Cut a graph whose first ``forward`` outputs are the function's, and the others gradients.

    Gives the graph of the function, with the values that the derivative reads as further outputs,
    and the derivative. Attention is one equation before it is cut, and its weights are not saved.
    """
    plain = optimize(graph, Target.DIFFERENTIABLE)
    given = [plain.inputs[graph.inputs.index(var)] for var in cotangents]
    return _Cut(optimize(plain, Target.JOINT), plain, forward, given).halves(moving)


class _Cut:
    """A graph (and the ``plain`` one that it was made of) where its function ends."""

    def __init__(self, graph: Graph, plain: Graph, forward: int, cotangents: list[Var]) -> None:
        self.graph = graph
        self.plain = plain
        self.forward = forward
        self.cotangents = cotangents
        self.inputs = [var for var in graph.inputs if var not in set(cotangents)]

    def halves(self, moving: list[int]) -> tuple[Graph, Derivative]:
        graph, outputs = self.graph, self.graph.outputs
        first = _leading_to(outputs[: self.forward], graph.equations)
        first |= {id(e) for e in graph.equations if e.op.random}
        wanted = outputs[self.forward :]
        needed = _leading_to(wanted, graph.equations)
        second = [e for e in graph.equations if id(e) in needed and id(e) not in first]
        again, reads = _taken_again(_reads(second, wanted), graph)
        whole, sources, draws = self.whole()
        order = [var for var in dict.fromkeys([*reads, *draws]) if var not in self.cotangents]
        pulled = Graph([*order, *self.cotangents], (), [*again, *second], wanted)
        places, saved = self.places(order)
        kept = [e for e in graph.equations if id(e) in first]
        function = Graph(self.inputs, (), kept, [*outputs[: self.forward], *saved])
        drawn = [order.index(var) for var in draws]
        return function, Derivative(pulled, places, whole, sources, drawn, moving)

    def places(self, order: Sequence[Var]) -> tuple[list[tuple[str, int]], list[Var]]:
        """Where the derivative finds what it reads, and what has to be saved for it."""
        number = {var: i for i, var in enumerate(self.inputs)}
        places: list[tuple[str, int]] = []
        saved: list[Var] = []
        for var in order:
            if var in number:
                places.append(("input", number[var]))
            else:
                places.append(("saved", len(saved)))
                saved.append(var)
        return places, saved

    def whole(self) -> tuple[Graph, list[int], list[Var]]:
        """The gradients from the inputs alone; the numbers of these, and what was drawn."""
        plain = self.plain
        wanted = plain.outputs[self.forward :]
        needed = _leading_to(wanted, plain.equations)
        leading = [e for e in plain.equations if id(e) in needed and not e.op.random]
        used = set(_reads(leading, wanted))
        sources = [i for i, var in enumerate(self.inputs) if var in used]
        drawn = [out for e in plain.equations if e.op.random for out in e.outs if out in used]
        given = [*(self.inputs[i] for i in sources), *drawn, *self.cotangents]
        return Graph(given, (), leading, wanted), sources, drawn


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


def _taken_again(reads: Sequence[Var], graph: Graph) -> tuple[list[Equation], list[Var]]:
    """What is cheap is computed again rather than saved; gives the equations of it, and what they
    read."""
    needed = dict.fromkeys(reads)
    cheap = _cheap(graph)
    again: list[Equation] = []
    for eqn in reversed(graph.equations):
        if id(eqn) in cheap and eqn.outs[0] in needed:
            again.insert(0, eqn)
            del needed[eqn.outs[0]]
            needed.update((a, None) for a in eqn.args if isinstance(a, Var))
    return again, list(needed)


def _cheap(graph: Graph) -> set[int]:
    """Equations whose results are not worth saving: views, wider forms of numbers, what is made of
    draws element by element, constants, and masks that are made of inputs."""
    found: set[int] = set()
    drawn: set[Var] = set()
    fixed: set[Var] = set()
    given = set(graph.inputs)
    for eqn in graph.equations:
        sources = {a for a in eqn.args if isinstance(a, Var)}
        elementwise = eqn.op.is_pointwise or eqn.op is MASK_OF_BITS
        is_mask = eqn.op.alias or (elementwise and eqn.outs[0].type.dtype.itemsize == 1)
        if eqn.op.random:
            drawn.update(eqn.outs)
            continue
        for values, fits in ((fixed, True), (drawn, elementwise), (given, is_mask)):
            if fits and values >= sources:
                values.update(eqn.outs)
                found.add(id(eqn))
                break
        else:
            if eqn.op.alias or _widens(eqn):
                found.add(id(eqn))
    return found


def _widens(eqn: Equation) -> bool:
    """Whether an equation gives the numbers that it takes, in more bytes."""
    if eqn.op is not CAST:
        return False
    source, target = eqn.args[0].type.dtype, eqn.outs[0].type.dtype
    both_float = source.is_floating_point and target.is_floating_point
    return bool(both_float and source.itemsize < target.itemsize)


class CompiledCall(Function):
    """One call of a compiled function, as a node of the graph around it."""

    @staticmethod
    def forward(ctx: Any, call: Any, *targets: Tensor) -> Any:
        inputs = call.inputs()
        ctx.inputs = [inputs[i] for i in call.derivative.sources]
        ctx.versions = [t._version for t in ctx.inputs]  # also of those that the call overwrites
        results, saved = call.results()
        ctx.derivative = call.derivative
        ctx.save_for_backward(*saved)
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
        drawn = [ctx.saved_tensors[i] for i in derivative.draws]
        return None, *derivative.pull_again(*ctx.inputs, *drawn, *moving)
