"""Schedules that go up and down."""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from typing import Any

from evergrad.core.types import ParamGroup, StateDict
from evergrad.optim.optimizer import Optimizer
from evergrad.optim.schedule import LRScheduler, for_each_group, write_rate


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half cosines that start again, each ``T_mult`` times as long as the one before."""

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:  # fmt: skip
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        self.T_0 = T_0
        self.T_i: int = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        height = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Advance by one, or to a (fractional) epoch."""
        self._step_count += 1
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur -= self.T_i
                self.T_i *= self.T_mult
        else:
            self._place(epoch)
        self.last_epoch: int = math.floor(epoch)
        self._write(self.get_lr())

    def _place(self, epoch: float) -> None:
        if epoch < 0:
            raise ValueError(f"Expected non-negative epoch, but got {epoch}")
        if epoch < self.T_0:
            self.T_i, self.T_cur = self.T_0, epoch
        elif self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        else:
            rounds = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            begun = self.T_0 * (self.T_mult**rounds - 1) / (self.T_mult - 1)
            self.T_cur = epoch - begun
            self.T_i = self.T_0 * self.T_mult**rounds


class CyclicLR(LRScheduler):
    """Up and down between two rates."""

    def __init__(
        self, optimizer: Optimizer, base_lr: object, max_lr: object, step_size_up: int = 2000,
        step_size_down: int | None = None, mode: str = "triangular", gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None, scale_mode: str = "cycle",
        cycle_momentum: bool = True, base_momentum: object = 0.8, max_momentum: object = 0.9,
        last_epoch: int = -1,
    ) -> None:  # fmt: skip
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        bases = for_each_group("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            for rate, group in zip(bases, optimizer.param_groups, strict=True):
                write_rate(group, rate)
        self.max_lrs: list[Any] = for_each_group("max_lr", optimizer, max_lr)
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size: float = float(step_size_up + down)
        self.step_ratio: float = float(step_size_up) / self.total_size
        self.mode = mode
        self.gamma = gamma
        self._scale_fn = scale_fn
        self.scale_mode: str = (
            scale_mode if scale_fn is not None or mode != "exp_range" else "iterations"
        )
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.use_beta1: bool = _uses_beta1(optimizer)
            self.base_momentums: list[Any] = for_each_group(
                "base_momentum", optimizer, base_momentum
            )
            self.max_momentums: list[Any] = for_each_group("max_momentum", optimizer, max_momentum)
            for momentum, group in zip(self.max_momentums, optimizer.param_groups, strict=True):
                _write_momentum(group, momentum)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = bases

    def scale_fn(self, x: float) -> float:
        """The factor of the amplitude, in a cycle or at a step."""
        if self._scale_fn is not None:
            return self._scale_fn(x)
        if self.mode == "triangular":
            return 1.0
        base = 0.5 if self.mode == "triangular2" else self.gamma
        return float(base ** (x - 1 if self.mode == "triangular2" else x))

    def get_lr(self) -> list[float]:
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for group, low, high in zip(
                self.optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True
            ):
                _write_momentum(group, high - (high - low) * height * scale)
        return [
            low + (high - low) * height * scale
            for low, high in zip(self.base_lrs, self.max_lrs, strict=True)
        ]

    def state_dict(self) -> StateDict:
        state = super().state_dict()
        function = state.pop("_scale_fn")
        keeps = function is not None and not isinstance(function, types.FunctionType)
        state["_scale_fn_custom"] = function.__dict__.copy() if keeps else None
        return state

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Continue from what ``state_dict`` gave."""
        given = dict(state_dict)
        attributes = given.pop("_scale_fn_custom", None)
        super().load_state_dict(given)
        if attributes is not None and self._scale_fn is not None:
            self._scale_fn.__dict__.update(attributes)


class OneCycleLR(LRScheduler):
    """One rise to ``max_lr`` and a long fall far below the first rate."""

    def __init__(
        self, optimizer: Optimizer, max_lr: object, total_steps: int | None = None,
        epochs: int | None = None, steps_per_epoch: int | None = None, pct_start: float = 0.3,
        anneal_strategy: str = "cos", cycle_momentum: bool = True, base_momentum: object = 0.85,
        max_momentum: object = 0.95, div_factor: float = 25.0, final_div_factor: float = 1e4,
        three_phase: bool = False, last_epoch: int = -1,
    ) -> None:  # fmt: skip
        self.total_steps: int = _total_steps(total_steps, epochs, steps_per_epoch)
        if not 0 <= pct_start <= 1 or not isinstance(pct_start, float):
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        rise = float(pct_start * self.total_steps) - 1
        last = self.total_steps - 1
        low, high = ("max_momentum", "base_momentum"), ("base_momentum", "max_momentum")
        self._schedule_phases: list[dict[str, Any]]
        if three_phase:
            fall = float(2 * pct_start * self.total_steps) - 2
            self._schedule_phases = [
                _phase(rise, "initial_lr", "max_lr", *low),
                _phase(fall, "max_lr", "initial_lr", *high),
                _phase(last, "initial_lr", "min_lr", "max_momentum", "max_momentum"),
            ]
        else:
            self._schedule_phases = [
                _phase(rise, "initial_lr", "max_lr", *low),
                _phase(last, "max_lr", "min_lr", *high),
            ]
        self._anneal_func_type = anneal_strategy
        self.cycle_momentum = cycle_momentum
        if last_epoch == -1:
            tops = for_each_group("max_lr", optimizer, max_lr)
            for group, top in zip(optimizer.param_groups, tops, strict=True):
                group["initial_lr"] = top / div_factor
                group["max_lr"] = top
                group["min_lr"] = group["initial_lr"] / final_div_factor
        if cycle_momentum:
            self._start_momentum(optimizer, max_momentum, base_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)

    def _start_momentum(
        self, optimizer: Optimizer, high: object, low: object, last_epoch: int
    ) -> None:
        self.use_beta1: bool = _uses_beta1(optimizer)
        if last_epoch != -1:
            return
        for group, top, bottom in zip(
            optimizer.param_groups,
            for_each_group("max_momentum", optimizer, high),
            for_each_group("base_momentum", optimizer, low),
            strict=True,
        ):
            _write_momentum(group, top)
            group["max_momentum"] = top
            group["base_momentum"] = bottom

    def _between(self, start: float, end: float, part: float) -> float:
        if self._anneal_func_type == "linear":
            return (end - start) * part + start
        return end + (start - end) / 2.0 * (math.cos(math.pi * part) + 1)

    def get_lr(self) -> list[float]:
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(
                f"Tried to step {step} times. The specified number of total steps is "
                f"{self.total_steps}"
            )
        rates = []
        for group in self.optimizer.param_groups:
            begin = 0.0
            for phase in self._schedule_phases:
                end = phase["end_step"]
                if step <= end or phase is self._schedule_phases[-1]:
                    break
                begin = end
            part = (step - begin) / (end - begin)
            start, stop = group[phase["start_lr"]], group[phase["end_lr"]]
            rates.append(self._between(start, stop, part))
            if self.cycle_momentum:
                start, stop = group[phase["start_momentum"]], group[phase["end_momentum"]]
                _write_momentum(group, self._between(start, stop, part))
        return rates


def _uses_beta1(optimizer: Optimizer) -> bool:
    """Whether the momentum of an optimizer is the first of its betas."""
    if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
        raise ValueError(
            "optimizer must support momentum or beta1 with `cycle_momentum` option enabled"
        )
    return "betas" in optimizer.defaults


def _write_momentum(group: ParamGroup, momentum: float) -> None:
    if "betas" in group:
        group["betas"] = (momentum, *group["betas"][1:])
    else:
        group["momentum"] = momentum


def _phase(end: float, lr: str, end_lr: str, momentum: str, end_momentum: str) -> dict[str, object]:
    """Where a phase ends, and the options of a group that it begins and ends with."""
    return {
        "end_step": end, "start_lr": lr, "end_lr": end_lr, "start_momentum": momentum,
        "end_momentum": end_momentum,
    }  # fmt: skip


def _total_steps(total: int | None, epochs: int | None, per_epoch: int | None) -> int:
    if total is not None:
        if total <= 0 or not isinstance(total, int):
            raise ValueError(f"Expected positive integer total_steps, but got {total}")
        return total
    if epochs is None or per_epoch is None:
        raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
    if epochs <= 0 or per_epoch <= 0:
        raise ValueError(
            f"Expected positive integer epochs and steps_per_epoch, got {epochs} and {per_epoch}"
        )
    return epochs * per_epoch
