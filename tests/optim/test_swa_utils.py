"""Averaged models, their batch norms and their schedule, against PyTorch's."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from twins import agree, refuse


def model(ns: Any) -> Any:
    ns.manual_seed(0)
    return ns.nn.Sequential(ns.nn.Linear(2, 3), ns.nn.BatchNorm1d(3), ns.nn.Linear(3, 1))


def batches(ns: Any) -> list[Any]:
    return [ns.arange(8.0).reshape(4, 2).sin() * (i + 1) for i in range(3)]


def trained(ns: Any, **options: Any) -> Any:
    """An average over a short training run."""
    net = model(ns)
    averaged = ns.optim.swa_utils.AveragedModel(net, **options)
    optimizer = ns.optim.SGD(net.parameters(), lr=0.1)
    for batch in batches(ns) * 2:
        optimizer.zero_grad()
        net(batch).pow(2).sum().backward()
        optimizer.step()
        averaged.update_parameters(net)
    return averaged


AVERAGES = {
    "default": lambda u: {},
    "buffers": lambda u: {"use_buffers": True},
    "ema": lambda u: {"avg_fn": u.get_ema_avg_fn(0.8)},
    "ema of many": lambda u: {"multi_avg_fn": u.get_ema_multi_avg_fn(0.8)},
    "ema of many with buffers": lambda u: {
        "multi_avg_fn": u.get_ema_multi_avg_fn(0.8),
        "use_buffers": True,
    },
    "swa": lambda u: {"avg_fn": u.get_swa_avg_fn()},
    "swa of many": lambda u: {"multi_avg_fn": u.get_swa_multi_avg_fn()},
    "own": lambda u: {"avg_fn": lambda held, current, count: held * 0.5 + current * 0.5},
}


@pytest.mark.parametrize("kind", AVERAGES)
def test_averages(kind: str, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        averaged = trained(ns, **AVERAGES[kind](ns.optim.swa_utils))
        return dict(averaged.state_dict()), averaged.eval()(batches(ns)[0])

    agree(program, torch, 1e-5)


def test_batch_norms_are_computed_anew(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        averaged = trained(ns).eval()
        ns.optim.swa_utils.update_bn([(b, None) for b in batches(ns)], averaged)
        norm = averaged.module[1]
        return norm.running_mean, norm.running_var, norm.momentum, averaged.training

    agree(program, torch, 1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"anneal_epochs": 3},
        {"anneal_epochs": 4, "anneal_strategy": "linear"},
        {"anneal_epochs": 0},
    ],
)
def test_schedule(options: Any, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        net = model(ns)
        groups = [{"params": net[0].parameters()}, {"params": net[2].parameters(), "lr": 0.5}]
        optimizer = ns.optim.SGD(groups, lr=0.1)
        schedule = ns.optim.swa_utils.SWALR(optimizer, [0.01, 0.02], **options)
        seen = [schedule.get_last_lr()]
        for _ in range(6):
            optimizer.step()
            schedule.step()
            seen.append(schedule.get_last_lr())
        return seen, schedule.state_dict()["anneal_epochs"]

    agree(program, torch, 1e-12)


def test_mistakes_are_refused(torch: ModuleType) -> None:
    def optimizer(ns: Any) -> Any:
        return ns.optim.SGD(model(ns).parameters(), lr=0.1)

    for act in (
        lambda ns: ns.optim.swa_utils.get_ema_avg_fn(2.0),
        lambda ns: ns.optim.swa_utils.get_ema_multi_avg_fn(-1),
        lambda ns: ns.optim.swa_utils.SWALR(optimizer(ns), 0.1, anneal_strategy="other"),
        lambda ns: ns.optim.swa_utils.SWALR(optimizer(ns), 0.1, anneal_epochs=-1),
        lambda ns: ns.optim.swa_utils.SWALR(optimizer(ns), [0.1, 0.2]),
        lambda ns: ns.optim.swa_utils.AveragedModel(
            model(ns), avg_fn=lambda *g: 0, multi_avg_fn=lambda *g: 0
        ),
    ):
        refuse(act, torch)
