"""The logistic-normal distribution."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import ClassVar

from evergrad.core.tensor import Tensor
from evergrad.distributions import constraints
from evergrad.distributions.basic_constraints import Constraint
from evergrad.distributions.distribution import expandable
from evergrad.distributions.normal import Normal
from evergrad.distributions.transformed_distribution import TransformedDistribution
from evergrad.distributions.transforms import StickBreakingTransform

__all__ = ["LogisticNormal"]


@expandable
class LogisticNormal(TransformedDistribution):
    """Shares of 1 that stick breaking makes of normal numbers, one more than there are numbers.

    Args:
        loc: the means of the normal numbers.
        scale: their standard deviations.

    >>> d = eg.distributions.LogisticNormal(eg.zeros(2), eg.ones(2))
    >>> d.event_shape
    evergrad.Size([3])
    >>> eg.allclose(d.sample().sum(), eg.tensor(1.0))
    True
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support: Constraint = constraints.simplex
    has_rsample = True

    def __init__(self, loc: object, scale: object, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        if not base.batch_shape:
            base = base.expand([1])
        super().__init__(base, StickBreakingTransform(), validate_args=validate_args)

    @property
    def loc(self) -> Tensor:
        """The means of the normal numbers."""
        return self._normal.loc

    @property
    def scale(self) -> Tensor:
        """The standard deviations of the normal numbers."""
        return self._normal.scale

    @property
    def _normal(self) -> Normal:
        return self.base_dist.base_dist  # type: ignore[attr-defined]
