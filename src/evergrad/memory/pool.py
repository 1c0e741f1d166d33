"""Recycles large buffers, so that a step does not pay for fresh pages again and again.

An array from :func:`empty` stands on a :class:`Block`. Every view of the array, also one handed to
NumPy code outside, keeps the block alive; when the last one is gone the block gives its memory
back. The pool therefore never hands out memory that anything can still reach.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from evergrad import config
from evergrad.memory.ledger import LEDGER

Array = np.ndarray[Any, Any]

_ALIGNMENT = 64
_GRAIN = 4096

_free: dict[int, list[Array]] = {}


def _size_class(nbytes: int) -> int:
    """Round up to an eighth of the power of two below: at most 12.5 % is lost, and sizes repeat."""
    step = max(_GRAIN, 1 << max(nbytes.bit_length() - 4, 0))
    return -(-nbytes // step) * step


class Block:
    """Owns one buffer for as long as an array stands on it."""

    __slots__ = ("__array_interface__", "memory")

    def __init__(self, memory: Array, shape: tuple[int, ...], typestr: str) -> None:
        self.memory = memory
        self.__array_interface__ = {
            "shape": shape,
            "typestr": typestr,
            "data": (memory.ctypes.data, False),
            "version": 3,
        }

    def __del__(self) -> None:
        memory = self.memory
        size = memory.nbytes
        if config.POISON:
            memory.fill(0xA5)
        if LEDGER.pooled + size <= config.POOL_CAP_BYTES:
            LEDGER.pooled += size
            _free.setdefault(size, []).append(memory)


def _aligned(size: int) -> Array:
    raw = np.empty(size + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + size]


def empty(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """An uninitialised array; from the pool if it is large."""
    nbytes = dtype.itemsize
    for extent in shape:
        nbytes *= extent
    if nbytes < config.POOL_MIN_BYTES and not (config.POISON and nbytes):
        return np.empty(shape, dtype)
    size = _size_class(nbytes)
    try:
        memory = _free[size].pop()
        LEDGER.pooled -= size
    except (KeyError, IndexError):
        memory = _allocate(size)
    flat = np.asarray(Block(memory, (size,), "|u1"))
    return flat[:nbytes].view(dtype).reshape(shape)


def _allocate(size: int) -> Array:
    try:
        return _aligned(size)
    except MemoryError:
        trim()  # what the pool keeps may be just what is missing
        return _aligned(size)


def trim() -> int:
    """Give all pooled buffers back to the system; returns how many bytes that were."""
    released = 0
    for size, blocks in list(_free.items()):
        while blocks:
            try:
                blocks.pop()
            except IndexError:
                break
            LEDGER.pooled -= size
            released += size
    _return_free_pages()
    return released


def _return_free_pages() -> None:
    trim_heap = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim_heap is not None:
        trim_heap(0)
