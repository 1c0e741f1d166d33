"""One peer on one workload, in a process of its own, driven by lines of JSON.

    python -m bench.peers.worker '{"peer": ..., "workload": ..., "threads": ..., "arrays": ...}'

It answers once when the framework is imported, once when the first steps are done, and then each
line ``{"seconds": s}`` on stdin with the time of about that many seconds of steps. When stdin ends,
it answers with its memory and ends. Anything that goes wrong is answered as ``{"error": ...}``.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from bench.peers import machine

# Left out of tracebacks, which are kept with the results.
ROOT = Path(__file__).resolve().parents[2]

# The losses are compared after these numbers of steps.
CHECKED_STEPS = (1, 5)
_PART = 1 << 16


def take_stdout() -> TextIO:
    """The answers' channel; what libraries print goes to stderr instead."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return answers


class Worker:
    """A peer that is about to run its steps."""

    def __init__(self, request: dict[str, Any], answers: TextIO) -> None:
        self.request = request
        self.answers = answers
        self.per_step = 0.0

    def answer(self, **fields: Any) -> None:
        self.answers.write(json.dumps(fields) + "\n")
        self.answers.flush()

    def run(self) -> None:
        try:
            self.work()
        except Exception as error:
            reason = f"{type(error).__name__}: {str(error).strip()}"
            trace = traceback.format_exc().replace(f"{ROOT}{os.sep}", "")
            self.answer(error=reason, kind=type(error).__name__, trace=trace)

    def work(self) -> None:
        machine.pin_to(self.request["threads"])
        self.load()
        self.start()
        for line in sys.stdin:
            turn = self.turn(json.loads(line)["seconds"])
            self.answer(turn=asdict(turn))
        self.answer(
            peak_bytes=machine.peak_bytes() if self.forgot else self.first_peak,
            first_peak_bytes=self.first_peak,
        )

    def load(self) -> None:
        """Import the framework; what it holds afterwards is the baseline of its memory."""
        from bench.peers.contenders import PEERS

        self.peer = PEERS[self.request["peer"]]
        self.peer.load()
        machine.forget_peak()
        self.answer(baseline_bytes=machine.resident_bytes())

    def start(self) -> None:
        """Make the step, run it a few times and tell its results."""
        from bench.peers.contenders import Given

        self.step = self.peer.make_step(
            Given(self.request["workload"], self.request["threads"], self.request["arrays"])
        )
        checks: dict[int, list[float]] = {}
        watch = machine.Watch()
        results = self.peer.gather(self.step())
        first = watch.turn(1)
        for number in range(1, max(CHECKED_STEPS) + 1):
            if number > 1:
                # A training loop does not hold a step's results during the next one.
                del results
                start = time.perf_counter()
                results = self.peer.gather(self.step())
                self.per_step = time.perf_counter() - start
            if number in CHECKED_STEPS:
                checks[number] = [fingerprint(array) for array in results]
        del results
        self.first_peak = machine.peak_bytes()
        self.forgot = machine.forget_peak()
        self.answer(first=asdict(first), checks=checks)

    def turn(self, seconds: float) -> machine.Turn:
        """Steps in a row for about this long; the last one's results are waited for."""
        steps = max(1, min(100_000, round(seconds / max(self.per_step, 1e-6))))
        watch = machine.Watch()
        for _ in range(steps - 1):
            self.step()
        self.peer.gather(self.step())
        turn = watch.turn(steps)
        self.per_step = turn.wall / steps
        return turn


def fingerprint(array: Any) -> float:
    """A number that tells two results apart: a scalar itself, the norm of anything larger."""
    if array.ndim == 0:
        return float(array)
    flat = array.reshape(-1)
    # In parts, because a copy in double precision would be the peak of the memory.
    parts = (flat[i : i + _PART].astype("float64") for i in range(0, flat.size, _PART))
    return math.sqrt(sum(float(part @ part) for part in parts))


if __name__ == "__main__":
    channel = take_stdout()
    Worker(json.loads(sys.argv[1]), channel).run()
