"""Elementary functions of compiled code, against double precision: how many units in the last place
they are off, and what becomes of zeros, infinities and NaNs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import evergrad

# The function, the same in double precision, where it is asked, and how far off it may be.
_ERFC = np.vectorize(math.erfc, otypes=[np.float64])
_CASES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], float, float, float]] = {
    "exp": (evergrad.exp, np.exp, -87.33, 88.72, 1.0),
    "expm1": (evergrad.expm1, np.expm1, -100.0, 88.72, 2.1),
    "log": (evergrad.log, np.log, 1e-44, 3e38, 1.0),
    "log1p": (evergrad.log1p, np.log1p, -0.999, 1e6, 2.5),
    "tanh": (evergrad.tanh, np.tanh, -12.0, 12.0, 3.2),
    "sigmoid": (evergrad.sigmoid, lambda x: 1 / (1 + np.exp(-x)), -87.3, 100.0, 2.5),
    "erf": (evergrad.erf, np.vectorize(math.erf, otypes=[np.float64]), -5.0, 5.0, 1.8),
    "ndtr": (evergrad.special.ndtr, lambda x: _ERFC(x * -math.sqrt(0.5)) / 2, -8.0, 8.0, 21.0),
}  # fmt: skip


def _points(low: float, high: float) -> Any:
    """Numbers of all sizes, and many in between; no whole number of vectors."""
    source = np.random.default_rng(0)
    sizes = np.exp2(source.uniform(-60, 127, 20_000)) * source.choice([-1, 1], 20_000)
    even = source.uniform(max(low, -200), min(high, 200), 40_007)
    both = np.concatenate([sizes, even]).astype(np.float32)
    return both[(both >= low) & (both <= high)]


@pytest.mark.parametrize("name", _CASES)
def test_units_in_the_last_place(name: str) -> None:
    function, exact, low, high, most = _CASES[name]
    x = _points(low, high)
    found = evergrad.compile(function)(evergrad.tensor(x)).numpy()
    wanted = exact(x.astype(np.float64))
    unit = np.spacing(np.abs(wanted).astype(np.float32)).astype(np.float64)
    assert (np.abs(found - wanted) / unit).max() <= most


@pytest.mark.parametrize("name", _CASES)
def test_values_at_the_edges(name: str) -> None:
    function, exact, *_ = _CASES[name]
    edges = [math.nan, math.inf, -math.inf, 0.0, -0.0, 88.7228, 88.7229, 3e38, -3e38, -89.0, -1.0]
    nan_with_payload = np.array([0x7FC00155, 0xFFC00001], np.uint32).view(np.float32)
    x = np.concatenate([np.array(edges, np.float32), nan_with_payload])
    x = np.tile(x, 16)  # in whole vectors, too
    found = evergrad.compile(function)(evergrad.tensor(x)).numpy()
    with np.errstate(all="ignore"):
        wanted = exact(x.astype(np.float64)).astype(np.float32)
    wanted[np.abs(wanted) < np.finfo(np.float32).tiny] = 0
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
