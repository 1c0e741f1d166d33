"""Bytes over time, drawn with characters."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from evergrad.memory.reports import size

_BLOCKS = " ▁▂▃▄▅▆▇█"
_PLAIN = "    ####"  # for terminals without the blocks: a half is a whole


def draw_timeline(
    alive: Sequence[float], *, width: int = 72, height: int = 8, blocks: str | None = None,
    told: Callable[[Any], str] = size, axis: str = "wave",
) -> str:  # fmt: skip
    """The bytes alive in each wave as columns, the most of several waves where they share one.

    Other values than bytes are written as ``told`` says, over another ``axis``.
    """
    if not alive or not max(alive):
        return "nothing is kept between kernels"
    levels = _levels() if blocks is None else blocks
    most = max(alive)
    columns = _columns(alive, width)
    label = max(len(told(most)), len(told(0)))
    lines = []
    for row in reversed(range(height)):
        cells = (_cell(value * height / most - row, levels) for value in columns)
        name = told(most) if row == height - 1 else ""
        lines.append(f"{name:>{label}} |{''.join(cells)}".rstrip())
    lines.append(f"{told(0):>{label}} +{'-' * len(columns)}")
    if axis:
        ends = f"{axis} 0{len(alive) - 1:>{max(len(columns) - 6, 1)}}"
        lines.append(f"{'':>{label}}  {ends}")
    return "\n".join(lines)


def _columns(alive: Sequence[float], width: int) -> list[float]:
    count = min(width, len(alive))
    edges = [number * len(alive) // count for number in range(count + 1)]
    return [max(alive[a:b]) for a, b in pairwise(edges)]


def _cell(filled: float, levels: str) -> str:
    """One character, filled from below by this part."""
    last = len(levels) - 1
    return levels[max(0, min(last, round(filled * last)))]


def _levels() -> str:
    """Blocks, if standard output can write them."""
    try:
        _BLOCKS.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return _PLAIN
    return _BLOCKS
