"""Checks of values wherever a compiled function may have them: transforms, loops, recomputation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad import nn
from evergrad.errors import NonFiniteError
from evergrad.nn import functional as F
from evergrad.utils.checkpoint import checkpoint

X = eg.tensor(np.random.default_rng(0).normal(size=(6, 5)).astype("f4"))
GOOD = eg.tensor([0, 4, 1, 3, 2, 2])
BAD = eg.tensor([0, 4, 9, 3, 2, 2])
LAYER = nn.Linear(5, 5)
MESSAGE = (
    "Target 9 is out of bounds. The input has 5 classes, 0 to 4; a target that does not count has "
    "the number ignore_index."
)


def under_autocast(x: Any, t: Any) -> Any:
    with eg.autocast("cpu", dtype=eg.bfloat16):
        return F.cross_entropy(LAYER(x), t)


def checkpointed(x: Any, t: Any) -> Any:
    loss = checkpoint(lambda x: F.cross_entropy(LAYER(x), t), x, use_reentrant=False)
    return eg.autograd.grad(loss, list(LAYER.parameters()))[0]


def forward_mode(x: Any, t: Any) -> Any:
    return eg.func.jvp(lambda x: F.cross_entropy(x, t), (x,), (x,))[1]


def second_order(x: Any, t: Any) -> Any:
    return eg.func.hessian(lambda x: F.cross_entropy(x, t))(x)


def for_each_sample(x: Any, t: Any) -> Any:
    return eg.vmap(eg.func.grad(lambda a, b: F.cross_entropy(a[None], b[None])))(x, t)


def of_both(x: Any, t: Any) -> Any:
    return eg.vmap(lambda a: F.cross_entropy(a, t))(eg.stack([x, x * 2]))


def unused(x: Any, t: Any) -> Any:
    F.nll_loss(x, t)
    return x * 2


def in_a_custom_function(x: Any, t: Any) -> Any:
    class Loss(eg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return F.cross_entropy(x, t)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * ctx.saved_tensors[0]

    return Loss.apply(x)


def with_noise(x: Any, t: Any) -> Any:
    return F.cross_entropy(F.dropout(x, 0.5), t) + eg.rand(())


CONTEXTS = [under_autocast, checkpointed, forward_mode, second_order, for_each_sample, of_both,
            unused, in_a_custom_function, with_noise]  # fmt: skip


def error_of(step: Callable[..., Any], *args: Any) -> Exception:
    with pytest.raises(IndexError) as found:
        step(*args)
    return found.value


@pytest.mark.parametrize("step", CONTEXTS)
def test_values_and_errors_as_in_eager_mode(step: Callable[..., Any]) -> None:
    compiled = eg.compile(step)
    for _ in range(2):
        eg.manual_seed(1)
        expected = step(X, GOOD)
        eg.manual_seed(1)
        found = compiled(X, GOOD)
        # Autocast rounds to bfloat16 at other places.
        near = 2e-2 if step is under_autocast else 1e-5
        np.testing.assert_allclose(found.detach(), expected.detach(), rtol=near, atol=1e-6)
        before = eg.get_rng_state()
        error = error_of(compiled, X, BAD)
        assert str(error) == str(error_of(step, X, BAD)) == MESSAGE
        eg.set_rng_state(before)


def test_differentiated_from_outside() -> None:
    compiled = eg.compile(F.cross_entropy)
    x = X.clone().requires_grad_()
    compiled(x, GOOD).backward()
    expected = X.clone().requires_grad_()
    F.cross_entropy(expected, GOOD).backward()
    np.testing.assert_allclose(x.grad, expected.grad, atol=1e-6)
    assert str(error_of(compiled, x, BAD)) == MESSAGE


def test_in_a_loop_the_row_is_named_and_the_rows_before_are_done() -> None:
    layer = nn.Linear(5, 5)
    opt = eg.optim.SGD(layer.parameters(), lr=0.1)

    @eg.compile
    def step(x: Any, t: Any) -> Any:
        loss = F.cross_entropy(layer(x), t)
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss.detach()

    xs = eg.stack([X] * 4)
    step.loop(xs, eg.stack([GOOD] * 4))
    start = layer.weight.detach().clone()
    error = error_of(step.loop, xs, eg.stack([GOOD, GOOD, BAD, GOOD]))
    assert str(error) == MESSAGE
    assert "row 2" in "\n".join(error.__notes__)
    assert not eg.equal(layer.weight.detach(), start)


def test_with_finite_checks() -> None:
    compiled = eg.compile(lambda x, t: F.cross_entropy(x, t), check_finite=True)
    compiled(X, GOOD)
    assert str(error_of(compiled, X, BAD)) == MESSAGE
    with pytest.raises(NonFiniteError):
        compiled(X * float("inf"), GOOD)


@pytest.mark.parametrize("step", [
    lambda x, t: F.cross_entropy(x, t, reduction="sum"),
    lambda x, t: F.one_hot(t, 4),
    lambda x, t: eg.distributions.Normal(x, x.exp()).log_prob(x),
    lambda x, t: x.masked_scatter(x > 0, x),
    lambda x, t: eg.bincount(t, minlength=3),
    lambda x, t: eg.repeat_interleave(x, t, 0, output_size=0),
])  # fmt: skip
def test_empty_tensors(step: Callable[..., Any]) -> None:
    x, t = eg.zeros(0, 5), eg.zeros(0, dtype=eg.int64)
    expected, found = step(x, t), eg.compile(step)(x, t)
    assert found.shape == expected.shape
    assert found.dtype is expected.dtype
    assert eg.equal(found, expected)
