"""The curves of a run as charts of its report."""

from __future__ import annotations

from collections.abc import Iterator

from evergrad.html import SERIES, Chart, Series
from evergrad.train.records import Line, Run

_TRAIN, _HELD_OUT, _BEST = SERIES[:3]
# A curve of more points than this is drawn with its running mean.
_MANY_POINTS = 60
_MOST_POINTS = 2000

Points = list[tuple[float, float]]


def curves(run: Run) -> Iterator[Chart]:
    """Loss, gradient norm, learning rate, memory, speed, and what else evaluations tell."""
    yield Chart("Loss", list(_losses(run)), from_zero=False)
    for name in _other_names(run):
        points = _points([{"step": e["step"], **e["evaluation"]} for e in run.evaluations], name)
        yield Chart(f"Held-out {name}", [Series(name, points, _HELD_OUT, dots=True)])
    yield Chart("Gradient norm before clipping", list(_smoothed(run, "norm", "norm")))
    yield Chart("Learning rate", [Series("learning rate", _points(run.steps, "lr"))])
    memory = [
        Series("most during a step (peak)", _points(run.steps, "peak"), _HELD_OUT),
        Series("after a step (live)", _points(run.steps, "live"), _TRAIN),
    ]
    yield Chart("Memory", memory, unit="bytes")
    rate = list(_smoothed(run, "units_per_second", f"{run.unit} per second"))
    yield Chart("Speed", rate, unit=f"{run.unit}/s")


def _losses(run: Run) -> Iterator[Series]:
    yield from _smoothed(run, "loss", "training")
    held = [{"step": e["step"], "loss": e["evaluation"].get("loss")} for e in run.evaluations]
    points = _points(held, "loss")
    yield Series("held-out", points, _HELD_OUT, dots=True)
    if run.best is not None and len(points) > 1:
        least = run.best["evaluation"]["loss"]
        ends = [(points[0][0], least), (points[-1][0], least)]
        yield Series(f"best {least:.4f}", ends, _BEST, dashed=True)


def _other_names(run: Run) -> list[str]:
    names = (name for line in run.evaluations for name in line["evaluation"])
    return [name for name in dict.fromkeys(names) if name != "loss"]


def _smoothed(run: Run, key: str, name: str) -> Iterator[Series]:
    """A curve; one of many points faint, with its running mean."""
    points = _points(run.steps, key)
    if len(points) <= _MANY_POINTS:
        yield Series(name, points, _TRAIN)
        return
    yield Series(name, points, _TRAIN, faint=True)
    width = max(2, len(points) // 20)
    means = [
        (x, sum(y for _, y in part) / len(part))
        for i, (x, _) in enumerate(points)
        for part in [points[max(0, i - width // 2) : i + width // 2 + 1]]
    ]
    yield Series(f"{name}, running mean", means, _TRAIN)


def _points(lines: list[Line], key: str) -> Points:
    """Steps and values, of long runs evenly chosen ones."""
    found = [(line["step"], line[key]) for line in lines if isinstance(line.get(key), int | float)]
    apart = -(-len(found) // _MOST_POINTS) or 1
    return found[::apart]
