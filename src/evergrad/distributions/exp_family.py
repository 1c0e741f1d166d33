"""Distributions whose log-density is linear in functions of the value."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import Any

import evergrad
from evergrad.core.state import using
from evergrad.core.tensor import Tensor
from evergrad.distributions.distribution import Distribution

__all__ = ["ExponentialFamily"]


class ExponentialFamily(Distribution):
    """A density ``exp(<t(x), theta> - F(theta) + k(x))`` with natural parameters theta.

    A subclass gives ``_natural_params``, the ``_log_normalizer`` F and the
    ``_mean_carrier_measure``, the expected value of k. The slope of F is the mean of t, from which
    entropies and divergences follow.

    >>> d = eg.distributions.Normal(eg.tensor(0.0), eg.tensor(1.0))
    >>> isinstance(d, eg.distributions.ExponentialFamily)
    True
    """

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise NotImplementedError

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        raise NotImplementedError

    @property
    def _mean_carrier_measure(self) -> Any:
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """Of the Bregman divergence of the log normalizer."""
        carrier = self._mean_carrier_measure
        params, normalizer, slopes = normalizer_slopes(self)
        result = normalizer - carrier
        for param, slope in zip(params, slopes, strict=True):
            result = result - (param * slope).reshape((*self.batch_shape, -1)).sum(-1)
        return result


def normalizer_slopes(
    family: ExponentialFamily,
) -> tuple[list[Tensor], Tensor, tuple[Tensor, ...]]:
    """Natural parameters as leaves, the log normalizer there, and its slope by each of them."""
    with using(grad=True):
        params = [param.detach().requires_grad_() for param in family._natural_params]
        normalizer = family._log_normalizer(*params)
        slopes = evergrad.autograd.grad(normalizer.sum(), params, create_graph=True)
    return params, normalizer, slopes
