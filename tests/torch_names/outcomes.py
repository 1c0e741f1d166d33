"""What a program does under a library: its value, or the class of its error; and its warnings."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

import evergrad

Program = Callable[[Any], Any]


def described(value: Any, ns: Any) -> Any:
    """A value without what tells the libraries apart: tensors by type, strides, flags, elements."""
    if isinstance(value, ns.Tensor):
        flags = value.requires_grad, value.is_leaf, tuple(value.shape), tuple(value.stride())
        return "tensor", str(value.dtype).partition(".")[2], *flags, described(value.tolist(), ns)
    if isinstance(value, dict):
        return {str(key): described(member, ns) for key, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [described(member, ns) for member in value]
    if isinstance(value, float):
        return float(np.format_float_positional(value, 5, fractional=False))
    if isinstance(value, complex):
        return complex(described(value.real, ns), described(value.imag, ns))
    if isinstance(value, (bool, int, str, bytes, type(None))):
        return value
    return str(value).replace(ns.__name__, "torch")


def outcome(program: Program, ns: Any) -> Any:
    """``("value", ...)`` or ``("error", class)``, and the categories of the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result: Any = ("value", described(program(ns), ns))
        except Exception as error:
            result = ("error", error)
    return result, sorted({w.category.__name__ for w in caught})


def same(program: Program, torch: ModuleType, with_warnings: bool = True) -> None:
    """Check that both libraries give the same, or refuse with errors that one ``except`` catches,
    and warn of the same kinds of things."""
    theirs, their_warnings = outcome(program, torch)
    ours, our_warnings = outcome(program, evergrad)
    if theirs[0] == "error":
        assert ours[0] == "error", f"PyTorch: {theirs[1]!r}; here: {ours[1]}"
        assert isinstance(ours[1], type(theirs[1])), f"PyTorch: {theirs[1]!r}; here: {ours[1]!r}"
    else:
        if ours[0] == "error":
            raise ours[1]
        assert ours[1] == theirs[1]
    if with_warnings:
        assert our_warnings == their_warnings
