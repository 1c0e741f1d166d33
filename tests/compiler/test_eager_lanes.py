"""Reads and writes at indices and the largest few of rows, by native loops: as with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.compiler.native import jit
from evergrad.core.eager import lanes
from evergrad.core.eager.fusion import eager_kernels

pytestmark = pytest.mark.skipif(not jit.can_jit(), reason="the system lets no process make code")

SHAPES = [((40, 30), 0), ((40, 30), 1), ((4, 5, 60), 1), ((4, 5, 60), 0), ((700,), 0), ((3, 9), 1)]


def _both(call: Any) -> tuple[Any, Any]:
    with eager_kernels(True, 1):
        found = call()
    with eager_kernels(False):
        return found, call()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8", "bool", "complex64"])
@pytest.mark.parametrize("shape, dim", SHAPES, ids=str)
def test_gather(shape: Any, dim: int, dtype: str) -> None:
    rng = np.random.default_rng(0)
    x = eg.tensor((rng.uniform(-5, 5, shape) * 20).astype(dtype))
    for many in (1, 7, shape[dim]):
        counts = (*shape[:dim], many, *shape[dim + 1 :])
        index = eg.tensor(rng.integers(0, shape[dim], counts))
        found, expected = _both(lambda index=index: x.gather(dim, index))
        np.testing.assert_array_equal(found.numpy(), expected.numpy())


@pytest.mark.parametrize("wrong", [-1, 40, 1 << 40])
def test_indices_out_of_bounds_are_reported(wrong: int) -> None:
    x = eg.randn(40, 30)
    index = eg.zeros(40, 30, dtype=eg.int64)
    index[39, 29] = wrong
    with pytest.raises(RuntimeError, match="out of bounds"):
        x.gather(0, index)
    with pytest.raises(RuntimeError, match="out of bounds"):
        x.scatter_add(0, index, x)
    with pytest.raises((RuntimeError, IndexError), match="out of"):
        x.index_add(0, index[:, 29], x)


def test_an_index_smaller_than_the_input() -> None:
    x = eg.arange(200.0).reshape(10, 20)
    index = eg.tensor([[3, 1, 2], [0, 9, 5]])
    np.testing.assert_array_equal(x.gather(0, index).numpy(), [[60, 21, 42], [0, 181, 102]])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape, dim", SHAPES, ids=str)
def test_scatter_add_in_the_order_of_the_source(shape: Any, dim: int, dtype: str) -> None:
    rng = np.random.default_rng(1)
    source = eg.tensor(rng.standard_normal(shape).astype(dtype), requires_grad=True)
    index = eg.tensor(rng.integers(0, shape[dim], shape))
    target = eg.tensor(rng.standard_normal(shape).astype(dtype))
    found, expected = _both(lambda: target.scatter_add(dim, index, source))
    np.testing.assert_array_equal(found.detach().numpy(), expected.detach().numpy())
    found, expected = _both(
        lambda: eg.autograd.grad((source.gather(dim, index) * target).sum(), source)[0]
    )
    np.testing.assert_array_equal(found.numpy(), expected.numpy())


@pytest.mark.parametrize("shape, dim", SHAPES, ids=str)
def test_index_add_in_the_order_of_the_source(shape: Any, dim: int) -> None:
    rng = np.random.default_rng(2)
    for many in (1, 5, 3 * shape[dim]):
        counts = (*shape[:dim], many, *shape[dim + 1 :])
        source = eg.tensor(rng.standard_normal(counts))
        index = eg.tensor(rng.integers(0, shape[dim], many))
        found, expected = _both(
            lambda i=index, s=source: eg.zeros(shape, dtype=eg.float64).index_add(dim, i, s)
        )
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-14, atol=1e-14)


def test_a_source_that_overlaps_its_target() -> None:
    x = eg.arange(400.0).reshape(20, 20)
    index = eg.arange(20).flip(0)
    expected = x.clone().index_add(0, index, x.clone())
    np.testing.assert_array_equal(x.index_add(0, index, x).numpy(), expected.numpy())


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(7, 100), (3, 4, 33), (1000,), (1, 300), (50, 21), (2, 5000)])
def test_topk(shape: Any, dtype: str, largest: bool) -> None:
    rng = np.random.default_rng(3)
    array = rng.standard_normal(shape).astype(dtype)
    array.flat[::17] = 0.0
    array.flat[5::17] = -0.0
    array.flat[3::29] = np.inf
    array.flat[4::31] = -np.inf
    array.flat[9::37] = np.nan
    for k in (1, 2, 5, 16, 64):
        if k * 4 > shape[-1]:
            continue
        values, places = eg.tensor(array).topk(k, -1, largest)
        keys = np.where(np.isnan(array), np.inf, array)
        is_nan = np.isnan(array)
        order = np.lexsort((-keys, ~is_nan) if largest else (keys, is_nan), axis=-1)[..., :k]
        np.testing.assert_array_equal(places.numpy(), order)
        np.testing.assert_array_equal(values.numpy(), np.take_along_axis(array, order, -1))


def test_topk_of_equal_and_of_sorted_rows() -> None:
    assert eg.zeros(3, 100).topk(4).indices.tolist() == [[0, 1, 2, 3]] * 3
    up = eg.arange(200.0)
    assert up.topk(3).indices.tolist() == [199, 198, 197]
    assert (-up).topk(3).indices.tolist() == [0, 1, 2]
    assert up.topk(3, largest=False).indices.tolist() == [0, 1, 2]
    assert lanes.topk(np.zeros((2, 8)), 7, True) is None  # most of a row: by sorting


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint8, np.bool_])
def test_writes_at_indices_as_numpy_writes(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    array = rng.integers(0, 200, (3, 40, 5)).astype(dtype)
    for dim in range(3):
        for count in (1, 4, 9):
            index = rng.integers(0, array.shape[dim], count)  # the last of equal ones stays
            shape = (*array.shape[:dim], count, *array.shape[dim + 1 :])
            source = rng.integers(0, 200, shape).astype(dtype)
            wanted = array.copy()
            wanted[(slice(None),) * dim + (index,)] = source
            x = eg.tensor(array)
            made = x.index_copy(dim, eg.tensor(index), eg.tensor(source))
            assert np.array_equal(made.numpy(), wanted)
            x.index_copy_(dim, eg.tensor(index), eg.tensor(source))
            assert np.array_equal(x.numpy(), wanted)
        places = rng.integers(0, array.shape[dim], array.shape)
        wanted = array.copy()
        np.put_along_axis(wanted, places[:, :, :], array[::-1], dim)
        x = eg.tensor(array)
        x.scatter_(dim, eg.tensor(places), eg.tensor(np.ascontiguousarray(array[::-1])))
        assert np.array_equal(x.numpy(), wanted)


def test_writes_out_of_bounds_write_nothing() -> None:
    for bad in (-1, 8):
        x, source = eg.zeros(8, 6), eg.ones(2, 6)
        with pytest.raises((IndexError, RuntimeError)):
            x.index_copy_(0, eg.tensor([1, bad]), source)
        with pytest.raises((IndexError, RuntimeError)):
            x.index_copy_(0, eg.tensor([bad]), source[:1])
        with pytest.raises((IndexError, RuntimeError)):
            x.scatter_(0, eg.tensor([[1] * 6, [bad] * 6]), source)
        assert not x.any()


def test_a_single_place_of_a_strided_target() -> None:
    x = eg.zeros(6, 4)
    x.t().index_copy_(0, eg.tensor([2]), eg.ones(1, 6))
    assert eg.equal(x[:, 2], eg.ones(6)) and float(x.sum()) == 6
