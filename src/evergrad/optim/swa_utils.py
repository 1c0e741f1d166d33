"""Averages of a model's weights over training, equal or exponential."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from itertools import chain
from typing import TYPE_CHECKING, Any

from evergrad.core import dtypes
from evergrad.core.functionalize import concrete_item, guard
from evergrad.core.state import using
from evergrad.core.symbolic_numbers import symbolic_item
from evergrad.core.tensor import Tensor
from evergrad.nn.module import Module
from evergrad.nn.norm import _BatchNorm
from evergrad.ops.rows.creation.constants import scalar_tensor
from evergrad.optim.optimizer import Optimizer
from evergrad.optim.schedule import LRScheduler, for_each_group

if TYPE_CHECKING:
    from evergrad.core.types import DeviceLike

Average = Callable[[Tensor, Tensor, Any], Tensor]
AverageOfMany = Callable[[Sequence[Tensor], Sequence[Tensor], Any], None]


def _check_decay(decay: float) -> None:
    if not 0.0 <= decay <= 1.0:
        raise ValueError(
            f"Invalid decay value {decay} provided. Please provide a value in [0,1] range."
        )


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """The exponential average of one tensor.

    Args:
        decay: weight of the average so far; default 0.999

    >>> average = optim.swa_utils.get_ema_avg_fn(0.9)
    >>> average(eg.tensor(1.0), eg.tensor(0.0), 1)
    tensor(0.9000)
    """
    _check_decay(decay)

    def average(held: Tensor, current: Tensor, count: object) -> Tensor:
        with using(grad=False):
            return held * decay + current * (1 - decay)

    return average


def get_swa_avg_fn() -> Average:
    """The equal average of one tensor.

    >>> average = optim.swa_utils.get_swa_avg_fn()
    >>> average(eg.tensor(1.0), eg.tensor(4.0), 2)
    tensor(2.)
    """

    def average(held: Tensor, current: Tensor, count: Tensor) -> Tensor:
        with using(grad=False):
            return held + (current - held) / (count + 1)

    return average


def get_ema_multi_avg_fn(decay: float = 0.999) -> AverageOfMany:
    """The exponential average of many tensors, in place.

    Args:
        decay: weight of the average so far; default 0.999

    >>> mean = [eg.tensor(1.0)]
    >>> optim.swa_utils.get_ema_multi_avg_fn(0.9)(mean, [eg.tensor(0.0)], 1)
    >>> mean
    [tensor(0.9000)]
    """
    return _in_place(get_ema_avg_fn(decay), lambda count: 1 - decay)


def get_swa_multi_avg_fn() -> AverageOfMany:
    """The equal average of many tensors, in place.

    >>> mean = [eg.tensor(1.0)]
    >>> optim.swa_utils.get_swa_multi_avg_fn()(mean, [eg.tensor(4.0)], 2)
    >>> mean
    [tensor(2.)]
    """

    def weight(count: Any) -> float:
        number = symbolic_item(count) if isinstance(count, Tensor) else count
        return 1 / (number + 1)  # type: ignore[no-any-return]

    return _in_place(get_swa_avg_fn(), weight)


def _in_place(average: Average, weight: Callable[[object], float]) -> AverageOfMany:
    """An average that writes into what it averages; floats go towards the new values at once."""

    def update(held: Sequence[Tensor], current: Sequence[Tensor], count: object) -> None:
        with using(grad=False):
            for own, other in zip(held, current, strict=True):
                if own.dtype.category >= dtypes.FLOATING:
                    own.lerp_(other, weight(count))
                else:
                    own.copy_(average(own, other, count))

    return update


class AveragedModel(Module):
    """A copy of a model whose parameters are averages of those the model has had.

    Args:
        model: the model
        device: only the CPU
        avg_fn: the average of one tensor; default the equal one
        multi_avg_fn: the average of all tensors, in its place
        use_buffers: average buffers as well; default ``False``

    >>> model = nn.Linear(1, 1, bias=False)
    >>> mean = optim.swa_utils.AveragedModel(model)
    >>> for value in (1.0, 3.0):
    ...     _ = nn.init.constant_(model.weight, value)
    ...     mean.update_parameters(model)
    >>> mean.module.weight.item()
    2.0
    """

    def __init__(
        self, model: Module, device: DeviceLike = None, avg_fn: Average | None = None,
        multi_avg_fn: AverageOfMany | None = None, use_buffers: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module: Module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", scalar_tensor(0, dtype=dtypes.int64))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: object, **kwargs: object) -> Any:
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Take the model's present parameters into the average."""
        held, current = self._averaged(self.module), self._averaged(model)
        with using(grad=False):
            if guard(lambda: concrete_item(self.n_averaged) == 0, "whether anything was averaged"):
                for own, other in zip(held, current, strict=True):
                    own.copy_(other)
            elif self.avg_fn is not None:
                for own, other in zip(held, current, strict=True):
                    own.copy_(self.avg_fn(own, other, self.n_averaged))
            else:
                update = self.multi_avg_fn or get_swa_multi_avg_fn()
                update(held, current, self.n_averaged)
            if not self.use_buffers:
                for own, other in zip(self.module.buffers(), model.buffers(), strict=True):
                    own.copy_(other)
            self.n_averaged += 1

    def _averaged(self, model: Module) -> list[Tensor]:
        tensors = chain(model.parameters(), model.buffers() if self.use_buffers else ())
        return [tensor.detach() for tensor in tensors]


