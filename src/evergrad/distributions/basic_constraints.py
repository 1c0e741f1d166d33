"""Constraints of single numbers, and those that depend on other parameters."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evergrad.core.tensor import Tensor
from evergrad.distributions.utils import sum_rightmost


class Constraint:
    """A region of valid values. Draws of ``event_dim`` dimensions are checked as one."""

    is_discrete: Any = False
    event_dim: Any = 0

    def check(self, value: Tensor) -> Tensor:
        """Where a value satisfies the constraint, for each event."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{self.__class__.__name__.removeprefix('_')}()"


def is_dependent(constraint: object) -> bool:
    """Whether a constraint depends on other parameters, so that it cannot be checked alone."""
    return isinstance(constraint, _Dependent)


class _Dependent(Constraint):
    """A constraint that other parameters decide."""

    def __init__(
        self, *, is_discrete: object = NotImplemented, event_dim: object = NotImplemented
    ) -> None:
        self._is_discrete = is_discrete
        self._event_dim = event_dim
        super().__init__()

    @property
    def is_discrete(self) -> bool:
        return self._known("is_discrete")

    @property
    def event_dim(self) -> int:
        return self._known("event_dim")

    def _known(self, name: str) -> Any:
        value = getattr(self, f"_{name}")
        if value is NotImplemented:
            raise NotImplementedError(f".{name} cannot be determined statically")
        return value

    def __call__(
        self, *, is_discrete: object = NotImplemented, event_dim: object = NotImplemented
    ) -> _Dependent:
        """The same with more known about it."""
        if is_discrete is NotImplemented:
            is_discrete = self._is_discrete
        if event_dim is NotImplemented:
            event_dim = self._event_dim
        return _Dependent(is_discrete=is_discrete, event_dim=event_dim)

    def check(self, value: Tensor) -> Tensor:
        raise ValueError("Cannot determine validity of dependent constraint")


class _DependentProperty(property, _Dependent):
    """A property that gives a constraint; on the class it is a dependent one.

    Used as a decorator, plain or with what is known: ``@dependent_property(event_dim=1)``.
    """

    def __init__(
        self,
        fn: Callable[..., object] | None = None,
        *,
        is_discrete: Any = NotImplemented,
        event_dim: object = NotImplemented,
    ) -> None:
        super().__init__(fn)
        self._is_discrete = is_discrete
        self._event_dim = event_dim

    def __call__(self, fn: Callable[..., object]) -> _DependentProperty:  # type: ignore[override]
        return _DependentProperty(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


class _IndependentConstraint(Constraint):
    """A constraint that counts further dimensions as part of the event."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        if not isinstance(base_constraint, Constraint):
            raise AssertionError(
                f"base_constraint must be a Constraint, got {type(base_constraint).__name__}"
            )
        if not isinstance(reinterpreted_batch_ndims, int):
            raise AssertionError(
                "reinterpreted_batch_ndims must be an int, got "
                f"{type(reinterpreted_batch_ndims).__name__}"
            )
        if reinterpreted_batch_ndims < 0:
            raise AssertionError(
                f"reinterpreted_batch_ndims must be >= 0, got {reinterpreted_batch_ndims}"
            )
        self.base_constraint = base_constraint
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        super().__init__()

    @property
    def is_discrete(self) -> bool:
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> int:
        return self.base_constraint.event_dim + self.reinterpreted_batch_ndims

    def check(self, value: Tensor) -> Tensor:
        each = self.base_constraint.check(value)
        if each.ndim < self.reinterpreted_batch_ndims:
            wanted = self.base_constraint.event_dim + self.reinterpreted_batch_ndims
            raise ValueError(f"Expected value.dim() >= {wanted} but got {value.ndim}")
        return sum_rightmost(~each, self.reinterpreted_batch_ndims) == 0

    def __repr__(self) -> str:
        return (
            f"{self.__class__.__name__[1:]}({self.base_constraint!r}, "
            f"{self.reinterpreted_batch_ndims})"
        )


class _Real(Constraint):
    """Any number but nan."""

    def check(self, value: Tensor) -> Tensor:
        return value == value


class _Boolean(Constraint):
    """0 or 1."""

    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        return (value == 0) | (value == 1)


# -- bounds -------------------------------------------------------------------------------------


class _Bounded(Constraint):
    """A constraint that names its bounds when it is printed."""

    def __repr__(self) -> str:
        bounds = ", ".join(f"{name}={bound}" for name, bound in vars(self).items())
        return f"{self.__class__.__name__[1:]}({bounds})"


class _AboveBound(_Bounded):
    def __init__(self, lower_bound: Tensor | float) -> None:
        self.lower_bound = lower_bound
        super().__init__()


class _BelowBound(_Bounded):
    def __init__(self, upper_bound: Tensor | float) -> None:
        self.upper_bound = upper_bound
        super().__init__()


class _BetweenBounds(_Bounded):
    def __init__(self, lower_bound: Tensor | float, upper_bound: Tensor | float) -> None:
        self.lower_bound = lower_bound
        self.upper_bound = upper_bound
        super().__init__()


def _is_whole(value: Tensor) -> Tensor:
    return value - value.floor() == 0 if value.is_floating_point() else value == value


class _GreaterThan(_AboveBound):
    """Above a bound."""

    def check(self, value: Tensor) -> Tensor:
        return value > self.lower_bound


class _GreaterThanEq(_AboveBound):
    """At a bound or above."""

    def check(self, value: Tensor) -> Tensor:
        return value >= self.lower_bound


class _LessThan(_BelowBound):
    """Below a bound."""

    def check(self, value: Tensor) -> Tensor:
        return value < self.upper_bound


class _Interval(_BetweenBounds):
    """Between two bounds, both included."""

    def check(self, value: Tensor) -> Tensor:
        return (value >= self.lower_bound) & (value <= self.upper_bound)


class _HalfOpenInterval(_BetweenBounds):
    """From a bound up to, not including, another."""

    def check(self, value: Tensor) -> Tensor:
        return (value >= self.lower_bound) & (value < self.upper_bound)


class _IntegerInterval(_BetweenBounds):
    """Whole numbers between two bounds, both included."""

    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        return _is_whole(value) & (value >= self.lower_bound) & (value <= self.upper_bound)


class _IntegerGreaterThan(_AboveBound):
    """Whole numbers from a bound on."""

    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        return _is_whole(value) & (value >= self.lower_bound)
