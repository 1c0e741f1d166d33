"""What all schedules of the learning rate share.

As in PyTorch a schedule computes the next rate from the present one where it can, so that several
may act on the same optimizer one after the other.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from evergrad.core.tensor import Tensor
from evergrad.core.types import ParamGroup, StateDict
from evergrad.optim.optimizer import Optimizer

if TYPE_CHECKING:
    from evergrad.core.types import Leaves

EPOCH_DEPRECATION_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where "
    "possible. Please use `scheduler.step()` to step the scheduler. During the deprecation, if "
    "epoch is different from None, the closed form is used instead of the new chainable form, "
    "where available."
)


def write_rate(group: ParamGroup, rate: Any) -> None:
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


def own_rate(rate: object) -> Any:
    """A rate to keep: a tensor is written to by later steps."""
    return rate.detach().clone() if isinstance(rate, Tensor) else rate


def for_each_group(name: str, optimizer: Optimizer, value: object) -> Leaves:
    count = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [value] * count
    if len(value) != count:
        raise ValueError(f"expected {count} values for {name}, got {len(value)}")
    return list(value)


class LRScheduler:
    """Base of all schedules: counts steps and writes what :meth:`get_lr` gives.

    Args:
        optimizer: the optimizer whose rates are set
        last_epoch: the step to go on from; default -1, the start

    >>> optimizer = optim.SGD([nn.Parameter(eg.ones(1))], lr=1.0)
    >>> class Inverse(optim.lr_scheduler.LRScheduler):
    ...     def get_lr(self):
    ...         return [lr / (1 + self.last_epoch) for lr in self.base_lrs]
    >>> schedule = Inverse(optimizer)
    >>> optimizer.step()
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    # Read by the ``get_lr`` of subclasses, which warn where a program calls it itself.
    _get_lr_called_within_step: bool = False

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(
                f"{type(optimizer).__name__} is not an Optimizer; pass the optimizer first, before "
                "the settings of the schedule"
            )
        self.optimizer = optimizer
        if last_epoch == -1:
            for group in optimizer.param_groups:
                # An earlier schedule on the same optimizer has noted it already.
                group.setdefault("initial_lr", own_rate(group["lr"]))
        else:
            for i, group in enumerate(optimizer.param_groups):
                if "initial_lr" not in group:
                    raise KeyError(
                        "param 'initial_lr' is not specified in "
                        f"param_groups[{i}] when resuming an optimizer"
                    )
        self.base_lrs: list[Any] = [
            own_rate(group["initial_lr"]) for group in optimizer.param_groups
        ]
        self.last_epoch: int = last_epoch
        self._initial_step()

    def _initial_step(self) -> None:
        """Write the rates of the first epoch."""
        self._step_count = 0
        self._is_initial = True
        self.step()
        self._is_initial = False

    def state_dict(self) -> StateDict:
        """Everything but the optimizer."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, object]) -> None:
        """Continue from what ``state_dict`` gave."""
        self.__dict__.update(state_dict)

    def get_last_lr(self) -> list[float]:
        """The rates written by the last step."""
        return self._last_lr

    def get_lr(self) -> list[float]:
        """The rates for ``last_epoch``, one for each parameter group."""
        raise NotImplementedError

    def _present(self) -> Leaves:
        return [group["lr"] for group in self.optimizer.param_groups]

    def step(self, epoch: int | None = None) -> None:
        """Advance by one, and write the rates."""
        if self._step_count == 1 and not self.optimizer._opt_called:
            warnings.warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`. You should call "
                "them in the opposite order: `optimizer.step()` before `lr_scheduler.step()`. "
                "Failure to do this will result in skipping the first value of the learning rate "
                "schedule.",
                UserWarning,
                stacklevel=2,
            )
        self._step_count += 1
        if epoch is not None:
            warnings.warn(EPOCH_DEPRECATION_WARNING, UserWarning, stacklevel=2)
        self._get_lr_called_within_step = True
        try:
            rates = self._rates_of(epoch)
        finally:
            self._get_lr_called_within_step = False
        self._write(rates)

    def _rates_of(self, epoch: int | None) -> Iterable[object]:
        """The rates of the next epoch, or of a given one."""
        if epoch is None:
            self.last_epoch += 1
            return self.get_lr()
        self.last_epoch = epoch
        closed = getattr(self, "_get_closed_form_lr", None)
        return self.get_lr() if closed is None else closed()

    def _write(self, rates: Iterable[object]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            write_rate(group, rate)
        self._last_lr: list[float] = [own_rate(rate) for rate in self._present()]
