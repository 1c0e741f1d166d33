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

# The most numbers of a list that are outputs of a program.
_MOST_IN_LISTS = 16


def deferred_item(tensor: Tensor) -> DeferredNumber | None:
    """The number in a tensor that a session computes; ``None`` if it has to be read now."""
    trace = functionalizing_trace()
    value = tensor._value
    if trace is None or not trace.defers_items:
        return None
    is_computed = isinstance(value, Var) and value.trace is trace
    if not is_computed and not trace.varies(tensor._storage):
        return None
    kind = tensor.dtype
    if not (kind.is_floating_point or dtypes.BOOL < kind.category <= dtypes.INTEGRAL):
        return None
    copy = bind(TABLE["clone"], detached(tensor).reshape(()))
    if kind.is_floating_point:
        return DeferredNumber(cast(copy, dtypes.float64), float)
    return DeferredNumber(copy, int)


def deferred_list(tensor: Tensor) -> object:
    """The numbers in a small tensor that a session computes, as nested lists; ``None`` if they have
    to be read now."""
    trace = functionalizing_trace()
    shape = tensor._type.shape
    if trace is None or not 0 < tensor._type.numel <= _MOST_IN_LISTS:
        return None
    if not shape:
        return deferred_item(tensor)
    parts = [deferred_list(tensor[index]) for index in range(shape[0])]
    return None if any(part is None for part in parts) else parts


# Operators that are rows; others, which may raise, Python computes.
_OPS = {"add": "add", "sub": "sub", "mul": "mul", "truediv": "div"}


def _binary(name: str, swapped: bool) -> Callable[[DeferredNumber, object], object]:
    function = getattr(operator, name)

    def method(self: DeferredNumber, other: object) -> object:
        if isinstance(other, Tensor):
            return NotImplemented
        op = _OPS.get(name)
        if name == "truediv" and (swapped or type(other) is DeferredNumber or not other):
            op = None  # Python raises where the divisor is zero
        operand = None if op is None or self.kind is not float else _operand(other)
        if op is None or operand is None or functionalizing_trace() is None:
            pair = (self.number(), other.number() if type(other) is DeferredNumber else other)
            return function(*(reversed(pair) if swapped else pair))
        pair = (self.tensor, operand)
        return DeferredNumber(bind(TABLE[op], *(reversed(pair) if swapped else pair)), float)

    return method


def _operand(other: object) -> Any:
    """A number as an operand beside a float64 tensor; ``None`` if Python has to compute."""
    if type(other) is DeferredNumber:
        return other.tensor if other.kind is float else None
    if type(other) is PythonNumber:
        other = other.symbolic()
        return other.tensor if type(other) is SymbolicNumber else other
    return other if type(other) in (int, float) else None


def _comparison(
    test: Callable[[object, object], object],
) -> Callable[[DeferredNumber, object], object]:
    def method(self: DeferredNumber, other: object) -> object:
        if isinstance(other, Tensor):
            return NotImplemented
        return test(self.number(), other.number() if type(other) is DeferredNumber else other)

    return method


def _reading(name: str) -> Callable[..., object]:
    def method(self: DeferredNumber, *args: object) -> object:
        value = self.number()
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
    for name in ("bool", "int", "float", "index", "complex", "hash", "repr", "str", "abs", "neg",
                 "pos", "invert", "round", "trunc", "floor", "ceil", "divmod",
                 "rdivmod"):  # fmt: skip
        setattr(DeferredNumber, f"__{name}__", _reading(f"__{name}__"))
    setattr(DeferredNumber, "__array__", _array)  # noqa: B010 - declared nowhere
    setattr(DeferredNumber, "__array_ufunc__", _ufunc)  # noqa: B010


def _array(self: DeferredNumber, dtype: Any = None, copy: bool | None = None) -> object:
    return np.asarray(self.read(), dtype)


def _ufunc(
    self: DeferredNumber, ufunc: object, method: str, *inputs: object, **options: object
) -> object:
    values = [i.number() if type(i) is DeferredNumber else i for i in inputs]
    return getattr(ufunc, method)(*values, **options)


_attach_methods()
