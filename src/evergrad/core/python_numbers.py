"""Numbers of Python state that a traced function changes: expressions evaluated before each run.

A counter (``self.step += 1``) is read, computed with and stored by Python. While a call is traced,
its place holds a :class:`PythonNumber`, which computes as the number does and records how. With
tensors it is an input of the program; a comparison is guarded on by its outcome, and any other read
by the exact value. Outside of its trace it computes as the number it was.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.functionalize import (
    FunctionalizingTrace,
    SymbolicNumber,
    data_number,
    functionalizing_trace,
    read_source,
)
from evergrad.core.shapes import tensor_type
from evergrad.core.tensor import Tensor, fresh

if TYPE_CHECKING:
    from evergrad.core.types import Leaves

# Evaluates to a number of Python, from the state before a run.
Expression = Callable[[], Any]

# The types of numbers that may be inputs of a program, those of NumPy included.
NUMBERS = frozenset({int, float, np.float64, np.float32, np.int64, np.int32})
_RESULTS = NUMBERS | {bool, np.bool_}
# Integers up to this size are exact as float64.
_EXACT = 2**53


# The source of numbers that are known after a run only.
LATE = ("late", None)


class Expressions:
    """The expressions of a traced call: inputs and results of its program, and guards. ``values``
    are those of the call that runs."""

    def __init__(self) -> None:
        self.expressions: list[Expression] = []
        self.values: Leaves = []
        self.guards: list[tuple[Expression, Any]] = []
        # The numbers among the arguments of the call that runs, by position.
        self.arguments: dict[int, Any] = {}
        self.uses_numpy = False
        # Whether a number is read from what is no place of Python state, such as a seed.
        self.reads_state = False
        # The values that Python has read, with the places of the numbers they depend on.
        self.exact: list[tuple[Any, frozenset[Any]]] = []
        # The calls after a run whose results are only stored or returned (clocks), those that were
        # made for the run, the expressions of what they return, and whether such a number is read.
        self.late_calls: list[Callable[[], object]] = []
        self.late_made: int = 0
        self.late: dict[int, Expression] = {}
        self.reads_late = False
        # The sources of numbers that are known after a run too, the results of the run that is
        # assembled, and the sources of numbers that have to be known before: Python decides by
        # them, they are inputs of the program, or computing with them may fail.
        self.late_sources: frozenset[object] = frozenset()
        self.computed: Sequence[Any] = ()
        self.needed: set[object] = set()

    def __getitem__(self, index: int) -> Any:
        if index not in self.late:
            return self.values[index]
        while self.late_made < len(self.late_calls):
            self.late_made += 1
            self.late_calls[self.late_made - 1]()
        return self.late[index]()

    @property
    def are_used(self) -> bool:
        """Whether there are numbers besides those in slots."""
        return bool(self.arguments) or self.reads_state

    def add(self, number: PythonNumber) -> int:
        """The index of a number, which is evaluated once however often it is used."""
        for index, expression in enumerate(self.expressions):
            if expression is number.expression:
                return index
        self.expressions.append(number.expression)
        self.values.append(number.value)
        self.needed |= number.sources
        if number.is_late:
            value = number.value
            self.expressions[-1] = lambda: value
            self.late[len(self.values) - 1] = number.expression
        return len(self.values) - 1

    def guard(self, expression: Expression, value: object) -> None:
        self.guards.append((expression, exactly(value)))

    def evaluate(self) -> bool:
        """Evaluate all for a run; whether the guards hold."""
        if not (self.guards or self.expressions):
            return True
        if self.uses_numpy:  # Python has to run where NumPy would warn
            with np.errstate(all="raise"):
                return self.evaluate_all()
        return self.evaluate_all()

    def evaluate_all(self) -> bool:
        self.late_made = 0
        try:
            for expression, expected in self.guards:
                value = expression()
                if value is not expected[1] and exactly(value) != expected:
                    return False
            self.values = [expression() for expression in self.expressions]
        except (ArithmeticError, ValueError, TypeError):  # Python has to run, and raises it
            return False
        return True


def exactly(value: object) -> object:
    """A number in a form that is equal for the same number only."""
    if isinstance(value, np.generic):
        return type(value), value.tobytes()
    return type(value), value.hex() if type(value) is float else value


# Among so many guards a number is not guarded on twice.
_LAST_GUARDS = 16


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

    @property
    def is_late(self) -> bool:
        """Whether it is known after a run only."""
        table = self.table
        if not table.late_sources.isdisjoint(self.sources):
            return True
        return bool(table.late_calls) and LATE in self.sources

    def is_current(self) -> bool:
        """Whether its trace is recording, in this thread."""
        return functionalizing_trace() is self.trace

    def read(self) -> Any:
        """The number itself, which Python reads."""
        if self.is_current():
            self.trace.note_exact_read(self)
            self.table.reads_late = self.table.reads_late or self.is_late
            self.table.needed |= self.sources
            if not self.is_guarded():
                self.table.exact.append((exactly(self.value), self.sources))
                self.table.guard(self.expression, self.value)
        return self.value

    def is_guarded(self) -> bool:
        """Whether one of the last guards is on its value: the engine reads a size more often the
        first time, and the path is the same."""
        last = self.table.guards[-_LAST_GUARDS:]
        return any(guarded is self.expression for guarded, _ in last)

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
        numbers = [o for o in operands if type(o) is PythonNumber]
        sources = frozenset().union(*(number.sources for number in numbers))
        if not _is_total(function, operands):
            self.table.needed |= sources
        return PythonNumber(
            self.trace, self.table, value, expression_of(function, operands), sources
        )

    def read_all(self, operands: Any) -> Leaves:
        return [o.read() if type(o) is PythonNumber else o for o in operands]

    def outcome(self, test: Callable[..., object], *operands: object) -> object:
        """The outcome of a test of numbers, which is guarded on: NumPy's for numbers of NumPy."""
        if self.is_current() and all(o.is_guarded() for o in operands if type(o) is PythonNumber):
            return test(*map(value_of, operands))  # it follows
        found = self.computed(test, *operands)
        if type(found) is not PythonNumber:
            return found
        self.table.reads_late = self.table.reads_late or found.is_late
        self.table.needed |= found.sources
        self.table.guard(found.expression, found.value)
        return found.value

    def symbolic(self) -> object:
        """This number as a float64 input of the program; itself where that is not exact."""
        if not self.is_current() or type(self.value) not in NUMBERS or self.is_late:
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

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> object:
        return np.asarray(self.read(), dtype)

    def __array_ufunc__(
        self, ufunc: Callable[..., object], method: str, *inputs: object, **options: object
    ) -> object:
        are_numbers = all(type(value_of(operand)) in NUMBERS for operand in inputs)
        if method == "__call__" and are_numbers and not options:
            return self.computed(ufunc, *inputs)
        return getattr(ufunc, method)(*self.read_all(inputs), **options)

    def __pow__(self, other: object, modulus: object = None) -> object:
        if modulus is not None:
            return pow(*self.read_all((self, other, modulus)))
        return _binary(operator.pow, swapped=False)(self, other)

    def __bool__(self) -> bool:
        return bool(self.outcome(bool, self))


