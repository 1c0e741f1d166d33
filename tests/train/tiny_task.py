"""A task that trains in milliseconds, with everything a real one has: dropout, statistics, samples.

Named ``train.tiny_task:TinyTask`` in configurations; a process of its own needs ``tests`` on its
path.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from evergrad import nn
from evergrad.core.tensor import Tensor, from_array
from evergrad.nn import functional as F
from evergrad.train.config import DataConfig, OptimizerConfig, RunConfig
from evergrad.train.task import Sample, Task

NAME = "train.tiny_task:TinyTask"
INPUTS = 4
HELD_OUT = 1 << 20  # numbers of held-out batches begin here


@dataclass(frozen=True)
class TinyConfig:
    width: int = 8
    dropout: float = 0.1
    bad_batch: int = -1  # the number of a batch too large for float32 sums
    unused: bool = False  # a parameter that no gradient reaches


class TinyModel(nn.Module):
    def __init__(self, options: TinyConfig) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(INPUTS, options.width), nn.BatchNorm1d(options.width), nn.Tanh(),
            nn.Dropout(options.dropout), nn.Linear(options.width, 1),
        )  # fmt: skip
        if options.unused:
            self.unused = nn.Parameter(from_array(np.ones(3, np.float32)))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.body(x)
        return found


class TinyTask(Task):
    """Learns the sine of a sum."""

    name = "tiny"
    unit = "points"

    def __init__(self, config: RunConfig, extras: dict[str, Any] | None = None) -> None:
        super().__init__(config, extras)
        self.was_restored = extras is not None

    @classmethod
    def presets(cls) -> dict[str, RunConfig]:
        small = RunConfig(
            task=NAME, steps=20, batch=8, log_every=1, evaluate_every=5, evaluate_batches=2,
            sample_every=5, checkpoint_every=5, ema=0.9, model=TinyConfig(),
            data=DataConfig(), optimizer=OptimizerConfig(lr=1e-2, warmup=5),
        )  # fmt: skip
        return {"small": small}

    @property
    def units_per_batch(self) -> int:
        return self.config.batch

    def model(self) -> nn.Module:
        return TinyModel(self.config.model)

    def batch(self, number: int) -> tuple[Tensor, ...]:
        draw = np.random.default_rng([self.config.seed, number])
        x = draw.standard_normal((self.config.batch, INPUTS)).astype(np.float32)
        y = np.sin(x.sum(1, keepdims=True))
        if number == self.config.model.bad_batch:
            x[:] = 3e38
        return from_array(x), from_array(y)

    def loss(self, model: nn.Module, *batch: Tensor) -> Tensor:
        return F.mse_loss(model(batch[0]), batch[1])

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        count = self.config.evaluate_batches
        losses = [self.loss(model, *self.batch(HELD_OUT + n)).item() for n in range(count)]
        return {"loss": sum(losses) / count}

    def sample(self, model: nn.Module, seed: int) -> Sample:
        drawn = np.random.default_rng(seed).standard_normal((4, INPUTS)).astype(np.float32)
        heights = model(from_array(drawn)).numpy()
        picture = np.clip(128 + 64 * heights, 0, 255).astype(np.uint8)
        image = np.repeat(picture[:, :, None], 3, axis=2)
        return Sample(text=" ".join(f"{height:.6f}" for height in heights[:, 0]), image=image)

    def extras(self) -> dict[str, Any]:
        return {"seen": True}
