"""The Gumbel distribution."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from typing import ClassVar

import evergrad
from evergrad.core.tensor import Tensor
from evergrad.distributions import constraints
from evergrad.distributions.basic_constraints import Constraint
from evergrad.distributions.distribution import expandable
from evergrad.distributions.transformed_distribution import TransformedDistribution
from evergrad.distributions.transforms import AffineTransform, ExpTransform
from evergrad.distributions.uniform import Uniform
from evergrad.distributions.utils import EULER_CONSTANT, broadcast_all

__all__ = ["Gumbel"]


@expandable
class Gumbel(TransformedDistribution):
    """The largest of many numbers.

    Args:
        loc: the most likely number.
        scale: the width.

    >>> d = eg.distributions.Gumbel(eg.tensor(0.0), eg.tensor(1.0))
    >>> d.mean, d.variance
    (tensor(0.5772), tensor(1.6449))
    >>> d.log_prob(eg.tensor(0.0))
    tensor(-1.)
    """

    scale: Tensor
    loc: Tensor

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support: Constraint = constraints.real

    def __init__(self, loc: object, scale: object, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        limits = evergrad.finfo(self.loc.dtype)
        low = evergrad.full_like(self.loc, limits.tiny)
        high = evergrad.full_like(self.loc, 1 - limits.eps)
        transforms = [
            ExpTransform().inv,
            AffineTransform(loc=0, scale=-evergrad.ones_like(self.scale)),
            ExpTransform().inv,
            AffineTransform(loc=self.loc, scale=-self.scale),
        ]
        base = Uniform(low, high, validate_args=validate_args)
        super().__init__(base, transforms, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * EULER_CONSTANT

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def stddev(self) -> Tensor:
        return math.pi / math.sqrt(6) * self.scale

    @property
    def variance(self) -> Tensor:
        return self.stddev.pow(2)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        height = (self.loc - value) / self.scale
        return (height - height.exp()) - self.scale.log()

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + EULER_CONSTANT)
