"""The report of a run: pictures of its curves and one page that needs nothing else.

Works from the folder of the run alone, so a report can be made at any time: while the run goes on,
after it was killed, and on another machine.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from evergrad import html
from evergrad.memory.reports import size
from evergrad.train.environment import environment
from evergrad.train.plots import draw_plots, sample_picture, spread
from evergrad.train.records import Line, Run, read_run
from evergrad.utils.atomic_file import replacing

REPORT = "report.html"
_SHOWN_SAMPLES = 8
_TITLES = {
    "loss": "Loss",
    "learning_rate": "Learning rate",
    "memory": "Memory",
    "speed": "Speed",
}

_STYLE = """
:root { font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 1000px; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2.2rem; }
table { width: auto; } td, th { padding: .2rem .8rem .2rem 0; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(420px, 1fr)); gap: 1rem; }
figure { margin: 0; } figcaption { font-weight: 600; } figure img { width: 100%; background: #fff; }
pre { white-space: pre-wrap; border-left: 3px solid #8886; padding-left: .8rem; }
.problem { border-left: 3px solid #e45756; padding-left: .8rem; }
.sample { image-rendering: pixelated; min-width: 256px; max-width: 100%; }
"""


def write_report(path: Path, trusted: Collection[str] = ()) -> list[Path]:
    """Write the pictures and the page of a run into its folder; gives the files, the page last.

    ``trusted`` are tasks beyond the table (``module:Class``) that its configuration may name.
    """
    run = read_run(path, trusted)
    plots = draw_plots(run)
    files = {path / f"{name}.png": picture for name, picture in plots.items()}
    files[path / REPORT] = page(run, plots).encode()
    for target, content in files.items():
        with replacing(target) as file:
            file.write(content)
    return list(files)


def page(run: Run, plots: dict[str, bytes]) -> str:
    """The report as one page: no script, nothing loaded from elsewhere."""
    title = f"evergrad: {run.name}"
    parts = [
        f"<h1>{html.escape(title)}</h1>", _summary(run), _problems(run), _curves(plots),
        _evaluations(run), _samples(run), _memory(run),
        _configuration(run),
        html.section("Where this report was written",
                     html.table(("", ""), environment().items(), 0)),
    ]  # fmt: skip
    return html.page(title, parts, _STYLE)


# -- the parts ----------------------------------------------------------------------------------


def _summary(run: Run) -> str:
    planned = run.config.get("steps")
    facts = [f"{run.last_step:,} of {planned:,} steps" if planned else f"{run.last_step:,} steps"]
    if run.steps:
        last = run.steps[-1]
        facts += _known(last, "time", lambda seconds: f"{_duration(seconds)}")
        facts += _known(last, "loss", lambda loss: f"training loss {loss:.4f}")
        facts += _known(last, "units_per_second", lambda rate: f"{rate:,.0f} {run.unit}/s")
    if run.best is not None:
        least = run.best["evaluation"]["loss"]
        facts.append(f"best held-out loss {least:.4f} after step {run.best['step']:,}")
    return html.paragraph("; ".join(facts) + ".")


def _known(line: Line, key: str, tell: Any) -> list[str]:
    return [tell(line[key])] if isinstance(line.get(key), int | float) else []


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"


def _problems(run: Run) -> str:
    return "".join(html.paragraph(problem, "problem") for problem in run.problems)


def _curves(plots: dict[str, bytes]) -> str:
    shown = [
        f"<figure><figcaption>{title}</figcaption>{html.image(plots[name], title)}</figure>"
        for name, title in _TITLES.items()
        if name in plots
    ]
    return html.section("Curves", f'<div class="plots">{"".join(shown)}</div>' if shown else "")


def _evaluations(run: Run) -> str:
    names = list(dict.fromkeys(name for line in run.evaluations for name in line["evaluation"]))
    rows = [
        (f"{line['step']:,}", *(_number(line["evaluation"].get(name)) for name in names),
         "best" if line is run.best else "")
        for line in run.evaluations
    ]  # fmt: skip
    head = ("step", *names, "")
    return html.section("Held-out data", html.table(head, rows, 1 + len(names)) if rows else "")


def _number(value: Any) -> str:
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
        (_bytes(found.get("planned")), _bytes(found.get("measured")), name)
        for name, found in run.memory.items()
    ]
    head = ("planned", "measured", "")
    return html.section("Memory, planned and measured", html.table(head, rows, 2) if rows else "")


def _configuration(run: Run) -> str:
    text = run.config_text
    return html.section("Configuration", html.preformatted(text) if text else "")


def _bytes(value: int | None) -> str:
    return "-" if value is None else f"{value:,} ({size(value)})"
