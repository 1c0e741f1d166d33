"""Distributions of one probability each, given as ``probs`` or as ``logits``."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from evergrad.core.shapes import Size
from evergrad.core.tensor import Tensor
from evergrad.distributions.distribution import Distribution
from evergrad.distributions.utils import (
    broadcast_all,
    check_one_given,
    lazy_property,
    logits_to_probs,
    probs_to_logits,
)


class CoinDistribution(Distribution):
    """Keeps whichever of ``probs`` and ``logits`` was given and computes the other when asked."""

    def _set_parameter(self, probs: object, logits: object, *others: object) -> tuple[Tensor, ...]:
        """Keep the one that is given, broadcast with ``others``, which are returned."""
        check_one_given(probs, logits)
        if probs is not None:
            self.probs, *rest = broadcast_all(probs, *others)
        else:
            self.logits, *rest = broadcast_all(logits, *others)
        return tuple(rest)

    @lazy_property
    def logits(self) -> Tensor:
        """The log-odds."""
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Tensor:
        """The probabilities."""
        return logits_to_probs(self.logits, is_binary=True)

    @property
    def _param(self) -> Tensor:
        """The parameter that was given."""
        held = vars(self)
        return held["probs"] if "probs" in held else held["logits"]

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter that was given."""
        return self._param.shape
