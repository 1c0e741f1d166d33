"""Training in mixed precision: eager and compiled alike, float32 weights, the loss of float32."""

from __future__ import annotations

from itertools import pairwise
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


def scaled_training(
    precision: Any, steps: int, *, compiled: bool
) -> tuple[list[float], list[float]]:
    """Losses and scales of training with a GradScaler, whose first scale overflows float16."""
    eg.manual_seed(0)
    model = GPT(CONFIG)
    optimizer = eg.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = eg.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=20)

    def step(x: eg.Tensor, y: eg.Tensor) -> eg.Tensor:
        with eg.autocast("cpu", dtype=precision):
            loss = model.loss(x, y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        eg.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        return loss.detach()

    run = eg.compile(step) if compiled else step
    found, scales = [], []
    for number in range(steps):
        found.append(float(run(*batch(number)).item()))
        scales.append(scaler.get_scale())
    if compiled:
        assert sum(map(len, run.variants.values())) == 1
    return found, scales


def test_float16_with_a_scaler_ends_where_float32_does() -> None:
    """Steps that overflow are left out until the scale fits, then it grows again. Within 0.05 nats
    of float32; eager and compiled steps leave out the same ones."""
    exact = losses(None, 60, compiled=True)
    found, scales = scaled_training(eg.float16, 60, compiled=True)
    skipped = sum(b < a for a, b in pairwise([2.0**24, *scales]))
    assert skipped >= 4 and scales[skipped - 1] < 2.0**24
    assert any(b > a for a, b in pairwise(scales))
    assert abs(np.mean(found[-10:]) - np.mean(exact[-10:])) < 0.05
    eager, eager_scales = scaled_training(eg.float16, 16, compiled=False)
    assert eager_scales == scales[:16]
    np.testing.assert_allclose(eager, found[:16], rtol=2e-2)


# Elements of the residual stream that a layer keeps, for each token and unit of width. Autocast
# adds to it in float32, as PyTorch does.
STREAM = 2


# The places (a token and a unit of width) of a batch.
PLACES = 8 * 128 * 128


def compiled_step(layers: int, narrow: bool, limit: int | None = None) -> tuple[GPT, Any]:
    """A model with a compiled loss and its gradients."""
    eg.manual_seed(0)
    model = GPT(GPTConfig(vocabulary=24, context=128, layers=layers, heads=2, width=128))

    def step(x: eg.Tensor, y: eg.Tensor) -> eg.Tensor:
        with eg.autocast("cpu", dtype=eg.bfloat16, enabled=narrow):
            loss = model.loss(x, y)
        loss.backward()
        return loss.detach()

    return model, eg.compile(step, memory_limit=limit)


def arena(layers: int, *, narrow: bool, limit: int | None = None) -> int:
    """The bytes that the memory plan of a compiled loss and its gradients has."""
    tokens = eg.zeros(8, 128, dtype=eg.int64)
    return int(compiled_step(layers, narrow, limit)[1].plan(tokens, tokens).peak)


def kept_by_a_layer(narrow: bool) -> float:
    """The bytes kept for backward for each token and unit of width: what a layer adds to the
    plan."""
    return (arena(5, narrow=narrow) - arena(3, narrow=narrow)) / (2 * PLACES)


def test_compiled_activations_take_half_of_the_memory() -> None:
    """But for the residual stream, which is float32: 24 bytes for 40. No float32 copies of the
    16-bit values are kept for gelu and attention."""
    wide, half = kept_by_a_layer(narrow=False), kept_by_a_layer(narrow=True)
    assert half - 4 * STREAM < 0.52 * (wide - 4 * STREAM), (wide, half)
    assert half < 0.62 * wide


def test_a_limit_makes_compiled_activations_half_of_the_memory() -> None:
    """20 bytes for 40, the stream included: what a limit asks for is recomputed, so that the loss
    and the gradients are the same to the bit."""
    half = 20 * 5 * PLACES
    # Beside what layers keep: a norm that is recomputed has one float32 value more for a moment.
    rest = arena(5, narrow=True) - 24 * 5 * PLACES + 5 * PLACES
    assert arena(5, narrow=True, limit=rest + half) <= rest + half
    tokens = eg.randint(0, 24, (8, 128))
    told = []
    for limit in (None, rest + half):
        model, step = compiled_step(5, True, limit)
        told.append([step(tokens, tokens), *[p.grad for p in model.parameters()]])
    assert all(map(eg.equal, *told))


def test_eager_activations_take_less_memory() -> None:
    """What forward keeps for backward. The copies of the weights in 16 bits are added."""
    eg.manual_seed(0)
    model = GPT(GPTConfig(vocabulary=24, context=32, layers=2, heads=2, width=64))
    x = eg.zeros(32, 32, dtype=eg.int64)

    def kept(narrow: bool) -> int:
        before = int(memory.stats()["live"])
        with eg.autocast("cpu", dtype=eg.bfloat16, enabled=narrow):
            loss = model.loss(x, x)
        held = int(memory.stats()["live"]) - before
        loss.backward()
        model.zero_grad()
        return held

    for narrow in (False, True):
        kept(narrow)
    weights = sum(p.numel() * 2 for p in model.parameters() if p.ndim > 1)
    assert kept(True) - weights < 0.62 * kept(False)
