"""After a loss or gradient that is not finite: which step, op and line, and the last good state."""

from __future__ import annotations

from dataclasses import dataclass

from evergrad.core.rng.default_generator import using_generator
from evergrad.errors import NonFiniteError
from evergrad.train.checkpoint import Checkpoint
from evergrad.train.config import RunConfig
from evergrad.train.state import TrainingState
from evergrad.train.task import Task


@dataclass(frozen=True)
class Diagnosis:
    """The state before the step that went wrong, and why it did (None: not when repeated)."""

    state: TrainingState
    reason: str | None


def diagnose(checkpoint: Checkpoint, config: RunConfig, task: Task, failed: int) -> Diagnosis:
    """Repeat the steps from a checkpoint up to the one that failed, looking at every value.

    A checked step that fails is undone, so what is left is the state right before it.
    """
    state = TrainingState(config, task)
    state.restore(checkpoint.content)
    step = state.training_step(check_finite=True)
    with using_generator(state.generator):
        while state.step <= failed:
            drawn = state.generator.get_state()
            try:
                step(state.step)
            except NonFiniteError as error:
                state.generator.set_state(drawn)
                step.set_rate(state.step - 1)
                return Diagnosis(state, str(error))
            state.step += 1
    return Diagnosis(state, None)
