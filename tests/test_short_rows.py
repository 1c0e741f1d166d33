"""Elementwise rows that broadcast over short last dimensions: the elements of NumPy's own loops."""

from __future__ import annotations

import numpy as np
import pytest

import evergrad as eg

SHAPES = [
    ((100, 1, 2), (1, 100, 2)), ((40, 1, 3), (30, 3)), ((20, 1, 2, 2), (20, 9, 2, 2)),
    ((9, 1, 1), (9, 11, 3)), ((2, 50, 2), (50, 1)), ((16, 1), (16, 2)), ((3, 1, 5), (1, 4, 5)),
    ((12, 2), (2,)), ((12, 1, 7), (1, 1, 7)), ((0, 1, 2), (1, 9, 2)), ((8, 4, 1), (1, 1)),
]  # fmt: skip
ROWS = ("add", "sub", "mul", "div", "maximum", "minimum", "eq", "lt", "atan2", "pow")


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "float16"])
@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_short_rows(shapes: tuple[tuple[int, ...], ...], name: str, dtype: str) -> None:
    random = np.random.default_rng(0)
    a, b = (random.integers(1, 9, shape).astype(dtype) for shape in shapes)
    function = getattr(eg, name)
    found = function(eg.tensor(a), eg.tensor(b))
    wide = np.broadcast_arrays(a, b)
    whole = function(*(eg.tensor(np.array(w)) for w in wide))
    assert found.shape == whole.shape
    assert found.is_contiguous()
    assert found.dtype is whole.dtype
    exact = name not in ("atan2", "pow")  # which native loops round in other ways
    rtol = 1e-3 if dtype == "float16" else 0 if exact else 1e-6
    np.testing.assert_allclose(found.numpy(), whole.numpy(), rtol=rtol)
    strided = function(
        eg.tensor(np.stack([a, a], -1))[..., 0], eg.tensor(np.stack([b, b], -1))[..., 1]
    )
    np.testing.assert_array_equal(strided.numpy(), found.numpy())


def test_gradients_of_pairwise_differences() -> None:
    x = eg.tensor(np.random.default_rng(0).standard_normal((30, 2))).requires_grad_()
    (x[:, None, :] - x[None, :, :]).square().sum().backward()
    expected = 4 * (30 * x.detach() - x.detach().sum(0))
    assert eg.allclose(x.grad, expected)


def test_in_place() -> None:
    x, y = eg.ones(40, 30, 2), eg.arange(60.0).reshape(30, 2)
    x += y
    x *= y[:, :1]
    expected = (1 + y.numpy()) * y.numpy()[:, :1]
    np.testing.assert_array_equal(x.numpy(), np.broadcast_to(expected, (40, 30, 2)))
