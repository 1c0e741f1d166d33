"""Accuracy of special functions, against SciPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import scipy.special

import evergrad
from evergrad.ops.rows.special import bessel_evaluate, evaluate
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
    found = getattr(evaluate, name)(points)
    assert relative_error(found, reference(points), floor) < units * EPSILON


def test_erfc_of_large_numbers_keeps_its_digits() -> None:
    """exp(-x * x) / (x * sqrt(pi)) times its asymptotic series, at x = 20."""
    expected = 5.395865611607900928934999167905e-176
    assert abs(evaluate.erfc(np.array([20.0]))[0] / expected - 1) < 8 * EPSILON


SINGLES = np.linspace(-6, 6, 50_001)
POSITIVE_SINGLES = np.concatenate([np.linspace(1e-3, 40, 50_001), np.geomspace(1e-37, 1e36, 1_000)])


@pytest.mark.parametrize(
    ("name", "points", "units"),
    [
        ("erf", SINGLES, 2),
        ("erfc", np.linspace(-6, 9, 50_001), 1),
        ("erfinv", np.concatenate([np.linspace(-1, 1, 50_001), 1 - np.geomspace(6e-8, 0.1)]), 3),
        ("ndtr", np.linspace(-1, 6, 50_001), 8),
        ("lgamma", POSITIVE_SINGLES, 1),
        ("lgamma", -np.linspace(0.01, 20.01, 2_001), 1),
        ("digamma", POSITIVE_SINGLES, 1),
        ("digamma", -np.linspace(0.01, 20.01, 2_001), 1),
        ("trigamma", POSITIVE_SINGLES, 1),
        ("i0", np.linspace(-25, 25, 50_001), 1),
        ("i0e", np.linspace(-25, 25, 50_001), 1),
        ("i1", np.linspace(-25, 25, 50_001), 1),
        ("i1e", np.linspace(-25, 25, 50_001), 1),
    ],
)
def test_single_precision(name: str, points: Array, units: float) -> None:
    x = points.astype(np.float32)
    found = getattr(evaluate, name)(x)
    assert found.dtype == np.float32
    other_names = {"lgamma": "gammaln", "trigamma": "polygamma"}
    reference = getattr(scipy.special, other_names.get(name, name))
    wide = x.astype(np.float64)
    expected = reference(1, wide) if name == "trigamma" else reference(wide)
    shown = np.isfinite(expected) & (np.abs(expected) < 3e38)
    assert np.array_equal(found[~shown], expected[~shown].astype(np.float32), equal_nan=True)
    spacing = np.spacing(np.abs(expected[shown]).astype(np.float32))
    assert (np.abs(found[shown] - expected[shown]) <= units * spacing).all()


def test_single_precision_at_the_edges() -> None:
    edges = np.array([0.0, -0.0, 1.0, -1.0, 2.0, np.inf, -np.inf, np.nan], np.float32)
    for name in ("erf", "erfc", "erfinv", "ndtr", "lgamma", "digamma", "i0", "i1", "i1e"):
        function = getattr(evaluate, name)
        found, expected = function(edges), function(edges.astype(np.float64))
        assert np.allclose(found, expected, rtol=1e-6, equal_nan=True), name


def test_ndtr_of_singles_keeps_its_small_tail() -> None:
    x = np.linspace(-8, -1, 2_001, dtype=np.float32)
    expected = scipy.special.ndtr(x.astype(np.float64))
    # The square in the exponent is rounded, so the error grows with it.
    allowed = 5e-7 * (1 + 0.5 * x**2)
    assert (np.abs(evaluate.ndtr(x) / expected - 1) < allowed).all()


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("bessel_j0", scipy.special.j0),
        ("bessel_j1", scipy.special.j1),
        ("bessel_y0", scipy.special.y0),
        ("bessel_y1", scipy.special.y1),
        ("modified_bessel_k0", scipy.special.k0),
        ("modified_bessel_k1", scipy.special.k1),
        ("scaled_modified_bessel_k0", scipy.special.k0e),
        ("scaled_modified_bessel_k1", scipy.special.k1e),
        ("spherical_bessel_j0", lambda x: np.sinc(x / np.pi)),
        ("airy_ai", lambda x: scipy.special.airy(x)[0]),
    ],
)
def test_bessel_functions(name: str, reference: Callable[..., Any]) -> None:
    """Relative to the height of their waves, which SciPy knows to so many digits."""
    x = np.concatenate([np.geomspace(1e-8, 1), np.linspace(1e-3, 60, 6_001)])
    if name in ("bessel_j0", "bessel_j1", "airy_ai", "spherical_bessel_j0"):
        x = np.concatenate([-x, x])
    expected = reference(x)
    height = np.maximum(np.abs(expected), 0.3 / np.sqrt(1 + np.abs(x)))
    limit = 1e-12 if name == "airy_ai" else 4e-14  # the angle of its waves grows faster than x
    assert (np.abs(getattr(bessel_evaluate, name)(x) - expected) <= limit * height).all()
    if "modified" in name:
        assert relative_error(getattr(bessel_evaluate, name)(x), expected) < 16 * EPSILON


def test_lgamma_near_its_zeros() -> None:
    """Its slope at 1 is minus Euler's constant, at 2 one minus that."""
    steps = np.geomspace(1e-14, 1e-9, 50)
    steps = (1 + steps) - 1
    assert np.allclose(evaluate.lgamma(1 + steps) / steps, -np.euler_gamma, rtol=1e-8)
    steps = (2 + steps) - 2
    assert np.allclose(evaluate.lgamma(2 + steps) / steps, 1 - np.euler_gamma, rtol=1e-8)


