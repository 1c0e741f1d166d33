"""Reductions by native loops: every shape, direction and special value as with NumPy."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import evergrad as eg
from evergrad.core.eager import reductions
from evergrad.core.eager.fusion import eager_kernels

SHAPES = [
    (128,), (1000,), (5000,), (32, 32), (33, 37), (3, 1, 50), (4, 5, 67), (1000, 3), (300, 17),
    (2, 300, 9), (64, 2100), (1, 129), (257, 16), (2, 3, 4, 40), (1, 1), (3,),
]  # fmt: skip
TOLERANCE = {"float32": 2e-6, "float64": 1e-14}
REFERENCE = {
    "sum": np.sum, "mean": np.mean, "amax": np.max, "amin": np.min,
    "norm": lambda x, axis, keepdims: np.sqrt(np.sum(x * x, axis, keepdims=keepdims)),
}  # fmt: skip


def spoiled(array: np.ndarray, special: str) -> np.ndarray:
    flat = array.reshape(-1)
    if special == "nan":
        flat[flat.size // 2] = math.nan
    if special in ("inf", "both"):
        flat[-1] = math.inf
    if special == "both":
        flat[0] = -math.inf
    return array


def subsets(rank: int) -> list[tuple[int, ...]]:
    return [d for r in range(1, rank + 1) for d in itertools.combinations(range(rank), r)]


@pytest.mark.parametrize("special", ["", "nan", "inf", "both"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_reductions_agree_with_numpy(shape: tuple[int, ...], dtype: str, special: str) -> None:
    array = spoiled(np.random.default_rng(0).standard_normal(shape).astype(dtype), special)
    x = eg.tensor(array)
    wide = array.astype(np.float64)
    for dims, keepdim, (name, reference) in itertools.product(
        subsets(len(shape)), (False, True), REFERENCE.items()
    ):
        with np.errstate(all="ignore"), eager_kernels(True, 1):
            expected = reference(wide, axis=dims, keepdims=keepdim)
            found = x.norm(2, dims, keepdim) if name == "norm" else getattr(x, name)(dims, keepdim)
        assert found.dtype is x.dtype
        assert found.shape == expected.shape
        scale = max(1.0, math.sqrt(array.size)) * TOLERANCE[dtype]
        np.testing.assert_allclose(found.numpy(), expected, rtol=scale, atol=scale)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products_agree_with_numpy(shape: tuple[int, ...], dtype: str) -> None:
    array = np.random.default_rng(1).uniform(0.9, 1.1, shape).astype(dtype)
    for dim in range(len(shape)):
        with eager_kernels(True, 1):
            found = eg.tensor(array).prod(dim).numpy()
        tolerance = 500 * TOLERANCE[dtype]
        np.testing.assert_allclose(found, array.astype(np.float64).prod(dim), rtol=tolerance)


@pytest.mark.parametrize("shape, dim", [((1 << 22,), 0), ((1 << 18, 16), 0), ((4, 1 << 20), 1)])
def test_long_sums_lose_nothing(shape: tuple[int, ...], dim: int) -> None:
    """The error of a sum of millions is that of one block."""
    array = np.full(shape, 0.1, np.float32)
    found = eg.tensor(array).sum(dim).numpy()
    expected = np.full(found.shape, float(np.float32(0.1)) * shape[dim])
    np.testing.assert_allclose(found, expected, rtol=3e-7)


def test_many_shapes_share_machine_code() -> None:
    eg.ones(20, 20).sum(1)
    before = len(reductions._kernels)
    for n in range(20, 60):
        assert float(eg.ones(n, 20).sum(1).sum()) == 20 * n
    assert len(reductions._kernels) == before


def test_other_layouts_take_the_plain_path() -> None:
    array = np.random.default_rng(2).standard_normal((40, 50)).astype(np.float32)
    x = eg.tensor(array)
    for view, expected in [
        (x.t(), array.T), (x[:, ::2], array[:, ::2]), (x[1:, 3:], array[1:, 3:]),
        (x[:1].expand(40, 50), np.broadcast_to(array[:1], (40, 50))),
    ]:  # fmt: skip
        np.testing.assert_allclose(view.sum(1).numpy(), expected.sum(1), rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(view.amax(0).numpy(), expected.max(0))
    locked = array.copy()
    locked.flags.writeable = False
    np.testing.assert_array_equal(eg.from_numpy(locked.copy()).amin(1).numpy(), array.min(1))


def test_empty_dimensions_stay_as_they_were() -> None:
    assert eg.zeros(0, 5).sum(0).tolist() == [0.0] * 5
    assert eg.zeros(5, 0).sum(1).tolist() == [0.0] * 5
    with pytest.raises(IndexError):
        eg.zeros(5, 0).amax(1)


def test_gradients_through_reductions() -> None:
    x = eg.randn(30, 20, dtype=eg.float64, requires_grad=True)
    for f in (lambda t: t.sum(1), lambda t: t.mean(0), lambda t: t.amax(1), lambda t: t.norm()):
        assert eg.autograd.gradcheck(f, (x,))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(200, 300), (5, 9000), (9000, 5), (1, 20000)], ids=str)
def test_large_transposed_matrices(shape: tuple[int, int], dtype: str) -> None:
    array = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    x = eg.tensor(array).t()
    wide = array.T.astype(np.float64)
    for dim, keepdim, (name, reference) in itertools.product(
        (0, 1), (False, True), REFERENCE.items()
    ):
        found = x.norm(2, dim, keepdim) if name == "norm" else getattr(x, name)(dim, keepdim)
        expected = reference(wide, axis=dim, keepdims=keepdim)
        assert found.shape == expected.shape
        scale = math.sqrt(array.size) * TOLERANCE[dtype]
        np.testing.assert_allclose(found.numpy(), expected, rtol=scale, atol=scale)
