"""The chi-square distribution."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import ClassVar

from evergrad.core.tensor import Tensor
from evergrad.distributions import constraints
from evergrad.distributions.basic_constraints import Constraint
from evergrad.distributions.distribution import expandable
from evergrad.distributions.gamma import Gamma

__all__ = ["Chi2"]


@expandable
class Chi2(Gamma):
    """The sum of squares of standard normal numbers.

    Args:
        df: how many there are, the degrees of freedom.

    >>> d = eg.distributions.Chi2(eg.tensor(4.0))
    >>> d.mean, d.variance
    (tensor(4.), tensor(8.))
    >>> d.log_prob(eg.tensor(2.0))
    tensor(-1.6931)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"df": constraints.positive}

    def __init__(self, df: Tensor | float, validate_args: bool | None = None) -> None:
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    @property
    def df(self) -> Tensor:
        """The degrees of freedom."""
        return self.concentration * 2
