"""Elementary functions of compiled code, against more digits: how many units in the last place they
are off, and what becomes of zeros, infinities, NaNs, denormal and huge numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import evergrad

mpmath = pytest.importorskip("mpmath")


def _digits(name: str) -> Callable[[Any], Any]:
    """A function of mpmath, in 40 digits and rounded to long double."""

    def exact(x: Any) -> Any:
        with mpmath.workdps(40):
            found = [getattr(mpmath, name)(mpmath.mpf(float(v))) for v in x]
            return np.array([np.longdouble(mpmath.nstr(v, 25)) for v in found])

    return exact


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _ndtr(x: Any) -> Any:
    with mpmath.workdps(40):
        return np.array([np.longdouble(mpmath.nstr(mpmath.ncdf(float(v)), 25)) for v in x])


class Case(NamedTuple):
    """A function, what it computes (in long doubles), where, and how far off it may be."""

    exact: Callable[[Any], Any]
    low: float
    high: float
    single: float
    double: float | None  # None: no native code
    function: Callable[[Any], Any] | None = None
    points: int = 20_000


HUGE, HUGE_DOUBLE = 3.4e38, 1e308
_CASES = {
    "exp": Case(np.exp, -87.33, 88.72, 1.0, 1.0),
    "exp2": Case(np.exp2, -126.0, 127.99, 1.0, 1.0),
    "expm1": Case(np.expm1, -100.0, 88.72, 2.1, 2.1),
    "log": Case(np.log, 1e-44, HUGE, 1.0, 1.0),
    "log2": Case(np.log2, 1e-44, HUGE, 2.0, 2.0),
    "log10": Case(np.log10, 1e-44, HUGE, 2.5, 2.5),
    "log1p": Case(np.log1p, -0.999, 1e6, 2.5, 3.0),
    "tanh": Case(np.tanh, -12.0, 12.0, 3.2, 3.2),
    "sigmoid": Case(_sigmoid, -87.3, 100.0, 2.5, 2.5),
    "sinh": Case(np.sinh, -89.4, 89.4, 3.0, 3.0),
    "cosh": Case(np.cosh, -89.4, 89.4, 3.0, 3.0),
    "asinh": Case(np.arcsinh, -HUGE, HUGE, 4.0, 4.0),
    "acosh": Case(np.arccosh, 1.0, HUGE, 4.0, 4.0),
    "atanh": Case(np.arctanh, -0.99999, 0.99999, 4.0, 4.0),
    "sin": Case(_digits("sin"), -HUGE, HUGE, 1.5, 1.0, points=4000),
    "cos": Case(_digits("cos"), -HUGE, HUGE, 1.5, 1.0, points=4000),
    "tan": Case(_digits("tan"), -HUGE, HUGE, 3.0, 3.0, points=4000),
    "asin": Case(np.arcsin, -1.0, 1.0, 2.0, 2.0),
    "acos": Case(np.arccos, -1.0, 1.0, 2.0, 2.0),
    "atan": Case(np.arctan, -HUGE, HUGE, 2.0, 2.0),
    "erf": Case(_digits("erf"), -5.0, 5.0, 1.8, 1.0, points=4000),
    "erfc": Case(_digits("erfc"), -5.0, 9.15, 5.0, 5.0, points=4000),
    "erfinv": Case(_digits("erfinv"), -0.999999, 0.999999, 4.0, None, points=1000),
    "ndtr": Case(_ndtr, -8.0, 8.0, 21.0, 100.0, evergrad.special.ndtr, points=4000),
}


def _points(case: Case, kind: type) -> Any:
    """Numbers of all sizes, and many in between; no whole number of vectors."""
    source = np.random.default_rng(0)
    count = case.points
    sizes = np.exp2(source.uniform(-140, 128, count)) * source.choice([-1, 1], count)
    low, high = (max(case.low, -200), min(case.high, 200)) if kind is np.float32 else (
        max(case.low, -700), min(case.high, 700))  # fmt: skip
    even = source.uniform(low, high, 2 * count + 7)
    both = np.concatenate([sizes, even]).astype(kind)
    # Programs flush denormal results, also those on the way, such as a half of the argument.
    is_normal = np.abs(both) >= 4 * np.finfo(kind).tiny
    return both[(both >= case.low) & (both <= case.high) & (is_normal | (case.low > 0))]


def _units_off(found: Any, wanted: Any, kind: type) -> Any:
    """How many units in the last place."""
    rounded = np.abs(wanted).astype(kind)
    unit = np.maximum(np.spacing(rounded), np.finfo(kind).smallest_normal * np.finfo(kind).eps)
    return np.abs(found.astype(np.longdouble) - wanted) / unit.astype(np.longdouble)


def _flushed(wanted: Any, found: Any) -> Any:
    """What is wanted with zeros where programs may flush denormal results."""
    is_flushed = (np.abs(wanted) < np.finfo(wanted.dtype).tiny) & (found == 0)
    return np.where(is_flushed, np.copysign(0, wanted).astype(wanted.dtype), wanted)


def _run(name: str, x: Any) -> Any:
    function = _CASES[name].function or getattr(evergrad, name)
    return evergrad.compile(function)(evergrad.tensor(x)).numpy()


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("name", _CASES)
def test_units_in_the_last_place(name: str, kind: type) -> None:
    case = _CASES[name]
    most = case.single if kind is np.float32 else case.double
    if most is None:
        assert evergrad.core.op.TABLE[name].emit.single
        return
    x = _points(case, kind)
    off = _units_off(_run(name, x), case.exact(x.astype(np.longdouble)), kind)
    worst = int(off.argmax())
    assert off[worst] <= most, f"{name}({x[worst]!r}) is off by {off[worst]} ulp"


_EDGES = [
    math.nan, math.inf, -math.inf, 0.0, -0.0, 88.7228, 88.7229, 3e38, -3e38, -89.0, -1.0, 1.0,
    1e-40, -1e-40, 0.5, -0.5, 2.0, 128.0, -127.0,
]  # fmt: skip


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("name", _CASES)
def test_values_at_the_edges(name: str, kind: type) -> None:
    payload = np.array([0x7FC00155, 0xFFC00001], np.uint32).view(np.float32)
    x = np.concatenate([np.array(_EDGES, np.float32), payload])
    x = np.tile(x, 16).astype(kind)  # in whole vectors, too
    found = _run(name, x)
    function = _CASES[name].function or getattr(evergrad, name)
    with np.errstate(over="ignore"):
        wanted = function(evergrad.tensor(x.astype(np.float64))).numpy().astype(kind)
    wanted = _flushed(wanted, found)
    np.testing.assert_allclose(found, wanted, rtol=2e-6 if kind is np.float32 else 1e-13)
    zeros = (wanted == 0) & (x == 0)
    np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(wanted[zeros]))


def test_large_arguments_near_multiples_of_pi() -> None:
    """The floats that come nearest to a multiple of pi / 2, from continued fractions of pi."""
    near = []
    with mpmath.workdps(80):
        for exponent in range(-2, 104):
            ratio = mpmath.mpf(2) ** exponent * 2 / mpmath.pi
            # The mantissa whose product with the ratio is nearest to an integer.
            low, high = (0, 1), (1, 0)
            value = ratio % 1
            for _ in range(60):
                whole = mpmath.floor(1 / value) if value else 0
                low, high = high, tuple(int(whole) * h + o for h, o in zip(high, low, strict=True))
                value = 1 / value - whole if value else 0
                if not value or high[1] >= 1 << 24:
                    break
                near.append(float(high[1]) * 2.0**exponent)
    x = np.array([v for v in near if 1 <= v < HUGE], np.float32)
    assert len(x) > 200
    for name in ("sin", "cos", "tan"):
        case = _CASES[name]
        off = _units_off(_run(name, x), case.exact(x), np.float32)
        assert off.max() <= case.single, (name, x[off.argmax()])


@pytest.mark.parametrize("name", ["lgamma", "digamma"])
def test_gamma_functions_of_single_precision(name: str) -> None:
    source = np.random.default_rng(1)
    x = np.concatenate(
        [source.uniform(0.01, 30, 1500), source.uniform(-6, 0, 500), np.exp2(np.arange(-60, 100))]
    ).astype(np.float32)
    with mpmath.workdps(40):
        exact = mpmath.loggamma if name == "lgamma" else mpmath.digamma
        wanted = np.array([float(mpmath.re(exact(mpmath.mpf(float(v))))) for v in x])
    found = _compiled(name)(evergrad.tensor(x)).numpy()
    # Near a zero the bound is that of its surroundings.
    unit = np.spacing(np.maximum(np.abs(wanted), 1e-2).astype(np.float32))
    assert (np.abs(found - wanted) / unit).max() <= 4
    edges = np.array([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, 2.0, -1.0, -2.0], np.float32)
    np.testing.assert_allclose(
        _compiled(name)(evergrad.tensor(edges)).numpy(),
        getattr(evergrad, name)(evergrad.tensor(edges)).numpy(),
        rtol=1e-6,
    )


def _compiled(name: str) -> Any:
    return evergrad.compile(getattr(evergrad, name))


_PAIRS = ("atan2", "hypot", "fmod", "remainder", "floor_divide", "copysign", "fmax", "fmin",
          "logaddexp2", "heaviside", "pow")  # fmt: skip


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("name", _PAIRS)
def test_functions_of_two_numbers(name: str, kind: type) -> None:
    """Against eager mode in float64, over all pairs of special and ordinary numbers."""
    edges = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-30, 3e38, -3e38, 2.5, -7.0]
    if name in ("atan2", "copysign"):
        edges += [1e-40, -3e-42]  # which other functions may flush to zero
    numbers = np.random.default_rng(2).standard_normal(20) * 10
    sides = np.concatenate([edges, numbers]).astype(kind)
    a, b = (np.ascontiguousarray(g.reshape(-1)) for g in np.meshgrid(sides, sides))
    function = getattr(evergrad, name)
    found = evergrad.compile(function)(evergrad.tensor(a), evergrad.tensor(b)).numpy()
    wanted = function(*(evergrad.tensor(v.astype(np.float64)) for v in (a, b))).numpy()
    with np.errstate(over="ignore"):
        wanted = wanted.astype(kind)
    if name == "floor_divide":  # the quotient of large floats is rounded in their own type
        wanted = function(evergrad.tensor(a), evergrad.tensor(b)).numpy()
    wanted = _flushed(wanted, found)
    rtol = 5e-7 if kind is np.float32 else 1e-14
    # A logarithm near 1 has the error of its terms.
    np.testing.assert_allclose(found, wanted, rtol, atol=rtol if name == "logaddexp2" else 0)
    numbers_of = ~np.isnan(wanted)
    # Which of two equal zeros is not specified.
    if name not in ("fmax", "fmin", "heaviside", "logaddexp2"):
        np.testing.assert_array_equal(np.signbit(found[numbers_of]), np.signbit(wanted[numbers_of]))


def test_atan2_is_exact_to_three_units() -> None:
    source = np.random.default_rng(3)
    a, b = (
        (np.exp2(source.uniform(-60, 60, 20_000)) * source.choice([-1, 1], 20_000)).astype("f4")
        for _ in range(2)
    )
    found = evergrad.compile(evergrad.atan2)(evergrad.tensor(a), evergrad.tensor(b)).numpy()
    wanted = np.arctan2(a.astype(np.longdouble), b.astype(np.longdouble))
    assert _units_off(found, wanted, np.float32).max() <= 3


def test_powers_are_exact_to_one_unit() -> None:
    source = np.random.default_rng(4)
    x = np.exp2(source.uniform(-20, 20, 40_000)).astype("f4")
    y = source.uniform(-5, 5, 40_000).astype("f4")
    x[::3], y[::3] = -x[::3], np.rint(y[::3])
    found = evergrad.compile(evergrad.pow)(evergrad.tensor(x), evergrad.tensor(y)).numpy()
    wanted = np.power(x.astype(np.longdouble), y.astype(np.longdouble))
    assert _units_off(found, wanted, np.float32).max() <= 1


def test_powers_of_float64_are_exact_to_one_unit() -> None:
    """Large and small bases, and bases near 1 with large exponents."""
    source = np.random.default_rng(4)
    near = 1 + source.uniform(-1e-3, 1e-3, 20_000)
    x = np.concatenate([np.exp(source.uniform(-600, 600, 20_000)), near])
    y = np.concatenate([source.uniform(-1.1, 1.1, 20_000), source.uniform(-6e5, 6e5, 20_000)])
    x[::3], y[::3] = -x[::3], np.rint(y[::3])
    found = evergrad.compile(evergrad.pow)(evergrad.tensor(x), evergrad.tensor(y)).numpy()
    wanted = np.power(x.astype(np.longdouble), y.astype(np.longdouble))
    assert _units_off(found, wanted, np.float64).max() <= 1


def test_special_powers_of_float64() -> None:
    values = [0.0, 1.0, 2.0, 0.5, 3.0, math.inf, 1e300, 2.0**53, 1.5]
    values = [*values, *(-v for v in values), math.nan]
    x, y = (grid.ravel() for grid in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        wanted = np.power(x, y)
    found = evergrad.compile(evergrad.pow)(evergrad.tensor(x), evergrad.tensor(y)).numpy()
    np.testing.assert_allclose(found, wanted, rtol=3e-16)
    there = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(found[there]), np.signbit(wanted[there]))


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("exponent", [3, -1, -2, 4, 5, -3, -4, 7.0, -0.5, 2.5, 0, 1, 33, -2.0])
def test_constant_powers(exponent: float, kind: type) -> None:
    """Eager and compiled, for numbers of both signs and special ones: as in float64."""
    edges = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 2.5, -7.0, 0.1]
    numbers = np.random.default_rng(5).standard_normal(30) * 3
    x = np.concatenate([edges, numbers]).astype(kind)
    with np.errstate(all="ignore"):
        wanted = np.power(x.astype(np.float64), exponent).astype(kind)
    given = evergrad.tensor(x)
    for found in (given**exponent, evergrad.compile(lambda x: x**exponent)(given)):
        usual = _flushed(wanted, found.numpy())
        np.testing.assert_allclose(found.numpy(), usual, rtol=3 * float(np.finfo(kind).eps))
        there = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(found.numpy()[there]), np.signbit(usual[there]))


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint8, np.int8])
def test_shifts_beyond_the_width(kind: type) -> None:
    """A shift by as many bits as there are, or more, gives what NumPy gives."""
    low = 0 if kind is np.uint8 else -5
    x = np.array([1, 2, 5, 100, low, low], kind)
    for by in (0, 1, 7, 8, 31, 32, 63, 64, 100):
        shift = np.full(6, by, kind)
        for function, reference in (
            (evergrad.bitwise_left_shift, np.left_shift),
            (evergrad.bitwise_right_shift, np.right_shift),
        ):
            found = evergrad.compile(function)(evergrad.tensor(x), evergrad.tensor(shift))
            np.testing.assert_array_equal(found.numpy(), reference(x, shift))
