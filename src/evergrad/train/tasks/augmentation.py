"""Pictures that vary without changing what they show: shifted a little, or mirrored."""

from __future__ import annotations

import numpy as np

from evergrad.core.rng.default_generator import Generator
from evergrad.core.types import Array
from evergrad.train.tasks.pictures import PictureSet


def varied(pictures: PictureSet, chosen: Array, generator: Generator) -> Array:
    """The chosen pictures to train with, varied as far as their set allows."""
    batch: Array = pictures.train.pictures[chosen]
    if pictures.shift:
        batch = shifted(batch, pictures.shift, generator)
    if pictures.flip:
        batch = mirrored(batch, generator)
    return batch


def shifted(batch: Array, most: int, generator: Generator) -> Array:
    """Each picture (N, C, H, W) moved by up to ``most`` pixels; black comes in at the edges."""
    count, _, height, width = batch.shape
    padded = np.pad(batch, ((0, 0), (0, 0), (most, most), (most, most)))
    down, right = generator.randint(0, 2 * most + 1, (2, count), np.dtype(np.int64))
    rows = down[:, None, None, None] + np.arange(height)[:, None]
    columns = right[:, None, None, None] + np.arange(width)
    number = np.arange(count)[:, None, None, None]
    channel = np.arange(batch.shape[1])[:, None, None]
    return padded[number, channel, rows, columns]  # type: ignore[no-any-return]


def mirrored(batch: Array, generator: Generator) -> Array:
    """About half of the pictures with left and right exchanged."""
    chosen = generator.bernoulli(0.5, (len(batch),))
    return np.where(chosen[:, None, None, None], batch[..., ::-1], batch)
