"""The extent of a dimension that differs from example to example."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NoReturn

import numpy as np

from evergrad.core.tensor import RAGGED_SIZE, Array, Tensor

_next_number = itertools.count(1).__next__


class RaggedSize:
    """An extent without a number. Two are equal if they are one: of tensors with common offsets."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number: int = _next_number()

    def __repr__(self) -> str:
        return f"j{self.number}"

    def _refuse(self, *others: object) -> NoReturn:
        raise RuntimeError(
            f"the extent {self} of a ragged dimension is not a number: it differs from example to "
            "example.\n  fix: work on values() or unbind(), or use to_padded_tensor(padding)."
        )

    __add__: Callable[..., NoReturn] = _refuse
    __radd__: Callable[..., NoReturn] = _refuse
    __sub__: Callable[..., NoReturn] = _refuse
    __rsub__: Callable[..., NoReturn] = _refuse
    __mul__: Callable[..., NoReturn] = _refuse
    __rmul__: Callable[..., NoReturn] = _refuse
    __floordiv__: Callable[..., NoReturn] = _refuse
    __rfloordiv__: Callable[..., NoReturn] = _refuse
    __truediv__: Callable[..., NoReturn] = _refuse
    __mod__: Callable[..., NoReturn] = _refuse
    __neg__: Callable[..., NoReturn] = _refuse
    __lt__: Callable[..., NoReturn] = _refuse
    __le__: Callable[..., NoReturn] = _refuse
    __gt__: Callable[..., NoReturn] = _refuse
    __ge__: Callable[..., NoReturn] = _refuse
    __index__: Callable[..., NoReturn] = _refuse
    __int__: Callable[..., NoReturn] = _refuse
    __float__: Callable[..., NoReturn] = _refuse


def ragged_size_of(offsets: Tensor, lengths: Tensor | None) -> RaggedSize:
    """The extent that goes with these offsets: the same each time."""
    held = (offsets if lengths is None else lengths).__dict__
    found: RaggedSize = held.setdefault(RAGGED_SIZE, RaggedSize())
    return found


class Cells:
    """Where the elements of each example stand: for each its example, its place in there, and its
    number among all values."""

    __slots__ = ("count", "example", "longest", "number", "place")

    def __init__(self, offsets: Tensor, lengths: Tensor | None) -> None:
        starts = offsets.array()
        extents = np.diff(starts) if lengths is None else lengths.array()
        self.count: int = len(extents)
        self.longest: int = int(extents.max()) if self.count else 0
        self.example: Array = np.repeat(np.arange(self.count), extents)
        begins = np.cumsum(extents) - extents
        self.place: Array = np.arange(len(self.example)) - begins[self.example]
        self.number: Array = starts[:-1][self.example] + self.place
