"""Static memory planning: one arena for all intermediate buffers, sized before the first run.

A buffer of the arena is live from the wave that writes it first to the last wave that reads it;
buffers whose live ranges overlap get disjoint offsets. :mod:`.schedule.verify_plan` checks a plan
independently of the planner.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evergrad.compiler.schedule.buffers import Buffer
from evergrad.extension import ExtensionPoint

ALIGNMENT = 64
_plan_fragment: ExtensionPoint[[object], str] = ExtensionPoint("plan_fragment")


class Plan:
    """The memory plan of a program: the size of its arena, offsets and live ranges."""

    def __init__(self, buffers: Sequence[Buffer], waves: int, peak: int | None = None) -> None:
        """``peak`` is given if the buffers have their offsets already."""
        self.buffers: list[Buffer] = [
            b for b in buffers if b.kind == "arena" and b.nbytes and b.first >= 0
        ]
        self.waves = waves
        self.outside: list[Buffer] = [b for b in buffers if b.kind != "arena"]
        self.peak: int = _assign_offsets(self.buffers) if peak is None else peak

    @property
    def lower_bound(self) -> int:
        """The most bytes that are live in one wave: no plan can be smaller."""
        return max(self.timeline(), default=0)

    def timeline(self) -> list[int]:
        """The bytes live in each wave."""
        live = [0] * self.waves
        for b in self.buffers:
            for wave in range(b.first, b.last + 1):
                live[wave] += _aligned(b.nbytes)
        return live

    def at_peak(self) -> list[Buffer]:
        """The buffers that are live in the wave with the most bytes, the largest first."""
        live = self.timeline()
        if not live:
            return []
        wave = live.index(max(live))
        found = [b for b in self.buffers if b.first <= wave <= b.last]
        return sorted(found, key=lambda b: -b.nbytes)

    def _repr_html_(self) -> str:
        return _plan_fragment(self)

    def __repr__(self) -> str:
        count = len(self.buffers)
        return f"<memory plan: {self.peak:,} bytes, {count} buffers, {self.waves} waves>"

    def __str__(self) -> str:
        lines = [
            f"arena: {self.peak:,} bytes in {len(self.buffers)} buffers, {self.waves} waves "
            f"(at least {self.lower_bound:,} are live at once)"
        ]
        lines += [f"  {b.nbytes:>14,}  {b.label}" for b in self.at_peak()[:10]]
        return "\n".join(lines)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _assign_offsets(buffers: Sequence[Buffer]) -> int:
    """Best-fit allocation, the largest buffer first; the size of the arena."""
    chosen = sorted(buffers, key=lambda b: (-b.nbytes, b.first))
    first, last = (np.array([getattr(b, end) for b in chosen]) for end in ("first", "last"))
    begin, end = np.zeros(len(chosen), np.int64), np.zeros(len(chosen), np.int64)
    for number, b in enumerate(chosen):
        wanted = _aligned(b.nbytes)
        overlapping = (first[:number] <= b.last) & (last[:number] >= b.first)
        begins = begin[:number][overlapping]
        order = np.argsort(begins, kind="stable")
        # The start of the free gap before each buffer that is live at the same time; then the end.
        floors = np.maximum.accumulate(np.concatenate(([0], end[:number][overlapping][order])))
        gaps = begins[order] - floors[:-1]
        fitting = np.flatnonzero(gaps >= wanted)
        chosen_gap = fitting[np.argmin(gaps[fitting])] if len(fitting) else -1
        b.offset = int(floors[chosen_gap])
        begin[number], end[number] = b.offset, b.offset + wanted
    return int(end.max(initial=0))
