"""Data that a function of the user's gives: ``--data module:function``.

For classifiers of pictures the function gives a DataLoader, or a pair of them of which the second
is held out. Which examples form a batch follows from the run's seed and the number of the step, as
for every other source, so that a run can be resumed: the loader's dataset and its ``collate_fn``
are used, its own order and batch size are not. For language models the function gives a text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

import evergrad as eg
from evergrad.core.tensor import Tensor
from evergrad.core.types import Array
from evergrad.train.config import ConfigError
from evergrad.train.task import named_object
from evergrad.utils.data import DataLoader, Subset


@dataclass(frozen=True)
class LoadedPart:
    """Examples (picture, label) of a map-style dataset."""

    source: str
    dataset: Any
    loader: DataLoader[Any]

    def __len__(self) -> int:
        return len(self.dataset)

    def examples(self, chosen: Sequence[int] | Array) -> tuple[Tensor, Tensor]:
        """The batch of these examples, as the loader collates them."""
        found = self.loader.collate_fn([self.dataset[int(number)] for number in chosen])
        if not (isinstance(found, list | tuple) and len(found) == 2):
            raise ConfigError(f"{self.source}: a batch has to be a pair of pictures and labels")
        pictures, labels = found
        if not (isinstance(pictures, Tensor) and pictures.ndim == 4):
            raise ConfigError(f"{self.source}: pictures have to be a tensor (B, C, H, W)")
        if not (isinstance(labels, Tensor) and not labels.is_floating_point()):
            raise ConfigError(f"{self.source}: labels have to be a tensor of whole numbers")
        return pictures.float(), labels.long()


@dataclass(frozen=True)
class LoadedSet:
    """What is trained with and what is held out, with the facts that a model needs."""

    train: LoadedPart
    held_out: LoadedPart

    @cached_property
    def classes(self) -> list[str]:
        """The dataset's ``classes``; without them, numbers up to its greatest label."""
        known = getattr(self.train.dataset, "classes", None)
        if known is not None:
            return [str(name) for name in known]
        parts = (self.train, self.held_out)
        last = max(int(part.examples([i])[1]) for part in parts for i in range(len(part)))
        return [str(number) for number in range(last + 1)]

    @property
    def channels(self) -> int:
        return int(self.train.examples([0])[0].shape[1])

    @property
    def size(self) -> int:
        height, width = self.train.examples([0])[0].shape[2:]
        if height != width:
            raise ConfigError(f"{self.train.source}: pictures are {height} x {width}, not square")
        return int(height)


def load_examples(source: str, held_out: float) -> LoadedSet:
    """The examples of a DataLoader, some of which are held out, or of a pair of loaders."""
    found = named_object(source)()
    given = found if isinstance(found, list | tuple) else [found]
    if not 1 <= len(given) <= 2 or not all(isinstance(one, DataLoader) for one in given):
        raise ConfigError(f"{source} has to give a DataLoader, or two: to train with and held out")
    parts = [LoadedPart(source, one.dataset, one) for one in given]
    for part in parts:
        if not hasattr(part.dataset, "__getitem__") or not hasattr(part.dataset, "__len__"):
            raise ConfigError(f"{source}: the dataset needs __getitem__ and __len__ (map-style)")
    if len(parts) == 2:
        return LoadedSet(*parts)
    return _split(parts[0], held_out)


def _split(whole: LoadedPart, held_out: float) -> LoadedSet:
    kept = max(1, round(len(whole) * held_out))
    if kept >= len(whole):
        raise ConfigError(f"{whole.source} has {len(whole)} examples: too few to hold some out")
    order = eg.randperm(len(whole), generator=eg.Generator().manual_seed(0)).tolist()
    train, rest = (Subset(whole.dataset, part) for part in (order[kept:], order[:kept]))
    classes = getattr(whole.dataset, "classes", None)
    if classes is not None:
        train.classes = classes  # type: ignore[attr-defined]
    return LoadedSet(*(LoadedPart(whole.source, part, whole.loader) for part in (train, rest)))


def load_written(source: str) -> str:
    """The text that a function gives."""
    text = named_object(source)()
    if not isinstance(text, str):
        raise ConfigError(f"{source} has to give a text (str), not {type(text).__name__}")
    return text


def as_bytes(pictures: Tensor) -> Array:
    """Pictures of any range as uint8, to look at."""
    values: Array = pictures.numpy()
    low, high = float(values.min()), float(values.max())
    scaled: Array = (values - low) * (255 / max(high - low, 1e-12))
    return scaled.round().astype(np.uint8)
