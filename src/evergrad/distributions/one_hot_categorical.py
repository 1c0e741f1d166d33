"""Categories as vectors with a 1."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import evergrad
from evergrad.core.shapes import Size
from evergrad.core.tensor import Tensor
from evergrad.distributions import constraints
from evergrad.distributions.basic_constraints import Constraint
from evergrad.distributions.categorical import Categorical
from evergrad.distributions.distribution import Distribution, expandable
from evergrad.nn.functional import one_hot

__all__ = ["OneHotCategorical", "OneHotCategoricalStraightThrough"]


class VectorOfCategories(Distribution):
    """A distribution of vectors that are made of draws of a :class:`Categorical`."""

    _categorical: Categorical

    @property
    def probs(self) -> Tensor:
        """The probabilities of the categories."""
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        """The logarithms of the probabilities."""
        return self._categorical.logits

    @property
    def _param(self) -> Tensor:
        return self._categorical._param

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter that was given."""
        return self._categorical.param_shape


@expandable
class OneHotCategorical(VectorOfCategories):
    """A vector with a 1 at the category drawn, and zeros.

    Args:
        probs: weights in the last dimension, which are divided by their sum.
        logits: their logarithms, up to a constant, given instead.

    >>> d = eg.distributions.OneHotCategorical(probs=eg.tensor([0.25, 0.75]))
    >>> d.sample().sum()
    tensor(1.)
    >>> d.log_prob(eg.tensor([0.0, 1.0]))
    tensor(-0.2877)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "probs": constraints.simplex,
        "logits": constraints.real_vector,
    }
    support: Constraint = constraints.one_hot
    has_enumerate_support = True

    def __init__(
        self,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self._categorical = Categorical(probs, logits)
        super().__init__(
            self._categorical.batch_shape, self._param.shape[-1:], validate_args=validate_args
        )

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return self._as_vectors(self.probs.argmax(-1))

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def _as_vectors(self, numbers: Tensor) -> Tensor:
        return one_hot(numbers, self.event_shape[0]).to(self.probs)

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        return self._as_vectors(self._categorical.sample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return self._categorical.log_prob(value.max(-1)[1])

    def entropy(self) -> Tensor:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        count = self.event_shape[0]
        values = evergrad.eye(count, dtype=self._param.dtype)
        values = values.reshape((count, *[1] * len(self.batch_shape), count))
        return values.expand((count, *self.batch_shape, count)) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """A one-hot vector whose slope by the probabilities is taken to be 1 (straight through).

    Args:
        probs: weights (*, n) in any scale, or
        logits: their logarithms
        validate_args: whether to check values; default ``__debug__``

    >>> probs = eg.tensor([0.25, 0.75], requires_grad=True)
    >>> d = eg.distributions.OneHotCategoricalStraightThrough(probs=probs)
    >>> d.rsample().requires_grad
    True
    """

    has_rsample = True

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        drawn = self.sample(sample_shape)
        probs = self._categorical.probs
        return drawn + (probs - probs.detach())
