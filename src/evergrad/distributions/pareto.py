"""The Pareto distribution."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import ClassVar

from evergrad.core.tensor import Tensor
from evergrad.distributions import constraints
from evergrad.distributions.constraints import Constraint
from evergrad.distributions.distribution import expandable
from evergrad.distributions.exponential import Exponential
from evergrad.distributions.transformed_distribution import TransformedDistribution
from evergrad.distributions.transforms import AffineTransform, ExpTransform
from evergrad.distributions.utils import broadcast_all

__all__ = ["Pareto"]


@expandable
class Pareto(TransformedDistribution):
    """Numbers above ``scale`` whose density falls like a power.

    Args:
        scale: the smallest number.
        alpha: how fast the density falls.

    >>> d = eg.distributions.Pareto(eg.tensor(1.0), eg.tensor(3.0))
    >>> d.mean, d.variance
    (tensor(1.5000), tensor(0.7500))
    >>> d.log_prob(eg.tensor(2.0))
    tensor(-1.6740)
    """

    alpha: Tensor
    scale: Tensor

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "alpha": constraints.positive,
        "scale": constraints.positive,
    }

    def __init__(self, scale: object, alpha: object, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = broadcast_all(scale, alpha)
        base = Exponential(self.alpha, validate_args=validate_args)
        transforms = [ExpTransform(), AffineTransform(loc=0, scale=self.scale)]
        super().__init__(base, transforms, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Constraint:
        return constraints.greater_than_eq(self.scale)

    @property
    def mean(self) -> Tensor:
        alpha = self.alpha.clamp(min=1)  # at and below 1 it is infinite
        return alpha * self.scale / (alpha - 1)

    @property
    def mode(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        alpha = self.alpha.clamp(min=2)  # at and below 2 it is infinite
        return self.scale.pow(2) * alpha / ((alpha - 1).pow(2) * (alpha - 2))

    def entropy(self) -> Tensor:
        return (self.scale / self.alpha).log() + (1 + self.alpha.reciprocal())
