"""Generated pictures with captions: one shape, or two and how they stand to each other.

"a red circle", "a green cross above a yellow square". Captions are words of a small vocabulary;
words it does not have get one of a few spare numbers, so that new ones can be learned.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np

from evergrad.core.types import Array
from evergrad.train.tasks.draws import draw
from evergrad.train.tasks.shapes import COLOURS, SHAPES, distances

RELATIONS = {"left of": (-1, 0), "right of": (1, 0), "above": (0, -1), "below": (0, 1)}
PALETTE = {**COLOURS, "purple": (165, 80, 200)}
WORDS = ["", "a", "left", "right", "of", "above", "below", *SHAPES, *COLOURS]
SPARE = 16
VOCABULARY = len(WORDS) + SPARE
GROUND = 24
_CLOSE, _FAR = 0.30, 0.45  # half the width of a shape, where the picture goes from -1 to 1


class Scenes(NamedTuple):
    """Pictures (N, 3, size, size) of uint8 and their captions."""

    pictures: Array
    captions: list[str]


def encode_caption(caption: str, length: int) -> list[int]:
    """The numbers of a caption's words; the rest is filled with 0."""
    words = caption.lower().replace(",", " ").split()
    if len(words) > length:
        raise ValueError(f"a caption has at most {length} words, this one has {len(words)}")
    numbers = [_number(word) for word in words]
    return numbers + [0] * (length - len(numbers))


def _number(word: str) -> int:
    if word in WORDS:
        return WORDS.index(word)
    digest = hashlib.blake2b(word.encode(), digest_size=4).digest()
    return len(WORDS) + int.from_bytes(digest) % SPARE


def scenes(count: int, size: int, part: str, colours: tuple[str, ...] = tuple(COLOURS)) -> Scenes:
    """A set of scenes; each ``part`` is drawn anew, and is always the same."""
    generator = draw(0, f"scenes/{part}")
    kinds = generator.randint(0, 1 << 30, (count, 6), np.dtype(np.int64))
    places = generator.uniform((count, 6), np.dtype(np.float32)) * 2 - 1
    found = [_scene(kinds[i], places[i], size, colours) for i in range(count)]
    pictures = np.stack([picture for picture, _ in found])
    return Scenes(pictures, [caption for _, caption in found])


def _scene(kinds: Array, places: Array, size: int, colours: tuple[str, ...]) -> tuple[Array, str]:
    first = colours[kinds[0] % len(colours)], SHAPES[kinds[1] % len(SHAPES)]
    picture = np.full((3, size, size), GROUND, np.float32)
    if kinds[2] % 2:
        extent = _FAR + 0.1 * float(places[0])
        _paint(picture, *first, 0.4 * float(places[1]), 0.4 * float(places[2]), extent)
        return _rounded(picture), "a {} {}".format(*first)
    second = colours[kinds[3] % len(colours)], SHAPES[kinds[4] % len(SHAPES)]
    relation, (dx, dy) = list(RELATIONS.items())[kinds[5] % len(RELATIONS)]
    aside = 0.15 * places[3:5]
    _paint(picture, *first, 0.5 * dx + aside[0] * abs(dy), 0.5 * dy + aside[0] * abs(dx), _CLOSE)
    _paint(picture, *second, -0.5 * dx + aside[1] * abs(dy), -0.5 * dy + aside[1] * abs(dx), _CLOSE)
    return _rounded(picture), "a {} {} {} a {} {}".format(*first, relation, *second)


def _paint(picture: Array, colour: str, shape: str, x0: object, y0: object, extent: float) -> None:
    size = picture.shape[1]
    line = (np.arange(size, dtype=np.float32) + 0.5) * (2.0 / size) - 1
    outside = distances(line - x0, line[:, None] - y0, np.array(extent, np.float32))[
        SHAPES.index(shape)
    ]
    coverage = np.clip(0.5 - outside * size / 2, 0, 1)
    paint = np.array(PALETTE[colour], np.float32)[:, None, None]
    picture += coverage * (paint - picture)


def _rounded(picture: Array) -> Array:
    return np.round(picture).astype(np.uint8)
