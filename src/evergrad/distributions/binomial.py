"""The binomial distribution."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import evergrad
from evergrad.core.state import using
from evergrad.core.tensor import Tensor
from evergrad.distributions import constraints
from evergrad.distributions.bernoulli import enumerated
from evergrad.distributions.coins import CoinDistribution
from evergrad.distributions.constraints import Constraint
from evergrad.distributions.distribution import expandable
from evergrad.nn.functional import logsigmoid

__all__ = ["Binomial"]


@expandable
class Binomial(CoinDistribution):
    """How many of several trials succeed.

    Args:
        total_count: the number of trials.
        probs: the probability that one succeeds.
        logits: its log-odds, given instead.

    >>> d = eg.distributions.Binomial(4, probs=eg.tensor(0.5))
    >>> d.mean, d.variance
    (tensor(2.), tensor(1.))
    >>> d.log_prob(eg.tensor(2.0))
    tensor(-0.9808)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    has_enumerate_support = True

    def __init__(
        self,
        total_count: object = 1,
        probs: object = None,
        logits: object = None,
        validate_args: bool | None = None,
    ) -> None:
        (count,) = self._set_parameter(probs, logits, total_count)
        self.total_count: Tensor = count.type_as(self._param)
        super().__init__(self._param.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Constraint:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        return ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with using(grad=False):
            return evergrad.binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        log_ways = (
            evergrad.lgamma(self.total_count + 1)
            - evergrad.lgamma(value + 1)
            - evergrad.lgamma(self.total_count - value + 1)
        )
        log_miss = logsigmoid(-self.logits)
        return value * self.logits + self.total_count * log_miss + log_ways

    def entropy(self) -> Tensor:
        count = self._common_count("`entropy`")
        log_probs = self.log_prob(self._counts(count, expand=False))
        return -(log_probs.exp() * log_probs).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._counts(self._common_count("`enumerate_support`"), expand)

    def _counts(self, count: int, expand: bool) -> Tensor:
        return enumerated(evergrad.arange(1 + count, dtype=self._param.dtype), self, expand)

    def _common_count(self, what: str) -> int:
        count = int(self.total_count.max())
        if not self.total_count.min() == count:
            raise NotImplementedError(f"Inhomogeneous total count not supported by {what}.")
        return count
