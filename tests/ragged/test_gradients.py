"""Derivatives: exact shapes, any order, forward mode, vmap, compiled."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from tests.ragged.values import OPERATIONS, SHAPES, applied, random

import evergrad as eg
from evergrad import memory, ragged
from evergrad.autograd import gradcheck, gradgradcheck
from evergrad.func import grad, hessian, jvp, vmap

SMALL = [s for s in SHAPES if len(s) <= 2]


@pytest.mark.parametrize("name", OPERATIONS)
def test_gradients_for_all_pairs_of_shapes(name: str) -> None:
    """All pairs up to rank 2; those of rank 3 are in tests/soak."""
    call = applied(name)
    for a, b in itertools.product(SMALL, SMALL):
        inputs = random(a).requires_grad_(), random(b, 1).requires_grad_()
        assert gradcheck(call, inputs), (name, a, b)


@pytest.mark.parametrize("name", OPERATIONS)
def test_gradients_have_the_shapes_of_their_operands(name: str) -> None:
    """And are transposes: the scalar product of a cotangent with a tangent is the same on both
    sides. For a sample of all pairs of shapes."""
    call = applied(name)
    pairs = list(itertools.product(SHAPES, SHAPES))
    for number in np.random.default_rng(3).choice(len(pairs), 150, replace=False):
        a, b = (random(shape, seed).requires_grad_() for seed, shape in enumerate(pairs[number]))
        out = call(a, b)
        g = random(tuple(out.shape), 2)
        for operand, grad_ in zip((a, b), eg.autograd.grad(out, [a, b], g), strict=True):
            assert grad_.shape == operand.shape
            tangent = random(tuple(operand.shape), 5)
            moved = [tangent if x is operand else x.detach() for x in (a, b)]
            still = [eg.zeros_like(x) if x is operand else x.detach() for x in (a, b)]
            pushed = ((call(*moved) - call(*still)) * g).sum()
            assert pushed.item() == pytest.approx((grad_ * tangent).sum().item(), abs=1e-9)


@pytest.mark.parametrize("name", ["convolve", "correlate", "mul", "kron", "inner"])
@pytest.mark.parametrize("pair", [((3,), (2,)), ((2, 2), (3,)), ((2, 1, 2), (1, 2)), ((0,), (2,))])
def test_second_order_and_forward_mode(name: str, pair: Any) -> None:
    inputs = [random(shape, seed).requires_grad_() for seed, shape in enumerate(pair)]
    assert gradgradcheck(applied(name), inputs)
    assert gradcheck(applied(name), inputs, check_forward_ad=True)


def test_third_order() -> None:
    a = ragged.tensor([1.0, 2.0], eg.float64)
    b = ragged.tensor([0.5, -1.0, 3.0], eg.float64)

    def cubed(x: eg.Tensor) -> eg.Tensor:
        return ragged.sum(ragged.convolve(ragged.power(ragged.Tensor(x), 3), b))

    # The sum of a convolution is the product of sums: (x0 + x1)^3 * 2.5.
    third = grad(lambda x: hessian(cubed)(x).sum())(a.dense)
    assert third.tolist() == pytest.approx([4 * 6 * 2.5] * 2)


def test_shrink_is_differentiated_by_the_part_it_keeps() -> None:
    a = ragged.tensor([[1.0, 0.0], [2.0, 0.0]], eg.float64, requires_grad=True)
    ragged.sum(ragged.scale(ragged.shrink(a), 3.0)).backward()
    assert a.grad is not None and a.grad.tolist() == [[3, 0], [3, 0]]


def test_norm_of_zero_has_a_gradient() -> None:
    for shape in [(0,), (3,), ()]:
        a = ragged.Tensor(eg.zeros(shape).requires_grad_())
        ragged.norm(a).backward()
        assert a.grad is not None and not a.grad.numpy().any()


def test_stacks_and_windows_reach_every_value() -> None:
    stream = [ragged.tensor(np.ones(n), requires_grad=True) for n in (1, 3, 2, 4)]
    for number, made in enumerate(ragged.windows(stream, 2)):
        ragged.sum(ragged.scale(made, float(number + 1))).backward()
    assert [v.grad.tolist() for v in stream if v.grad is not None] == [
        [1],
        [1] * 3,
        [2] * 2,
        [2] * 4,
    ]


# -- transforms ---------------------------------------------------------------------------------


def test_values_are_trees_for_transforms() -> None:
    a, b = ragged.tensor([1.0, 2.0, 3.0]), ragged.tensor([4.0, 5.0])
    slope = grad(lambda x, y: ragged.sum(ragged.convolve(x, y)))(a, b)
    assert isinstance(slope, ragged.Tensor) and slope.tolist() == [9, 9, 9]
    value, tangent = jvp(ragged.convolve, (a, b), (a, b))
    assert tangent == 2 * value


@pytest.mark.parametrize("name", ["add", "mul", "convolve", "correlate", "kron", "inner"])
@pytest.mark.parametrize("in_dims", [(0, 0), (0, None), (None, 0)])
def test_vmap_over_values_of_one_shape(name: str, in_dims: Any) -> None:
    a = random((4, 3) if in_dims[0] == 0 else (3,))
    b = random((4, 2, 2) if in_dims[1] == 0 else (2, 2), 1)
    call = applied(name)
    found = vmap(call, in_dims)(a, b)
    one_by_one = [
        call(a[i] if in_dims[0] == 0 else a, b[i] if in_dims[1] == 0 else b) for i in range(4)
    ]
    assert eg.allclose(found, eg.stack(one_by_one))


def test_vmap_of_values() -> None:
    a, b = ragged.Tensor(random((4, 3))), ragged.Tensor(random((4, 2)))
    found = vmap(ragged.convolve)(a, b)
    assert isinstance(found, ragged.Tensor) and found.shape == (4, 4)


# -- compiled -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPERATIONS)
def test_compiled(name: str) -> None:
    call = applied(name)

    def step(a: eg.Tensor, b: eg.Tensor) -> Any:
        out = call(a, b)
        return out, *eg.autograd.grad((out * out).sum(), [a, b])

    compiled = eg.compile(step)
    for pair in [((3,), (2,)), ((2, 2), (3,)), ((0,), (2,)), ((2, 1, 3), (3, 2))]:
        a, b = (random(shape, seed).requires_grad_() for seed, shape in enumerate(pair))
        for found, expected in zip(compiled(a, b), step(a, b), strict=True):
            eg.testing.assert_close(found, expected)


def test_values_as_arguments_and_results_of_compiled_functions() -> None:
    step = eg.compile(lambda a, b: {"sum": ragged.add(a, b), "product": ragged.convolve(a, b)})
    for n, m in [(3, 2), (3, 2), (5, 1)]:
        a, b = ragged.Tensor(random((n,))), ragged.Tensor(random((m,)))
        found = step(a, b)
        assert ragged.allclose(found["sum"], a + b)
        assert ragged.allclose(found["product"], ragged.convolve(a, b))


def test_a_compiled_training_step() -> None:
    """Learns an impulse response."""
    truth = ragged.tensor([0.5, -0.25, 0.125])
    weight = ragged.tensor(np.zeros(3), eg.float32, requires_grad=True)
    optimizer = eg.optim.SGD([weight.dense], lr=0.05)

    @eg.compile
    def step(signal: ragged.Tensor, target: ragged.Tensor) -> eg.Tensor:
        error = ragged.convolve(signal, weight) - target
        loss = ragged.inner(error, error)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    for seed in range(60):
        signal = ragged.Tensor(random((6,), seed).float())
        step(signal, ragged.convolve(signal, truth))
    assert ragged.allclose(weight.detach(), truth, atol=1e-3)


# -- memory -------------------------------------------------------------------------------------


def test_a_step_ends_with_the_memory_it_began_with() -> None:
    weight = ragged.tensor(np.ones(16), requires_grad=True)
    signals = ragged.batch([np.ones(n) for n in (3, 40, 7)])

    def step() -> None:
        ragged.norm(ragged.convolve(signals, weight)).sum().backward()
        weight.grad = None

    step()
    with memory.steady() as steady:
        for _ in range(5):
            step()
            steady.step()
