"""Every pair of shapes that broadcasts: gradients have their tensor's shape, and the right sums."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.errors import ShapeError

Shape = tuple[int, ...]
SIZES = (0, 1, 2, 3)


def all_shapes(largest_rank: int) -> list[Shape]:
    return [s for rank in range(largest_rank + 1) for s in itertools.product(SIZES, repeat=rank)]


def fitting(shape: Shape, choose: np.random.Generator) -> Shape:
    """A shape of rank up to 5 that broadcasts with the given one."""
    rank = int(choose.integers(0, 6))
    lead = tuple(int(choose.choice(SIZES)) for _ in range(max(0, rank - len(shape))))
    own = []
    for extent in shape[len(shape) - min(rank, len(shape)) :]:
        free = SIZES if extent == 1 else (1, extent)
        own.append(int(choose.choice(free)))
    return lead + tuple(own)


def pairs_of_high_rank(count: int) -> list[tuple[Shape, Shape]]:
    choose = np.random.default_rng(0)
    found = []
    while len(found) < count:
        first = tuple(int(n) for n in choose.choice(SIZES, size=int(choose.integers(4, 6))))
        pair = (first, fitting(first, choose))
        found.append(pair if choose.random() < 0.5 else pair[::-1])
    return found


def summed(grad: Any, shape: Shape) -> Any:
    """NumPy's way back: sum what broadcasting repeated."""
    lead = grad.ndim - len(shape)
    grad = grad.sum(axis=tuple(range(lead)))
    repeated = tuple(i for i, n in enumerate(shape) if n == 1 and grad.shape[i] != 1)
    return grad.sum(axis=repeated, keepdims=True) if repeated else grad


def values(shape: Shape, seed: int) -> Any:
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def check(first: Shape, second: Shape) -> None:
    a, b = values(first, 1), values(second, 2)
    common = np.broadcast_shapes(first, second)
    g, mask = values(common, 3), values(common, 4) > 0
    ta, tb = eg.tensor(a, requires_grad=True), eg.tensor(b, requires_grad=True)
    tg, tm = eg.tensor(g), eg.tensor(mask)
    cases = {
        "add": (ta + tb, a + b, g, g),
        "mul": (ta * tb, a * b, g * b, g * a),
        "where": (eg.where(tm, ta, tb), np.where(mask, a, b), np.where(mask, g, 0),
                  np.where(mask, 0, g)),
    }  # fmt: skip
    for name, (out, expected, for_a, for_b) in cases.items():
        assert tuple(out.shape) == common, name
        np.testing.assert_array_equal(out.detach().numpy(), expected, err_msg=name)
        for grad, wanted, shape in zip(
            eg.autograd.grad(out, [ta, tb], tg), (for_a, for_b), (first, second), strict=True
        ):
            assert tuple(grad.shape) == shape, name
            np.testing.assert_allclose(
                grad.numpy(), summed(wanted, shape), rtol=1e-12, atol=1e-12, err_msg=name
            )


def broadcasts(first: Shape, second: Shape) -> bool:
    backwards = zip(reversed(first), reversed(second), strict=False)
    return all(m == n or 1 in (m, n) for m, n in backwards)


@pytest.mark.parametrize("first", all_shapes(3), ids=str)
def test_all_pairs_up_to_rank_3(first: Shape) -> None:
    for second in all_shapes(3):
        if broadcasts(first, second):
            check(first, second)
        else:
            with pytest.raises(ShapeError, match="do not broadcast"):
                eg.ones(first) + eg.ones(second)


@pytest.mark.parametrize("part", range(20))
def test_pairs_of_rank_4_and_5(part: int) -> None:
    for first, second in pairs_of_high_rank(600)[part::20]:
        check(first, second)


def test_a_mask_broadcasts_too() -> None:
    for mask, first, second in itertools.product([(), (1,), (3,), (2, 1), (2, 3)], repeat=3):
        a = eg.tensor(values(first, 1), requires_grad=True)
        b = eg.tensor(values(second, 2), requires_grad=True)
        out = eg.where(eg.tensor(values(mask, 3) > 0), a, b)
        assert tuple(out.shape) == np.broadcast_shapes(mask, first, second)
        ga, gb = eg.autograd.grad(out.sum(), [a, b])
        assert (tuple(ga.shape), tuple(gb.shape)) == (first, second)
        assert (ga.sum() + gb.sum()).item() == out.numel()


def test_expand_and_its_gradient() -> None:
    for small, large in [((), (2, 3)), ((1, 3), (2, 3)), ((3, 1), (2, 3, 4)), ((1,), (0,))]:
        x = eg.tensor(values(small, 1), requires_grad=True)
        out = x.expand(large)
        assert tuple(out.shape) == large
        g = values(large, 2)
        out.backward(eg.tensor(g))
        np.testing.assert_allclose(x.grad.numpy(), summed(g, small), rtol=1e-12)
