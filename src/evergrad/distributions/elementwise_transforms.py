"""Transforms of single numbers."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import evergrad
from evergrad.core.tensor import Tensor
from evergrad.distributions import constraints
from evergrad.distributions.constraints import Constraint
from evergrad.distributions.distribution import Distribution
from evergrad.distributions.transform_base import Transform
from evergrad.distributions.utils import LOG_2, broadcast_all, sum_rightmost
from evergrad.nn.functional import softplus

if TYPE_CHECKING:
    pass


class PlainTransform(Transform):
    """A transform without parameters: all of a class are equal."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self))


class ExpTransform(PlainTransform):
    """``y = exp(x)``

    Args:
        cache_size: 1 keeps the last pair of input and result, for exact inverses; default 0

    >>> t = eg.distributions.ExpTransform()
    >>> x = eg.tensor([0.0, 1.0])
    >>> t(x), eg.allclose(t.inv(t(x)), x)
    (tensor([1.0000, 2.7183]), True)
    >>> t.log_abs_det_jacobian(x, t(x))
    tensor([0., 1.])
    """

    domain = constraints.real
    codomain = constraints.positive
    bijective = True
    sign = +1

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


class PowerTransform(Transform):
    """``y = x ** exponent``

    Args:
        exponent: a number or a tensor.
        cache_size: how many pairs are kept.

    >>> t = eg.distributions.PowerTransform(eg.tensor(2.0))
    >>> x = eg.tensor([1.0, 3.0])
    >>> t(x), t.inv(t(x))
    (tensor([1., 9.]), tensor([1., 3.]))
    >>> t.log_abs_det_jacobian(x, t(x))
    tensor([0.6931, 1.7918])
    """

    exponent: Tensor

    domain = constraints.positive
    codomain = constraints.positive
    bijective = True

    def __init__(self, exponent: Tensor | float, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        (self.exponent,) = broadcast_all(exponent)

    @property
    def sign(self) -> Tensor:
        return self.exponent.sign()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PowerTransform) and _is_same(self.exponent, other.exponent)

    def _call(self, x: Tensor) -> Tensor:
        return x.pow(self.exponent)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape: Sequence[int]) -> Sequence[int]:
        return evergrad.broadcast_shapes(shape, self.exponent.shape)

    inverse_shape = forward_shape


def _is_same(one: Tensor | float, other: Tensor | float) -> bool:
    """Whether two parameters, numbers or tensors, are equal throughout."""
    same = one == other
    return bool(same.all()) if isinstance(same, Tensor) else bool(same)


class AffineTransform(Transform):
    """``y = loc + scale * x``

    Args:
        loc: what is added, a number or a tensor.
        scale: what is multiplied with.
        event_dim: how many dimensions belong together.
        cache_size: how many pairs are kept.

    >>> t = eg.distributions.AffineTransform(1.0, 2.0)
    >>> x = eg.tensor([0.0, 3.0])
    >>> t(x), t.inv(t(x))
    (tensor([1., 7.]), tensor([0., 3.]))
    >>> t.log_abs_det_jacobian(x, t(x))
    tensor([0.6931, 0.6931])
    """

    bijective = True

    def __init__(
        self, loc: Tensor | float, scale: Tensor | float, event_dim: int = 0, cache_size: int = 0
    ) -> None:
        super().__init__(cache_size=cache_size)
        self.loc = loc
        self.scale = scale
        self._event_dim = event_dim

    @property
    def event_dim(self) -> int:
        return self._event_dim

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Constraint:
        """The constraint that inputs satisfy."""
        return self._reals()

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Constraint:
        """The constraint that results satisfy."""
        return self._reals()

    def _reals(self) -> Constraint:
        if self.event_dim == 0:
            return constraints.real
        return constraints.independent(constraints.real, self.event_dim)

    @property
    def sign(self) -> Tensor | int:
        if isinstance(self.scale, Tensor):
            return self.scale.sign()
        return (self.scale > 0) - (self.scale < 0)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, AffineTransform)
            and _is_same(self.loc, other.loc)
            and _is_same(self.scale, other.scale)
        )

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if isinstance(self.scale, Tensor):
            change = self.scale.abs().log()
        else:
            change = evergrad.full_like(x, math.log(abs(self.scale)))
        events = x.shape[: x.ndim - self.event_dim]
        return sum_rightmost(change, self.event_dim).expand(events)

    def forward_shape(self, shape: Sequence[int]) -> Sequence[int]:
        parameters = (getattr(value, "shape", ()) for value in (self.loc, self.scale))
        return evergrad.broadcast_shapes(shape, *parameters)

    inverse_shape = forward_shape


