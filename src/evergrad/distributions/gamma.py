"""The gamma distribution."""

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
from evergrad.ops.rows.random.draws import standard_gamma

__all__ = ["Gamma"]


@expandable
class Gamma(ExponentialFamily):
    """The gamma distribution; draws can be differentiated by both parameters.

    Args:
        concentration: the shape.
        rate: the inverse of the scale.

    >>> d = eg.distributions.Gamma(eg.tensor(2.0), eg.tensor(4.0))
    >>> d.mean, d.variance
    (tensor(0.5000), tensor(0.1250))
    >>> d.log_prob(eg.tensor(1.0))
    tensor(-1.2274)
    """

    rate: Tensor
    concentration: Tensor

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "concentration": constraints.positive,
        "rate": constraints.positive,
    }
    support: Constraint = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(
        self, concentration: object, rate: object, validate_args: bool | None = None
    ) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate.pow(2)

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        drawn = standard_gamma(self.concentration.expand(shape)) / self.rate.expand(shape)
        return off_zero(drawn)

    def log_prob(self, value: Tensor) -> Tensor:
        value = evergrad.as_tensor(value, dtype=self.rate.dtype)
        if self._validate_args:
            self._validate_sample(value)
        return (
            evergrad.xlogy(self.concentration, self.rate)
            + evergrad.xlogy(self.concentration - 1, value)
            - self.rate * value
            - evergrad.lgamma(self.concentration)
        )

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return evergrad.special.gammainc(self.concentration, self.rate * value)

    def entropy(self) -> Tensor:
        return (
            self.concentration
            - self.rate.log()
            + evergrad.lgamma(self.concentration)
            + (1.0 - self.concentration) * evergrad.digamma(self.concentration)
        )

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.concentration - 1, -self.rate

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        x, y = natural_params
        return evergrad.lgamma(x + 1) + (x + 1) * evergrad.log(-y.reciprocal())


def off_zero(drawn: Tensor) -> Tensor:
    """Draws that underflowed are raised so that their logarithm is finite; slopes are kept."""
    raised = drawn.clone()
    raised.detach().clamp_(min=evergrad.finfo(drawn.dtype).tiny)
    return raised
