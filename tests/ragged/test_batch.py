"""Batches of values of any shapes: the same as the values one by one, and what they cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ragged.values import random, values

import evergrad as eg
from evergrad import memory, ragged
from evergrad.autograd import gradcheck

quick = settings(max_examples=40, deadline=None)
lists = st.lists(st.tuples(values, values), min_size=0, max_size=5)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "convolve", "correlate", "kron"])
@quick
@given(pairs=lists)
def test_a_batch_is_its_values_one_by_one(name: str, pairs: Any) -> None:
    operation = getattr(ragged, name)
    a = ragged.batch([x for x, _ in pairs], eg.int64)
    b = ragged.batch([y for _, y in pairs], eg.int64)
    found = operation(a, b)
    assert len(found) == len(pairs)
    for one, (x, y) in zip(found, pairs, strict=True):
        expected = operation(x, y)
        assert tuple(one.shape) == tuple(expected.shape) and one == expected


@quick
@given(pairs=lists)
def test_numbers_of_a_batch(pairs: Any) -> None:
    a = ragged.batch([x for x, _ in pairs], eg.int64)
    b = ragged.batch([y for _, y in pairs], eg.int64)
    assert ragged.sum(a).tolist() == [ragged.sum(x).item() for x, _ in pairs]
    assert ragged.inner(a, b).tolist() == [ragged.inner(x, y).item() for x, y in pairs]
    for p in (1, 2, 3):
        expected = [ragged.norm(x.double(), p).item() for x, _ in pairs]
        assert ragged.norm(a.double(), p).tolist() == pytest.approx(expected)


@quick
@given(pairs=lists)
def test_representatives_of_a_batch(pairs: Any) -> None:
    a = ragged.batch([x for x, _ in pairs], eg.int64)
    small = ragged.shrink(a)
    assert small == a
    assert list(small.shapes) == [tuple(ragged.shrink(x).shape) for x, _ in pairs]


def test_one_value_beside_a_batch() -> None:
    a, b = ragged.batch([[1.0], [1.0, 2.0]]), ragged.tensor([1.0, 1.0])
    assert ragged.add(a, b).tolist() == [[2, 1], [2, 3]]
    assert (a + b).tolist() == [[2, 1], [2, 3]]
    assert ragged.convolve(b, a).tolist() == [[1, 1], [1, 3, 2]]
    assert ragged.scale(a, eg.tensor([2.0, 3.0])).tolist() == [[2], [3, 6]]
    assert ragged.power(a, 2).tolist() == [[1], [1, 4, 4]]


def test_wrong_batches_are_refused() -> None:
    a, b = ragged.batch([[1.0], [2.0]]), ragged.batch([[1.0]])
    with pytest.raises(ValueError, match="one by one"):
        ragged.add(a, b)
    with pytest.raises(ValueError, match="need a tensor of"):
        ragged.Batch(eg.ones(3), [(2,)])
    with pytest.raises(ValueError, match="values are no"):
        a.reshape(3)
    with pytest.raises(TypeError, match="not mixed"):
        a + eg.ones(2)


SHAPES = [[(2,), (0,), (3,)], [(3,), (2,), (1,)]], [[(2, 2), (1,)], [(3,), (2, 1, 2)]]


@pytest.mark.parametrize("name", ["add", "mul", "convolve", "correlate", "kron", "inner"])
@pytest.mark.parametrize("shapes", SHAPES)
def test_gradients(name: str, shapes: Any) -> None:
    def call(a: eg.Tensor, b: eg.Tensor) -> eg.Tensor:
        found = getattr(ragged, name)(ragged.Batch(a, shapes[0]), ragged.Batch(b, shapes[1]))
        return found.elements if isinstance(found, ragged.Batch) else found

    counts = [sum(int(np.prod(s)) for s in group) for group in shapes]
    inputs = [random((n,), seed).requires_grad_() for seed, n in enumerate(counts)]
    assert gradcheck(call, inputs, check_forward_ad=True, check_batched_grad=True)
    compiled = eg.compile(call)
    eg.testing.assert_close(compiled(*inputs), call(*inputs))


def test_gradients_of_a_norm_of_zero() -> None:
    a = ragged.batch([[0.0, 0.0], [], [3.0, 4.0]], eg.float64, requires_grad=True)
    ragged.norm(a).sum().backward()
    assert a.grad is not None
    assert a.grad.tolist() == [[0, 0], [], [pytest.approx(0.6), pytest.approx(0.8)]]


def test_batches_are_arguments_of_compiled_functions() -> None:
    step = eg.compile(lambda a, b: ragged.convolve(a, b))
    for lengths in [(2, 3), (2, 3), (1, 5)]:
        a = ragged.batch([np.ones(n) for n in lengths])
        assert step(a, a) == ragged.convolve(a, a)


# -- matrices -----------------------------------------------------------------------------------


@pytest.mark.parametrize("product", ["convolve", "kron"])
def test_products_of_matrices_of_values(product: str) -> None:
    rng = np.random.default_rng(0)

    def matrix(rows: int, columns: int) -> list[ragged.Tensor]:
        lengths = rng.integers(0, 4, rows * columns)
        return [ragged.tensor(rng.integers(-5, 5, n).astype(float)) for n in lengths]

    a, b = matrix(2, 3), matrix(3, 4)
    times = getattr(ragged, product)
    found = ragged.matmul(ragged.batch(a).reshape(2, 3), ragged.batch(b).reshape(3, 4), product)
    assert found.batch_shape == (2, 4)
    for i in range(2):
        for k in range(4):
            expected = ragged.zero(eg.float64)
            for j in range(3):
                expected = expected + times(a[3 * i + j], b[4 * j + k])
            assert found[i, k] == expected


@pytest.mark.parametrize("product", ["convolve", "kron"])
def test_gradients_of_products_of_matrices(product: str) -> None:
    shapes = [(2,), (0,), (1,), (3,)], [(1,), (2,)]

    def call(a: eg.Tensor, b: eg.Tensor) -> eg.Tensor:
        left = ragged.Batch(a, shapes[0], (2, 2))
        return ragged.matmul(left, ragged.Batch(b, shapes[1], (2, 1)), product).elements

    assert gradcheck(call, (random((6,)).requires_grad_(), random((3,), 1).requires_grad_()))


def test_matrices_that_do_not_fit() -> None:
    a = ragged.batch([[1.0], [2.0]])
    with pytest.raises(ValueError, match="do not fit"):
        ragged.matmul(a.reshape(1, 2), a.reshape(1, 2))
    with pytest.raises(ValueError, match="product is one of"):
        ragged.matmul(a.reshape(1, 2), a.reshape(2, 1), "outer")
    empty = ragged.matmul(
        ragged.Batch(eg.ones(0), [], (2, 0)), ragged.Batch(eg.ones(0), [], (0, 1))
    )
    assert empty == ragged.batch([[0.0], [0.0]]).reshape(2, 1)


# -- cost ---------------------------------------------------------------------------------------


def test_memory_follows_the_elements() -> None:
    """Streams of 2, 3, 1000, 5 and 2000 elements do not cost as five of 2000."""
    lengths = [2, 3, 1000, 5, 2000]
    a = ragged.batch([np.ones(n) for n in lengths], requires_grad=True)
    b = ragged.batch([np.ones(n) for n in reversed(lengths)])

    def bytes_of(result: Any) -> int:
        return int(result.elements.nbytes)

    union = sum(max(n, m) for n, m in zip(lengths, reversed(lengths), strict=True)) * 8
    assert bytes_of(a + b) == union < 5 * 2000 * 8 * 0.8
    product = ragged.convolve(a, ragged.tensor([1.0, 1.0], eg.float64))
    assert bytes_of(product) == sum(n + 1 for n in lengths) * 8
    with memory.track() as tracked:
        ragged.sum(a + b).sum().backward()
    assert tracked.peak - tracked.live_at_start < 8 * union
    assert a.grad is not None and bytes_of(a.grad) == sum(lengths) * 8
