"""The Cauchy distribution."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import ClassVar

import evergrad
from evergrad.core.tensor import Tensor
from evergrad.distributions import constraints
from evergrad.distributions.basic_constraints import Constraint
from evergrad.distributions.distribution import Distribution, expandable, full_nan
from evergrad.distributions.utils import broadcast_all

__all__ = ["Cauchy"]


@expandable
class Cauchy(Distribution):
    """The ratio of two independent normal numbers; it has neither mean nor variance.

    Args:
        loc: the median.
        scale: half the width at half the height.

    >>> d = eg.distributions.Cauchy(eg.tensor(0.0), eg.tensor(1.0))
    >>> d.log_prob(eg.tensor(1.0))
    tensor(-1.8379)
    >>> d.cdf(eg.tensor(1.0))
    tensor(0.7500)
    """

    scale: Tensor
    loc: Tensor

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support: Constraint = constraints.real
    has_rsample = True

    def __init__(self, loc: object, scale: object, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return full_nan(self.loc)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return evergrad.full_like(self.loc, evergrad.inf)

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        noise = self.loc.new_empty(self._extended_shape(sample_shape)).cauchy_()
        return self.loc + noise * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        distance = ((value - self.loc) / self.scale) ** 2
        return -math.log(math.pi) - self.scale.log() - distance.log1p()

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return evergrad.atan((value - self.loc) / self.scale) / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return evergrad.tan(math.pi * (value - 0.5)) * self.scale + self.loc

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + self.scale.log()
