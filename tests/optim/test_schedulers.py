"""Every schedule against PyTorch's, step by step, and resumed from its state."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad
from twins import agree, refuse

Make = Callable[[Any, Any], Any]


class Halving:
    """A callable object, whose attributes are part of a schedule's state."""

    def __init__(self, factor: float = 0.5) -> None:
        self.factor = factor

    def __call__(self, epoch: int) -> float:
        return float(self.factor**epoch)


SCHEDULES: dict[str, Make] = {
    "LambdaLR": lambda s, o: s.LambdaLR(o, lambda epoch: 0.9**epoch),
    "LambdaLR per group": lambda s, o: s.LambdaLR(o, [Halving(), lambda epoch: 1 / (epoch + 1)]),
    "MultiplicativeLR": lambda s, o: s.MultiplicativeLR(o, lambda epoch: 0.9 + 0.01 * epoch),
    "StepLR": lambda s, o: s.StepLR(o, 3),
    "StepLR gamma": lambda s, o: s.StepLR(o, 2, gamma=0.7),
    "MultiStepLR": lambda s, o: s.MultiStepLR(o, [2, 5, 5, 9], gamma=0.5),
    "ConstantLR": lambda s, o: s.ConstantLR(o, factor=0.25, total_iters=4),
    "LinearLR": lambda s, o: s.LinearLR(o),
    "LinearLR falling": lambda s, o: s.LinearLR(o, 1.0, 0.1, total_iters=7),
    "ExponentialLR": lambda s, o: s.ExponentialLR(o, 0.8),
    "PolynomialLR": lambda s, o: s.PolynomialLR(o, total_iters=8, power=2.0),
    "CosineAnnealingLR": lambda s, o: s.CosineAnnealingLR(o, 5, eta_min=0.01),
    "CosineAnnealingWarmRestarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 3),
    "CosineAnnealingWarmRestarts growing": lambda s, o: s.CosineAnnealingWarmRestarts(
        o, 2, T_mult=2, eta_min=0.001
    ),
    "CyclicLR": lambda s, o: s.CyclicLR(o, 0.01, 0.2, step_size_up=4),
    "CyclicLR triangular2": lambda s, o: s.CyclicLR(
        o, [0.01, 0.02], [0.2, 0.3], 3, 2, mode="triangular2", cycle_momentum=False
    ),
    "CyclicLR exp_range": lambda s, o: s.CyclicLR(
        o, 0.01, 0.2, 3, mode="exp_range", gamma=0.9, base_momentum=0.7, max_momentum=0.95
    ),
    "CyclicLR function": lambda s, o: s.CyclicLR(
        o, 0.01, 0.2, 3, scale_fn=Halving(0.8), scale_mode="iterations"
    ),
    "OneCycleLR": lambda s, o: s.OneCycleLR(o, 0.5, total_steps=13),
    "OneCycleLR linear": lambda s, o: s.OneCycleLR(
        o, [0.5, 0.3], epochs=5, steps_per_epoch=3, anneal_strategy="linear", three_phase=True
    ),
    "OneCycleLR without momentum": lambda s, o: s.OneCycleLR(
        o, 0.5, total_steps=20, pct_start=0.2, div_factor=10, final_div_factor=100.0,
        cycle_momentum=False,
    ),
    "ChainedScheduler": lambda s, o: s.ChainedScheduler(
        [s.ConstantLR(o, 0.5, 3), s.ExponentialLR(o, 0.9)]
    ),
    "SequentialLR": lambda s, o: s.SequentialLR(
        o, [s.LinearLR(o, 0.1, total_iters=3), s.CosineAnnealingLR(o, 6), s.StepLR(o, 2)],
        milestones=[3, 8],
    ),
    "SequentialLR of functions": lambda s, o: s.SequentialLR(
        o, [s.LambdaLR(o, Halving()), s.ExponentialLR(o, 0.5)], milestones=[4]
    ),
}  # fmt: skip

every_schedule = pytest.mark.parametrize("name", SCHEDULES)

STEPS = 12


def optimizer_of(ns: Any, kind: str = "SGD") -> Any:
    groups = [
        {"params": [ns.nn.Parameter(ns.ones(1))]},
        {"params": [ns.nn.Parameter(ns.ones(1))], "lr": 0.05},
    ]
    if kind == "SGD":
        return ns.optim.SGD(groups, lr=0.1, momentum=0.9)
    return getattr(ns.optim, kind)(groups, lr=0.1)


def settings(optimizer: Any) -> list[Any]:
    return [(g["lr"], g.get("momentum"), g.get("betas")) for g in optimizer.param_groups]


def advance(optimizer: Any, schedule: Any, steps: int) -> list[Any]:
    seen = []
    for _ in range(steps):
        optimizer.step()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch's SequentialLR warns of its own call
            schedule.step()
        seen.append((settings(optimizer), list(schedule.get_last_lr())))
    return seen


