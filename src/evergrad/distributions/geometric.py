"""The geometric distribution."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import evergrad
from evergrad.core.state import using
from evergrad.core.tensor import Tensor
from evergrad.core.value_message import shown_where
from evergrad.distributions import constraints
from evergrad.distributions.basic_constraints import Constraint
from evergrad.distributions.coins import CoinDistribution
from evergrad.distributions.distribution import expandable, require_values
from evergrad.nn.functional import binary_cross_entropy_with_logits

__all__ = ["Geometric"]


@expandable
class Geometric(CoinDistribution):
    """How often a coin fails before it first succeeds.

    Args:
        probs: the probability of success.
        logits: its log-odds, given instead.

    >>> d = eg.distributions.Geometric(eg.tensor(0.25))
    >>> d.mean, d.variance
    (tensor(3.), tensor(12.))
    >>> d.log_prob(eg.tensor(2.0))
    tensor(-1.9617)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    support: Constraint = constraints.nonnegative_integer

    def __init__(
        self, probs: object = None, logits: object = None, validate_args: bool | None = None
    ) -> None:
        self._set_parameter(probs, logits)
        super().__init__(self._param.shape, validate_args=validate_args)
        if self._validate_args and probs is not None:
            self._check_positive()

    def _check_positive(self) -> None:
        """Without any chance of success there is no first one."""
        value = self.probs
        require_values(
            value > 0,
            lambda: (
                f"Expected parameter probs ({type(value).__name__} of shape {tuple(value.shape)}) "
                f"of distribution {self!r} to be positive but found invalid values:\n"
                f"{shown_where(value <= 0, value)}"
            ),
        )

    @property
    def mean(self) -> Tensor:
        return 1.0 / self.probs - 1.0

    @property
    def mode(self) -> Tensor:
        return evergrad.zeros_like(self.probs)

    @property
    def variance(self) -> Tensor:
        return (1.0 / self.probs - 1.0) / self.probs

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with using(grad=False):
            tiny = evergrad.finfo(self.probs.dtype).tiny
            unit = self.probs.new_empty(shape).uniform_(tiny, 1)
            return (unit.log() / (-self.probs).log1p()).floor()

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        value, probs = evergrad.broadcast_tensors(value, self.probs)
        # No failure costs nothing, also where failures are impossible.
        failing = evergrad.where((probs == 1) & (value == 0), 0, probs)
        return value * (-failing).log1p() + self.probs.log()

    def entropy(self) -> Tensor:
        once = binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")
        return once / self.probs
