"""Training in mixed precision: eager and compiled alike, float32 weights, the loss of float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad import memory
from evergrad.models.gpt import GPT, GPTConfig

CONFIG = GPTConfig(vocabulary=24, context=32, layers=2, heads=2, width=32)
# The text repeats itself: a model that learns gets far below log(24) = 3.2.
TEXT = np.tile(np.random.default_rng(0).permutation(24), 8)


def batch(number: int) -> tuple[eg.Tensor, eg.Tensor]:
    starts = np.random.default_rng(number).integers(0, 100, 4)
    rows = np.stack([TEXT[s : s + 33] for s in starts])
    return eg.tensor(rows[:, :-1]), eg.tensor(rows[:, 1:])


def losses(precision: Any, steps: int, *, compiled: bool) -> list[float]:
    eg.manual_seed(0)
    model = GPT(CONFIG)
    optimizer = eg.optim.AdamW(model.parameters(), lr=1e-2)

    def step(x: eg.Tensor, y: eg.Tensor) -> eg.Tensor:
        with eg.autocast("cpu", dtype=precision or eg.bfloat16, enabled=precision is not None):
            loss = model.loss(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    run = eg.compile(step) if compiled else step
    found = [float(run(*batch(n)).item()) for n in range(steps)]
    assert all(p.dtype is eg.float32 for p in model.parameters())
    return found


@pytest.mark.parametrize("precision", [eg.bfloat16, eg.float16], ids=str)
def test_compiled_and_eager_steps_agree(precision: Any) -> None:
    eager, compiled = (losses(precision, 6, compiled=c) for c in (False, True))
    np.testing.assert_allclose(compiled, eager, rtol=2e-2)


def test_the_loss_ends_where_that_of_float32_does() -> None:
    """Within 0.05 nats, for a loss that has fallen from 3.2."""
    exact = losses(None, 60, compiled=True)
    mixed = losses(eg.bfloat16, 60, compiled=True)
    assert exact[0] > 3 and np.mean(exact[-10:]) < 1
    assert abs(np.mean(mixed[-10:]) - np.mean(exact[-10:])) < 0.05


def test_activations_take_less_memory() -> None:
    """What forward keeps for backward in eager mode. Not half: the residual stream, attention and
    the inputs of norms are float32, and the copies of weights in 16 bits are added."""
    eg.manual_seed(0)
    model = GPT(CONFIG)
    x, y = batch(0)

    def kept(precision: Any) -> int:
        before = int(memory.stats()["live"])
        with eg.autocast("cpu", dtype=eg.bfloat16, enabled=precision is not None):
            loss = model.loss(x, y)
        held = int(memory.stats()["live"]) - before
        loss.backward()
        model.zero_grad()
        return held

    for precision in (None, eg.bfloat16):
        kept(precision)
    assert kept(eg.bfloat16) < 0.92 * kept(None)
