"""Symbolic numbers: run-time inputs of a traced program, and arithmetic with them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from evergrad.core import dtypes
from evergrad.core.bind import bind, cast
from evergrad.core.functionalize import SymbolicNumber, functionalizing_trace
from evergrad.core.op import TABLE
from evergrad.core.python_numbers import DeferredNumber, PythonNumber, input_number, number_at
from evergrad.core.state import STATE
from evergrad.core.tensor import Tensor
from evergrad.extension import provides

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction


@provides("number_arithmetic")
def combined(op: str, number: SymbolicNumber, other: Any, swapped: bool) -> object:
    """A row applied to a number and a tensor or another number."""
    if isinstance(other, Tensor):
        return bind(TABLE[op], *((other, number) if swapped else (number, other)))
    if STATE.get().trace is None:
        given = (float(other), float(number)) if swapped else (float(number), float(other))
        return _PYTHON[op](*given)
    if type(other) is PythonNumber:
        other = other.symbolic()
    sources, value = number.sources, number.value
    operand: object = other
    if type(other) is SymbolicNumber:
        joined = sources is not None and other.sources is not None
        sources = (*sources, *other.sources) if joined else None  # type: ignore[misc]
        operand, other = other.tensor, other.value
    elif not isinstance(other, (bool, int, float)):
        return NotImplemented
    if sources is not None:
        value = _PYTHON[op](*((other, value) if swapped else (value, other)))
        if not isinstance(value, float):  # a power of a negative number is complex
            return _PYTHON[op](*((other, number.read()) if swapped else (number.read(), other)))
    pair = (operand, number.tensor) if swapped else (number.tensor, operand)
    return SymbolicNumber(bind(TABLE[op], *pair), None if sources is None else value, sources)


_PYTHON: dict[str, AnyFunction] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "pow": operator.pow,
}  # fmt: skip


@provides("number_comparison")
def compared(op: str, number: SymbolicNumber, other: Any) -> object:
    """With a tensor an op; with another number its outcome now, which is guarded on."""
    if isinstance(other, Tensor):
        return bind(TABLE[op], number, other)
    compare = getattr(operator, op)
    trace, sources = functionalizing_trace(), number.sources
    if type(other) is PythonNumber and other.is_current():
        known = input_number(other.table, number)
        if known is not None:
            return compare(known, other)
    if type(other) in (SymbolicNumber, PythonNumber):
        other = other.read()
    if trace is None or not any(n is number for *_, n in trace.numbers.values()):
        return compare(number.read(), other)
    assert sources is not None
    return trace.guard_number(sources[0], lambda value: compare(value, other))


def symbolic_item(tensor: Tensor) -> Any:
    """The number in a tensor; while a program is traced, a symbolic one."""
    if functionalizing_trace() is None:
        return tensor.item()
    return SymbolicNumber(cast(tensor, dtypes.float64))


def at_least(number: object, bound: object) -> Any:
    """The larger of two numbers, symbolic ones included."""
    return _one_of(max, "maximum", number, bound)


def at_most(number: object, bound: object) -> Any:
    """The smaller of two numbers, symbolic ones included."""
    return _one_of(min, "minimum", number, bound)


def _one_of(choose: Callable[[Any, Any], object], op: str, a: object, b: object) -> object:
    if not (isinstance(a, SymbolicNumber) or isinstance(b, SymbolicNumber)):
        return choose(a, b)
    return SymbolicNumber(
        bind(TABLE[op], *(x.tensor if isinstance(x, SymbolicNumber) else x for x in (a, b)))
    )


def option(group: dict[str, object], name: str) -> Any:
    """An option of an optimizer's group: its value, or while a program is traced a run-time number
    (the parts of a pair each by itself). Whether it is zero stays a guard."""
    value = group[name]
    trace = functionalizing_trace()
    if trace is None or type(value) is SymbolicNumber:
        return value
    if type(value) is PythonNumber:
        return value.symbolic()
    if type(value) is DeferredNumber:
        return SymbolicNumber(value.tensor) if value.kind is float else value.read()
    if type(value) is tuple and any(type(part) is PythonNumber for part in value):
        return tuple([p.symbolic() if type(p) is PythonNumber else p for p in value])
    if (id(group), name) in trace.number_places:  # set by the traced function
        return value
    if isinstance(value, tuple):
        return tuple(number_at(trace, group, name, i) for i in range(len(value)))
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    return number_at(trace, group, name)
