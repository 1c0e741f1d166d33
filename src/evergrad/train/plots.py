"""The curves and samples of a run as PNG pictures.

Figures are made without pyplot, so nothing is shown, no window system is needed and no state of
matplotlib is changed.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad import config
from evergrad.train.packages import package
from evergrad.train.records import Line, Run
from evergrad.utils.bounded_read import read_bounded

if TYPE_CHECKING:
    from evergrad.core.types import Array

_SIZE = (8.0, 4.0)
_DOTS_PER_INCH = 110
_TRAIN, _HELD_OUT, _BEST = "#4c78a8", "#e45756", "#54a24b"
_MEBIBYTE = 2**20
# A curve of more points than this is drawn with its running mean.
_MANY_POINTS = 60
_SHOWN_SAMPLES = 6
_TEXT_LINES, _TEXT_COLUMNS = 20, 60
# The last letter that the font of pictures certainly has.
_LAST_LETTER = 0x24F


def draw_plots(run: Run) -> dict[str, bytes]:
    """The pictures there is something to show on, by name, as PNG."""
    drawings: dict[str, Callable[[Run], object]] = {
        "loss": _loss if run.steps or run.evaluations else _nothing,
        "learning_rate": _learning_rate if run.steps else _nothing,
        "memory": _memory if run.steps else _nothing,
        "speed": _speed if run.steps else _nothing,
        "samples": _samples if run.samples else _nothing,
    }
    figures = {name: draw(run) for name, draw in drawings.items()}
    return {name: _png(figure) for name, figure in figures.items() if figure is not None}


def _nothing(run: Run) -> None:
    return None


def _png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    # Without the version of matplotlib in it, the same run gives the same file.
    figure.savefig(buffer, format="png", dpi=_DOTS_PER_INCH, metadata={"Software": None})
    return buffer.getvalue()


# -- curves -------------------------------------------------------------------------------------


def _loss(run: Run) -> object:
    figure, axes = _axes("step", "loss")
    steps, losses = _column(run.steps, "loss")
    if len(steps) > _MANY_POINTS:
        axes.plot(steps, losses, color=_TRAIN, alpha=0.3, linewidth=0.8)
        axes.plot(steps, _smooth(losses), color=_TRAIN, label="training (running mean)")
    elif len(steps):
        axes.plot(steps, losses, color=_TRAIN, label="training")
    held = [{"step": e["step"], "loss": e["evaluation"].get("loss")} for e in run.evaluations]
    places, values = _column(held, "loss")
    if len(places):
        axes.plot(places, values, "o-", color=_HELD_OUT, markersize=4, label="held-out")
    if run.best is not None:
        least = run.best["evaluation"]["loss"]
        axes.axhline(least, color=_BEST, linewidth=0.8, linestyle="--", label=f"best {least:.4f}")
    axes.legend()
    return figure


def _learning_rate(run: Run) -> object:
    figure, axes = _axes("step", "learning rate")
    axes.plot(*_column(run.steps, "lr"), color=_TRAIN)
    axes.set_ylim(bottom=0)
    return figure


def _memory(run: Run) -> object:
    figure, axes = _axes("step", "MiB")
    for name, colour in (("peak", _HELD_OUT), ("live", _TRAIN)):
        steps, values = _column(run.steps, name)
        axes.plot(steps, values / _MEBIBYTE, color=colour, label=name)
    axes.set_ylim(0, 1.1 * max(axes.get_ylim()[1], 1e-9))
    axes.legend()
    return figure


def _speed(run: Run) -> object:
    figure, axes = _axes("step", f"{run.unit} per second")
    axes.plot(*_column(run.steps, "units_per_second"), color=_TRAIN)
    axes.set_ylim(bottom=0)
    return figure


def _axes(x: str, y: str) -> tuple[Any, Any]:
    figure = package("matplotlib.figure").Figure(figsize=_SIZE, layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.3)
    return figure, axes


def _column(lines: Sequence[Line], name: str) -> tuple[Array, Array]:
    """Steps and values of the lines that have a finite one."""
    pairs = [(line["step"], line[name]) for line in lines if _is_number(line.get(name))]
    steps, values = zip(*pairs, strict=True) if pairs else ((), ())
    return np.array(steps), np.array(values, float)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and bool(np.isfinite(value))


def _smooth(values: Any) -> Array:
    """A running mean over a twentieth of the curve, with as much of it as there is at the ends."""
    width = max(2, len(values) // 20)
    sums = np.convolve(values, np.ones(width), "same")
    return sums / np.convolve(np.ones(len(values)), np.ones(width), "same")


# -- samples ------------------------------------------------------------------------------------


def spread(items: Sequence[Line], count: int) -> list[Line]:
    """At most ``count`` items, spread evenly, the first and the last among them."""
    if len(items) <= count:
        return list(items)
    places = np.linspace(0, len(items) - 1, count).round().astype(int)
    return [items[place] for place in places]


def _samples(run: Run) -> object:
    chosen = spread(run.samples, _SHOWN_SAMPLES)
    columns = min(3, len(chosen))
    rows = -(-len(chosen) // columns)
    figure = package("matplotlib.figure").Figure(
        figsize=(4.0 * columns, 3.2 * rows), layout="constrained"
    )
    for number, line in enumerate(chosen, 1):
        axes = figure.add_subplot(rows, columns, number)
        axes.set_title(f"step {line['step']}", fontsize=9)
        axes.set_axis_off()
        axes.set_anchor("N")
        _draw_sample(axes, run.path, line["sample"])
    return figure


def _draw_sample(axes: Any, folder: Path, sample: dict[str, object]) -> None:
    picture = sample_picture(folder, sample)
    if picture is not None:
        axes.imshow(np.asarray(package("PIL.Image").open(io.BytesIO(picture)).convert("RGB")))
        return
    lines = drawable_lines(str(sample.get("text", "(the picture is missing)")))
    axes.text(
        0, 1, "\n".join(lines), fontsize=6, family="monospace", verticalalignment="top",
        parse_math=False, transform=axes.transAxes,
    )  # fmt: skip


def sample_picture(folder: Path, sample: dict[str, object]) -> bytes | None:
    """The PNG of a sample; None if it has none, or the file is not there. Only files inside of the
    folder are read, since a page that is published would carry them."""
    if "image" not in sample:
        return None
    try:
        path = (folder / str(sample["image"])).resolve(strict=True)
        if not (path.is_file() and path.is_relative_to(folder.resolve())):
            return None
        return read_bounded(path, config.IMAGE_BYTES, "set EVERGRAD_IMAGE_BYTES")
    except (OSError, ValueError):
        return None


def drawable_lines(text: str) -> list[str]:
    """The beginning of a text, in lines that fit a picture and letters that its font has."""
    plain = "".join(c if c in "\n" or _is_drawable(c) else "?" for c in text)
    lines = [part for line in plain.split("\n") for part in wrap(line, _TEXT_COLUMNS) or [""]]
    return lines[:_TEXT_LINES]


def _is_drawable(letter: str) -> bool:
    return letter.isprintable() and ord(letter) <= _LAST_LETTER
