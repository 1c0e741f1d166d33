"""The report of a run: pictures of its curves and one page that needs nothing else.

Works from the folder of the run alone, so a report can be made at any time: during the run,
after it was killed, and on another machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evergrad import html
from evergrad.memory.reports import size
from evergrad.train.curves import curves
from evergrad.train.environment import environment
from evergrad.train.memory_table import PART
from evergrad.train.plots import draw_plots, sample_picture, spread
from evergrad.train.records import Line, Run, read_run
from evergrad.utils.atomic_file import replacing

if TYPE_CHECKING:
    from evergrad.core.types import JsonObject

REPORT = "report.html"
_SHOWN_SAMPLES = 8


def write_report(path: Path, trusted: Collection[str] = ()) -> list[Path]:
    """Write the pictures and the page of a run into its folder; gives the files, the page last.

    ``trusted`` are tasks beyond the table (``module:Class``) that its configuration may name.
    """
    run = read_run(path, trusted)
    plots = draw_plots(run)
    files = {path / f"{name}.png": picture for name, picture in plots.items()}
    files[path / REPORT] = page(run).encode()
    for target, content in files.items():
        with replacing(target) as file:
            file.write(content)
    return list(files)


def page(run: Run) -> str:
    """The report as one page that loads nothing from elsewhere."""
    task = run.config.get("task")
    title = f"Training {task}: {run.name}" if task not in (None, run.name) else f"Run {run.name}"
    parts = [
        html.facts(_facts(run)), _summary(run), _problems(run),
        html.section("Curves", html.charts(curves(run))),
        _evaluations(run), _samples(run), _memory(run), _configuration(run), _machine(run),
    ]  # fmt: skip
    return html.page(title, parts)


# -- the parts ----------------------------------------------------------------------------------


def _facts(run: Run) -> Iterator[tuple[str, str]]:
    """The run in a few boxes."""
    count = run.about.get("parameters")
    if isinstance(count, int):
        yield "parameters", f"{count:,}"
    if run.steps:
        last = run.steps[-1]
        for name, key, tell in _BOXES:
            yield from ((name, told) for told in _known(last, key, tell))
        for rate in _known(last, "units_per_second", html.readable):
            yield f"{run.unit} per second", rate
    if run.best is not None:
        yield "best held-out loss", f"{run.best['evaluation']['loss']:.4f}"
    if run.about.get("started"):
        yield "started", str(run.about["started"])


def _summary(run: Run) -> str:
    planned = run.config.get("steps")
    facts = [f"{run.last_step:,} of {planned:,} steps" if planned else f"{run.last_step:,} steps"]
    if run.best is not None:
        least = run.best["evaluation"]["loss"]
        facts.append(f"best held-out loss {least:.4f} after step {run.best['step']:,}")
    return html.paragraph("; ".join(facts) + ".")


def _known(line: Line, key: str, tell: Callable[[float], str] | Callable[..., str]) -> list[str]:
    value = line.get(key)
    return [tell(value)] if isinstance(value, int | float) and math.isfinite(value) else []


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"


_BOXES = (("time", "time", _duration), ("last training loss", "loss", "{:.4f}".format))


def _problems(run: Run) -> str:
    return "".join(html.paragraph(problem, "problem") for problem in run.problems)


def _evaluations(run: Run) -> str:
    names = list(dict.fromkeys(name for line in run.evaluations for name in line["evaluation"]))
    rows = [
        (f"{line['step']:,}", *(_number(line["evaluation"].get(name)) for name in names),
         "best" if line is run.best else "")
        for line in run.evaluations
    ]  # fmt: skip
    head = ("step", *names, "")
    return html.section("Held-out data", html.table(head, rows, 1 + len(names)) if rows else "")


def _number(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, int | float) else "-"


def _samples(run: Run) -> str:
    shown = reversed(spread(run.samples, _SHOWN_SAMPLES))
    return html.section("Samples, the latest first", "".join(_sample(run, line) for line in shown))


def _sample(run: Run, line: Line) -> str:
    sample, title = line["sample"], f"step {line['step']:,}"
    picture = sample_picture(run.path, sample)
    if picture is not None:
        content = html.image(picture, title, "sample")
    elif "image" in sample:
        content = html.paragraph(f"{sample['image']} is missing", "problem")
    else:
        content = html.preformatted(str(sample.get("text", "")))
    return f"<h3>{title}</h3>{content}"


def _memory(run: Run) -> str:
    rows: Sequence[Sequence[str]] = [
        (_planned(found), _bytes(found.get("measured")), name, str(found.get("note", "")))
        for name, found in run.memory.items()
    ]
    head = ("planned", "measured", "for", "")
    return html.section("Memory, planned and measured", html.table(head, rows, 2) if rows else "")


def _machine(run: Run) -> str:
    """What the run was computed on, as it wrote down; otherwise where the report was written."""
    known = run.about.get("machine")
    if isinstance(known, dict):
        rows = [(str(value), str(name)) for name, value in known.items()]
        return html.section("Computed on", html.table(("", ""), rows, 0))
    rows = [(value, name) for name, value in environment().items()]
    return html.section("Where this report was written", html.table(("", ""), rows, 0))


def _configuration(run: Run) -> str:
    text = run.config_text
    return html.section("Configuration", html.preformatted(text) if text else "")


def _planned(found: JsonObject) -> str:
    """Bytes that another row holds already are in brackets: the others add up to the peak."""
    told = _bytes(found.get("planned"))
    return f"[{told}]" if found.get("note") == PART else told


def _bytes(value: int | None) -> str:
    return "-" if value is None else f"{value:,} ({size(value)})"
