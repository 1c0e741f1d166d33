"""Classifiers of pictures: LeNet-5, a perceptron, ResNet and ViT."""

from __future__ import annotations

import dataclasses
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np

from evergrad import nn
from evergrad.core.tensor import Tensor, from_array
from evergrad.core.types import Array
from evergrad.models.lenet import LeNet5, LeNetConfig
from evergrad.models.mlp import MLP, MLPConfig
from evergrad.models.resnet import ResNet, ResNetConfig
from evergrad.models.vit import ViT, ViTConfig
from evergrad.nn import functional as F
from evergrad.train.config import ConfigError, OptimizerConfig, RunConfig
from evergrad.train.task import Sample, Task, is_function_name
from evergrad.train.tasks.augmentation import varied
from evergrad.train.tasks.draws import draw
from evergrad.train.tasks.grid import framed, grid
from evergrad.train.tasks.loaders import LoadedSet, as_bytes, load_examples
from evergrad.train.tasks.pictures import PictureSet, load_pictures

SAMPLE_COUNT = 64
RIGHT, WRONG = (0.2, 0.8, 0.3), (0.95, 0.2, 0.2)  # colours of frames
BETAS = (0.9, 0.999)


@dataclasses.dataclass(frozen=True)
class Facts:
    """What a model has to know of its pictures."""

    classes: int
    channels: int
    size: int

    @property
    def inputs(self) -> int:
        """How many numbers a picture has."""
        return self.channels * self.size**2


