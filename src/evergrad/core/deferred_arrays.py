"""The NumPy array of a computed tensor of a trace that is only returned (``return y.numpy()``): it
is made of the result of the program."""

from __future__ import annotations

import sys
from typing import Any

from evergrad.core.functionalize import functionalizing_trace
from evergrad.core.tensor import Tensor
from evergrad.core.trace import Var


class DeferredArray:
    """A placeholder for ``tensor.numpy()`` until the function has returned; no code reads it."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def deferred_array(tensor: Tensor) -> Any:
    """A placeholder for the array of a tensor that a session computes, for the caller's caller;
    ``None`` if it has to be made now."""
    trace = functionalizing_trace()
    value = tensor._value
    if trace is None or not isinstance(value, Var) or value.trace is not trace:
        return None
    is_own = id(tensor._storage) not in trace.written or id(tensor._storage) in trace.local
    if not is_own or not trace.is_returned(sys._getframe(2)):
        return None
    return DeferredArray(tensor)
