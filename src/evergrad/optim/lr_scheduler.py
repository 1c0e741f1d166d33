"""Schedules of the learning rate: all of them, and those made of others or of measurements."""

from __future__ import annotations

import math
import warnings
from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evergrad.core.types import StateDict
from evergrad.lazy import known_names
from evergrad.optim.cycles import CosineAnnealingWarmRestarts, CyclicLR, OneCycleLR
from evergrad.optim.decays import (
    ConstantLR,
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)
from evergrad.optim.optimizer import Optimizer
from evergrad.optim.schedule import EPOCH_DEPRECATION_WARNING, LRScheduler, write_rate

_LRScheduler = LRScheduler


class ChainedScheduler(LRScheduler):
    """Several schedules that all act at every step.

    Args:
        schedulers: schedules of one optimizer
        optimizer: default that of the first

    >>> optimizer = optim.SGD([nn.Parameter(eg.ones(1))], lr=1.0)
    >>> halve = optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    >>> step = optim.lr_scheduler.StepLR(optimizer, 1, 0.1)
    >>> chained = optim.lr_scheduler.ChainedScheduler([halve, step])
    >>> optimizer.step()
    >>> chained.step()
    >>> chained.get_last_lr()
    [0.05]
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: object = None) -> None:
        if not schedulers:
            raise ValueError("ChainedScheduler expects at least one scheduler to be chained.")
        self.optimizer: Optimizer | Any = (
            schedulers[0].optimizer if optimizer is None else optimizer
        )
        for scheduler in schedulers:
            if scheduler.optimizer is not self.optimizer:
                raise ValueError("ChainedScheduler expects all schedulers to share an optimizer")
        self._schedulers = list(schedulers)
        self._last_lr = self._present()

    def step(self, epoch: int | None = None) -> None:
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = self._present()

    def state_dict(self) -> StateDict:
        return _state_with_parts(self)

    def load_state_dict(self, state_dict: dict[str, object]) -> None:
        """Continue from what ``state_dict`` gave."""
        _load_with_parts(self, state_dict)


def _state_with_parts(schedule: ChainedScheduler | SequentialLR) -> dict[str, object]:
    state = {k: v for k, v in schedule.__dict__.items() if k not in ("optimizer", "_schedulers")}
    state["_schedulers"] = [part.state_dict() for part in schedule._schedulers]
    return state


def _load_with_parts(schedule: ChainedScheduler | SequentialLR, state_dict: StateDict) -> None:
    given = dict(state_dict)
    parts = given.pop("_schedulers")
    schedule.__dict__.update(given)
    for part, state in zip(schedule._schedulers, parts, strict=True):
        part.load_state_dict(state)


def _take_back_first_step(scheduler: LRScheduler) -> None:
    """Take back the step that a schedule, or each of its parts, made when it was built."""
    parts = getattr(scheduler, "_schedulers", None)
    if parts is None:
        scheduler.last_epoch -= 1
    else:
        for part in parts:
            _take_back_first_step(part)


class SequentialLR(LRScheduler):
    """One schedule after the other, changing at the milestones.

    Args:
        optimizer: the optimizer whose rates are set
        schedulers: the schedules
        milestones: the steps at which the next one begins, one fewer
        last_epoch: the step to go on from; default -1, the start

    >>> optimizer = optim.SGD([nn.Parameter(eg.ones(1))], lr=1.0)
    >>> warm = optim.lr_scheduler.ConstantLR(optimizer, 0.5, total_iters=10)
    >>> decay = optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    >>> schedule = optim.lr_scheduler.SequentialLR(optimizer, [warm, decay], milestones=[1])
    >>> optimizer.step()
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [1.0]
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: list[LRScheduler], milestones: list[int],
        last_epoch: int = -1,
    ) -> None:  # fmt: skip
        if len(schedulers) < 1:
            raise ValueError("SequentialLR expects at least one scheduler to be chained.")
        for scheduler in schedulers:
            if scheduler.optimizer is not optimizer:
                raise ValueError("SequentialLR expects all schedulers to share the optimizer")
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                "SequentialLR expects number of schedulers provided to be one more than the number "
                f"of milestone points, but got number of schedulers {len(schedulers)} and the "
                f"number of milestones to be equal to {len(milestones)}"
            )
        self._schedulers = schedulers
        self._milestones = milestones
        self.last_epoch: int = last_epoch + 1
        self.optimizer = optimizer
        for group in optimizer.param_groups:
            write_rate(group, group["initial_lr"])
        for scheduler in schedulers:
            _take_back_first_step(scheduler)
        first = schedulers[bisect_right(milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def step(self, epoch: int | None = None) -> None:
        self.last_epoch += 1
        index = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[index]
        if index > 0 and self._milestones[index - 1] == self.last_epoch:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                scheduler.step(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()

    def state_dict(self) -> StateDict:
        return _state_with_parts(self)

    def load_state_dict(self, state_dict: dict[str, object]) -> None:
        """Continue from what ``state_dict`` gave."""
        _load_with_parts(self, state_dict)


class ReduceLROnPlateau(LRScheduler):
    """Times ``factor`` when a measured value has stopped improving.

    Args:
        optimizer: the optimizer whose rates are set
        mode: ``"min"`` (default) if the value should fall, ``"max"`` if it should rise
        factor: default 0.1
        patience: steps without improvement that are waited for; default 10
        threshold: what counts as improvement; default 1e-4
        threshold_mode: ``"rel"`` (default) or ``"abs"``
        cooldown: steps to wait after a change; default 0
        min_lr: the least rate; default 0
        eps: the least change; default 1e-8

    >>> optimizer = optim.SGD([nn.Parameter(eg.ones(1))], lr=1.0)
    >>> schedule = optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    >>> for loss in (3.0, 2.0, 2.0):
    ...     schedule.step(loss)
    >>> optimizer.param_groups[0]["lr"]
    0.1
    """

    def __init__(
        self, optimizer: Optimizer, mode: str = "min", factor: float = 0.1, patience: int = 10,
        threshold: float = 1e-4, threshold_mode: str = "rel", cooldown: int = 0, min_lr: Any = 0,
        eps: float = 1e-8,
    ) -> None:  # fmt: skip
        if factor >= 1.0:
            raise ValueError("Factor should be < 1.0.")
        if mode not in ("min", "max"):
            raise ValueError("mode " + mode + " is unknown!")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError("threshold mode " + threshold_mode + " is unknown!")
        count = len(optimizer.param_groups)
        if isinstance(min_lr, (list, tuple)) and len(min_lr) != count:
            raise ValueError(f"expected {count} min_lrs, got {len(min_lr)}")
        self.optimizer = optimizer
        self.mode = mode
        self.factor = factor
        self.patience = patience
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.cooldown = cooldown
        self.eps = eps
        self.min_lrs: list[float] = (
            list(min_lr) if isinstance(min_lr, (list, tuple)) else [min_lr] * count
        )
        self.last_epoch: int = 0
        self._last_lr = self._present()
        self._reset()

    def _reset(self) -> None:
        self.best: float = math.inf if self.mode == "min" else -math.inf
        self.cooldown_counter: int = 0
        self.num_bad_epochs: int = 0

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Look at a new measurement."""
        current = metrics if isinstance(metrics, float) else float(metrics)
        if epoch is not None:
            warnings.warn(EPOCH_DEPRECATION_WARNING, UserWarning, stacklevel=2)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self.is_better(current, self.best):
            self.best = current
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce()
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = self._present()

    def _reduce(self) -> None:
        for group, lowest in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
            former = float(group["lr"])
            rate = max(former * self.factor, lowest)
            if former - rate > self.eps:
                write_rate(group, rate)

    @property
    def in_cooldown(self) -> bool:
        """Whether it waits after a change."""
        return self.cooldown_counter > 0

    def is_better(self, a: float, best: float) -> bool:
        """Whether a measurement improves on the best by more than the threshold."""
        sign = 1 if self.mode == "max" else -1
        if self.threshold_mode == "rel":
            bound = best * (1 + sign * self.threshold)
        else:
            bound = best + sign * self.threshold
        return a > bound if self.mode == "max" else a < bound


__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts",
    "CyclicLR", "ExponentialLR", "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR",
    "MultiplicativeLR", "OneCycleLR", "PolynomialLR", "ReduceLROnPlateau", "SequentialLR", "StepLR",
]  # fmt: skip

if not TYPE_CHECKING:
    __getattr__ = known_names(__name__)
