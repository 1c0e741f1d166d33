"""Memory that processes share: arenas of nameless files, cut from the front.

An arena is mapped by the process that made it and by those that received its descriptor. Nothing
has a name, so that nothing is left behind; an arena is unmapped with the last array on it. Small
blocks share an arena, because a process may have some hundred descriptors only.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from evergrad.core.types import Array

_ARENA_BYTES = 1 << 20
_ALIGNMENT = 128


class Arena(mmap.mmap):
    """A nameless file that is mapped; ``identity`` is the same in every process."""

    descriptor: int
    identity: tuple[int, int]
    filled: int

    @classmethod
    def on(cls, descriptor: int, nbytes: int) -> Arena:
        """The mapping of a descriptor, which it owns from now on."""
        made = cls(descriptor, nbytes)
        facts = os.fstat(descriptor)
        made.descriptor = descriptor
        made.identity = (facts.st_dev, facts.st_ino)
        made.filled = 0
        weakref.finalize(made, os.close, descriptor).atexit = False
        return made

    def cut(self, nbytes: int) -> memoryview | None:
        """The next bytes, if there are as many."""
        start = -(-self.filled // _ALIGNMENT) * _ALIGNMENT
        if start + nbytes > len(self):
            return None
        self.filled = start + nbytes
        return memoryview(self)[start : self.filled]


class Place(NamedTuple):
    """Where an array stands: its arena and its first byte there."""

    arena: Arena
    start: int


class Arenas:
    """The arenas of this process: the one that is being filled, and those it has received."""

    def __init__(self) -> None:
        self._current: Arena | None = None
        self._owner = os.getpid()
        self._received: weakref.WeakValueDictionary[tuple[int, int], Arena] = (
            weakref.WeakValueDictionary()
        )
        self._lock = threading.Lock()

    def empty(self, nbytes: int) -> Array:
        """So many bytes that other processes can map."""
        with self._lock:
            if self._owner != os.getpid():  # a fork: the parent still fills its arena
                self._current, self._owner = None, os.getpid()
            found = None if self._current is None else self._current.cut(nbytes)
            if found is None:
                size = max(nbytes, _ARENA_BYTES, 1)
                arena = Arena.on(nameless_file("evergrad-shared", size), size)
                found = arena.cut(nbytes)
                if size == _ARENA_BYTES:
                    self._current = arena
        assert found is not None
        return np.frombuffer(found, np.uint8)

    def receive(self, descriptor: int, nbytes: int) -> Arena:
        """The arena of a descriptor that was sent here: one mapping, however often it is sent."""
        facts = os.fstat(descriptor)
        with self._lock:
            known = self._received.get((facts.st_dev, facts.st_ino))
            if known is not None:
                os.close(descriptor)
                return known
            made = Arena.on(descriptor, nbytes)
            self._received[made.identity] = made
            return made


ARENAS = Arenas()


def nameless_file(name: str, nbytes: int) -> int:
    """The descriptor of a file in memory that no folder lists; ``name`` is for tools."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create(name)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, nbytes)
    return descriptor


def place_of(array: Array) -> Place | None:
    """The arena that an array stands in, if it does."""
    arena = _arena_of(array)
    if arena is None:
        return None
    first = np.frombuffer(arena, np.uint8).__array_interface__["data"][0]
    return Place(arena, array.__array_interface__["data"][0] - first)


def is_between_processes(array: Array) -> bool:
    """Whether other processes may write to an array at any time."""
    return _arena_of(array) is not None


def _arena_of(array: Array) -> Arena | None:
    owner: Any = array
    while isinstance(owner, np.ndarray | memoryview):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    return owner if isinstance(owner, Arena) else None
