"""GradScaler: the factor, the steps it leaves out, and its state, beside PyTorch's on the CPU."""

from __future__ import annotations

import copy
import pickle
from types import ModuleType
from typing import Any

import pytest

import evergrad
from twins import agree, refuse

INFINITE = float("inf")


def scaled_training(ns: Any, slopes: list[float], **settings: Any) -> Any:
    """Steps whose gradients are given; the parameter and the factor after each."""
    scaler = ns.amp.GradScaler("cpu", init_scale=8.0, **settings)
    p = ns.nn.Parameter(ns.ones(2))
    optimizer = ns.optim.SGD([p], lr=0.5, momentum=0.9)
    history = []
    for slope in slopes:
        optimizer.zero_grad()
        scaler.scale((p * slope).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        history.append((p.detach().clone(), scaler.get_scale(), scaler.state_dict()))
    return history


def test_the_factor_grows_and_shrinks(torch: ModuleType) -> None:
    slopes = [1.0, 2.0, INFINITE, 1.0, 1.0, float("nan"), INFINITE, 0.5, 0.5]
    settings = {"growth_interval": 2, "growth_factor": 4.0, "backoff_factor": 0.25}
    agree(lambda ns: scaled_training(ns, slopes, **settings), torch)


def test_the_factor_stays_finite(torch: ModuleType) -> None:
    agree(lambda ns: scaled_training(ns, [0.0] * 3, growth_interval=1, growth_factor=1e30), torch)


def test_gradients_can_be_clipped_between(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        scaler = ns.amp.GradScaler("cpu")
        p = ns.nn.Parameter(ns.tensor([3.0, 4.0]))
        optimizer = ns.optim.SGD([p], lr=1.0)
        scaler.scale((p * p).sum()).backward()
        scaler.unscale_(optimizer)
        norm = ns.nn.utils.clip_grad_norm_([p], 1.0)
        scaler.step(optimizer)
        scaler.update()
        return norm, p.grad, p

    agree(program, torch, tolerance=1e-6)


def test_several_optimizers_decide_for_themselves(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        scaler = ns.amp.GradScaler("cpu")
        a, b = ns.nn.Parameter(ns.ones(1)), ns.nn.Parameter(ns.ones(1))
        first, second = ns.optim.SGD([a], lr=0.1), ns.optim.SGD([b], lr=0.1)
        losses = scaler.scale([(a * 2).sum(), (b * INFINITE).sum()])
        for loss in losses:
            loss.backward()
        scaler.step(first)
        scaler.step(second)
        scaler.update()
        return a, b, scaler.get_scale()

    agree(program, torch, tolerance=1e-6)


def test_state_can_be_carried_on(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        scaler = ns.amp.GradScaler("cpu")
        scaler.scale(ns.ones(1))
        scaler.update(4.0)
        other = ns.amp.GradScaler("cpu", growth_interval=7)
        other.load_state_dict(scaler.state_dict())
        copied = pickle.loads(pickle.dumps(other))
        return other.state_dict(), copied.state_dict(), other.scale(ns.ones(2))

    agree(program, torch)


def test_settings(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        scaler = ns.amp.GradScaler("cpu")
        scaler.set_growth_factor(3.0)
        scaler.set_backoff_factor(0.1)
        scaler.set_growth_interval(5)
        return (
            scaler.get_growth_factor(), scaler.get_backoff_factor(), scaler.get_growth_interval(),
            scaler.is_enabled(), scaler.get_scale(),
        )  # fmt: skip

    agree(program, torch)


def test_switched_off_it_passes_everything_on(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        scaler = ns.amp.GradScaler("cpu", enabled=False)
        p = ns.nn.Parameter(ns.ones(1))
        optimizer = ns.optim.SGD([p], lr=0.1)
        scaler.scale(p.sum()).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        scaler.load_state_dict({})
        return p, scaler.state_dict(), scaler.get_scale(), scaler.is_enabled()

    agree(program, torch, tolerance=1e-6)


def stepped(ns: Any, *, loss: bool = True, dtype: str = "float32") -> tuple[Any, Any]:
    scaler = ns.amp.GradScaler("cpu")
    p = ns.nn.Parameter(ns.ones(1, dtype=getattr(ns, dtype)))
    optimizer = ns.optim.SGD([p], lr=0.1)
    if loss:
        scaler.scale(p.sum()).backward()
    return scaler, optimizer


def twice(ns: Any, first: str, second: str) -> None:
    scaler, optimizer = stepped(ns)
    getattr(scaler, first)(optimizer)
    getattr(scaler, second)(optimizer)


@pytest.mark.parametrize(
    "misuse",
    [
        lambda ns: ns.amp.GradScaler("cpu", growth_factor=1.0),
        lambda ns: ns.amp.GradScaler("cpu", backoff_factor=1.0),
        lambda ns: ns.amp.GradScaler("cpu").update(),
        lambda ns: ns.amp.GradScaler("cpu").load_state_dict({}),
        lambda ns: ns.amp.GradScaler("cpu").scale(3),
        lambda ns: stepped(ns)[0].update(),
        lambda ns: stepped(ns)[0].update(ns.ones(2)),
        lambda ns: stepped(ns, loss=False)[0].step(stepped(ns)[1]),
        lambda ns: twice(ns, "unscale_", "unscale_"),
        lambda ns: twice(ns, "step", "unscale_"),
        lambda ns: twice(ns, "step", "step"),
        lambda ns: (lambda s, o: s.unscale_(o))(*stepped(ns, dtype="float16")),
        lambda ns: (lambda s, o: s.step(o, closure=lambda: None))(*stepped(ns)),
    ],
)
def test_misuse_is_refused(misuse: Any, torch: ModuleType) -> None:
    refuse(misuse, torch)


def test_a_step_without_gradients_is_refused_and_leaves_the_parameter() -> None:
    scaler, optimizer = stepped(evergrad, loss=False)
    scaler.scale(evergrad.ones(1))
    with pytest.raises(AssertionError, match="No inf checks"):
        scaler.step(optimizer)
    assert optimizer.param_groups[0]["params"][0].item() == 1


def test_it_is_pickled_between_iterations(torch: ModuleType) -> None:
    """Without the optimizers that it has seen, and not while it knows something of one."""
    found = []
    for ns in (evergrad, torch):
        p = ns.nn.Parameter(ns.ones(1000))
        optimizer, scaler = ns.optim.SGD([p], lr=0.1), ns.amp.GradScaler("cpu", init_scale=8.0)
        scaler.scale(p.sum()).backward()
        scaler.unscale_(optimizer)
        with pytest.raises(AssertionError, match="may only be pickled at the beginning"):
            pickle.dumps(scaler)
        scaler.step(optimizer)
        scaler.update()
        data = pickle.dumps(scaler)
        assert len(data) < 2000
        loaded = pickle.loads(data)
        found.append(loaded.state_dict())
        loaded.scale(p.sum()).backward()
        loaded.step(optimizer)
        loaded.update()
        assert copy.deepcopy(loaded).get_scale() == 8.0
    assert found[0] == found[1]
