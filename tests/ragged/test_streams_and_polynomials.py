"""Windows and pyramids over streams; values as polynomials."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evergrad as eg
from evergrad import ragged
from evergrad.autograd import gradcheck
from evergrad.ragged import Pyramid, Tensor, Window


def stream(count: int) -> list[Tensor]:
    return [ragged.tensor(np.full(n % 3 + 1, n + 1.0)) for n in range(count)]


@settings(max_examples=60, deadline=None)
@given(count=st.integers(0, 12), size=st.integers(1, 5), data=st.data())
def test_windows_are_the_stacks_of_slices(count: int, size: int, data: st.DataObject) -> None:
    stride = data.draw(st.integers(1, size))
    values = stream(count)
    starts = [s for s in range(0, count, stride) if s + size <= count]
    expected = [ragged.stack(values[s : s + size]) for s in starts]
    covered = starts[-1] + size if starts else 0
    if covered < count:
        expected.append(ragged.stack(values[(starts[-1] + stride) if starts else 0 :]))
    found = list(ragged.windows(values, size, stride))
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape and a == b


def test_a_window_can_be_used_again_after_a_flush() -> None:
    window = Window(2)
    assert window.push(ragged.one()) is None
    assert window.flush() == ragged.stack([ragged.one()])
    assert window.flush() is None
    assert window.push(ragged.one()) is None
    made = window.push(ragged.tensor([1.0, 2.0]))
    assert made is not None and made.tolist() == [[1, 0], [1, 2]]
    assert window.flush() is None


def test_a_pyramid_stacks_stacks() -> None:
    pyramid = Pyramid(2, 3)
    values = stream(8)
    made = [pyramid.push(value) for value in values]
    assert [m is not None for m in made] == [False] * 7 + [True]
    assert made[-1] is not None and made[-1].shape == (2, 2, 2, 3)
    pairs = [ragged.stack(values[i : i + 2]) for i in range(0, 8, 2)]
    fours = [ragged.stack(pairs[i : i + 2]) for i in (0, 2)]
    assert made[-1] == ragged.stack(fours)
    assert pyramid.flush() == []


@pytest.mark.parametrize("count", range(9))
def test_a_flushed_pyramid_has_every_value_once(count: int) -> None:
    pyramid = Pyramid(2, 3)
    values = stream(count)
    tops = [top for value in values if (top := pyramid.push(value)) is not None]
    tops += pyramid.flush()
    assert sum(ragged.sum(top).item() for top in tops) == sum(ragged.sum(v).item() for v in values)
    assert all(top.ndim == 4 for top in tops)
    assert pyramid.flush() == []


def test_wrong_windows() -> None:
    for size, stride in [(0, None), (2, 3), (2, 0)]:
        with pytest.raises(ValueError, match="stride <= size"):
            Window(size, stride)
    with pytest.raises(ValueError, match="one level"):
        Pyramid(2, 0)
    with pytest.raises(TypeError, match=r"ragged\.Tensor"):
        Window(2).push(eg.ones(2))  # type: ignore[arg-type]


# -- polynomials --------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (0,), (1,), (4,), (2, 3), (3, 1, 2), (2, 0)])
@pytest.mark.parametrize("points", [(), (4,), (2, 3)])
def test_values_at_points(shape: tuple[int, ...], points: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    c = rng.standard_normal(shape)
    xs = [rng.standard_normal(points) for _ in range(max(len(shape), 1))]
    expected = np.zeros(points)
    for at in np.ndindex(shape):
        expected += c[at] * np.prod([x**i for x, i in zip(xs, at, strict=False)], axis=0)
    found = ragged.evaluate(ragged.tensor(c), *map(eg.tensor, xs))
    assert tuple(found.shape) == points
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-12)


def test_points_broadcast_and_may_be_missing() -> None:
    c = ragged.tensor([[1.0, 2.0], [3.0, 4.0]])
    x, y = eg.tensor([[1.0], [2.0]]), eg.tensor([1.0, 2.0, 3.0])
    grid = ragged.evaluate(c, x, y)
    assert grid.shape == (2, 3)
    assert grid[1, 2].item() == ragged.evaluate(c, 2.0, 3.0).item() == 1 + 6 + 6 + 24
    assert ragged.evaluate(c, 2.0).item() == 7  # the second coordinate is zero
    assert ragged.evaluate(c, 1.0, 1.0, 5.0).item() == 10  # constant in the third


def test_evaluation_has_derivatives_by_coefficients_and_points() -> None:
    c = eg.randn(2, 3, dtype=eg.float64, requires_grad=True)
    x, y = (eg.randn(4, dtype=eg.float64, requires_grad=True) for _ in range(2))
    assert gradcheck(lambda c, x, y: ragged.evaluate(ragged.Tensor(c), x, y), (c, x, y))


@pytest.mark.parametrize("given", [[2.0, -3.0, 1.0], [0.0, 0.0, 1.0], [1.0], [5.0, 1.0, 0.0, 0.0]])
def test_roots(given: list[float]) -> None:
    found = ragged.roots(ragged.tensor(given, eg.float64)).numpy()
    expected = np.polynomial.Polynomial(np.trim_zeros(given, "b")).roots()
    np.testing.assert_allclose(np.sort_complex(found), np.sort_complex(expected), atol=1e-6)


def test_roots_move_with_the_coefficients() -> None:
    c = eg.tensor([2.0, -3.0, 1.0], dtype=eg.float64, requires_grad=True)
    assert gradcheck(lambda c: ragged.roots(ragged.Tensor(c)).real.sort()[0], (c,))
    with pytest.raises(ValueError, match="not zero"):
        ragged.roots(ragged.zero())


@pytest.mark.parametrize("domain", [[-1, 1], [0, 4]])
def test_polynomials_of_numpy(domain: list[float]) -> None:
    p = np.polynomial.Polynomial([1.0, 2.0, 3.0], domain=domain)
    value = ragged.from_polynomial(p)
    assert ragged.evaluate(value, 0.7).item() == pytest.approx(p(0.7))
    again = ragged.to_polynomial(value)
    assert again(0.3) == pytest.approx(p(0.3))
    assert ragged.to_polynomial(ragged.zero())(5.0) == 0
    product = ragged.to_polynomial(ragged.convolve(value, value))
    assert product(0.3) == pytest.approx(p(0.3) ** 2)


@pytest.mark.parametrize("kind", ["Chebyshev", "Legendre", "Hermite", "HermiteE", "Laguerre"])
def test_polynomials_in_another_basis(kind: str) -> None:
    p = getattr(np.polynomial, kind)([1.0, 2.0, 3.0], domain=[0, 2])
    assert ragged.evaluate(ragged.from_polynomial(p), 0.7).item() == pytest.approx(p(0.7))


@pytest.mark.parametrize(
    "point", [0.5, 1j, 2, True, np.float32(0.25), np.array([0.5, 2.0]), [1, 2]]
)
@pytest.mark.parametrize("dtype", [eg.int64, eg.float32, eg.float64, eg.complex64])
def test_points_of_any_type(point: Any, dtype: Any) -> None:
    found = ragged.evaluate(ragged.tensor([1, 2, 3], dtype), point)
    x = np.asarray(point)
    np.testing.assert_allclose(found.numpy(), 1 + 2 * x + 3 * x**2, rtol=1e-6)
    assert found.dtype is dtype or found.dtype.category > dtype.category


def test_a_column_is_a_polynomial_in_one_variable() -> None:
    assert ragged.to_polynomial(ragged.tensor([[1.0], [2.0]]))(3.0) == 7
    with pytest.raises(ValueError, match="one variable"):
        ragged.to_polynomial(ragged.tensor([[1.0, 2.0]]))
