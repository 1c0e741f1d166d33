"""Numbers of Python state that a traced function changes: expressions evaluated before each run.

A counter (``self.step += 1``) is read, computed with and stored by Python. While a call is traced,
its place holds a :class:`PythonNumber`, which computes as the number does and records how. With
tensors it is an input of the program; a comparison is guarded on by its outcome, and any other read
by the exact value. Outside of its trace it computes as the number it was.
"""

from __future__ import annotations

import math
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

# The types of numbers that may be inputs of a program, those of NumPy included.
NUMBERS = frozenset({int, float, np.float64, np.float32, np.int64, np.int32})
_RESULTS = NUMBERS | {bool, np.bool_}
# Integers up to this size are exact as float64.
_EXACT = 2**53


class Expressions:
    """The expressions of a traced call: inputs and results of its program, and guards. ``values``
    are those of the call that runs."""

    def __init__(self) -> None:
        self.expressions: list[Expression] = []
        self.values: list[Any] = []
        self.guards: list[tuple[Expression, Any]] = []
        # The numbers among the arguments of the call that runs, by position.
        self.arguments: dict[int, Any] = {}
        self.uses_numpy = False
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
        if self.uses_numpy:  # Python has to run where NumPy would warn
            with np.errstate(all="raise"):
                return self.evaluate_all()
        return self.evaluate_all()

    def evaluate_all(self) -> bool:
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
    if isinstance(value, np.generic):
        return type(value), value.tobytes()
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
        if isinstance(value, np.generic):
            table.uses_numpy = True
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
            with np.errstate(all="raise"):
                value = function(*values)
        except FloatingPointError:  # NumPy warns
            return function(*self.read_all(operands))
        except (ArithmeticError, ValueError):  # the function may catch it
            self.read_all(operands)
            raise
        if type(value) not in _RESULTS:
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
        if not self.is_current() or type(self.value) not in NUMBERS:
            return self.read()
        kind = int if isinstance(self.value, (int, np.integer)) else float
        if kind is int and not self.outcome(_is_small, self):
            return self.read()
        number = number_at(self.trace, self.table, self.table.add(self))
        if type(number) is SymbolicNumber:
            number.kind = kind
        return number

    def __index__(self) -> int:
        return operator.index(self.read())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.read(), name)

    def __reduce__(self) -> Any:
        return type(self.value), (self.read(),)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self.read(), dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        are_numbers = all(type(value_of(operand)) in NUMBERS for operand in inputs)
        if method == "__call__" and are_numbers and not options:
            return self.computed(ufunc, *inputs)
        return getattr(ufunc, method)(*self.read_all(inputs), **options)

    def __pow__(self, other: object, modulus: object = None) -> Any:
        if modulus is not None:
            return pow(*self.read_all((self, other, modulus)))
        return _binary(operator.pow, swapped=False)(self, other)

    def __bool__(self) -> bool:
        return self.outcome(bool, self)


class DeferredNumber:
    """The number in a tensor that a session computes, before Python reads it; arithmetic with it is
    in :mod:`~evergrad.core.deferred_numbers`."""

    __slots__ = ("__weakref__", "kind", "tensor")

    def __init__(self, tensor: Tensor, kind: type) -> None:
        self.tensor = tensor
        self.kind = kind
        trace = functionalizing_trace()
        if trace is not None:
            trace.note_number(self)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return self.kind  # for isinstance() in the traced function

    def read(self) -> Any:
        """The number itself, which Python reads."""
        return self.tensor.array().item()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and not hasattr(self.kind, name):
            raise AttributeError(f"'{self.kind.__name__}' object has no attribute {name!r}")
        return getattr(self.read(), name)

    def __reduce__(self) -> Any:
        return self.kind, (self.read(),)


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


def input_number(table: Expressions, number: SymbolicNumber) -> PythonNumber | None:
    """An input of the program, such as a float argument, as a number of Python; ``None`` for a
    number that is computed."""
    trace, sources = functionalizing_trace(), number.sources
    if trace is None or sources is None or not is_input(number):
        return None
    source = sources[0]
    if isinstance(source[0], Expressions):
        return None
    known = frozenset([(id(source[0]), "input")])
    return PythonNumber(trace, table, number.value, lambda: read_source(source), known)


def is_input(number: SymbolicNumber) -> bool:
    """Whether a number is an input of the program, and not computed by it."""
    trace = functionalizing_trace()
    return trace is not None and any(known is number for *_, known in trace.numbers.values())


def _is_small(value: int) -> bool:
    return -_EXACT <= value <= _EXACT


def constant(value: object) -> Expression:
    return lambda: value


def value_of(operand: object) -> Any:
    return operand.value if type(operand) is PythonNumber else operand


def plain_attributes(value: Any) -> Any:
    """Attributes of an op without numbers of the trace."""
    if type(value) in (PythonNumber, DeferredNumber):
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
    for name, function in (
        ("round", round), ("trunc", math.trunc), ("floor", math.floor), ("ceil", math.ceil)
    ):  # fmt: skip
        setattr(PythonNumber, f"__{name}__", _unary(function))
    for name in ("int", "float", "complex", "hash", "repr", "str", "format", "divmod", "rdivmod"):
        setattr(PythonNumber, f"__{name}__", _reading(f"__{name}__"))


def _binary(function: Callable[..., Any], swapped: bool) -> Callable[[Any, Any], Any]:
    def method(self: PythonNumber, other: Any) -> Any:
        if isinstance(other, Tensor) or type(other) is DeferredNumber:
            return NotImplemented
        if type(other) is SymbolicNumber:
            number = self.symbolic()
            return function(other, number) if swapped else function(number, other)
        operands = (other, self) if swapped else (self, other)
        if type(other) in _RESULTS or type(other) is PythonNumber:
            return self.computed(function, *operands)
        return function(*self.read_all(operands))

    return method


def _comparison(test: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def method(self: PythonNumber, other: Any) -> Any:
        if isinstance(other, Tensor):
            return NotImplemented
        if type(other) is SymbolicNumber and self.is_current():
            other = input_number(self.table, other) or other
        if type(other) in _RESULTS or type(other) is PythonNumber:
            return self.outcome(test, self, other)
        return test(self.read(), other)

    return method


def _unary(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *args: self.computed(function, self, *args)


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
