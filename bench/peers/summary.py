"""The table of a run in a few numbers: geometric means of ratios."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from bench.peers.cells import Cell, Result
from bench.peers.contenders import REFERENCE, SUBJECT

EAGER = "evergrad eager"
TINY = ("tiny_mlp", "lenet1", "gpt_tiny", "smallop")


def geometric_mean(ratios: Iterable[float | None]) -> float | None:
    """Of those that are known; None if none is."""
    known = [math.log(ratio) for ratio in ratios if ratio is not None]
    return math.exp(sum(known) / len(known)) if known else None


def text(cells: Sequence[Cell]) -> str:
    """The means for each number of threads, one line each."""
    lines = ["Geometric means"]
    for threads in sorted({cell.threads for cell in cells}, reverse=True):
        chosen = [cell for cell in cells if cell.threads == threads]
        tiny = [cell for cell in chosen if cell.workload in TINY]
        ratios = [cell.ratio() for cell in chosen]
        means = [
            ("best peer / evergrad compiled", geometric_mean(ratios)),
            ("the least of these", min((r for r in ratios if r is not None), default=None)),
            ("on the tiny ones", geometric_mean(cell.ratio() for cell in tiny)),
            ("torch eager / evergrad eager", geometric_mean(_ratio(c, EAGER) for c in chosen)),
            (
                "memory of the process, evergrad compiled / torch eager",
                geometric_mean(_ratio(c, SUBJECT, "resident_bytes", inverse=True) for c in chosen),
            ),
        ]
        entries = [f"{name} {mean:.2f}" for name, mean in means if mean is not None]
        lines.append(f"threads {threads}: {'; '.join(entries)}" if entries else "")
    return "\n".join(line for line in lines if line)


def _ratio(cell: Cell, name: str, field: str = "seconds", *, inverse: bool = False) -> float | None:
    """The reference's time (or bytes) over those of another peer."""
    reference, own = (
        _value(cell.results.get(REFERENCE), field),
        _value(cell.results.get(name), field),
    )
    if not reference or not own:
        return None
    return own / reference if inverse else reference / own


def _value(result: Result | None, field: str) -> float | None:
    return None if result is None else getattr(result, field)
