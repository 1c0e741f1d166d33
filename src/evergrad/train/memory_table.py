"""What a run needs in memory: planned before the first step, measured at its end.

The plan is made of shapes and of the compiler's arena. What is measured comes from the ledger, in
which every buffer is entered. For a compiled step both agree to the byte.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass

from evergrad import memory
from evergrad.core.tensor import Tensor
from evergrad.train.meter import Meter
from evergrad.train.state import TrainingState
from evergrad.train.step import TrainingStep

_STEP_COUNT_BYTES = 4  # AdamW counts the steps of each parameter in a float32

# The note of a row whose bytes another row holds.
PART = "part of activations, not added"


@dataclass
class Row:
    """One use of memory in bytes; None where it is not known."""

    name: str
    planned: int | None
    measured: int | None = None
    note: str = ""


class MemoryTable:
    """Bytes by what they are for, and the peak. Gradients in the arena count once."""

    def __init__(self, state: TrainingState, step: TrainingStep) -> None:
        """Plans without running anything; makes the optimizer's state, which is zeros."""
        arena, transient = _arena(step)
        parameters = _bytes(state.model.parameters())
        means = [] if state.averaged is None else list(state.averaged.parameters())
        trained = _bytes(step.parameters)
        moments = 2 * trained + _STEP_COUNT_BYTES * len(step.parameters)
        sums = _bytes(step.sums)
        fixed = parameters + _bytes(means) + moments
        rest = memory.stats()["live"] - _entered() - sums + transient
        self.parameters: Row = Row("parameters", parameters + _bytes(means))
        self.gradients: Row = Row("gradients", sums or trained)
        self.gradients.note = "" if sums else PART
        self.optimizer: Row = Row("optimizer", moments)
        self.rest: Row = Row("data, batch", rest)
        self.activations: Row = Row("activations", arena)
        sampler = _sampler_bytes(state)
        self.kept: Row = Row("samples", sampler, note="kept between steps")
        planned = None if arena is None else fixed + sums + rest + arena + sampler
        self.peak: Row = Row("peak", planned, note="the sum")
        self._at_end: list[Row] = []

    @property
    def rows(self) -> list[Row]:
        return [*self._parts, self.peak, *self._at_end]

    @property
    def _parts(self) -> list[Row]:
        return [
            self.parameters, self.optimizer, self.activations, self.gradients, self.rest, self.kept,
        ]  # fmt: skip

    def measure(self, meter: Meter) -> None:
        """Enter what the ledger says, and the system of the process as a whole."""
        now = memory.stats()
        held = now["by_category"]
        self.parameters.measured = held["parameter"]
        self.optimizer.measured = held["optimizer"]
        self.gradients.measured = None if self.gradients.note else held["gradient"]
        self.kept.measured = meter.kept
        self.peak.measured = meter.peak
        if self.activations.planned is None:  # what an eager step makes goes as it came
            self.rest.measured = self.rest.planned
            self.activations.measured = self._unexplained()
        else:
            self.activations.measured = meter.added
            self.rest.measured = self._unexplained()
        self._at_end = [
            Row("at the end", None, meter.live, "after the last step"),
            Row("process", None, largest_process(), "largest so far, with Python itself"),
        ]

    def _unexplained(self) -> int:
        """What the other rows leave of the measured peak."""
        return (self.peak.measured or 0) - sum(row.measured or 0 for row in self._parts)

    def as_text_rows(self) -> list[tuple[str, str, str, str]]:
        """Name, planned, measured and note, for people; what is part of another row, and not to
        be added, is in brackets."""
        part = self.gradients if self.gradients.note else None
        return [
            (row.name, _told(row.planned, row is part), _told(row.measured), row.note)
            for row in self.rows
        ]

    def as_data(self) -> dict[str, dict[str, int | str | None]]:
        """The bytes by name, for a file; with a note where there is one."""
        return {
            row.name: {"planned": row.planned, "measured": row.measured}
            | ({"note": row.note} if row.note else {})
            for row in self.rows
        }


def largest_process() -> int | None:
    """The most memory this process has had, as the system counts; None where it does not tell."""
    try:
        import resource
    except ImportError:  # not a POSIX system
        return None
    units = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return units if sys.platform == "darwin" else units * 1024


def _arena(step: TrainingStep) -> tuple[int | None, int]:
    """Bytes of the programs' arenas (None for an eager step), and what a call needs beside:
    arguments, results, and the states of random streams in case it fails."""
    arena, transient = 0, 0
    for program, arguments in step.programs():
        given = _bytes(a for a in arguments if isinstance(a, Tensor))
        if step.config.eager:
            return None, given
        made = program.compiled_for(arguments, {})[0].program
        arena += made.plan.peak
        results = sum(b.nbytes for b in made.plan.outside if b.kind == "output")
        streams = _bytes(generator.get_state() for generator in made.generators_to_restore())
        # A rank takes its part of a batch while the whole of it is there.
        whole = given * step.ranks.size if step.ranks.size > 1 else 0
        transient = max(transient, given + max(results + streams, whole))
    return arena, transient


def _entered() -> int:
    """Bytes that the ledger knows as parameters and optimizer state."""
    held = memory.stats()["by_category"]
    return int(held["parameter"] + held["optimizer"])


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def _sampler_bytes(state: TrainingState) -> int:
    """What the task's sampler keeps alive during later steps; 0 if no step follows a sample."""
    every = state.config.sample_every
    first = 0 if not every else (state.step // every + 1) * every
    if not 0 < first < state.config.steps:
        return 0
    with state.evaluated_model() as model:
        return state.task.sampler_bytes(model)


def _told(nbytes: int | None, is_part: bool = False) -> str:
    if nbytes is None:
        return "-"
    return f"({nbytes:,})" if is_part else f"{nbytes:,}"
