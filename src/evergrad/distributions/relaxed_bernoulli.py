"""Coins relaxed to numbers between 0 and 1."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import evergrad
from evergrad.core.tensor import Tensor
from evergrad.distributions import constraints
from evergrad.distributions.basic_constraints import Constraint
from evergrad.distributions.coins import CoinDistribution
from evergrad.distributions.distribution import expandable
from evergrad.distributions.transformed_distribution import TransformedDistribution
from evergrad.distributions.transforms import SigmoidTransform
from evergrad.distributions.utils import clamp_probs

__all__ = ["LogitRelaxedBernoulli", "RelaxedBernoulli"]


@expandable
class LogitRelaxedBernoulli(CoinDistribution):
    """The log-odds of :class:`RelaxedBernoulli`.

    Args:
        temperature: how far draws are from 0 and 1; they get closer as it falls.
        probs: the probability of 1.
        logits: its log-odds, given instead.
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    support: Constraint = constraints.real
    _not_expanded = ("temperature",)

    def __init__(
        self,
        temperature: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        self.temperature = temperature
        self._set_parameter(probs, logits)
        super().__init__(self._param.shape, validate_args=validate_args)

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        probs = clamp_probs(self.probs.expand(shape))
        unit = clamp_probs(evergrad.rand(shape, dtype=probs.dtype))
        noise = unit.log() - (-unit).log1p()
        return (noise + probs.log() - (-probs).log1p()) / self.temperature

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = evergrad.broadcast_tensors(self.logits, value)
        rest = logits - value * self.temperature
        return self.temperature.log() + rest - 2 * rest.exp().log1p()


@expandable
class RelaxedBernoulli(TransformedDistribution):
    """Numbers near 0 or 1 that can be differentiated by their probability.

    Args:
        temperature: how far draws are from 0 and 1; they get closer as it falls.
        probs: the probability of 1.
        logits: its log-odds, given instead.

    >>> d = eg.distributions.RelaxedBernoulli(eg.tensor(0.5), probs=eg.tensor(0.5))
    >>> bool(0 <= d.rsample() <= 1)
    True
    >>> d.log_prob(eg.tensor(0.5))
    tensor(-0.6931)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    support: Constraint = constraints.unit_interval
    has_rsample = True
    base_dist: LogitRelaxedBernoulli

    def __init__(
        self,
        temperature: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        base = LogitRelaxedBernoulli(temperature, probs, logits)
        super().__init__(base, SigmoidTransform(), validate_args=validate_args)

    @property
    def temperature(self) -> Tensor:
        """How far draws are from 0 and 1."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Tensor:
        """The log-odds of 1."""
        return self.base_dist.logits

    @property
    def probs(self) -> Tensor:
        """The probability of 1."""
        return self.base_dist.probs
