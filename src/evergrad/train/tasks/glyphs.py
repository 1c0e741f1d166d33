"""Generated digits: ten pen strokes, each time drawn by another hand.

A set in the form of MNIST (28 x 28 grey pixels) for machines without its files. Every picture has
its own slant, turn, size, place and pen, and each corner of its strokes is a little off.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from evergrad.core.rng.default_generator import Generator
from evergrad.core.types import Array
from evergrad.train.tasks.draws import draw

Point = tuple[float, float]

SIZE = 28
CLASSES = [str(digit) for digit in range(10)]
FLOAT = np.dtype(np.float32)


def _arc(x: float, y: float, width: float, height: float, start: float, end: float) -> list[Point]:
    """Corners along a part of an ellipse; angles in turns, from the right and downwards."""
    corners = max(3, round(10 * abs(end - start)) + 1)
    angles = [2 * math.pi * (start + (end - start) * k / (corners - 1)) for k in range(corners)]
    return [(x + width * math.cos(angle), y + height * math.sin(angle)) for angle in angles]


# Strokes from the left and upper edge (-1) to the right and lower (1); each is drawn in one go.
STROKES: list[list[list[Point]]] = [
    [_arc(0, 0, 0.6, 0.9, 0, 1)],
    [[(-0.35, -0.55), (0.05, -0.9), (0.05, 0.9)]],
    [_arc(0, -0.4, 0.55, 0.5, 0.5, 1.1) + [(-0.6, 0.9), (0.65, 0.9)]],
    [_arc(-0.05, -0.45, 0.5, 0.45, 0.55, 1.25), _arc(-0.05, 0.42, 0.6, 0.48, 0.75, 1.45)],
    [[(0.25, 0.9), (0.25, -0.9), (-0.65, 0.3), (0.65, 0.3)]],
    [[(0.5, -0.9), (-0.4, -0.9), (-0.5, -0.1)], _arc(-0.05, 0.35, 0.6, 0.55, 0.62, 1.42)],
    [[(0.35, -0.9), (-0.35, -0.1)], _arc(0, 0.4, 0.5, 0.5, 0, 1)],
    [[(-0.6, -0.9), (0.6, -0.9), (-0.1, 0.9)]],
    [_arc(0, -0.45, 0.45, 0.42, 0, 1), _arc(0, 0.43, 0.55, 0.47, 0, 1)],
    [_arc(0, -0.4, 0.5, 0.48, 0, 1), [(0.5, -0.4), (0.3, 0.9)]],
]


def digit_pictures(count: int, part: str) -> tuple[Array, Array]:
    """Pictures (count, 1, 28, 28) of uint8, and the digit on each.

    Each ``part`` of the set is drawn anew, and is always the same.
    """
    generator = draw(0, f"digits/{part}")
    labels = generator.randint(0, len(STROKES), (count,), np.dtype(np.int64))
    pictures = np.empty((count, 1, SIZE, SIZE), np.uint8)
    for digit, strokes in enumerate(STROKES):
        chosen = np.flatnonzero(labels == digit)
        pictures[chosen, 0] = _drawn(strokes, len(chosen), generator)
    return pictures, labels


def _drawn(strokes: list[list[Point]], count: int, generator: Generator) -> Array:
    """The same strokes by ``count`` hands: (count, 28, 28)."""
    pen = generator.uniform((count, 1), FLOAT, 0.09, 0.17)
    hand = _hands(count, generator)
    nearest = np.full((count, SIZE * SIZE), np.inf, FLOAT)
    for stroke in strokes:
        slips = generator.normal((len(stroke), count, 2), FLOAT, 0, 0.04)
        corners = np.array(stroke, FLOAT)[:, None] + slips
        placed = np.einsum("nij,knj->kni", hand[:, :, :2], corners) + hand[:, :, 2]
        for start, end in pairwise(placed):
            np.minimum(nearest, _squared_distances(start, end), out=nearest)
    ink = np.clip(0.5 - (np.sqrt(nearest) - pen) * (SIZE / 2), 0, 1)
    noise = generator.normal((count, SIZE * SIZE), FLOAT, 0, 0.04)
    pixels = np.clip(255 * (ink + noise), 0, 255)
    drawn: Array = pixels.astype(np.uint8).reshape(count, SIZE, SIZE)
    return drawn


def _hands(count: int, generator: Generator) -> Array:
    """For each picture a turn, slant, size and shift, as one affine map (count, 2, 3)."""
    turn, slant, wide, high, right, down = generator.uniform((6, count), FLOAT, -1, 1)
    cosine, sine = np.cos(0.2 * turn), np.sin(0.2 * turn)
    width, height = 0.6 + 0.12 * wide, 0.66 + 0.1 * high
    lean = 0.3 * slant * height
    return np.stack(
        [
            np.stack([cosine * width, -sine * height - cosine * lean, 0.15 * right], 1),
            np.stack([sine * width, cosine * height - sine * lean, 0.12 * down], 1),
        ],
        1,
    )


_LINE = (np.arange(SIZE, dtype=FLOAT) + 0.5) * (2 / SIZE) - 1
_PIXELS = np.stack(np.broadcast_arrays(_LINE, _LINE[:, None]), -1).reshape(-1, 2)  # (784, 2): x, y


def _squared_distances(start: Array, end: Array) -> Array:
    """From each pixel to the line between two points of each picture: (count, 784)."""
    along = end - start  # (count, 2)
    length = np.maximum((along**2).sum(1, keepdims=True), 1e-12)
    x = _PIXELS[:, 0] - start[:, :1]
    y = _PIXELS[:, 1] - start[:, 1:]
    share = np.clip((x * along[:, :1] + y * along[:, 1:]) / length, 0, 1)
    x -= share * along[:, :1]
    y -= share * along[:, 1:]
    squared: Array = x * x + y * y
    return squared
