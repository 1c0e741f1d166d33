"""Who holds how many bytes: the counters behind :mod:`evergrad.memory`.

Owns plain integers. Every storage enters its bytes when it is made and takes them out when it is
freed; nothing here knows what a tensor is. An update is a single augmented assignment without a
call in it, which CPython never interrupts, so no lock is needed and the counts are exact under
threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

OTHER, PARAMETER, GRADIENT, SAVED, OPTIMIZER, DATA = range(6)
CATEGORIES = ("other", "parameter", "gradient", "saved", "optimizer", "data")


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
        # Called with (storage, "alloc" | "free") while a report is being made, else None.
        self.observer: Callable[[Any, str], None] | None = None

    def transient(self, nbytes: int) -> None:
        """Account for scratch memory that exists only during one call."""
        if self.live + nbytes > self.peak:
            self.peak = self.live + nbytes

    def categories(self) -> dict[str, int]:
        named = dict(zip(CATEGORIES[1:], self.by_category[1:], strict=True))
        return {**named, "other": self.live - sum(named.values())}


LEDGER = Ledger()
