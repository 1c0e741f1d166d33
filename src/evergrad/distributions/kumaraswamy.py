"""The Kumaraswamy distribution."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import ClassVar

import evergrad
from evergrad.core.tensor import Tensor
from evergrad.distributions import constraints
from evergrad.distributions.basic_constraints import Constraint
from evergrad.distributions.distribution import expandable
from evergrad.distributions.transformed_distribution import TransformedDistribution
from evergrad.distributions.transforms import AffineTransform, PowerTransform
from evergrad.distributions.uniform import Uniform
from evergrad.distributions.utils import EULER_CONSTANT, broadcast_all

__all__ = ["Kumaraswamy"]


@expandable
class Kumaraswamy(TransformedDistribution):
    """Numbers between 0 and 1, similar to the beta distribution but with a simple inverse.

    Args:
        concentration1: the exponent of the number.
        concentration0: the exponent of what is left of 1.

    >>> d = eg.distributions.Kumaraswamy(eg.tensor(2.0), eg.tensor(2.0))
    >>> d.mean
    tensor(0.5333)
    >>> d.log_prob(eg.tensor(0.5))
    tensor(0.4055)
    """

    concentration0: Tensor
    concentration1: Tensor

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    support: Constraint = constraints.unit_interval
    has_rsample = True

    def __init__(
        self, concentration1: object, concentration0: object, validate_args: bool | None = None
    ) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        zeros = evergrad.zeros_like(self.concentration0)
        base = Uniform(zeros, zeros + 1, validate_args=validate_args)
        transforms = [
            PowerTransform(exponent=self.concentration0.reciprocal()),
            AffineTransform(loc=1.0, scale=-1.0),
            PowerTransform(exponent=self.concentration1.reciprocal()),
        ]
        super().__init__(base, transforms, validate_args=validate_args)

    def moment(self, order: int) -> Tensor:
        """The mean of a power of the draws."""
        rise = 1 + order / self.concentration1
        log_beta = (
            evergrad.lgamma(rise)
            + evergrad.lgamma(self.concentration0)
            - evergrad.lgamma(rise + self.concentration0)
        )
        return self.concentration0 * log_beta.exp()

    @property
    def mean(self) -> Tensor:
        return self.moment(1)

    @property
    def mode(self) -> Tensor:
        # In logarithms, for concentrations near 0 and 1.
        log_mode = (
            self.concentration0.reciprocal() * (-self.concentration0).log1p()
            - (-self.concentration0 * self.concentration1).log1p()
        )
        inside = (self.concentration0 >= 1) & (self.concentration1 >= 1)
        return evergrad.where(inside, log_mode.exp(), evergrad.nan)

    @property
    def variance(self) -> Tensor:
        return self.moment(2) - self.mean.pow(2)

    def entropy(self) -> Tensor:
        rest1 = 1 - self.concentration1.reciprocal()
        rest0 = 1 - self.concentration0.reciprocal()
        harmonic = evergrad.digamma(self.concentration0 + 1) + EULER_CONSTANT
        return rest0 + rest1 * harmonic - (self.concentration1 * self.concentration0).log()
