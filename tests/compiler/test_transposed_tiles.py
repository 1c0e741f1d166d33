"""Loops that read or write against the order of memory: tiles with short ends, any element type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import evergrad as eg

SHAPES = [(8, 8), (16, 64), (17, 65), (9, 200), (130, 33), (64, 127), (7, 100), (1, 300)]
DTYPES = ["float32", "float64", "float16", "bfloat16", "int8", "int16", "int64", "bool"]


def random(shape: tuple[int, ...], dtype: str) -> Any:
    rng = np.random.default_rng(0)
    given = eg.tensor(rng.integers(-60, 60, shape))
    return given > 0 if dtype == "bool" else given.to(getattr(eg, dtype))


def same(function: Any, *given: Any) -> None:
    """Compiled as in eager mode, with the bits of one thread on three."""
    expected = function(*given)
    before = eg.get_num_threads()
    try:
        for threads in (1, 3):
            eg.set_num_threads(threads)
            found = eg.compile(function)(*given)
            assert found.dtype is expected.dtype
            np.testing.assert_array_equal(found.float().numpy(), expected.float().numpy())
    finally:
        eg.set_num_threads(before)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_transposed_operand(shape: tuple[int, int], dtype: str) -> None:
    a, b = random(shape[::-1], dtype), random(shape, dtype)
    same(lambda a, b: a.T & b if dtype == "bool" else a.T * 2 + b, a, b)
    same(lambda a: a.T.contiguous(), a)


@pytest.mark.parametrize(
    "order", [(0, 2, 1), (2, 1, 0), (1, 2, 0), (2, 0, 1), (0, 2, 3, 1), (3, 1, 2, 0), (0, 3, 1, 2)]
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "uint8"])
def test_permutations(order: tuple[int, ...], dtype: str) -> None:
    size = (19, 70, 11, 23)[: len(order)]
    a, b = random(tuple(size[d] for d in np.argsort(order)), dtype), random(size, dtype)
    same(lambda a, b: a.permute(order) * 3 + b, a, b)
    same(lambda a, b: (a * 3 + b.permute(*map(int, np.argsort(order)))) * 2, a, b)


def test_several_operands_in_different_orders() -> None:
    a, b, c = (random(shape, "float32") for shape in [(40, 30, 50), (50, 30, 40), (30, 50, 40)])
    same(lambda a, b, c: a * b.permute(2, 1, 0) - c.permute(2, 0, 1), a, b, c)
    same(lambda a, c: a.flip(0) + c.permute(2, 0, 1).flip(2)[:, :, :1] * a[:1], a, c)


def test_a_result_with_columns_in_order() -> None:
    """What is stored is transposed, what is read is not."""
    a = random((70, 90), "float32")
    same(lambda a: ((a * 2).T.contiguous(), a * 3 + 1)[0] + 1, a)
    out = eg.compile(lambda a: ((a.exp() + 1).T.reshape(-1), a.exp().sum(1)))(a / 60)
    expected = np.exp(a.numpy() / 60)
    np.testing.assert_allclose(out[0].numpy(), (expected + 1).T.reshape(-1), rtol=1e-6)
    np.testing.assert_allclose(out[1].numpy(), expected.sum(1), rtol=1e-5)


def test_an_update_in_place_from_a_transposed_gradient() -> None:
    weight, other = random((48, 100), "float32"), random((100, 48), "float32")

    def step() -> Any:
        weight.add_(other.T, alpha=0.5)
        return weight.sum()

    expected = weight.numpy() + other.numpy().T * 0.5
    compiled = eg.compile(step)
    compiled()
    np.testing.assert_array_equal(weight.numpy(), expected)


def test_a_square_matrix_and_its_transpose_in_place() -> None:
    x = random((50, 50), "float32")

    def step() -> None:
        x.copy_(x + x.T)

    expected = x.numpy() + x.numpy().T
    eg.compile(step)()
    np.testing.assert_array_equal(x.numpy(), expected)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "shape", [(300, 3), (70, 1, 5), (5, 70, 2), (9, 7), (1, 4), (2, 3)], ids=str
)
def test_few_columns_of_costly_loops(shape: tuple[int, ...], dtype: str) -> None:
    """The longer loop is the innermost one."""
    x, w = random(shape, dtype) / 60, random(shape[-1:], dtype) / 60
    expected = ((x + w).float().tanh() * x.float()).to(x.dtype).float().numpy()
    step = eg.compile(lambda x, w: ((x + w).float().tanh() * x.float()).to(x.dtype))
    np.testing.assert_allclose(step(x, w).float().numpy(), expected, rtol=1e-2, atol=1e-6)


def test_strided_operands_of_costly_loops_are_vectorized() -> None:
    x = random((4000, 6), "float32") / 60
    compiled = eg.compile(lambda x: x[:, 0] * x[:, 1].exp() + x[:, 4])
    expected = x.numpy()[:, 0] * np.exp(x.numpy()[:, 1]) + x.numpy()[:, 4]
    np.testing.assert_allclose(compiled(x).numpy(), expected, rtol=1e-5, atol=1e-6)
