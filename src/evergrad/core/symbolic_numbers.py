"""Symbolic numbers: run-time inputs of a traced program, and arithmetic with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evergrad.core import dtypes
from evergrad.core.bind import bind, cast
from evergrad.core.functionalize import FunctionalizingTrace, SymbolicNumber, functionalizing_trace
from evergrad.core.op import TABLE
from evergrad.core.shapes import tensor_type
from evergrad.core.tensor import Tensor, fresh
from evergrad.extension import provides


@provides("number_arithmetic")
def combined(op: str, number: SymbolicNumber, other: Any, swapped: bool) -> Any:
    """A row applied to a number and a tensor or another number."""
    if isinstance(other, Tensor):
        return bind(TABLE[op], *((other, number) if swapped else (number, other)))
    if isinstance(other, SymbolicNumber):
        other = other.tensor
    elif not isinstance(other, (bool, int, float)):
        return NotImplemented
    pair = (other, number.tensor) if swapped else (number.tensor, other)
    return SymbolicNumber(bind(TABLE[op], *pair))


@provides("number_comparison")
def compared(op: str, number: SymbolicNumber, other: Any) -> Any:
    """With tensors only: the outcome of other comparisons is needed while tracing."""
    return bind(TABLE[op], number, other) if isinstance(other, Tensor) else number.refuse()


def number_at(
    trace: FunctionalizingTrace, container: Any, key: Any, part: int | None = None
) -> SymbolicNumber:
    """The run-time number at ``container[key]`` (or its part)."""
    source = (id(container), key, part)
    if source not in trace.numbers:
        type = tensor_type((), dtypes.float64)
        number = SymbolicNumber(fresh(trace.add_input(type), type))
        trace.numbers[source] = (container, key, part, number)
        value = container[key] if part is None else container[key][part]
        trace.seen[id(number)] = float(value)
    return trace.numbers[source][3]


def symbolic_item(tensor: Tensor) -> Any:
    """The number in a tensor; while a program is traced, a symbolic one."""
    if functionalizing_trace() is None:
        return tensor.item()
    return SymbolicNumber(cast(tensor, dtypes.float64))


def at_least(number: Any, bound: Any) -> Any:
    """The larger of two numbers, symbolic ones included."""
    return _one_of(max, "maximum", number, bound)


def at_most(number: Any, bound: Any) -> Any:
    """The smaller of two numbers, symbolic ones included."""
    return _one_of(min, "minimum", number, bound)


def _one_of(choose: Callable[[Any, Any], Any], op: str, a: Any, b: Any) -> Any:
    if not (isinstance(a, SymbolicNumber) or isinstance(b, SymbolicNumber)):
        return choose(a, b)
    return SymbolicNumber(
        bind(TABLE[op], *(x.tensor if isinstance(x, SymbolicNumber) else x for x in (a, b)))
    )


def option(group: dict[str, Any], name: str) -> Any:
    """An option of an optimizer's group: its value, or while a program is traced a run-time number
    (the parts of a pair each by itself). Whether it is zero stays a guard."""
    value = group[name]
    trace = functionalizing_trace()
    if trace is None:
        return value
    if isinstance(value, tuple):
        return tuple(number_at(trace, group, name, i) for i in range(len(value)))
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    return number_at(trace, group, name)