class DeferredNumber:
    """The number in a tensor that a session computes, before Python reads it; arithmetic with it is
    in :mod:`~evergrad.core.deferred_numbers`."""

    __slots__ = ("__weakref__", "kind", "tensor")

    def __init__(self, tensor: Tensor, kind: type) -> None:
        self.tensor: Tensor = tensor
        self.kind: type = kind
        trace = functionalizing_trace()
        if trace is not None:
            trace.note_number(self)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return self.kind  # for isinstance() in the traced function

    def read(self) -> Any:
        """The number itself, which Python reads."""
        number = self.number()
        return number.read() if type(number) is PythonNumber else number

    def number(self) -> Any:
        """The number as one that a program reads from the data while it runs; itself, if Python
        has to read it."""
        found = data_number(self.tensor)
        return self.tensor.array().item() if found is None else found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and not hasattr(self.kind, name):
            raise AttributeError(f"'{self.kind.__name__}' object has no attribute {name!r}")
        return getattr(self.read(), name)

    def __reduce__(self) -> Any:
        return self.kind, (self.read(),)


def number_at(
    trace: FunctionalizingTrace,
    container: Expressions | dict[str, object],
    key: int | str,
    part: int | None = None,
) -> float | SymbolicNumber:
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


# Functions of numbers that do not fail, and those that do not if they divide by a constant.
_TOTAL = frozenset({operator.add, operator.sub, operator.mul, operator.neg, operator.pos,
                    operator.abs, operator.and_, operator.or_, operator.xor, min, max})  # fmt: skip
