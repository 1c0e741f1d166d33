"""Batched graphs that are cached by their structure: every call gives what the first one gave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import evergrad as eg
import evergrad.nn.functional as F
from evergrad import func
from evergrad.core import batch_plan

CALLS = 4


def filled(*shape: int) -> eg.Tensor:
    return eg.tensor(np.random.default_rng(sum(shape)).standard_normal(shape).astype("f4"))


W = filled(3, 5).requires_grad_()
MODEL = eg.nn.Sequential(eg.nn.Linear(5, 4), eg.nn.Tanh(), eg.nn.Linear(4, 3))


def class_loss(w: eg.Tensor, x: eg.Tensor, y: eg.Tensor) -> eg.Tensor:
    return F.cross_entropy(F.linear(x.unsqueeze(0), w), y.unsqueeze(0))


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "elementwise": (func.vmap(lambda a, b: (a * b).tanh() + 1), (filled(6, 5), filled(6, 5))),
    "captured": (func.vmap(lambda a: (W @ a).relu()), (filled(6, 5),)),
    "other dimension": (func.vmap(lambda a: a.sum(0), in_dims=1, out_dims=1), (filled(5, 6, 2),)),
    "strided": (func.vmap(lambda a: a.reshape(-1) * 2), (filled(5, 6).t(),)),
    "two results": (func.vmap(lambda a: (a.exp(), a.exp())), (filled(6, 5),)),
    "view": (func.vmap(lambda a: a.t()), (filled(6, 5, 2),)),
    "itself": (func.vmap(lambda a: a), (filled(6, 5),)),
    "unbatched": (func.vmap(lambda a: (a.sin(), W.exp()), out_dims=(0, None)), (filled(6, 5),)),
    "several results": (func.vmap(lambda a: a.max(0)), (filled(6, 5),)),
    "creation": (func.vmap(lambda a: a + eg.arange(5) * eg.ones(5)), (filled(6, 5),)),
    "selection": (func.vmap(lambda a: eg.where(a > 0, a.abs().sqrt(), 0.0)), (filled(6, 5),)),
    "jacrev": (func.jacrev(MODEL), (filled(5),)),
    "rows of jacobians": (func.vmap(func.jacrev(MODEL)), (filled(6, 5),)),
    "jacfwd": (func.vmap(func.jacfwd(MODEL)), (filled(6, 5),)),
    "hessian": (func.vmap(func.hessian(lambda a: MODEL(a).square().sum())), (filled(6, 5),)),
    "nested": (
        func.vmap(func.vmap(eg.dot, in_dims=(None, 0)), in_dims=(0, None)),
        (filled(4, 5), filled(6, 5))),
    "samples' gradients": (
        func.vmap(func.grad(class_loss), in_dims=(None, 0, 0)),
        (filled(3, 5), filled(6, 5), eg.tensor([0, 2, 1, 1, 0, 2]))),
}  # fmt: skip


def arrays(result: Any) -> list[np.ndarray[Any, Any]]:
    found = result if isinstance(result, tuple) else (result,)
    return [t.detach().numpy().copy() for t in found]


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_call_gives_what_the_first_gave(name: str, recorded: bool) -> None:
    function, args = FUNCTIONS[name]
    batch_plan.clear_batch_plans()
    wanted: list[Any] = []
    for _ in range(CALLS):
        given = [a.detach() for a in args]
        leaves = [a.requires_grad_() for a in given if recorded and a.is_floating_point()]
        W.grad = None
        MODEL.zero_grad()
        result = function(*given)
        found = arrays(result)
        parts = result if isinstance(result, tuple) else (result,)
        if any(t.requires_grad for t in parts):
            sum(t.square().sum() for t in parts if t.requires_grad).backward()
        tracked = [*leaves, W, *MODEL.parameters()]
        found += [t.grad.numpy().copy() for t in tracked if t.grad is not None]
        wanted = wanted or found
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(a, b)
    assert any(isinstance(plan, tuple) for plan in batch_plan._plans.values())


def test_what_python_decides_is_followed() -> None:
    rate = 1.0

    def scaled(a: eg.Tensor) -> eg.Tensor:
        return a * rate if rate < 3 else a + rate

    x = filled(4, 3)
    for rate in [1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 5.0, 0.0, -0.0, 0.0, -0.0]:
        expected = x * rate if rate < 3 else x + rate
        found = func.vmap(scaled)(x)
        np.testing.assert_array_equal(np.signbit(found.numpy()), np.signbit(expected.numpy()))
        np.testing.assert_array_equal(found.numpy(), expected.numpy())


def test_shapes_dtypes_and_aliases_are_part_of_the_structure() -> None:
    product = func.vmap(lambda a, b: a * b.sum())
    for _ in range(3):
        for a, b in [
            (filled(4, 3), filled(4, 3)), (filled(4, 2), filled(4, 2)),
            (filled(5, 3), filled(5, 3)), (filled(4, 3).double(), filled(4, 3)),
            (filled(3, 4).t(), filled(4, 3)),
        ]:  # fmt: skip
            np.testing.assert_allclose(product(a, b), a * b.sum(1, keepdim=True), rtol=1e-6)
        a = filled(4, 3)
        np.testing.assert_allclose(product(a, a), a * a.sum(1, keepdim=True), rtol=1e-6)


def test_equal_results_are_arrays_of_their_own() -> None:
    twice = func.vmap(lambda a: (a.exp(), a.exp(), a.exp().exp()))
    for _ in range(CALLS):
        first, second, _ = twice(filled(4, 3))
        first.zero_()
        assert (second != 0).all()


def test_draws_are_new_in_every_call_and_an_error_stays_one() -> None:
    drawn = func.vmap(lambda a: a + eg.rand(3), randomness="different")
    x = eg.zeros(4, 3)
    found = {drawn(x).numpy().tobytes() for _ in range(CALLS)}
    assert len(found) == CALLS
    for _ in range(CALLS):
        with pytest.raises(RuntimeError, match="random operation"):
            func.vmap(lambda a: a + eg.rand(3))(x)


def test_classes_out_of_range_are_found_in_every_call() -> None:
    x, y = filled(4, 5), eg.tensor([0, 1, 2, 0])
    losses = func.vmap(func.grad(class_loss), in_dims=(None, 0, 0))
    for _ in range(CALLS):
        losses(filled(3, 5), x, y)
    with pytest.raises(IndexError):
        losses(filled(3, 5), x, eg.tensor([0, 1, 7, 0]))


def test_what_is_overwritten_under_no_grad_is_not_recorded() -> None:
    def half_detached(a: eg.Tensor) -> eg.Tensor:
        with eg.no_grad():
            b = a * 2
        return a * b

    for _ in range(CALLS):
        x = filled(4, 3).requires_grad_()
        func.vmap(half_detached)(x).sum().backward()
        np.testing.assert_allclose(x.grad, 2 * x.detach())


def test_a_plan_is_used_in_a_compiled_function() -> None:
    step = func.vmap(lambda a: (a * a).sum())
    x = filled(4, 3)
    for _ in range(CALLS):
        step(x)
    np.testing.assert_allclose(eg.compile(lambda a: step(a) + 1)(x), step(x) + 1, rtol=1e-6)
