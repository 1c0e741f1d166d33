"""Debugging switches: a limit on live bytes, and poisoning of released memory.

Each is active from the call on; in a ``with`` statement, until its end.
"""

from __future__ import annotations

import sys
from typing import Any

from evergrad import config
from evergrad.extension import ExtensionPoint
from evergrad.memory.ledger import LEDGER
from evergrad.memory.reports import out_of_memory
from evergrad.memory.tracking import attach, detach, origin

_clear_specializations: ExtensionPoint[[], None] = ExtensionPoint("clear_specializations")


class _Limit:
    """Fails allocations beyond a number of live bytes, as if the system had no more."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes

    def allocated(self, storage: Any) -> None:
        if LEDGER.live > self.nbytes:
            wanted = storage.nbytes
            LEDGER.live -= wanted
            storage.nbytes = 0  # its destructor subtracts nothing
            raise self._error(wanted, str(storage.type))

    def freed(self, storage: object) -> None:
        pass

    def held(self, nbytes: int) -> None:
        if nbytes > 0 and LEDGER.live > self.nbytes:
            raise self._error(nbytes, "a cotangent")

    def used(self, nbytes: int) -> None:
        if LEDGER.live + nbytes > self.nbytes:
            raise self._error(nbytes, "scratch memory")

    def _error(self, wanted: int, what: str) -> MemoryError:
        op = origin(sys._getframe(1)).op
        return out_of_memory(
            f"{op} could not allocate {wanted:,} bytes for {what}: more than the "
            f"{self.nbytes:,} bytes of memory.limit() would be live"
        )


_limit: _Limit | None = None


def _set_limit(limit: _Limit | None) -> None:
    global _limit
    if _limit is not None:
        detach(_limit)
    _limit = limit
    if limit is not None:
        attach(limit, first=True)


class limit:  # noqa: N801 - used like a function
    """Limit the live bytes to ``nbytes``: an allocation beyond raises ``MemoryError``.

    ``limit(None)`` removes the limit. Memory inside a single NumPy call is not counted.

    Args:
        nbytes: the limit, or ``None``

    >>> with eg.memory.limit(eg.memory.stats()["live"] + 1000):
    ...     try:
    ...         eg.ones(1000)
    ...     except MemoryError:
    ...         print("too much")
    too much
    """

    def __init__(self, nbytes: int | None) -> None:
        if nbytes is not None and nbytes < 0:
            raise ValueError(f"a limit of {nbytes} bytes is negative; None means no limit")
        self._former = _limit
        _set_limit(None if nbytes is None else _Limit(nbytes))

    def __enter__(self) -> limit:
        return self

    def __exit__(self, *exc: object) -> None:
        _set_limit(self._former)


class poison:  # noqa: N801 - used like a function
    """Fill memory with 0xA5 when it is released, so that a use after free is detected.

    Results of ops then all come from the pool, small ones too. Slow, and meant for tests; the
    environment variable ``EVERGRAD_POISON=1`` does it from the start.

    Args:
        mode: default ``True``

    >>> with eg.memory.poison():
    ...     eg.ones(2) + 1
    tensor([2., 2.])
    """

    def __init__(self, mode: bool = True) -> None:
        self._former = config.POISON
        self._set(mode)

    def __enter__(self) -> poison:
        return self

    def __exit__(self, *exc: object) -> None:
        self._set(self._former)

    def _set(self, mode: bool) -> None:
        if mode != config.POISON:
            config.POISON = mode
            _clear_specializations()  # their evaluators depend on it
