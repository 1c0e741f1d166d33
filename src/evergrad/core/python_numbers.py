"""Numbers of Python state that a traced function changes: expressions evaluated before each run.

A counter (``self.step += 1``) is read, computed with and stored by Python. While a call is traced,
its place holds a :class:`PythonNumber`, which computes as the number does and records how. With
tensors it is an input of the program; a comparison is guarded on by its outcome, and any other read
by the exact value. Outside of its trace it computes as the number it was.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.functionalize import (
    FunctionalizingTrace,
    SymbolicNumber,
    functionalizing_trace,
    read_source,
)
from evergrad.core.shapes import tensor_type
from evergrad.core.tensor import Tensor, fresh

# Evaluates to a number of Python, from the state before a run.
Expression = Callable[[], Any]

_NUMBERS = (int, float, bool)
# Integers up to this size are exact as float64.
_EXACT = 2**53


class Expressions:
    """The expressions of a traced call: inputs and results of its program, and guards. ``values``
    are those of the call that runs."""

    def __init__(self) -> None:
        self.expressions: list[Expression] = []
        self.values: list[Any] = []
        self.guards: list[tuple[Expression, Any]] = []
        # The values that Python has read, with the places of the numbers they depend on.
        self.exact: list[tuple[Any, frozenset[Any]]] = []

    def __getitem__(self, index: int) -> Any:
        return self.values[index]

    def add(self, number: PythonNumber) -> int:
        self.expressions.append(number.expression)
        self.values.append(number.value)
        return len(self.values) - 1

    def guard(self, expression: Expression, value: object) -> None:
        self.guards.append((expression, exactly(value)))

    def evaluate(self) -> bool:
        """Evaluate all for a run; whether the guards hold."""
        try:
            for expression, expected in self.guards:
                if exactly(expression()) != expected:
                    return False
            self.values = [expression() for expression in self.expressions]
        except (ArithmeticError, ValueError, TypeError):  # Python has to run, and raises it
            return False
        return True


def exactly(value: object) -> Any:
    """A number in a form that is equal for the same number only."""
    return type(value), value.hex() if type(value) is float else value


class PythonNumber:
    """A number of Python state in a traced call: its value, and the expression that it is of the
    numbers at ``sources`` before the call."""

    __slots__ = ("__weakref__", "expression", "sources", "table", "trace", "value")

    def __init__(
        self, trace: FunctionalizingTrace, table: Expressions, value: object,
        expression: Expression, sources: frozenset[object],
    ) -> None:  # fmt: skip
        self.trace: FunctionalizingTrace = trace
        self.table: Expressions = table
        self.value: Any = value
        self.expression: Expression = expression
        self.sources: frozenset[Any] = sources
        trace.note_number(self)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self.value)  # for isinstance() in the traced function

    def is_current(self) -> bool:
        """Whether its trace is recording, in this thread."""
        return functionalizing_trace() is self.trace

    def read(self) -> Any:
        """The number itself, which Python reads."""
        if self.is_current():
            self.table.exact.append((exactly(self.value), self.sources))
            self.table.guard(self.expression, self.value)
        return self.value

    def computed(self, function: Callable[..., object], *operands: object) -> Any:
        """A function of numbers, this one among them, as another one."""
        values = [value_of(operand) for operand in operands]
        if not self.is_current():
            return function(*values)
        try:
            value = function(*values)
        except ArithmeticError:  # the function may catch it
            self.read_all(operands)
            raise
        if type(value) not in _NUMBERS:
            return function(*self.read_all(operands))
        parts = [o.expression if type(o) is PythonNumber else constant(o) for o in operands]
        numbers = [o for o in operands if type(o) is PythonNumber]
        sources = frozenset().union(*(number.sources for number in numbers))
        return PythonNumber(
            self.trace, self.table, value, lambda: function(*[part() for part in parts]), sources
        )

    def read_all(self, operands: Any) -> list[Any]:
        return [o.read() if type(o) is PythonNumber else o for o in operands]

    def outcome(self, test: Callable[..., bool], *operands: object) -> bool:
        """The outcome of a test of numbers, which is guarded on."""
        found = self.computed(test, *operands)
        if type(found) is not PythonNumber:
            return bool(found)
        self.table.guard(found.expression, found.value)
        return bool(found.value)

    def symbolic(self) -> Any:
        """This number as a float64 input of the program; itself where that is not exact."""
        if not self.is_current() or type(self.value) is bool:
            return self.read()
        if type(self.value) is int and not self.outcome(_is_small, self):
            return self.read()
        number = number_at(self.trace, self.table, self.table.add(self))
        if type(number) is SymbolicNumber:
            number.kind = type(self.value)
        return number

    def __index__(self) -> int:
        return operator.index(self.read())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.read(), name)

    def __reduce__(self) -> Any:
        return type(self.value), (self.read(),)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self.read(), dtype)

    def __array_ufunc__(
        self, ufunc: object, method: str, *inputs: object, **options: object
    ) -> Any:
        return getattr(ufunc, method)(*self.read_all(inputs), **options)

    def __pow__(self, other: object, modulus: object = None) -> Any:
        if modulus is not None:
            return pow(*self.read_all((self, other, modulus)))
        return _binary(operator.pow, swapped=False)(self, other)

    def __bool__(self) -> bool:
        return self.outcome(bool, self)


def number_at(
    trace: FunctionalizingTrace, container: Any, key: Any, part: int | None = None
) -> Any:
    """The run-time number at ``container[key]`` (or its part)."""
    source = (id(container), key, part)
    if source not in trace.numbers:
        type = tensor_type((), dtypes.float64)
        place = (container, key, part)
        tensor = fresh(trace.add_input(type), type)
        number = SymbolicNumber(tensor, read_source(place), (place,))
        trace.numbers[source] = (*place, number)
    known = trace.numbers[source][3]
    value = read_source((container, key, part))
    if known.value != value:  # the function has changed it since
        trace.once = "a number that is an input of the program is changed by the function"
        return value
    return known


def _is_small(value: int) -> bool:
    return -_EXACT <= value <= _EXACT


def constant(value: object) -> Expression:
    return lambda: value


def value_of(operand: object) -> Any:
    return operand.value if type(operand) is PythonNumber else operand


def plain_attributes(value: object) -> Any:
    """Attributes of an op without numbers of the trace."""
    if type(value) is PythonNumber:
        return value.read()
    if type(value) is tuple:
        members = tuple(map(plain_attributes, value))
        return value if all(map(operator.is_, members, value)) else members
    return value


def _attach_methods() -> None:
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "and_", "or_", "xor", "lshift",
                 "rshift", "pow"):  # fmt: skip
        function, method = getattr(operator, name), name.rstrip("_")
        setattr(PythonNumber, f"__r{method}__", _binary(function, swapped=True))
        if name != "pow":
            setattr(PythonNumber, f"__{method}__", _binary(function, swapped=False))
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(PythonNumber, f"__{name}__", _comparison(getattr(operator, name)))
    for name in ("abs", "neg", "pos", "invert"):
        setattr(PythonNumber, f"__{name}__", _unary(getattr(operator, name)))
    for name in ("int", "float", "complex", "hash", "repr", "str", "format", "round", "trunc",
                 "floor", "ceil", "divmod", "rdivmod"):  # fmt: skip
        setattr(PythonNumber, f"__{name}__", _reading(f"__{name}__"))


def _binary(function: Callable[..., object], swapped: bool) -> Callable[[Any, Any], Any]:
    def method(self: PythonNumber, other: object) -> Any:
        if isinstance(other, Tensor):
            return NotImplemented
        if type(other) is SymbolicNumber:
            number = self.symbolic()
            return function(other, number) if swapped else function(number, other)
        operands = (other, self) if swapped else (self, other)
        if type(other) in _NUMBERS or type(other) is PythonNumber:
            return self.computed(function, *operands)
        return function(*self.read_all(operands))

    return method


def _comparison(test: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def method(self: PythonNumber, other: Any) -> Any:
        if isinstance(other, Tensor):
            return NotImplemented
        if type(other) in _NUMBERS or type(other) is PythonNumber:
            return self.outcome(test, self, other)
        return test(self.read(), other)

    return method


def _unary(function: Callable[[Any], object]) -> Callable[[Any], Any]:
    return lambda self: self.computed(function, self)


def _reading(method: str) -> Callable[..., Any]:
    """A method of the number."""

    def call(self: PythonNumber, *args: object) -> Any:
        number = self.read()
        function = getattr(type(number), method, None)
        if function is None:  # such as complex() of an integer
            return complex(number)
        return function(number, *args)

    return call


_attach_methods()
