"""Formatting of tensors: the text of `repr`, and the print options.

This module owns the print options and the formatting of numbers. It works on a NumPy array and a
few strings about the tensor; it depends on no tensors, devices or graphs.

The text is PyTorch's, with `evergrad.` in place of `torch.` in front of a dtype. Lines break where
PyTorch's do, as if the longer name were not there: the two texts can be compared line by line.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from evergrad.core.package_name import package_name
from evergrad.core.types import Array


@dataclass(frozen=True)
class PrintOptions:
    """What `set_printoptions` sets."""

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


_PROFILES = {
    "default": PrintOptions(),
    "short": PrintOptions(precision=2, edgeitems=2),
    "full": PrintOptions(threshold=math.inf),
}
_options = _PROFILES["default"]


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Change how tensors print; what is left out keeps its value.

    A profile ("default", "short", "full") is applied first. `sci_mode` is the exception: without
    it the choice between fixed and scientific notation goes back to automatic.

    >>> set_printoptions(precision=2)
    >>> format_tensor(np.array([1.12345], np.float32), dtype_name="float32")
    'tensor([1.12])'
    >>> set_printoptions(profile="default")
    """
    global _options
    if profile is not None and profile not in _PROFILES:
        raise ValueError(f"profile must be one of {', '.join(_PROFILES)}, but got {profile!r}")
    given = {
        "precision": precision,
        "threshold": threshold,
        "edgeitems": edgeitems,
        "linewidth": linewidth,
    }
    start = _options
    if profile is not None:
        start = dataclasses.replace(_PROFILES[profile], sci_mode=_options.sci_mode)
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    _options = dataclasses.replace(start, **changes, sci_mode=sci_mode)


def print_options() -> PrintOptions:
    """The current options."""
    return _options


def get_printoptions() -> dict[str, object]:
    """The current options by name."""
    return dataclasses.asdict(_options)


@contextmanager
def printoptions(**options: Any) -> Iterator[None]:
    """`set_printoptions` for the length of a `with` block."""
    global _options
    before = _options
    set_printoptions(**options)
    try:
        yield
    finally:
        _options = before


def format_tensor(
    array: Array,
    *,
    dtype_name: str,
    default_dtype: str = "float32",
    requires_grad: bool = False,
    grad_fn: str | None = None,
    prefix: str = "tensor(",
) -> str:
    """The `repr` of a tensor holding `array`.

    The dtype is shown unless the numbers imply it: the default float dtype, the complex dtype of
    that precision, int64 and bool. `grad_fn` is the name of the tensor's node; a leaf shows
    requires_grad instead.
    """
    suffixes: list[str] = []
    if array.size == 0:
        body = "[]"
        if array.ndim != 1:
            suffixes.append(f"size={array.shape}")
        dtype_is_clear = dtype_name == default_dtype
    else:
        body = _layout(array, indent=len(prefix))
        if _options.edgeitems == 0:
            suffixes.append(f"size={array.shape}")
        dtype_is_clear = dtype_name in (
            default_dtype,
            _COMPLEX_OF.get(default_dtype),
            "int64",
            "bool",
        )
    if not dtype_is_clear:
        suffixes.append(f"dtype={package_name()}.{dtype_name}")
    if grad_fn is not None:
        suffixes.append(f"grad_fn=<{grad_fn}>")
    elif requires_grad:
        suffixes.append("requires_grad=True")
    return _append(prefix + body, suffixes, indent=len(prefix))


def format_parts(
    parts: dict[str, Array], suffixes: list[str], *, prefix: str, new_line: bool
) -> str:
    """The `repr` of a tensor made of several arrays, each under its name.

    The suffixes follow the last part, on a line of their own if `new_line` says so.
    """
    indent = len(prefix)
    lines = []
    for name, array in parts.items():
        head = f"{name}=tensor("
        body = _layout(array, indent + len(head)) if array.size else f"[], size={array.shape}"
        lines.append(f"{head}{body})")
    text = prefix + (",\n" + " " * indent).join(lines)
    return _append(text, suffixes, indent, new_line)


_COMPLEX_OF = {
    "float64": "complex128",
    "float32": "complex64",
    "float16": "complex64",
    "bfloat16": "complex64",
}


