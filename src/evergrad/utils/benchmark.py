"""Timing of statements: ``Timer``, ``Measurement`` and ``Compare``.

A statement runs in blocks, long enough that the clock does not matter; a measurement keeps the time
of each block and gives the median, the mean and the range between the quartiles.
"""

from __future__ import annotations

import math
import statistics
import timeit
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from evergrad.core.settings import get_num_threads, set_num_threads

__all__ = ["Compare", "Measurement", "TaskSpec", "Timer"]

_UNITS = (("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0))
# A block is long enough if starting it takes less than this fraction of its time.
_BLOCK_SECONDS = 1e-3


@dataclass(frozen=True)
class TaskSpec:
    """What is measured: the statement and its labels."""

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """The label and the line below it, or the statement."""
        if self.label is None:
            return self.stmt.strip()
        return f"{self.label}: {self.sub_label}" if self.sub_label else self.label

    def summarize(self) -> str:
        """Title, description and setup, as a report shows them."""
        parts = [self.title, self.description, f"setup: {self.setup}" if self.setup else None]
        return "\n".join(part for part in parts if part)


@dataclass
class Measurement:
    """The times of the blocks of one statement, in seconds."""

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: dict[object, Any] | None = None

    @property
    def times(self) -> list[float]:
        """Seconds of one run, for each block."""
        return [seconds / self.number_per_run for seconds in self.raw_times]

    @property
    def median(self) -> float:
        return statistics.median(self.times)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.times)

    @property
    def iqr(self) -> float:
        """The range between the quartiles."""
        if len(self.raw_times) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.times, n=4, method="inclusive")
        return high - low

    @property
    def significant_figures(self) -> int:
        """As many digits as a confidence interval of the median leaves certain."""
        count = len(self.raw_times)
        upper = self.median + 1.645 * self.iqr / (1.35 * math.sqrt(count))
        spread = max(upper - self.median, self.median * 1e-5)
        return max(1, min(5, math.floor(math.log10(max(self.median, 1e-12) / spread)) + 1))

    @property
    def has_warnings(self) -> bool:
        """Whether the blocks differ by more than a quarter of the median."""
        return self.iqr > 0.25 * self.median

    def __getattr__(self, name: str) -> Any:
        if name in TaskSpec.__dataclass_fields__ or name == "title":
            return getattr(self.task_spec, name)
        raise AttributeError(f"'Measurement' object has no attribute {name!r}")

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """One measurement for each task, of all its blocks of one length."""
        grouped: dict[tuple[int, TaskSpec], list[float]] = {}
        for found in measurements:
            grouped.setdefault((found.number_per_run, found.task_spec), []).extend(found.raw_times)
        return [Measurement(number, times, task) for (number, task), times in grouped.items()]

    def __repr__(self) -> str:
        unit, scale = _unit_of(self.median)
        lines = [f"<evergrad.utils.benchmark.Measurement of {self.task_spec.summarize()}>"]
        if len(self.raw_times) == 1:
            lines.append(f"  {self.median / scale:.2f} {unit}")
        else:
            lines.append(f"  Median: {self.median / scale:.2f} {unit}")
            lines.append(f"  IQR:    {self.iqr / scale:.2f} {unit}")
        runs = "run" if self.number_per_run == 1 else "runs"
        threads = f"{self.task_spec.num_threads} thread(s)"
        count = len(self.raw_times)
        lines.append(f"  {count} measurement(s), {self.number_per_run} {runs} each, {threads}")
        return "\n".join(lines)


def _unit_of(seconds: float) -> tuple[str, float]:
    return next((unit for unit in reversed(_UNITS) if seconds >= unit[1]), _UNITS[0])


