"""Rows that move elements, in compiled programs: values and gradients of eager mode, without NumPy
calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import evergrad as eg
import evergrad.nn.functional as F
from evergrad.compiler.native import jit

pytestmark = pytest.mark.skipif(not jit.can_jit(), reason="the system lets no process make code")

_INDEX = eg.tensor([3, 0, 0, 5, 2, 3])

_CALLS: dict[str, Callable[[Any], Any]] = {
    "flip of the last dimension": lambda x: x.flip(-1),
    "flip of two dimensions": lambda x: x.flip(0, 2),
    "roll forwards": lambda x: x.roll(2, 1),
    "roll of two dimensions": lambda x: x.roll((-1, 9), (0, 2)),
    "roll of all elements": lambda x: x.roll(5),
    "roll by a whole turn": lambda x: x.roll(7, 2),
    "tril": lambda x: x.tril(),
    "triu above the diagonal": lambda x: x.triu(2),
    "tril below the matrix": lambda x: x.tril(-9),
    "pad": lambda x: F.pad(x, (1, 2, 0, 3)),
    "pad and cut": lambda x: F.pad(x, (-1, 2, 1, -2)),
    "one place of a dimension": lambda x: x[:, 2, 1:5].sin(),
    "a slice of two dimensions": lambda x: x[1:3, :, 2:].sin(),
    "pad by reflection": lambda x: F.pad(x, (2, 1, 1, 2), mode="reflect"),
    "pad by repetition": lambda x: F.pad(x, (2, 1, 1, 2), mode="replicate"),
    "circular pad": lambda x: F.pad(x, (2, 1, 1, 2), mode="circular"),
    "slices along the last dimension": lambda x: x.index_select(2, _INDEX),
    "slices along the second dimension": lambda x: x.index_select(1, _INDEX.clamp(max=4)),
    "x[..., index]": lambda x: x[..., _INDEX - 6],
    "index_add of the first dimension": lambda x: x.index_add(0, _INDEX, x * 2),
    "index_add of the last dimension": lambda x: x.index_add(2, _INDEX, x[:, :, :6] * 2),
    "interpolate nearest": lambda x: F.interpolate(x, scale_factor=2),
    "interpolate linear": lambda x: F.interpolate(x, size=9, mode="linear"),
    "interpolate bilinear": lambda x: F.interpolate(x[None], scale_factor=2, mode="bilinear"),
}


def _x(dtype: Any = np.float32) -> Any:
    return np.random.default_rng(0).standard_normal((6, 5, 7)).astype(dtype)


def _with_gradient(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def step(x: Any) -> tuple[Any, Any]:
        x = x.detach().requires_grad_()
        out = call(x)
        (out * out).sum().backward()
        return out.detach(), x.grad

    return step


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", _CALLS)
def test_values_and_gradients(name: str, dtype: Any) -> None:
    step = _with_gradient(_CALLS[name])
    compiled = eg.compile(step)
    x = eg.tensor(_x(dtype))
    for found, expected in zip(compiled(x), step(x), strict=True):
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)
    assert "NumPy calls (" not in str(compiled.explain(x))


@pytest.mark.parametrize("name", ["flip of two dimensions", "roll forwards", "tril", "pad"])
def test_integers_and_bools(name: str) -> None:
    for dtype in (eg.int64, eg.uint8, eg.bool):
        x = eg.tensor(_x() * 5).to(dtype)
        found = eg.compile(_CALLS[name])(x)
        assert found.dtype is dtype and found.is_contiguous()
        np.testing.assert_array_equal(found.numpy(), _CALLS[name](x).numpy())


@pytest.mark.parametrize("shape", [(1, 1, 1), (0, 5, 7), (6, 5, 0)])
def test_one_element_and_none(shape: tuple[int, ...]) -> None:
    x = eg.ones(shape)
    for call in (lambda x: x.flip(2), lambda x: x.roll(3, 2), lambda x: x.tril()):
        np.testing.assert_array_equal(eg.compile(call)(x).numpy(), call(x).numpy())


def test_results_are_contiguous_where_a_reshape_follows() -> None:
    def call(x: Any) -> Any:
        return x.flip(2).reshape(-1)[::3] + x.index_select(2, _INDEX).reshape(-1)[: x.numel() // 3]

    x = eg.tensor(_x())
    np.testing.assert_allclose(eg.compile(call)(x).numpy(), call(x).numpy())


def test_indices_out_of_range_write_nothing() -> None:
    """As in eager mode, also negative ones of ``index_add``."""
    target = eg.zeros(4, 3)

    def add(index: Any) -> None:
        target.index_add_(0, index, eg.ones(2, 3))

    compiled = eg.compile(add)
    compiled(eg.tensor([0, 3]))
    before = target.numpy().copy()
    for bad in ([0, 4], [-1, 0]):
        for function in (add, compiled):
            with pytest.raises((IndexError, RuntimeError)):
                function(eg.tensor(bad))
            np.testing.assert_array_equal(target.numpy(), before)


def test_sums_by_index_do_not_depend_on_threads() -> None:
    source = eg.tensor(np.random.default_rng(1).standard_normal((5000, 96)).astype(np.float32))
    index = eg.tensor(np.random.default_rng(2).integers(0, 40, 5000))
    compiled = eg.compile(lambda x: x.index_add(0, index, source))
    before, found = eg.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            eg.set_num_threads(threads)
            found.append(compiled(eg.zeros(40, 96)).numpy())
    finally:
        eg.set_num_threads(before)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


BY_STRIDES: dict[str, Callable[[Any], Any]] = {
    "samples and pixels": lambda x: x.transpose(0, 1).reshape(6, -1) * 2,
    "pixels and channels": lambda x: x.permute(0, 2, 1).reshape(-1, 6).sum(0),
    "flattened": lambda x: x.permute(0, 2, 1).flatten() + 1,
    "split": lambda x: x.transpose(0, 1).reshape(6, 40, 5).mean(1),
    "view": lambda x: x.permute(0, 2, 1).view(-1, 6).exp(),
    "written": lambda x: x.clone().transpose(0, 1).reshape(6, -1).mul_(3),
    "twice": lambda x: x.permute(0, 2, 1).reshape(-1, 6).T.reshape(3, -1).cumsum(0),
}


@pytest.mark.parametrize("name", BY_STRIDES)
def test_reshapes_that_are_views_by_the_strides_of_an_argument(name: str) -> None:
    """Programs take contiguous arguments, in which the reshape has no view."""
    program = BY_STRIDES[name]
    grad = eg.func.grad(lambda x: program(x).cos().sum())
    x = eg.randn(4, 50, 6).permute(0, 2, 1)
    for given in (x, x.detach().requires_grad_()):
        step = lambda x: (program(x), grad(x))
        compiled = eg.compile(program)
        for _ in range(2):
            np.testing.assert_allclose(
                compiled(given).detach().numpy(), program(given).detach().numpy(), rtol=1e-5
            )
        found = eg.compile(step)(given)
        for mine, true in zip(found, step(given), strict=True):
            np.testing.assert_allclose(
                mine.detach().numpy(), true.detach().numpy(), rtol=1e-4, atol=1e-5
            )


@pytest.mark.parametrize("dims", [(0,), (1,), (2,), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("size", [(6, 5, 7), (2, 40, 9)])
def test_products_over_dimensions(size: tuple[int, ...], dims: tuple[int, ...]) -> None:
    x = eg.tensor(np.random.default_rng(0).uniform(0.8, 1.2, size))

    def step(x: Any) -> Any:
        for dim in reversed(dims):
            x = x.prod(dim)
        return x

    compiled = eg.compile(step)
    np.testing.assert_allclose(compiled(x).numpy(), x.numpy().prod(dims), rtol=1e-12)
    assert "NumPy calls (" not in str(compiled.explain(x))


def test_integers_between_bounds() -> None:
    x = eg.tensor(np.arange(-50, 50))
    compiled = eg.compile(lambda x: (x.clamp(-3, 9), x.to(eg.int8).clamp(-3, 9)))
    for found in compiled(x):
        np.testing.assert_array_equal(found.numpy(), x.numpy().clip(-3, 9))
    assert "NumPy calls (" not in str(compiled.explain(x))
