"""Mixtures of distributions of one family."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import evergrad
from evergrad.core.shapes import Size
from evergrad.core.state import using
from evergrad.core.tensor import Tensor
from evergrad.distributions import constraints
from evergrad.distributions.categorical import Categorical
from evergrad.distributions.constraints import Constraint, MixtureSameFamilyConstraint
from evergrad.distributions.distribution import Distribution, expandable

__all__ = ["MixtureSameFamily"]


@expandable
class MixtureSameFamily(Distribution):
    """A draw of one of several components, which stand in the last batch dimension.

    Args:
        mixture_distribution: a :class:`Categorical` that chooses the component.
        component_distribution: the components.
    """

    arg_constraints: ClassVar = {}
    has_rsample = False

    def __init__(
        self,
        mixture_distribution: Categorical,
        component_distribution: Distribution,
        validate_args: bool | None = None,
    ) -> None:
        _check_parts(mixture_distribution, component_distribution)
        self._mixture_distribution = mixture_distribution
        self._component_distribution = component_distribution
        self._event_ndims = len(component_distribution.event_shape)
        super().__init__(
            component_distribution.batch_shape[:-1],
            component_distribution.event_shape,
            validate_args=validate_args,
        )

    @property
    def mixture_distribution(self) -> Categorical:
        """What chooses the component."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Distribution:
        """The components."""
        return self._component_distribution

    @constraints.dependent_property
    def support(self) -> Constraint:
        return MixtureSameFamilyConstraint(self._component_distribution.support)

    def _mixed(self, each: Tensor) -> Tensor:
        """The mean over components of what each of them gives."""
        probs = self.mixture_distribution.probs
        probs = probs.reshape(probs.shape + Size((1,) * self._event_ndims))
        return (probs * each).sum(-1 - self._event_ndims)

    @property
    def mean(self) -> Tensor:
        return self._mixed(self.component_distribution.mean)

    @property
    def variance(self) -> Tensor:
        means = self.component_distribution.mean
        between = (means - self._for_components(self.mean)).pow(2)
        return self._mixed(self.component_distribution.variance) + self._mixed(between)

    def _for_components(self, value: Tensor) -> Tensor:
        return value.unsqueeze(-1 - self._event_ndims)

    def cdf(self, x: Tensor) -> Tensor:
        each = self.component_distribution.cdf(self._for_components(x))
        return (each * self.mixture_distribution.probs).sum(-1)

    def log_prob(self, x: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(x)
        each = self.component_distribution.log_prob(self._for_components(x))
        weights = evergrad.log_softmax(self.mixture_distribution.logits, -1)
        return (each + weights).logsumexp(-1)

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        sample_shape = Size(sample_shape)
        dim = len(sample_shape) + len(self.batch_shape)
        with using(grad=False):
            chosen = self.mixture_distribution.sample(sample_shape)
            drawn = self.component_distribution.sample(sample_shape)
            places = chosen.reshape(chosen.shape + Size((1,) * (1 + self._event_ndims)))
            places = places.expand(chosen.shape + Size((1,)) + self.event_shape)
            return drawn.gather(dim, places).squeeze(dim)

    def __repr__(self) -> str:
        parts = f"{self.mixture_distribution},\n  {self.component_distribution}"
        return f"MixtureSameFamily(\n  {parts})"


def _check_parts(mixture: Any, components: Any) -> None:
    if not isinstance(mixture, Categorical):
        raise ValueError(
            " The Mixture distribution needs to be an  instance of "
            "evergrad.distributions.Categorical"
        )
    if not isinstance(components, Distribution):
        raise ValueError(
            "The Component distribution needs to be an instance of "
            "evergrad.distributions.Distribution"
        )
    own, other = mixture.batch_shape, components.batch_shape[:-1]
    for extent, wanted in zip(reversed(own), reversed(other), strict=False):
        if extent != 1 and wanted != 1 and extent != wanted:
            raise ValueError(
                f"`mixture_distribution.batch_shape` ({own}) is not compatible with "
                f"`component_distribution.batch_shape`({other})"
            )
    count, wanted = mixture.logits.shape[-1], components.batch_shape[-1]
    if count != wanted:
        raise ValueError(
            f"`mixture_distribution component` ({count}) does not equal "
            f"`component_distribution.batch_shape[-1]` ({wanted})"
        )
