"""The distribution of correlation matrices of Lewandowski, Kurowicka and Joe."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import ClassVar

import evergrad
from evergrad.core.state import using
from evergrad.core.tensor import Tensor
from evergrad.distributions import constraints
from evergrad.distributions.basic_constraints import Constraint
from evergrad.distributions.beta import Beta
from evergrad.distributions.distribution import Distribution, expandable
from evergrad.distributions.utils import broadcast_all

__all__ = ["LKJCholesky"]


@expandable
class LKJCholesky(Distribution):
    """Cholesky factors of correlation matrices.

    Args:
        dim: how many rows the matrices have.
        concentration: 1 for a uniform density of correlation matrices; larger ones prefer weak
            correlations.

    >>> d = eg.distributions.LKJCholesky(3)
    >>> L = d.sample()
    >>> eg.allclose((L @ L.T).diagonal(), eg.ones(3))
    True
    """

    concentration: Tensor

    arg_constraints: ClassVar[dict[str, Constraint]] = {"concentration": constraints.positive}
    support: Constraint = constraints.corr_cholesky

    def __init__(
        self, dim: int, concentration: object = 1.0, validate_args: bool | None = None
    ) -> None:
        if dim < 2:
            raise ValueError(
                f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}."
            )
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        # Row k is a direction of k dimensions, with a length whose square is beta distributed.
        rows = evergrad.arange(-1, dim - 1, dtype=self.concentration.dtype).clamp(min=0)
        spread = self.concentration.unsqueeze(-1) + 0.5 * (dim - 2) - 0.5 * rows
        self._beta = Beta(rows + 0.5, spread)
        super().__init__(self.concentration.shape, (dim, dim), validate_args)

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        with using(grad=False):
            squares = self._beta.sample(sample_shape).unsqueeze(-1)
            noise = evergrad.randn(self._extended_shape(sample_shape), dtype=squares.dtype)
            noise = noise.tril(-1)
            directions = noise / noise.norm(dim=-1, keepdim=True)
            directions[..., 0, :] = 0.0  # the first row has none
            below = squares.sqrt() * directions
            left = 1 - below.square().sum(-1)
            return below + left.clamp(min=evergrad.finfo(below.dtype).tiny).sqrt().diag_embed()

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        diagonal = value.diagonal(dim1=-2, dim2=-1)[..., 1:]
        rows = evergrad.arange(2, self.dim + 1)
        order = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - rows
        return (order * diagonal.log()).sum(-1) - self._log_normalizer

    @property
    def _log_normalizer(self) -> Tensor:
        free = self.dim - 1
        alpha = self.concentration + 0.5 * free
        volume = 0.5 * free * math.log(math.pi) + evergrad.mvlgamma(alpha - 0.5, free)
        return volume - free * evergrad.lgamma(alpha)
