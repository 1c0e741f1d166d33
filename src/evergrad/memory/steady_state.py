"""Leak detection: every training step must end with the live bytes of the step before it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from evergrad.errors import SteadyStateError
from evergrad.memory.ledger import LEDGER
from evergrad.memory.tracking import Census, Origin, attach, detach

# Live (bytes, buffers) by allocation site and type.
Holdings = dict[tuple[Origin, str], tuple[int, int]]


class Steady:
    """Compares live bytes between steps; see :func:`steady`.

    >>> with eg.memory.steady() as steps:
    ...     for _ in range(3):
    ...         y = eg.ones(3).sum()
    ...         steps.step()
    """

    def __init__(self, items: Iterable[object] | None = None, *, warmup: int = 1) -> None:
        if warmup < 1:
            raise ValueError(f"warmup={warmup}: the first step has none before it to compare with")
        self._items = items
        self._warmup = warmup
        self._census = Census()
        self._steps = 0
        self._live = (0, 0)
        self._holdings: Holdings = {}

    def __enter__(self) -> Steady:
        attach(self._census)
        return self

    def __exit__(self, *exc: object) -> None:
        detach(self._census)

    def __iter__(self) -> Iterator[object]:
        if self._items is None:
            raise TypeError("nothing to iterate over: write `for batch in memory.steady(batches)`")
        with self:
            for item in self._items:
                yield item
                del item
                self.step()

    def step(self) -> None:
        """End a step: raise if other bytes are live than after the one before."""
        live = (LEDGER.live, LEDGER.count)
        holdings = _holdings(self._census)
        self._steps += 1
        if self._steps > self._warmup and live != self._live:
            raise self._error(live, holdings)
        self._live, self._holdings = live, holdings

    def _error(self, live: tuple[int, int], holdings: Holdings) -> SteadyStateError:
        more = live[0] - self._live[0]
        lines = [
            f"step {self._steps} ended with {live[0]:,} live bytes in {live[1]:,} buffers, step "
            f"{self._steps - 1} with {self._live[0]:,} in {self._live[1]:,} ({more:+,} bytes)."
        ]
        changes = _changes(self._holdings, holdings)
        for verb, sign in (("stayed", 1), ("went", -1)):
            for nbytes, count, origin, type in changes:
                if count * sign > 0 or (count == 0 and nbytes * sign > 0):
                    lines.append(
                        f"  {verb}: {abs(nbytes):,} bytes in {abs(count)} x {type}, "
                        f"allocated by {origin.op} at {origin.place}"
                    )
        if len(lines) == 1:
            lines.append("  what went was allocated before steady() was entered.")
        lines.append(
            "  fix: drop references to results of a step (a loss kept for logging keeps its whole "
            "graph alive: keep `loss.item()`), or raise `warmup` if these are allocated once."
        )
        return SteadyStateError("\n".join(lines))


def _holdings(census: Census) -> Holdings:
    found: Holdings = {}
    for entry in list(census.alive.values()):
        key = (entry.origin, entry.type)
        nbytes, count = found.get(key, (0, 0))
        found[key] = (nbytes + entry.nbytes, count + 1)
    return found


def _changes(before: Holdings, after: Holdings) -> list[tuple[int, int, Origin, str]]:
    """(bytes, buffers, origin, type) of what grew or shrank, largest change first."""
    changes = []
    for key in {**before, **after}:
        old, new = before.get(key, (0, 0)), after.get(key, (0, 0))
        if old != new:
            changes.append((new[0] - old[0], new[1] - old[1], *key))
    return sorted(changes, key=lambda change: -abs(change[0]))


def steady(items: Iterable[object] | None = None, *, warmup: int = 1) -> Steady:
    """Raise :class:`~evergrad.errors.SteadyStateError` when a step leaves memory behind.

    ``with memory.steady() as steady:`` and ``steady.step()`` at the end of each step, or ``for
    batch in memory.steady(batches):``. The first ``warmup`` steps (which allocate gradients and
    optimizer state) are not compared; from then on each step must end with exactly the live bytes
    of the one before. The error lists what stayed: bytes, op and allocation site.

    >>> for _ in eg.memory.steady(range(3)):
    ...     x = eg.ones(10).sum()
    """
    return Steady(items, warmup=warmup)