def update_bn(loader: Iterable[object], model: Module, device: DeviceLike = None) -> None:
    """Compute the running statistics of all batch norms anew, in one pass over the data.

    Args:
        loader: gives batches, or tuples whose first element is one
        model: the model, in any mode
        device: only the CPU

    >>> model = nn.BatchNorm1d(1)
    >>> optim.swa_utils.update_bn([eg.tensor([[1.0], [3.0]])], model)
    >>> model.running_mean
    tensor([2.])
    """
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    was_training = model.training
    model.train()
    with using(grad=False):
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None
        for batch in loader:
            model(batch[0] if isinstance(batch, (list, tuple)) else batch)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """From the present rate to a constant one.

    Args:
        optimizer: the optimizer whose rates are set
        swa_lr: the rate to reach, one or one for each group
        anneal_epochs: over how many steps; default 10
        anneal_strategy: ``"cos"`` (default) or ``"linear"``
        last_epoch: the step to go on from; default -1

    >>> optimizer = optim.SGD([nn.Parameter(eg.ones(1))], lr=1.0)
    >>> schedule = optim.swa_utils.SWALR(optimizer, 0.1, anneal_epochs=1)
    >>> optimizer.step()
    >>> schedule.step()
    >>> round(optimizer.param_groups[0]["lr"], 4)
    0.1
    """

    def __init__(
        self, optimizer: Optimizer, swa_lr: object, anneal_epochs: int = 10,
        anneal_strategy: str = "cos", last_epoch: int = -1,
    ) -> None:  # fmt: skip
        rates = for_each_group("swa_lr", optimizer, swa_lr)
        for rate, group in zip(rates, optimizer.param_groups, strict=True):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self._anneal_strategy = anneal_strategy
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _part(self, step: int) -> float:
        """How far along the change is after so many steps."""
        passed = max(0, min(1, step / max(1, self.anneal_epochs)))
        return (1 - math.cos(math.pi * passed)) / 2 if self._anneal_strategy == "cos" else passed

    def get_lr(self) -> list[float]:
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._part(step - 1), self._part(step)
        rates = []
        for group in self.optimizer.param_groups:
            present, last = group["lr"], group["swa_lr"]
            first = last if before == 1 else (present - before * last) / (1 - before)
            rates.append(last * now + first * (1 - now))
        return rates


__all__ = [
    "SWALR", "AveragedModel", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn",
    "get_swa_multi_avg_fn", "update_bn",
]  # fmt: skip
