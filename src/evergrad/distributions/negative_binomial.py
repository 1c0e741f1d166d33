"""The negative binomial distribution."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import evergrad
from evergrad.core.state import using
from evergrad.core.tensor import Tensor
from evergrad.distributions import constraints
from evergrad.distributions.basic_constraints import Constraint
from evergrad.distributions.coins import CoinDistribution
from evergrad.distributions.distribution import expandable
from evergrad.distributions.gamma import Gamma
from evergrad.distributions.utils import lazy_property
from evergrad.nn.functional import logsigmoid

__all__ = ["NegativeBinomial"]


@expandable
class NegativeBinomial(CoinDistribution):
    """How many trials succeed before a number of them have failed.

    Args:
        total_count: the number of failures that end it; need not be whole.
        probs: the probability that a trial succeeds.
        logits: its log-odds, given instead.

    >>> d = eg.distributions.NegativeBinomial(3, probs=eg.tensor(0.5))
    >>> d.mean, d.variance
    (tensor(3.), tensor(6.))
    >>> d.log_prob(eg.tensor(2.0))
    tensor(-1.6740)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support: Constraint = constraints.nonnegative_integer

    def __init__(
        self,
        total_count: Tensor | float,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ) -> None:
        (count,) = self._set_parameter(probs, logits, total_count)
        self.total_count: Tensor = count.type_as(self._param)
        super().__init__(self._param.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.logits.exp()

    @property
    def mode(self) -> Tensor:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    @property
    def variance(self) -> Tensor:
        return self.mean / evergrad.sigmoid(-self.logits)

    @lazy_property
    def _gamma(self) -> Gamma:
        # Unchecked, because a count of 0 is allowed.
        return Gamma(self.total_count, (-self.logits).exp(), validate_args=False)

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        with using(grad=False):
            return evergrad.poisson(self._gamma.sample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        trials = self.total_count * logsigmoid(-self.logits) + value * logsigmoid(self.logits)
        both = self.total_count + value
        log_ways = (
            evergrad.lgamma(both) - evergrad.lgamma(1.0 + value) - evergrad.lgamma(self.total_count)
        )
        return trials + log_ways.masked_fill(both == 0.0, 0.0)
