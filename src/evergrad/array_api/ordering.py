"""Functions about order and sets: sorting, searching, distinct values."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import Any, NamedTuple

import evergrad as eg
from evergrad.array_api.adapt import meeting, standard
from evergrad.core.tensor import Tensor


@standard("sort")
def _sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """An axis in order; NaN counts as the largest."""
    return eg.sort(x, axis, descending, stable).values


@standard()
def argsort(
    x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> Tensor:
    """The places that sort an axis."""
    return eg.argsort(x, axis, descending, stable)


@standard()
def searchsorted(x1: Tensor, x2: Any, /, *, side: str = "left", sorter: Any = None) -> Tensor:
    """Where each element of ``x2`` would stand in the sorted vector ``x1``."""
    x1, x2 = meeting(x1, x2)
    return eg.searchsorted(x1, x2, side=side, sorter=sorter)


@standard()
def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """Where elements are not zero: for each axis, the numbers."""
    if not x.ndim:
        raise ValueError("nonzero of a 0-d array has no axis to count along")
    return eg.nonzero(x, as_tuple=True)


# -- distinct values ----------------------------------------------------------------------------


class UniqueAll(NamedTuple):
    """What ``unique_all`` finds."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """What ``unique_counts`` finds."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """What ``unique_inverse`` finds."""

    values: Tensor
    inverse_indices: Tensor


@standard()
def unique_values(x: Tensor, /) -> Tensor:
    """The distinct elements in order; NaNs are all distinct."""
    return eg.unique(x)


@standard()
def unique_counts(x: Tensor, /) -> UniqueCounts:
    """The distinct elements, and how often each occurs."""
    return UniqueCounts(*eg.unique(x, return_counts=True))


@standard()
def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """The distinct elements, and for each element its place among them."""
    return UniqueInverse(*eg.unique(x, return_inverse=True))


@standard()
def unique_all(x: Tensor, /) -> UniqueAll:
    """The distinct elements, where each first stands, each element's place, and the counts."""
    values, inverse, counts = eg.unique(x, return_inverse=True, return_counts=True)
    by_value = eg.argsort(inverse.reshape(-1), stable=True)
    first = by_value[eg.cumsum(counts, 0) - counts]
    return UniqueAll(values, first, inverse, counts)
