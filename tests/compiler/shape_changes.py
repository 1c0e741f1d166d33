"""Training steps whose shapes keep changing, and what they leave in memory."""

from __future__ import annotations

import gc
import math
import random

import evergrad as eg
from evergrad import nn
from evergrad.memory.ledger import LEDGER


def train_with_changing_shapes(steps: int, shapes: int, seed: int = 0) -> list[int]:
    """Train a compiled step on batches of so many lengths, in random order; gives the live
    bytes at ten moments after each shape has been seen."""
    eg.manual_seed(seed)
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))
    optimizer = eg.optim.AdamW(model.parameters(), lr=1e-3)

    def step(x: eg.Tensor, y: eg.Tensor) -> eg.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled, rng = eg.compile(step), random.Random(seed)
    lengths = [1 + 3 * n for n in range(shapes)]
    order = lengths + [rng.choice(lengths) for _ in range(steps - shapes)]
    live = []
    for number, length in enumerate(order):
        loss = compiled(eg.randn(length, 8), eg.randint(0, 4, (length,)))
        if number >= shapes and number % max((steps - shapes) // 10, 1) == 0:
            assert math.isfinite(loss.item())
            del loss
            gc.collect()
            live.append(LEDGER.live)
    return live
