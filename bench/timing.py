"""Processor time of calls that are compared, for the benchmarks of single operations."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

# Seconds of processor time that one measurement takes at least.
_LEAST = 0.01


def medians(calls: list[Callable[[], Any]], rounds: int) -> list[float]:
    """Seconds of processor time of each, in alternating rounds."""
    counts = []
    for call in calls:
        call()
        start = time.thread_time()
        call()
        counts.append(max(1, int(_LEAST / max(time.thread_time() - start, 1e-6))))
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, count, found in zip(calls, counts, times, strict=True):
            start = time.thread_time()
            for _ in range(count):
                call()
            found.append((time.thread_time() - start) / count)
    return [statistics.median(found) for found in times]
