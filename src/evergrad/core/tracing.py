"""Tensors as values of a running trace, and the context manager that traces.

:mod:`evergrad.core.trace` owns the equations; this module maps tensor handles to their values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from evergrad.core.functionalize import functionalizing_trace
from evergrad.core.shapes import TensorType
from evergrad.core.source_location import user_location
from evergrad.core.state import STATE, using
from evergrad.core.tensor import Tensor, fresh
from evergrad.core.trace import Graph, Trace, Var, leaked

if TYPE_CHECKING:
    from evergrad.core.op import Op


def owner_of(innermost: Trace, op: Op | None, args: tuple[object, ...]) -> Trace | None:
    """The trace that an op on these arguments is emitted into: the innermost one with a value among
    them; if all are arrays the functionalizing one, or ``None``."""
    if innermost.is_off:
        return None
    found: Trace | None = None
    tensors = False
    for arg in args:
        if isinstance(arg, Tensor):
            tensors = True
            held = arg._storage.value
            if isinstance(held, Var) and (found is None or held.trace.depth > found.depth):
                found = held.trace
    if op is not None and (op.random or not tensors):
        return innermost  # creation and random ops belong to the running trace
    if found is not None and not found.encloses(innermost):
        raise leaked()
    return innermost.functionalizer if found is None else found


def trace_value(trace: Trace, tensor: Tensor) -> Var:
    """A tensor as a value of this trace: its own, its view ops replayed if written, or captured."""
    storage = tensor._storage
    held = storage.value
    view, value = tensor._view, tensor._value
    if not (isinstance(held, Var) and held.trace is trace):
        if view is not None and isinstance(value, Var) and value.trace is trace:
            return value  # a view, made inside, of an outside tensor
        return trace.capture(tensor)
    if view is None:
        return held
    if isinstance(value, Var) and value.trace is trace and view.traced == storage.version:
        return value
    for op, attrs in view.chain:
        types = (held.type,)
        key = (types, tuple(attrs.items())) if attrs else types
        specialization = op.specializations.get(key) or op.resolve(key, types, attrs)
        (held,) = trace.emit(
            specialization, (held,), user_location(3), op.eval(held.layout, **attrs)
        )
    if isinstance(value, Var):  # an outside tensor keeps its array
        tensor._value = held
        view.traced = storage.version
    return held


def is_known(tensor: Tensor) -> bool:
    """Whether the elements of a tensor can be read now: it is no value of a trace, and no outside
    tensor that a traced program reads each time it runs."""
    if isinstance(tensor._value, Var) or isinstance(tensor._storage.value, Var):
        return False
    trace = functionalizing_trace()
    return trace is None or id(tensor._storage) in trace.local


def in_trace(tensor: Tensor) -> Tensor:
    """An outside tensor captured as a new handle of the running trace, so that changes of the
    handle (``requires_grad_()``) stay inside; itself where there is no trace."""
    trace = STATE.get().trace
    if trace is None or isinstance(tensor._storage.value, Var):
        return tensor
    return fresh(trace.capture(tensor), tensor._type)


class Tracer:
    """What :func:`tracing` gives: makes the inputs, and the graph at the end."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    def input(self, type: TensorType) -> Tensor:
        return fresh(self.trace.add_input(type), type)

    def finish(self, outputs: Sequence[Tensor | None]) -> Graph:
        values = [trace_value(self.trace, o) if isinstance(o, Tensor) else o for o in outputs]
        return self.trace.finish(values)


@contextmanager
def tracing(grad: bool = False) -> Iterator[Tracer]:
    """Inside, ops on the tracer's inputs emit equations."""
    trace = Trace(STATE.get().trace)
    with using(trace=trace, grad=grad, no_grad=False, saved_hooks=None):
        try:
            yield Tracer(trace)
        finally:
            trace.abandon()
