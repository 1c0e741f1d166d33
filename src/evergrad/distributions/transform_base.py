"""Maps between constraints, their inverses and compositions."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import copy
import functools
import operator
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, Self

import evergrad
from evergrad.core.shapes import Size
from evergrad.core.tensor import Tensor
from evergrad.core.types import StateDict
from evergrad.distributions import constraints
from evergrad.distributions.constraints import Constraint
from evergrad.distributions.utils import lazy_property, sum_rightmost


class Transform:
    """A map from its ``domain`` to its ``codomain``, with the volume change it makes.

    Subclasses give ``_call``, and where they can ``_inverse`` and ``log_abs_det_jacobian``. With
    ``cache_size=1`` the last pair is kept, so that the inverse of a value just computed is exact
    and free.

    >>> t = eg.distributions.ExpTransform()
    >>> isinstance(t, eg.distributions.Transform), t.domain, t.codomain
    (True, Real(), GreaterThan(lower_bound=0.0))
    """

    domain: Any
    codomain: Any
    bijective: Any = False

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ValueError("cache_size must be 0 or 1")
        self._cache_size = cache_size
        self._inv: Any = None
        self._cached_x_y: tuple[Any, Any] = (None, None)
        super().__init__()

    def __getstate__(self) -> StateDict:
        return {**vars(self), "_inv": None}  # the reference is weak and cannot be copied

    @property
    def event_dim(self) -> int:
        """How many dimensions are transformed together, where domain and codomain agree."""
        if self.domain.event_dim == self.codomain.event_dim:
            return self.domain.event_dim
        raise ValueError("Please use either .domain.event_dim or .codomain.event_dim")

    @property
    def inv(self) -> Any:
        """The inverse map; its own inverse is this transform."""
        inverse = None if self._inv is None else self._inv()
        if inverse is None:
            inverse = _InverseTransform(self)
            self._inv = weakref.ref(inverse)
        return inverse

    @property
    def sign(self) -> Tensor | int:
        """1 for an increasing, -1 for a decreasing map of single numbers."""
        raise NotImplementedError

    def with_cache(self, cache_size: int = 1) -> Self:
        """The same transform, keeping its last ``cache_size`` pairs."""
        if self._cache_size == cache_size:
            return self
        made = copy.copy(self)
        made._cache_size = cache_size
        made._cached_x_y = (None, None)
        return made

    def __eq__(self, other: object) -> bool:
        return self is other

    def __call__(self, x: Tensor) -> Tensor:
        if self._cache_size == 0:
            return self._call(x)
        known_x, known_y = self._cached_x_y
        if x is known_x:
            return known_y
        y = self._call(x)
        self._cached_x_y = x, y
        return y

    def _inv_call(self, y: Tensor) -> Tensor:
        if self._cache_size == 0:
            return self._inverse(y)
        known_x, known_y = self._cached_x_y
        if y is known_y:
            return known_x
        x = self._inverse(y)
        self._cached_x_y = x, y
        return x

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of the factor by which volumes change from ``x`` to ``y = f(x)``."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}()"

    def forward_shape(self, shape: Sequence[int]) -> Sequence[int]:
        """The shape of what a value of ``shape`` is mapped to."""
        return shape

    def inverse_shape(self, shape: Sequence[int]) -> Sequence[int]:
        """The shape of what is mapped to a value of ``shape``."""
        return shape


def check_rank(given: Sequence[int], ndims: int) -> None:
    """Refuse shapes with fewer dimensions than are transformed together."""
    if len(given) < ndims:
        raise ValueError("Too few dimensions on input")


class _InverseTransform(Transform):
    """A transform run backwards."""

    def __init__(self, transform: Transform) -> None:
        super().__init__(cache_size=transform._cache_size)
        self._inv: Any = transform

    def __getstate__(self) -> StateDict:
        return dict(vars(self))

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Constraint:
        return self._inv.codomain

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Constraint:
        return self._inv.domain

    @property
    def bijective(self) -> bool:
        return self._inv.bijective

    @property
    def sign(self) -> Tensor | int:
        return self._inv.sign

    @property
    def inv(self) -> Transform:
        return self._inv

    def with_cache(self, cache_size: int = 1) -> Self:
        return self._inv.with_cache(cache_size).inv

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _InverseTransform) and bool(self._inv == other._inv)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self._inv!r})"

    def __call__(self, x: Tensor) -> Tensor:
        return self._inv._inv_call(x)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self._inv.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Sequence[int]) -> Sequence[int]:
        return self._inv.inverse_shape(shape)

    def inverse_shape(self, shape: Sequence[int]) -> Sequence[int]:
        return self._inv.forward_shape(shape)


class ComposeTransform(Transform):
    """Several transforms, one after the other.

    Args:
        parts: the transforms, the first to be applied first.
        cache_size: how many pairs each of them keeps.

    >>> parts = [eg.distributions.AffineTransform(0.0, 2.0), eg.distributions.ExpTransform()]
    >>> eg.distributions.ComposeTransform(parts)(eg.tensor(0.5))
    tensor(2.7183)
    """

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        if cache_size:
            parts = [part.with_cache(cache_size) for part in parts]
        super().__init__(cache_size=cache_size)
        self.parts: list[Transform] = list(parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Constraint:
        """The constraint that inputs satisfy."""
        if not self.parts:
            return constraints.real
        depth = self.parts[-1].codomain.event_dim
        for part in reversed(self.parts):
            depth += part.domain.event_dim - part.codomain.event_dim
            depth = max(depth, part.domain.event_dim)
        return _deepened(self.parts[0].domain, depth)

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Constraint:
        """The constraint that results satisfy."""
        if not self.parts:
            return constraints.real
        depth = self.parts[0].domain.event_dim
        for part in self.parts:
            depth += part.codomain.event_dim - part.domain.event_dim
            depth = max(depth, part.codomain.event_dim)
        return _deepened(self.parts[-1].codomain, depth)

    @lazy_property
    def bijective(self) -> bool:
        return all(part.bijective for part in self.parts)

    @lazy_property
    def sign(self) -> int:
        return functools.reduce(operator.mul, (part.sign for part in self.parts), 1)

    @property
    def inv(self) -> Transform:
        inverse = None if self._inv is None else self._inv()
        if inverse is None:
            inverse = ComposeTransform([part.inv for part in reversed(self.parts)])
            self._inv = weakref.ref(inverse)
            inverse._inv = weakref.ref(self)
        return inverse

    def with_cache(self, cache_size: int = 1) -> ComposeTransform:
        if self._cache_size == cache_size:
            return self
        return ComposeTransform(self.parts, cache_size=cache_size)

    def __call__(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if not self.parts:
            return evergrad.zeros_like(x)
        points = [x]
        for part in self.parts[:-1]:
            points.append(part(points[-1]))
        points.append(y)
        terms, depth = [], self.domain.event_dim
        for part, before, after in zip(self.parts, points, points[1:], strict=False):
            change = part.log_abs_det_jacobian(before, after)
            terms.append(sum_rightmost(change, depth - part.domain.event_dim))
            depth += part.codomain.event_dim - part.domain.event_dim
        return functools.reduce(operator.add, terms)

    def forward_shape(self, shape: Sequence[int]) -> Sequence[int]:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Sequence[int]) -> Sequence[int]:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __repr__(self) -> str:
        parts = ",\n    ".join(repr(part) for part in self.parts)
        return f"{self.__class__.__name__}(\n    {parts}\n)"


def _deepened(constraint: Constraint, event_dim: int) -> Constraint:
    """A constraint whose events have at least ``event_dim`` dimensions."""
    missing = event_dim - constraint.event_dim
    return constraints.independent(constraint, missing) if missing else constraint


identity_transform: ComposeTransform = ComposeTransform([])


class IndependentTransform(Transform):
    """A transform that counts further dimensions as part of the event.

    Args:
        base_transform: the transform of each element.
        reinterpreted_batch_ndims: how many dimensions belong together.
        cache_size: how many pairs are kept.

    >>> t = eg.distributions.IndependentTransform(eg.distributions.ExpTransform(), 1)
    >>> x = eg.tensor([1.0, 2.0])
    >>> t.log_abs_det_jacobian(x, t(x))
    tensor(3.)
    """

    def __init__(
        self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0
    ) -> None:
        super().__init__(cache_size=cache_size)
        self.base_transform: Transform = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    def with_cache(self, cache_size: int = 1) -> IndependentTransform:
        if self._cache_size == cache_size:
            return self
        return IndependentTransform(
            self.base_transform, self.reinterpreted_batch_ndims, cache_size=cache_size
        )

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Constraint:
        """The constraint that inputs satisfy."""
        return constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims)

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Constraint:
        """The constraint that results satisfy."""
        return constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims)

    @property
    def bijective(self) -> bool:
        return self.base_transform.bijective

    @property
    def sign(self) -> Tensor | int:
        return self.base_transform.sign

    def _call(self, x: Tensor) -> Tensor:
        check_rank(x.shape, self.domain.event_dim)
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Tensor:
        check_rank(y.shape, self.codomain.event_dim)
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        each = self.base_transform.log_abs_det_jacobian(x, y)
        return sum_rightmost(each, self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        return (
            f"{self.__class__.__name__}({self.base_transform!r}, {self.reinterpreted_batch_ndims})"
        )

    def forward_shape(self, shape: Sequence[int]) -> Sequence[int]:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Sequence[int]) -> Sequence[int]:
        return self.base_transform.inverse_shape(shape)


class ReshapeTransform(Transform):
    """The last dimensions in another shape.

    Args:
        in_shape: their shape in the domain.
        out_shape: their shape in the codomain.
        cache_size: how many pairs are kept.

    >>> eg.distributions.ReshapeTransform((4,), (2, 2))(eg.arange(4.0))
    tensor([[0., 1.],
            [2., 3.]])
    """

    bijective = True

    def __init__(
        self, in_shape: Iterable[int], out_shape: Iterable[int], cache_size: int = 0
    ) -> None:
        self.in_shape: Size = Size(in_shape)
        self.out_shape: Size = Size(out_shape)
        if self.in_shape.numel() != self.out_shape.numel():
            raise ValueError("in_shape, out_shape have different numbers of elements")
        super().__init__(cache_size=cache_size)

    @constraints.dependent_property
    def domain(self) -> Constraint:
        """The constraint that inputs satisfy."""
        return constraints.independent(constraints.real, len(self.in_shape))

    @constraints.dependent_property
    def codomain(self) -> Constraint:
        """The constraint that results satisfy."""
        return constraints.independent(constraints.real, len(self.out_shape))

    def _call(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[: x.ndim - len(self.in_shape)] + self.out_shape)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.reshape(y.shape[: y.ndim - len(self.out_shape)] + self.in_shape)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x.new_zeros(x.shape[: x.ndim - len(self.in_shape)])

    def forward_shape(self, shape: Sequence[int]) -> Sequence[int]:
        return _with_end(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Sequence[int]) -> Sequence[int]:
        return _with_end(shape, self.out_shape, self.in_shape)


def _with_end(shape: Sequence[int], old: Size, new: Size) -> Sequence[int]:
    check_rank(shape, len(old))
    cut = len(shape) - len(old)
    if tuple(shape[cut:]) != tuple(old):
        raise ValueError(f"Shape mismatch: expected {shape[cut:]} but got {old}")
    return Size((*shape[:cut], *new))
