"""Everything that changes from step to step, and its way into a checkpoint and back."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

import evergrad as eg
from evergrad import nn
from evergrad.core.rng.default_generator import using_generator
from evergrad.train.config import RunConfig
from evergrad.train.ranks import Ranks
from evergrad.train.step import TrainingStep, make_optimizer
from evergrad.train.task import Task

if TYPE_CHECKING:
    from evergrad.core.tensor import Tensor
    from evergrad.core.types import JsonObject
    from evergrad.optim.adam import AdamW

# Streams beside the one that training draws from, told from it by their seed.
_EVALUATION_STREAM = 1 << 32


def stream(seed: int) -> eg.Generator:
    """A counter-based stream: its state is a few words, wherever it has got to."""
    generator = eg.Generator(algorithm="philox")
    generator.manual_seed(seed)
    return generator


class TrainingState:
    """A model, its optimizer, the running mean of its weights, and how far the run has got."""

    def __init__(self, config: RunConfig, task: Task, ranks: Ranks | None = None) -> None:
        self.ranks: Ranks = Ranks() if ranks is None else ranks
        self.config = config
        self.task = task
        self.generator: eg.Generator = stream(config.seed)
        with using_generator(self.generator):
            self.model: nn.Module = self.ranks.model(task.model()).train()
        if not self.ranks.is_first:
            self.generator = stream(self.ranks.seed(config.seed))
        self.optimizer: AdamW = make_optimizer(self.model, config.optimizer)
        self.averaged: nn.Module | None = _frozen_copy(self.model) if config.ema else None
        self.step: int = 0
        self.best: float = math.inf  # the least held-out loss so far
        self.stale: int = 0  # evaluations since then
        self.seconds: float = 0.0  # spent on training, over all starts

    def training_step(self, *, check_finite: bool = False) -> TrainingStep:
        return TrainingStep(
            self.config, self.task, self.model, self.optimizer, self.averaged,
            check_finite=check_finite, ranks=self.ranks,
        )  # fmt: skip

    # -- evaluation ---------------------------------------------------------------------------

    @contextmanager
    def evaluated_model(self) -> Iterator[nn.Module]:
        """The model to judge, in evaluation mode and without gradients: the running mean if there
        is one. What is drawn inside is the same each time and leaves training's stream alone."""
        model = self.model if self.averaged is None else self._averaged_with_buffers()
        with eg.no_grad(), using_generator(stream(self.config.seed + _EVALUATION_STREAM)):
            model.eval()
            try:
                yield model
            finally:
                model.train()

    def _averaged_with_buffers(self) -> nn.Module:
        """The running mean, with the newest buffers: counts and statistics have no mean."""
        assert self.averaged is not None
        pairs = zip(self.averaged.buffers(), self.model.buffers(), strict=True)
        with eg.no_grad():
            for own, newest in pairs:
                own.copy_(newest)
        return self.averaged

    def note_evaluation(self, loss: float) -> bool:
        """Enter a held-out loss; returns whether it is the best so far."""
        if loss < self.best:
            self.best, self.stale = loss, 0
            return True
        self.stale += 1
        return False

    # -- checkpoints --------------------------------------------------------------------------

    def capture(self) -> dict[str, object]:
        """The state as plain values and tensors, which are not copied."""
        return {
            "step": self.step,
            "batches": self.step * self.config.accumulate,
            "best": self.best,
            "stale": self.stale,
            "seconds": self.seconds,
            "model": dict(self.model.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "average": None if self.averaged is None else dict(self.averaged.state_dict()),
            "random": self._random_states(),
            "extras": self.task.extras(),
        }

    def restore(self, content: JsonObject) -> None:
        """Continue from what :meth:`capture` gave."""
        self.step = content["step"]
        self.best, self.stale = content["best"], content["stale"]
        self.seconds = content["seconds"]
        self.model.load_state_dict(content["model"])
        self.optimizer.load_state_dict(content["optimizer"])
        if self.averaged is not None and content["average"] is not None:
            self.averaged.load_state_dict(content["average"])
        self._restore_random(content["random"])

    def _random_states(self) -> Tensor:
        """The state of the stream; with several ranks, of each of them."""
        states = self.ranks.gathered(self.generator.get_state().tolist())
        return self.generator.get_state() if len(states) == 1 else eg.tensor(states, dtype=eg.uint8)

    def _restore_random(self, saved: eg.Tensor) -> None:
        """Continue the stream of this rank. A rank that the former start did not have begins one
        of its own, which depends on the step."""
        states = saved.reshape(1, -1) if saved.ndim == 1 else saved
        if self.ranks.rank < len(states):
            self.generator.set_state(states[self.ranks.rank].clone())
        else:
            self.generator = stream(self.ranks.seed(self.config.seed) + 1 + self.step)

    def is_finite(self) -> bool:
        """Whether all weights are: a state that is not is never written."""
        return all(bool(np.isfinite(p.detach().numpy()).all()) for p in self.model.parameters())


def _frozen_copy(model: nn.Module) -> nn.Module:
    return copy.deepcopy(model).requires_grad_(False)
