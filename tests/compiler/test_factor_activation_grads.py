"""Slopes of curves: one factor of a gradient, and in small programs computed with the curve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.compiler.steps import lowered_programs_of

import evergrad as eg
import evergrad.nn.functional as F
from evergrad.compiler.passes import factor_activation_grads

pytestmark = pytest.mark.usefixtures("made_anew")

CURVES: dict[str, Callable[[Any], Any]] = {
    "gelu": F.gelu,
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "two curves": lambda x: x * eg.tanh(x) * eg.sigmoid(x),
    "twice the same value": lambda x: x * eg.exp(-x * x) + x,
}


def numbers(*shape: int, seed: int) -> Any:
    return eg.tensor(np.random.default_rng([29, seed]).standard_normal(shape))


def gradients_of(curve: Callable[[Any], Any], used_later: bool = False) -> Callable[..., Any]:
    """The gradients of a network with a curve far from its end."""

    def gradients(x: Any, up: Any, down: Any) -> Any:
        up, down = up.detach().requires_grad_(), down.detach().requires_grad_()
        hidden = x @ up
        y = curve(hidden) @ down
        for _ in range(8):
            y = y + F.layer_norm(y, y.shape[-1:]) @ y.T @ y / y.numel()
        loss = y.square().mean() + (hidden.square().mean() if used_later else 0)
        return eg.autograd.grad(loss, (up, down))

    return gradients


def data(rows: int = 64, width: int = 24) -> tuple[Any, Any, Any]:
    return numbers(rows, 8, seed=1), numbers(8, width, seed=2), numbers(width, 8, seed=3)


def graph_of(compiled: Any) -> Any:
    (program,) = lowered_programs_of(compiled)
    return program.graph


def places_of(name: str, compiled: Any) -> list[int]:
    """The equations of an op, by number."""
    return [n for n, e in enumerate(graph_of(compiled).equations) if e.op.name == name]


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize("used_later", [False, True])
def test_gradients_are_right(name: str, used_later: bool) -> None:
    """Also if the curve's argument has a further use, so that it is kept."""
    function = gradients_of(CURVES[name], used_later)
    compiled = eg.compile(function)
    for found, expected in zip(compiled(*data()), function(*data()), strict=True):
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-11, atol=1e-13)


def kept_for_backward(compiled: Any) -> list[tuple[int, ...]]:
    """The shapes of hidden values that live from forward to backward."""
    (program,) = lowered_programs_of(compiled)
    homes = program.lowering.buffer_views.items()
    shapes = {place.buffer: var.type.shape for var, place in homes}
    middle = len(program.waves) // 2
    return [shape for buffer, shape in shapes.items() if buffer.first < middle < buffer.last]


def test_the_derivative_is_computed_with_the_activation() -> None:
    compiled = eg.compile(gradients_of(F.gelu))
    compiled(*data(rows=512, width=64))
    equations = graph_of(compiled).equations
    places = places_of("ndtr", compiled) + places_of("exp", compiled)
    assert len(places) == 2 and max(places) < len(equations) // 2
    # The curve's values and their slopes, but not the argument.
    assert kept_for_backward(compiled).count((512, 64)) == 2


def test_large_derivatives_are_not_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factor_activation_grads, "_LITTLE", 512 * 64 * 8 - 1)
    compiled = eg.compile(gradients_of(F.gelu))
    compiled(*data(rows=512, width=64))
    assert kept_for_backward(compiled).count((512, 64)) == 1
    assert min(places_of("exp", compiled)) > len(graph_of(compiled).equations) // 2


def test_derivatives_are_not_hoisted_under_a_limit() -> None:
    given = data(rows=512, width=64)
    peak = eg.compile(gradients_of(F.gelu)).plan(*given).peak
    for limit, kept in ((peak, 2), (peak - 1, 1)):
        compiled = eg.compile(gradients_of(F.gelu), memory_limit=limit)
        compiled(*given)
        assert kept_for_backward(compiled).count((512, 64)) == kept
