"""The programs that a compiled function keeps: the most recently used ones, within limits."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Generic, Protocol, TypeVar

from evergrad import config


class Kept(Protocol):
    """What is kept: a program, or an object that holds some."""

    @property
    def nbytes(self) -> int:
        """The bytes that are released with it; may change while it is kept."""
        ...


K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Kept)


class ProgramLRU(Generic[K, V]):
    """Programs by key, the least recently used first; at most ``max_programs`` of them with at most
    ``max_bytes`` in all, but always the last one that was put.

    Both limits may be set at any time, and hold from the next ``put`` on. What is evicted is
    returned, for the caller to drop its other references; the memory is released with the last
    one. A program that is running is referenced by its caller until the run has ended.
    """

    def __init__(self, max_programs: int | None = None, max_bytes: int | None = None) -> None:
        self.max_programs: int = config.MAX_PROGRAMS if max_programs is None else max_programs
        self.max_bytes: int = config.MAX_PROGRAM_BYTES if max_bytes is None else max_bytes
        if self.max_programs < 1:
            raise ValueError(
                f"a compiled function keeps at least one program, not {self.max_programs}"
            )
        self._kept: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, key: K) -> bool:
        return key in self._kept

    def __iter__(self) -> Iterator[K]:
        """The keys, least recently used first."""
        return iter(list(self._kept))

    @property
    def nbytes(self) -> int:
        """The bytes of all programs."""
        return sum([value.nbytes for value in self._kept.values()])

    def get(self, key: K) -> V | None:
        """The program of a key, which becomes the most recently used one."""
        value = self._kept.get(key)
        if value is not None:
            self._kept.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> list[V]:
        """Keep a program as the most recently used one; evicts others beyond the limits and returns
        them."""
        self._kept[key] = value
        self._kept.move_to_end(key)
        return self.enforce()

    def enforce(self) -> list[V]:
        """Evict the least recently used programs until the limits hold; returns them."""
        evicted: list[V] = []
        nbytes = self.nbytes
        while len(self._kept) > 1:
            if len(self._kept) <= self.max_programs and nbytes <= self.max_bytes:
                break
            _, oldest = self._kept.popitem(last=False)
            nbytes -= oldest.nbytes
            evicted.append(oldest)
        return evicted

    def evict(self, key: K) -> V | None:
        """Remove a program; returns it."""
        return self._kept.pop(key, None)

    def clear(self) -> list[V]:
        """Remove all programs; returns them."""
        evicted = list(self._kept.values())
        self._kept.clear()
        return evicted
