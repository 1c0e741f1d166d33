"""Accuracy of special functions, against SciPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import scipy.special

import evergrad
from evergrad.ops import special_eval
from evergrad.testing.samples import Array

EPSILON = np.finfo(np.float64).eps
EVERYWHERE = np.concatenate([np.linspace(-25, 25, 20_001), np.geomspace(1e-300, 1e3, 2_000)])
POSITIVE = np.concatenate([np.linspace(1e-3, 40, 20_001), np.geomspace(1e-300, 1e300, 2_000)])
PROBABILITIES = np.concatenate([np.linspace(0, 1, 10_001), np.geomspace(1e-300, 0.1, 2_000)])


@pytest.fixture(autouse=True)
def _infinities_are_values() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def relative_error(found: Array, expected: Array, floor: float = 0.0) -> float:
    """The largest error relative to the expected value, or to ``floor`` where that is smaller."""
    known = np.isfinite(expected)
    assert np.array_equal(found[~known], expected[~known], equal_nan=True)
    scale = np.maximum(np.abs(expected[known]), max(floor, 1e-290))
    return float((np.abs(found[known] - expected[known]) / scale).max())


@pytest.mark.parametrize(
    ("name", "points", "units", "floor"),
    [
        ("erf", EVERYWHERE, 4, 0),
        # SciPy's own erfc and ndtr lose some digits far from zero.
        ("erfc", EVERYWHERE[np.abs(EVERYWHERE) < 5], 16, 0),
        ("erfcx", EVERYWHERE[EVERYWHERE > -5], 16, 0),
        ("ndtr", EVERYWHERE[np.abs(EVERYWHERE) < 5], 64, 0),
        ("log_ndtr", EVERYWHERE[EVERYWHERE < 5], 64, 0),
        ("erfinv", 2 * PROBABILITIES - 1, 8, 0),
        ("ndtri", PROBABILITIES, 8, 0),
        ("lgamma", POSITIVE, 8, 1),
        ("digamma", POSITIVE, 16, 1),
        ("i0", EVERYWHERE[np.abs(EVERYWHERE) < 600], 16, 0),
        ("i0e", EVERYWHERE, 16, 0),
        ("i1", EVERYWHERE[np.abs(EVERYWHERE) < 600], 16, 0),
        ("i1e", EVERYWHERE, 16, 0),
    ],
)
def test_accuracy(name: str, points: Array, units: int, floor: float) -> None:
    reference: Callable[..., Any] = getattr(scipy.special, {"lgamma": "gammaln"}.get(name, name))
    found = getattr(special_eval, name)(points)
    assert relative_error(found, reference(points), floor) < units * EPSILON


def test_erfc_of_large_numbers_keeps_its_digits() -> None:
    """exp(-x * x) / (x * sqrt(pi)) times its asymptotic series, at x = 20."""
    expected = 5.395865611607900928934999167905e-176
    assert abs(special_eval.erfc(np.array([20.0]))[0] / expected - 1) < 8 * EPSILON


def test_erf_in_single_precision() -> None:
    x = np.linspace(-6, 6, 100_001, dtype=np.float32)
    found = special_eval.erf(x)
    expected = scipy.special.erf(x.astype(np.float64))
    assert found.dtype == np.float32
    assert (np.abs(found - expected) <= 2 * np.spacing(np.abs(expected).astype(np.float32))).all()


def test_lgamma_near_its_zeros() -> None:
    """Its slope at 1 is minus Euler's constant, at 2 one minus that."""
    steps = np.geomspace(1e-14, 1e-9, 50)
    steps = (1 + steps) - 1
    assert np.allclose(special_eval.lgamma(1 + steps) / steps, -np.euler_gamma, rtol=1e-8)
    steps = (2 + steps) - 2
    assert np.allclose(special_eval.lgamma(2 + steps) / steps, 1 - np.euler_gamma, rtol=1e-8)


def test_negative_arguments_of_gamma_functions() -> None:
    x = -np.linspace(0.01, 20.01, 2_001)
    assert relative_error(special_eval.lgamma(x), scipy.special.gammaln(x), 1) < 32 * EPSILON
    assert relative_error(special_eval.digamma(x), scipy.special.digamma(x), 1) < 1e-12


@pytest.mark.parametrize("order", [1.1, 2.0, 7.5, 50.0])
def test_zeta(order: float) -> None:
    q = np.concatenate([np.linspace(0.01, 9, 1_000), np.geomspace(1e-3, 1e5, 500)])
    expected = scipy.special.zeta(order, q)
    limit = 1e-13 if order < 10 else 1e-10  # SciPy's series ends early for large orders
    assert relative_error(special_eval.zeta(np.full_like(q, order), q), expected) < limit


@pytest.mark.parametrize("n", [1, 2, 5])
def test_polygamma(n: int) -> None:
    x = np.linspace(0.01, 40, 1_000)
    expected = scipy.special.polygamma(n, x)
    assert relative_error(special_eval.polygamma(x, n=n), expected) < 1e-13
    x = -np.linspace(0.35, 9.35, 91)  # where SciPy does not go, the recurrence is known
    shifted = special_eval.polygamma(x + 1, n=n)
    step = (-1) ** n * float(scipy.special.factorial(n)) / x ** (n + 1)
    assert np.allclose(shifted, special_eval.polygamma(x, n=n) + step, rtol=1e-9)


@pytest.mark.parametrize("name", ["gammainc", "gammaincc"])
def test_incomplete_gamma(name: str) -> None:
    a, x = np.meshgrid(np.linspace(0.05, 60, 40), np.linspace(0.01, 90, 60))
    expected = getattr(scipy.special, name)(a, x)
    assert np.abs(getattr(special_eval, name)(a, x) - expected).max() < 1e-13


def test_shapes_and_blocks() -> None:
    """Arrays longer than a block, with any strides, keep their shape."""
    x = np.linspace(-3, 3, 30_000).reshape(100, 300).T[::2]
    assert np.allclose(special_eval.erf(x), scipy.special.erf(x), rtol=1e-14)
    assert special_eval.erf(np.float64(0.5) * np.ones(())).shape == ()


def test_namespace() -> None:
    x = evergrad.tensor([0.3, 0.6], dtype=evergrad.float64)
    special = evergrad.special
    assert evergrad.equal(special.expit(x), evergrad.sigmoid(x))
    assert evergrad.equal(special.gammaln(x), evergrad.lgamma(x))
    assert evergrad.equal(special.psi(x), evergrad.digamma(x))
    assert evergrad.equal(special.multigammaln(x + 3, 2), evergrad.mvlgamma(x + 3, 2))
    assert evergrad.equal(special.gammainc(x, x), evergrad.igamma(x, x))
    assert not hasattr(evergrad, "erfcx")
    out = evergrad.empty(2, dtype=evergrad.float64)
    assert special.i1e(x, out=out) is out
