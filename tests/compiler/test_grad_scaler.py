"""A GradScaler inside compiled steps: skipped steps are selections, and agree with eager ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad import nn, optim
from evergrad.nn import functional as F

STEPS = 50


class Run:
    """A model with an optimizer and a scaler, stepped eagerly or compiled."""

    def __init__(self, make: Any, spelling: str, *, compiled: bool) -> None:
        eg.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
        self.opt = make(self.model.parameters())
        self.scaler = eg.amp.GradScaler("cpu", init_scale=64.0, growth_interval=3)
        self.spelling = spelling
        step = getattr(self, spelling)
        self.step = eg.compile(step) if compiled else step

    def loss(self, x: Any, y: Any) -> Any:
        return F.mse_loss(self.model(x), y)

    def whole(self, x: Any, y: Any) -> Any:
        self.opt.zero_grad()
        loss = self.loss(x, y)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.opt)
        self.scaler.update()
        return loss.detach()

    def clipped(self, x: Any, y: Any) -> Any:
        loss = self.loss(x, y)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.opt)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
        self.scaler.step(self.opt)
        self.scaler.update()
        self.opt.zero_grad()
        return loss.detach(), norm

    def update_outside(self, x: Any, y: Any) -> Any:
        self.opt.zero_grad()
        loss = self.loss(x, y)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.opt)
        return loss.detach()

    def unscale_inside(self, x: Any, y: Any) -> Any:
        self.opt.zero_grad()
        loss = self.loss(x, y)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.opt)
        return loss.detach()

    def call(self, x: Any, y: Any) -> list[Any]:
        found = self.step(x, y)
        if self.spelling == "unscale_inside":
            self.scaler.step(self.opt)
        if self.spelling in ("unscale_inside", "update_outside"):
            self.scaler.update()
        results = list(found) if isinstance(found, tuple) else [found]
        state = [v for s in self.opt.state.values() for v in s.values() if isinstance(v, eg.Tensor)]
        return [t.detach().numpy().copy() for t in (*results, *self.model.parameters(), *state)]


OPTIMIZERS = {
    "sgd": lambda p: optim.SGD(p, lr=0.1),
    "momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: optim.Adam(p, lr=0.01, amsgrad=True),
    "adamw": lambda p: optim.AdamW(p, lr=0.01),
    "rmsprop": lambda p: optim.RMSprop(p, lr=0.01, momentum=0.5),
    "adagrad": lambda p: optim.Adagrad(p, lr=0.05),
    "adamax": lambda p: optim.Adamax(p, lr=0.01),
}
CASES = [(name, "whole") for name in OPTIMIZERS]
CASES += [("adam", s) for s in ("clipped", "update_outside", "unscale_inside")]


@pytest.mark.parametrize(("name", "spelling"), CASES)
def test_agrees_with_eager_over_steps_with_infinities(name: str, spelling: str) -> None:
    make = OPTIMIZERS[name]
    eager, compiled = (Run(make, spelling, compiled=c) for c in (False, True))
    source = np.random.default_rng(3)
    skipped = 0
    for number in range(STEPS):
        x, y = (eg.tensor(source.normal(size=s).astype("f4")) for s in ((5, 4), (5, 2)))
        if number and source.random() < 0.3:  # the state of optimizers is made by a whole step
            x[0, 0], skipped = (np.inf if source.random() < 0.5 else np.nan), skipped + 1
        expected, found = eager.call(x, y), compiled.call(x, y)
        assert len(expected) == len(found)
        for a, b in zip(expected, found, strict=True):
            np.testing.assert_allclose(b, a, rtol=2e-4, atol=1e-6)
        assert compiled.scaler.state_dict() == eager.scaler.state_dict(), number
    assert skipped > 5
    assert compiled.scaler.get_scale() != 64.0


def test_a_first_step_that_is_skipped_changes_nothing() -> None:
    run = Run(OPTIMIZERS["adam"], "whole", compiled=True)
    before = [p.detach().clone() for p in run.model.parameters()]
    run.call(eg.full((5, 4), float("inf")), eg.zeros(5, 2))
    for p, old in zip(run.model.parameters(), before, strict=True):
        assert eg.equal(p.detach(), old)
    assert run.scaler.get_scale() == 32.0
    assert all(float(s["step"]) == 0 for s in run.opt.state.values())
    run.call(eg.ones(5, 4), eg.zeros(5, 2))
    assert all(float(s["step"]) == 1 for s in run.opt.state.values())


def test_settings_and_state_are_read_at_every_call() -> None:
    run = Run(OPTIMIZERS["sgd"], "whole", compiled=True)
    x, y = eg.ones(5, 4), eg.zeros(5, 2)
    run.call(x, y)
    run.scaler.set_backoff_factor(0.25)
    run.call(eg.full((5, 4), float("nan")), y)
    assert run.scaler.get_scale() == 16.0
    run.scaler.load_state_dict({**run.scaler.state_dict(), "scale": 4.0, "_growth_tracker": 2})
    run.call(x, y)
    assert run.scaler.get_scale() == 8.0


def test_it_is_one_program_without_numpy_calls() -> None:
    run = Run(OPTIMIZERS["adam"], "clipped", compiled=True)
    x, y = eg.ones(5, 4), eg.zeros(5, 2)
    run.call(x, y)
    assert "call " not in str(run.step.explain(x, y))


def test_the_protocol_is_still_checked() -> None:
    run = Run(OPTIMIZERS["sgd"], "update_outside", compiled=True)
    x, y = eg.ones(5, 4), eg.zeros(5, 2)
    run.step(x, y)
    with pytest.raises(RuntimeError, match="step\\(\\) has already been called"):
        run.step(x, y)
    run.scaler.update()
    run.step(x, y)
    with pytest.raises(RuntimeError, match="after step"):
        run.scaler.unscale_(run.opt)
