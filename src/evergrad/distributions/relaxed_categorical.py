"""Categories relaxed to shares of 1."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import evergrad
from evergrad.core.tensor import Tensor
from evergrad.distributions import constraints
from evergrad.distributions.basic_constraints import Constraint
from evergrad.distributions.categorical import Categorical
from evergrad.distributions.distribution import expandable
from evergrad.distributions.one_hot_categorical import VectorOfCategories
from evergrad.distributions.transformed_distribution import TransformedDistribution
from evergrad.distributions.transforms import ExpTransform
from evergrad.distributions.utils import clamp_probs

__all__ = ["ExpRelaxedCategorical", "RelaxedOneHotCategorical"]


@expandable
class ExpRelaxedCategorical(VectorOfCategories):
    """The logarithms of :class:`RelaxedOneHotCategorical`.

    Args:
        temperature: how far draws are from one-hot vectors; they get closer as it falls.
        probs: weights in the last dimension, which are divided by their sum.
        logits: their logarithms, up to a constant, given instead.
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "probs": constraints.simplex,
        "logits": constraints.real_vector,
    }
    support: Constraint = constraints.real_vector  # those whose exponentials add up to 1
    has_rsample = True
    _not_expanded = ("temperature",)

    def __init__(
        self,
        temperature: Any,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self._categorical = Categorical(probs, logits)
        self.temperature = temperature
        super().__init__(
            self._categorical.batch_shape, self._param.shape[-1:], validate_args=validate_args
        )

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        unit = clamp_probs(evergrad.rand(shape, dtype=self.logits.dtype))
        scores = (self.logits - (-unit.log()).log()) / self.temperature
        return scores - scores.logsumexp(dim=-1, keepdim=True)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        count = self._categorical._num_events
        logits, value = evergrad.broadcast_tensors(self.logits, value)
        factorial = evergrad.full_like(self.temperature, float(count)).lgamma()
        log_scale = factorial + self.temperature.log() * (count - 1)
        score = logits - value * self.temperature
        return (score - score.logsumexp(dim=-1, keepdim=True)).sum(-1) + log_scale


@expandable
class RelaxedOneHotCategorical(TransformedDistribution):
    """Shares of 1, most of it in one place, that can be differentiated by the probabilities.

    Args:
        temperature: how far draws are from one-hot vectors; they get closer as it falls.
        probs: weights in the last dimension, which are divided by their sum.
        logits: their logarithms, up to a constant, given instead.

    >>> d = eg.distributions.RelaxedOneHotCategorical(eg.tensor(0.5), probs=eg.tensor([0.5, 0.5]))
    >>> eg.allclose(d.rsample().sum(), eg.tensor(1.0))
    True
    >>> d.log_prob(eg.tensor([0.5, 0.5]))
    tensor(-0.6931)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "probs": constraints.simplex,
        "logits": constraints.real_vector,
    }
    support: Constraint = constraints.simplex
    has_rsample = True
    base_dist: ExpRelaxedCategorical

    def __init__(
        self,
        temperature: Any,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)

    @property
    def temperature(self) -> Tensor:
        """How far draws are from one-hot vectors."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Tensor:
        """The logarithms of the probabilities."""
        return self.base_dist.logits

    @property
    def probs(self) -> Tensor:
        """The probabilities of the categories."""
        return self.base_dist.probs
