"""The continuous Bernoulli distribution."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import evergrad
from evergrad.core.tensor import Tensor
from evergrad.distributions import constraints
from evergrad.distributions.basic_constraints import Constraint
from evergrad.distributions.coins import CoinDistribution
from evergrad.distributions.distribution import expandable, require_values
from evergrad.distributions.exp_family import ExponentialFamily
from evergrad.distributions.utils import LOG_2, clamp_probs
from evergrad.nn.functional import binary_cross_entropy_with_logits

__all__ = ["ContinuousBernoulli"]


@expandable
class ContinuousBernoulli(CoinDistribution, ExponentialFamily):
    """Numbers between 0 and 1 with a density proportional to ``p**x * (1 - p)**(1 - x)``.

    Args:
        probs: p.
        logits: its log-odds, given instead.
        lims: the region around 1/2 in which Taylor series replace formulas that cancel there.

    >>> d = eg.distributions.ContinuousBernoulli(probs=eg.tensor(0.25))
    >>> d.mean
    tensor(0.4102)
    >>> d.log_prob(eg.tensor(0.5))
    tensor(-0.0498)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    support: Constraint = constraints.unit_interval
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(
        self,
        probs: object = None,
        logits: object = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        self._set_parameter(probs, logits)
        if probs is not None:
            if validate_args is not None:  # unsaid, they are only clamped
                require_values(
                    constraints.unit_interval.check(self.probs),
                    lambda: "The parameter probs has invalid values",
                )
            self.probs = clamp_probs(self.probs)
        self._lims = lims
        super().__init__(self._param.shape, validate_args=validate_args)

    def _is_stable(self) -> Tensor:
        """Where p is far enough from 1/2 for the plain formulas."""
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _stable_probs(self) -> Tensor:
        """p, replaced where the plain formulas are not used, so that their slopes stay finite."""
        return evergrad.where(self._is_stable(), self.probs, self._lims[0])

    def _chosen(self, plain: Tensor, series: Tensor) -> Tensor:
        return evergrad.where(self._is_stable(), plain, series)

    def _cont_bern_log_norm(self) -> Tensor:
        """The logarithm of what makes the density's integral 1."""
        p = self._stable_probs()
        below = evergrad.where(p <= 0.5, p, 0.0)
        above = evergrad.where(p >= 0.5, p, 1.0)
        log_gap = evergrad.where(p <= 0.5, (-2.0 * below).log1p(), (2.0 * above - 1.0).log())
        square = (self.probs - 0.5).pow(2)
        series = LOG_2 + (4.0 / 3.0 + 104.0 / 45.0 * square) * square
        return self._chosen(((-p).log1p() - p.log()).abs().log() - log_gap, series)

    @property
    def mean(self) -> Tensor:
        p = self._stable_probs()
        plain = p / (2.0 * p - 1.0) + 1.0 / ((-p).log1p() - p.log())
        x = self.probs - 0.5
        return self._chosen(plain, 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * x.pow(2)) * x)

    @property
    def variance(self) -> Tensor:
        p = self._stable_probs()
        plain = p * (p - 1.0) / (1.0 - 2.0 * p).pow(2) + 1.0 / ((-p).log1p() - p.log()).pow(2)
        square = (self.probs - 0.5).pow(2)
        return self._chosen(plain, 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * square) * square)

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.icdf(evergrad.rand(shape, dtype=self.probs.dtype))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = evergrad.broadcast_tensors(self.logits, value)
        entropy = binary_cross_entropy_with_logits(logits, value, reduction="none")
        return self._cont_bern_log_norm() - entropy

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        p = self._stable_probs()
        plain = (p.pow(value) * (1.0 - p).pow(1.0 - value) + p - 1.0) / (2.0 * p - 1.0)
        inside = self._chosen(plain, value)
        return evergrad.where(value <= 0.0, 0.0, evergrad.where(value >= 1.0, 1.0, inside))

    def icdf(self, value: Tensor) -> Tensor:
        p = self._stable_probs()
        rise = (-p + value * (2.0 * p - 1.0)).log1p() - (-p).log1p()
        return self._chosen(rise / (p.log() - (-p).log1p()), value)

    def entropy(self) -> Tensor:
        log_miss = (-self.probs).log1p()
        return self.mean * (log_miss - self.probs.log()) - self._cont_bern_log_norm() - log_miss

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.logits,)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        (x,) = natural_params
        is_far = (x <= self._lims[0] - 0.5) | (x > self._lims[1] - 0.5)
        far = evergrad.where(is_far, x, self._lims[0] - 0.5)
        series = 0.5 * x + x.pow(2) / 24.0 - x.pow(4) / 2880.0
        return evergrad.where(is_far, far.expm1().abs().log() - far.abs().log(), series)
