"""Kernels of scans and positions of extremes: bitwise what NumPy's evaluation of the rows gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.compiler.native import jit
from evergrad.core.eager.fusion import eager_kernels

pytestmark = pytest.mark.skipif(not jit.can_jit(), reason="the system lets no process make code")

_SHAPES = [(7,), (1, 1), (130, 3), (5, 200), (3, 9, 65), (2, 40, 128), (4000, 2), (1001,), (9, 17)]


def _numbers(shape: tuple[int, ...], dtype: str) -> Any:
    source = np.random.default_rng(len(shape))
    if dtype == "int64":
        return source.integers(-4, 5, shape)
    return (source.integers(-6, 7, shape) / 5 + 1).astype(dtype)  # with equal ones


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "argmax", "argmin"])
def test_as_numpy_along_every_dimension(name: str, dtype: str) -> None:
    for shape in _SHAPES:
        x = eg.tensor(_numbers(shape, dtype))
        for dim in range(len(shape)):
            compiled = eg.compile(lambda x, dim=dim: getattr(eg, name)(x, dim=dim))
            found = compiled(x)
            with eager_kernels(False):
                expected = getattr(eg, name)(x, dim=dim)
            assert found.dtype is expected.dtype
            np.testing.assert_array_equal(found.numpy(), expected.numpy())
            assert "NumPy calls (" not in str(compiled.explain(x))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_not_a_number_is_the_extreme(name: str) -> None:
    nan, inf = float("nan"), float("inf")
    rows = [
        [1, nan, 2, nan], [nan, inf, 1, 2], [-inf, -inf, -inf, -inf], [inf, 1, inf, 0],
        [0.0, -0.0, 0.0, -0.0], [2, 2, 3, 3], [nan, nan, nan, nan],
    ]  # fmt: skip
    x = eg.tensor(rows)
    found = eg.compile(lambda x: getattr(eg, name)(x, dim=1))(x).numpy()
    np.testing.assert_array_equal(found, getattr(np, name)(x.numpy(), 1))


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_extremes_wherever_they_are(name: str, dim: int) -> None:
    """Equal extremes, NaNs and infinities in all lanes of a register and behind the last whole one:
    the first one is found."""
    source = np.random.default_rng(0)
    x = source.integers(0, 5, (97, 131)).astype(np.float32)
    for value in (9, -9, np.nan, np.inf, -np.inf):
        for line in range(97):
            x[line, source.integers(0, 131, 2)] = value if line % 3 else 0
    x[5], x[:, 7] = 1, np.nan
    found = eg.compile(lambda x: getattr(eg, name)(x, dim=dim))(eg.tensor(x)).numpy()
    np.testing.assert_array_equal(found, getattr(np, name)(x, dim))


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_gradients_of_scans(name: str) -> None:
    def step(x: Any) -> Any:
        x = x.detach().requires_grad_()
        (getattr(eg, name)(x, dim=1) ** 2).sum().backward()
        return x.grad

    x = eg.tensor(_numbers((6, 9, 5), "float64"))
    np.testing.assert_allclose(eg.compile(step)(x).numpy(), step(x).numpy(), rtol=1e-10)


def test_results_do_not_depend_on_threads() -> None:
    x = eg.tensor(np.random.default_rng(0).standard_normal((300, 50, 70)).astype(np.float32))
    compiled = eg.compile(lambda x: (eg.cumsum(x, 1), eg.argmax(x, 1)))
    before, found = eg.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            eg.set_num_threads(threads)
            found.append([part.numpy() for part in compiled(x)])
    finally:
        eg.set_num_threads(before)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_scans_of_eager_mode() -> None:
    """From a size on they are kernels, of the same bits; strides make no difference."""
    x = eg.tensor(_numbers((40, 60), "float32"))
    for given in (x, x.t(), x[::2]):
        with eager_kernels(False):
            expected = given.cumsum(1).numpy()
        np.testing.assert_array_equal(given.cumsum(1).numpy(), expected)
