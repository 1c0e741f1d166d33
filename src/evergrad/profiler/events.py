"""What a profiler saw, and its averages as a table or a trace file."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable
from typing import Any

_NANOSECONDS = 1000.0  # in a microsecond, PyTorch's unit


class Event:
    """One call: when it began and ended, and how much of it was spent in calls it made."""

    __slots__ = ("end", "inner", "name", "shapes", "start", "thread")

    def __init__(self, name: str, start: int, thread: int, shapes: tuple[object, ...] = ()) -> None:
        self.name: str = name
        self.start: int = start
        self.end: int = start
        self.inner: int = 0
        self.thread: int = thread
        self.shapes: tuple[object, ...] = shapes

    @property
    def key(self) -> str:
        return self.name

    @property
    def duration(self) -> int:
        return self.end - self.start

    @property
    def cpu_time_total(self) -> float:
        """Microseconds, with the calls it made."""
        return self.duration / _NANOSECONDS

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds, without the calls it made."""
        return (self.duration - self.inner) / _NANOSECONDS


class FunctionEventAvg:
    """All calls under one name.

    >>> with eg.profiler.profile() as watched:
    ...     _ = eg.ones(3) + 1
    >>> watched.key_averages()[0].count > 0
    True
    """

    def __init__(self, key: str, input_shapes: tuple[object, ...] = ()) -> None:
        self.key = key
        self.input_shapes = input_shapes
        self.count: int = 0
        self.cpu_time_total: float = 0.0
        self.self_cpu_time_total: float = 0.0

    def add(self, event: Event) -> None:
        """Count another call."""
        self.count += 1
        self.cpu_time_total += event.cpu_time_total
        self.self_cpu_time_total += event.self_cpu_time_total

    @property
    def cpu_time(self) -> float:
        """Microseconds per call."""
        return self.cpu_time_total / self.count


_SORT_KEYS = ("cpu_time", "cpu_time_total", "self_cpu_time_total", "count")


class EventList(list[Any]):
    """Events or averages.

    >>> with eg.profiler.profile() as watched:
    ...     _ = eg.ones(3) + 1
    >>> len(watched.key_averages()) > 0
    True
    """

    def table(
        self, sort_by: str | None = None, row_limit: int = 100, max_name_column_width: int = 55,
        **kwargs: object,
    ) -> str:  # fmt: skip
        """The averages as text, the largest first; times of a GPU, if asked for, are the CPU's."""
        rows = list(self)
        if sort_by is not None:
            key = sort_by.replace("cuda_", "cpu_").replace("device_", "cpu_")
            if key not in _SORT_KEYS:
                raise ValueError(f"sort_by={sort_by!r} is not one of {', '.join(_SORT_KEYS)}")
            rows.sort(key=lambda row: getattr(row, key), reverse=True)
        total = sum(row.self_cpu_time_total for row in self)
        head = ("Name", "Self CPU %", "Self CPU", "CPU total", "CPU time avg", "# of Calls")
        cells = [head] + [_cells(row, total, max_name_column_width) for row in rows[:row_limit]]
        widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
        rule = "  ".join("-" * width for width in widths)
        lines = ["  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in cells]
        body = [rule, lines[0], rule, *lines[1:], rule]
        return "\n".join([*body, f"Self CPU time total: {_time(total)}", ""])

    def total_average(self) -> FunctionEventAvg:
        """All events as one."""
        whole = FunctionEventAvg("Total")
        for row in self:
            whole.count += getattr(row, "count", 1)
            whole.cpu_time_total += row.cpu_time_total
            whole.self_cpu_time_total += row.self_cpu_time_total
        return whole


def _cells(row: FunctionEventAvg, total: float, width: int) -> tuple[str, ...]:
    name = row.key if len(row.key) <= width else row.key[: width - 3] + "..."
    share = 100.0 * row.self_cpu_time_total / total if total else 0.0
    return (
        name, f"{share:.2f}%", _time(row.self_cpu_time_total), _time(row.cpu_time_total),
        _time(row.cpu_time), str(row.count),
    )  # fmt: skip


def _time(microseconds: float) -> str:
    if microseconds >= 1e6:
        return f"{microseconds / 1e6:.3f}s"
    if microseconds >= 1e3:
        return f"{microseconds / 1e3:.3f}ms"
    return f"{microseconds:.3f}us"


def averages(events: Iterable[Event], by_shape: bool) -> EventList:
    """One entry for each name (and shapes), in the order of first appearance."""
    found: dict[object, FunctionEventAvg] = {}
    for event in sorted(events, key=lambda e: e.start):
        shapes = event.shapes if by_shape else ()
        key = (event.name, shapes)
        found.setdefault(key, FunctionEventAvg(event.name, shapes)).add(event)
    return EventList(found.values())


def write_chrome_trace(events: Iterable[Event], path: Any) -> None:
    """A file that chrome://tracing and Perfetto show."""
    records = [
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": event.name,
            "pid": os.getpid(),
            "tid": event.thread,
            "ts": event.start / _NANOSECONDS,
            "dur": event.cpu_time_total,
        }
        for event in events
    ]
    opener = gzip.open if str(path).endswith(".gz") else open
    with opener(path, "wt", encoding="utf-8") as file:
        json.dump({"traceEvents": records}, file)
