"""Control flow as functions: branches, loops and scans, with gradients, and as PyTorch has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.func import associative_scan, cond, scan, while_loop
from evergrad.func import map as map_slices


@pytest.mark.parametrize("value", [1.0, -1.0])
def test_cond(value: float) -> None:
    x = eg.tensor([value, 2.0], requires_grad=True)
    y = cond(x[0] > 0, lambda x: x * 2, lambda x: x * x, (x,))
    (gradient,) = eg.autograd.grad(y.sum(), x)
    expected = [2.0, 2.0] if value > 0 else [2 * value, 4.0]
    assert gradient.tolist() == expected
    assert eg.cond is cond and cond(True, lambda: 1, lambda: 2) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((eg.tensor([True, False]), abs, abs, (eg.ones(1),)), "single-element"),
        ((True, abs, 3, (eg.ones(1),)), "callable"),
        ((True, abs, abs, eg.ones(1)), "tuple of possibly nested"),
        ((True, abs, abs, ("a",)), "tuple of possibly nested"),
    ],
)
def test_cond_refuses(arguments: Any, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        cond(*arguments)


def test_while_loop() -> None:
    x = eg.ones(2, requires_grad=True)
    count, y = while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), (eg.tensor(0), x))
    assert count.item() == 3
    assert eg.autograd.grad(y.sum(), x)[0].tolist() == [8.0, 8.0]
    with pytest.raises(RuntimeError, match="2 values"):
        while_loop(lambda i, y: True, lambda i, y: (i,), (0, x))


def test_map_and_scan_are_loops() -> None:
    xs = eg.arange(6.0).reshape(3, 2)
    assert map_slices(lambda x, y: {"s": x + y}, xs, 1.0)["s"].equal(xs + 1)
    carry, ys = scan(lambda c, x: (c + x, c * x), eg.zeros(2), xs)
    assert carry.tolist() == [6.0, 9.0] and ys.tolist() == [[0, 0], [0, 3], [8, 20]]
    carry, ys = scan(
        lambda c, x: (c + x, c * x), eg.zeros(2), eg.arange(6.0).reshape(2, 3), dim=1, reverse=True
    )
    assert carry.tolist() == [3.0, 12.0] and ys.tolist() == [[0, 2, 0], [27, 20, 0]]
    with pytest.raises(RuntimeError, match="scan dimension > 0"):
        scan(lambda c, x: (c, x), eg.zeros(2), eg.zeros(0, 2))
    with pytest.raises(RuntimeError, match="cannot be 0"):
        map_slices(lambda x: x, eg.zeros(0, 2))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 13])
@pytest.mark.parametrize("reverse", [False, True])
def test_associative_scan(count: int, reverse: bool) -> None:
    values = np.random.default_rng(count).standard_normal((2, count))
    x = eg.tensor(values, requires_grad=True)
    found = associative_scan(lambda a, b: a + b, x, 1, reverse=reverse)
    order = values[:, ::-1].cumsum(1)[:, ::-1] if reverse else values.cumsum(1)
    np.testing.assert_allclose(found.detach().numpy(), order)
    (gradient,) = eg.autograd.grad(found.sum(), x)
    steps = np.arange(1, count + 1.0) if reverse else np.arange(count, 0.0, -1)
    np.testing.assert_allclose(gradient.numpy(), np.tile(steps, (2, 1)))


def test_associative_scan_of_a_recurrence() -> None:
    """h = a h + b, and products of matrices, whose order matters."""
    eg.manual_seed(0)
    a, b = eg.rand(7, dtype=eg.float64), eg.rand(7, dtype=eg.float64)

    def combine(left: Any, right: Any) -> Any:
        return left[0] * right[0], left[1] * right[0] + right[1]

    _, found = associative_scan(combine, (a, b), 0)
    _, expected = scan(lambda h, x: (h * x[0] + x[1],) * 2, eg.tensor(0.0).double(), (a, b))
    assert eg.allclose(found, expected)
    matrices = eg.randn(5, 2, 2, dtype=eg.float64)
    found = associative_scan(lambda p, q: p @ q, matrices, 0, combine_mode="generic")
    _, expected = scan(lambda p, q: (p @ q,) * 2, eg.eye(2, dtype=eg.float64), matrices)
    assert eg.allclose(found, expected)


@pytest.mark.filterwarnings("ignore:.*not one compiled program")
def test_compiled() -> None:
    def step(x: Any) -> Any:
        y = cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,))
        return scan(lambda c, v: (c + v, c * v), eg.zeros(2), y)[1]

    compiled = eg.compile(step)
    for x in (eg.ones(3, 2), -eg.ones(3, 2), eg.ones(3, 2) * 3):
        assert eg.allclose(compiled(x), step(x))


@pytest.mark.filterwarnings("ignore")
def test_resized_in_compiled_functions() -> None:
    def own(x: Any) -> Any:
        y = (x * 2).clone()
        y.resize_(2, 2)
        return y + 1

    def argument(x: Any) -> Any:
        x.resize_(2, 2)
        return x * 2

    def result(x: Any, out: Any = None) -> Any:
        out = eg.zeros(3)
        eg.add(x, 1, out=out)
        return out * 2

    for function in (own, argument, result):
        compiled = eg.compile(function)
        for i in range(4):
            ours, plain = compiled(eg.arange(6.0) + i), function(eg.arange(6.0) + i)
            assert eg.allclose(ours, plain)
