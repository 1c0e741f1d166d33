"""The multinomial distribution."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import evergrad
from evergrad.core.shapes import Size
from evergrad.core.state import using
from evergrad.core.tensor import Tensor
from evergrad.distributions import constraints
from evergrad.distributions.binomial import Binomial
from evergrad.distributions.categorical import Categorical
from evergrad.distributions.constraints import Constraint
from evergrad.distributions.distribution import expandable
from evergrad.distributions.one_hot_categorical import VectorOfCategories

__all__ = ["Multinomial"]


@expandable
class Multinomial(VectorOfCategories):
    """How often each category is drawn in several trials.

    Args:
        total_count: the number of trials, one for all batches.
        probs: weights in the last dimension, which are divided by their sum.
        logits: their logarithms, up to a constant, given instead.

    >>> d = eg.distributions.Multinomial(4, probs=eg.tensor([0.25, 0.75]))
    >>> d.mean, d.sample().sum()
    (tensor([1., 3.]), tensor(4.))
    >>> d.log_prob(eg.tensor([1.0, 3.0]))
    tensor(-0.8630)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "probs": constraints.simplex,
        "logits": constraints.real_vector,
    }
    total_count: int

    def __init__(
        self,
        total_count: int = 1,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._categorical = Categorical(probs=probs, logits=logits)
        self._binomial = Binomial(total_count=total_count, probs=self.probs)
        super().__init__(
            self._categorical.batch_shape, self._param.shape[-1:], validate_args=validate_args
        )

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Constraint:
        return constraints.multinomial(self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        sample_shape = Size(sample_shape)
        with using(grad=False):
            drawn = self._categorical.sample(Size((self.total_count,)) + sample_shape)
            drawn = drawn.movedim(0, -1)
            counts = drawn.new_zeros(self._extended_shape(sample_shape))
            counts.scatter_add_(-1, drawn, evergrad.ones_like(drawn))
            return counts.type_as(self.probs)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = evergrad.broadcast_tensors(self.logits, value)
        log_ways = evergrad.lgamma(value.sum(-1) + 1) - evergrad.lgamma(value + 1).sum(-1)
        impossible = (value == 0) & (logits == -evergrad.inf)
        logits = logits.masked_fill(impossible, 0)
        return log_ways + (logits * value).sum(-1)

    def entropy(self) -> Tensor:
        trials = evergrad.tensor(self.total_count)
        counts = self._binomial.enumerate_support(expand=False)[1:]
        by_count = (self._binomial.log_prob(counts).exp() * evergrad.lgamma(counts + 1)).sum(
            [0, -1]
        )
        return trials * self._categorical.entropy() - evergrad.lgamma(trials + 1) + by_count