_DIVISIONS = frozenset({operator.truediv, operator.floordiv, operator.mod})


def _is_total(function: Callable[..., object], operands: Sequence[object]) -> bool:
    """Whether a function has a result for all numbers of the types of its operands."""
    last = operands[-1]
    is_constant = type(last) in (int, float)
    if function is round:
        return len(operands) == 2 and type(last) is int and last >= 0
    if function in _DIVISIONS:
        return is_constant and bool(last)
    return function in _TOTAL


def _is_small(value: int) -> bool:
    return -_EXACT <= value <= _EXACT


def constant(value: object) -> Expression:
    return lambda: value


def expression_of(function: Callable[..., object], operands: Sequence[object]) -> Expression:
    """A function of numbers and constants as an expression."""
    if len(operands) == 2:
        left, right = operands
        if type(right) is not PythonNumber:
            first = left.expression if type(left) is PythonNumber else constant(left)
            return lambda: function(first(), right)
        second = right.expression
        if type(left) is not PythonNumber:
            return lambda: function(left, second())
        other = left.expression
        return lambda: function(other(), second())
    parts = [o.expression if type(o) is PythonNumber else constant(o) for o in operands]
    return lambda: function(*[part() for part in parts])


def value_of(operand: object) -> object:
    return operand.value if type(operand) is PythonNumber else operand


def plain_attributes(value: Any) -> object:
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
    for name in ("int", "float", "complex", "hash", "repr", "str", "divmod", "rdivmod"):
        setattr(PythonNumber, f"__{name}__", _reading(f"__{name}__"))
    for kind in (PythonNumber, DeferredNumber, SymbolicNumber):
        setattr(kind, "__format__", formatted)  # noqa: B010 - declared nowhere


def _binary(function: Callable[..., object], swapped: bool) -> Callable[[Any, Any], Any]:
    def method(self: PythonNumber, other: object) -> object:
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


def _comparison(test: Callable[[object, object], object]) -> Callable[[Any, Any], Any]:
    def method(self: PythonNumber, other: object) -> object:
        if isinstance(other, Tensor):
            return NotImplemented
        if type(other) is SymbolicNumber and self.is_current():
            other = input_number(self.table, other) or other
        if type(other) in _RESULTS or type(other) is PythonNumber:
            return self.outcome(test, self, other)
        return test(self.read(), other)

    return method


def formatted(number: Any, spec: str) -> str:
    """A number as text: a mark of it where that is only put out, else its value, which is read."""
    trace = functionalizing_trace()
    if trace is not None and trace.marks_text is not None:
        frame: Any = sys._getframe(1)
        while frame is not None and str(frame.f_globals.get("__name__")).startswith("evergrad."):
            frame = frame.f_back  # a tensor is formatted as the number in it
        mark = None if frame is None else trace.marks_text(number, spec, frame)
        if mark is not None:
            return mark
    return format(number.read(), spec)


def _unary(function: Callable[..., object]) -> Callable[..., object]:
    return lambda self, *args: self.computed(function, self, *args)


def _reading(method: str) -> Callable[..., object]:
    """A method of the number."""

    def call(self: PythonNumber, *args: object) -> Any:
        number = self.read()
        function = getattr(type(number), method, None)
        if function is None:  # such as complex() of an integer
            return complex(number)
        return function(number, *args)

    return call


_attach_methods()
