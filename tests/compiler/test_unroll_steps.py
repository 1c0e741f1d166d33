"""Recurrent layers over one time step: products and loops in inference, the layer's kernel where a
derivative reads its residuals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad import nn

from .test_attention import labels, normal


def layer(kind: str, **options: Any) -> Any:
    eg.manual_seed(0)
    return getattr(nn, kind)(7, 12, num_layers=2, **options)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True}, {"bias": False}])
def test_a_stream_of_steps(kind: str, options: dict[str, bool]) -> None:
    net = layer(kind, **options)
    compiled = eg.compile(lambda x, state: net(x, state))
    state = theirs = None
    with eg.no_grad():
        for number in range(3):
            x = eg.tensor(normal(1, 2, 7, seed=number))
            if state is None:
                _, state = net(x)
                theirs = state
            y, state = compiled(x, state)
            expected, theirs = net(x, theirs)
            np.testing.assert_allclose(y.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)
    assert not any("layer" in label for label in labels(compiled))


def test_many_steps_and_training_keep_the_kernel() -> None:
    net = layer("LSTM")
    infer = eg.compile(lambda x: net(x)[0])
    with eg.no_grad():
        infer(eg.tensor(normal(5, 2, 7)))
    assert "lstm_layer" in labels(infer)

    def gradients(x: Any) -> Any:
        return eg.autograd.grad(net(x)[0].square().sum(), list(net.parameters()))

    train, x = eg.compile(gradients), eg.tensor(normal(1, 2, 7))
    for ours, theirs in zip(train(x), gradients(x), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-6)
    assert "lstm_layer" in labels(train)
