"""Addresses of arrays, and arrays over the memory of others."""

from __future__ import annotations

from ctypes import addressof, c_char
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.compiler.schedule.buffers import BufferView, address_of

if TYPE_CHECKING:
    from evergrad.core.tensor import Array


def start_of(array: Any) -> int:
    """The address of an array, by the cheapest way that works."""
    try:
        return addressof(c_char.from_buffer(array))
    except (TypeError, ValueError):  # empty or read-only
        return address_of(array)


def array_at(base: Array, start: int, view: BufferView) -> Array:
    """An array with the shape and strides of a view, at an address in the memory of ``base``."""
    return np.asarray(_Window(base, start, view)).view(view.dtype.np)


class _Window:
    """Memory of an array with another shape and strides."""

    def __init__(self, base: Array, start: int, view: BufferView) -> None:
        self.base = base
        self.__array_interface__ = {
            "shape": view.shape, "strides": view.strides, "data": (start, False), "version": 3,
            "typestr": f"|V{view.dtype.itemsize}",
        }  # fmt: skip
