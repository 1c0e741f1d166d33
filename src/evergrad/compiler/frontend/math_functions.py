"""Functions of the module ``math`` that take numbers of a session.

They ask for a float in C, by which a number becomes a constant. While a session runs, the places
from which its function takes them hold functions that compute with such numbers instead.
"""

from __future__ import annotations

import math
import weakref
from types import BuiltinFunctionType
from typing import Any

from evergrad.compiler.frontend.identity_guards import MISSING
from evergrad.compiler.frontend.python_state import PythonState
from evergrad.core.python_numbers import MathFunction

_NAMES = (
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos",
    "cosh", "degrees", "erf", "erfc", "exp", "exp2", "expm1", "fabs", "floor", "fmod", "gamma",
    "hypot", "isfinite", "isinf", "isnan", "lgamma", "log", "log10", "log1p", "log2", "pow",
    "radians", "remainder", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
)  # fmt: skip


_FUNCTIONS = {id(function): function for function in (getattr(math, name) for name in _NAMES)}


class MathOfNumbers:
    """Lets the places that a function reaches hold such functions for a time."""

    def __init__(self, state: PythonState) -> None:
        self.slots: list[tuple[dict[Any, Any], Any, Any]] = []
        self.made: list[weakref.ref[MathFunction]] = []
        if state.compares_identity:
            return
        for guard in state.guards:
            held, place = guard.value, guard.place
            is_slot = guard.key is not MISSING and type(place) is dict
            if is_slot and type(held) is BuiltinFunctionType and id(held) in _FUNCTIONS:
                self.slots.append((place, guard.key, held))

    def __enter__(self) -> MathOfNumbers:
        for place, key, held in self.slots:
            place[key] = made = MathFunction(held)
            self.made.append(weakref.ref(made))
        return self

    def __exit__(self, *error: object) -> None:
        for place, key, held in self.slots:
            if type(place.get(key)) is MathFunction:
                place[key] = held

    @property
    def is_kept(self) -> bool:
        """Whether Python keeps one of the functions."""
        return any(reference() is not None for reference in self.made)
