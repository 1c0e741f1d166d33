"""The categorical distribution."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import evergrad
from evergrad.core.shapes import Size
from evergrad.core.state import using
from evergrad.core.tensor import Tensor
from evergrad.distributions import constraints
from evergrad.distributions.bernoulli import enumerated
from evergrad.distributions.constraints import Constraint
from evergrad.distributions.distribution import Distribution, expandable, full_nan
from evergrad.distributions.utils import (
    check_one_given,
    lazy_property,
    logits_to_probs,
    probs_to_logits,
)

__all__ = ["Categorical"]


@expandable
class Categorical(Distribution):
    """One of several categories, by its number.

    Args:
        probs: weights in the last dimension, which are divided by their sum.
        logits: their logarithms, up to a constant, given instead.

    >>> d = eg.distributions.Categorical(probs=eg.tensor([0.25, 0.75]))
    >>> d.log_prob(eg.tensor(1))
    tensor(-0.2877)
    >>> d.sample((3,)).shape, d.entropy()
    (evergrad.Size([3]), tensor(0.5623))
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "probs": constraints.simplex,
        "logits": constraints.real_vector,
    }
    has_enumerate_support = True

    def __init__(
        self,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        check_one_given(probs, logits)
        if probs is not None:
            _check_is_vector("probs", probs)
            self.probs = probs / probs.sum(-1, keepdim=True)
        elif logits is not None:
            _check_is_vector("logits", logits)
            self.logits = logits - logits.logsumexp(dim=-1, keepdim=True)
        self._num_events = self._param.shape[-1]
        super().__init__(self._param.shape[:-1], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Constraint:
        return constraints.integer_interval(0, self._num_events - 1)

    @lazy_property
    def logits(self) -> Tensor:
        """The logarithms of the probabilities."""
        return probs_to_logits(self.probs)

    @lazy_property
    def probs(self) -> Tensor:
        """The probabilities."""
        return logits_to_probs(self.logits)

    @property
    def _param(self) -> Tensor:
        """The parameter that was given."""
        held = vars(self)
        return held["probs"] if "probs" in held else held["logits"]

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter that was given."""
        return self._param.shape

    @property
    def mean(self) -> Tensor:
        return full_nan(self.probs[..., 0])

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(-1)

    @property
    def variance(self) -> Tensor:
        return full_nan(self.probs[..., 0])

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        sample_shape = Size(sample_shape)
        with using(grad=False):
            rows = self.probs.reshape(-1, self._num_events)
            drawn = evergrad.multinomial(rows, sample_shape.numel(), True).T
            return drawn.reshape(self._extended_shape(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        index = value.long().unsqueeze(-1)
        index, log_probs = evergrad.broadcast_tensors(index, self.logits)
        return log_probs.gather(-1, index[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        smallest = evergrad.finfo(self.logits.dtype).min
        return -(self.logits.clamp(min=smallest) * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return enumerated(evergrad.arange(self._num_events), self, expand)


def _check_is_vector(name: str, value: Tensor) -> None:
    if value.ndim < 1:
        raise ValueError(f"`{name}` parameter must be at least one-dimensional.")
