"""Steps of every optimizer, compiled: as in eager evaluation, with options read at run time."""

from __future__ import annotations

from typing import Any

import pytest

import evergrad as eg
from optim.optimizer_cases import CASES, ids

from .steps import Scenario, assert_alike, check, program_count, randn

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


def searching() -> tuple[Regression, Any]:
    """A step of an optimizer that searches along a line, which compares losses."""
    scenario = Matrices("LBFGS", {"lr": 0.5})

    def closure() -> Any:
        scenario.optimizer.zero_grad()
        loss = sum((p.square() + p.cos()).sum() for p in scenario.params[:2])
        loss.backward()
        return loss

    return scenario, lambda: scenario.optimizer.step(closure)


def test_an_optimizer_that_reads_numbers() -> None:
    (ours, step), (theirs, eager) = searching(), searching()
    compiled = eg.compile(step)
    with pytest.warns(RuntimeWarning, match="not one compiled program"):
        assert_alike(compiled(), eager())
    for _ in range(3):
        assert_alike(compiled(), eager())
        assert_alike(ours.params, theirs.params, 1e-9)
        assert compiled.last_call.kind == "segments" and compiled.last_call.breaks
    with pytest.raises(eg.errors.TraceError, match=r"test_optimizers\.py"):
        eg.compile(searching()[1], fullgraph=True)()


@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_first_step_of_its_own(fullgraph: bool) -> None:
    """Python runs it, without a warning; one program is made for all others."""
    options = {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}
    scenario = Regression("SGD", options)
    step = eg.compile(scenario.step, fullgraph=fullgraph)
    kinds = []
    for round in range(4):
        step(*scenario.arguments(round))
        kinds.append(step.last_call.kind)
    assert kinds == ["traced", "whole", "whole", "whole"]
    assert program_count(step) == 1


@pytest.mark.parametrize("name", sorted({name for name, _ in ALL}))
def test_groups(name: str) -> None:
    check(lambda: Grouped(name, {"lr": 0.1}), 4)
