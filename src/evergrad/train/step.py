"""One training step as native code: forward, backward, clipping, AdamW, running mean of weights.

Without accumulation a step is one program. With it there are two: one takes a micro-batch and adds
its gradients to sums, and one turns the sums into new weights; so activations are those of a single
micro-batch. The learning rate and the decay of the running mean are numbers given at each call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import evergrad as eg
from evergrad import nn, optim
from evergrad.core.tensor import Tensor
from evergrad.memory.ledger import GRADIENT
from evergrad.train.config import OptimizerConfig, RunConfig
from evergrad.train.ranks import Ranks
from evergrad.train.task import Task

if TYPE_CHECKING:
    from evergrad.distributed.reducer import Reducer


class StepResult(NamedTuple):
    """The loss of a step over all ranks, the norm of its gradients before clipping, and the loss of
    this rank's part of the batch."""

    loss: float
    norm: float
    own: float

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.loss) and math.isfinite(self.norm)


def learning_rate(options: OptimizerConfig, step: int, steps: int) -> float:
    """A linear warm-up, then half a cosine down to ``final`` of the peak."""
    if step < options.warmup:
        return options.lr * (step + 1) / options.warmup
    done = (step - options.warmup) / max(1, steps - options.warmup)
    wave = 0.5 + 0.5 * math.cos(math.pi * min(1.0, done))
    return options.lr * (options.final + (1 - options.final) * wave)


def mean_weight(decay: float, step: int) -> float:
    """How much of the new weights enters the running mean: more at first, to forget the start."""
    return 1.0 - min(decay, (1 + step) / (10 + step))


def make_optimizer(model: nn.Module, options: OptimizerConfig) -> optim.AdamW:
    """AdamW that decays matrices and leaves biases, gains and other vectors alone."""
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": options.weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    filled = [group for group in groups if group["params"]]
    return optim.AdamW(filled, lr=options.lr, betas=options.betas)


class TrainingStep:
    """Does the steps of a run on a model, its optimizer and the running mean of its weights."""

    def __init__(
        self, config: RunConfig, task: Task, model: nn.Module, optimizer: optim.Optimizer,
        averaged: nn.Module | None, *, check_finite: bool = False, ranks: Ranks | None = None,
    ) -> None:  # fmt: skip
        self.ranks: Ranks = Ranks() if ranks is None else ranks
        self.reducer: Reducer | None = self.ranks.reducer(model)
        if self.reducer is not None:  # with accumulation sums are averaged, not their parts
            self.reducer.is_enabled = config.accumulate == 1
        self.config = config
        self.task = task
        self.model = model
        self.optimizer = optimizer
        self.parameters: list[nn.Parameter] = [p for p in model.parameters() if p.requires_grad]
        self.means: list[tuple[Tensor, Tensor]] = _means(model, averaged)
        self.sums: list[Tensor] = (
            [_gradient_like(p) for p in self.parameters] if config.accumulate > 1 else []
        )
        self.loss_sum: Tensor = eg.zeros(())
        is_compiled = check_finite or not config.eager
        wrap = _compiler(config, check_finite) if is_compiled else _identity
        self.whole: Any = wrap(self._whole)
        self.micro: Any = wrap(self._micro)
        self.update: Any = wrap(self._update)

    def __call__(self, number: int) -> StepResult:
        """Do the step of this number, counted from 0."""
        self.set_rate(number)
        first = number * self.config.accumulate
        weight = mean_weight(self.config.ema, number)
        if self.config.accumulate == 1:
            found = self.whole(weight, *self.batch(first))
        else:
            for offset in range(self.config.accumulate):
                self.micro(*self.batch(first + offset))
            found = self.update(weight)
        loss, norm, own = found.tolist()
        return StepResult(loss, norm, own)

    def batch(self, number: int) -> tuple[Tensor, ...]:
        """This rank's part of a micro-batch."""
        return self.ranks.share(self.task.batch(number), self.task.rows_per_example)

    def programs(self) -> Iterator[tuple[Any, tuple[Any, ...]]]:
        """What is run at each step, with arguments as of the first: to plan and to explain."""
        batch = self.batch(0)
        if self.config.accumulate == 1:
            yield self.whole, (mean_weight(self.config.ema, 0), *batch)
        else:
            yield self.micro, batch
            yield self.update, (mean_weight(self.config.ema, 0),)

    def set_rate(self, number: int) -> None:
        """Give the optimizer the learning rate of this step."""
        rate = learning_rate(self.config.optimizer, number, self.config.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def _whole(self, weight: float, *batch: Tensor) -> Tensor:
        loss = self._backward(*batch)
        return self._apply(loss, weight)

    def _micro(self, *batch: Tensor) -> None:
        loss = self._backward(*batch)
        with eg.no_grad():
            self.loss_sum.add_(loss)
            for total, parameter in zip(self.sums, self.parameters, strict=True):
                if parameter.grad is not None:
                    total.add_(parameter.grad)
        self.optimizer.zero_grad()

    def _update(self, weight: float) -> Tensor:
        if self.reducer is not None:
            self.reducer.average(self.sums)
        for total, parameter in zip(self.sums, self.parameters, strict=True):
            parameter.grad = total
        found = self._apply(self.loss_sum, weight)
        with eg.no_grad():
            for total in (*self.sums, self.loss_sum):
                total.zero_()
        return found

    def _backward(self, *batch: Tensor) -> Tensor:
        """The gradients of a micro-batch's part of the loss; gives that part."""
        if self.reducer is not None and self.reducer.is_enabled:
            self.reducer.before_forward()
        with precision(self.config):
            loss = self._loss(*batch)
        part = loss.float() / self.config.accumulate
        part.backward()
        detached: Tensor = part.detach()
        return detached

    def _loss(self, *batch: Tensor) -> Tensor:
        """The loss of this rank's part, such that the mean over the ranks is that of the batch."""
        terms = self.task.terms(*batch) if self.ranks.size > 1 else None
        if terms is None:
            return self.task.loss(self.model, *batch)
        found: Tensor = self.task.loss_sum(self.model, *batch) / self.ranks.mean(terms.float())
        return found

    def _apply(self, loss: Tensor, weight: float) -> Tensor:
        """New weights from the gradients; gives the loss and the norm of the gradients."""
        norm = nn.utils.clip_grad_norm_(self.parameters, self.config.optimizer.clip or math.inf)
        self.optimizer.step()
        self.optimizer.zero_grad()
        with eg.no_grad():
            for mean, parameter in self.means:
                mean.lerp_(parameter, weight)
        found: Tensor = eg.stack([self.ranks.mean(loss), norm.detach(), loss])
        return found


@contextmanager
def precision(config: RunConfig) -> Iterator[None]:
    """Products in bfloat16 if the run wants that; weights and sums stay float32."""
    with eg.autocast("cpu", eg.bfloat16, enabled=config.precision == "bfloat16"):
        yield


def _gradient_like(parameter: Tensor) -> Tensor:
    """Zeros that the ledger knows as a gradient."""
    found: Tensor = eg.zeros_like(parameter, requires_grad=False)
    found._storage.tag(GRADIENT)
    return found


def _means(model: nn.Module, averaged: nn.Module | None) -> list[tuple[Tensor, Tensor]]:
    """Pairs of running means and what they are of."""
    if averaged is None:
        return []
    return list(zip(averaged.parameters(), model.parameters(), strict=True))


def _identity(function: Callable[..., object]) -> Callable[..., object]:
    return function


def _compiler(config: RunConfig, check_finite: bool) -> Callable[[Callable[..., object]], object]:
    return eg.compile(check_finite=check_finite, memory_limit=config.memory_limit)
