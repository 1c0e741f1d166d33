"""Two batches of different shapes in one pass, and sums by value: eager, compiled, derivatives."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad import ragged
from evergrad.autograd import gradcheck, gradgradcheck
from evergrad.compiler.kernels.items import divided
from evergrad.func import jvp, vmap
from evergrad.ops.rows.movement.item_layouts import Layout, offsets, pair_runs, shared_places

FUNCTIONS = (operator.add, operator.sub, operator.mul)
LAYOUTS: list[tuple[Layout, Layout]] = [
    (((2,), (3,), (40,), (5,)), ((50,), (5,), (10,), (0,))),
    (((0,), (0,)), ((3,), (2,))),
    (((3, 4), (), (2, 1, 3)), ((5, 2), (2, 2), (3, 3))),
    (((7,), (2, 3)), ((2, 3), (7,))),
    (tuple((n,) for n in range(60)), tuple((n,) for n in reversed(range(60)))),
    (((9000,), (4,), (17,)), ((8,), (21000,), (16,))),
]


def made(layout: Layout, seed: int, dtype: Any = np.float64) -> ragged.Batch:
    count = offsets(layout)[-1]
    elements = np.random.default_rng([seed, count]).standard_normal(count).astype(dtype)
    return ragged.Batch(eg.tensor(elements), layout)


def one_by_one(function: Callable[..., Any], a: ragged.Batch, b: ragged.Batch) -> Any:
    """The elements of the result, each pair extended with zeros by NumPy."""
    parts = []
    for x, y in zip(a.detach().unbind(), b.detach().unbind(), strict=True):
        rank = max(x.ndim, y.ndim)
        left, right = (v.numpy().reshape(*v.shape, *(1,) * (rank - v.ndim)) for v in (x, y))
        shape = tuple(map(max, left.shape, right.shape))
        wide = [
            np.pad(v, [(0, n - m) for n, m in zip(shape, v.shape, strict=True)])
            for v in (left, right)
        ]
        parts.append(np.asarray(function(*wide)).reshape(-1))
    return np.concatenate(parts)


@pytest.mark.parametrize("layouts", LAYOUTS, ids=range(len(LAYOUTS)))
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.float16])
def test_pairs_of_layouts(layouts: Any, dtype: Any) -> None:
    """To the bit, for all three operations: also again, when the call is prepared, and compiled."""
    a, b = (made(layout, seed, dtype) for seed, layout in enumerate(layouts))
    for function in FUNCTIONS:
        expected = one_by_one(function, a, b)
        compiled = eg.compile(lambda x, y, function=function: function(x, y).elements)
        for _ in range(2):
            np.testing.assert_array_equal(function(a, b).elements.numpy(), expected)
            np.testing.assert_array_equal(compiled(a, b).numpy(), expected)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_special_numbers_are_those_of_the_extensions(function: Any) -> None:
    """-0.0 beside nothing, and an infinity times nothing."""
    x = [math.inf, -0.0, math.nan, -math.inf, -0.0, 1.0]
    a = ragged.batch([x, [0.0], []], eg.float32)
    b = ragged.batch([[-0.0], x, x], eg.float32)
    with np.errstate(all="ignore"):
        expected = one_by_one(function, a, b)
    compiled = eg.compile(lambda x, y: function(x, y).elements)
    for found in (function(a, b).elements, compiled(a, b), compiled(a, b)):
        np.testing.assert_array_equal(found.numpy(), expected)
        np.testing.assert_array_equal(np.signbit(found.numpy()), np.signbit(expected))


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("layouts", LAYOUTS[:4], ids=range(4))
def test_derivatives_of_pairs(function: Any, layouts: Any) -> None:
    a, b = (made(layout, seed).elements.requires_grad_() for seed, layout in enumerate(layouts))

    def call(x: eg.Tensor, y: eg.Tensor) -> eg.Tensor:
        found: ragged.Batch = function(*map(ragged.Batch, (x, y), layouts))
        return found.elements

    assert gradcheck(call, (a, b), check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(call, (a, b))
    tangents = eg.stack([a.detach().cos(), a.detach().sin()])
    pushed = vmap(lambda t: jvp(lambda x: call(x, b.detach()), (a.detach(),), (t,))[1])(tangents)
    for row, t in zip(pushed, tangents, strict=True):
        alone = jvp(lambda x: call(x, b.detach()), (a.detach(),), (t,))[1]
        assert row.tolist() == alone.tolist()


@pytest.mark.parametrize("layouts", LAYOUTS, ids=range(len(LAYOUTS)))
@pytest.mark.parametrize("function", FUNCTIONS)
def test_gradients_of_pairs_compiled(function: Any, layouts: Any) -> None:
    a, b = (made(layout, seed, np.float32) for seed, layout in enumerate(layouts))
    a.requires_grad_(), b.requires_grad_()

    def step(x: ragged.Batch, y: ragged.Batch) -> Any:
        out = function(x, y)
        loss = (out.elements * out.elements).sum()
        return eg.autograd.grad(loss, [x.elements, y.elements])

    compiled = eg.compile(step)
    for expected in (step(a, b), step(a, b)):
        for found, wanted in zip(compiled(a, b), expected, strict=True):
            np.testing.assert_array_equal(found.numpy(), wanted.numpy())


def test_layouts_that_change_at_every_call() -> None:
    """Also equal layouts that are other objects, and equal sizes that divide differently."""
    rng = np.random.default_rng(5)
    for _ in range(60):
        cuts = [np.sort(rng.integers(0, 13, 3)).tolist() for _ in range(2)]
        layouts = [tuple((b - a,) for a, b in itertools.pairwise([0, *c, 12])) for c in cuts]
        a, b = (made(layout, seed, np.float32) for seed, layout in enumerate(layouts))
        for function in FUNCTIONS:
            np.testing.assert_array_equal(
                function(a, b).elements.numpy(), one_by_one(function, a, b)
            )


def test_kinds_of_elements_are_promoted() -> None:
    a = ragged.Batch(eg.tensor([1, 2, 3]), [(3,)])
    b = ragged.Batch(eg.tensor([0.5]), [(1,)])
    assert (a + b).tolist() == [[1.5, 2, 3]] and (a * b).tolist() == [[0.5, 0, 0]]
    wide = ragged.Batch(eg.tensor([1.0, 2.0], dtype=eg.float64), [(2,)])
    assert (wide - b).dtype is eg.float64
    low = ragged.Batch(eg.tensor([1.0, 2.0], dtype=eg.bfloat16), [(2,)])
    assert (low - b.to(eg.bfloat16)).dtype is eg.bfloat16


def test_batches_of_other_extents_do_not_go_together() -> None:
    a = ragged.batch([[1.0], [2.0]])
    for other in (ragged.batch([[1.0]]), a.reshape(2, 1)):
        with pytest.raises(ValueError, match="do not go together"):
            _ = a + other


def test_runs_and_their_parts() -> None:
    """Runs say for each element where it comes from; chunks begin where they should."""
    rng = np.random.default_rng(2)
    for number in range(60):
        count = int(rng.integers(1, 5))
        layouts: list[Layout] = [
            tuple(tuple(rng.integers(0, 6, 1 if number % 2 else rng.integers(0, 3)).tolist())
                  for _ in range(count))
            for _ in range(3)
        ]  # fmt: skip
        a, b, out = layouts
        size = offsets(out)[-1]
        expected = np.full((2, size), -1)
        for row, own in zip(expected, (a, b), strict=True):
            here, there = shared_places(own, out)
            row[there] = here
        runs = pair_runs(a, b, out)
        np.testing.assert_array_equal(sources(runs, size), expected)
        for chunk in (1, 4) if size else ():
            firsts, parts = divided(runs, chunk)
            np.testing.assert_array_equal(sources(parts, size), expected)
            assert parts[firsts[:-1], 0].tolist() == list(range(0, size, chunk))
            assert firsts[-1] == len(parts)


def sources(runs: Any, size: int) -> Any:
    found = np.full((2, size), -9)
    for out, a, b, count in runs.tolist():
        for row, start in zip(found, (a, b), strict=True):
            row[out : out + count] = -1 if start < 0 else np.arange(start, start + count)
    return found


def test_sums_by_value() -> None:
    """Many short, few long, none: as accurate as sums in double precision, rounded."""
    rng = np.random.default_rng(3)
    for counts in ([0, 3, 0, 100_000, 1, 0], list(rng.integers(0, 9, 500)), [0, 0], [70_001]):
        a = made(tuple((int(n),) for n in counts), 1, np.float32)
        exact = [v.numpy().astype(np.float64).sum() for v in a.unbind()]
        sizes = [np.abs(v.numpy()).sum() for v in a.unbind()]
        compiled = eg.compile(lambda x: ragged.sum(x))
        for found in (ragged.sum(a), compiled(a), compiled(a)):
            error = np.abs(found.numpy() - exact)
            assert (error <= 2e-6 * np.maximum(sizes, 1e-30)).all()


@pytest.mark.parametrize("p", [1, 2, 3, math.inf])
def test_norms_by_value_and_their_gradients(p: float) -> None:
    layout = ((3,), (0,), (2, 2), (1,))
    x = made(layout, 4).elements.requires_grad_()
    assert gradcheck(lambda x: ragged.norm(ragged.Batch(x, layout), p), (x,))
    zero = ragged.batch([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    ragged.norm(zero, p).sum().backward()
    assert zero.grad is not None and np.isfinite(zero.grad.elements.numpy()).all()
