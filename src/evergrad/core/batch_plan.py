"""Plans of batched graphs: which rows a graph binds on a batch, cached by its structure.

``vmap`` traces its function at every call, since Python may decide otherwise each time. The graph
mostly has the structure of an earlier one: equal specializations on the same slots. What the
batching rules bind for it depends on this structure and on the types of the arguments alone, so
that the second such graph is recorded as a :class:`~evergrad.core.prepared.Plan`, which further
ones run. The rows are those that the rules would bind, so that the results have the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from evergrad import config
from evergrad.core.eager.fusion import on_clear
from evergrad.core.op import Op
from evergrad.core.prepared import Plan, Recorder
from evergrad.core.shapes import TensorType
from evergrad.core.state import STATE, State, using
from evergrad.core.tensor import Tensor
from evergrad.core.trace import Graph, Var

if TYPE_CHECKING:
    from evergrad.core.types import Leaves

Batched = tuple[Any, int | None]
Dims = Sequence[int | None]

# Graphs that are known; at the limit all are forgotten.
_MOST_GRAPHS = 1 << 8

# By structure: a plan with the dimensions of its results; true for a graph that was seen once;
# false for one that has no plan.
_plans: dict[object, Any] = {}


@on_clear
def clear_batch_plans() -> None:
    """Forget all plans; those in use are recorded again."""
    _plans.clear()


def run_planned(
    graph: Graph, args: Sequence[Tensor], dims: Dims, size: int, run: Callable[[], list[Batched]]
) -> list[Batched]:
    """The outputs of a graph on a batch: by its plan, or else by ``run``."""
    state = STATE.get()
    tensors = [*args, *[tensor for _, tensor in graph.captures]]
    key = _key(state, graph, tensors, dims, size)
    if key is None:
        return run()
    found = _plans.get(key)
    if found.__class__ is tuple:
        plan, places = found
        return list(zip(plan.run(state, tensors), places, strict=True))
    if found is False:
        return run()
    if found is None:
        if len(_plans) >= _MOST_GRAPHS:
            _plans.clear()
        _plans[key] = True  # seen once
        return run()
    recorder = Recorder(state, tensors)
    with using(recorder=recorder):
        outs = run()
    plan = _plan(recorder, [value for value, _ in outs])
    _plans[key] = False if plan is None else (plan, tuple([dim for _, dim in outs]))
    return outs


def _plan(recorder: Recorder, results: list[Tensor]) -> Plan | None:
    """The recorded plan, or none: also where a result is a constant of the graph."""
    return recorder.plan(results) if all(isinstance(r, Tensor) for r in results) else None


def _key(
    state: State, graph: Graph, tensors: list[Tensor], dims: Dims, size: int
) -> tuple[TensorType | int | None, ...] | None:
    """All that the rules may depend on; ``None`` for a graph that can have no plan."""
    trace = state.trace
    if (
        (trace is not None and trace.functionalizer is not None)
        or state.recorder is not None
        or state.interceptor is not None
        or graph.writes
        or not config.EAGER_KERNELS
        or config.EAGER_KERNEL_ELEMENTS is not None
    ):
        return None
    key: Leaves = [trace is None, state.grad, state.inference, size, *dims]
    first: dict[int, int] = {}
    for number, tensor in enumerate(tensors):
        type, value = tensor._type, tensor._value
        if type.__class__ is not TensorType:
            return None
        key.append(type)
        if value.__class__ is Var:
            key.append(True)
            value = value._layout
        if value is not None and not value.flags.c_contiguous:
            key.append(value.strides)
        seen = first.setdefault(id(tensor), number)
        if seen != number:
            key.append((seen,))
    slots: dict[object, int] = {var: i for i, var in enumerate(graph.inputs)}
    for var, _ in graph.captures:
        slots[var] = len(slots)
    for eqn in graph.equations:
        op = eqn.op
        if eqn.no_grad or op.__class__ is not Op or op.random or op.family == "custom":
            return None
        key.append(eqn.specialization)
        key += [slots[a] if a.__class__ is Var else (a.__class__, repr(a)) for a in eqn.args]
        for out in eqn.outs:
            slots[out] = len(slots)
    key.append(None)
    key += [slots.get(out) for out in graph.outputs]
    return tuple(key)
