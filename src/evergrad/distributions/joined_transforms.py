"""Transforms of the parts of a dimension."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import evergrad
from evergrad.core.tensor import Tensor
from evergrad.distributions import constraints
from evergrad.distributions.constraints import Constraint
from evergrad.distributions.transform_base import Transform
from evergrad.distributions.utils import sum_rightmost


class _JoinedTransform(Transform):
    """Transforms that each take a part of a dimension."""

    def __init__(self, tseq: Sequence[Transform], dim: int, cache_size: int) -> None:
        if not all(isinstance(transform, Transform) for transform in tseq):
            raise AssertionError("All elements of tseq must be Transform instances")
        super().__init__(cache_size=cache_size)
        self.transforms: list[Transform] = [transform.with_cache(cache_size) for transform in tseq]
        self.dim = dim

    def with_cache(self, cache_size: int = 1) -> Self:
        if self._cache_size == cache_size:
            return self
        made = super().with_cache(cache_size)
        made.transforms = [transform.with_cache(cache_size) for transform in self.transforms]
        return made

    @property
    def bijective(self) -> bool:
        return all(transform.bijective for transform in self.transforms)

    def _check_extent(self, name: str, value: Tensor, what: str, wanted: int) -> None:
        if not -value.ndim <= self.dim < value.ndim:
            raise AssertionError(
                f"dim {self.dim} out of range for tensor with {value.ndim} dimensions"
            )
        extent = value.size(self.dim)
        if extent != wanted:
            raise AssertionError(f"{name}.size({self.dim}) = {extent} must equal {what} {wanted}")


class CatTransform(_JoinedTransform):
    """Transforms of parts that stand side by side in a dimension, as ``cat`` puts them.

    Args:
        tseq: a transform for each part.
        dim: the dimension.
        lengths: the extent of each part, 1 if not given.
        cache_size: how many pairs each transform keeps.

    >>> parts = [eg.distributions.ExpTransform(), eg.distributions.AffineTransform(0.0, 2.0)]
    >>> eg.distributions.CatTransform(parts)(eg.tensor([0.0, 3.0]))
    tensor([1., 6.])
    """

    def __init__(
        self,
        tseq: Sequence[Transform],
        dim: int = 0,
        lengths: Sequence[int] | None = None,
        cache_size: int = 0,
    ) -> None:
        super().__init__(tseq, dim, cache_size)
        self.lengths: list[int] = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise AssertionError(
                f"lengths ({len(self.lengths)}) must match transforms ({len(self.transforms)})"
            )

    @property
    def event_dim(self) -> int:
        return max(transform.event_dim for transform in self.transforms)

    @property
    def length(self) -> int:
        """The extent of all parts together."""
        return sum(self.lengths)

    def _parts(self, name: str, value: Tensor) -> Any:
        self._check_extent(name, value, "length", self.length)
        return zip(self.transforms, evergrad.split(value, self.lengths, self.dim), strict=True)

    def _call(self, x: Tensor) -> Tensor:
        return evergrad.cat([transform(part) for transform, part in self._parts("x", x)], self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        return evergrad.cat(
            [transform.inv(part) for transform, part in self._parts("y", y)], self.dim
        )

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        changes = []
        for (transform, before), (_, after) in zip(
            self._parts("x", x), self._parts("y", y), strict=True
        ):
            change = transform.log_abs_det_jacobian(before, after)
            changes.append(sum_rightmost(change, self.event_dim - transform.event_dim))
        dim = (self.dim - x.ndim if self.dim >= 0 else self.dim) + self.event_dim
        return evergrad.cat(changes, dim) if dim < 0 else sum(changes[1:], changes[0])

    @constraints.dependent_property
    def domain(self) -> Constraint:
        """The constraint that inputs satisfy."""
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @constraints.dependent_property
    def codomain(self) -> Constraint:
        """The constraint that results satisfy."""
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)


class StackTransform(_JoinedTransform):
    """Transforms of the slices of a dimension, as ``stack`` puts them.

    Args:
        tseq: a transform for each slice.
        dim: the dimension.
        cache_size: how many pairs each transform keeps.

    >>> parts = [eg.distributions.ExpTransform(), eg.distributions.AffineTransform(0.0, 2.0)]
    >>> eg.distributions.StackTransform(parts)(eg.tensor([0.0, 3.0]))
    tensor([1., 6.])
    """

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(tseq, dim, cache_size)

    def _slices(self, name: str, value: Tensor) -> Any:
        self._check_extent(name, value, "len(transforms)", len(self.transforms))
        return zip(self.transforms, value.unbind(self.dim), strict=True)

    def _call(self, x: Tensor) -> Tensor:
        return evergrad.stack([t(part) for t, part in self._slices("x", x)], self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        return evergrad.stack([t.inv(part) for t, part in self._slices("y", y)], self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        pairs = zip(self._slices("x", x), self._slices("y", y), strict=True)
        changes = [t.log_abs_det_jacobian(before, after) for (t, before), (_, after) in pairs]
        return evergrad.stack(changes, self.dim)

    @constraints.dependent_property
    def domain(self) -> Constraint:
        """The constraint that inputs satisfy."""
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @constraints.dependent_property
    def codomain(self) -> Constraint:
        """The constraint that results satisfy."""
        return constraints.stack([t.codomain for t in self.transforms], self.dim)
