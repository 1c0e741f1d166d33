"""Pictures made from noise: a class-conditional DiT."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from evergrad import nn
from evergrad.core.tensor import Tensor, from_array
from evergrad.core.types import Array
from evergrad.models.diffusion import DDPM, Flow, Process
from evergrad.models.dit import DiT, DiTConfig
from evergrad.train.config import ConfigError, OptimizerConfig, RunConfig
from evergrad.train.task import Sample
from evergrad.train.tasks.draws import draw
from evergrad.train.tasks.grid import grid
from evergrad.train.tasks.images import PictureTask

MOST_SAMPLES = 64
PER_CLASS = 4


@dataclass(frozen=True)
class DiffusionConfig(DiTConfig):
    """A DiT and the way from noise to pictures it learns."""

    process: Literal["flow", "ddpm"] = "flow"
    sampling_steps: int = 30
    guidance: float = 2.5  # how much a sample exaggerates its class; 1 does not

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sampling_steps < 1:
            raise ValueError(f"sampling_steps is {self.sampling_steps}: take at least one")


class DiTTask(PictureTask):
    """A diffusion transformer on generated shapes, or any other set of pictures."""

    name = "dit"
    model_type = DiT
    set_by_data: ClassVar[frozenset[str]] = frozenset({"classes", "channels"})

    def __init__(self, config: RunConfig, extras: dict[str, object] | None = None) -> None:
        super().__init__(config, extras)
        if self.facts.size != self.picture_size:
            raise ConfigError(
                f"the pictures have {self.facts.size} by {self.facts.size} pixels, but size is "
                f"{self.picture_size}: add --size {self.facts.size} and a --patch that divides it"
            )

    @property
    def picture_size(self) -> int:
        size: int = self.config.model.size
        return size

    @cached_property
    def process(self) -> Process:
        return Flow() if self.config.model.process == "flow" else DDPM()

    def scaled(self, pictures: Array) -> Tensor:
        """Bytes as numbers from -1 to 1."""
        return from_array(pictures * np.float32(2 / 255) - np.float32(1))

    def loss(self, model: nn.Module, *batch: Tensor) -> Tensor:
        pictures, labels = batch
        return self.process.loss(model, pictures, labels)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """The mean error on held-out pictures, with the same noise and times at each evaluation."""
        generator = draw(0, "evaluation noise")
        loss, total = 0.0, 0
        for pictures, labels in self.held_out_batches():
            found = self.process.loss(model, pictures, labels, generator=generator)
            loss += found.item() * len(labels)
            total += len(labels)
        return {"loss": loss / total}

    def sample(self, model: nn.Module, seed: int) -> Sample:
        """Pictures of all classes in turn, one class in a column."""
        columns = min(self.facts.classes, MOST_SAMPLES // PER_CLASS)
        labels = np.tile(np.arange(columns), PER_CLASS)
        options = self.config.model
        pictures = self.process.sample(
            model, len(labels), from_array(labels), options.sampling_steps,
            generator=draw(seed, "sample"), guidance=options.guidance,
        )  # fmt: skip
        return Sample(image=grid((pictures.array() + 1) / 2, columns))

    @classmethod
    def presets(cls) -> dict[str, RunConfig]:
        return {
            "tiny": RunConfig(
                task="dit", steps=100, batch=16, evaluate_every=50, sample_every=100,
                model=DiffusionConfig(size=8, layers=2, heads=2, width=64, sampling_steps=8),
                optimizer=OptimizerConfig(lr=2e-3, warmup=20),
            ),
            "small": RunConfig(
                task="dit", steps=6000, batch=16, evaluate_every=500, evaluate_batches=16,
                sample_every=1000, ema=0.99, model=DiffusionConfig(layers=3, heads=3, width=96),
                optimizer=OptimizerConfig(lr=3e-3, warmup=100, final=0.05, weight_decay=0.0),
            ),
            "medium": RunConfig(
                task="dit", steps=6000, batch=64, evaluate_every=500, sample_every=1000,
                ema=0.999, model=DiffusionConfig(layers=6, heads=6, width=192),
                optimizer=OptimizerConfig(lr=1e-3, warmup=200, final=0.05, weight_decay=0.0),
            ),
            "large": RunConfig(
                task="dit", steps=20_000, batch=64, evaluate_every=1000, sample_every=2000,
                checkpoint_every=500, ema=0.999,
                model=DiffusionConfig(size=32, patch=4, layers=8, heads=6, width=384),
                optimizer=OptimizerConfig(lr=5e-4, warmup=500, final=0.05, weight_decay=0.0),
            ),
        }  # fmt: skip
