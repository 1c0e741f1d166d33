"""Draws of one distribution, changed by transforms."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from evergrad.core.state import using
from evergrad.core.tensor import Tensor
from evergrad.distributions import constraints
from evergrad.distributions.constraints import Constraint
from evergrad.distributions.distribution import Distribution, expandable
from evergrad.distributions.independent import Independent
from evergrad.distributions.transforms import ComposeTransform, Transform
from evergrad.distributions.utils import sum_rightmost

if TYPE_CHECKING:
    pass

__all__ = ["TransformedDistribution"]


@expandable
class TransformedDistribution(Distribution):
    """What transforms make of the draws of a distribution.

    Args:
        base_distribution: what is drawn.
        transforms: one transform, or a list of them in the order in which they are applied.

    >>> base = eg.distributions.Normal(eg.tensor(0.0), eg.tensor(1.0))
    >>> d = eg.distributions.TransformedDistribution(base, eg.distributions.ExpTransform())
    >>> d.log_prob(eg.tensor(1.0))
    tensor(-0.9189)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {}

    def __init__(
        self,
        base_distribution: Distribution,
        transforms: Transform | list[Transform],
        validate_args: bool | None = None,
    ) -> None:
        self.transforms: list[Transform] = _as_list(transforms)
        transform = ComposeTransform(self.transforms)
        base_shape = base_distribution.batch_shape + base_distribution.event_shape
        if len(base_shape) < transform.domain.event_dim:
            raise ValueError(
                "base_distribution needs to have shape with size at least "
                f"{transform.domain.event_dim}, but got {base_shape}."
            )
        forward_shape = transform.forward_shape(base_shape)
        self.base_dist: Distribution = _fitted(base_distribution, transform, forward_shape)
        # The transforms may have made events deeper, or the base have deeper ones already.
        change = transform.codomain.event_dim - transform.domain.event_dim
        depth = max(transform.codomain.event_dim, len(self.base_dist.event_shape) + change)
        cut = len(forward_shape) - depth
        super().__init__(forward_shape[:cut], forward_shape[cut:], validate_args=validate_args)

    @property
    def has_rsample(self) -> bool:
        return self.base_dist.has_rsample

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Constraint:
        if not self.transforms:
            return self.base_dist.support
        support = self.transforms[-1].codomain
        missing = len(self.event_shape) - support.event_dim
        return constraints.independent(support, missing) if missing > 0 else support

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        with using(grad=False):
            return self._forward(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        return self._forward(self.base_dist.rsample(sample_shape))

    def _forward(self, x: Tensor) -> Tensor:
        for transform in self.transforms:
            x = transform(x)
        return x

    def _inverse(self, y: Tensor) -> Tensor:
        for transform in reversed(self.transforms):
            y = transform.inv(y)
        return y

    def log_prob(self, value: Tensor) -> Tensor:
        """That of the value before the transforms, less the logarithm of their volume change."""
        if self._validate_args:
            self._validate_sample(value)
        depth = len(self.event_shape)
        change: Tensor | float = 0.0
        y = value
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            depth += transform.domain.event_dim - transform.codomain.event_dim
            step = transform.log_abs_det_jacobian(x, y)
            change = change - sum_rightmost(step, depth - transform.domain.event_dim)
            y = x
        base = self.base_dist.log_prob(y)
        return change + sum_rightmost(base, depth - len(self.base_dist.event_shape))

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return self._mirrored(self.base_dist.cdf(self._inverse(value)))

    def icdf(self, value: Tensor) -> Tensor:
        return self._forward(self.base_dist.icdf(self._mirrored(value)))

    def _mirrored(self, probability: Tensor) -> Tensor:
        """Seen from the other end if the transforms turn the order of numbers around."""
        sign: Tensor | int = 1
        for transform in self.transforms:
            sign = sign * transform.sign
        if isinstance(sign, int) and sign == 1:
            return probability
        return sign * (probability - 0.5) + 0.5


def _as_list(transforms: object) -> list[Transform]:
    if isinstance(transforms, Transform):
        return [transforms]
    if not isinstance(transforms, list):
        raise ValueError(f"transforms must be a Transform or list, but was {transforms}")
    if not all(isinstance(transform, Transform) for transform in transforms):
        raise ValueError("transforms must be a Transform or a list of Transforms")
    return transforms


def _fitted(base: Distribution, transform: Transform, forward_shape: Sequence[int]) -> Distribution:
    """The base for as large a batch, and as deep events, as the transforms ask for."""
    shape = transform.inverse_shape(forward_shape)
    if base.batch_shape + base.event_shape != shape:
        base = base.expand(shape[: len(shape) - len(base.event_shape)])
    missing = transform.domain.event_dim - len(base.event_shape)
    return Independent(base, missing) if missing > 0 else base
