"""Generated pictures: a circle, square, triangle or cross in one of four colours on dark ground.

Place and extent vary, and the brightness of the ground; edges are smooth over one pixel.
"""

from __future__ import annotations

import math

import numpy as np

from evergrad.core.types import Array
from evergrad.train.tasks.draws import draw

SHAPES = ("circle", "square", "triangle", "cross")
COLOURS = {
    "red": (225, 60, 60),
    "green": (70, 190, 80),
    "blue": (75, 110, 230),
    "yellow": (235, 205, 70),
}
CLASSES = [f"{colour} {shape}" for shape in SHAPES for colour in COLOURS]
DARKEST, BRIGHTEST = 12, 44  # of the ground


def shape_pictures(count: int, size: int, part: str) -> tuple[Array, Array]:
    """Pictures (count, 3, size, size) of uint8, and the number of each one's class.

    Each ``part`` of the set is drawn anew, and is always the same.
    """
    generator = draw(0, f"shapes/{part}")
    labels = generator.randint(0, len(CLASSES), (count,), np.dtype(np.int64))
    numbers = generator.uniform((4, count, 1, 1), np.dtype(np.float32))
    extent = 0.45 + 0.25 * numbers[0]  # half of the width, where the picture goes from -1 to 1
    x0, y0 = (2 * numbers[1:3] - 1) * (0.95 - extent)
    pixel = 2.0 / size
    line = (np.arange(size, dtype=np.float32) + 0.5) * pixel - 1
    outside = distances(line - x0, line[:, None] - y0, extent)  # (shapes, count, size, size)
    chosen = outside[labels // len(COLOURS), np.arange(count)]
    coverage = np.clip(0.5 - chosen / pixel, 0, 1)[:, None]
    colour = np.array(list(COLOURS.values()), np.float32)[labels % len(COLOURS)]
    ground = DARKEST + (BRIGHTEST - DARKEST) * numbers[3][:, None]
    pictures = coverage * colour[:, :, None, None] + (1 - coverage) * ground
    return np.round(pictures).astype(np.uint8), labels


def distances(x: Array, y: Array, extent: Array) -> Array:
    """The signed distance of each pixel to each of the shapes; negative inside."""
    x, y = np.broadcast_arrays(np.abs(x), y)
    circle = np.hypot(x, y) - extent
    square = np.maximum(x, np.abs(y)) - 0.85 * extent
    triangle = np.maximum(math.sqrt(0.75) * x - 0.5 * y, y) - 0.5 * extent
    long, short = np.maximum(x, np.abs(y)), np.minimum(x, np.abs(y))
    cross = np.maximum(long - extent, short - 0.3 * extent)
    return np.stack([circle, square, triangle, cross])
