"""Compiled functions leave no cycles: reference counts alone free what they hold."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest

import evergrad as eg
from evergrad import nn
from evergrad.memory.ledger import LEDGER
from fresh_process import in_fresh_process, resident

from .steps import randn

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


pytestmark = pytest.mark.usefixtures("collector_off")


def live() -> tuple[int, int]:
    return LEDGER.live, LEDGER.count


def pure(x: Any) -> None:
    eg.compile(lambda x: (x.exp() @ x).sum(0))(x)


def with_numpy_calls(x: Any) -> None:
    eg.compile(lambda x: x.sort(0).values.cumsum(0) + eg.rand(30, 30))(x)


def step(x: Any) -> None:
    layer = nn.Linear(30, 30).double()
    optimizer = eg.optim.Adam(layer.parameters())

    def train(x: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.layer_norm(layer(x), (30,)).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    compiled = eg.compile(train)
    for _ in range(3):
        compiled(x)


def module(x: Any) -> None:
    compiled = eg.compile(nn.Sequential(nn.Linear(30, 30), nn.Tanh()).double())
    x = x.clone().requires_grad_()
    compiled(x).sum().backward()


def second_order(x: Any) -> None:
    x = x.clone().requires_grad_()
    y = eg.compile(lambda x: (x * x).sin().sum())(x)
    (first,) = eg.autograd.grad(y, x, create_graph=True)
    eg.autograd.grad(first.sum(), x)


def failing(x: Any) -> None:
    layer = nn.Linear(30, 30).double()

    def train(x: Any) -> Any:
        loss = layer(x).sum()
        loss.backward()
        return f"{loss.item():.3f}"

    with pytest.raises(eg.errors.TraceError):
        eg.compile(train, fullgraph=True)(x)
    layer.zero_grad()
    compiled = eg.compile(train)
    with pytest.warns(RuntimeWarning, match="not one compiled program"):
        compiled(x)
    for _ in range(2):
        compiled(x)


@pytest.mark.parametrize("use", [pure, with_numpy_calls, step, module, second_order, failing])
def test_a_deleted_program_frees_its_memory(use: Callable[[Any], None]) -> None:
    x = randn(30, 30)
    use(x)
    before = live()
    use(x)
    assert live() == before


@linux
def test_nothing_grows_over_steps() -> None:
    in_fresh_process(train_without_growth_over_steps)


def train_without_growth_over_steps() -> None:
    layer = nn.Linear(8, 8)
    optimizer = eg.optim.AdamW(layer.parameters())

    @eg.compile
    def train(x: Any, scale: float) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.dropout(layer(x), 0.1).square().mean() * scale
        loss.backward()
        optimizer.step()
        return loss

    x = eg.randn(4, 8)
    for n in range(300):
        train(x, float(n))
    before, pages = live(), resident()
    for n in range(2_000):
        train(x, float(n))
        assert live() == before
    assert resident() - pages < 1 << 20


@linux
def test_nothing_grows_over_gradients_from_outside() -> None:
    in_fresh_process(train_without_growth_over_gradients_from_outside)


def train_without_growth_over_gradients_from_outside() -> None:
    compiled = eg.compile(nn.Sequential(nn.Linear(8, 8), nn.Tanh()))
    x = eg.randn(4, 8).requires_grad_()

    def round() -> None:
        compiled(x).square().sum().backward()
        compiled.zero_grad()
        x.grad = None

    for _ in range(300):
        round()
    before, pages = live(), resident()
    for _ in range(1_000):
        round()
        assert live() == before
    assert resident() - pages < 1 << 20


@pytest.mark.parametrize("is_on", [True, False])
def test_the_collector_rests_while_a_program_is_made(is_on: bool) -> None:
    starts: list[object] = []
    found: list[int] = []

    def note(phase: str, info: object) -> None:
        starts.append(phase)

    def step(x: Any, fails: bool) -> Any:
        before = len(starts)
        held: list[list[int]] = [[] for _ in range(20_000)]
        found.append(len(starts) - before)
        sys.intern("a function that is no program")
        return x.reshape(7) if fails else x + len(held)

    (gc.enable if is_on else gc.disable)()
    compiled = eg.compile(step)
    gc.callbacks.append(note)
    try:
        step(eg.ones(3), False)
        with pytest.warns(RuntimeWarning, match="not one compiled program"):
            compiled(eg.ones(3), False)
        assert gc.isenabled() == is_on
        with pytest.raises(RuntimeError):
            compiled(eg.ones(3), True)
    finally:
        gc.callbacks.remove(note)
    assert gc.isenabled() == is_on
    assert (found[0] > 0) == is_on
    assert found[1:] == [0, 0]
