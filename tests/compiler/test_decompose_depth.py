"""Convolution and pooling over three dimensions in compiled programs: PyTorch's results and
gradients, without NumPy calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.compiler.test_indexed import calls_of

import evergrad as eg

from .steps import num_threads

torch = pytest.importorskip("torch")

# kernel, stride, padding, dilation, groups
CONVOLUTIONS: list[Any] = [
    ((3, 3, 3), 1, 1, 1, 1),
    ((3, 3, 3), 2, 1, 1, 1),
    ((1, 3, 3), 1, (0, 1, 1), 1, 1),
    ((2, 3, 2), (3, 2, 1), (1, 0, 1), (2, 1, 1), 2),
    ((3, 3, 3), 1, (2, 1, 0), (2, 1, 2), 4),
    ((4, 2, 2), (2, 2, 2), (3, 1, 1), 1, 1),
]
# kernel, stride, padding
POOLS: list[Any] = [
    (2, 2, 0),
    (3, 2, 1),
    ((1, 2, 2), (1, 2, 2), 0),
    ((4, 3, 2), (3, 1, 2), (2, 1, 1)),
    (2, 3, 0),
]


def step(lib: Any, function: Any, *given: Any) -> Any:
    y = function(lib.nn.functional, *given)
    g = lib.cos(lib.arange(float(y.numel()), dtype=y.dtype).reshape(y.shape))
    return y, *lib.autograd.grad((y * g).sum(), given)


def assert_same(function: Any, *arrays: Any) -> None:
    theirs = step(torch, function, *[torch.tensor(a, requires_grad=True) for a in arrays])
    compiled = eg.compile(lambda *given: step(eg, function, *given))
    ours = compiled(*[eg.tensor(a, requires_grad=True) for a in arrays])
    for a, b in zip(ours, theirs, strict=True):
        assert a.stride() == b.stride()
        np.testing.assert_allclose(a.detach(), b.detach(), rtol=1e-4, atol=1e-4)
    assert calls_of(compiled) == []


def normal(*shape: int, dtype: str = "float32") -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kernel, stride, padding, dilation, groups", CONVOLUTIONS)
def test_convolutions(
    kernel: Any, stride: Any, padding: Any, dilation: Any, groups: int, dtype: str
) -> None:
    if dtype == "float64" and groups == 1:
        kernel = (3, 2, 1)
    x, bias = normal(2, 4, 7, 6, 8, dtype=dtype), normal(8, dtype=dtype)
    w = normal(8, 4 // groups, *kernel, dtype=dtype)
    assert_same(lambda F, *a: F.conv3d(*a, stride, padding, dilation, groups), x, w, bias)


@pytest.mark.parametrize("kernel, stride, padding, dilation, groups", CONVOLUTIONS)
def test_transposed_convolutions(
    kernel: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> None:
    steps = (stride,) * 3 if isinstance(stride, int) else stride
    more = tuple(min(1, s - 1) for s in steps)
    x, w = normal(2, 4, 4, 5, 6), normal(4, 3, *kernel)
    assert_same(
        lambda F, *a: F.conv_transpose3d(*a, None, stride, padding, more, groups, dilation), x, w
    )


@pytest.mark.parametrize("is_ceil", [False, True])
@pytest.mark.parametrize("kernel, stride, padding", POOLS)
def test_pools(kernel: Any, stride: Any, padding: Any, is_ceil: bool) -> None:
    x = normal(2, 3, 7, 8, 9)
    given = kernel, stride, padding
    assert_same(lambda F, x: F.max_pool3d(x, *given, ceil_mode=is_ceil), np.round(2 * x))
    assert_same(lambda F, x: F.avg_pool3d(x, *given, ceil_mode=is_ceil), x)


@pytest.mark.parametrize("kernel, stride, padding", POOLS)
def test_places_of_ties_infinities_and_nan(kernel: Any, stride: Any, padding: Any) -> None:
    x = np.round(2 * normal(2, 3, 7, 8, 9))
    x[0, 0, :4] = -np.inf
    x[0, 1, 2:4, 3] = np.nan
    theirs = torch.nn.functional.max_pool3d(
        torch.tensor(x), kernel, stride, padding, return_indices=True
    )
    compiled = eg.compile(
        lambda x: eg.nn.functional.max_pool3d(x, kernel, stride, padding, return_indices=True)
    )
    for a, b in zip(compiled(eg.tensor(x)), theirs, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    assert calls_of(compiled) == []


def test_results_do_not_depend_on_threads() -> None:
    x, w = (eg.tensor(normal(*shape)) for shape in ((2, 4, 9, 20, 20), (8, 4, 3, 3, 3)))
    found = []
    for threads in (1, 2):
        compiled = eg.compile(
            lambda x, w: eg.nn.functional.max_pool3d(eg.nn.functional.conv3d(x, w), 2)
        )
        with num_threads(threads):
            found.append(compiled(x, w).numpy())
    np.testing.assert_array_equal(*found)


def test_empty_batches() -> None:
    w = eg.tensor(normal(8, 4, 3, 3, 3))
    compiled = eg.compile(lambda x: eg.nn.functional.conv3d(x, w))
    assert compiled(eg.tensor(normal(0, 4, 5, 5, 5))).shape == (0, 8, 3, 3, 3)
