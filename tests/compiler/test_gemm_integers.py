"""Matrix products of integers in compiled programs: NumPy's results, which wrap around, without
NumPy calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.compiler.test_indexed import calls_of

import evergrad as eg

from .steps import num_threads

DTYPES = ["int64", "int32", "int16", "int8", "uint8"]
SHAPES = [
    ((1, 1), (1, 1)), ((3, 5), (5, 7)), ((17, 33), (33, 65)), ((20, 9), (9, 130)), ((5, 4), (4, 1)),
    ((6, 3, 5), (6, 5, 4)), ((2, 3, 4, 5), (5, 6)), ((4, 5), (3, 5, 2)), ((1, 3, 4), (5, 4, 2)),
]  # fmt: skip


def integers(shape: Any, dtype: str, seed: int = 0) -> Any:
    info = np.iinfo(dtype)
    values = np.random.default_rng(seed).integers(info.min, info.max, shape, dtype, endpoint=True)
    return eg.tensor(values)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("one, other", SHAPES)
def test_products(one: Any, other: Any, dtype: str) -> None:
    a, b = integers(one, dtype), integers(other, dtype, 1)
    compiled = eg.compile(lambda a, b: a @ b)
    with np.errstate(over="ignore"):
        expected = np.matmul(a.numpy(), b.numpy())
    np.testing.assert_array_equal(compiled(a, b).numpy(), expected)
    assert calls_of(compiled) == []


@pytest.mark.parametrize("dtype", ["int64", "int8"])
def test_strides_threads_and_linear(dtype: str) -> None:
    a, b = integers((70, 40), dtype), integers((40, 90), dtype, 1)

    def products(a: Any, b: Any) -> Any:
        return a @ b, a.T[:, ::2] @ a[::2], eg.nn.functional.linear(a, b.T), a @ b[:, 0]

    found = []
    for threads in (1, 2):
        compiled = eg.compile(products)
        with num_threads(threads):
            found.append([x.numpy() for x in compiled(a, b)])
        assert calls_of(compiled) == []
    for one, other, expected in zip(*found, products(a, b), strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(one, expected.numpy())


def test_empty_products() -> None:
    compiled = eg.compile(lambda a, b: a @ b)
    assert compiled(integers((3, 0), "int64"), integers((0, 2), "int64")).tolist() == [[0, 0]] * 3