class SigmoidTransform(PlainTransform):
    """``y = 1 / (1 + exp(-x))``, kept off 0 and 1.

    Args:
        cache_size: 1 keeps the last pair of input and result, for exact inverses; default 0

    >>> t = eg.distributions.SigmoidTransform()
    >>> x = eg.tensor([0.0, 1.0])
    >>> t(x), t.inv(t(x))
    (tensor([0.5000, 0.7311]), tensor([0.0000, 1.0000]))
    >>> t.log_abs_det_jacobian(x, t(x))
    tensor([-1.3863, -1.6265])
    """

    domain = constraints.real
    codomain = constraints.unit_interval
    bijective = True
    sign = +1

    def _call(self, x: Tensor) -> Tensor:
        return clipped_sigmoid(x)

    def _inverse(self, y: Tensor) -> Tensor:
        y = _off_the_ends(y)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -softplus(-x) - softplus(x)


def _off_the_ends(y: Tensor) -> Tensor:
    limits = evergrad.finfo(y.dtype)
    return y.clamp(limits.tiny, 1 - limits.eps)


def clipped_sigmoid(x: Tensor) -> Tensor:
    """The sigmoid, kept off 0 and 1 so that its inverse is finite."""
    return _off_the_ends(x.sigmoid())


class SoftplusTransform(PlainTransform):
    """``y = log(1 + exp(x))``

    Args:
        cache_size: 1 keeps the last pair of input and result, for exact inverses; default 0

    >>> t = eg.distributions.SoftplusTransform()
    >>> x = eg.tensor([0.0, 1.0])
    >>> t(x), t.inv(t(x))
    (tensor([0.6931, 1.3133]), tensor([0.0000, 1.0000]))
    >>> t.log_abs_det_jacobian(x, t(x))
    tensor([-0.6931, -0.3133])
    """

    domain = constraints.real
    codomain = constraints.positive
    bijective = True
    sign = +1

    def _call(self, x: Tensor) -> Tensor:
        return softplus(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return (-y).expm1().neg().log() + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -softplus(-x)


class TanhTransform(PlainTransform):
    """``y = tanh(x)``. Its inverse is inexact near -1 and 1; a cache helps.

    Args:
        cache_size: 1 keeps the last pair of input and result, for exact inverses; default 0

    >>> t = eg.distributions.TanhTransform()
    >>> x = eg.tensor([0.0, 1.0])
    >>> t(x), t.inv(t(x))
    (tensor([0.0000, 0.7616]), tensor([0., 1.]))
    >>> t.log_abs_det_jacobian(x, t(x))
    tensor([ 0.0000, -0.8676])
    """

    domain = constraints.real
    codomain: Any = constraints.interval(-1.0, 1.0)
    bijective = True
    sign = +1

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return 2.0 * (LOG_2 - x - softplus(-2.0 * x))


class AbsTransform(PlainTransform):
    """``y = |x|``, whose inverse takes the positive side.

    Args:
        cache_size: 1 keeps the last pair of input and result, for exact inverses; default 0

    >>> t = eg.distributions.AbsTransform()
    >>> x = eg.tensor([-1.0, 2.0])
    >>> t(x), t.inv(t(x))
    (tensor([1., 2.]), tensor([1., 2.]))
    """

    domain = constraints.real
    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y


class CumulativeDistributionTransform(Transform):
    """The cumulative distribution function of a distribution.

    Args:
        distribution: one that has ``cdf`` and ``icdf``.
        cache_size: how many pairs are kept.

    >>> normal = eg.distributions.Normal(eg.tensor(0.0), eg.tensor(1.0))
    >>> eg.distributions.CumulativeDistributionTransform(normal)(eg.tensor(0.0))
    tensor(0.5000)
    """

    bijective = True
    codomain = constraints.unit_interval
    sign = +1

    def __init__(self, distribution: Distribution, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.distribution = distribution

    @property
    def domain(self) -> Constraint:
        """The constraint that inputs satisfy."""
        return self.distribution.support

    def _call(self, x: Tensor) -> Tensor:
        return self.distribution.cdf(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self.distribution.log_prob(x)