class Timer:
    """Measures a statement of Python, with a number of threads that is the same for all (1).

    Args:
        stmt: what is timed
        setup: what runs once before, untimed
        globals: the names both see
        label, sub_label, description, env: what tables show; see :class:`Compare`
        num_threads: threads of large ops; default 1

    >>> timer = Timer("x + x", globals={"x": eg.ones(3)})
    >>> timer.timeit(10).number_per_run
    10
    """

    def __init__(
        self, stmt: str = "pass", setup: str = "pass", global_setup: str = "",
        timer: Callable[[], float] = timeit.default_timer,
        globals: dict[str, object] | None = None, label: str | None = None,
        sub_label: str | None = None, description: str | None = None, env: str | None = None,
        num_threads: int = 1, language: str = "python",
    ) -> None:  # fmt: skip
        if str(language).lower() not in ("python", "py"):
            raise ValueError(f"statements are Python here, not {language}")
        self._timer = timeit.Timer(stmt, setup, timer, globals=dict(globals or {}))
        self._task_spec = TaskSpec(
            stmt, "" if setup == "pass" else setup, global_setup, label, sub_label, description,
            env, num_threads,
        )  # fmt: skip

    def _times(self, number: int, until: Callable[[list[float]], bool]) -> Measurement:
        """Blocks of so many runs until they are enough."""
        before = get_num_threads()
        set_num_threads(self._task_spec.num_threads)
        try:
            self._timer.timeit(max(number // 100, 2))  # what only the first runs do
            number = number or self._block_length()
            times: list[float] = []
            while not times or not until(times):
                times.append(self._timer.timeit(number))
        finally:
            set_num_threads(before)
        return Measurement(number, times, self._task_spec)

    def _block_length(self) -> int:
        number = 1
        while self._timer.timeit(number) < _BLOCK_SECONDS and number < 10**8:
            number *= 10
        return number

    def timeit(self, number: int = 1_000_000) -> Measurement:
        """One block of so many runs."""
        return self._times(number, lambda times: True)

    def blocked_autorange(
        self, callback: Callable[[int, float], object] | None = None, min_run_time: float = 0.2
    ) -> Measurement:
        """Blocks of a length that suits the statement, for ``min_run_time`` seconds in all."""

        def is_enough(times: list[float]) -> bool:
            return sum(times) >= min_run_time

        found = self._times(0, is_enough)
        for seconds in found.raw_times if callback is not None else ():
            callback(found.number_per_run, seconds)  # type: ignore[misc]
        return found

    def adaptive_autorange(
        self, threshold: float = 0.1, *, min_run_time: float = 0.01, max_run_time: float = 10.0,
        callback: Callable[[int, float], object] | None = None,
    ) -> Measurement:  # fmt: skip
        """Blocks until their quartiles are closer than ``threshold`` of the median."""

        def is_enough(times: list[float]) -> bool:
            if sum(times) >= max_run_time:
                return True
            so_far = Measurement(1, times, self._task_spec)
            is_calm = len(times) > 3 and so_far.iqr < threshold * so_far.median
            return sum(times) >= min_run_time and is_calm

        found = self._times(0, is_enough)
        for seconds in found.raw_times if callback is not None else ():
            callback(found.number_per_run, seconds)  # type: ignore[misc]
        return found


class Compare:
    """A table of measurements: a row for each ``sub_label``, a column for each ``description``."""

    def __init__(self, results: list[Measurement]) -> None:
        self._results = list(results)
        self._trims = False

    def extend_results(self, results: Iterable[Measurement]) -> None:
        """Add measurements."""
        self._results.extend(results)

    def trim_significant_figures(self) -> None:
        """Show only the digits that the spread leaves certain."""
        self._trims = True

    def colorize(self, rowwise: bool = False) -> None:
        """Colours are left out."""

    def highlight_warnings(self) -> None:
        """Unsteady measurements have a mark already."""

    def print(self) -> None:
        """Print the table."""
        print(str(self))

    def __str__(self) -> str:
        merged = Measurement.merge(
            replace(found, number_per_run=1, raw_times=found.times) for found in self._results
        )
        by_label: dict[str, list[Measurement]] = {}
        for found in merged:
            by_label.setdefault(found.task_spec.label or "", []).append(found)
        return "\n\n".join(self._table(label, group) for label, group in by_label.items())

    def _table(self, label: str, group: list[Measurement]) -> str:
        columns = list(dict.fromkeys(found.task_spec.description or "" for found in group))
        unit, scale = _unit_of(min(found.median for found in group))
        cells: dict[tuple[object, ...], dict[str, str]] = {}
        for found in group:
            task = found.task_spec
            row = (task.num_threads, task.env or "", task.sub_label or task.stmt.strip())
            cells.setdefault(row, {})[task.description or ""] = self._number(found, scale)
        width = max(len(str(row[2])) for row in cells)
        widths = [
            max(len(column), *(len(cell.get(column, "")) for cell in cells.values()))
            for column in columns
        ]
        heads = "  |  ".join(f"{c:>{w}}" for c, w in zip(columns, widths, strict=True))
        lines = [
            f"[{label:-^{width + sum(widths) + 5 * len(widths)}}]",
            f"{'':{width}}  |  {heads}",
        ]
        threads = None
        for (number, env, name), shown_in in cells.items():
            if (number, env) != threads:
                threads = number, env
                lines.append(f"{number} threads{f' ({env})' if env else ''}: ".ljust(width, "-"))
            shown = "  |  ".join(
                f"{shown_in.get(c, ''):>{w}}" for c, w in zip(columns, widths, strict=True)
            )
            lines.append(f"{name:{width}}  |  {shown}")
        names = {"ns": "nano", "us": "micro", "ms": "milli", "s": ""}
        return "\n".join([*lines, f"Times are in {names[unit]}seconds ({unit})."])

    def _number(self, found: Measurement, scale: float) -> str:
        value = found.median / scale
        digits = found.significant_figures if self._trims else 4
        decimals = max(0, digits - 1 - math.floor(math.log10(max(value, 1e-9))))
        return f"{value:.{decimals}f}{' !' if found.has_warnings else ''}"
