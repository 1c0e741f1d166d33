"""Time and memory of the steps of a run."""

from __future__ import annotations

import time

from evergrad import memory
from evergrad.train.state import TrainingState
from evergrad.train.step import StepResult, TrainingStep


class Meter:
    """Measures steps, and only these: evaluations and samples have time and memory of their own."""

    def __init__(self, state: TrainingState) -> None:
        self.state = state
        self.steps: int = 0
        self.peak: int = 0  # the most bytes that were live during a step
        self.live: int = 0  # bytes that the last step has left alive
        self.added: int = 0  # bytes that the first step has left alive: the arena
        self.kept: int = 0  # bytes that are alive between steps and were not after the first
        self._after_first = 0
        self._earlier = state.seconds
        self._start = time.perf_counter()
        self._spent, self._counted = 0.0, 0

    def time(self, step: TrainingStep) -> StepResult:
        """Do the next step and measure it."""
        before = memory.stats()["live"]
        memory.reset_peak()
        start = time.perf_counter()
        result = step(self.state.step)
        self._spent += time.perf_counter() - start
        self._counted += 1
        self._note_memory(before)
        return result

    def _note_memory(self, before: int) -> None:
        now = memory.stats()
        self.live = now["live"]
        if not self.steps:
            self._after_first = self.live
            self.added = self._after_first - before
        self.steps += 1
        self.kept = self.live - self._after_first
        self.peak = max(self.peak, now["peak"])

    def rate(self, units: int) -> float:
        """Units per second since this was last asked."""
        found = self._counted * units / self._spent if self._spent else 0.0
        self._spent, self._counted = 0.0, 0
        return found

    def seconds(self) -> float:
        """Seconds this run has taken so far, over all its starts."""
        return self._earlier + time.perf_counter() - self._start
