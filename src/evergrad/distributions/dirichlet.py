"""The Dirichlet distribution."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import evergrad
from evergrad.core.tensor import Tensor
from evergrad.distributions import constraints
from evergrad.distributions.basic_constraints import Constraint
from evergrad.distributions.distribution import expandable
from evergrad.distributions.exp_family import ExponentialFamily
from evergrad.nn.functional import one_hot
from evergrad.ops.rows.random.gamma import sample_dirichlet

__all__ = ["Dirichlet"]


@expandable
class Dirichlet(ExponentialFamily):
    """Shares of 1; draws can be differentiated by the concentration.

    Args:
        concentration: of each share, in the last dimension; often named alpha.

    >>> d = eg.distributions.Dirichlet(eg.tensor([1.0, 2.0]))
    >>> d.mean, d.sample().sum()
    (tensor([0.3333, 0.6667]), tensor(1.))
    >>> d.log_prob(eg.tensor([0.25, 0.75]))
    tensor(0.4055)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "concentration": constraints.independent(constraints.positive, 1)
    }
    support: Constraint = constraints.simplex
    has_rsample = True

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        if concentration.ndim < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        shape = concentration.shape
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, keepdim=True)

    @property
    def mode(self) -> Tensor:
        excess = (self.concentration - 1).clamp(min=0.0)
        mode = excess / excess.sum(-1, keepdim=True)
        # Where all concentrations are below 1 the density is highest in a corner.
        largest = one_hot(mode.argmax(-1), self.concentration.shape[-1]).to(mode.dtype)
        in_corner = (self.concentration < 1).all(-1, keepdim=True)
        return evergrad.where(in_corner, largest, mode)

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, keepdim=True)
        rest = total - self.concentration
        return self.concentration * rest / (total.pow(2) * (total + 1))

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        return sample_dirichlet(self.concentration.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return (
            evergrad.xlogy(self.concentration - 1.0, value).sum(-1)
            + evergrad.lgamma(self.concentration.sum(-1))
            - evergrad.lgamma(self.concentration).sum(-1)
        )

    def entropy(self) -> Tensor:
        count = self.concentration.shape[-1]
        total = self.concentration.sum(-1)
        spread = ((self.concentration - 1.0) * evergrad.digamma(self.concentration)).sum(-1)
        return (
            evergrad.lgamma(self.concentration).sum(-1)
            - evergrad.lgamma(total)
            - (count - total) * evergrad.digamma(total)
            - spread
        )

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.concentration,)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        (x,) = natural_params
        return x.lgamma().sum(-1) - evergrad.lgamma(x.sum(-1))
