"""Functions of numbers, such as ``math.cos`` and ``float``, on the numbers of a traced call.

CPython gives them the value of a run-time number, on which a program would be guarded. While a call
is traced their names refer to stand-ins, which compute another run-time number instead.
"""

from __future__ import annotations

import math
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any

from evergrad.compiler.frontend.recording.append_recorder import AppendRecorder
from evergrad.compiler.frontend.recording.impure import StandIn, is_stand_in
from evergrad.compiler.frontend.state.raw_reads import is_a
from evergrad.core.deferred_numbers import deferred_item
from evergrad.core.functionalize import SymbolicNumber
from evergrad.core.python_numbers import NUMBERS, DeferredNumber, PythonNumber, value_of
from evergrad.core.tensor import Tensor

if TYPE_CHECKING:
    from evergrad.core.types import Args


# Built-in functions that have stand-ins where they are only called.
BUILTINS = {"len": len, "float": float, "int": int, "round": round, "type": type, "id": id,
            "min": min, "max": max}  # fmt: skip
# What schedules of learning rates compute with.
OF_SCHEDULES = ("cos", "pow", "exp", "floor", "sqrt")
_NUMBERS = NUMBERS | {bool, PythonNumber}
_OF_A_TRACE = (PythonNumber, AppendRecorder, SymbolicNumber, DeferredNumber)
_STAND_INS = frozenset({PythonNumber, DeferredNumber, AppendRecorder})


def is_number_function(value: object) -> bool:
    return is_a(value, BuiltinFunctionType) and value.__self__ is math


def _as_number(value: Any) -> object:
    """A number that the program computes as one that it reads from the data."""
    return value.number() if type(value) is DeferredNumber else value


def class_of(value: Any) -> type:
    """``type()``, of what stands in for another object the type of that."""
    if type(value) is SymbolicNumber:
        return float
    if type(value) in _STAND_INS or is_stand_in(value):
        return value.__class__ if type(value) in _STAND_INS else type(value.held)
    return type(value)


class NumberFunction(StandIn):
    """Replaces a function of numbers while a session runs."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        recorder = self.recorder
        if len(args) == 1 and not kwargs:
            if self.held is type:
                return class_of(args[0])
            if self.held is id and recorder is not None and recorder.is_recording():
                return recorder.identity(args[0])
            if self.held is float or self.held is int:
                number = self.deferred(args[0])
                if type(number) is DeferredNumber and number.kind is self.held:
                    return number
                args = (number,)
        for arg in args:
            if type(arg) in _OF_A_TRACE:
                if recorder is not None and recorder.is_recording() and not kwargs:
                    return self.computed(tuple(map(_as_number, args)))
                break
        return self.held(*args, **kwargs)

    def deferred(self, value: Any) -> object:
        """The number in a tensor, as long as it need not be read; other values as they are."""
        number = None
        if isinstance(value, Tensor) and value.numel() == 1:
            number = deferred_item(value)
        return value if number is None else number

    def computed(self, args: Args) -> Any:
        first = args[0]
        if type(first) is AppendRecorder and self.held is len:
            return first.length()
        if type(first) is SymbolicNumber and self.held is float:
            return first
        numbers = [arg for arg in args if type(arg) is PythonNumber]
        is_choice = self.held is min or self.held is max
        if is_choice and len({type(value_of(arg)) for arg in args}) > 1:
            return self.held(*args)  # the type of the result depends on the values
        if numbers and all(type(arg) in _NUMBERS for arg in args):
            return numbers[0].computed(self.held, *args)
        return self.held(*args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.held, name)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, self.held)

    def __subclasscheck__(self, other: Any) -> bool:
        return issubclass(other, self.held)
