"""Settings of the engine and of libraries that code reads and writes. Functions that return one are
evaluated before every run and compared with what they returned while the call was traced."""

from __future__ import annotations

import decimal
import inspect
import re
from collections.abc import Callable
from types import FunctionType

from evergrad.core.dtypes import dtype

_READS_SETTING = re.compile(r"_?(get|is|are)_?[a-z]")
_WRITES_SETTING = re.compile(r"(set_|use_|seterr|setbufsize)")
# What a session notices otherwise: modes, generators, threads.
_MODES = frozenset({"set_grad_enabled", "set_default_dtype", "set_num_threads", "set_rng_state",
                    "set_autocast_enabled", "set_detect_anomaly"})  # fmt: skip
_HOLDERS = ("evergrad", "numpy")
_PLAIN = (bool, int, float, str, type(None), dtype)


def names_setting(name: str) -> bool:
    """Whether a name is like that of a function which returns or writes a setting."""
    return any(pattern.match(name) for pattern in (_READS_SETTING, _WRITES_SETTING))


def reads_setting(function: FunctionType) -> bool:
    """Whether a function of the engine or of NumPy returns a setting: ``get_...()``, ``is_...()``
    or ``are_...()`` that can be called without arguments."""
    root = str(function.__module__).partition(".")[0]
    if root not in _HOLDERS or not _READS_SETTING.match(function.__name__):
        return False
    parameters = inspect.signature(function).parameters.values()
    return not any(p.default is p.empty and p.kind < p.VAR_POSITIONAL for p in parameters)


def writes_setting(function: FunctionType) -> bool:
    """Whether a function of the engine or of NumPy writes a setting for the code after it, other
    than a mode that calls restore."""
    root = str(function.__module__).partition(".")[0]
    name = function.__name__
    return root in _HOLDERS and _WRITES_SETTING.match(name) is not None and name not in _MODES


def setting(function: Callable[[], object]) -> object:
    """The value of a setting as an object that can be compared; ``None`` if it is none."""
    value = function()
    if isinstance(value, dict):
        return {key: held for key, held in value.items() if isinstance(held, _PLAIN)}
    return value if isinstance(value, _PLAIN) else None


def decimal_context() -> tuple[object, ...]:
    """How decimals are rounded in this context."""
    context = decimal.getcontext()
    traps = tuple(context.traps.values())
    return (context.prec, context.rounding, context.Emin, context.Emax, context.clamp, traps)
