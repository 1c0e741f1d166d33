"""The exponential distribution."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import evergrad
from evergrad.core.tensor import Tensor
from evergrad.distributions import constraints
from evergrad.distributions.basic_constraints import Constraint
from evergrad.distributions.distribution import expandable
from evergrad.distributions.exp_family import ExponentialFamily
from evergrad.distributions.utils import broadcast_all

__all__ = ["Exponential"]


@expandable
class Exponential(ExponentialFamily):
    """Waiting times of events that come at a constant rate.

    Args:
        rate: the number of events per unit of time, the inverse of the mean.

    >>> d = eg.distributions.Exponential(eg.tensor(2.0))
    >>> d.mean, d.variance
    (tensor(0.5000), tensor(0.2500))
    >>> d.log_prob(eg.tensor(1.0))
    tensor(-1.3069)
    """

    rate: Tensor

    arg_constraints: ClassVar[dict[str, Constraint]] = {"rate": constraints.positive}
    support: Constraint = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(self, rate: object, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.rate.reciprocal()

    @property
    def mode(self) -> Tensor:
        return evergrad.zeros_like(self.rate)

    @property
    def stddev(self) -> Tensor:
        return self.rate.reciprocal()

    @property
    def variance(self) -> Tensor:
        return self.rate.pow(-2)

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        waiting = self.rate.new_empty(self._extended_shape(sample_shape)).exponential_()
        return waiting / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return self.rate.log() - self.rate * value

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return -(-self.rate * value).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        return -(-value).log1p() / self.rate

    def entropy(self) -> Tensor:
        return 1.0 - self.rate.log()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (-self.rate,)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        (x,) = natural_params
        return -(-x).log()
