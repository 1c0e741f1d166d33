"""Formulas cached as graphs, whose equations are copied into a trace without running Python.

An optimizer's update is the same for each of its parameters, and its equations follow from the
types of its arguments. Binding all ops for each parameter took half of the time to trace a training
step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from evergrad.core import dtypes
from evergrad.core.functionalize import SymbolicNumber, functionalizing_trace
from evergrad.core.python_numbers import PythonNumber
from evergrad.core.shapes import tensor_type
from evergrad.core.source_location import user_location
from evergrad.core.state import STATE, State, using
from evergrad.core.tensor import Tensor, fresh
from evergrad.core.trace import Graph, Trace, Var
from evergrad.core.tracing import trace_value, tracing

if TYPE_CHECKING:
    from evergrad.core.types import Leaves

# The most combinations of types cached for one formula.
_MOST_GRAPHS = 256


class Formula:
    """``function(*tensors, *numbers, **options)`` without gradients."""

    def __init__(self, function: Callable[..., object], options: dict[str, object]) -> None:
        self.function = function
        self.options = options
        # By types of tensors and kinds of numbers; ``None`` where the function must be called.
        self._graphs: dict[object, Graph | None] = {}

    def __call__(self, tensors: Sequence[Tensor], numbers: Sequence[object]) -> tuple[Tensor, ...]:
        """The results, computed or emitted into the running trace."""
        state, trace = STATE.get(), functionalizing_trace()
        if trace is not None:
            numbers = [n.symbolic() if type(n) is PythonNumber else n for n in numbers]
        if trace is not None and trace is state.trace and _is_plain(state, numbers):
            graph = self._graph(tensors, numbers)
            if graph is not None:
                return _inlined(graph, trace, state.no_grad, tensors, numbers)
        return self._called(*tensors, *numbers)

    def _called(self, *args: object) -> tuple[Tensor, ...]:
        found = self.function(*args, **self.options)
        return found if isinstance(found, tuple) else (found,)

    def _graph(self, tensors: Sequence[Tensor], numbers: Sequence[object]) -> Graph | None:
        kinds = [
            SymbolicNumber if type(n) is SymbolicNumber else (type(n), repr(n)) for n in numbers
        ]
        key = (dtypes.get_default_dtype(), *(t._type for t in tensors), *kinds)
        if key not in self._graphs:
            if len(self._graphs) >= _MOST_GRAPHS:
                self._graphs.clear()
            self._graphs[key] = self._traced(tensors, numbers)
        return self._graphs[key]

    def _traced(self, tensors: Sequence[Tensor], numbers: Sequence[object]) -> Graph | None:
        scalar = tensor_type((), dtypes.float64)
        with using(trace=None), tracing() as tracer:
            given: Leaves = [tracer.input(tensor._type) for tensor in tensors]
            for number in numbers:
                is_open = type(number) is SymbolicNumber
                given.append(SymbolicNumber(tracer.input(scalar)) if is_open else number)
            graph = tracer.finish(self._called(*given))
        touches = graph.captures or graph.writes
        is_computed = all(isinstance(out, Var) for out in graph.outputs)
        # Views need the storage that they alias.
        is_plain = not any(eqn.op.alias or eqn.op.random for eqn in graph.equations)
        return graph if is_computed and is_plain and not touches else None


def _is_plain(state: State, numbers: Sequence[object]) -> bool:
    """Whether the equations of a formula depend on types alone."""
    known = (SymbolicNumber, int, float)
    return not state.grad and state.autocast is None and all(type(n) in known for n in numbers)


def _inlined(
    graph: Graph, trace: Trace, no_grad: bool, tensors: Sequence[Tensor], numbers: Sequence[object]
) -> tuple[Tensor, ...]:
    """Copy the equations of a graph into a trace."""
    given = [*tensors, *(n.tensor for n in numbers if type(n) is SymbolicNumber)]
    values: dict[object, Any] = {
        var: trace_value(trace, tensor) for var, tensor in zip(graph.inputs, given, strict=True)
    }
    location = user_location(2)
    for eqn in graph.equations:
        args = tuple([values[a] if a.__class__ is Var else a for a in eqn.args])
        outs = trace.emit(eqn.specialization, args, location, no_grad=no_grad)
        values.update(zip(eqn.outs, outs, strict=True))
    return tuple(fresh(values[out], out.type) for out in graph.outputs)