class PictureTask(Task):
    """Pictures in batches that go through the whole set, in another order each time.

    The pictures are loaded when they are first needed: a model from a checkpoint can be made
    without them.
    """

    unit = "images"
    model_type: ClassVar[type]
    own_source: ClassVar[str] = "shapes"  # where none is named
    shape_size: ClassVar[int] = 16  # of generated shapes

    def __init__(self, config: RunConfig, extras: dict[str, Any] | None = None) -> None:
        super().__init__(config, extras)
        self.facts: Facts = Facts(**extras["facts"]) if extras else self._facts()
        self._order = lru_cache(maxsize=1)(self._permutation)

    @cached_property
    def pictures(self) -> PictureSet:
        data = self.config.data
        if is_function_name(data.source):
            raise ConfigError(f"the task {self.name} takes no pictures from a function")
        return load_pictures(data.source or self.own_source, data.held_out, self.picture_size)

    @property
    def picture_size(self) -> int:
        """Height and width of pictures that can be made in any size."""
        return self.shape_size

    def _facts(self) -> Facts:
        pictures = self.pictures
        return Facts(len(pictures.classes), pictures.channels, pictures.size)

    @property
    def units_per_batch(self) -> int:
        return self.config.batch

    def model(self) -> nn.Module:
        known = {option: getattr(self.facts, option) for option in self.set_by_data}
        try:
            model: nn.Module = self.model_type(dataclasses.replace(self.config.model, **known))
        except ValueError as error:
            raise ConfigError(f"the model does not fit the pictures: {error}") from error
        return model

    def batch(self, number: int) -> tuple[Tensor, ...]:
        train, size = self.pictures.train, self.config.batch
        if size > len(train):
            raise ConfigError(f"a batch of {size} is more than all {len(train)} pictures")
        epoch, place = divmod(number, len(train) // size)
        chosen = self._order(epoch)[place * size : (place + 1) * size]
        return self.examples(chosen, number)

    def examples(self, chosen: Array, number: int) -> tuple[Tensor, Tensor]:
        """The chosen examples of the set to train with, varied for the batch of this number."""
        pictures = varied(self.pictures, chosen, draw(self.config.seed, "variation", number))
        return self.scaled(pictures), from_array(self.pictures.train.labels[chosen])

    def _permutation(self, epoch: int) -> Array:
        return draw(self.config.seed, "order", epoch).randperm(len(self.pictures.train))

    def scaled(self, pictures: Array) -> Tensor:
        """Bytes as numbers around 0 with a deviation of 1."""
        mean, deviation = self._statistics
        return from_array((pictures * np.float32(1 / 255) - mean) / deviation)

    @cached_property
    def _statistics(self) -> tuple[np.float32, np.float32]:
        mean, deviation = self.pictures.mean_and_deviation()
        return np.float32(mean), np.float32(deviation)

    def held_out_batches(self) -> list[tuple[Tensor, Tensor]]:
        """The batches of every evaluation: all held-out pictures, or as many spread over them."""
        part, size = self.pictures.held_out, self.config.batch
        count = min(len(part), size * self.config.evaluate_batches)
        chosen = np.linspace(0, len(part) - 1, count).astype(np.int64)
        groups = [chosen[start : start + size] for start in range(0, count, size)]
        return [self.held_out_examples(group) for group in groups]

    def held_out_examples(self, chosen: Array) -> tuple[Tensor, Tensor]:
        part = self.pictures.held_out
        return self.scaled(part.pictures[chosen]), from_array(part.labels[chosen])

    def extras(self) -> dict[str, Any]:
        return {"facts": dataclasses.asdict(self.facts)}


class ClassifierTask(PictureTask):
    """Tell the class of a picture."""

    set_by_data: ClassVar[frozenset[str]] = frozenset({"classes", "channels"})

    @cached_property
    def loaded(self) -> LoadedSet | None:
        """The examples of the DataLoader that ``--data module:function`` gives."""
        data = self.config.data
        return load_examples(data.source, data.held_out) if is_function_name(data.source) else None

    @cached_property
    def pictures(self) -> Any:
        return super().pictures if self.loaded is None else self.loaded

    def examples(self, chosen: Array, number: int) -> tuple[Tensor, Tensor]:
        if self.loaded is not None:
            return self.loaded.train.examples(chosen)
        return super().examples(chosen, number)

    def held_out_examples(self, chosen: Array) -> tuple[Tensor, Tensor]:
        if self.loaded is not None:
            return self.loaded.held_out.examples(chosen)
        return super().held_out_examples(chosen)

    def loss(self, model: nn.Module, *batch: Tensor) -> Tensor:
        pictures, labels = batch
        return F.cross_entropy(model(pictures), labels)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """The mean loss and the share of held-out pictures that are recognised."""
        loss, right, total = 0.0, 0, 0
        for pictures, labels in self.held_out_batches():
            scores = model(pictures)  # (B, classes)
            loss += F.cross_entropy(scores, labels, reduction="sum").item()
            right += int((scores.argmax(1) == labels).sum())
            total += len(labels)
        return {"loss": loss / total, "accuracy": right / total}

    def sample(self, model: nn.Module, seed: int) -> Sample:
        """Held-out pictures, in a green frame if they are recognised and in a red one if not."""
        part = self.pictures.held_out
        chosen = draw(seed, "sample").randperm(len(part))[:SAMPLE_COUNT]
        given, labels = self.held_out_examples(chosen)
        shown = part.pictures[chosen] if self.loaded is None else as_bytes(given)
        answers = model(given).argmax(1).array()
        colours = [RIGHT if right else WRONG for right in answers == labels.array()]
        return Sample(image=grid(framed(shown, colours)))


class LeNetTask(ClassifierTask):
    """LeNet-5 on digits: generated ones, or MNIST with ``--data mnist``."""

    name = "lenet"
    model_type = LeNet5
    set_by_data: ClassVar[frozenset[str]] = frozenset({"classes", "channels", "size"})
    own_source = "digits"
    shape_size = 28

    @classmethod
    def presets(cls) -> dict[str, RunConfig]:
        return _digit_presets("lenet", [LeNetConfig()] * 4)


class MLPTask(ClassifierTask):
    """A perceptron on digits."""

    name = "mlp"
    model_type = MLP
    set_by_data: ClassVar[frozenset[str]] = frozenset({"classes", "inputs"})
    own_source = "digits"
    shape_size = 28

    @classmethod
    def presets(cls) -> dict[str, RunConfig]:
        return _digit_presets(
            "mlp",
            [
                MLPConfig(layers=1, width=64),
                MLPConfig(layers=2, width=256),
                MLPConfig(layers=2, width=512, dropout=0.1),
                MLPConfig(layers=3, width=1024, dropout=0.2),
            ],
        )


def _digit_presets(task: str, models: list[object]) -> dict[str, RunConfig]:
    """The same schedules for every small model of digits."""
    tiny, small, medium, large = models
    return {
        "tiny": RunConfig(
            task=task, steps=100, batch=32, evaluate_every=50, sample_every=100,
            model=tiny, optimizer=OptimizerConfig(lr=3e-3, warmup=10, betas=BETAS),
        ),
        "small": RunConfig(
            task=task, steps=1000, batch=64, evaluate_every=200, evaluate_batches=160,
            sample_every=500, model=small,
            optimizer=OptimizerConfig(lr=2e-3, warmup=50, final=0.02, betas=BETAS),
        ),
        "medium": RunConfig(
            task=task, steps=4700, batch=64, evaluate_every=940, evaluate_batches=160,
            sample_every=2350, checkpoint_every=470, model=medium,
            optimizer=OptimizerConfig(lr=2e-3, warmup=100, final=0.01, betas=BETAS),
        ),
        "large": RunConfig(
            task=task, steps=14_000, batch=128, evaluate_every=1000, evaluate_batches=80,
            sample_every=5000, checkpoint_every=1000, ema=0.999, model=large,
            optimizer=OptimizerConfig(lr=2e-3, warmup=200, final=0.01, betas=BETAS),
        ),
    }  # fmt: skip


class ResNetTask(ClassifierTask):
    """A ResNet on generated shapes, or CIFAR-10 with ``--data FOLDER``."""

    name = "resnet"
    model_type = ResNet

    @classmethod
    def presets(cls) -> dict[str, RunConfig]:
        return {
            "tiny": RunConfig(
                task="resnet", steps=60, batch=16, evaluate_every=20, sample_every=60,
                model=ResNetConfig(width=16),
                optimizer=OptimizerConfig(lr=1e-3, warmup=10, betas=BETAS),
            ),
            "small": RunConfig(
                task="resnet", steps=300, batch=32, evaluate_every=100, evaluate_batches=16,
                sample_every=100, checkpoint_every=100, model=ResNetConfig(),
                optimizer=OptimizerConfig(lr=1e-3, warmup=30, final=0.02, betas=BETAS),
            ),
            "medium": RunConfig(
                task="resnet", steps=4000, batch=64, evaluate_every=500, evaluate_batches=40,
                sample_every=1000, model=ResNetConfig(), ema=0.999,
                optimizer=OptimizerConfig(lr=2e-3, warmup=200, final=0.02, betas=BETAS),
            ),
            "large": RunConfig(
                task="resnet", steps=20_000, batch=64, evaluate_every=1000, evaluate_batches=160,
                sample_every=5000, checkpoint_every=500, model=ResNetConfig(depth=50),
                ema=0.999, optimizer=OptimizerConfig(lr=1e-3, warmup=500, final=0.01, betas=BETAS),
            ),
        }  # fmt: skip


class ViTTask(ClassifierTask):
    """A transformer of patches on generated shapes, or CIFAR-10 with ``--data FOLDER``."""

    name = "vit"
    model_type = ViT
    set_by_data: ClassVar[frozenset[str]] = frozenset({"classes", "channels", "size"})

    @classmethod
    def presets(cls) -> dict[str, RunConfig]:
        return {
            "tiny": RunConfig(
                task="vit", steps=100, batch=32, evaluate_every=50, sample_every=100,
                model=ViTConfig(layers=2, heads=2, width=64),
                optimizer=OptimizerConfig(lr=2e-3, warmup=20),
            ),
            "small": RunConfig(
                task="vit", steps=800, batch=64, evaluate_every=200, evaluate_batches=16,
                sample_every=400, model=ViTConfig(),
                optimizer=OptimizerConfig(lr=1e-3, warmup=80, final=0.02),
            ),
            "medium": RunConfig(
                task="vit", steps=5000, batch=64, evaluate_every=500, evaluate_batches=40,
                sample_every=1000, ema=0.999,
                model=ViTConfig(layers=6, heads=6, width=192, dropout=0.1),
                optimizer=OptimizerConfig(lr=1e-3, warmup=200, final=0.02),
            ),
            "large": RunConfig(
                task="vit", steps=20_000, batch=64, evaluate_every=1000, evaluate_batches=160,
                sample_every=5000, checkpoint_every=500, ema=0.999,
                model=ViTConfig(layers=8, heads=8, width=384, dropout=0.1),
                optimizer=OptimizerConfig(lr=5e-4, warmup=500, final=0.01),
            ),
        }  # fmt: skip