def test_negative_arguments_of_gamma_functions() -> None:
    x = -np.linspace(0.01, 20.01, 2_001)
    assert relative_error(evaluate.lgamma(x), scipy.special.gammaln(x), 1) < 32 * EPSILON
    assert relative_error(evaluate.digamma(x), scipy.special.digamma(x), 1) < 1e-12


@pytest.mark.parametrize("order", [1.1, 2.0, 7.5, 50.0])
def test_zeta(order: float) -> None:
    q = np.concatenate([np.linspace(0.01, 9, 1_000), np.geomspace(1e-3, 1e5, 500)])
    expected = scipy.special.zeta(order, q)
    limit = 1e-13 if order < 10 else 1e-10  # SciPy's series ends early for large orders
    assert relative_error(evaluate.zeta(np.full_like(q, order), q), expected) < limit


@pytest.mark.parametrize("n", [1, 2, 5])
def test_polygamma(n: int) -> None:
    x = np.linspace(0.01, 40, 1_000)
    expected = scipy.special.polygamma(n, x)
    assert relative_error(evaluate.polygamma(x, n=n), expected) < 1e-13
    x = -np.linspace(0.35, 9.35, 91)  # where SciPy does not go, the recurrence is known
    shifted = evaluate.polygamma(x + 1, n=n)
    step = (-1) ** n * float(scipy.special.factorial(n)) / x ** (n + 1)
    assert np.allclose(shifted, evaluate.polygamma(x, n=n) + step, rtol=1e-9)


@pytest.mark.parametrize("name", ["gammainc", "gammaincc"])
def test_incomplete_gamma(name: str) -> None:
    a, x = np.meshgrid(np.linspace(0.05, 60, 40), np.linspace(0.01, 90, 60))
    expected = getattr(scipy.special, name)(a, x)
    assert np.abs(getattr(evaluate, name)(a, x) - expected).max() < 1e-13


def test_shapes_and_blocks() -> None:
    """Arrays longer than a block, with any strides, keep their shape."""
    x = np.linspace(-3, 3, 30_000).reshape(100, 300).T[::2]
    assert np.allclose(evaluate.erf(x), scipy.special.erf(x), rtol=1e-14)
    assert evaluate.erf(np.float64(0.5) * np.ones(())).shape == ()


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