def _append(text: str, suffixes: list[str], indent: int, new_line: bool = False) -> str:
    """Suffixes go on the last line while they fit, then on lines of their own; `new_line` sends
    the first one there in any case."""
    column = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        length = len(suffix.replace("=evergrad.", "=torch."))
        if new_line or column + length + 2 > _options.linewidth:
            new_line = False
            text += ",\n" + " " * indent + suffix
            column = indent + length
        else:
            text += ", " + suffix
            column += length + 2
    return text + ")"


# Numbers --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Column:
    """Writes numbers of one tensor so that they line up: one notation and one width for all."""

    write: Callable[[Any], str]
    width: int

    def __call__(self, value: object) -> str:
        return self.write(value).rjust(self.width)


def _column_of(shown: Array) -> _Column:
    """Notation and width for the numbers that are shown."""
    if shown.dtype.kind not in "fV":
        width = max((len(str(value)) for value in shown.ravel().tolist()), default=1)
        return _Column(str, max(1, width))
    numbers = shown.astype(np.float64).ravel()
    numbers = numbers[np.isfinite(numbers) & (numbers != 0)]
    if numbers.size == 0:
        return _Column(_write_whole, 1)
    whole = bool(np.all(numbers == np.ceil(numbers)))
    smallest, largest = float(np.abs(numbers).min()), float(np.abs(numbers).max())
    with np.errstate(over="ignore"):
        spread = np.divide(largest, smallest)
    scientific = bool(spread > 1000.0) or largest > 1e8 or (smallest < 1e-4 and not whole)
    if _options.sci_mode is not None:
        scientific = _options.sci_mode
    write = _write_scientific if scientific else _write_whole if whole else _write_fixed
    return _Column(write, max(len(write(value)) for value in numbers.tolist()))


def _write_scientific(value: float) -> str:
    return f"{value:.{_options.precision}e}"


def _write_whole(value: float) -> str:
    """Integers of a float tensor: a bare decimal point marks them."""
    return f"{value:.0f}." if math.isfinite(value) else f"{value:.0f}"


def _write_fixed(value: float) -> str:
    return f"{value:.{_options.precision}f}"


def _complex_column(shown: Array) -> _Column:
    real, imag = _column_of(shown.real), _column_of(shown.imag)

    def write(value: complex) -> str:
        imaginary = imag(value.imag).lstrip() + "j"
        sign = "" if imaginary[0] in "+-" else "+"
        return real(value.real) + sign + imaginary

    # The width counts the imaginary column but the text is not padded to it.
    return _ComplexColumn(write, real.width + imag.width + 1)


class _ComplexColumn(_Column):
    def __call__(self, value: object) -> str:
        return self.write(value)


# Layout ---------------------------------------------------------------------------------------


def _layout(array: Array, indent: int) -> str:
    if array.dtype.kind == "V":  # bfloat16 and the other narrow floats
        array = array.astype(np.float32)
    summarize = array.size > _options.threshold
    shown = _edges(array) if summarize else array
    column = _complex_column(shown) if array.dtype.kind == "c" else _column_of(shown)
    return _nest(array, column, indent, summarize)


def _edges(array: Array) -> Array:
    """The elements a summary shows: the first and last few along every dimension."""
    keep = _options.edgeitems
    for axis, size in enumerate(array.shape):
        if size > 2 * keep:
            picked = np.r_[0:keep, size - keep : size]
            array = array.take(picked, axis=axis)
    return array


def _nest(array: Array, column: _Column, indent: int, summarize: bool) -> str:
    if array.ndim == 0:
        return column(array.item())
    keep = _options.edgeitems
    cut = summarize and len(array) > 2 * keep
    head, tail = (array[:keep], array[len(array) - keep :]) if cut else (array, array[:0])
    if array.ndim == 1:
        words = [column(value) for value in head.tolist()]
        if cut:
            words += [" ..." if keep else "..."]
            words += [column(value) for value in tail.tolist()]
        per_line = max(1, (_options.linewidth - indent) // (column.width + 2))
        lines = [", ".join(words[i : i + per_line]) for i in range(0, len(words), per_line)]
        separator = ",\n" + " " * (indent + 1)
    else:
        lines = [_nest(part, column, indent + 1, summarize) for part in head]
        if cut:
            lines += ["..."]
            lines += [_nest(part, column, indent + 1, summarize) for part in tail]
        separator = "," + "\n" * (array.ndim - 1) + " " * (indent + 1)
    return "[" + separator.join(lines) + "]"
