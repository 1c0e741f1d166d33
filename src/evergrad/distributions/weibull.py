"""The Weibull distribution."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import ClassVar

import evergrad
from evergrad.core.tensor import Tensor
from evergrad.distributions import constraints
from evergrad.distributions.basic_constraints import Constraint
from evergrad.distributions.distribution import expandable
from evergrad.distributions.exponential import Exponential
from evergrad.distributions.transformed_distribution import TransformedDistribution
from evergrad.distributions.transforms import AffineTransform, PowerTransform
from evergrad.distributions.utils import EULER_CONSTANT, broadcast_all

__all__ = ["Weibull"]


@expandable
class Weibull(TransformedDistribution):
    """Powers of exponential numbers.

    Args:
        scale: what the power is multiplied with.
        concentration: the inverse of the exponent.

    >>> d = eg.distributions.Weibull(eg.tensor(1.0), eg.tensor(2.0))
    >>> d.mean, d.variance
    (tensor(0.8862), tensor(0.2146))
    >>> d.log_prob(eg.tensor(1.0))
    tensor(-0.3069)
    """

    concentration: Tensor
    scale: Tensor

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "scale": constraints.positive,
        "concentration": constraints.positive,
    }
    support: Constraint = constraints.positive

    def __init__(
        self, scale: object, concentration: object, validate_args: bool | None = None
    ) -> None:
        self.scale, self.concentration = broadcast_all(scale, concentration)
        base = Exponential(evergrad.ones_like(self.scale), validate_args=validate_args)
        transforms = [
            PowerTransform(exponent=self.concentration.reciprocal()),
            AffineTransform(loc=0, scale=self.scale),
        ]
        super().__init__(base, transforms, validate_args=validate_args)

    def _moment(self, order: int) -> Tensor:
        """The mean of a power, for a scale of 1."""
        return evergrad.exp(evergrad.lgamma(1 + order / self.concentration))

    @property
    def mean(self) -> Tensor:
        return self.scale * self._moment(1)

    @property
    def mode(self) -> Tensor:
        exponent = self.concentration.reciprocal()
        return self.scale * ((self.concentration - 1) / self.concentration) ** exponent

    @property
    def variance(self) -> Tensor:
        return self.scale.pow(2) * (self._moment(2) - self._moment(1).pow(2))

    def entropy(self) -> Tensor:
        exponent = self.concentration.reciprocal()
        return EULER_CONSTANT * (1 - exponent) + (self.scale * exponent).log() + 1
