"""The base of all distributions: shapes, checks of parameters and values, and ``expand``."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import evergrad
from evergrad.core.shapes import Size
from evergrad.core.state import using
from evergrad.core.tensor import Tensor
from evergrad.distributions import constraints
from evergrad.distributions.constraints import Constraint
from evergrad.distributions.utils import lazy_property
from evergrad.ops.rows.check import require

__all__ = ["Distribution"]

Class = TypeVar("Class", bound=type)


def require_values(condition: Any, message: Callable[[], str]) -> None:
    """Raise ValueError unless a condition holds: a tensor, or what a user's constraint gives."""
    if isinstance(condition, Tensor):
        require(condition, ValueError, message)
    elif not condition.all():
        raise ValueError(message())


class Distribution:
    """A family of random events: ``batch_shape`` of them, each of ``event_shape``.

    A subclass names its parameters in ``arg_constraints`` and keeps them as attributes whose
    leading dimensions are the batch. With ``validate_args`` both the parameters and the values
    given to ``log_prob`` and its like are checked.

    >>> d = eg.distributions.Normal(eg.zeros(3), eg.ones(3))
    >>> isinstance(d, eg.distributions.Distribution), d.batch_shape, d.event_shape
    (True, evergrad.Size([3]), evergrad.Size([]))
    """

    has_rsample: Any = False
    has_enumerate_support: Any = False
    _validate_args = __debug__
    _not_expanded: tuple[str, ...] = ()

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether distributions made from now on check what they are given."""
        if value not in (True, False):
            raise ValueError
        Distribution._validate_args = value

    def __init__(
        self,
        batch_shape: Iterable[int] = (),
        event_shape: Iterable[int] = (),
        validate_args: bool | None = None,
    ) -> None:
        self._batch_shape = Size(batch_shape)
        self._event_shape = Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_parameters()
        super().__init__()

    def _check_parameters(self) -> None:
        try:
            wanted = self.arg_constraints
        except NotImplementedError:
            wanted = {}
            warnings.warn(
                f"{self.__class__} does not define `arg_constraints`. Please set "
                "`arg_constraints = {}` or initialize the distribution with "
                "`validate_args=False` to turn off validation.",
                stacklevel=4,
            )
        for name, constraint in wanted.items():
            derived = isinstance(getattr(type(self), name, None), lazy_property)
            if constraints.is_dependent(constraint) or (derived and name not in vars(self)):
                continue
            value = getattr(self, name)
            require_values(
                constraint.check(value),
                lambda name=name, constraint=constraint, value=value: (  # type: ignore[misc]
                    f"Expected parameter {name} ({type(value).__name__} of shape "
                    f"{tuple(value.shape)}) of distribution {self!r} to satisfy the constraint "
                    f"{constraint!r}, but found invalid values:\n{value}"
                ),
            )

    # -- what it is -------------------------------------------------------------------------

    @property
    def batch_shape(self) -> Size:
        """The shape over which parameters differ."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of a single draw."""
        return self._event_shape

    @property
    def arg_constraints(self) -> dict[str, Constraint]:
        """The constraint each parameter satisfies."""
        raise NotImplementedError

    @property
    def support(self) -> Any:
        """The constraint that draws satisfy."""
        raise NotImplementedError

    def __repr__(self) -> str:
        held = {name: vars(self)[name] for name in self.arg_constraints if name in vars(self)}
        words = [f"{k}: {v if v.numel() == 1 else v.size()}" for k, v in held.items()]
        return f"{self.__class__.__name__}({', '.join(words)})"

    # -- moments ----------------------------------------------------------------------------

    @property
    def mean(self) -> Tensor:
        """The expected value."""
        raise NotImplementedError

    @property
    def mode(self) -> Tensor:
        """The most likely value."""
        raise NotImplementedError(f"{self.__class__} does not implement mode")

    @property
    def variance(self) -> Tensor:
        """The expected squared distance from the mean."""
        raise NotImplementedError

    @property
    def stddev(self) -> Tensor:
        """The square root of the variance."""
        return self.variance.sqrt()

    # -- drawing ----------------------------------------------------------------------------

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        """Draw ``sample_shape`` batches, without a history."""
        with using(grad=False):
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        """Draw ``sample_shape`` batches that can be differentiated by the parameters."""
        raise NotImplementedError

    def sample_n(self, n: int) -> Tensor:
        """Draw ``n`` batches; the former form of ``sample((n,))``."""
        warnings.warn(
            "`sample_n(n)` will be deprecated. Use `sample((n,))` instead.",
            FutureWarning,
            stacklevel=2,
        )
        return self.sample((n,))

    # -- what values mean -------------------------------------------------------------------

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density or probability of a value."""
        raise NotImplementedError

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of drawing at most ``value``."""
        raise NotImplementedError

    def icdf(self, value: Tensor) -> Tensor:
        """The number that draws stay below with probability ``value``."""
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values there are, in a new first dimension; ``expand`` repeats them for the batch."""
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """The expected value of ``-log_prob``, for each batch."""
        raise NotImplementedError

    def perplexity(self) -> Tensor:
        """The exponential of the entropy."""
        return self.entropy().exp()

    # -- for subclasses ---------------------------------------------------------------------

    def expand(self, batch_shape: Iterable[int], _instance: object = None) -> Any:
        """The same distribution for a larger batch; parameters are expanded, not copied."""
        raise NotImplementedError

    def _extended_shape(self, sample_shape: Iterable[int] = ()) -> Size:
        """The shape of ``sample_shape`` draws."""
        return Size(sample_shape) + self._batch_shape + self._event_shape

    def _validate_sample(self, value: Tensor) -> None:
        """Refuse a value whose shape or elements cannot have been drawn."""
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        self._check_value_shape(value.shape)
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(
                f"{self.__class__} does not define `support` to enable sample validation. Please "
                "initialize the distribution with `validate_args=False` to turn off validation.",
                stacklevel=3,
            )
            return
        require_values(
            support.check(value),
            lambda: (
                f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) "
                f"to be within the support ({support!r}) of the distribution {self!r}, but found "
                f"invalid values:\n{value}"
            ),
        )

    def _check_value_shape(self, shape: Size) -> None:
        if shape[len(shape) - len(self._event_shape) :] != self._event_shape:
            raise ValueError(
                f"The right-most size of value must match event_shape: {shape} vs "
                f"{self._event_shape}."
            )
        own = self._batch_shape + self._event_shape
        for extent, wanted in zip(reversed(shape), reversed(own), strict=False):
            if extent != 1 and wanted != 1 and extent != wanted:
                raise ValueError(
                    f"Value is not broadcastable with batch_shape+event_shape: {shape} vs {own}."
                )

    def _get_checked_instance(self, cls: type, _instance: object = None) -> Any:
        """An empty instance for ``expand``, which cannot know what a subclass sets up."""
        if _instance is None and type(self).__init__ is not cls.__init__:  # type: ignore[misc]
            raise NotImplementedError(
                f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ "
                "method must also define a custom .expand() method."
            )
        return self.__new__(type(self)) if _instance is None else _instance


def expandable(cls: Class) -> Class:
    """Give a class its ``expand``.

    Every tensor and every distribution an instance holds has the batch shape in front, so that
    what follows it says how to expand them; everything else, and what the class names in
    ``_not_expanded``, is handed on as it is.
    """

    def expand(self: Distribution, batch_shape: Iterable[int], _instance: object = None) -> Any:
        new = self._get_checked_instance(cls, _instance)
        shape, rank = Size(batch_shape), len(self.batch_shape)
        for name, value in vars(self).items():
            kept = name in self._not_expanded
            vars(new)[name] = value if kept else _expanded(value, shape, rank)
        new._batch_shape = shape
        return new

    expand.__doc__ = Distribution.expand.__doc__
    cls.expand = expand  # type: ignore[attr-defined]
    return cls


def _expanded(value: object, shape: Size, rank: int) -> Any:
    if isinstance(value, Distribution):
        return value.expand(shape + value.batch_shape[rank:])
    if isinstance(value, Tensor):
        return value.expand(shape + value.shape[rank:])
    return value


def full_nan(like: Tensor) -> Tensor:
    """The value of a moment that does not exist."""
    return evergrad.full_like(like, evergrad.nan)
