"""Capture: traces one call of a Python function into a pure graph that can run again.

:func:`capture` runs the function once on symbolic values and returns a :class:`Captured`: a
functionalized graph (arguments, runtime numbers and captured tensors in; results, writes and
gradients out) and its guards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from evergrad import autograd
from evergrad.compiler.frontend.guards import Guards
from evergrad.compiler.frontend.outputs import Output, Results
from evergrad.compiler.frontend.partition import Derivative, partition
from evergrad.compiler.frontend.python_guards import PythonGuards
from evergrad.core.functionalize import FunctionalizingTrace
from evergrad.core.node import Leaf
from evergrad.core.state import STATE, using
from evergrad.core.storage import Storage
from evergrad.core.symbolic_numbers import number_at
from evergrad.core.tensor import Tensor
from evergrad.core.trace import Graph, Var
from evergrad.core.tracing import Tracer, trace_value
from evergrad.errors import GradientError, TraceError


class InsideGraphError(Exception):
    """The function captures tensors that have a history, as ``functional_call`` with computed
    parameters does: it runs eagerly, so that its own history is recorded with theirs."""


class Captured:
    """One traced call.

    ``inputs`` of the graph are the tensor arguments and the current gradients of ``grad_inputs``
    tensors, then ``numbers`` (container, key, part), then ``outside`` (captured) tensors. Its
    outputs are the results, then the final value of each of the ``written`` storages, then
    overwritten arguments, then new gradients, then the residuals.
    """

    def __init__(self) -> None:
        self.graph: Graph
        self.arguments = 0
        self.grad_inputs: list[Tensor] = []
        self.numbers: list[tuple[Any, Any, int | None]] = []
        self.outside: list[Tensor] = []
        self.written: list[Storage] = []
        self.overwritten: list[int] = []
        self.results: Results
        self.result_count = 0
        # Final gradients: (tensor, an Output, another tensor, or None).
        self.grads: list[tuple[Tensor, Any]] = []
        # The backward graph, the indices of differentiable results, and the arguments (by index)
        # and captured leaves they are differentiated by.
        self.derivative: Derivative | None = None
        self.differentiable: list[int] = []
        self.targets: tuple[list[int], list[Tensor]] = ([], [])
        self.guards: Guards
        self.once: str | None = None

    @property
    def output_count(self) -> int:
        """The number of outputs without the residuals."""
        new_grads = sum(isinstance(grad, Output) for _, grad in self.grads)
        return self.result_count + len(self.written) + len(self.overwritten) + new_grads


def capture(
    function: Callable[[Sequence[Any], Sequence[Any]], Any],
    arguments: Sequence[Tensor],
    numbers: list[float],
    python_guards: PythonGuards,
) -> Captured:
    """Trace ``function(tensors, numbers)``; the numbers are Python floats, read at run time."""
    found = Captured()
    trace = FunctionalizingTrace(STATE.get().trace)
    with using(trace=trace, grad=STATE.get().grad, no_grad=False, saved_hooks=None):
        try:
            _trace_into(found, trace, function, arguments, numbers, python_guards)
        except BaseException:
            trace.restore_states()
            raise
        finally:
            trace.abandon()
    found.guards.guard_memory(found.outside)
    return found


def _trace_into(
    found: Captured, trace: FunctionalizingTrace, function: Any, arguments: Sequence[Tensor],
    numbers: Any, python_guards: PythonGuards,
) -> None:  # fmt: skip
    tracer = Tracer(trace)
    inputs = [tracer.input(a._type) for a in arguments]
    argument_vars = list(trace.inputs)
    for argument, symbolic in zip(arguments, inputs, strict=True):
        if argument.requires_grad:
            symbolic.requires_grad_()
    runtime = [number_at(trace, numbers, i) for i in range(len(numbers))]
    values_before = [t._storage.value for t in inputs]
    result = function(inputs, runtime)
    _refuse_python_effects(trace)
    python_guards.refuse_mutations()
    python_guards.visit_modules(trace.modules.values())
    found.results = Results(trace, inputs, result)
    tensors = found.results.release_tensors()
    found.result_count = len(tensors)
    grad_inputs = _grad_inputs(found, trace)
    found.arguments = len(arguments) + len(grad_inputs)
    outputs: list[Any] = [trace_value(trace, t) for t in tensors]
    changed = [t._storage.value is not v for t, v in zip(inputs, values_before, strict=True)]
    given = [*inputs, *(grad for _, grad in grad_inputs)]
    own = {id(grad._storage): index for index, (_, grad) in enumerate(grad_inputs)}
    changed += [
        id(grad._storage) in trace.written and own[id(grad._storage)] == index
        for index, (_, grad) in enumerate(grad_inputs)
    ]
    found.written = [
        w.storage for n, w in trace.written.items() if n not in trace.local and n not in own
    ]
    outputs += [storage.value for storage in found.written]
    found.overwritten = [i for i, is_changed in enumerate(changed) if is_changed]
    outputs += [given[i]._storage.value for i in found.overwritten]
    _note_grads(found, trace, inputs, outputs)
    forward = len(outputs)
    cotangents: list[Var] = []
    if not trace.grads:
        cotangents = _trace_vjp(found, trace, tracer, inputs, tensors, outputs)
    found.numbers = [(c, k, p) for c, k, p, _ in trace.numbers.values()]
    found.guards = Guards(trace, found.grad_inputs, python_guards)
    found.once = trace.once
    number_vars = [n.tensor._value for *_, n in trace.numbers.values()]
    graph = trace.finish(outputs)
    argument_vars += [var for var, _ in grad_inputs]
    outside = [(var, tensor) for var, tensor in graph.captures if var not in argument_vars]
    found.outside = [tensor for _, tensor in outside]
    pure = Graph(
        [*argument_vars, *number_vars, *(var for var, _ in outside), *cotangents], (),
        graph.equations, graph.outputs,
    )  # fmt: skip
    # Dead equations of a gradient that could not be computed read no input of the graph.
    pure = pure.without_dead_code()
    if cotangents:
        pure, found.derivative = partition(pure, forward, cotangents, found.differentiable)
    found.graph = pure.without_dead_code()


def _trace_vjp(
    found: Captured, trace: FunctionalizingTrace, tracer: Tracer, inputs: list[Tensor],
    tensors: list[Tensor], outputs: list[Any],
) -> list[Var]:  # fmt: skip
    """Extend the trace to the joint graph with the gradients of the results, if any is
    differentiable; returns the cotangents."""

    def vjp(chosen: list[int]) -> Any:
        results, directions = [tensors[i] for i in chosen], [given[i] for i in chosen]
        return autograd.grad(results, targets, directions, retain_graph=True, allow_unused=True)

    differentiable = [i for i, t in enumerate(tensors) if t.requires_grad]
    own = [i for i, t in enumerate(inputs) if t.requires_grad]
    with_node = [t for _, t in trace.captures if t._node is not None]
    leaves = [t for t in with_node if isinstance(t._node, Leaf)]
    if differentiable and len(leaves) != len(with_node):
        raise InsideGraphError
    if not differentiable or not (own or leaves):
        return []
    given = {i: tracer.input(tensors[i]._type) for i in differentiable}
    targets = [*(inputs[i] for i in own), *leaves]
    try:
        grads = vjp(differentiable)
    except GradientError:  # the function has differentiated some of its results itself
        differentiable = [i for i in differentiable if _can(lambda i=i: vjp([i]))]  # type: ignore[misc]
        if not differentiable:
            return []
        grads = vjp(differentiable)
    found.differentiable = differentiable
    found.targets = (own, leaves)
    outputs += [None if g is None else trace_value(trace, g) for g in grads]
    return [given[i]._value for i in differentiable]


def _can(act: Callable[[], Any]) -> bool:
    try:
        act()
    except GradientError:
        return False
    return True


def _grad_inputs(found: Captured, trace: FunctionalizingTrace) -> list[tuple[Var, Tensor]]:
    """Gradients that existed before the call and were read by it become arguments, since each call
    has another tensor there; those that share memory with other captures stay captured."""
    captures: dict[int, list[tuple[Var, Tensor]]] = {}
    for var, tensor in trace.captures:
        captures.setdefault(id(tensor._storage), []).append((var, tensor))
    grad_inputs: list[tuple[Var, Tensor]] = []
    for owner, grad in trace.grads.values():
        sharing = [] if grad is None else captures.pop(id(grad._storage), [])
        if all(_is_whole(var, tensor) and tensor._type is grad._type for var, tensor in sharing):  # type: ignore[union-attr]
            grad_inputs += [(var, grad) for var, _ in sharing]  # type: ignore[misc]
            found.grad_inputs += [owner] * len(sharing)
    return grad_inputs


def _is_whole(var: Var, tensor: Tensor) -> bool:
    return tensor._view is None and var.layout.flags.c_contiguous


def _note_grads(
    found: Captured, trace: FunctionalizingTrace, inputs: list[Tensor], outputs: list[Any]
) -> None:
    """Gradients that the call leaves in ``.grad`` become outputs."""
    for tensor, before, after in trace.final_grads():
        if after is before:
            continue
        if after is not None and isinstance(after._storage.value, Var):
            found.grads.append((tensor, Output(len(outputs))))
            outputs.append(trace_value(trace, after))
        else:
            found.grads.append((tensor, after))
    if any(t._grad is not None for t in inputs):
        raise TraceError(
            "the gradient of an argument was computed inside a compiled function; it would be lost."
            "\n  fix: use evergrad.func.grad inside, or capture the tensor instead of passing it."
        )


def _refuse_python_effects(trace: FunctionalizingTrace) -> None:
    """Raise if an option that is read at run time was changed while tracing: the program would not
    repeat the change."""
    for container, key, part, number in trace.numbers.values():
        seen = trace.seen.get(id(number))
        if seen is not None and read_number(container, key, part) != seen:
            raise TraceError(
                f"the option {key!r} was changed inside a compiled function (by a schedule's "
                "step()?), which happens only while tracing.\n"
                "  fix: call scheduler.step() outside of the compiled function."
            )


def read_number(container: Any, key: Any, part: int | None) -> float:
    value = container[key]
    return float(value if part is None else value[part])
