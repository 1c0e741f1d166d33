"""Compiled recurrent layers: what a loop over time adds up is one product."""

from __future__ import annotations

from typing import Any

import pytest

import evergrad as eg
from evergrad import nn

from .steps import assert_alike, programs_of, randn

STEPS, BATCH, INPUTS, HIDDEN = 7, 3, 5, 6
LAYERS = {"RNN": 1, "GRU": 3, "LSTM": 4}  # with their gates


def training(kind: str, is_compiled: bool) -> tuple[Any, Any]:
    """A step that trains a layer with weight decay and keeps its gradients; and its parameters."""
    eg.manual_seed(0)
    layer = getattr(nn, kind)(INPUTS, HIDDEN).double()
    optimizer = eg.optim.SGD(layer.parameters(), lr=0.1, weight_decay=0.01)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = layer(x)[0].square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return eg.compile(step) if is_compiled else step, list(layer.parameters())


@pytest.mark.parametrize("kind", LAYERS)
def test_training(kind: str) -> None:
    x = randn(STEPS, BATCH, INPUTS)
    (compiled, found), (eager, expected) = (training(kind, c) for c in (True, False))
    for _ in range(2):
        assert_alike([compiled(x)], [eager(x)], 1e-12)
        assert_alike([p.grad for p in found], [p.grad for p in expected], 1e-12)
        assert_alike(found, expected, 1e-12)


@pytest.mark.parametrize("kind", LAYERS)
def test_the_gradient_of_a_weight_is_one_product(kind: str) -> None:
    """Also if the gradient is kept, and the optimizer adds to it."""
    compiled, _ = training(kind, True)
    compiled(randn(STEPS, BATCH, INPUTS))
    (program,) = programs_of(compiled)
    labels = [instruction.label for instruction in program.instructions]
    rows = LAYERS[kind] * HIDDEN
    assert labels.count(f"matmul {rows}x{HIDDEN}x{STEPS * BATCH}") == 1
    assert f"matmul {rows}x{HIDDEN}x{BATCH}" not in labels
