"""Results of loops that take the place of what the loop reads for the last time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad import optim
from evergrad.compiler.passes import factor_activation_grads
from evergrad.nn import functional as F

from .models import peak_of_perceptrons
from .plans import check_plan, poisoned
from .steps import arrays, programs_of, randn


def labels_of(function: Callable[..., Any], *given: Any) -> list[str]:
    """Who lies in the arena; results are compared with those of eager evaluation."""
    compiled = eg.compile(function)
    plan = compiled.plan(*given)
    (program,) = programs_of(compiled)
    check_plan(program)
    with poisoned(program):
        found = arrays(compiled(*given))
    for ours, theirs in zip(found, arrays(function(*given)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-10)
    return [buffer.label for buffer in plan.buffers]


def shared(labels: list[str]) -> int:
    return sum(", then " in label for label in labels)


def test_an_elementwise_result_lies_where_its_argument_lay() -> None:
    def function(x: Any, w: Any) -> Any:
        y = x.cumsum(0)
        return (y * y + 1).flip(0).cumsum(0) @ w

    assert shared(labels_of(function, randn(40, 30), randn(30, 5, seed=1))) >= 1


def test_what_is_read_later_is_not_overwritten() -> None:
    def function(x: Any) -> Any:
        y = x.cumsum(0)
        z = (y * y + 1).cumsum(1)
        return z.cumsum(0) + y

    labels = labels_of(function, randn(40, 30))
    assert not any(label.startswith("cumsum") and ", then mul" in label for label in labels)


def test_results_are_not_overwritten() -> None:
    def function(x: Any) -> Any:
        y = x.cumsum(0)
        return y, (y * y + 1).cumsum(1)

    assert not shared(labels_of(function, randn(40, 30)))


@pytest.mark.parametrize("view", [lambda y: y.T, lambda y: y[:1], lambda y: y[:, 3:4]])
def test_other_elements_are_not_overwritten(view: Callable[[Any], Any]) -> None:
    def function(x: Any) -> Any:
        y = x.cumsum(0)
        return (y * view(y) + 1).cumsum(1)

    assert not shared(labels_of(function, randn(30, 30)))


def test_rows_that_are_passed_over_several_times() -> None:
    """A softmax reads its argument in three passes, and the last one writes."""

    def function(x: Any) -> Any:
        y = x.cumsum(0)
        return (y * 2).cumsum(1), F.softmax(y, dim=1).cumsum(0)

    assert shared(labels_of(function, randn(50, 70))) == 1


def test_sums_see_what_was_there_before() -> None:
    def function(x: Any) -> Any:
        y, z = x.cumsum(0), x.cumsum(1)
        return z, (z * 2).cumsum(1), (y * z).sum(0)

    assert shared(labels_of(function, randn(50, 70))) == 1


def test_numbers_of_another_size_lie_elsewhere() -> None:
    def function(x: Any) -> Any:
        return x.cumsum(0).to(eg.float32).cumsum(0).to(eg.float64) * 2

    assert not shared(labels_of(function, randn(50, 70)))


def test_a_hidden_layer_gives_way_to_its_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of backward's first layer lie what is kept, one more value of the size of a hidden
    layer, and the gradient that came: the hidden layer has given way to its curve."""
    monkeypatch.setattr(factor_activation_grads, "_LITTLE", 0)  # else something else is kept
    blocks = 4
    kept = blocks * (1 + 4)
    assert peak_of_perceptrons(blocks, 1024, 48, optim.AdamW) < kept + 4 + 2 + 0.5
