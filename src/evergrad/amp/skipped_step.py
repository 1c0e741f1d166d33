"""A step of an optimizer that may be left out: inside a trace by selection, not by a branch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from evergrad.core.compound import Compound
from evergrad.core.functionalize import FunctionalizingTrace, functionalizing_trace
from evergrad.core.state import using
from evergrad.core.tensor import Tensor, fresh
from evergrad.core.trace import Var
from evergrad.core.tracing import trace_value
from evergrad.core.types import Args, Kwargs
from evergrad.errors import TraceError
from evergrad.ops.rows.elementwise.basic import where

if TYPE_CHECKING:
    from evergrad.optim.optimizer import Optimizer


def step_unless(skipped: Tensor, optimizer: Optimizer, args: Args, kwargs: Kwargs) -> Any:
    """Step an optimizer unless a bool holds. While a program is traced, the step is traced, and all
    that it writes outside (parameters and state) keeps its old value where the bool holds."""
    trace = functionalizing_trace()
    if trace is None:
        return None if skipped.item() else optimizer.step(*args, **kwargs)
    for tensor in _tensors_of(optimizer):
        trace_value(trace, tensor)  # captured, should the step overwrite it without reading
    before = _written(trace)
    result = optimizer.step(*args, **kwargs)
    with using(grad=False):
        for key, new in _written(trace).items():
            old = before[key] if key in before else _captured(trace, key)
            if new is not old:
                chosen = where(skipped, fresh(old, old.type), fresh(new, new.type))
                storage = trace.written[key].storage
                storage.value = trace_value(trace, chosen)
                storage.version += 1
    return result


def _tensors_of(optimizer: Optimizer) -> Iterator[Tensor]:
    """The dense parameters and the dense state of an optimizer."""
    kept = [p for group in optimizer.param_groups for p in group["params"]]
    for state in optimizer.state.values():
        kept += state.values() if isinstance(state, dict) else ()
    for tensor in kept:
        if isinstance(tensor, Tensor) and not isinstance(tensor, Compound):
            yield tensor


def _written(trace: FunctionalizingTrace) -> dict[int, Var]:
    """The values of the outside storages that a trace has written so far."""
    return {
        key: write.storage.value
        for key, write in trace.written.items()
        if key not in trace.local and isinstance(write.storage.value, Var)
    }


def _captured(trace: FunctionalizingTrace, key: int) -> Var:
    """The value that a storage had before the trace wrote to it."""
    for var, tensor in trace.captures:
        if id(tensor._storage) == key and tensor._view is None:
            return var
    raise TraceError(
        "a step of an optimizer under a GradScaler overwrote a tensor that is neither a parameter "
        "nor in its state, without reading it; inside a compiled function such a step cannot be "
        "left out.\n  fix: keep the tensor in optimizer.state."
    )
