"""Buffers of a program, and views of them."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from evergrad.core.shapes import contiguous_strides
from evergrad.core.trace import Var

if TYPE_CHECKING:
    from evergrad.core.types import DtypeLike


class Buffer:
    """Memory of a program. ``kind`` is its allocation: ``arena``, ``input``, ``number`` (the
    numbers of a call), ``outside`` (a tensor that the program reads or writes), ``rng_state`` (of a
    generator) or ``output``. ``first`` and ``last`` are the waves between which it is live,
    ``offset`` its position in the arena."""

    __slots__ = (
        "first", "kind", "label", "last", "location", "nbytes", "number", "offset", "owner",
    )  # fmt: skip

    def __init__(
        self, number: int, nbytes: int, kind: str, label: str, owner: object = None
    ) -> None:
        self.number: int = number
        self.nbytes: int = nbytes
        self.kind: str = kind
        self.label: str = label
        self.owner: Any = owner
        self.location: Any = None
        self.first: int = -1
        self.last: int = -1
        self.offset: int = 0

    def used_in(self, wave: int) -> None:
        """Extend the live range by a wave."""
        self.first = wave if self.first < 0 else min(self.first, wave)
        self.last = max(self.last, wave)

    def __repr__(self) -> str:
        return f"<{self.label}: {self.nbytes:,} bytes in waves {self.first}-{self.last}>"


class BufferView:
    """A strided view of a buffer; offset and strides are in bytes."""

    __slots__ = ("buffer", "dtype", "offset", "shape", "strides")

    def __init__(
        self, buffer: Buffer, offset: int, shape: tuple[int, ...], strides: tuple[int, ...],
        dtype: DtypeLike,
    ) -> None:  # fmt: skip
        self.buffer: Buffer = buffer
        self.offset: int = offset
        self.shape: tuple[int, ...] = shape
        self.strides: tuple[int, ...] = strides
        self.dtype: Any = dtype

    @property
    def nbytes(self) -> int:
        """The bytes of the elements."""
        return prod(self.shape) * int(self.dtype.itemsize)


def strides_of(var: Var) -> tuple[int, ...]:
    """The strides in bytes of a value that is contiguous."""
    size = var.type.dtype.itemsize
    return tuple(s * size for s in contiguous_strides(var.type.shape))


def full_view(buffer: Buffer, var: Var) -> BufferView:
    """The view of a contiguous value that fills a buffer."""
    return BufferView(buffer, 0, var.type.shape, strides_of(var), var.type.dtype)


def address_of(array: Any) -> int:
    """The address of the first element of an array."""
    return int(array.__array_interface__["data"][0])
