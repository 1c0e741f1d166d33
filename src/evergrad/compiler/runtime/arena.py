"""Arenas: the memory of programs for their intermediate values.

The programs of a compiled function (one per signature, guard and segment) run one at a time, so
they share an arena. It is a range of virtual addresses that is reserved once and resident up to the
largest need: it grows and shrinks without moving, and addresses in argument blocks stay valid.
"""

from __future__ import annotations

import mmap
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from evergrad.compiler.schedule.buffers import address_of
from evergrad.core import dtypes
from evergrad.core.shapes import tensor_type
from evergrad.core.tensor import Array, Tensor, fresh
from evergrad.memory import pool

_ALIGNMENT = 64
# The addresses reserved for an arena and for the scratch memory of kernels; programs that need more
# have their own.
_MOST_RESERVED = 1 << 36
_SCRATCH_RESERVED = 1 << 28
_HUGE_PAGE = 1 << 21
# Linux's flag, which the module mmap names from Python 3.13 on.
_MAP_NORESERVE = 0x4000


class Arena:
    """Memory of one program: ``nbytes`` bytes from ``address`` on, as an array in ``bytes``; held
    while the object lives."""

    __slots__ = ("address", "bytes", "nbytes", "owner")

    def __init__(self, memory: Array, nbytes: int, owner: SharedArena | None) -> None:
        shift = -address_of(memory) % _ALIGNMENT
        self.nbytes: int = nbytes
        self.address: int = address_of(memory) + shift
        self.bytes: Array = memory[shift : shift + nbytes]
        # What counts it in the ledger: a tensor of its own, or the arena that it shares.
        self.owner: Tensor | SharedArena | None = owner

    @property
    def is_shared(self) -> bool:
        return isinstance(self.owner, SharedArena)

    @property
    def scratch_memory(self) -> Callable[[int], Any] | None:
        """Allocates the scratch memory of runs: shared like the arena."""
        return self.owner.scratch if isinstance(self.owner, SharedArena) else None

    def __del__(self) -> None:
        # By its attribute: at the end of a process the names of this module are gone.
        returned = getattr(getattr(self, "owner", None), "returned", None)
        if returned is not None:
            returned.append(self.nbytes)


def arena_memory(nbytes: int) -> Array:
    """Memory of the pool with room for so many aligned bytes."""
    try:
        return pool.empty((nbytes + _ALIGNMENT,), np.dtype(np.uint8))
    except MemoryError:
        raise MemoryError(
            f"out of memory: the compiled program needs an arena of {nbytes:,} bytes for its "
            "intermediate values; nothing was written.\n"
            "  fix: a smaller batch. explain() lists the live buffers at the peak."
        ) from None


def private_arena(nbytes: int) -> Arena:
    """An arena that nothing else uses, counted in the ledger with ``nbytes``."""
    arena = Arena(arena_memory(nbytes), nbytes, None)
    arena.owner = fresh(arena.bytes, tensor_type((nbytes,), dtypes.uint8))
    return arena


class SharedArena:
    """The arena of the programs of a compiled function.

    The ledger counts the bytes of the largest program that is alive. Between two runs the arena
    holds nothing of value. All methods, and the runs of its programs, are serialized by the step
    lock; only the destructor of an :class:`Arena` may run at any time, and it defers its effect to
    the next call of a method.
    """

    def __init__(self) -> None:
        self.memory: Any = None
        self.mapping: Any = None
        self.scratch_memory: Any = None
        # The number of living programs by need; and needs of programs that have died since.
        self.needs: Counter[int] = Counter()
        self.returned: list[int] = []
        self.counted: Tensor | None = None
        # Serializes the runs of its programs where these belong to several compiled functions.
        self.lock: threading.RLock = threading.RLock()

    @cached_property
    def for_derivatives(self) -> SharedArena:
        """The arena of the derivatives of all programs, which run outside of the step lock."""
        return SharedArena()

    @property
    def nbytes(self) -> int:
        """The bytes counted in the ledger: the need of the largest program."""
        return 0 if self.counted is None else self.counted._storage.nbytes

    def arena_for(self, nbytes: int) -> Arena:
        """Memory for a program: the shared range, grown to its need; a private arena if the system
        reserves no such range."""
        self.settle()
        if self.memory is None and nbytes:
            self._reserve()
        if self.memory is None or nbytes > self.memory.nbytes:
            return private_arena(nbytes)
        self._resize(max(nbytes, self.nbytes))
        self.needs[nbytes] += 1
        return Arena(self.memory, nbytes, self)

    def scratch(self, nbytes: int) -> Any:
        """Memory for the kernels of a run, which holds nothing between two of them. As all scratch
        memory it is not in the ledger."""
        if self.scratch_memory is None or nbytes > self.scratch_memory.nbytes:
            return np.empty(nbytes, np.uint8)
        return self.scratch_memory[:nbytes]

    def _reserve(self) -> None:
        self.mapping = _reserved()
        if self.mapping is not None:
            whole = np.frombuffer(self.mapping, np.uint8)
            self.memory, self.scratch_memory = np.split(whole, [whole.nbytes - _SCRATCH_RESERVED])

    def settle(self) -> None:
        """Return to the system what programs that have died alone needed."""
        while self.returned:
            self.needs[self.returned.pop()] -= 1
        self.needs = +self.needs
        self._resize(max(self.needs, default=0))
        if not self.needs and self.mapping is not None:
            self.mapping.madvise(mmap.MADV_DONTNEED)  # scratch memory, too

    def trim(self) -> None:
        """As :meth:`settle`, of derivatives too unless one is running in another thread."""
        self.settle()
        derivatives: SharedArena | None = self.__dict__.get("for_derivatives")
        if derivatives is not None and derivatives.lock.acquire(blocking=False):
            try:
                derivatives.trim()
            finally:
                derivatives.lock.release()

    def _resize(self, nbytes: int) -> None:
        """Count so many bytes in the ledger; those beyond are returned to the system."""
        before = self.nbytes
        if nbytes == before:
            return
        self.counted = None
        try:
            self._count(nbytes)
        except BaseException:  # beyond a memory limit
            self._count(before)
            raise
        start, end = _pages(nbytes), _pages(before)
        if start < end:
            self.mapping.madvise(mmap.MADV_DONTNEED, start, end - start)
            self.mapping.madvise(mmap.MADV_NOHUGEPAGE, start, end - start)
        elif nbytes >= _HUGE_PAGE:
            self.mapping.madvise(mmap.MADV_HUGEPAGE, 0, nbytes)

    def _count(self, nbytes: int) -> None:
        if nbytes:
            self.counted = fresh(self.memory[:nbytes], tensor_type((nbytes,), dtypes.uint8))


def _pages(nbytes: int) -> int:
    return -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE


def _reserved() -> object:
    """A range of addresses without memory behind it; ``None`` where there are none."""
    if sys.platform != "linux":
        return None
    memory = os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE
    size = min(_MOST_RESERVED, memory) + _SCRATCH_RESERVED
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    try:
        made = mmap.mmap(-1, size, flags=flags)
        # Huge pages only for what is needed: the rest would become resident with the last one.
        made.madvise(mmap.MADV_NOHUGEPAGE)
        return made
    except (OSError, MemoryError):  # address space is limited, or memory must not be overcommitted
        return None
