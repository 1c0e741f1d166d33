"""A sample made ready for checking: its call as a function of tensors, and how to compare results.

Knows no particular check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

import evergrad
from evergrad.core import dtypes
from evergrad.core.op import TABLE, Op
from evergrad.core.rng.default_generator import manual_seed
from evergrad.core.state import using
from evergrad.core.tensor import Tensor, from_array
from evergrad.core.tree import tree_leaves
from evergrad.core.types import Array as Array
from evergrad.testing.samples import Sample

Function = Callable[..., tuple[Tensor, ...]]

SEED = 1234

# Finite differences need the precision of these; other inputs stay as they are.
_PRECISE = (np.dtype(np.float64), np.dtype(np.complex128))


class CheckError(AssertionError):
    """A row does not do what its sample demands."""


class Subject:
    """A sample, with its arrays numbered: ``arrays[k]`` is input ``places[k]``.

    ``active`` are the numbers of the arrays that can be differentiated by.
    """

    def __init__(self, sample: Sample) -> None:
        self.sample = sample
        self.places: list[int] = [
            i for i, v in enumerate(sample.inputs) if isinstance(v, np.ndarray)
        ]
        self.arrays: list[Array] = [sample.inputs[i] for i in self.places]
        self.active: list[int] = [k for k, a in enumerate(self.arrays) if a.dtype in _PRECISE]

    @property
    def row(self) -> Op:
        return TABLE[self.sample.row]

    def tensors(self) -> list[Tensor]:
        """The arrays as new tensors."""
        return [from_array(array.copy()) for array in self.arrays]

    def points(self) -> list[Tensor]:
        """New tensors of the arrays to differentiate by."""
        return [from_array(self.arrays[k].copy()) for k in self.active]

    def call(self, *tensors: object) -> tuple[Tensor, ...]:
        """Make the call on these tensors; gives all the tensors that come back."""
        given = list(self.sample.inputs)
        for place, tensor in zip(self.places, tensors, strict=True):
            given[place] = tensor
        result = self.sample.call(evergrad, *given)
        return tuple(leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor))

    def seeded_call(self, *tensors: object) -> tuple[Tensor, ...]:
        """The same at the start of the random stream, so that it can be repeated."""
        manual_seed(SEED)
        return self.call(*tensors)

    @cached_property
    def function(self) -> Function:
        """From the tensors to differentiate by to the results that can have a derivative."""
        constants = self.tensors()

        def function(*points: Tensor) -> tuple[Tensor, ...]:
            given = list(constants)
            for k, point in zip(self.active, points, strict=True):
                given[k] = point
            return tuple(out for out in self.seeded_call(*given) if is_continuous(out))

        return function


def is_continuous(tensor: Tensor) -> bool:
    return tensor.dtype.category >= dtypes.FLOATING


def arrays_of(function: Function, *tensors: Tensor) -> list[Array]:
    """The results as arrays, computed without a history."""
    with using(grad=False):
        return [np.array(out.array()) for out in function(*tensors)]


# -- directions ---------------------------------------------------------------------------------


def random_like(arrays: Sequence[Array], seed: int) -> list[Array]:
    """Normal numbers in the shapes and types of these arrays, complex where they are."""
    generator = np.random.default_rng([SEED, seed])
    found = []
    for array in arrays:
        values: Any = generator.standard_normal(array.shape)
        if array.dtype.kind == "c":
            values = values + 1j * generator.standard_normal(array.shape)
        found.append(np.asarray(values).astype(array.dtype))
    return found


def as_tensors(arrays: Sequence[Array]) -> list[Tensor]:
    return [from_array(np.array(array)) for array in arrays]


def rounding_unit(numpy_type: object) -> float:
    """The distance from one to the next number of a floating-point type."""
    return dtypes.finfo(dtypes.from_numpy_dtype(numpy_type)).eps


def wide(array: Array) -> Array:
    """The numbers in the widest type of their kind, to compare and to add up in."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def inner(left: Sequence[Array], right: Sequence[Array]) -> float:
    """The real inner product, over which complex gradients are defined too."""
    return float(
        sum(np.sum(np.real(np.conj(wide(a)) * wide(b))) for a, b in zip(left, right, strict=True))
    )


def size_of(arrays: Sequence[Array]) -> float:
    """The length of the arrays as one vector."""
    return float(np.sqrt(sum(np.sum(np.abs(wide(a)) ** 2) for a in arrays)))


# -- comparing ----------------------------------------------------------------------------------


def ensure(condition: bool, message: str) -> None:
    if not condition:
        raise CheckError(message)


def ensure_near(what: str, actual: float, expected: float, tolerance: float) -> None:
    """Two numbers that should agree up to an absolute tolerance."""
    ensure(
        abs(actual - expected) <= tolerance or (np.isnan(actual) and np.isnan(expected)),
        f"{what}: {actual!r} instead of {expected!r}, {abs(actual - expected):.2e} apart where "
        f"{tolerance:.2e} is allowed",
    )


def ensure_close(
    what: str, actual: Array, expected: object, tolerance: float, scale: float | None = None
) -> None:
    """Arrays of one shape that agree, relative to ``scale`` (the largest number expected).

    With ``scale=0`` each element is compared relative to itself. NaN agrees with NaN, an infinity
    with the same.
    """
    actual, expected = np.asarray(actual), np.asarray(expected)
    ensure(actual.shape == expected.shape, f"{what}: shape {actual.shape}, not {expected.shape}")
    if actual.dtype.kind in "biu" and expected.dtype.kind in "biu":
        ensure(bool((actual == expected).all()), f"{what}: {actual!r}, not {expected!r}")
        return
    a, b = wide(actual), wide(expected)
    if scale is None:
        finite = np.abs(b[np.isfinite(b)])
        scale = float(finite.max()) if finite.size else 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(a - b)
        allowed = tolerance * np.maximum(np.abs(b), scale)
        near = np.isfinite(b) & (error <= allowed)
    matches = near | (a == b) | (np.isnan(a) & np.isnan(b))
    if not matches.all():
        place = tuple(int(i) for i in np.argwhere(~matches)[0])
        raise CheckError(
            f"{what}: {int((~matches).sum())} of {matches.size} elements differ; at {place} "
            f"{a[place]!r} instead of {b[place]!r} (relative tolerance {tolerance:.1e})"
        )


def ensure_all_close(
    what: str, actual: Sequence[Any], expected: Sequence[Any], tolerance: float
) -> None:
    """Results of two ways to compute the same, one by one."""
    ensure(len(actual) == len(expected), f"{what}: {len(actual)} results, not {len(expected)}")
    for i, (a, b) in enumerate(zip(actual, expected, strict=True)):
        # Results of fewer bits than float64 carry their own rounding.
        own = 0.0 if a.dtype.kind in "biu" else 8 * rounding_unit(a.dtype)
        ensure_close(f"{what}, result {i}", a, b, max(tolerance, own))
