"""The Bernoulli distribution."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import evergrad
from evergrad.core.state import using
from evergrad.core.tensor import Tensor
from evergrad.distributions import constraints
from evergrad.distributions.basic_constraints import Constraint
from evergrad.distributions.coins import CoinDistribution
from evergrad.distributions.distribution import expandable
from evergrad.distributions.exp_family import ExponentialFamily
from evergrad.nn.functional import binary_cross_entropy_with_logits

__all__ = ["Bernoulli"]


@expandable
class Bernoulli(CoinDistribution, ExponentialFamily):
    """1 with a probability, else 0.

    Args:
        probs: the probability of 1.
        logits: its log-odds, given instead.

    >>> d = eg.distributions.Bernoulli(probs=eg.tensor([0.25, 0.5]))
    >>> d.mean, d.variance
    (tensor([0.2500, 0.5000]), tensor([0.1875, 0.2500]))
    >>> d.log_prob(eg.tensor([1.0, 0.0]))
    tensor([-1.3863, -0.6931])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    support: Constraint = constraints.boolean
    has_enumerate_support = True
    _mean_carrier_measure = 0

    def __init__(
        self, probs: object = None, logits: object = None, validate_args: bool | None = None
    ) -> None:
        self._set_parameter(probs, logits)
        super().__init__(self._param.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        mode = (self.probs >= 0.5).to(self.probs)
        return evergrad.where(self.probs == 0.5, evergrad.nan, mode)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with using(grad=False):
            return evergrad.bernoulli(self.probs.expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = evergrad.broadcast_tensors(self.logits, value)
        return -binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Tensor:
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return enumerated(evergrad.arange(2, dtype=self._param.dtype), self, expand)

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.logits,)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        (x,) = natural_params
        return x.exp().log1p()


def enumerated(values: Tensor, distribution: Any, expand: bool) -> Tensor:
    """All values of a distribution of numbers, in front of its batch dimensions."""
    batch = distribution.batch_shape
    column = values.reshape((-1, *[1] * len(batch)))
    return column.expand((-1, *batch)) if expand else column
