"""GPT: values against a model written in PyTorch, causality, the key-value cache."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.models import GPT, GPTConfig

from .tiny import GPT_SIZES, GPTS

variants = pytest.mark.parametrize("name", GPTS)


def made(config: GPTConfig) -> GPT:
    """A model whose weights are all large enough to matter."""
    eg.manual_seed(0)
    model = GPT(config)
    with eg.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.4)
    return model.eval()


# -- the same in PyTorch, written another way: complex rotations, heads in a loop, a plain mask --


def rotated(torch: Any, x: Any) -> Any:  # (T, hs): number i and number i + hs / 2 are a pair
    half = x.shape[1] // 2
    angles = torch.outer(
        torch.arange(len(x), dtype=x.dtype),
        torch.tensor([10_000.0 ** (-i / half) for i in range(half)], dtype=x.dtype),
    )
    turned = torch.complex(x[:, :half], x[:, half:]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([turned.real, turned.imag], dim=1)


def normed(torch: Any, config: GPTConfig, state: dict[str, Any], name: str, x: Any) -> Any:
    if config.norm == "layer":
        x = x - x.mean(-1, keepdim=True)
    x = x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * state[f"{name}.weight"]
    return x + state.get(f"{name}.bias", 0.0)


def linear(state: dict[str, Any], name: str, x: Any) -> Any:
    return x @ state[f"{name}.weight"].T + state.get(f"{name}.bias", 0.0)


def attended(torch: Any, config: GPTConfig, joint: Any) -> Any:  # (T, (nh + 2 nkv) hs)
    size, shared = config.head_size, config.heads // config.shared_heads
    parts = joint.split(size, dim=1)
    later = torch.ones(len(joint), len(joint), dtype=torch.bool).triu(1)
    heads = []
    for head in range(config.heads):
        q = parts[head]
        k = parts[config.heads + head // shared]
        v = parts[config.heads + config.shared_heads + head // shared]
        if config.positions == "rotary":
            q, k = rotated(torch, q), rotated(torch, k)
        scores = (q @ k.T / math.sqrt(size)).masked_fill(later, -math.inf)
        heads.append(scores.softmax(1) @ v)
    return torch.cat(heads, dim=1)  # (T, C)


def reference(torch: Any, config: GPTConfig, state: dict[str, Any], tokens: Any) -> Any:  # (T)
    x = state["tokens.weight"][tokens]
    if config.positions == "learned":
        x = x + state["positions.weight"][: len(tokens)]
    for number in range(config.layers):
        name = f"blocks.{number}"
        y = normed(torch, config, state, f"{name}.norm1", x)
        y = attended(torch, config, linear(state, f"{name}.attention.qkv", y))
        x = x + linear(state, f"{name}.attention.out", y)
        y = normed(torch, config, state, f"{name}.norm2", x)
        wide = linear(state, f"{name}.feed_forward.widen", y)
        if config.feed_forward == "gelu":
            wide = wide * 0.5 * (1 + torch.erf(wide / math.sqrt(2)))
        else:
            gate = linear(state, f"{name}.feed_forward.gate", y)
            wide = wide * gate * torch.sigmoid(gate)
        x = x + linear(state, f"{name}.feed_forward.out", wide)
    x = normed(torch, config, state, "norm", x)
    return x @ state["tokens.weight" if config.tie else "head.weight"].T


@variants
def test_scores_and_gradients_are_those_of_pytorch(
    name: str, torch: ModuleType, float64: None
) -> None:
    config = GPTS[name]
    model = made(config)
    tokens = np.array([[3, 1, 4, 1, 5, 9], [2, 7, 1, 8, 2, 8]])
    state = {
        key: torch.tensor(value.numpy(), requires_grad=True)
        for key, value in model.state_dict().items()
    }
    theirs = torch.stack([reference(torch, config, state, torch.tensor(row)) for row in tokens])
    ours = model(eg.tensor(tokens))
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-10)
    theirs.sin().sum().backward()
    ours.sin().sum().backward()
    for key, parameter in model.named_parameters():
        expected = state[key].grad.numpy()
        np.testing.assert_allclose(parameter.grad.numpy(), expected, rtol=1e-8, atol=1e-10)


# -- what makes it a language model -------------------------------------------------------------


@variants
def test_a_later_token_changes_no_earlier_score(name: str) -> None:
    model = made(GPTS[name])
    first = eg.tensor([[1, 2, 3, 4, 5, 6]])
    other = eg.tensor([[1, 2, 3, 9, 5, 6]])
    with eg.no_grad():
        a, b = model(first).numpy(), model(other).numpy()
    np.testing.assert_array_equal(a[:, :3], b[:, :3])
    for place in (3, 4, 5):
        assert np.abs(a[:, place] - b[:, place]).max() > 1e-3


@variants
def test_the_cache_gives_the_scores_of_the_whole(name: str) -> None:
    model = made(GPTS[name])
    tokens = [3, 1, 4, 1, 5, 9]
    cache = model.new_cache()
    with eg.no_grad():
        whole = model(eg.tensor([tokens])).numpy()
        for begin in (1, 3, 5):  # tokens that are read at once
            cache.reset()
            read = [model(eg.tensor([tokens[:begin]]), cache)]
            read += [model(eg.tensor([[token]]), cache) for token in tokens[begin:]]
            np.testing.assert_allclose(eg.cat(read, 1).numpy(), whole, rtol=2e-5, atol=2e-5)
            assert cache.position.item() == len(tokens)


def test_attention_weights_and_residuals_are_dropped_in_training_alone() -> None:
    eg.manual_seed(0)
    model = GPT(GPTConfig(**GPT_SIZES, dropout=0.5))
    tokens = eg.tensor([[3, 1, 4, 1]])
    assert not eg.equal(model(tokens), model(tokens))
    model.eval()
    assert eg.equal(model(tokens), model(tokens))


def test_initial_weights_are_those_of_gpt2() -> None:
    eg.manual_seed(0)
    model = GPT(GPTConfig(vocabulary=300, context=8, layers=8, heads=4, width=64))
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert not parameter.any()
        elif "norm" in name:
            assert bool((parameter == 1).all())
        else:
            expected = 0.005 if name.endswith("out.weight") else 0.02
            assert parameter.std().item() == pytest.approx(expected, rel=0.1), name
    # A model that knows nothing is as unsure as can be.
    tokens = eg.randint(0, 300, (4, 8))
    assert model.loss(tokens, tokens.flip(1)).item() == pytest.approx(math.log(300), abs=0.15)


def test_too_many_tokens_are_an_error() -> None:
    model = GPT(GPTConfig(**GPT_SIZES))
    with pytest.raises(ValueError, match=r"7 tokens .* context of 6[\s\S]*larger context"):
        model(eg.zeros(1, 7, dtype=eg.int64))
