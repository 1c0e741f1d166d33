"""Inputs on which every row of the op table is checked.

A row without samples fails the build. A sample says how to call the op, in words that hold for
evergrad and PyTorch alike, and on what; every check (value, derivatives of first and second order,
forward against reverse, vmap against a loop, traced against eager, element types, strides) is
generated from it. :mod:`.samples.table` lists the modules that enter samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from evergrad.core.types import Array as Array

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction, Args

FLOATS = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Sample:
    """One call of one row. Arrays among ``inputs`` become tensors, the rest is passed as it is."""

    row: str
    call: AnyFunction  # call(namespace, *inputs)
    inputs: Args
    reference: AnyFunction | None  # the same on NumPy arrays
    torch: bool  # whether PyTorch has it
    smooth: bool  # whether derivatives exist at these inputs
    dtypes: tuple[str, ...]  # element types to repeat the value check in
    tolerance: float  # relative, in float64
    label: str
    any_layout: bool = True  # whether the inputs may have any strides

    def __str__(self) -> str:
        return f"{self.row}-{self.label}"


SAMPLES: dict[str, list[Sample]] = {}


def sample(
    row: str,
    call: Callable[..., object],
    *inputs: object,
    reference: Callable[..., object] | None = None,
    torch: bool = True,
    smooth: bool = True,
    dtypes: tuple[str, ...] = FLOATS,
    tolerance: float = 1e-10,
    label: str = "",
    any_layout: bool = True,
) -> None:
    """Enter a sample. ``call(ns, *inputs)`` uses ``ns`` as ``evergrad`` or ``torch``."""
    listed = SAMPLES.setdefault(row, [])
    shapes = "x".join(
        "(" + ",".join(map(str, i.shape)) + ")" for i in inputs if isinstance(i, np.ndarray)
    )
    label = f"{len(listed)}-{label or shapes or 'plain'}"
    listed.append(
        Sample(row, call, inputs, reference, torch, smooth, dtypes, tolerance, label, any_layout)
    )


# -- arrays to sample at ------------------------------------------------------------------------


def _generator(shape: tuple[int, ...], seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, *shape])


def normal(*shape: int, seed: int = 0) -> Array:
    """Numbers around zero, none of them very close to it or to each other."""
    return np.asarray(_generator(shape, seed).standard_normal(shape) * 1.5)


def positive(*shape: int, seed: int = 0, low: float = 0.3, high: float = 3.0) -> Array:
    return _generator(shape, seed).uniform(low, high, shape)


def between(low: float, high: float, *shape: int, seed: int = 0) -> Array:
    return _generator(shape, seed).uniform(low, high, shape)


def distinct(*shape: int, seed: int = 0) -> Array:
    """Numbers at least 0.1 apart, in random order: no ties for sorting and choosing."""
    count = int(np.prod(shape))
    return (_generator(shape, seed).permutation(count) * 0.1 - 0.05 * count).reshape(shape)


def complex_normal(*shape: int, seed: int = 0) -> Array:
    return np.asarray(normal(*shape, seed=seed) + 1j * normal(*shape, seed=seed + 1))


def integers(low: int, high: int, *shape: int, seed: int = 0) -> Array:
    return _generator(shape, seed).integers(low, high, shape)


def booleans(*shape: int, seed: int = 0) -> Array:
    return np.asarray(_generator(shape, seed).random(shape) < 0.5)
