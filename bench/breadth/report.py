"""Tables and a plot of what was measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.breadth.contenders import SUBJECTS

EAGER, COMPILED = SUBJECTS
_PEERS = ("torch", "torch.compile")
Entry = dict[str, Any]


def seconds(entry: Entry, name: str) -> float | None:
    """The time of a contender's call, if its results agreed."""
    found: float | None = entry["results"].get(name, {}).get("seconds")
    return found


def eager_ratio(entry: Entry) -> float | None:
    """PyTorch's eager time over ours: above 1 evergrad is faster."""
    return _ratio(seconds(entry, "torch"), seconds(entry, EAGER))


def compiled_ratio(entry: Entry) -> float | None:
    """The best peer's time over that of the compiled step."""
    peers = [s for s in (seconds(entry, name) for name in _PEERS) if s is not None]
    return _ratio(min(peers, default=None), seconds(entry, COMPILED))


def _ratio(theirs: float | None, ours: float | None) -> float | None:
    return theirs / ours if theirs and ours else None


def table(entries: list[Entry], contenders: Iterable[str]) -> str:
    """One line for each workload, by family."""
    names = list(contenders)
    lines = [
        f"{'workload':24}" + "".join(f"{name:>19}" for name in names) + f"{'eager':>8}{'best':>8}"
    ]
    family = ""
    for entry in entries:
        if entry["family"] != family:
            family = entry["family"]
            lines.append(f"-- {family}")
        cells = "".join(f"{_cell(entry['results'].get(name, {})):>19}" for name in names)
        ratios = "".join(
            f"{'' if r is None else f'{r:.2f}':>8}"
            for r in (eager_ratio(entry), compiled_ratio(entry))
        )
        lines.append(f"{entry['workload']:24}{cells}{ratios}")
    return "\n".join(lines)


def _cell(result: Entry) -> str:
    found = result.get("seconds")
    if found is None:
        return str(result.get("status", "-"))
    return f"{found * 1e3:.3f} ms" if found >= 1e-3 else f"{found * 1e6:.1f} us"


def summary(entries: list[Entry]) -> str:
    """Geometric means, the losers, and all that failed."""
    lines = [
        _mean("torch / evergrad, eager", entries, eager_ratio),
        _mean("best of PyTorch / evergrad compiled", entries, compiled_ratio),
    ]
    for entry in entries:
        for name, result in entry["results"].items():
            if result.get("status") != "ok":
                reason = result.get("reason", "")
                lines.append(f"{entry['workload']}, {name}: {result.get('status')}: {reason}")
    return "\n".join(lines)


def _mean(words: str, entries: list[Entry], ratio: Any) -> str:
    found = [(r, e["workload"]) for e in entries if (r := ratio(e)) is not None]
    if not found:
        return f"{words}: nothing measured"
    mean = statistics.geometric_mean(r for r, _ in found)
    slow = sorted((r, name) for r, name in found if r < 1)
    losers = ", ".join(f"{name} {r:.2f}" for r, name in slow)
    return (
        f"{words}: {mean:.2f} in the geometric mean, {len(found) - len(slow)} of {len(found)} at "
        f"least 1.0; below: {losers or 'none'}"
    )


def plot(entries: list[Entry], path: Path) -> None:
    """Both ratios of every workload, as bars on a logarithmic axis."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [e for e in entries if eager_ratio(e) or compiled_ratio(e)]
    figure, axes = pyplot.subplots(figsize=(9, 1 + 0.16 * len(shown)), layout="constrained")
    places = range(len(shown))
    for ratio, label, colour, shift in (
        (compiled_ratio, "best of PyTorch / evergrad compiled", "#2a6f97", -0.2),
        (eager_ratio, "PyTorch eager / evergrad eager", "#e9a03b", 0.2),
    ):
        values = [ratio(entry) or math.nan for entry in shown]
        axes.barh([p + shift for p in places], [v - 1 for v in values], 0.4, 1, label=label,
                  color=colour)  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(list(places), [entry["workload"] for entry in shown], fontsize=6)
    axes.set_ylim(len(shown), -1)
    axes.set_xlabel("time of PyTorch over time of evergrad: right of 1 evergrad is faster")
    axes.legend(fontsize=7, loc="lower right")
    figure.savefig(path, dpi=130)
