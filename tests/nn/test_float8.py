"""Weights stored in 8 bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import evergrad as eg
from evergrad import memory, nn
from evergrad.models.gpt import GPT, GPTConfig
from evergrad.nn.utils import Float8Linear, store_float8_
from evergrad.ops.rows.float8 import decode_float8, encode_float8, largest


@pytest.mark.parametrize(("format", "error"), [("e4m3fn", 1 / 16), ("e5m2", 1 / 8)])
def test_numbers_are_rounded_to_the_nearest(format: str, error: float) -> None:
    x = eg.tensor(np.random.default_rng(0).uniform(0.1, 400, 1000).astype(np.float32))
    again = decode_float8(encode_float8(x, format), format)
    assert ((again - x).abs() / x).max().item() <= error
    assert eg.equal(decode_float8(encode_float8(again, format), format), again)
    assert decode_float8(encode_float8(eg.tensor([1e9, -1e9, 0.0]), format), format).tolist() == [
        largest(format), -largest(format), 0.0,
    ]  # fmt: skip
    with pytest.raises(ValueError, match="8-bit formats"):
        encode_float8(x, "e3m4")


@pytest.mark.parametrize("bias", [False, True])
def test_a_layer(bias: bool) -> None:
    eg.manual_seed(0)
    linear = nn.Linear(64, 32, bias=bias)
    with eg.no_grad():
        linear.weight[3] = 0  # a row without a largest element
    stored = Float8Linear(linear)
    x = eg.randn(5, 64, requires_grad=True)
    assert ((stored.weight() - linear.weight).abs() <= linear.weight.abs() / 16 + 1e-4).all()
    eg.testing.assert_close(stored(x), nn.functional.linear(x, stored.weight(), linear.bias))
    stored(x).sum().backward()
    eg.testing.assert_close(x.grad, stored.weight().sum(0).expand(5, 64))
    compiled = eg.compile(stored)
    eg.testing.assert_close(compiled(x.detach()), stored(x.detach()))
    assert [name for name, _ in stored.named_parameters()] == (["bias"] if bias else [])


def test_a_model_in_a_quarter_of_the_memory(tmp_path: Path) -> None:
    eg.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Sequential(nn.Linear(256, 256)))
    x = eg.randn(4, 256)
    expected = model(x).detach()
    before = memory.stats()["live"]
    model = store_float8_(model)
    saved = before - memory.stats()["live"]
    assert saved > 0.7 * 2 * 256 * 256 * 4
    found = model(x).detach()
    assert (found - expected).norm() < 0.06 * expected.norm()
    eg.save(model.state_dict(), tmp_path / "model.pt")
    twin = store_float8_(
        nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Sequential(nn.Linear(256, 256)))
    )
    twin.load_state_dict(eg.load(tmp_path / "model.pt"))
    assert eg.equal(twin(x), model(x))
    assert isinstance(store_float8_(nn.Linear(2, 2)), Float8Linear)


def test_a_gpt_scores_almost_as_before() -> None:
    eg.manual_seed(0)
    model = GPT(GPTConfig(vocabulary=50, context=32, layers=2, heads=2, width=64)).eval()
    tokens = eg.randint(0, 50, (2, 32))
    before = model.loss(tokens, tokens).item()
    store_float8_(model)
    assert model.loss(tokens, tokens).item() == pytest.approx(before, abs=0.02)


def test_shared_weights_stay() -> None:
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight = first.weight
    model = store_float8_(nn.Sequential(first, second, nn.Linear(4, 4)))
    assert [type(m).__name__ for m in model] == ["Linear", "Linear", "Float8Linear"]
