"""The table of how compiled functions served the pairs.

Python runs no call of the columns ``whole`` (one program) and ``paths`` (programs around decisions
by the data), once the paths are known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

COLUMNS = ("whole", "paths", "traced", "segments", "eager", "unknown", "different")


def table(outcomes: Iterable[str]) -> str:
    """One line: number and share of each outcome."""
    counts = Counter(outcomes)
    total = sum(counts.values())
    shown = [c for c in COLUMNS if counts[c] or c != "unknown"]
    parts = [f"{c} {counts[c]} ({counts[c] / max(total, 1):.1%})" for c in shown]
    return f"{total} pairs: " + ", ".join(parts)
