"""Random numbers for transforms, from the default generator, one call of PyTorch's for each."""

from __future__ import annotations

import math
from collections.abc import Sequence

import evergrad as eg

ATTEMPTS = 10  # to draw a rectangle that fits into the image


def uniform(low: float, high: float) -> float:
    """One number between the two."""
    return float(eg.empty(1).uniform_(low, high).item())


def below(limit: int) -> int:
    """One of the whole numbers from 0 to ``limit`` - 1."""
    return int(eg.randint(0, limit, size=(1,)).item())


def happens(p: float) -> bool:
    """Whether an event of probability ``p`` takes place."""
    return bool(eg.rand(1).item() < p)


def sides(area: float, scale: Sequence[float], ratio: Sequence[float]) -> tuple[int, int]:
    """Two sides of a rectangle: a part of the area, the ratio even on the logarithmic scale."""
    part = area * uniform(scale[0], scale[1])
    low, high = eg.log(eg.tensor(ratio)).tolist()
    aspect = float(eg.exp(eg.empty(1).uniform_(low, high)).item())
    return round(math.sqrt(part * aspect)), round(math.sqrt(part / aspect))
