"""The LSTM language model against PyTorch's LSTM, and its state."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.models import LSTMConfig, LSTMLanguageModel

TOKENS = np.array([[3, 1, 4, 1, 5], [2, 7, 1, 8, 2]])


def made(**options: Any) -> LSTMLanguageModel:
    eg.manual_seed(0)
    return LSTMLanguageModel(LSTMConfig(vocabulary=11, layers=2, width=6, **options))


@pytest.mark.parametrize("tie", [True, False])
def test_scores_and_gradients_are_those_of_pytorch(
    tie: bool, torch: ModuleType, float64: None
) -> None:
    model = made(tie=tie)
    state = {
        name: torch.tensor(value.numpy(), requires_grad=True)
        for name, value in model.state_dict().items()
    }
    lstm = torch.nn.LSTM(6, 6, 2, batch_first=True, dtype=torch.float64)
    weights = {name: state[f"lstm.{name}"] for name, _ in lstm.named_parameters()}
    embedded = state["tokens.weight"][torch.tensor(TOKENS)]
    hidden, _ = torch.func.functional_call(lstm, weights, (embedded,))
    theirs = hidden @ state["tokens.weight" if tie else "head.weight"].T
    ours = model(eg.tensor(TOKENS))
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-10)
    theirs.sin().sum().backward()
    ours.sin().sum().backward()
    for name, parameter in model.named_parameters():
        expected = state[name].grad.numpy()
        np.testing.assert_allclose(parameter.grad.numpy(), expected, rtol=1e-8, atol=1e-12)


def test_the_state_stands_for_what_was_read() -> None:
    model = made().eval()
    tokens = eg.tensor(TOKENS[:1])
    state = model.new_cache()
    with eg.no_grad():
        whole = model(tokens).numpy()
        for begin in (1, 3):
            state.reset()
            read = [model(tokens[:, :begin], state)]
            read += [model(tokens[:, i : i + 1], state) for i in range(begin, 5)]
            np.testing.assert_allclose(eg.cat(read, 1).numpy(), whole, rtol=1e-5, atol=1e-6)


def test_one_layer_with_dropout_is_no_warning() -> None:
    """PyTorch's LSTM warns of dropout between layers that do not exist; here it is at the ends."""
    model = LSTMLanguageModel(LSTMConfig(vocabulary=11, layers=1, width=6, dropout=0.5))
    tokens = eg.tensor(TOKENS)
    assert not eg.equal(model(tokens), model(tokens))
