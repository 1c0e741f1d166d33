"""How pictures are made of noise: what a model is trained to predict, and how one follows it.

Pictures have values from -1 to 1. A model is called with pictures (B, channels, H, W), times (B)
and labels (B), and states the ``shape`` of one picture and the label of ``no_class``.
Without a generator the default one draws.
"""

# Modules called give Any, and so do methods of tensors, which are attached at run time.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import evergrad as eg
from evergrad.core.types import GeneratorLike
from evergrad.models.model import evaluating, nearest, require
from evergrad.nn import functional as F

if TYPE_CHECKING:
    from evergrad.core.rng.default_generator import Generator
    from evergrad.core.types import Leaves
    from evergrad.models.dit import DiT
    from evergrad.nn.module import Module

Labels = eg.Tensor | Sequence[int]


class Process(ABC):
    """A way from noise to pictures.

    A part of the labels, ``unlabelled``, is hidden in training, so that a model also learns what
    all classes have in common and :meth:`sample` can be told to exaggerate the difference.
    """

    samplers: ClassVar[tuple[str, ...]]

    def __init__(self, unlabelled: float = 0.1) -> None:
        require(0 <= unlabelled <= 1, f"unlabelled is {unlabelled}", "choose a part from 0 to 1")
        self.unlabelled = unlabelled

    @abstractmethod
    def loss(
        self,
        model: object,
        images: eg.Tensor,
        labels: eg.Tensor,
        generator: Generator | None = None,
    ) -> eg.Tensor:
        """The mean squared error of what the model predicts at random times."""

    @abstractmethod
    def times(self, steps: int) -> Leaves:
        """The stops between noise and picture, both included."""

    @abstractmethod
    def ask(self, model: Module, x: eg.Tensor, time: Any, labels: eg.Tensor) -> eg.Tensor:
        """What the model predicts for pictures that are all at one time."""

    @abstractmethod
    def move(
        self,
        x: eg.Tensor,
        predicted: eg.Tensor,
        time: Any,
        next: Any,
        sampler: str,
        generator: GeneratorLike,
    ) -> eg.Tensor:
        """Pictures at the next time."""

    def hide(self, model: DiT, labels: eg.Tensor, generator: Generator | None) -> eg.Tensor:  # (B)
        """Labels of which some are ``no_class``."""
        if self.unlabelled == 0:
            return labels
        hidden = eg.rand(len(labels), generator=generator) < self.unlabelled
        return eg.where(hidden, model.no_class, labels)

    def sample(
        self, model: Module, count: int, labels: Labels, steps: int = 50,
        sampler: str | None = None,
        generator: GeneratorLike = None, guidance: float = 1.0,
    ) -> eg.Tensor:  # fmt: skip
        """``count`` pictures of these classes, (count, channels, H, W).

        With ``guidance`` above 1 they show their class more clearly than the pictures learned from.
        """
        sampler = self.check_sampler(sampler)
        require(steps >= 1, f"steps is {steps}", "take at least one")
        given = eg.as_tensor(labels)
        require(
            tuple(given.shape) == (count,),
            f"labels have the shape {tuple(given.shape)} for {count} pictures",
            "give one label for each picture",
        )
        x = eg.randn(count, *model.shape, generator=generator)
        with evaluating(model.modules()):
            for time, next in pairwise(self.times(steps)):
                predicted = self.ask(model, x, time, given)
                if guidance != 1:
                    plain = self.ask(model, x, time, eg.full_like(given, model.no_class))
                    predicted = plain + guidance * (predicted - plain)
                x = self.move(x, predicted, time, next, sampler, generator)
        return x

    def check_sampler(self, sampler: str | None) -> str:
        if sampler is None:
            return self.samplers[0]
        if sampler not in self.samplers:
            raise ValueError(
                f"{type(self).__name__} has no sampler {sampler!r}; "
                f"{nearest(sampler, self.samplers)}"
            )
        return sampler


