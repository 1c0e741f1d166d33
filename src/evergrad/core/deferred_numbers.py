"""The numbers in computed tensors of a trace (``.item()``), as long as Python does not read them.

A number that is only returned, stored or added up needs no value while the function runs: it is an
output of the program. What else Python does with it reads the value, which ends a segment.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import bind, cast
from evergrad.core.functionalize import SymbolicNumber, functionalizing_trace
from evergrad.core.op import TABLE
from evergrad.core.python_numbers import DeferredNumber, PythonNumber
from evergrad.core.tensor import Tensor, detached
from evergrad.core.trace import Var


def deferred_item(tensor: Tensor) -> DeferredNumber | None:
    """The number in a tensor that a session computes; ``None`` if it has to be read now."""
    trace = functionalizing_trace()
    value = tensor._value
    if trace is None or not trace.defers_items:
        return None
    if not isinstance(value, Var) or value.trace is not trace:
        return None
    kind = tensor.dtype
    if not (kind.is_floating_point or dtypes.BOOL < kind.category <= dtypes.INTEGRAL):
        return None
    copy = bind(TABLE["clone"], detached(tensor).reshape(()))
    if kind.is_floating_point:
        return DeferredNumber(cast(copy, dtypes.float64), float)
    return DeferredNumber(copy, int)


# Operators that are rows; others, which may raise, Python computes.
_OPS = {"add": "add", "sub": "sub", "mul": "mul", "truediv": "div"}


def _binary(name: str, swapped: bool) -> Callable[[DeferredNumber, Any], Any]:
    function = getattr(operator, name)

    def method(self: DeferredNumber, other: Any) -> Any:
        if isinstance(other, Tensor):
            return NotImplemented
        op = _OPS.get(name)
        if name == "truediv" and (swapped or type(other) is DeferredNumber or not other):
            op = None  # Python raises where the divisor is zero
        operand = None if op is None or self.kind is not float else _operand(other)
        if op is None or operand is None or functionalizing_trace() is None:
            pair = (self.read(), other.read() if type(other) is DeferredNumber else other)
            return function(*(reversed(pair) if swapped else pair))
        pair = (self.tensor, operand)
        return DeferredNumber(bind(TABLE[op], *(reversed(pair) if swapped else pair)), float)

    return method


def _operand(other: Any) -> Any:
    """A number as an operand beside a float64 tensor; ``None`` if Python has to compute."""
    if type(other) is DeferredNumber:
        return other.tensor if other.kind is float else None
    if type(other) is PythonNumber:
        other = other.symbolic()
        return other.tensor if type(other) is SymbolicNumber else other
    return other if type(other) in (int, float) else None


def _comparison(test: Callable[[Any, Any], Any]) -> Callable[[DeferredNumber, Any], Any]:
    def method(self: DeferredNumber, other: Any) -> Any:
        if isinstance(other, Tensor):
            return NotImplemented
        return test(self.read(), other.read() if type(other) is DeferredNumber else other)

    return method


def _reading(name: str) -> Callable[..., Any]:
    def method(self: DeferredNumber, *args: Any) -> Any:
        value = self.read()
        function = getattr(type(value), name, None)
        return complex(value) if function is None else function(value, *args)

    return method


def _attach_methods() -> None:
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and_", "or_", "xor",
                 "lshift", "rshift"):  # fmt: skip
        method = name.rstrip("_")
        setattr(DeferredNumber, f"__{method}__", _binary(name, swapped=False))
        setattr(DeferredNumber, f"__r{method}__", _binary(name, swapped=True))
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(DeferredNumber, f"__{name}__", _comparison(getattr(operator, name)))
    for name in ("bool", "int", "float", "index", "complex", "hash", "repr", "str", "format", "abs",
                 "neg", "pos", "invert", "round", "trunc", "floor", "ceil", "divmod",
                 "rdivmod"):  # fmt: skip
        setattr(DeferredNumber, f"__{name}__", _reading(f"__{name}__"))
    setattr(DeferredNumber, "__array__", _array)  # noqa: B010 - declared nowhere
    setattr(DeferredNumber, "__array_ufunc__", _ufunc)  # noqa: B010


def _array(self: DeferredNumber, dtype: Any = None, copy: bool | None = None) -> Any:
    return np.asarray(self.read(), dtype)


def _ufunc(self: DeferredNumber, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
    values = [i.read() if type(i) in (DeferredNumber, PythonNumber) else i for i in inputs]
    return getattr(ufunc, method)(*values, **options)


_attach_methods()
