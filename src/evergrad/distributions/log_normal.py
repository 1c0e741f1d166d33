"""The log-normal distribution."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import ClassVar

from evergrad.core.tensor import Tensor
from evergrad.distributions import constraints
from evergrad.distributions.basic_constraints import Constraint
from evergrad.distributions.distribution import expandable
from evergrad.distributions.normal import Normal
from evergrad.distributions.transformed_distribution import TransformedDistribution
from evergrad.distributions.transforms import ExpTransform

__all__ = ["LogNormal"]


@expandable
class LogNormal(TransformedDistribution):
    """Numbers whose logarithm is normal.

    Args:
        loc: the mean of the logarithm.
        scale: its standard deviation.

    >>> d = eg.distributions.LogNormal(eg.tensor(0.0), eg.tensor(1.0))
    >>> d.mean, d.variance
    (tensor(1.6487), tensor(4.6708))
    >>> d.log_prob(eg.tensor(1.0))
    tensor(-0.9189)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support: Constraint = constraints.positive
    has_rsample = True
    base_dist: Normal

    def __init__(self, loc: object, scale: object, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)

    @property
    def loc(self) -> Tensor:
        """The mean of the logarithm."""
        return self.base_dist.loc

    @property
    def scale(self) -> Tensor:
        """The standard deviation of the logarithm."""
        return self.base_dist.scale

    @property
    def mean(self) -> Tensor:
        return (self.loc + self.scale.pow(2) / 2).exp()

    @property
    def mode(self) -> Tensor:
        return (self.loc - self.scale.square()).exp()

    @property
    def variance(self) -> Tensor:
        square = self.scale.pow(2)
        return square.expm1() * (2 * self.loc + square).exp()

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc
