"""The pool: recycles large buffers, so that a training step does not fault in new pages.

The base of an array from :func:`empty` is a :class:`Block`. Every view of the array, also one in
NumPy code outside, references the block; the destructor of the block returns its memory. The pool
therefore never reuses reachable memory.

Memory is mapped from the system directly, not allocated on the C heap, so that all of it can be
returned. No lock is needed with a GIL: append and pop of a list are atomic.
"""

from __future__ import annotations

import ctypes
import functools
import math
import mmap
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad import config
from evergrad.memory.ledger import LEDGER, exclusive

if TYPE_CHECKING:
    from evergrad.core.types import Array


Memory = mmap.mmap | bytearray

_PAGE_BITS = mmap.PAGESIZE.bit_length() - 1
_SMALL_BITS = 6
# From this size on huge pages are requested: one page fault for a whole huge page.
_HUGE_PAGE = 1 << 21

_BYTE = np.dtype(np.uint8)

# The free lists by size. A list is never replaced, so that allocators can reference it.
_free: dict[int, list[Memory]] = {}

_release: list[Callable[[], None]] = []


class Block(np.ndarray[Any, Any]):
    """Owns one buffer while an array references it as its base."""

    __slots__ = ()

    @exclusive
    def __del__(self) -> None:
        memory: Any = self.base
        if memory.__class__ is not mmap.mmap and memory.__class__ is not bytearray:
            return  # an array that NumPy derived from a block
        if config.POISON:
            self.fill(0xA5)
        size = self.size
        # No other thread runs between the check and the update.
        if LEDGER.pooled + size <= config.POOL_CAP_BYTES:
            LEDGER.pooled += size
            _free[size].append(memory)


_new_block = Block.__new__


@exclusive
def empty(shape: Sequence[int], dtype: np.dtype[np.generic]) -> Array:
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


def allocator(shape: Sequence[int], dtype: np.dtype[np.generic]) -> Callable[[], Array]:
    """A function equal to :func:`empty` of this shape, with the size class computed beforehand."""
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes < config.POOL_MIN_BYTES and not (config.POISON and nbytes):
        return functools.partial(np.empty, shape, dtype)
    size = _size_class(nbytes)
    memories = _free.setdefault(size, [])
    array, new_block = np.ndarray, _new_block

    @exclusive
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
    """Round up to an eighth of the power of two below: at most 12.5 % waste, and sizes repeat."""
    least = _PAGE_BITS if nbytes >= config.POOL_MIN_BYTES else _SMALL_BITS
    bits = max(nbytes.bit_length() - 4, least)
    return -(-nbytes >> bits) << bits


def _obtain(size: int, nbytes: int) -> Memory:
    """New memory from the system, after evicting idle buffers of other sizes at the cap; ``nbytes``
    of it will be used."""
    _free.setdefault(size, [])
    while LEDGER.pooled + size > config.POOL_CAP_BYTES and _drop_idle():
        pass
    try:
        return _map(size, nbytes)
    except MemoryError:
        trim_pool()  # pooled memory may be enough
        return _map(size, nbytes)


def _map(size: int, nbytes: int) -> Memory:
    if size < config.POOL_MIN_BYTES:  # only when poisoned
        return bytearray(size)
    try:
        if sys.platform != "linux":
            return mmap.mmap(-1, size)
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        if size < _HUGE_PAGE:
            # A result is written as a whole, so all its pages are faulted in by one call.
            return mmap.mmap(-1, size, flags=flags | mmap.MAP_POPULATE)
        memory = mmap.mmap(-1, size, flags=flags)
        # Not for the rounding of the size class, which would become resident.
        memory.madvise(mmap.MADV_HUGEPAGE, 0, nbytes)
        return memory
    except OSError as error:
        raise MemoryError(f"the system could not map {size:,} bytes: {error}") from None


def _drop_idle() -> bool:
    """Return one buffer of the size with most idle bytes; false if none is idle."""
    sizes = list(_free.items())
    idle, size = max(((len(memories) * size, size) for size, memories in sizes), default=(0, 0))
    if idle:
        _drop(size)
    return idle > 0


@exclusive
def _drop(size: int) -> int:
    """Return one buffer of this size to the system, if one is left."""
    try:
        _free[size].pop()
    except IndexError:
        return 0
    LEDGER.pooled -= size
    return size


def on_trim(release: Callable[[], None]) -> Callable[[], None]:
    """Have a function called by ``memory.trim()``, which releases memory that can be made again."""
    _release.append(release)
    return release


def trim() -> int:
    """Return all pooled buffers to the system, and the programs of compiled functions, which are
    compiled again when they are called; gives the number of bytes of the buffers.

    Returns the bytes that were given back.

    >>> eg.memory.trim() >= 0
    True
    """
    for release in _release:
        release()
    return trim_pool()


def trim_pool() -> int:
    """Return all pooled buffers to the system; gives their number of bytes."""
    released = 0
    for size, memories in list(_free.items()):
        while memories:
            released += _drop(size)
    _return_free_heap()
    return released


def _return_free_heap() -> None:
    """Return free pages of the C heap, where small arrays are allocated."""
    if sys.platform == "linux":
        trim_heap = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim_heap is not None:
            trim_heap(0)
