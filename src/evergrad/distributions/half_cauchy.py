"""The half-Cauchy distribution."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import evergrad
from evergrad.core.tensor import Tensor
from evergrad.distributions.cauchy import Cauchy
from evergrad.distributions.distribution import expandable
from evergrad.distributions.folded import FoldedDistribution

__all__ = ["HalfCauchy"]


@expandable
class HalfCauchy(FoldedDistribution):
    """The size of Cauchy numbers of median 0.

    Args:
        scale: the scale of the whole Cauchy distribution.

    >>> d = eg.distributions.HalfCauchy(eg.tensor(1.0))
    >>> d.log_prob(eg.tensor(1.0))
    tensor(-1.1447)
    >>> d.cdf(eg.tensor(1.0))
    tensor(0.5000)
    """

    def __init__(self, scale: object, validate_args: bool | None = None) -> None:
        super().__init__(Cauchy(0, scale, validate_args=False), validate_args)

    @property
    def mean(self) -> Tensor:
        return evergrad.full_like(self.scale, evergrad.inf)

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance
