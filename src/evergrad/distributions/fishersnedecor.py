"""The F distribution of Fisher and Snedecor."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import evergrad
from evergrad.core.tensor import Tensor
from evergrad.distributions import constraints
from evergrad.distributions.basic_constraints import Constraint
from evergrad.distributions.distribution import Distribution, expandable
from evergrad.distributions.gamma import Gamma, off_zero
from evergrad.distributions.utils import broadcast_all

__all__ = ["FisherSnedecor"]


@expandable
class FisherSnedecor(Distribution):
    """The ratio of two estimates of a variance; draws can be differentiated.

    Args:
        df1: the degrees of freedom above.
        df2: the degrees of freedom below.

    >>> d = eg.distributions.FisherSnedecor(eg.tensor(4.0), eg.tensor(6.0))
    >>> d.mean
    tensor(1.5000)
    >>> d.log_prob(eg.tensor(1.0))
    tensor(-0.8802)
    """

    df2: Tensor
    df1: Tensor

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "df1": constraints.positive,
        "df2": constraints.positive,
    }
    support: Constraint = constraints.positive
    has_rsample = True

    def __init__(self, df1: object, df2: object, validate_args: bool | None = None) -> None:
        self.df1, self.df2 = broadcast_all(df1, df2)
        self._gamma1 = Gamma(self.df1 * 0.5, self.df1)
        self._gamma2 = Gamma(self.df2 * 0.5, self.df2)
        super().__init__(self.df1.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        df2 = evergrad.where(self.df2 > 2, self.df2, evergrad.nan)
        return df2 / (df2 - 2)

    @property
    def mode(self) -> Tensor:
        mode = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return evergrad.where(self.df1 > 2, mode, evergrad.nan)

    @property
    def variance(self) -> Tensor:
        df2 = evergrad.where(self.df2 > 4, self.df2, evergrad.nan)
        spread = 2 * df2.pow(2) * (self.df1 + df2 - 2)
        return spread / (self.df1 * (df2 - 2).pow(2) * (df2 - 4))

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        above = self._gamma1.rsample(sample_shape)
        below = self._gamma2.rsample(sample_shape)
        return off_zero(above / below)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        half1, half2 = self.df1 * 0.5, self.df2 * 0.5
        ratio = self.df1 / self.df2
        log_beta = evergrad.lgamma(half1) + evergrad.lgamma(half2) - evergrad.lgamma(half1 + half2)
        rising = half1 * ratio.log() + (half1 - 1) * value.log()
        return rising - (half1 + half2) * (ratio * value).log1p() - log_beta
