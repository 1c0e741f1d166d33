"""The sizes of numbers whose distribution is symmetric around 0."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import Any, ClassVar

import evergrad
from evergrad.core.tensor import Tensor
from evergrad.distributions import constraints
from evergrad.distributions.transformed_distribution import TransformedDistribution
from evergrad.distributions.transforms import AbsTransform
from evergrad.distributions.utils import LOG_2


class FoldedDistribution(TransformedDistribution):
    """A symmetric distribution with a scale, whose negative half is laid on the positive one."""

    arg_constraints: ClassVar = {"scale": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    base_dist: Any

    def __init__(self, base_distribution: Any, validate_args: bool | None = None) -> None:
        super().__init__(base_distribution, AbsTransform(), validate_args=validate_args)

    @property
    def scale(self) -> Tensor:
        """The scale of the whole distribution."""
        return self.base_dist.scale

    @property
    def mode(self) -> Tensor:
        return evergrad.zeros_like(self.scale)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        doubled = self.base_dist.log_prob(value) + LOG_2
        return evergrad.where(value >= 0, doubled, -evergrad.inf)

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, prob: Tensor) -> Tensor:
        return self.base_dist.icdf((prob + 1) / 2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - LOG_2
