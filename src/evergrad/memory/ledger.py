"""Who holds how many bytes: the counters behind :mod:`evergrad.memory`.

Owns plain integers. Every storage enters its bytes when it is made and takes them out when it is
freed; nothing here knows what a tensor is. An update is a single augmented assignment without a
call in it, which the interpreter (with its global lock) never interrupts, so no lock is needed and
the counts are exact under threads.
"""

from __future__ import annotations

from typing import Any, Protocol

OTHER, PARAMETER, GRADIENT, SAVED, OPTIMIZER, DATA = range(6)
CATEGORIES = ("other", "parameter", "gradient", "saved", "optimizer", "data")

# Memory that lives only during one backward is counted from this size on.
LEDGER_MIN_BYTES = 4096


class Observer(Protocol):
    """Is told of every change, after the counters have changed and before the peak has.

    It may refuse an increase by raising, after taking it back.
    """

    def allocated(self, storage: Any) -> None: ...
    def freed(self, storage: Any) -> None: ...
    def held(self, nbytes: int) -> None:
        """More (or fewer) bytes wait in backward, in no storage."""

    def used(self, nbytes: int) -> None:
        """A call had scratch memory of this size, on top of what is live."""


class Ledger:
    """Live, peak and pooled bytes, and live bytes by category."""

    __slots__ = ("by_category", "count", "live", "observer", "peak", "pooled")

    def __init__(self) -> None:
        self.live = 0
        self.peak = 0
        self.pooled = 0
        self.count = 0
        # OTHER is what the named categories leave over, so that the common case costs nothing.
        self.by_category = [0] * len(CATEGORIES)
        self.observer: Observer | None = None

    def hold(self, nbytes: int) -> None:
        """Enter memory that stands in no storage, or take it out (negative)."""
        self.live += nbytes
        if self.observer is not None:
            self.observer.held(nbytes)
        if self.live > self.peak:
            self.peak = self.live

    def transient(self, nbytes: int) -> None:
        """Account for scratch memory that exists only during one call."""
        if self.observer is not None:
            self.observer.used(nbytes)
        if self.live + nbytes > self.peak:
            self.peak = self.live + nbytes

    def categories(self) -> dict[str, int]:
        """Live bytes by category, which add up to all live bytes."""
        named = dict(zip(CATEGORIES[1:], self.by_category[1:], strict=True))
        return {**named, "other": self.live - sum(named.values())}


LEDGER = Ledger()
