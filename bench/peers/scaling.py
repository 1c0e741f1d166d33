"""How the time of a GPT's step grows with its batch, width, depth and context, beside PyTorch's.

    python -m bench.peers.scaling            # writes scaling.json and scaling.png

Every line starts from the same model and changes one size. Beside the times stands what the
arithmetic alone would give: the operations of the products, relative to the first point.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.peers.cells import Cell, Settings, measure
from bench.peers.contenders import REFERENCE, SUBJECT
from bench.peers.machine import processors
from bench.peers.processes import ROOT, exit_on_sigterm
from bench.peers.report import table, time_text, write_json

PEERS = (SUBJECT, REFERENCE)
BASE = {"layers": 4, "heads": 4, "width": 128, "context": 64, "batch": 8}
SIZES = {
    "batch": (2, 4, 8, 16, 32),
    "width": (64, 128, 256, 512),
    "layers": (1, 2, 4, 8),
    "context": (32, 64, 128, 256, 512),
}
# A test of the program itself.
QUICK = {"batch": (1, 2)}


def workload(key: str, value: int) -> str:
    """The name of the workload with one size changed."""
    return "gpt:" + ",".join(f"{k}={v}" for k, v in {**BASE, key: value}.items())


def growth(cells: Sequence[Cell], peer: str) -> list[float | None]:
    """Times relative to the first one."""
    seconds = [cell.results[peer].seconds for cell in cells]
    return [s / seconds[0] if s and seconds[0] else None for s in seconds]


def arithmetic(cells: Sequence[Cell]) -> list[float | None]:
    """Operations relative to the first point."""
    flops = [None if cell.limit is None else cell.limit.flops for cell in cells]
    return [f / flops[0] if f and flops[0] else None for f in flops]


def text(lines: dict[str, list[Cell]], sizes: dict[str, Sequence[int]]) -> str:
    rows = []
    for key, cells in lines.items():
        columns = [arithmetic(cells), *(growth(cells, peer) for peer in PEERS)]
        for number, (value, cell) in enumerate(zip(sizes[key], cells, strict=True)):
            times = [time_text(cell.results[peer].seconds) for peer in PEERS]
            grown = ["-" if c[number] is None else f"{c[number]:.2f}" for c in columns]
            ratio = cell.ratio()
            rows.append(
                [f"{key} {value}", *times, "-" if ratio is None else f"{ratio:.2f}", *grown]
            )
    head = ["", *PEERS, "ratio", "arithmetic x", *(f"{peer} x" for peer in PEERS)]
    return table(head, rows)


def draw(path: Path, lines: dict[str, list[Cell]], sizes: dict[str, Sequence[int]]) -> str:
    try:
        import matplotlib
    except ImportError:
        return "No plot: matplotlib is not installed (pip install 'evergrad[app]')."
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(
        1, len(lines), squeeze=False, figsize=(4 * len(lines), 3.5), layout="constrained"
    )
    for panel, (key, cells) in zip(panels[0], lines.items(), strict=True):
        _draw_line(panel, key, cells, list(sizes[key]))
    panels[0][0].set_ylabel("milliseconds")
    panels[0][0].legend(fontsize=8)
    base = ", ".join(f"{k} {v}" for k, v in BASE.items())
    figure.suptitle(f"A GPT's training step; where not varied: {base}", fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return f"Plot: {path}"


def _draw_line(panel: Any, key: str, cells: Sequence[Cell], values: list[int]) -> None:
    for peer, marker in zip(PEERS, "os", strict=True):
        known = [
            (value, 1e3 * seconds)
            for value, cell in zip(values, cells, strict=True)
            if (seconds := cell.results[peer].seconds) is not None
        ]
        if known:
            panel.plot(*zip(*known, strict=True), marker=marker, label=peer)
    first = cells[0].results[SUBJECT].seconds
    if first is not None:
        expected = [None if a is None else 1e3 * first * a for a in arithmetic(cells)]
        panel.plot(values, expected, color="gray", linestyle=":", label="as the arithmetic")
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.set_xticks(values, [str(value) for value in values])
    panel.set_xlabel(key)
    panel.grid(alpha=0.3)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, default=min(2, processors()))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="two points: a test of the program")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(arguments)
    sizes: dict[str, Sequence[int]] = dict(QUICK if options.quick else SIZES)
    seconds = 0.1 if options.quick else 0.5
    settings = Settings(options.rounds, seconds, warm=False, keep_disturbed=True)
    lines: dict[str, list[Cell]] = {}
    for key, values in sizes.items():
        for value in values:
            print(f"{key} {value} ...", file=sys.stderr, flush=True)
            cell = measure(workload(key, value), options.threads, PEERS, settings)
            lines.setdefault(key, []).append(cell)
    folder = options.output or ROOT / ("build/bench" if options.quick else "bench/results")
    print(text(lines, sizes))
    points = {
        key: [
            {"size": v, **{p: c.results[p].seconds for p in PEERS}}
            for v, c in zip(sizes[key], cells, strict=True)
        ]
        for key, cells in lines.items()
    }
    write_json(
        folder / "scaling.json", {"base": BASE, "threads": options.threads, "points": points}
    )
    print(draw(folder / "scaling.png", lines, sizes))
    return 0


if __name__ == "__main__":
    exit_on_sigterm()
    raise SystemExit(main())
