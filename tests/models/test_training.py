"""Every model: all parameters learn, compiled as eagerly, and a state can be taken over."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad import nn
from evergrad.autograd import audit

from .tiny import MODELS

models = pytest.mark.parametrize("name", MODELS)


def wake(model: nn.Module) -> None:
    """Give small numbers to weights that begin at zero and hide those behind them."""
    with eg.no_grad():
        for parameter in model.parameters():
            if not parameter.any():
                parameter.normal_(0.0, 0.02)


@models
def test_every_parameter_gets_a_gradient(name: str) -> None:
    eg.manual_seed(0)
    model = MODELS[name].make()
    wake(model)
    MODELS[name].loss(model, *MODELS[name].batch()).backward()
    found = audit(model).raise_if_wrong()
    assert found.checked == len(list(model.parameters()))


def training(name: str, compiled: bool, rounds: int = 2) -> list[Any]:
    """The losses of some steps, and the parameters and buffers after them."""
    eg.manual_seed(0)
    tiny = MODELS[name]
    model = tiny.make()
    optimizer = eg.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(*batch: Any) -> Any:
        loss = tiny.loss(model, *batch)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    run = eg.compile(step) if compiled else step
    losses = [run(*tiny.batch()).item() for _ in range(rounds)]
    return [np.array(losses), *(value.numpy() for value in model.state_dict().values())]


# ResNet-50 has 16 blocks, all alike, which take long to compile; ResNet-18 stands for it.
@pytest.mark.parametrize("name", [name for name in MODELS if name != "resnet50"])
def test_compiled_training_is_that_of_eager_evaluation(name: str, float64: None) -> None:
    """With SGD: AdamW divides gradients by their size, so that those of rounding alone would count
    as much as any."""
    found, expected = training(name, compiled=True), training(name, compiled=False)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


# Batch norm over the four numbers that are left of such small pictures magnifies rounding: for
# ResNets test_resnet.py compares the error with that of PyTorch.
@pytest.mark.parametrize("name", [name for name in MODELS if not name.startswith("resnet")])
def test_mixed_precision_is_near_and_leaves_float32_gradients(name: str) -> None:
    losses = []
    for mixed in (False, True):
        eg.manual_seed(0)
        model, batch = MODELS[name].make(), MODELS[name].batch()
        with eg.autocast("cpu", dtype=eg.bfloat16, enabled=mixed):
            loss = MODELS[name].loss(model, *batch)
        loss.backward()
        assert all(parameter.grad.dtype is eg.float32 for parameter in model.parameters())
        losses.append(loss.item())
    assert losses[0] != losses[1] or name.startswith("dit")  # a new DiT predicts exactly 0
    assert losses[1] == pytest.approx(losses[0], rel=2e-2)


@models
def test_state_and_pickle_carry_a_model(name: str) -> None:
    eg.manual_seed(0)
    model, other = MODELS[name].make(), MODELS[name].make()
    other.load_state_dict(model.state_dict())
    copied = pickle.loads(pickle.dumps(model))
    assert copied.config == model.config
    values = []
    for each in (model, other, copied):
        eg.manual_seed(1)
        values.append(MODELS[name].loss(each.eval(), *MODELS[name].batch()).item())
    assert values[0] == values[1] == values[2]


def test_names_of_weights_are_plain() -> None:
    """Files of weights depend on them: a change is a change of format."""
    names = {
        name: list(MODELS[name].make().state_dict()) for name in ("gpt", "gpt, modern", "lstm")
    }
    block = ["norm1", "attention.qkv", "attention.out", "norm2", "feed_forward.widen",
             "feed_forward.out"]  # fmt: skip
    assert names["gpt"] == [
        "tokens.weight",
        "positions.weight",
        *(f"blocks.{i}.{part}.{kind}" for i in (0, 1) for part in block
          for kind in ("weight", "bias")),
        "norm.weight",
        "norm.bias",
    ]  # fmt: skip
    block.insert(5, "feed_forward.gate")
    assert names["gpt, modern"] == [
        "tokens.weight",
        *(f"blocks.{i}.{part}.weight" for i in (0, 1) for part in block),
        "norm.weight",
        "head.weight",
    ]
    assert names["lstm"] == [
        "tokens.weight",
        *(f"lstm.{kind}_l{i}" for i in (0, 1)
          for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")),
    ]  # fmt: skip
