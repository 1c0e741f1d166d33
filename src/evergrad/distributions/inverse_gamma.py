"""The inverse gamma distribution."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import ClassVar

import evergrad
from evergrad.core.tensor import Tensor
from evergrad.distributions import constraints
from evergrad.distributions.basic_constraints import Constraint
from evergrad.distributions.distribution import expandable
from evergrad.distributions.gamma import Gamma
from evergrad.distributions.transformed_distribution import TransformedDistribution
from evergrad.distributions.transforms import PowerTransform

__all__ = ["InverseGamma"]


@expandable
class InverseGamma(TransformedDistribution):
    """One over gamma numbers.

    Args:
        concentration: the shape of the gamma distribution.
        rate: its rate, the scale of its inverse.

    >>> d = eg.distributions.InverseGamma(eg.tensor(3.0), eg.tensor(2.0))
    >>> d.mean, d.variance
    (tensor(1.), tensor(1.))
    >>> d.log_prob(eg.tensor(1.0))
    tensor(-0.6137)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "concentration": constraints.positive,
        "rate": constraints.positive,
    }
    support: Constraint = constraints.positive
    has_rsample = True
    base_dist: Gamma

    def __init__(
        self, concentration: object, rate: object, validate_args: bool | None = None
    ) -> None:
        base = Gamma(concentration, rate, validate_args=validate_args)
        inversion = PowerTransform(-base.rate.new_ones(()))
        super().__init__(base, inversion, validate_args=validate_args)

    @property
    def concentration(self) -> Tensor:
        """The shape of the gamma distribution."""
        return self.base_dist.concentration

    @property
    def rate(self) -> Tensor:
        """The rate of the gamma distribution."""
        return self.base_dist.rate

    @property
    def mean(self) -> Tensor:
        mean = self.rate / (self.concentration - 1)
        return evergrad.where(self.concentration > 1, mean, evergrad.inf)

    @property
    def mode(self) -> Tensor:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Tensor:
        spread = (self.concentration - 1).square() * (self.concentration - 2)
        variance = self.rate.square() / spread
        return evergrad.where(self.concentration > 2, variance, evergrad.inf)

    def entropy(self) -> Tensor:
        return (
            self.concentration
            + self.rate.log()
            + self.concentration.lgamma()
            - (1 + self.concentration) * self.concentration.digamma()
        )
