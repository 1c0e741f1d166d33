"""Pictures side by side, to be looked at."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from evergrad.core.tensor import from_array
from evergrad.core.types import Array
from evergrad.datasets.images import make_grid

Colour = tuple[float, float, float]

SMALLEST_WIDTH = 320  # pixels of a whole grid; small pictures are enlarged
EDGE = 1  # between pictures, before they are enlarged


def grid(images: Array, across: int | None = None) -> Array:
    """Pictures (N, C, H, W) with values from 0 to 1 as one picture (height, width, 3) of uint8.

    They stand ``across`` in a row, by default as many as give a square.
    """
    columns = across or math.ceil(math.sqrt(len(images)))
    together = make_grid(from_array(images), nrow=columns, padding=EDGE).array()
    pixels = np.round(np.clip(together, 0, 1) * 255).astype(np.uint8).transpose(1, 2, 0)
    scale = math.ceil(SMALLEST_WIDTH / pixels.shape[1])
    return np.ascontiguousarray(pixels.repeat(scale, 0).repeat(scale, 1))


def framed(pictures: Array, colours: Sequence[Colour]) -> Array:
    """Pictures (N, C, H, W) of uint8 with a frame around each: (N, 3, H + 2, W + 2), 0 to 1."""
    count, _, height, width = pictures.shape
    result = np.empty((count, 3, height + 2, width + 2), np.float32)
    result[:] = np.array(colours, np.float32)[:, :, None, None]
    result[:, :, 1:-1, 1:-1] = pictures * np.float32(1 / 255)
    return result
