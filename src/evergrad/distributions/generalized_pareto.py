"""The generalized Pareto distribution."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import evergrad
from evergrad.core.tensor import Tensor
from evergrad.distributions import constraints
from evergrad.distributions.constraints import Constraint
from evergrad.distributions.distribution import Distribution, expandable
from evergrad.distributions.utils import broadcast_all

__all__ = ["GeneralizedPareto"]


@expandable
class GeneralizedPareto(Distribution):
    """What exceeds a high bound: exponential for concentration 0, with a heavier tail above.

    Args:
        loc: the bound.
        scale: the width.
        concentration: the weight of the tail; negative ones make it end.

    >>> d = eg.distributions.GeneralizedPareto(eg.tensor(0.0), eg.tensor(1.0), eg.tensor(0.25))
    >>> d.mean
    tensor(1.3333)
    >>> d.log_prob(eg.tensor(1.0))
    tensor(-1.1157)
    """

    concentration: Tensor
    scale: Tensor
    loc: Tensor

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "loc": constraints.real,
        "scale": constraints.positive,
        "concentration": constraints.real,
    }
    has_rsample = True

    def __init__(
        self, loc: object, scale: object, concentration: object, validate_args: bool | None = None
    ) -> None:
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Constraint:
        end = self.loc - self.scale / self.concentration
        upper = evergrad.where(self.concentration < 0, end, evergrad.inf)
        return constraints.interval(self.loc, upper)

    @property
    def _is_exponential(self) -> Tensor:
        return evergrad.isclose(self.concentration, evergrad.zeros_like(self.concentration))

    @property
    def _nonzero_concentration(self) -> Tensor:
        """The concentration, replaced where it is 0 and the exponential formula holds."""
        return evergrad.where(self._is_exponential, 1.0, self.concentration)

    @property
    def mean(self) -> Tensor:
        below = evergrad.where(self.concentration < 1, self.concentration, 0)
        finite = self.loc + self.scale / (1 - below)
        return evergrad.where(self.concentration < 1, finite, evergrad.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        below = evergrad.where(self.concentration < 0.5, self.concentration, 0)
        finite = self.scale**2 / ((1 - below) ** 2 * (1 - 2 * below))
        return evergrad.where(self.concentration < 0.5, finite, evergrad.nan)

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.icdf(evergrad.rand(shape, dtype=self.loc.dtype))

    def _standardized(self, value: Tensor) -> Tensor:
        return (value - self.loc) / self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        excess = self._standardized(value)
        concentration = self._nonzero_concentration
        power = (1 + 1 / concentration) * (concentration * excess).log1p()
        return -self.scale.log() - evergrad.where(self._is_exponential, excess, power)

    def log_survival_function(self, value: Tensor) -> Tensor:
        """The logarithm of the probability to draw more than ``value``."""
        if self._validate_args:
            self._validate_sample(value)
        excess = self._standardized(value)
        concentration = self._nonzero_concentration
        power = (concentration * excess).log1p() / concentration
        return -evergrad.where(self._is_exponential, excess, power)

    def log_cdf(self, value: Tensor) -> Tensor:
        """The logarithm of ``cdf``."""
        return (-self.log_survival_function(value).exp()).log1p()

    def cdf(self, value: Tensor) -> Tensor:
        return self.log_cdf(value).exp()

    def icdf(self, value: Tensor) -> Tensor:
        log_left = (-value).log1p()
        concentration = self._nonzero_concentration
        power = (-concentration * log_left).expm1() / concentration
        excess = evergrad.where(self._is_exponential, -log_left, power)
        return self.loc + self.scale * excess

    def entropy(self) -> Tensor:
        return (self.scale.log() + self.concentration + 1).expand(self._batch_shape)