@every_schedule
@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_step_by_step(name: str, kind: str, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        optimizer = optimizer_of(ns, kind)
        schedule = SCHEDULES[name](ns.optim.lr_scheduler, optimizer)
        return settings(optimizer), advance(optimizer, schedule, STEPS)

    agree(program, torch, 1e-12)


@every_schedule
def test_state_resumes(name: str, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        optimizer = optimizer_of(ns)
        schedule = SCHEDULES[name](ns.optim.lr_scheduler, optimizer)
        advance(optimizer, schedule, 5)
        saved = copy.deepcopy((optimizer.state_dict(), schedule.state_dict()))
        expected = advance(optimizer, schedule, 6)
        other = optimizer_of(ns)
        resumed = SCHEDULES[name](ns.optim.lr_scheduler, other)
        other.load_state_dict(saved[0])
        resumed.load_state_dict(saved[1])
        assert advance(other, resumed, 6) == expected
        return expected

    agree(program, torch, 1e-12)


@every_schedule
def test_state_passes_between_libraries(name: str, torch: ModuleType) -> None:
    def start(ns: Any) -> Any:
        optimizer = optimizer_of(ns)
        return optimizer, SCHEDULES[name](ns.optim.lr_scheduler, optimizer)

    optimizer, schedule = start(torch)
    whole = advance(optimizer, schedule, 12)
    saved: Any = None
    for ns in (evergrad, torch, evergrad):
        optimizer, schedule = start(ns)
        if saved is not None:
            optimizer.load_state_dict(saved[0])
            schedule.load_state_dict(saved[1])
        seen = advance(optimizer, schedule, 4)
        saved = copy.deepcopy((optimizer.state_dict(), schedule.state_dict()))
    np.testing.assert_allclose([lrs for _, lrs in seen], [lrs for _, lrs in whole[8:]], rtol=1e-12)


@every_schedule
def test_state_has_pytorchs_keys_and_can_be_pickled(name: str, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        schedule = SCHEDULES[name](ns.optim.lr_scheduler, optimizer_of(ns))
        state = schedule.state_dict()
        assert pickle.loads(pickle.dumps(state)).keys() == state.keys()
        return {key for key in state if not key.startswith("_")}

    agree(program, torch)


@pytest.mark.parametrize(
    "name",
    [
        "StepLR", "MultiStepLR", "ConstantLR", "LinearLR", "ExponentialLR", "PolynomialLR",
        "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "LambdaLR",
        "CosineAnnealingWarmRestarts growing",
    ],
)  # fmt: skip
def test_steps_to_an_epoch(name: str, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        optimizer = optimizer_of(ns)
        schedule = SCHEDULES[name](ns.optim.lr_scheduler, optimizer)
        optimizer.step()
        seen = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for epoch in (3, 7, 4, 9):
                schedule.step(epoch)
                seen.append(settings(optimizer))
        return seen

    agree(program, torch, 1e-12)


def test_warm_restarts_at_fractions(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        optimizer = optimizer_of(ns)
        schedule = ns.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 2, 3)
        optimizer.step()
        seen = []
        for epoch in (0.5, 1.75, 2.25, 6.5, 9.0):
            schedule.step(epoch)
            seen.append(settings(optimizer))
        return seen

    agree(program, torch, 1e-12)


@pytest.mark.parametrize(
    "name",
    [
        "StepLR", "MultiStepLR", "ExponentialLR", "CosineAnnealingLR", "LambdaLR", "LinearLR",
        "ConstantLR", "PolynomialLR", "MultiplicativeLR",
    ],
)  # fmt: skip
def test_resuming_with_last_epoch(name: str, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        optimizer = optimizer_of(ns)
        advance(optimizer, SCHEDULES[name](ns.optim.lr_scheduler, optimizer), 4)
        make = {
            "StepLR": {"step_size": 3}, "MultiStepLR": {"milestones": [2, 5, 9]},
            "ExponentialLR": {"gamma": 0.8}, "CosineAnnealingLR": {"T_max": 5},
            "LambdaLR": {"lr_lambda": lambda e: 0.9**e}, "LinearLR": {}, "ConstantLR": {},
            "PolynomialLR": {"total_iters": 9}, "MultiplicativeLR": {"lr_lambda": lambda e: 0.9},
        }  # fmt: skip
        kind = getattr(ns.optim.lr_scheduler, name)
        schedule = kind(optimizer, **make[name], last_epoch=3)
        return settings(optimizer), advance(optimizer, schedule, 4)

    agree(program, torch, 1e-12)


MEASURED = [1.0, 0.9, 0.91, 0.92, 0.93, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4]


@pytest.mark.parametrize(
    "options",
    [
        {"patience": 1},
        {"patience": 2, "factor": 0.5, "min_lr": 0.01},
        {"patience": 1, "mode": "max", "threshold": 0.1},
        {"patience": 0, "threshold_mode": "abs", "threshold": 0.05, "cooldown": 2},
        {"patience": 1, "mode": "max", "threshold_mode": "abs"},
        {"patience": 1, "min_lr": [0.02, 0.03], "eps": 0.01},
    ],
)
def test_plateaus(options: dict[str, Any], torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        optimizer = optimizer_of(ns)
        schedule = ns.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **options)
        seen = []
        for i, value in enumerate(MEASURED):
            schedule.step(ns.tensor(value) if i % 2 else value)
            seen.append((settings(optimizer), schedule.get_last_lr(), schedule.num_bad_epochs))
            if i == 6:
                state = schedule.state_dict()
                schedule = ns.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
                schedule.load_state_dict(state)
        return seen

    agree(program, torch, 1e-6)


def test_rates_that_are_tensors(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        rate = ns.tensor(0.1)
        optimizer = ns.optim.Adam([ns.nn.Parameter(ns.ones(1))], lr=rate)
        schedule = ns.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        for _ in range(3):
            optimizer.step()
            schedule.step()
        return rate, optimizer.param_groups[0]["initial_lr"], schedule.get_last_lr()

    agree(program, torch, 1e-6)


@pytest.mark.parametrize(
    "act",
    [
        lambda s, o: s.StepLR(3, 3),
        lambda s, o: s.StepLR(o, 3, last_epoch=4),
        lambda s, o: s.LambdaLR(o, [lambda e: 1.0]),
        lambda s, o: s.ConstantLR(o, factor=2.0),
        lambda s, o: s.LinearLR(o, start_factor=0.0),
        lambda s, o: s.LinearLR(o, end_factor=2.0),
        lambda s, o: s.CosineAnnealingWarmRestarts(o, 0),
        lambda s, o: s.CosineAnnealingWarmRestarts(o, 2, T_mult=0),
        lambda s, o: s.CosineAnnealingWarmRestarts(o, 2).step(-1),
        lambda s, o: s.CyclicLR(o, 0.1, 0.2, mode="other"),
        lambda s, o: s.CyclicLR(o, [0.1], 0.2),
        lambda s, o: s.OneCycleLR(o, 0.1),
        lambda s, o: s.OneCycleLR(o, 0.1, total_steps=-1),
        lambda s, o: s.OneCycleLR(o, 0.1, epochs=0, steps_per_epoch=3),
        lambda s, o: s.OneCycleLR(o, 0.1, total_steps=3, pct_start=3.0),
        lambda s, o: s.OneCycleLR(o, 0.1, total_steps=3, anneal_strategy="other"),
        lambda s, o: advance(o, s.OneCycleLR(o, 0.1, total_steps=2), 4),
        lambda s, o: s.ChainedScheduler([]),
        lambda s, o: s.SequentialLR(o, [], []),
        lambda s, o: s.SequentialLR(o, [s.StepLR(o, 1)], [3]),
        lambda s, o: s.ReduceLROnPlateau(o, factor=1.0),
        lambda s, o: s.ReduceLROnPlateau(o, mode="other"),
        lambda s, o: s.ReduceLROnPlateau(o, threshold_mode="other"),
        lambda s, o: s.ReduceLROnPlateau(o, min_lr=[0.1]),
        lambda s, o: s.LRScheduler(o),
    ],
)
def test_mistakes_are_refused(act: Any, torch: ModuleType) -> None:
    refuse(lambda ns: act(ns.optim.lr_scheduler, optimizer_of(ns)), torch)


def test_momentum_cannot_cycle_without_momentum(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        optimizer = ns.optim.Optimizer([ns.nn.Parameter(ns.ones(1))], {"lr": 0.1})
        return ns.optim.lr_scheduler.CyclicLR(optimizer, 0.1, 0.2)

    refuse(program, torch, "momentum")


def test_several_schedules_on_one_optimizer(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        optimizer = optimizer_of(ns)
        s = ns.optim.lr_scheduler
        schedules = [s.ExponentialLR(optimizer, 0.9), s.StepLR(optimizer, 2)]
        seen = []
        for _ in range(6):
            optimizer.step()
            for schedule in schedules:
                schedule.step()
            seen.append(settings(optimizer))
        return seen

    agree(program, torch, 1e-12)


def test_a_schedule_does_not_keep_its_optimizer_in_the_state() -> None:
    schedule = evergrad.optim.lr_scheduler.StepLR(optimizer_of(evergrad), 2)
    assert "optimizer" not in schedule.state_dict()


def test_the_optimizer_steps_first(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        counts = []
        for first in (True, False):
            optimizer = optimizer_of(ns)
            schedule = ns.optim.lr_scheduler.StepLR(optimizer, 2)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                if first:
                    optimizer.step()
                schedule.step()
                schedule.step()
            counts.append([str(w.message).partition(".")[0] for w in caught])
        return counts

    theirs, ours = program(torch), program(evergrad)
    assert ours == theirs
    assert ours[0] == [] and len(ours[1]) == 1
