"""Matrices to compare linear algebra with PyTorch on, and the comparison."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from twins import agree, derivatives

Array = np.ndarray[Any, Any]

# PyTorch's LAPACK and NumPy's round differently; second derivatives divide by differences twice.
TOLERANCE = 1e-7

SQUARE = [(3, 3), (2, 3, 3), (2, 1, 2, 2), (1, 1), (0, 3, 3), (2, 0, 0)]
RECTANGULAR = [(4, 2), (2, 4), (2, 4, 3), (3, 2, 3), (1, 4), (0, 3, 2), (3, 0), (0, 3)]


def numbers(*shape: int, complex: bool = False, seed: int = 0) -> Array:
    """Numbers around zero, with a larger diagonal, so that matrices are well conditioned."""
    generator = np.random.default_rng([seed, *shape])
    found: Any = generator.standard_normal(shape)
    if complex:
        found = found + 1j * generator.standard_normal(shape)
    if len(shape) > 1:
        found = found + 2 * np.eye(*shape[-2:])
    return np.asarray(found)


def compare(torch: ModuleType, call: Callable[..., Any], *arrays: Array) -> None:
    agree(lambda ns: derivatives(ns, call, *arrays), torch, TOLERANCE)


def hermitian(a: Any) -> Any:
    return a + a.mH


def positive(ns: Any, a: Any) -> Any:
    return a @ a.mH + ns.eye(a.shape[-1], dtype=a.dtype)


def matrices(shapes: list[tuple[int, ...]]) -> Any:
    """Run a test on real and complex matrices of these shapes."""
    return pytest.mark.parametrize(
        "a",
        [numbers(*shape, complex=c) for shape in shapes for c in (False, True)],
        ids=lambda a: f"{a.dtype}{list(a.shape)}",
    )
