"""A guard that fails at every call: programs are compiled a bounded number of times."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import evergrad as eg
from evergrad import nn
from evergrad.compiler import api, kept_programs

LAYERS: dict[str, tuple[Callable[[], Any], str]] = {
    "dropout": (lambda: nn.Dropout(0.1), "p"),
    "batch norm": (lambda: nn.BatchNorm1d(4), "momentum"),
    "layer norm": (lambda: nn.LayerNorm(4), "eps"),
    "leaky relu": (nn.LeakyReLU, "negative_slope"),
    "alpha dropout": (nn.AlphaDropout, "p"),  # each value has a program of its own
}


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The programs that are compiled."""
    made: list[Any] = []
    variant = kept_programs.Variant

    def noting(*args: Any) -> Any:
        made.append(args)
        return variant(*args)

    monkeypatch.setattr(kept_programs, "Variant", noting)
    return made


@pytest.mark.parametrize("name", LAYERS)
def test_a_number_of_a_layer_that_keeps_changing(name: str, captures: list[Any]) -> None:
    make, attribute = LAYERS[name]
    results = []
    for wrap in (lambda f: f, eg.compile):
        eg.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), make()).double()
        optimizer = eg.optim.SGD(model.parameters(), lr=0.1)

        def train(x: Any, model: Any = model, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        step, x, found = wrap(train), eg.randn(5, 4).double(), []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for n in range(60):
                setattr(model[1], attribute, 0.5 / (n + 2))
                found.append(step(x).item())
        results.append(found)
    assert results[0] == pytest.approx(results[1], rel=1e-6)
    if name != "alpha dropout":  # an input of one program
        assert step.last_call.kind == "whole" and len(captures) <= 4
        return
    assert len(captures) <= 3 * kept_programs.VARIANT_LIMIT + 1
    assert step.last_call.kind == "eager" and "changes from call to call" in step.last_call.reason


def test_a_program_again_once_nothing_changes(
    captures: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_programs, "_TRIED_AGAIN", 8)
    layer = nn.LeakyReLU()
    step = eg.compile(lambda x: layer(x) * 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in range(40):
            layer.negative_slope = 0.5 / (n + 2)
            step(eg.ones(3))
        for _ in range(12):
            assert step(-eg.ones(3)).tolist() == pytest.approx([-2 * layer.negative_slope] * 3)
    assert step.last_call.kind == "whole"


def test_values_that_recur_have_programs(captures: list[Any]) -> None:
    layer = nn.LeakyReLU()
    step = eg.compile(lambda x: layer(x) * 2)
    for n in range(40):
        layer.negative_slope = 0.5 / (n % 4 + 2)
        assert step(-eg.ones(3)).tolist() == pytest.approx([-2 * layer.negative_slope] * 3)
    assert step.last_call.kind == "whole" and len(captures) <= 5


def test_a_function_that_reaches_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Finding out that it is no program is not repeated at every call."""
    monkeypatch.setattr(api, "_LONGEST_WALK", -1.0)
    memory = io.BytesIO()
    file = io.BufferedWriter(memory)
    step = eg.compile(lambda x: x * file.write(b"binary"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert [step(eg.ones(2)).tolist()[0] for _ in range(5)] == [6.0] * 5
    file.flush()
    assert memory.getvalue() == b"binary" * 5
    assert step.last_call.kind == "eager" and step.refusal == step.last_call.reason
