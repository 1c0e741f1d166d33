"""Workloads one after the other in this process, a line of JSON for each on stdout.

    python -m bench.breadth.worker '{"workloads": [...], "contenders": [...], ...}'

Contenders take turns within the process. A workload that kills it is known by what is missing.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
import traceback
import warnings
from dataclasses import dataclass
from typing import Any

from bench.breadth.catalogue import WORKLOADS
from bench.breadth.contenders import REFERENCE, Contender, arrays_of, difference
from bench.breadth.registry import Workload

# Calls whose results are compared; calls before the clock starts, if a period is shorter.
CHECKED = 3
WARM = 6
_LEAST_CALL = 1e-6


@dataclass(frozen=True)
class Settings:
    """How to measure."""

    contenders: list[str]
    threads: int
    rounds: int
    seconds: float
    clock: str

    def now(self) -> float:
        return time.perf_counter() if self.clock == "wall" else time.process_time()


def measure(workload: Workload, settings: Settings) -> dict[str, Any]:
    """The time of a call for each contender, or why there is none."""
    found: dict[str, Any] = {"workload": workload.name, "family": workload.family, "results": {}}
    running: list[Contender] = []
    wanted: list[Any] | None = None
    for name in settings.contenders:
        entry = found["results"][name] = {}
        try:
            contender, checks, entry["first"] = _start(name, workload, settings)
            wanted = checks if name == REFERENCE else wanted
            different = _compare(checks, wanted, workload.tolerance)
        except Exception as error:
            entry["status"] = "failed"
            entry["reason"] = f"{type(error).__name__}: {str(error).strip()[:500]}"
            entry["trace"] = traceback.format_exc()[-3000:]
            continue
        entry["status"] = "ok" if different is None else "disagrees"
        if different is None:
            running.append(contender)
        else:
            entry["reason"] = different
    for name, times in _take_turns(running, settings).items():
        found["results"][name]["seconds"] = statistics.median(times)
    return found


def _start(name: str, workload: Workload, settings: Settings) -> tuple[Contender, list[Any], float]:
    """The first calls; their results and the seconds of the very first."""
    contender = Contender.make(name, workload, settings.threads)
    start = time.perf_counter()
    checks = [arrays_of(contender.run(1))]
    first = time.perf_counter() - start
    checks += [arrays_of(contender.run(1)) for _ in range(CHECKED - 1)]
    contender.run(max(WARM, contender.period) - CHECKED)
    return contender, checks, first


def _compare(checks: list[Any], wanted: list[Any] | None, tolerance: float) -> str | None:
    for number, (found, reference) in enumerate(zip(checks, wanted or checks, strict=True)):
        words = difference(found, reference, tolerance)
        if words is not None:
            return f"call {number + 1}: {words}"
    return None


def _take_turns(running: list[Contender], settings: Settings) -> dict[str, list[float]]:
    """Seconds of a call in each round; the first to run changes from round to round."""
    counts = {c.name: _calls_for(c, settings.seconds) for c in running}
    times: dict[str, list[float]] = {c.name: [] for c in running}
    for number in range(settings.rounds if running else 0):
        shift = number % len(running)
        for contender in running[shift:] + running[:shift]:
            start = settings.now()
            contender.run(counts[contender.name])
            times[contender.name].append((settings.now() - start) / counts[contender.name])
    return times


def _calls_for(contender: Contender, seconds: float) -> int:
    """How many calls take about that long, in whole periods."""
    start = time.perf_counter()
    contender.run(contender.period)
    each = max((time.perf_counter() - start) / contender.period, _LEAST_CALL)
    periods = max(1, round(seconds / each / contender.period))
    return periods * contender.period


def main() -> None:
    request = json.loads(sys.argv[1])
    names = request.pop("workloads")
    settings = Settings(**request)
    # Lines of JSON alone go to stdout, whatever libraries print.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    for name in names:
        answers.write(json.dumps(measure(WORKLOADS[name], settings)) + "\n")


if __name__ == "__main__":
    main()
