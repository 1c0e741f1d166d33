"""A call of a Python function as a graph that can run again.

:func:`capture` runs the function once on symbolic values and gives a :class:`Captured`: a pure
graph (arguments, run-time numbers and outside tensors in; results, writes and gradients out), and
under which conditions it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from evergrad import autograd
from evergrad.compiler.frontend.guards import Conditions
from evergrad.compiler.frontend.outputs import Output, Results
from evergrad.compiler.frontend.partition import Derivative, cut
from evergrad.compiler.frontend.python_guards import Surroundings
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
    """The function uses outside tensors that have a history, as ``functional_call`` with computed
    parameters does: its own history has to be recorded with theirs, op by op."""


class Captured:
    """One traced call.

    ``inputs`` of the graph are the tensor arguments and the present gradients of ``fetched``
    tensors, then ``numbers`` (container, key, part), then ``outside`` tensors. Its outputs are the
    results, then what each of ``written`` storages ends at, then the arguments that were
    overwritten, then new gradients, then what the derivative reads.
    """

    def __init__(self) -> None:
        self.graph: Graph
        self.arguments = 0
        self.fetched: list[Tensor] = []
        self.numbers: list[tuple[Any, Any, int | None]] = []
        self.outside: list[Tensor] = []
        self.written: list[Storage] = []
        self.overwritten: list[int] = []
        self.results: Results
        self.result_count = 0
        # Gradients at the end: (tensor, place among the outputs, a tensor, or None).
        self.grads: list[tuple[Tensor, Any]] = []
        # For gradients asked for from outside: which results have one, with respect to which
        # arguments and outside tensors.
        self.derivative: Derivative | None = None
        self.moving: list[int] = []
        self.targets: tuple[list[int], list[Tensor]] = ([], [])
        self.conditions: Conditions
        self.once: str | None = None

    @property
    def output_count(self) -> int:
        """How many outputs the function has itself, without what its derivative reads."""
        new_grads = sum(isinstance(grad, Output) for _, grad in self.grads)
        return self.result_count + len(self.written) + len(self.overwritten) + new_grads


def capture(
    function: Callable[[Sequence[Any], Sequence[Any]], Any],
    arguments: Sequence[Tensor],
    numbers: list[float],
    surroundings: Surroundings,
) -> Captured:
    """Trace ``function(tensors, numbers)``; the numbers are Python floats, read at run time."""
    found = Captured()
    trace = FunctionalizingTrace(STATE.get().trace)
    with using(trace=trace, grad=STATE.get().grad, no_grad=False, saved_hooks=None):
        try:
            _trace_into(found, trace, function, arguments, numbers, surroundings)
        except BaseException:
            trace.restore_states()
            raise
        finally:
            trace.abandon()
    found.conditions.begin(found.outside)
    return found


def _trace_into(
    found: Captured, trace: FunctionalizingTrace, function: Any, arguments: Sequence[Tensor],
    numbers: Any, surroundings: Surroundings,
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
    surroundings.settle()
    surroundings.visit_modules(trace.modules.values())
    found.results = Results(trace, inputs, result)
    tensors = found.results.forget_tensors()
    found.result_count = len(tensors)
    fetched = _fetched_grads(found, trace)
    found.arguments = len(arguments) + len(fetched)
    outputs: list[Any] = [trace_value(trace, t) for t in tensors]
    changed = [t._storage.value is not v for t, v in zip(inputs, values_before, strict=True)]
    given = [*inputs, *(grad for _, grad in fetched)]
    own = {id(grad._storage): place for place, (_, grad) in enumerate(fetched)}
    changed += [
        id(grad._storage) in trace.written and own[id(grad._storage)] == place
        for place, (_, grad) in enumerate(fetched)
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
        cotangents = _pull_back(found, trace, tracer, inputs, tensors, outputs)
    found.numbers = [(c, k, p) for c, k, p, _ in trace.numbers.values()]
    found.conditions = Conditions(trace, found.fetched, surroundings)
    found.once = trace.once
    number_vars = [n.tensor._value for *_, n in trace.numbers.values()]
    graph = trace.finish(outputs)
    argument_vars += [var for var, _ in fetched]
    outside = [(var, tensor) for var, tensor in graph.captures if var not in argument_vars]
    found.outside = [tensor for _, tensor in outside]
    pure = Graph(
        [*argument_vars, *number_vars, *(var for var, _ in outside), *cotangents], (),
        graph.equations, graph.outputs,
    )  # fmt: skip
    # Dead equations of a gradient that could not be computed read no input of the graph.
    pure = pure.without_dead_code()
    if cotangents:
        pure, found.derivative = cut(pure, forward, cotangents, found.moving)
    found.graph = pure.without_dead_code()


def _pull_back(
    found: Captured, trace: FunctionalizingTrace, tracer: Tracer, inputs: list[Tensor],
    tensors: list[Tensor], outputs: list[Any],
) -> list[Var]:  # fmt: skip
    """Trace the gradients of the results, if any may be asked for; gives the cotangents."""

    def pull(chosen: list[int]) -> Any:
        results, directions = [tensors[i] for i in chosen], [given[i] for i in chosen]
        return autograd.grad(results, targets, directions, retain_graph=True, allow_unused=True)

    moving = [i for i, t in enumerate(tensors) if t.requires_grad]
    own = [i for i, t in enumerate(inputs) if t.requires_grad]
    asking = [t for _, t in trace.captures if t._node is not None]
    leaves = [t for t in asking if isinstance(t._node, Leaf)]
    if moving and len(leaves) != len(asking):
        raise InsideGraphError
    if not moving or not (own or leaves):
        return []
    given = {i: tracer.input(tensors[i]._type) for i in moving}
    targets = [*(inputs[i] for i in own), *leaves]
    try:
        grads = pull(moving)
    except GradientError:  # the function has differentiated some of its results itself
        moving = [i for i in moving if _can(lambda i=i: pull([i]))]  # type: ignore[misc]
        if not moving:
            return []
        grads = pull(moving)
    found.moving = moving
    found.targets = (own, leaves)
    outputs += [None if g is None else trace_value(trace, g) for g in grads]
    return [given[i]._value for i in moving]


def _can(act: Callable[[], Any]) -> bool:
    try:
        act()
    except GradientError:
        return False
    return True


def _fetched_grads(found: Captured, trace: FunctionalizingTrace) -> list[tuple[Var, Tensor]]:
    """Gradients that existed before the call and were read by it: they are other tensors at each
    call, and so become arguments. What they share memory with keeps them outside."""
    captures: dict[int, list[tuple[Var, Tensor]]] = {}
    for var, tensor in trace.captures:
        captures.setdefault(id(tensor._storage), []).append((var, tensor))
    fetched: list[tuple[Var, Tensor]] = []
    for owner, grad in trace.grads.values():
        sharing = [] if grad is None else captures.pop(id(grad._storage), [])
        if all(_is_whole(var, tensor) and tensor._type is grad._type for var, tensor in sharing):  # type: ignore[union-attr]
            fetched += [(var, grad) for var, _ in sharing]  # type: ignore[misc]
            found.fetched += [owner] * len(sharing)
    return fetched


def _is_whole(var: Var, tensor: Tensor) -> bool:
    return tensor._view is None and var.layout.flags.c_contiguous


def _note_grads(
    found: Captured, trace: FunctionalizingTrace, inputs: list[Tensor], outputs: list[Any]
) -> None:
    """Gradients that the call leaves behind become outputs."""
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
            "\n  fix: use evergrad.func.grad inside, or make the tensor part of the outside."
        )


def _refuse_python_effects(trace: FunctionalizingTrace) -> None:
    """Raise if an option that is read at run time was changed while tracing: only the trace, not
    the program, would change it again."""
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
