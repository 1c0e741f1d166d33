"""Compiled pooling: values and gradients as in eager evaluation, without NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import evergrad as eg
import evergrad.nn.functional as F

from .convolutions import TOLERANCES, check, labels, normal, numpy_calls
from .steps import assert_alike, programs_of


def with_special_numbers(dtype: Any) -> Any:
    """Numbers with ties, infinities and NaNs."""
    x = normal((2, 3, 13, 37), eg.float64).mul(2).round()
    x[0, 0, 2:4, 3:6] = float("nan")
    x[0, 1, :, 3:9] = -float("inf")
    x[1, 1, 5:7, 20:30] = float("inf")
    return x.to(dtype)


# Kernel, stride, padding, dilation, ceil_mode.
POOLS = [
    (2, 2, 0, 1, False),
    (3, 2, 1, 1, True),
    ((2, 3), (1, 1), (1, 0), 1, False),
    (3, 3, 1, 2, False),
    ((5, 2), (4, 5), (2, 1), (1, 3), True),
    (13, 13, 0, 1, False),
]


@pytest.mark.parametrize("dtype", list(TOLERANCES), ids=str)
@pytest.mark.parametrize("case", POOLS, ids=str)
def test_max_pool(case: Any, dtype: Any) -> None:
    def step(x: Any) -> Any:
        x = x.detach().requires_grad_()
        out, indices = F.max_pool2d(x, *case, return_indices=True)
        weights = eg.arange(out.numel(), dtype=dtype).reshape(out.shape)
        return out.detach(), indices, eg.autograd.grad(out, x, weights)[0]

    x = with_special_numbers(dtype)
    compiled = eg.compile(step)
    for found, expected in zip(compiled(x), step(x), strict=True):
        np.testing.assert_array_equal(found.array(), expected.array())
    assert numpy_calls(compiled) == []


@pytest.mark.parametrize("dtype", list(TOLERANCES), ids=str)
@pytest.mark.parametrize("case", [*POOLS, (2, 2), ((1, 2), (1, 2)), ((3, 2), (3, 2))], ids=str)
def test_gradient_of_max_pool(case: Any, dtype: Any) -> None:
    """One kernel without a stored argmax, also with the gradient of relu; bitwise equal."""

    def step(x: Any, is_relu: bool) -> Any:
        x = x.detach().requires_grad_()
        out = F.max_pool2d(x.relu() if is_relu else x * 1, *case)
        weights = eg.arange(out.numel(), dtype=dtype).reshape(out.shape)
        return eg.autograd.grad(out, x, weights)[0]

    x = with_special_numbers(dtype)
    x = x[:, :, :12, :36] if len(case) == 2 else x
    for is_relu in (False, True):
        compiled = eg.compile(step)
        found = compiled(x, is_relu)
        np.testing.assert_array_equal(found.array(), step(x, is_relu).array())
        assert "max_pool_input" in labels(compiled)
        assert not {"scatter_sum", "max_pool_places"} & set(labels(compiled))
        assert not any("where" in label for label in labels(compiled))


@pytest.mark.parametrize("case", [(2, 2), (3, 2, 1)], ids=str)
@pytest.mark.parametrize("dims", [(0, 2, 3), (2, 3), (0, 2)], ids=str)
def test_sums_of_the_gradient_of_max_pool(case: Any, dims: Any) -> None:
    """Sums over whole images, as in the gradient of a bias, are over windows; others are not."""

    def step(x: Any, is_relu: bool) -> Any:
        x = x.detach().requires_grad_()
        out = F.max_pool2d(x.relu() if is_relu else x, *case)
        weights = (eg.arange(out.numel(), dtype=out.dtype) % 7).reshape(out.shape)
        return out.detach(), eg.autograd.grad(out, x, weights)[0].sum(dims)

    x = with_special_numbers(eg.float64)[:, :, :12, :36]
    for is_relu in (False, True):
        compiled = eg.compile(step)
        for found, expected in zip(compiled(x, is_relu), step(x, is_relu), strict=True):
            np.testing.assert_array_equal(found.array(), expected.array())
        assert ("max_pool_input" in labels(compiled)) == (dims == (0, 2))


def test_scatters_that_are_no_gradient_of_max_pool() -> None:
    """Into another shape, or under another condition."""
    x, g = normal((2, 3, 8, 8), eg.float32), normal((2, 3, 16), eg.float32, 1)

    def spread(x: Any, g: Any) -> Any:
        _, indices = F.max_pool2d(x, 2, return_indices=True)
        zeros = eg.zeros(2, 3, 100)
        return zeros.scatter_add(2, indices.flatten(2), g)

    def under_another_condition(x: Any, g: Any) -> Any:
        _, indices = F.max_pool2d(x, 2, return_indices=True)
        spread = eg.zeros(2, 3, 64).scatter_add(2, indices.flatten(2), g).reshape(x.shape)
        return eg.where(x * 2 <= 0, 0, spread)

    for function in (spread, under_another_condition):
        np.testing.assert_array_equal(eg.compile(function)(x, g).array(), function(x, g).array())


@pytest.mark.parametrize("case", [c for c in POOLS if c[3] == 1], ids=str)
def test_avg_pool(case: Any) -> None:
    kernel, stride, padding, _, ceil_mode = case
    x = normal((2, 3, 13, 37), eg.float64)
    for count_padding in (False, True):
        check(lambda x, c=count_padding: F.avg_pool2d(x, kernel, stride, padding, ceil_mode, c), x)


def test_pooling_of_sequences() -> None:
    x = normal((3, 4, 29), eg.float32)
    check(lambda x: F.max_pool1d(x, 3, 2, 1) + F.avg_pool1d(x, 3, 2, 1), x)


def test_index_out_of_range() -> None:
    x = normal((3, 4), eg.float64)
    compiled = eg.compile(lambda x, index: x.gather(1, index))
    with pytest.raises((IndexError, RuntimeError)):
        compiled(x, eg.tensor([[0, 1], [2, 4], [0, 0]]))
    index = eg.tensor([[0, 1], [2, 3], [0, 0]])
    assert_alike(compiled(x, index), x.gather(1, index))
    assert numpy_calls(compiled) == []


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize(
    ("shape", "count"),
    [((2, 3, 17, 22), (3, 5)), ((6, 16, 16), (7, 7)), ((4, 5, 33), (10,)), ((2, 5, 40), (64,)),
     ((1, 2, 5, 6, 7), (2, 4, 7)), ((3, 1, 50), (1, 3))],
)  # fmt: skip
def test_windows_of_unequal_extents(shape: Any, count: Any, dtype: str) -> None:
    """Adaptive means with derivatives, without NumPy calls, alike on any number of threads."""
    x = eg.tensor(np.random.default_rng(0).standard_normal(shape)).to(getattr(eg, dtype))
    x.requires_grad_()
    pool = getattr(eg.nn.functional, f"adaptive_avg_pool{len(count)}d")

    def step(x: Any) -> Any:
        y = pool(x, count)
        return y, *eg.autograd.grad((y * y).float().sum(), x)

    expected, results, before = step(x), [], eg.get_num_threads()
    try:
        for threads in (1, 3):
            eg.set_num_threads(threads)
            compiled = eg.compile(step)
            results.append(compiled(x))
    finally:
        eg.set_num_threads(before)
    assert all(i.kernel is not None for p in programs_of(compiled) for i in p.instructions)
    tolerance = 2e-2 if dtype == "bfloat16" else 1e-5
    for wanted, found, again in zip(expected, *results, strict=True):
        a, b, c = (y.detach().double().numpy() for y in (wanted, found, again))
        np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance)
        np.testing.assert_array_equal(b, c)
