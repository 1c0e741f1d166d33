"""Recurrences and running extremes in compiled functions: the results of eager mode and PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.compiler.test_indexed import calls_of

import evergrad as eg
from evergrad.ops.rows.reduce.scan import recur

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("made_anew")
SHAPES = [((7,), 0), ((1,), 0), ((5, 300), 1), ((300, 5), 0), ((3, 40, 6), 1), ((2, 30, 37), 1)]
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, -300.0, 300.0]


def numbers(shape: Any, special: bool) -> Any:
    x = 4 * np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)
    if special:
        flat = x.reshape(-1)
        for n, value in enumerate(SPECIAL):
            flat[n + 1 :: 11 + n] = value
    return x


def compiled(function: Any, *given: Any) -> Any:
    step = eg.compile(function)
    found = step(*given)
    assert calls_of(step) == []
    return found


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int16", "uint8"])
@pytest.mark.parametrize("shape, dim", SHAPES)
def test_running_extremes(shape: Any, dim: int, dtype: str, special: bool) -> None:
    is_float = dtype.startswith("float")
    x = eg.tensor(numbers(shape, special and is_float).round()).to(getattr(eg, dtype))
    for name in ("cummax", "cummin"):
        found = compiled(lambda x, name=name: tuple(getattr(x, name)(dim)), x)
        theirs = getattr(torch.from_numpy(x.numpy()), name)(dim)
        for ours, eager, torchs in zip(found, getattr(x, name)(dim), theirs, strict=True):
            np.testing.assert_array_equal(ours.numpy(), eager.numpy())
            np.testing.assert_array_equal(ours.numpy(), torchs.numpy())


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32"])
@pytest.mark.parametrize("length", [31, 32, 33, 100, 4097])
def test_running_extremes_of_long_rows(length: int, dtype: str) -> None:
    """Ties, both zeros, infinities and NaN, in whole registers and in the last one."""
    x = np.random.default_rng(length).integers(-6, 7, (5, length)).astype(dtype)
    if dtype.startswith("float"):
        x[1], x[1, ::3] = -0.0, 0.0
        x[2, length // 2], x[3, 3], x[4] = np.nan, np.inf, -np.inf
    for name in ("cummax", "cummin"):
        found = compiled(lambda x, name=name: getattr(x, name)(1), eg.tensor(x))
        expected = getattr(torch.tensor(x), name)(1)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape, dim", SHAPES)
def test_logcumsumexp(shape: Any, dim: int, dtype: str, special: bool) -> None:
    x = numbers(shape, special).astype(dtype)
    found = compiled(lambda x: x.logcumsumexp(dim), eg.tensor(x))
    expected = torch.logcumsumexp(torch.tensor(x), dim).numpy()
    assert found.numpy().dtype == x.dtype
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("order", [
    [np.nan, 1], [1, np.nan, 2], [-np.inf] * 3, [-np.inf, -300, 5], [np.inf, 1, np.inf],
    [1, np.inf, -np.inf], [100, -np.inf, 100], [-500, 500, -500], [np.inf, np.nan],
    [-np.inf, np.inf], [88, np.inf, 88], [-1e30, 1e30], [3e38, 3e38],
])  # fmt: skip
def test_logcumsumexp_of_extremes(order: list[float]) -> None:
    x = np.array(order, np.float32)
    found = compiled(lambda x: x.logcumsumexp(0), eg.tensor(x))
    np.testing.assert_allclose(found.numpy(), torch.logcumsumexp(torch.tensor(x), 0).numpy())


@pytest.mark.parametrize("shape, dim", SHAPES)
def test_gradient_of_logcumsumexp(shape: Any, dim: int) -> None:
    def gradient(t: Any, x: Any) -> Any:
        x = x.detach().clone().requires_grad_()
        weight = t.arange(1.0, 1.0 + x.numel()).reshape(x.shape) / x.numel()
        (x.logcumsumexp(dim) * weight).sum().backward()
        return x.grad

    x = numbers(shape, False)
    found = compiled(lambda x: gradient(eg, x), eg.tensor(x))
    expected = gradient(torch, torch.tensor(x))
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape, dim", SHAPES)
def test_linear_recurrences(shape: Any, dim: int, dtype: str, reverse: bool) -> None:
    a, b = (0.2 * numbers(shape, False).astype(dtype) for _ in range(2))
    a = np.flip(a, -1)
    np.moveaxis(a, dim, 0)[-1 if reverse else 0] = np.inf  # which nothing reads
    found = compiled(lambda a, b: recur(a, b, dim, reverse), eg.tensor(a.copy()), eg.tensor(b))
    order = slice(None, None, -1) if reverse else slice(None)
    factors, added = (np.moveaxis(v, dim, 0)[order].astype(np.float64) for v in (a, b))
    state, states = added[0], [added[0]]
    for factor, more in zip(factors[1:], added[1:], strict=True):
        state = factor * state + more
        states.append(state)
    expected = np.moveaxis(np.array(states)[order], 0, dim)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6, atol=1e-6)
