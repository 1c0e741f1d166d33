"""The ledger: counters of live bytes behind :mod:`evergrad.memory`.

Owns plain integers. Every storage adds its bytes when it is allocated and subtracts them when it is
freed; nothing here depends on tensors. An update is a single augmented assignment without a call in
it, which an interpreter with a GIL never interrupts, so no lock is needed and the counts are exact
under threads. On a free-threaded interpreter functions that update counters take a lock
(:func:`exclusive`).
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeVar

from evergrad.extension import ExtensionPoint

OTHER, PARAMETER, GRADIENT, SAVED, OPTIMIZER, DATA = range(6)
CATEGORIES = ("other", "parameter", "gradient", "saved", "optimizer", "data")

# Memory that is live only during one backward pass is counted from this size on.
LEDGER_MIN_BYTES = 4096

P = ParamSpec("P")
R = TypeVar("R")

HAS_GIL: bool = getattr(sys, "_is_gil_enabled", lambda: True)()
# Reentrant: a destructor may run inside another update.
LOCK = threading.RLock()


def exclusive(function: Callable[P, R]) -> Callable[P, R]:
    """A function that updates counters, as it is; without a GIL, under the ledger's lock."""
    if HAS_GIL:
        return function

    @functools.wraps(function)
    def locked(*args: P.args, **kwargs: P.kwargs) -> R:
        with LOCK:
            return function(*args, **kwargs)

    return locked


class Observer(Protocol):
    """Callbacks for every change, after the counters were updated and before the peak is.

    It may reject an increase by undoing it and raising.
    """

    def allocated(self, storage: object) -> None: ...
    def freed(self, storage: object) -> None: ...
    def held(self, nbytes: int) -> None:
        """More (or fewer) bytes of pending cotangents, which have no storage."""

    def used(self, nbytes: int) -> None:
        """A call used scratch memory of this size, on top of the live bytes."""


_fragment: ExtensionPoint[[object], str] = ExtensionPoint("memory_fragment")


class Ledger:
    """Live, peak and pooled bytes, and live bytes by category."""

    __slots__ = ("by_category", "count", "live", "observer", "peak", "pooled")

    def __init__(self) -> None:
        self.live: int = 0
        self.peak: int = 0
        self.pooled: int = 0
        self.count: int = 0
        # OTHER is the remainder of the named categories, so that the common case costs nothing.
        self.by_category: list[int] = [0] * len(CATEGORIES)
        self.observer: Observer | None = None

    @exclusive
    def hold(self, nbytes: int) -> None:
        """Add memory without a storage, or subtract it (negative)."""
        self.live += nbytes
        if self.observer is not None:
            self.observer.held(nbytes)
        if self.live > self.peak:
            self.peak = self.live

    @exclusive
    def transient(self, nbytes: int) -> None:
        """Account for scratch memory that exists only during one call."""
        if self.observer is not None:
            self.observer.used(nbytes)
        if self.live + nbytes > self.peak:
            self.peak = self.live + nbytes

    def __repr__(self) -> str:
        return f"<memory ledger: {self.live:,} bytes live, peak {self.peak:,}>"

    def _repr_html_(self) -> str:
        return _fragment(None)

    def categories(self) -> dict[str, int]:
        """Live bytes by category; the sum is all live bytes."""
        named = dict(zip(CATEGORIES[1:], self.by_category[1:], strict=True))
        return {**named, "other": self.live - sum(named.values())}


LEDGER = Ledger()
