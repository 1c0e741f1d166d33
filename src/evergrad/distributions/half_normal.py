"""The half-normal distribution."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math

from evergrad.core.tensor import Tensor
from evergrad.distributions.distribution import expandable
from evergrad.distributions.folded import FoldedDistribution
from evergrad.distributions.normal import Normal

__all__ = ["HalfNormal"]


@expandable
class HalfNormal(FoldedDistribution):
    """The size of normal numbers of mean 0.

    Args:
        scale: the standard deviation of the whole normal distribution.

    >>> d = eg.distributions.HalfNormal(eg.tensor(1.0))
    >>> d.mean, d.variance
    (tensor(0.7979), tensor(0.3634))
    >>> d.log_prob(eg.tensor(1.0))
    tensor(-0.7258)
    """

    def __init__(self, scale: object, validate_args: bool | None = None) -> None:
        super().__init__(Normal(0, scale, validate_args=False), validate_args)

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Tensor:
        return self.scale.pow(2) * (1 - 2 / math.pi)
