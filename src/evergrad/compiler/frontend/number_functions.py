"""Functions of numbers, such as ``math.cos`` and ``float``, on the numbers of a traced call.

CPython gives them the value of a run-time number, on which a program would be guarded. While a call
is traced their names refer to stand-ins, which compute another run-time number instead.
"""

from __future__ import annotations

import math
from types import BuiltinFunctionType
from typing import Any

from evergrad.compiler.frontend.append_recorder import AppendRecorder
from evergrad.compiler.frontend.impure import StandIn
from evergrad.core.deferred_numbers import deferred_item
from evergrad.core.functionalize import SymbolicNumber
from evergrad.core.python_numbers import NUMBERS, DeferredNumber, PythonNumber
from evergrad.core.tensor import Tensor

# Built-in functions that have stand-ins where they are only called.
BUILTINS = {"len": len, "float": float, "int": int, "round": round}
# What schedules of learning rates compute with.
OF_SCHEDULES = ("cos", "pow", "exp", "floor", "sqrt")
_NUMBERS = NUMBERS | {bool, PythonNumber}


def is_number_function(value: Any) -> bool:
    return isinstance(value, BuiltinFunctionType) and value.__self__ is math


class NumberFunction(StandIn):
    """Replaces a function of numbers while a session runs."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        recorder = self.recorder
        if len(args) == 1 and self.held is float and not kwargs:
            number = self.deferred(args[0])
            if number is not None:
                return number
        for arg in args:
            if type(arg) in (PythonNumber, AppendRecorder, SymbolicNumber):
                if recorder is not None and recorder.is_recording() and not kwargs:
                    return self.computed(args)
                break
        return self.held(*args, **kwargs)

    def deferred(self, value: Any) -> DeferredNumber | None:
        """``float()`` of a tensor, or of a number in one, as long as it need not be read."""
        if isinstance(value, Tensor) and value.numel() == 1:
            value = deferred_item(value)
        is_float = type(value) is DeferredNumber and value.kind is float
        return value if is_float else None

    def computed(self, args: tuple[Any, ...]) -> Any:
        first = args[0]
        if type(first) is AppendRecorder and self.held is len:
            return first.length()
        if type(first) is SymbolicNumber and self.held is float:
            return first
        numbers = [arg for arg in args if type(arg) is PythonNumber]
        if numbers and all(type(arg) in _NUMBERS for arg in args):
            return numbers[0].computed(self.held, *args)
        return self.held(*args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.held, name)

    def __instancecheck__(self, instance: Any) -> bool:
        return isinstance(instance, self.held)

    def __subclasscheck__(self, other: Any) -> bool:
        return issubclass(other, self.held)
