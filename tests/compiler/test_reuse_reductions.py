"""Norms plane by plane, sums that follow from others, gradients that come two ways."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.compiler.convolutions import check, normal
from tests.compiler.steps import lowered_programs_of

import evergrad as eg
from evergrad.compiler.schedule.nodes import Group

F = eg.nn.functional


def sums_over(compiled: Any, *shape: int) -> int:
    """How many sums of values of this shape there are."""
    program = lowered_programs_of(compiled)[-1]
    equations = [e for node in program.lowering.nodes for e in node.equations]
    sums = [e for e in equations if e.op.name == "sum"]
    return sum(e.args[0].type.shape == shape for e in sums)


def loops_over(compiled: Any, *shape: int) -> int:
    program = lowered_programs_of(compiled)[-1]
    nodes = program.lowering.nodes
    return sum(isinstance(node, Group) and node.shape == shape for node in nodes)


SHAPES = [(4, 12, 40, 40), (3, 6, 4096), (2, 8, 9, 24, 24), (5, 16, 30, 31), (2, 4, 5, 5)]


@pytest.mark.parametrize("dtype", [eg.float64, eg.float32], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_group_norm_between_other_steps(shape: tuple[int, ...], dtype: Any) -> None:
    channels = shape[1]

    def normed(x: Any, weight: Any, bias: Any, other: Any) -> Any:
        given = x.tanh() + other
        y = F.silu(F.group_norm(given, 2, weight, bias))
        return y + given * F.group_norm(y, 2)

    numbers = [normal((channels,), dtype, seed) for seed in (1, 2)]
    check(normed, normal(shape, dtype), *numbers, normal((channels, *shape[2:]), dtype, 3))


def test_images_that_are_grouped_in_two_ways() -> None:
    check(
        lambda x: F.group_norm(F.relu(F.group_norm(x, 2)), 4) + F.group_norm(x, 1),
        normal((3, 8, 56, 56), eg.float64),
    )


def test_images_that_do_not_lie_in_order() -> None:
    check(
        lambda x: F.group_norm(x.transpose(1, 3), 2) * x.transpose(1, 3).exp(),
        normal((4, 40, 41, 12), eg.float64),
    )


def test_a_group_norm_is_one_kind_of_loop() -> None:
    """Forward sums and then goes on; backward sums and then passes the gradient on."""
    layer = eg.nn.GroupNorm(4, 16)

    def step(x: Any) -> Any:
        y = F.silu(layer(x.tanh()))
        return (y, *eg.autograd.grad(y, (x, *layer.parameters()), y.cos()))

    compiled = eg.compile(step)
    x = normal((4, 16, 40, 40), eg.float32).requires_grad_()
    compiled(x)
    assert loops_over(compiled, 4, 4, 4, 40, 40) == 3
    assert loops_over(compiled, 4, 4, 6400) == loops_over(compiled, 4, 16, 40, 40) == 0
    # Of x, of distances and their squares, and of the gradient by itself and with what was
    # normalised.
    assert sums_over(compiled, 4, 4, 4, 40, 40) == 5


def test_small_planes_stay_in_their_groups() -> None:
    compiled = eg.compile(lambda x: F.group_norm(x, 4))
    compiled(normal((16, 64, 12, 12), eg.float32))
    assert loops_over(compiled, 16, 4, 2304) == 1


def test_the_variance_of_numbers_far_from_zero() -> None:
    x = normal((2, 8, 64, 64), eg.float64) + eg.arange(8).reshape(8, 1, 1) + 500
    found = eg.compile(lambda x: F.group_norm(x, 2))(x.float())
    expected = F.group_norm(x, 2)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=0, atol=1e-4)


@pytest.mark.parametrize("dtype", [eg.float64, eg.float32], ids=str)
def test_batch_norm_in_training(dtype: Any) -> None:
    def normed(x: Any, weight: Any, bias: Any) -> Any:
        y = F.relu(F.batch_norm(x, None, None, weight, bias, training=True) + x)
        return F.batch_norm(y * 2, None, None, training=True)

    check(normed, normal((6, 5, 33, 34), dtype), *(normal((5,), dtype, n) for n in (1, 2)))


def test_batch_norm_sums_what_its_gradient_needs_once() -> None:
    layer = eg.nn.BatchNorm2d(4)

    def step(x: Any) -> Any:
        y = layer(x)
        return (y, *eg.autograd.grad(y, (x, *layer.parameters()), y.cos()))

    # Of x, of squared distances, and of the gradient by itself and with what was normalised; small
    # batches have the sum of distances too, in the same pass.
    for samples, sums in ((20, 4), (8, 5)):
        compiled = eg.compile(step)
        compiled(normal((samples, 4, 30, 30), eg.float32).requires_grad_())
        assert sums_over(compiled, samples, 4, 30, 30) == sums


@pytest.mark.parametrize("groups", [1, 2, 8])
def test_what_the_mean_leaves_is_subtracted_in_planes_and_groups(groups: int) -> None:
    """The mean of 65,536 numbers near 500 is off by up to 1.5e-5: 256 roundings."""
    x = normal((2, 8, 128, 64), eg.float32) + 500
    expected = F.group_norm(x.double(), groups)
    for found in (F.group_norm(x, groups), eg.compile(lambda x: F.group_norm(x, groups))(x)):
        error = found.double() - expected
        assert error.abs().max() < 2e-6 and error.mean().abs() < 1e-7


def of_two(x: Any, y: Any) -> tuple[Any, ...]:
    scale = y[:, :1]
    centered = x - x.mean(1, keepdim=True)
    return (
        (x * y).sum(1), (x * scale * y * 3).sum(1, keepdim=True), x.sum(1), y.sum(1),
        -(x * scale * 2).sum(1), (y * scale + centered * 3).sum(1), (x * scale).sum(0),
        (scale.mean().expand(64, 500) + y[0, 0].expand(64, 500)).sum(1),
    )  # fmt: skip


def test_a_sum_that_follows_from_others_is_not_taken_again() -> None:
    x, y = (normal((64, 500), eg.float64, n) for n in (1, 2))
    compiled = eg.compile(of_two)
    for found, expected in zip(compiled(x, y), of_two(x, y), strict=True):
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-10, atol=1e-10)
    assert sums_over(compiled, 64, 500) == 5


SQUARES: dict[str, Any] = {
    "value, square": lambda x, y: (x.sum(0), (x * x).sum(0)),
    "square, value": lambda x, y: ((x * x).sum(0), x.sum(0)),
    "square twice": lambda x, y: ((x * x).sum(0), (x * 3 * x).sum(0), x.sum(0)),
    "scaled by the square": lambda x, y: ((x * (1 / (x * x).sum(0, keepdim=True))).sum(0),),
    "renorm": lambda x, y: (x.renorm(2, 1, 1.0).sum(0),),
    "normalize": lambda x, y: (F.normalize(x, dim=0).sum(0), x.mean(0)),
    "moments": lambda x, y: (x.mean(0), (x * x).mean(0), (x * x * x).mean(0), x.pow(4).sum(0)),
    "of products": lambda x, y: ((x * y).sum(0), (x * y * x * y).sum(0), (y * y).sum(0), y.sum(0)),
    "of the whole": lambda x, y: (x.sum(), (x * x).sum(), (x * y).sum(), (y * x).sum()),
    "of a scaled value": lambda x, y: ((x * 2 * (x * 2)).sum(0), (x * 2).sum(0), x.sum(0)),
    "added": lambda x, y: ((x * x).sum(0), (x + 1).sum(0), (x * x + x).sum(0)),
    "gradient": lambda x, y: eg.func.grad(lambda x: ((x * x).sum(0) * x.sum(0)).sum())(x).sum(0),
}  # fmt: skip


@pytest.mark.parametrize("name", SQUARES)
def test_the_sum_of_a_square_is_not_that_of_its_value(name: str) -> None:
    x, y = (eg.rand(9000, 3, dtype=eg.float64) for _ in range(2))
    found, expected = eg.compile(SQUARES[name])(x, y), SQUARES[name](x, y)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-10)


# Sums of terms that cancel, after the sums of the terms themselves.
CANCELLING: dict[str, Any] = {
    "a difference": lambda x, y: (y.sum(1), (x - y).sum(1)),
    "an addition": lambda x, y: ((-y).sum(1), (x + -y).sum(1)),
    "a number": lambda x, y: ((x - 1000).sum(1),),
    "a negative number": lambda x, y: ((x + -1000.0).sum(1),),
    "a column": lambda x, y: ((x - y[:, :1]).sum(1),),
    "after a factor": lambda x, y: ((x * 2 - 2000).sum(1),),
    "from a number": lambda x, y: ((1000 - x).sum(1),),
    "of everything": lambda x, y: ((x - y).sum(), x.sum(), y.sum()),
    "in a product": lambda x, y: (y.sum(1), ((x - y) * 3).sum(1)),
    "negated": lambda x, y: (y.sum(1), (-(x - y)).sum(1)),
}  # fmt: skip


@pytest.mark.parametrize("name", CANCELLING)
def test_sums_of_terms_that_cancel_are_taken(name: str) -> None:
    """They may be far smaller than the sums of their terms, and exact."""

    def sums(x: Any, y: Any) -> tuple[Any, ...]:
        return x.sum(1), *CANCELLING[name](x, y)

    x = eg.rand(64, 500) + 1000
    y = x - 1e-3
    expected = sums(x.double(), y.double())
    for found, other in zip(eg.compile(sums)(x, y), expected, strict=True):
        np.testing.assert_allclose(found.numpy(), other.numpy(), rtol=2e-5)


def test_what_joins_nobody_goes_where_it_is_used() -> None:
    """As the sum of a gradient that comes two ways, which needs no kernel of its own."""

    def step(x: Any, w: Any) -> Any:
        other = x @ x
        straight = (x @ w).tanh().sigmoid()
        both = straight + straight.exp() @ w
        return other.tanh() * both

    compiled = eg.compile(step)
    x, w = (normal((64, 64), eg.float64, n) for n in (1, 2))
    np.testing.assert_allclose(compiled(x, w).numpy(), step(x, w).numpy(), rtol=1e-11, atol=1e-11)
    assert loops_over(compiled, 64, 64) == 2
