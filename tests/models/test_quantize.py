"""Small weights: bytes, scores and the loss of quality of a trained model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.datasets.text import CharVocabulary
from evergrad.models import GPT, GPTConfig
from evergrad.models.generate import generate
from evergrad.models.quantize import SmallLinear, quantize
from evergrad.optim import AdamW

from .test_gpt import made
from .tiny import GPTS

TEXT = "the quick brown fox jumps over the lazy dog. pack my box with five dozen jugs. " * 40


@pytest.fixture(scope="module")
def trained() -> tuple[dict[str, Any], GPTConfig, Any]:
    """The weights of a model that knows the text, and batches of it."""
    eg.manual_seed(0)
    tokens = CharVocabulary(TEXT).encode(TEXT)
    config = GPTConfig(vocabulary=32, context=32, layers=2, heads=2, width=32)
    model = GPT(config)
    optimizer = AdamW(model.parameters(), lr=1e-2)
    windows = tokens[: 32 * 64 + 1]
    x, y = windows[:-1].view(64, 32), windows[1:].view(64, 32)

    @eg.compile
    def step(x: Any, y: Any) -> Any:
        loss = model.loss(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    for _ in range(60):
        step(x, y)
    return model.state_dict(), config, (x, y)


@pytest.mark.parametrize(("kind", "most"), [("bfloat16", 0.005), ("int8", 0.02)])
def test_the_loss_of_quality_is_small(trained: Any, kind: Any, most: float) -> None:
    state, config, batch = trained
    model = GPT(config)
    model.load_state_dict(state)
    model.eval()
    with eg.no_grad():
        before = model.loss(*batch).item()
        after = quantize(model, kind).loss(*batch).item()
    assert before < 1.5  # it has learned something that can be lost
    assert after != before and abs(after - before) < most


@pytest.mark.parametrize("name", GPTS)
@pytest.mark.parametrize("kind", ["bfloat16", "int8"])
def test_scores_are_near_and_one_row_is_as_several(name: str, kind: Any) -> None:
    plain, small = made(GPTS[name]), quantize(made(GPTS[name]), kind)
    tokens = eg.tensor([[3, 1, 4, 1, 5]])
    with eg.no_grad():
        a, b = plain(tokens).numpy(), small(tokens).numpy()
        assert 0 < np.abs(a - b).max() < 0.12 * np.abs(a).max()
        cache = small.new_cache()
        single = [small(tokens[:, i : i + 1], cache).numpy() for i in range(5)]
    np.testing.assert_allclose(np.concatenate(single, 1), b, rtol=1e-3, atol=1e-3)
    assert len(list(generate(small, [1, 2], 6, seed=0))) == 6


def test_bytes_and_the_largest_error() -> None:
    eg.manual_seed(0)
    weight = eg.randn(24, 40) * eg.logspace(-3, 3, 24)[:, None]
    layer = SmallLinear(weight, None, "int8")
    assert layer.weight.dtype == eg.int8 and layer.weight.numel() == 24 * 40
    error = (layer.dense() - weight).abs().amax(1) / weight.abs().amax(1)
    assert error.max() <= 0.5 / 127 + 1e-6  # half a step of its own row, however large others are
    assert SmallLinear(weight, None, "bfloat16").weight.dtype == eg.bfloat16
    zero = SmallLinear(eg.zeros(2, 3), None, "int8")
    assert not zero(eg.ones(2, 3)).any()


def test_tied_weights_stay_one_and_the_kind_is_checked() -> None:
    model = quantize(made(GPTS["gpt2"]), "int8")
    assert model.tokens.weight is model.head.weight
    model = made(GPTS["gpt2"])
    assert quantize(model, "float32") is model and model.head is None
    with pytest.raises(ValueError, match="int4"):
        quantize(model, "int4")  # type: ignore[arg-type]
