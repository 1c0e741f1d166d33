"""Partitions the joint graph of a compiled function into forward and backward graphs.

The function and its gradients are traced together and partitioned: the forward graph computes the
results and the residuals that the backward graph reads. Where a gradient is itself differentiated,
it is computed from the function's inputs instead (and the random numbers of the forward pass), by a
compiled function with a derivative of its own; so gradients of any order work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from evergrad.autograd.function import Function
from evergrad.compiler.kernels.random_rows import MASK_OF_BITS
from evergrad.compiler.passes.pipeline import Target, optimize
from evergrad.compiler.runtime.arena import SharedArena
from evergrad.core.interpret import interpret
from evergrad.core.state import STATE
from evergrad.core.tensor import Tensor
from evergrad.core.trace import Equation, Graph, Var
from evergrad.errors import SavedValueError
from evergrad.extension import ExtensionPoint
from evergrad.ops.rows.elementwise.basic import CAST

_compiled_function: ExtensionPoint[..., Callable[..., object]] = ExtensionPoint("compiled_function")


class Derivative:
    """The backward half of a partitioned joint graph.

    ``residuals`` are its operands: (``"input"``, index of an input of the forward graph) or
    (``"saved"``, index among the saved outputs). ``from_inputs`` computes the gradients from the
    inputs numbered ``sources`` and the random numbers, at ``random_residuals`` among the residuals.
    """

    def __init__(
        self, graph: Graph, residuals: list[tuple[str, int]], from_inputs: Graph,
        sources: list[int], random_residuals: list[int], differentiable: list[int],
    ) -> None:  # fmt: skip
        self.graph = graph
        self.residuals = residuals
        self.from_inputs = from_inputs
        self.sources = sources
        self.random_residuals = random_residuals
        self.differentiable = differentiable  # indices of the results that have a gradient
        self.arena: SharedArena | None = None  # of the derivatives of a function's programs

    @cached_property
    def vjp(self) -> Callable[..., Any]:
        """From residuals and cotangents to gradients."""
        made: Any = _compiled(self.graph)
        if self.arena is not None:
            made.arena, made.step_lock = self.arena, self.arena.lock
        return made  # type: ignore[no-any-return]

    @cached_property
    def differentiable_vjp(self) -> Callable[..., Any]:
        """From inputs, random numbers and cotangents to gradients that can be differentiated."""
        return _compiled(self.from_inputs)


def _compiled(graph: Graph) -> Callable[..., object]:
    return _compiled_function(lambda *given: interpret(graph, *given))


def partition(
    graph: Graph, forward: int, cotangents: Sequence[Var], differentiable: list[int]
) -> tuple[Graph, Derivative]:
    """Partition a joint graph whose first ``forward`` outputs are the function's, and the others
    gradients.

    Returns the forward graph, with the saved residuals as further outputs, and the derivative.
    Attention is fused into one equation first, so that its weights are not saved.
    """
    plain = optimize(graph, Target.DIFFERENTIABLE)
    given = [plain.inputs[graph.inputs.index(var)] for var in cotangents]
    return _Partitioner(optimize(plain, Target.JOINT), plain, forward, given).split(differentiable)


class _Partitioner:
    """A joint graph and the ``plain`` (differentiable) one it was optimized from, to be split."""

    def __init__(self, graph: Graph, plain: Graph, forward: int, cotangents: list[Var]) -> None:
        self.graph = graph
        self.plain = plain
        self.forward = forward
        self.cotangents = cotangents
        self.inputs = [var for var in graph.inputs if var not in set(cotangents)]

    def split(self, differentiable: list[int]) -> tuple[Graph, Derivative]:
        graph, outputs = self.graph, self.graph.outputs
        checked = [out for e in graph.equations if e.op.checks for out in e.outs]
        first = leading_to([*outputs[: self.forward], *checked], graph.equations)
        first |= {id(e) for e in graph.equations if e.op.random}
        wanted = outputs[self.forward :]
        needed = leading_to(wanted, graph.equations)
        second = [e for e in graph.equations if id(e) in needed and id(e) not in first]
        recomputed, reads = with_recomputed(reads_of(second, wanted), graph)
        from_inputs, sources, random_residuals = self.from_inputs()
        order = [
            var for var in dict.fromkeys([*reads, *random_residuals]) if var not in self.cotangents
        ]
        backward = Graph([*order, *self.cotangents], (), [*recomputed, *second], wanted)
        residuals, saved = self.residuals(order)
        kept = [e for e in graph.equations if id(e) in first]
        function = Graph(self.inputs, (), kept, [*outputs[: self.forward], *saved])
        drawn = [order.index(var) for var in random_residuals]
        return function, Derivative(
            backward, residuals, from_inputs, sources, drawn, differentiable
        )

    def residuals(self, order: Sequence[Var]) -> tuple[list[tuple[str, int]], list[Var]]:
        """The residuals as operands of the backward graph, and those that have to be saved."""
        number = {var: i for i, var in enumerate(self.inputs)}
        residuals: list[tuple[str, int]] = []
        saved: list[Var] = []
        for var in order:
            if var in number:
                residuals.append(("input", number[var]))
            else:
                residuals.append(("saved", len(saved)))
                saved.append(var)
        return residuals, saved

    def from_inputs(self) -> tuple[Graph, list[int], list[Var]]:
        """The gradients as a graph from the inputs; the indices of these, and the random
        numbers."""
        plain = self.plain
        wanted = plain.outputs[self.forward :]
        needed = leading_to(wanted, plain.equations)
        leading = [e for e in plain.equations if id(e) in needed and not e.op.random]
        used = set(reads_of(leading, wanted))
        sources = [i for i, var in enumerate(self.inputs) if var in used]
        drawn = [out for e in plain.equations if e.op.random for out in e.outs if out in used]
        given = [*(self.inputs[i] for i in sources), *drawn, *self.cotangents]
        return Graph(given, (), leading, wanted), sources, drawn


def leading_to(outputs: Sequence[object], equations: Sequence[Equation]) -> set[int]:
    needed = {o for o in outputs if isinstance(o, Var)}
    found: set[int] = set()
    for eqn in reversed(equations):
        if any(out in needed for out in eqn.outs):
            found.add(id(eqn))
            needed.update(a for a in eqn.args if isinstance(a, Var))
    return found


def reads_of(equations: Sequence[Equation], outputs: Sequence[object]) -> list[Var]:
    """Free variables of equations and outputs, in order."""
    made = {out for eqn in equations for out in eqn.outs}
    reads: dict[Var, None] = {}
    for eqn in equations:
        reads.update((a, None) for a in eqn.args if isinstance(a, Var) and a not in made)
    reads.update((o, None) for o in outputs if isinstance(o, Var) and o not in made)
    return list(reads)


def with_recomputed(reads: Sequence[Var], graph: Graph) -> tuple[list[Equation], list[Var]]:
    """Cheap values are recomputed rather than saved; returns their equations, and what these
    read."""
    needed = dict.fromkeys(reads)
    cheap = _cheap(graph)
    recomputed: list[Equation] = []
    for eqn in reversed(graph.equations):
        if id(eqn) in cheap and eqn.outs[0] in needed:
            recomputed.insert(0, eqn)
            del needed[eqn.outs[0]]
            needed.update((a, None) for a in eqn.args if isinstance(a, Var))
    return recomputed, list(needed)


def _cheap(graph: Graph) -> set[int]:
    """Equations whose results are not worth saving: views, widening casts, elementwise functions of
    random numbers, constants, and masks computed from inputs."""
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
        if eqn.op.communicates:
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
    """Whether an equation is a lossless cast to a wider floating dtype."""
    if eqn.op is not CAST:
        return False
    source, target = eqn.args[0].type.dtype, eqn.outs[0].type.dtype
    both_float = source.is_floating_point and target.is_floating_point
    return bool(both_float and source.itemsize < target.itemsize)


class CompiledCall(Function):
    """One call of a compiled function, as a node of the autograd graph around it."""

    @staticmethod
    def forward(ctx: Any, call: Any, *targets: Tensor) -> Any:
        inputs = call.inputs()
        ctx.inputs = [inputs[i] for i in call.derivative.sources]
        ctx.versions = [t._version for t in ctx.inputs]  # before the call overwrites any of them
        results, saved = call.results()
        ctx.derivative = call.derivative
        ctx.save_for_backward(*saved)
        fixed = [r for i, r in enumerate(results) if i not in call.derivative.differentiable]
        ctx.mark_non_differentiable(*fixed)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *cotangents: object) -> Any:
        derivative: Derivative = ctx.derivative
        differentiable = [cotangents[i] for i in derivative.differentiable]
        if not STATE.get().grad:
            return None, *derivative.vjp(*ctx.saved_tensors, *differentiable)
        if [t._version for t in ctx.inputs] != ctx.versions:
            raise SavedValueError(
                "an input of a compiled function was overwritten before its gradient was "
                "differentiated.\n  fix: write to a clone() of it."
            )
        drawn = [ctx.saved_tensors[i] for i in derivative.random_residuals]
        return None, *derivative.differentiable_vjp(*ctx.inputs, *drawn, *differentiable)
