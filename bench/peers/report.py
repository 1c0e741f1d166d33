"""The measurements as tables, JSON and a plot."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.peers import summary
from bench.peers.cells import TOLERANCE, Cell, Result, Settings
from bench.peers.contenders import PEERS, SUBJECT
from bench.peers.frameworks import Framework
from bench.peers.limits import Limit, at_best_rates

_MEGA = 1 << 20
# Stands for a peer that was not asked.
_NOBODY = Result("", status="-")


def time_text(seconds: float | None) -> str:
    """Three digits with a unit."""
    if seconds is None:
        return "-"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size or unit == "us":
            value = seconds / size
            return f"{value:.{max(0, 3 - len(str(int(value))))}f} {unit}"
    raise AssertionError("every time has a unit")


def size_text(nbytes: int | None) -> str:
    return "-" if nbytes is None else f"{nbytes / _MEGA:.1f} MB"


# -- tables --------------------------------------------------------------------------------------


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns as wide as their widest entry; the first to the left, the others to the right."""
    lines = [list(head), *map(list, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip()
        for line in lines
    )


def _step_entry(result: Result) -> str:
    if result.seconds is None:
        return result.status
    mark = "" if result.quiet_rounds else "~"
    return mark + time_text(result.seconds)


def _mark(cell: Cell) -> str:
    return "" if cell.quiet() else "~"


def _limit_entries(cell: Cell, cells: Sequence[Cell]) -> list[str]:
    """The least time the machine could do a step in, and how much of that is reached."""
    own = cell.results.get(SUBJECT)
    if cell.limit is None or own is None or own.seconds is None:
        return ["-", "-"]
    limit = at_best_rates(c.limit for c in cells if c.threads == cell.threads)(cell.limit)
    reached = limit.seconds / own.seconds
    return [f"{time_text(limit.seconds)} ({limit.bound})", f"{_mark(cell)}{reached:.0%}"]


def _first_entry(result: Result) -> str:
    if result.first_cold is None:
        return result.status
    return f"{time_text(result.first_cold)} / {time_text(result.first_warm)}"


def _memory_entry(result: Result) -> str:
    if result.seconds is None:
        return result.status
    return f"{size_text(result.steady_bytes)} / {size_text(result.peak_bytes)}"


def _rows(
    cells: Sequence[Cell], peers: Sequence[str], entry: Callable[[Result], str]
) -> list[list[str]]:
    return [
        [f"{cell.workload} ({cell.threads})", *(entry(cell.results.get(p, _NOBODY)) for p in peers)]
        for cell in cells
    ]


def text(
    cells: Sequence[Cell], peers: Sequence[str], frameworks: Sequence[Framework], settings: Settings
) -> str:
    """Everything that was measured, for reading."""
    head = ["workload (threads)", *peers]
    steps = _rows(cells, peers, _step_entry)
    for row, cell in zip(steps, cells, strict=True):
        ratio = cell.ratio()
        best = cell.best_peer()
        row.append("-" if ratio is None else f"{_mark(cell)}{ratio:.2f}")
        row.append("-" if best is None else best.peer)
        row += _limit_entries(cell, cells)
    tolerances = ", ".join(f"{t:g} after {step}" for step, t in TOLERANCE.items())
    parts = [
        f"Time of a step ({settings.clock}); ratio = best peer / {SUBJECT}, above 1 evergrad is "
        f"faster.\nCompared before timing: losses, relatively {tolerances} steps. "
        "~: the machine was not quiet, no result.\nLimit: the least time for the step's products, "
        "or for moving its data once, at the best rates seen; reached: limit / time.",
        table([*head, "ratio", "best peer", "limit", "reached"], steps),
        "First step, cold / warm caches",
        table(head, _rows(cells, peers, _first_entry)),
        "Peak memory above the imported framework, steady steps / with the first ones",
        table(head, _rows(cells, peers, _memory_entry)),
        "Peak memory of the process",
        table(head, _rows(cells, peers, lambda result: size_text(result.resident_bytes))),
        "Frameworks",
        table(["", "version", "import", "installed"], [_framework_row(f) for f in frameworks]),
    ]
    parts.insert(2, summary.text(cells))
    reasons = _reasons(cells)
    return "\n\n".join([*parts, reasons] if reasons else parts)


def _framework_row(f: Framework) -> list[str]:
    return [
        f.name,
        f.version or f.reason,
        time_text(f.import_seconds),
        size_text(f.installed_bytes),
    ]


def _reasons(cells: Iterable[Cell]) -> str:
    """Why some entries have no time, one line each."""
    lines = [
        f"{cell.workload} ({cell.threads}), {r.peer}: {r.status}: {r.reason.splitlines()[0]}"
        for cell in cells
        for r in cell.results.values()
        if r.status not in ("ok", "none") and r.reason
    ]
    return "\n".join(["Not measured", *lines]) if lines else ""


# -- files ---------------------------------------------------------------------------------------


def data(
    cells: Sequence[Cell], frameworks: Sequence[Framework], settings: Settings,
    machine: dict[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """Everything that was measured, for programs."""
    return {
        "machine": machine,
        "settings": asdict(settings),
        "tolerance": TOLERANCE,
        "frameworks": [asdict(f) for f in frameworks],
        "cells": [
            {"workload": c.workload, "threads": c.threads, "ratio": c.ratio(), "quiet": c.quiet(),
             "limit": None if c.limit is None else asdict(c.limit),
             "results": [asdict(r) for r in c.results.values()]}
            for c in cells
        ],
    }  # fmt: skip


def read_cells(path: Path) -> list[Cell]:
    """What an earlier run has measured; nothing if there is no such file."""
    if not path.exists():
        return []
    return [_cell(said) for said in json.loads(path.read_text())["cells"]]


def _cell(said: dict[str, Any]) -> Cell:
    results = {}
    for fields in said["results"]:
        checks = {int(step): losses for step, losses in fields["checks"].items()}
        results[fields["peer"]] = Result(**{**fields, "checks": checks})
    limit = None if said["limit"] is None else Limit(**said["limit"])
    return Cell(said["workload"], said["threads"], results, limit)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a file that is whole or not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    waiting = path.with_name(path.name + ".part")
    waiting.write_text(json.dumps(content, indent=1) + "\n")
    os.replace(waiting, path)


def draw(path: Path, cells: Sequence[Cell]) -> str:
    """Each peer's time relative to evergrad's as a plot; gives a line that says what was done."""
    try:
        import matplotlib
    except ImportError:
        return "No plot: matplotlib is not installed (pip install 'evergrad[app]')."
    matplotlib.use("Agg")
    shown = [cell for cell in cells if _relative_times(cell)]
    if not shown:
        return "No plot: no workload was timed both by evergrad and by another framework."
    from matplotlib import pyplot

    threads = sorted({cell.threads for cell in shown}, reverse=True)
    figure, panels = pyplot.subplots(
        1, len(threads), squeeze=False, sharex=True, layout="constrained",
        figsize=(6 * len(threads), 1.5 + 0.35 * max(4, len(shown) // len(threads))),
    )  # fmt: skip
    for panel, count in zip(panels[0], threads, strict=True):
        _draw_panel(panel, [cell for cell in shown if cell.threads == count])
        panel.set_title(f"threads: {count}")
    figure.supxlabel(
        f"time / time of {SUBJECT}; right of 1, evergrad is faster (~: not quiet)", fontsize=9
    )
    handles, labels = _legend_entries(panels[0])
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return f"Plot: {path}"


def _relative_times(cell: Cell) -> dict[str, float]:
    """The peers' times in units of evergrad's."""
    own = cell.results.get(SUBJECT)
    if own is None or own.seconds is None:
        return {}
    return {
        r.peer: r.seconds / own.seconds
        for r in cell.results.values()
        if r.seconds is not None and r.peer != SUBJECT
    }


def _legend_entries(panels: Iterable[Any]) -> tuple[list[Any], list[str]]:
    """Every peer once, in whichever panels it is drawn."""
    entries = {
        label: handle
        for panel in panels
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    return list(entries.values()), list(entries)


def _draw_panel(panel: Any, cells: Sequence[Cell]) -> None:
    for number, peer in enumerate(p for p in PEERS if p != SUBJECT):
        points = [
            (times[peer], row)
            for row, times in enumerate(map(_relative_times, cells))
            if peer in times
        ]
        if points:
            panel.scatter(*zip(*points, strict=True), label=peer, marker="osD^v"[number])
    panel.axvline(1.0, color="black", linewidth=1)
    panel.set_xscale("log", subs=(2, 5))
    for axis in (panel.xaxis.set_major_formatter, panel.xaxis.set_minor_formatter):
        axis(lambda value, _: f"{value:g}")
    panel.set_yticks(range(len(cells)), [_mark(c) + c.workload for c in cells])
    panel.invert_yaxis()
    panel.grid(axis="x", alpha=0.3)
