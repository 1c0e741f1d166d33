"""The von Mises distribution."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import ClassVar

import evergrad
from evergrad.core.shapes import Size
from evergrad.core.state import using
from evergrad.core.tensor import Tensor
from evergrad.distributions import constraints
from evergrad.distributions.basic_constraints import Constraint
from evergrad.distributions.distribution import Distribution, expandable
from evergrad.distributions.utils import LOG_2PI, broadcast_all, lazy_property

__all__ = ["VonMises"]


@expandable
class VonMises(Distribution):
    """Angles between -pi and pi around a mean angle.

    Args:
        loc: the mean angle.
        concentration: how close angles are to it.

    >>> d = eg.distributions.VonMises(eg.tensor(0.0), eg.tensor(2.0))
    >>> d.mean, d.variance
    (tensor(0.), tensor(0.3022))
    >>> d.log_prob(eg.tensor(0.5))
    tensor(-0.9067)
    """

    concentration: Tensor
    loc: Tensor

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "loc": constraints.real,
        "concentration": constraints.positive,
    }
    support: Constraint = constraints.real
    has_rsample = False

    def __init__(
        self, loc: Tensor | float, concentration: Tensor | float, validate_args: bool | None = None
    ) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        """The mean angle."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @lazy_property
    def variance(self) -> Tensor:
        """The circular variance, between 0 and 1."""
        special = evergrad.special
        return 1 - special.i1e(self.concentration) / special.i0e(self.concentration)

    @lazy_property
    def _proposal_r(self) -> Tensor:
        """The parameter of the wrapped Cauchy distribution that angles are proposed from."""
        k = self.concentration.double()
        tau = 1 + (1 + 4 * k**2).sqrt()
        rho = (tau - (2 * tau).sqrt()) / (2 * k)
        return evergrad.where(k < 1e-5, 1 / k + k, (1 + rho**2) / (2 * rho))

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        """Draw by the rejection method of Best and Fisher, in float64."""
        with using(grad=False):
            angles = self._draw_around_zero(self._extended_shape(sample_shape))
            turned = (angles + math.pi + self.loc.double()) % (2 * math.pi) - math.pi
            return turned.to(self.loc.dtype)

    def _draw_around_zero(self, shape: Size) -> Tensor:
        k, r = self.concentration.double(), self._proposal_r
        angles: Tensor = evergrad.empty(shape, dtype=evergrad.float64)
        done = evergrad.zeros(shape, dtype=evergrad.bool)
        while not done.all():
            u1, u2, u3 = evergrad.rand((3, *shape), dtype=evergrad.float64).unbind()
            z = (math.pi * u1).cos()
            f = (1 + r * z) / (r + z)
            c = k * (r - f)
            accepted = ((c * (2 - c) - u2) > 0) | ((c / u2).log() + 1 - c >= 0)
            angles = evergrad.where(accepted, (u3 - 0.5).sign() * f.acos(), angles)
            done = done | accepted
        return angles

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        k = self.concentration
        log_bessel = evergrad.special.i0e(k).log() + k
        return k * evergrad.cos(value - self.loc) - LOG_2PI - log_bessel
