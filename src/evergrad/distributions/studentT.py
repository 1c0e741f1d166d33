"""Student's t distribution."""  # noqa: N999 - PyTorch's spelling

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import ClassVar

import evergrad
from evergrad.core.tensor import Tensor
from evergrad.distributions import constraints
from evergrad.distributions.basic_constraints import Constraint
from evergrad.distributions.chi2 import Chi2
from evergrad.distributions.distribution import Distribution, expandable
from evergrad.distributions.utils import broadcast_all, standard_normal

__all__ = ["StudentT"]


@expandable
class StudentT(Distribution):
    """Normal numbers over an estimate of their deviation; draws can be differentiated.

    Args:
        df: the degrees of freedom of the estimate.
        loc: the middle.
        scale: the width.

    >>> d = eg.distributions.StudentT(eg.tensor(4.0))
    >>> d.mean, d.variance
    (tensor(0.), tensor(2.))
    >>> d.log_prob(eg.tensor(0.0))
    tensor(-0.9808)
    """

    scale: Tensor
    loc: Tensor
    df: Tensor

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "df": constraints.positive,
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support: Constraint = constraints.real
    has_rsample = True

    def __init__(
        self, df: object, loc: object = 0.0, scale: object = 1.0, validate_args: bool | None = None
    ) -> None:
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        self._chi2 = Chi2(self.df)
        super().__init__(self.df.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return evergrad.where(self.df > 1, self.loc, evergrad.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        finite = self.df > 2
        shrink = evergrad.where(finite, self.df, 3)
        variance = self.scale.pow(2) * shrink / (shrink - 2)
        variance = evergrad.where(finite, variance, evergrad.inf)
        return evergrad.where(self.df > 1, variance, evergrad.nan)

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        noise = standard_normal(self._extended_shape(sample_shape), self.df.dtype)
        estimate = self._chi2.rsample(sample_shape) / self.df
        return self.loc + self.scale * (noise * evergrad.rsqrt(estimate))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        distance = (value - self.loc) / self.scale
        normalizer = (
            self.scale.log()
            + 0.5 * self.df.log()
            + 0.5 * math.log(math.pi)
            + evergrad.lgamma(0.5 * self.df)
            - evergrad.lgamma(0.5 * (self.df + 1.0))
        )
        return -0.5 * (self.df + 1.0) * evergrad.log1p(distance**2.0 / self.df) - normalizer

    def entropy(self) -> Tensor:
        half = 0.5 * self.df
        log_beta = evergrad.lgamma(half) + math.lgamma(0.5) - evergrad.lgamma(0.5 * (self.df + 1))
        weight = 0.5 * (self.df + 1)
        return (
            self.scale.log()
            + weight * (evergrad.digamma(weight) - evergrad.digamma(half))
            + 0.5 * self.df.log()
            + log_beta
        )
