"""Steps of every optimizer, compiled: as in eager evaluation, with options read at run time."""

from __future__ import annotations

from typing import Any

import pytest

import evergrad as eg
from optim.optimizer_cases import CASES, ids

from .steps import Scenario, arrays, assert_alike, check, randn

ALL = [*CASES, ("Lion", {"lr": 0.1}), ("Lion", {"lr": 0.1, "weight_decay": 0.1, "maximize": True})]


class Regression(Scenario):
    """Three parameters fitted to fixed numbers; everything the optimizer keeps is watched."""

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        shapes = ((4, 3), (3, 2), (2, 3, 2))
        self.params = [eg.nn.Parameter(randn(*shape, seed=n)) for n, shape in enumerate(shapes)]
        self.optimizer = getattr(eg.optim, name)(self.groups(), **options)

    def groups(self) -> Any:
        return self.params

    def arguments(self, round: int) -> tuple[Any, ...]:
        return (randn(5, 4, seed=10 + round),)

    def step(self, x: Any) -> Any:
        w, v, u = self.params
        loss = (x @ w @ v).tanh().square().mean() + (u * u.roll(1, 0)).sum().sin()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    def watched(self) -> Any:
        return self.params, [self.optimizer.state[p] for p in self.params]


class OptionsChanged(Regression):
    """The options change between the rounds, as schedulers do it."""

    def between(self, round: int) -> None:
        if round in (2, 3):
            for group in self.optimizer.param_groups:
                group["lr"] *= 0.5


class Grouped(Regression):
    """Two groups with options of their own."""

    def groups(self) -> Any:
        return [{"params": self.params[:2]}, {"params": self.params[2:], "lr": 0.02}]


@pytest.mark.parametrize("case", ALL, ids=ids)
def test_a_changed_rate_is_honoured_without_compiling(case: tuple[str, dict[str, Any]]) -> None:
    expected = check(lambda: Regression(*case), 5)
    made = check(lambda: OptionsChanged(*case), 5)
    assert made == expected or case[0] == "Rprop"  # which asks for its rate at the first step alone


class Matrices(Regression):
    """Without the parameter of three dimensions, for optimizers of matrices."""

    def groups(self) -> Any:
        return self.params[:2]


@pytest.mark.parametrize("nesterov", [True, False])
def test_muon(nesterov: bool) -> None:
    """Its steps in bfloat16 round what was computed in another order."""
    options = {"lr": 0.1, "nesterov": nesterov}
    check(lambda: Matrices("Muon", options), 4, tolerance=2e-2)


@pytest.mark.parametrize("name", ["LBFGS"])
def test_optimizers_that_look_at_numbers_are_refused(name: str) -> None:
    scenario = Matrices(name, {})
    before = arrays(scenario.params)

    def closure() -> Any:
        scenario.optimizer.zero_grad()
        loss = sum(p.square().sum() for p in scenario.params)
        loss.backward()
        return loss

    with pytest.raises(eg.errors.TraceError):
        eg.compile(lambda: scenario.optimizer.step(closure))()
    assert_alike(scenario.params, before, 0)


@pytest.mark.parametrize("name", sorted({name for name, _ in ALL}))
def test_groups(name: str) -> None:
    check(lambda: Grouped(name, {"lr": 0.1}), 4)