class Flow(Process):
    """Flow matching: straight lines from noise (time 0) to pictures (time 1).

    The model predicts the velocity, picture - noise, of the line that leads through a point.

    Args:
        unlabelled: share of examples without a label, for guidance; default 0.1

    >>> model = eg.models.DiT(eg.models.DiTConfig(size=8, layers=1, width=16))
    >>> eg.models.Flow().loss(model, eg.zeros(2, 3, 8, 8), eg.tensor([1, 2])).shape
    evergrad.Size([])
    """

    samplers: ClassVar[tuple[str, ...]] = ("euler",)

    def loss(
        self, model: Any, images: eg.Tensor, labels: eg.Tensor, generator: GeneratorLike = None
    ) -> eg.Tensor:
        noise = eg.randn(images.shape, generator=generator)  # (B, channels, H, W)
        time = eg.rand(len(images), generator=generator)  # (B)
        x = noise + time.view(-1, 1, 1, 1) * (images - noise)
        velocity = model(x, time, self.hide(model, labels, generator))
        return F.mse_loss(velocity, images - noise)

    def times(self, steps: int) -> list[float]:
        return [step / steps for step in range(steps + 1)]

    def ask(self, model: Module, x: eg.Tensor, time: float, labels: eg.Tensor) -> eg.Tensor:
        return model(x, eg.full((len(x),), time), labels)

    def move(
        self, x: eg.Tensor, predicted: eg.Tensor, time: float, next: float, sampler: str,
        generator: GeneratorLike,
    ) -> eg.Tensor:  # fmt: skip
        return x + (next - time) * predicted


class DDPM(Process):
    """Pictures drown in noise step by step, and the model predicts the noise.

    After step ``t`` a picture is ``sqrt(kept[t]) * picture + sqrt(1 - kept[t]) * noise``. The model
    is conditioned on ``t / noise_steps``. The sampler ``ddim`` draws no more noise on the way,
    ``ddpm`` does.

    Args:
        noise_steps: default 1000
        unlabelled: share of examples without a label, for guidance; default 0.1

    >>> model = eg.models.DiT(eg.models.DiTConfig(size=8, layers=1, width=16))
    >>> eg.models.DDPM(10).loss(model, eg.zeros(2, 3, 8, 8), eg.tensor([1, 2])).shape
    evergrad.Size([])
    """

    samplers: ClassVar[tuple[str, ...]] = ("ddim", "ddpm")

    def __init__(self, noise_steps: int = 1000, unlabelled: float = 0.1) -> None:
        super().__init__(unlabelled)
        require(noise_steps >= 1, f"noise_steps is {noise_steps}", "take at least one")
        self.noise_steps = noise_steps
        # As much noise in all as Ho et al. (2020) add in 1,000 steps of 0.0001 to 0.02.
        scale = 1000 / noise_steps
        added = eg.linspace(1e-4 * scale, 0.02 * scale, noise_steps, dtype=eg.float64)
        self.kept: eg.Tensor = (1 - added.clamp(max=0.999)).cumprod(0).float()  # (noise_steps)

    def loss(
        self, model: Any, images: eg.Tensor, labels: eg.Tensor, generator: GeneratorLike = None
    ) -> eg.Tensor:
        noise = eg.randn(images.shape, generator=generator)  # (B, channels, H, W)
        time = eg.randint(0, self.noise_steps, (len(images),), generator=generator)  # (B)
        kept = self.kept[time].view(-1, 1, 1, 1)
        x = kept.sqrt() * images + (1 - kept).sqrt() * noise
        predicted = model(x, time / self.noise_steps, self.hide(model, labels, generator))
        return F.mse_loss(predicted, noise)

    def times(self, steps: int) -> list[int]:
        """The last is -1, where a picture has no noise."""
        require(
            steps <= self.noise_steps,
            f"{steps} steps are more than noise was added in ({self.noise_steps})",
            f"take at most {self.noise_steps}",
        )
        return [(steps - step) * self.noise_steps // steps - 1 for step in range(steps + 1)]

    def ask(self, model: Module, x: eg.Tensor, time: int, labels: eg.Tensor) -> eg.Tensor:
        return model(x, eg.full((len(x),), time / self.noise_steps), labels)

    def move(
        self,
        x: eg.Tensor,
        predicted: eg.Tensor,
        time: int,
        next: int,
        sampler: str,
        generator: GeneratorLike,
    ) -> eg.Tensor:
        now = float(self.kept[time])
        then = float(self.kept[next]) if next >= 0 else 1.0
        picture = ((x - (1 - now) ** 0.5 * predicted) / now**0.5).clamp(-1, 1)
        noise = (x - now**0.5 * picture) / (1 - now) ** 0.5
        fresh = (1 - then) / (1 - now) * (1 - now / then) if sampler == "ddpm" else 0.0
        x = then**0.5 * picture + (1 - then - fresh) ** 0.5 * noise
        if fresh > 0:
            x = x + fresh**0.5 * eg.randn(x.shape, generator=generator)
        return x
