"""Recycles large buffers, so that a step does not pay for fresh pages again and again.

An array from :func:`empty` stands on a :class:`Block`. Every view of the array, also one handed to
NumPy code outside, keeps the block alive; when the last one is gone the block gives its memory
back. The pool therefore never hands out memory that anything can still reach.

Memory is mapped from the system directly, not taken from the C heap: giving it back is then exact.
No lock is needed: taking from and putting into a list are atomic.
"""

from __future__ import annotations

import ctypes
import functools
import math
import mmap
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from evergrad import config
from evergrad.memory.ledger import LEDGER

Array = np.ndarray[Any, Any]
Memory = mmap.mmap | bytearray

_PAGE_BITS = mmap.PAGESIZE.bit_length() - 1
_SMALL_BITS = 6
# Where one fault can bring a whole huge page, the system is asked for it.
_HUGE_PAGE = 1 << 21

_BYTE = np.dtype(np.uint8)

# Released memory by size. A list stays where it is once made, so that it can be held elsewhere.
_free: dict[int, list[Memory]] = {}


class Block(np.ndarray[Any, Any]):
    """Owns one piece of memory for as long as an array stands on it."""

    __slots__ = ()

    def __del__(self) -> None:
        memory: Any = self.base
        if memory.__class__ is not mmap.mmap and memory.__class__ is not bytearray:
            return  # not a block itself but an array that NumPy derived from one
        if config.POISON:
            self.fill(0xA5)
        size = self.size
        # Nothing between the question and the answer lets another thread run.
        if LEDGER.pooled + size <= config.POOL_CAP_BYTES:
            LEDGER.pooled += size
            _free[size].append(memory)


_new_block = Block.__new__


def empty(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """An uninitialised array; from the pool if it is large."""
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes < config.POOL_MIN_BYTES and not (config.POISON and nbytes):
        return np.empty(shape, dtype)
    size = _size_class(nbytes)
    try:
        memory = _free[size].pop()
        LEDGER.pooled -= size
    except (KeyError, IndexError):
        memory = _obtain(size, nbytes)
    return np.ndarray(shape, dtype, _new_block(Block, size, _BYTE, memory))


def allocator(shape: Sequence[int], dtype: np.dtype[Any]) -> Callable[[], Array]:
    """A function that gives what :func:`empty` would, with all questions answered beforehand."""
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes < config.POOL_MIN_BYTES and not (config.POISON and nbytes):
        return functools.partial(np.empty, shape, dtype)
    size = _size_class(nbytes)
    memories = _free.setdefault(size, [])
    array, new_block = np.ndarray, _new_block

    def allocate() -> Array:
        try:
            memory = memories.pop()
            LEDGER.pooled -= size
        except IndexError:
            memory = _obtain(size, nbytes)
        return array(shape, dtype, new_block(Block, size, _BYTE, memory))

    return allocate


def copy(array: Array) -> Array:
    """A contiguous copy; from the pool if it is large."""
    out = empty(array.shape, array.dtype)
    np.copyto(out, array)
    return out


def _size_class(nbytes: int) -> int:
    """Round up to an eighth of the power of two below: at most 12.5 % is lost, and sizes repeat."""
    least = _PAGE_BITS if nbytes >= config.POOL_MIN_BYTES else _SMALL_BITS
    bits = max(nbytes.bit_length() - 4, least)
    return -(-nbytes >> bits) << bits


def _obtain(size: int, nbytes: int) -> Memory:
    """New memory from the system, for which idle buffers of other sizes make room; ``nbytes`` of it
    will be used."""
    _free.setdefault(size, [])
    while LEDGER.pooled + size > config.POOL_CAP_BYTES and _drop_idle():
        pass
    try:
        return _map(size, nbytes)
    except MemoryError:
        trim()  # what the pool keeps may be just what is missing
        return _map(size, nbytes)


def _map(size: int, nbytes: int) -> Memory:
    if size < config.POOL_MIN_BYTES:  # only when poisoned
        return bytearray(size)
    try:
        if sys.platform != "linux":
            return mmap.mmap(-1, size)
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        if size < _HUGE_PAGE:
            # A result is written whole, so one call may as well bring all its pages.
            return mmap.mmap(-1, size, flags=flags | mmap.MAP_POPULATE)
        memory = mmap.mmap(-1, size, flags=flags)
        # Not for what the size was rounded up by: a huge page would be there as a whole.
        memory.madvise(mmap.MADV_HUGEPAGE, 0, nbytes)
        return memory
    except OSError as error:
        raise MemoryError(f"the system has no {size:,} bytes to give: {error}") from None


def _drop_idle() -> bool:
    """Give back one buffer of the size that has most bytes idle; false if none is idle."""
    sizes = list(_free.items())
    idle, size = max(((len(memories) * size, size) for size, memories in sizes), default=(0, 0))
    if idle:
        _drop(size)
    return idle > 0


def _drop(size: int) -> int:
    """Give back one buffer of this size, unless another thread was faster."""
    try:
        _free[size].pop()
    except IndexError:
        return 0
    LEDGER.pooled -= size
    return size


def trim() -> int:
    """Give all pooled buffers back to the system; returns how many bytes that were."""
    released = 0
    for size, memories in list(_free.items()):
        while memories:
            released += _drop(size)
    _return_free_heap()
    return released


def _return_free_heap() -> None:
    """Small arrays come from the C heap, which keeps pages too."""
    if sys.platform == "linux":
        trim_heap = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim_heap is not None:
            trim_heap(0)
