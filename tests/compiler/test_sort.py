"""Sorting and selection in compiled functions: the results of eager mode, without NumPy calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.compiler.test_indexed import calls_of

import evergrad as eg
from evergrad.core.bind import bind
from evergrad.ops.rows.reduce.counting import FIRST_OF_SAME

pytestmark = pytest.mark.usefixtures("made_anew")
DTYPES = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "uint8", "bool"]
# Tiny and short lanes, their limits, and longer ones.
EXTENTS = [1, 2, 24, 96, 97, 700]


def numbers(extent: int, dtype: str, *, distinct: bool = False) -> Any:
    """Lanes with ties, or without."""
    rng = np.random.default_rng([extent, len(dtype)])
    if distinct:
        return eg.tensor(rng.permutation(3 * extent).reshape(3, extent)).to(getattr(eg, dtype))
    found = eg.tensor((9 * rng.standard_normal((3, extent))).round()).to(getattr(eg, dtype))
    if found.is_floating_point():
        flat = found.reshape(-1)
        for step, value in ((7, float("nan")), (11, -0.0), (13, 0.0), (17, float("-inf"))):
            flat[::step] = value
        flat[::19] = float("inf")
    return found


def assert_same(function: Any, *given: Any) -> None:
    compiled = eg.compile(function)
    found, expected = compiled(*given), function(*given)
    assert calls_of(compiled) == []
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype is theirs.dtype
        np.testing.assert_array_equal(ours.double().numpy(), theirs.double().numpy())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("extent", EXTENTS)
def test_sort_is_stable(extent: int, dtype: str) -> None:
    x = numbers(extent, dtype)
    assert_same(lambda x: (*x.sort(-1), *x.T.sort(0, descending=True)), x)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "bool"])
@pytest.mark.parametrize("extent", EXTENTS)
def test_medians(extent: int, dtype: str) -> None:
    x = numbers(extent, dtype)
    assert_same(lambda x: (*x.median(-1), *x.nanmedian(0), x.median(), x.nanmedian()), x)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int16"])
@pytest.mark.parametrize("extent, k", [
    (1, 1), (7, 3), (96, 96), (97, 1), (97, 32), (97, 33), (97, 97), (700, 31), (700, 699),
])  # fmt: skip
def test_topk(extent: int, k: int, dtype: str) -> None:
    x = numbers(extent, dtype, distinct=True)
    assert_same(lambda x: (*x.topk(k), *x.topk(k, largest=False), *x.kthvalue(k)), x)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int64", "int32"])
@pytest.mark.parametrize("extent, k", [(20, 6), (300, 20), (300, 120), (900, 60), (4001, 130)])
def test_topk_of_ties_takes_the_first(extent: int, k: int, dtype: str, largest: bool) -> None:
    x = numbers(extent, dtype)
    found = eg.compile(lambda x: tuple(x.topk(k, largest=largest)))(x)
    values, places = found[0].double(), found[1]
    ordered, order = x.double().sort(-1, descending=largest, stable=True)
    np.testing.assert_array_equal(values.numpy(), ordered[:, :k].numpy())
    np.testing.assert_array_equal(places.numpy(), order[:, :k].numpy())


def test_gradients_go_to_the_places_found() -> None:
    x = numbers(200, "float32", distinct=True)

    def gradient(x: Any) -> Any:
        x = x.detach().clone().requires_grad_()
        weight = eg.arange(5.0)
        loss = (x.topk(5)[0] * weight).sum() + (x.sort(0)[0] * 2).sum() + x.median(-1)[0].sum()
        loss.backward()
        return (x.grad,)

    assert_same(gradient, x)


@pytest.mark.parametrize("threads", [1, 2])
def test_long_lanes_and_threads(threads: int) -> None:
    x = eg.tensor(np.random.default_rng(3).standard_normal((5, 9000)).astype(np.float32))
    before = eg.get_num_threads()
    try:
        eg.set_num_threads(threads)
        assert_same(lambda x: (*x.sort(-1), *x.topk(500), x.topk(9)[0]), x)
    finally:
        eg.set_num_threads(before)


@pytest.mark.parametrize("extent", [1, 50, 500])
def test_the_first_of_equal_elements(extent: int) -> None:
    x = eg.tensor(np.random.default_rng(1).integers(-9, 30, extent))
    assert_same(lambda x: (bind(FIRST_OF_SAME, x),), x)
