"""Where every value of a program lies: one arena, known before the first run.

A :class:`Buffer` that only the program sees lives from the wave that makes it to the last wave that
reads it; :class:`Plan` gives each its offset. :mod:`.schedule.verify_plan` checks the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

ALIGNMENT = 64


class Buffer:
    """Memory of a program. ``home`` says where it is: ``arena``, ``input``, ``outside`` (a tensor
    that the program reads or writes), ``stream`` (a generator's state), ``output`` or
    ``constant``."""

    __slots__ = (
        "first",
        "home",
        "label",
        "last",
        "location",
        "nbytes",
        "number",
        "offset",
        "owner",
    )

    def __init__(self, number: int, nbytes: int, home: str, label: str, owner: Any = None) -> None:
        self.number = number
        self.nbytes = nbytes
        self.home = home
        self.label = label
        self.owner = owner
        self.location: Any = None
        self.first = -1
        self.last = -1
        self.offset = 0

    def used_in(self, wave: int) -> None:
        self.first = wave if self.first < 0 else min(self.first, wave)
        self.last = max(self.last, wave)

    def __repr__(self) -> str:
        return f"<{self.label}: {self.nbytes:,} bytes in waves {self.first}-{self.last}>"


class Plan:
    """The memory of a program: how large its arena is, and who lives where and when."""

    def __init__(self, buffers: Sequence[Buffer], waves: int, peak: int | None = None) -> None:
        """``peak`` tells that the buffers have their places already."""
        self.buffers = [b for b in buffers if b.home == "arena" and b.nbytes and b.first >= 0]
        self.waves = waves
        self.outside = [b for b in buffers if b.home != "arena"]
        self.peak = _lay_out(self.buffers) if peak is None else peak

    @property
    def lower_bound(self) -> int:
        """The most bytes that are alive in one wave: no plan can do with less."""
        return max(self.timeline(), default=0)

    def timeline(self) -> list[int]:
        """The bytes alive in each wave."""
        alive = [0] * self.waves
        for b in self.buffers:
            for wave in range(b.first, b.last + 1):
                alive[wave] += _aligned(b.nbytes)
        return alive

    def at_peak(self) -> list[Buffer]:
        """Who lives in the wave with the most bytes, the largest first."""
        alive = self.timeline()
        if not alive:
            return []
        wave = alive.index(max(alive))
        found = [b for b in self.buffers if b.first <= wave <= b.last]
        return sorted(found, key=lambda b: -b.nbytes)

    def __str__(self) -> str:
        lines = [
            f"arena: {self.peak:,} bytes in {len(self.buffers)} buffers, {self.waves} waves "
            f"(at least {self.lower_bound:,} are alive at once)"
        ]
        lines += [f"  {b.nbytes:>14,}  {b.label}" for b in self.at_peak()[:10]]
        return "\n".join(lines)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _lay_out(buffers: Sequence[Buffer]) -> int:
    """Give each buffer an offset, the largest first, in the tightest gap; the size of the arena."""
    chosen = sorted(buffers, key=lambda b: (-b.nbytes, b.first))
    first, last = (np.array([getattr(b, end) for b in chosen]) for end in ("first", "last"))
    begin, end = np.zeros(len(chosen), np.int64), np.zeros(len(chosen), np.int64)
    for number, b in enumerate(chosen):
        wanted = _aligned(b.nbytes)
        near = (first[:number] <= b.last) & (last[:number] >= b.first)
        begins = begin[:number][near]
        order = np.argsort(begins, kind="stable")
        # Where the gap before each of those that live at the same time begins, and behind all.
        floors = np.maximum.accumulate(np.concatenate(([0], end[:number][near][order])))
        gaps = begins[order] - floors[:-1]
        fitting = np.flatnonzero(gaps >= wanted)
        place = fitting[np.argmin(gaps[fitting])] if len(fitting) else -1
        b.offset = int(floors[place])
        begin[number], end[number] = b.offset, b.offset + wanted
    return int(end.max(initial=0))
