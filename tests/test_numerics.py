"""Derivatives at the edges: ties, kinks, poles, and branches that were not taken.

What is said here is explained in docs/design/numerics.md.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from twins import agree, fixed, leaf

INF, NAN = float("inf"), float("nan")


def slope(ns: Any, function: Callable[[Any, Any], Any], values: Any) -> Any:
    """The value and the gradient of the sum of all results."""
    x = leaf(ns, values)
    out = function(ns, x)
    out.sum().backward()
    return out, x.grad


# -- as in PyTorch ------------------------------------------------------------------------------

TIES: dict[str, tuple[Callable[[Any, Any], Any], Any]] = {
    "max of all shares": (lambda ns, x: x.max(), [3.0, 1.0, 3.0, 3.0]),
    "min of all shares": (lambda ns, x: x.min(), [1.0, 1.0, 3.0]),
    "amax shares": (lambda ns, x: x.amax(1), [[2.0, 2.0, 1.0], [5.0, 4.0, 5.0]]),
    "amin shares": (lambda ns, x: x.amin((0, 1)), [[2.0, 1.0], [1.0, 1.0]]),
    "max along a dimension takes one": (lambda ns, x: x.max(1)[0], [[2.0, 2.0], [1.0, 3.0]]),
    "min along a dimension takes one": (lambda ns, x: x.min(0).values, [[2.0, 2.0], [2.0, 3.0]]),
    "median takes one": (lambda ns, x: x.median(), [2.0, 2.0, 1.0, 2.0]),
    "median along a dimension": (lambda ns, x: x.median(0)[0], [2.0, 2.0, 1.0, 2.0]),
    "sort keeps the order": (
        lambda ns, x: x.sort(stable=True)[0] * ns.arange(1.0, 5.0).to(x), [2.0, 1.0, 2.0, 1.0],
    ),
    "cummax": (lambda ns, x: x.cummax(0)[0], [1.0, 3.0, 3.0, 2.0]),
    "cummin": (lambda ns, x: x.cummin(0)[0], [3.0, 1.0, 1.0, 2.0]),
    "maximum halves": (lambda ns, x: ns.maximum(x, fixed(ns, [1.0, 2.0, 0.0])), [1.0, 1.0, 1.0]),
    "minimum halves": (lambda ns, x: ns.minimum(x, fixed(ns, [1.0, 2.0, 0.0])), [1.0, 1.0, 1.0]),
    "maximum of itself": (lambda ns, x: ns.maximum(x, x), [1.0, -1.0]),
    "fmax": (lambda ns, x: ns.fmax(x, fixed(ns, [1.0, 2.0, NAN])), [1.0, 1.0, 1.0]),
    "fmin": (lambda ns, x: ns.fmin(x, fixed(ns, [1.0, 2.0, NAN])), [1.0, 1.0, 1.0]),
}  # fmt: skip

KINKS: dict[str, tuple[Callable[[Any, Any], Any], Any]] = {
    "abs": (lambda ns, x: x.abs(), [0.0, -0.0, -2.0, 3.0]),
    "relu": (lambda ns, x: x.relu(), [0.0, -1.0, 2.0]),
    "clamp": (lambda ns, x: x.clamp(-1, 1), [-1.0, 1.0, 0.0, 2.0, -3.0]),
    "clamp from below": (lambda ns, x: x.clamp(min=1), [1.0, 0.0, 2.0]),
    "clamp by tensors": (
        lambda ns, x: x.clamp(fixed(ns, [0.0, 1.0, 2.0]), fixed(ns, [1.0, 1.0, 1.0])),
        [0.0, 1.0, 5.0],
    ),
    "sign": (lambda ns, x: x.sign(), [0.0, -1.0, 2.0]),
    "floor": (lambda ns, x: x.floor(), [0.0, 1.5]),
    "round": (lambda ns, x: x.round(), [0.5, 1.5]),
    "frac": (lambda ns, x: x.frac(), [1.0, 1.5]),
    "remainder": (lambda ns, x: x.remainder(2.0), [4.0, 3.0]),
    "norm 1": (lambda ns, x: x.norm(1), [0.0, 0.0, 2.0]),
    "norm 2": (lambda ns, x: x.norm(), [0.0, 0.0]),
    "norm 2 along a dimension": (lambda ns, x: x.norm(dim=1), [[0.0, 0.0], [3.0, 4.0]]),
    "norm 3": (lambda ns, x: x.norm(3), [0.0, 0.0]),
    "norm inf": (lambda ns, x: x.norm(INF), [2.0, -2.0, 1.0]),
    "norm inf at zero": (lambda ns, x: x.norm(INF), [0.0, 0.0]),
    "atan2": (lambda ns, x: ns.atan2(x, x), [1.0, -2.0]),
    "std of equal numbers": (lambda ns, x: x.std(), [2.0, 2.0, 2.0]),
    "var of equal numbers": (lambda ns, x: x.var(), [2.0, 2.0, 2.0]),
    "prod with one zero": (lambda ns, x: x.prod(), [0.0, 2.0, 3.0]),
    "prod with two zeros": (lambda ns, x: x.prod(), [0.0, 2.0, 0.0]),
    "cumprod with a zero": (lambda ns, x: x.cumprod(0), [2.0, 0.0, 3.0]),
    "copysign": (lambda ns, x: ns.copysign(x, fixed(ns, [1.0, -1.0, 1.0])), [0.0, 1.0, -2.0]),
    "multi_margin_loss": (
        lambda ns, x: ns.nn.functional.multi_margin_loss(x, ns.tensor([0, 2])),
        [[2.0, 1.0, 3.0], [0.0, -1.0, 0.0]],
    ),
    "multilabel_margin_loss": (
        lambda ns, x: ns.nn.functional.multilabel_margin_loss(x, ns.tensor([[0, -1, 1]])),
        [[2.0, 1.0, 3.0]],
    ),
}  # fmt: skip

POLES: dict[str, tuple[Callable[[Any, Any], Any], Any]] = {
    "sqrt": (lambda ns, x: x.sqrt(), [0.0, 4.0]),
    "rsqrt": (lambda ns, x: x.rsqrt(), [0.0, 4.0]),
    "log": (lambda ns, x: x.log(), [0.0, 4.0]),
    "reciprocal": (lambda ns, x: 1 / x, [0.0, 4.0]),
    "asin": (lambda ns, x: x.asin(), [1.0, -1.0, 0.5]),
    "atanh": (lambda ns, x: x.atanh(), [1.0, 0.5]),
    "pow 0": (lambda ns, x: x**0, [0.0, 2.0]),
    "pow 0.5": (lambda ns, x: x**0.5, [0.0, 4.0]),
    "pow 1": (lambda ns, x: x**1, [0.0, 2.0]),
    "pow 2": (lambda ns, x: x**2, [0.0, 2.0]),
    "pow -1": (lambda ns, x: x**-1, [0.0, 2.0]),
    "0 to a power": (lambda ns, x: fixed(ns, 0.0) ** x, [0.0, 2.0, 1.0]),
    "a power of 0": (lambda ns, x: ns.pow(x, fixed(ns, [0.0, 1.0, 2.0])), [0.0, 0.0, 0.0]),
    "xlogy": (lambda ns, x: ns.xlogy(x, fixed(ns, [0.0, 2.0])), [0.0, 0.0]),
    "logsumexp with -inf": (lambda ns, x: x.logsumexp(0), [-INF, 1.0, 2.0]),
    "logaddexp": (lambda ns, x: ns.logaddexp(x, fixed(ns, [-INF, 0.0])), [0.0, -INF]),
    "sigmoid far out": (lambda ns, x: x.sigmoid(), [800.0, -800.0]),
    "tanh far out": (lambda ns, x: x.tanh(), [800.0, -800.0]),
    "exp that overflows": (lambda ns, x: x.exp(), [800.0, -800.0]),
    "expm1 near 0": (lambda ns, x: x.expm1(), [1e-20]),
    "log1p near 0": (lambda ns, x: x.log1p(), [1e-20]),
}  # fmt: skip


@pytest.mark.parametrize("name", TIES)
def test_ties(name: str, torch: ModuleType) -> None:
    agree(lambda ns: slope(ns, *TIES[name]), torch)


@pytest.mark.parametrize("name", KINKS)
def test_kinks(name: str, torch: ModuleType) -> None:
    agree(lambda ns: slope(ns, *KINKS[name]), torch)


@pytest.mark.parametrize("name", POLES)
def test_poles(name: str, torch: ModuleType) -> None:
    agree(lambda ns: slope(ns, *POLES[name]), torch)


def test_no_gradient_where_pytorch_has_none_that_is_a_number(torch: ModuleType) -> None:
    """At the corner of a cone and for a sum of nothing zero is a subgradient; PyTorch says NaN."""
    for function, values in (
        (lambda ns, x: ns.hypot(x, x * 0), [0.0]),
        (lambda ns, x: x.logsumexp(0), [-INF, -INF]),
    ):
        assert np.isnan(slope(torch, function, values)[1].numpy()).all()
        assert not slope(eg, function, values)[1].numpy().any()


@pytest.mark.parametrize("name", [*TIES, *KINKS])
def test_forward_mode_says_the_same(name: str) -> None:
    function, values = {**TIES, **KINKS}[name]
    x = leaf(eg, values)
    direction = fixed(eg, np.linspace(-1.0, 2.0, x.numel()).reshape(tuple(x.shape)))
    out = function(eg, x)
    (grad,) = eg.autograd.grad(out.sum(), x)
    _, moved = eg.func.jvp(lambda x: function(eg, x), (x.detach(),), (direction,))
    np.testing.assert_allclose(moved.sum().item(), (grad * direction).sum().item(), atol=1e-12)


# -- branches that were not taken ---------------------------------------------------------------
# Each function is only sound where x > 0; PyTorch gives NaN for the others.

UNTAKEN: dict[str, Callable[[Any], Any]] = {
    "sqrt": lambda x: x.sqrt(),
    "rsqrt": lambda x: x.rsqrt(),
    "log": lambda x: x.log(),
    "reciprocal": lambda x: x.reciprocal(),
    "division": lambda x: 3 / x,
    "division by itself": lambda x: x / x,
    "power": lambda x: x**0.3,
    "power of itself": lambda x: x**x,
    "entropy": lambda x: -x * x.log(),
    "a chain": lambda x: ((x.log() * x.sqrt()).exp() / x).tanh(),
    "through views": lambda x: x.reshape(1, -1).sqrt().t().log().reshape(-1),
    "through a cast": lambda x: x.float().sqrt().double(),
    "asin": lambda x: (1 - 2 * (x > 0) + x / 10).asin(),
    "overflow": lambda x: (-1000 * (x <= 0) * x + (x <= 0) * 800 + x).exp(),
}
POINTS = [0.0, 4.0, -1.0, 0.25]


def chosen(x: Any, function: Callable[[Any], Any], form: str) -> Any:
    if form == "where":
        return eg.where(x > 0, function(x), 0.0)
    if form == "where, the other way":
        return eg.where(x <= 0, 0.0, function(x))
    if form == "masked_fill":
        return function(x).masked_fill(x <= 0, 0.0)
    out = function(x) + 0
    out[x <= 0] = 0.0
    return out


@pytest.mark.parametrize("form", ["where", "where, the other way", "masked_fill", "set item"])
@pytest.mark.parametrize("name", UNTAKEN)
def test_what_was_not_chosen_has_no_gradient(name: str, form: str) -> None:
    function = UNTAKEN[name]
    x = leaf(eg, POINTS)
    (first,) = eg.autograd.grad(chosen(x, function, form).sum(), x, create_graph=True)
    good = leaf(eg, [4.0, 0.25])
    (expected,) = eg.autograd.grad(function(good).sum(), good, create_graph=True)
    assert first[[0, 2]].tolist() == [0.0, 0.0]
    np.testing.assert_allclose(first[[1, 3]].tolist(), expected.tolist(), rtol=1e-6)
    if first.requires_grad and expected.requires_grad:
        (second,) = eg.autograd.grad(first.sum(), x)
        (wanted,) = eg.autograd.grad(expected.sum(), good)
        assert second[[0, 2]].tolist() == [0.0, 0.0]
        np.testing.assert_allclose(second[[1, 3]].tolist(), wanted.tolist(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["sqrt", "log", "entropy"])
def test_under_transforms_too(name: str) -> None:
    def function(x: Any) -> Any:
        return chosen(x, UNTAKEN[name], "where")

    x = fixed(eg, POINTS)
    expected = eg.func.grad(lambda x: function(x).sum())(x)
    assert np.isfinite(expected.numpy()).all()
    ways = {
        "jacrev": eg.func.jacrev(function)(x).diagonal(),
        "jacfwd": eg.func.jacfwd(function)(x).diagonal(),
        "vmap of grad": eg.vmap(eg.func.grad(function))(x),
        "grad of vmap": eg.func.grad(lambda x: eg.vmap(function)(x).sum())(x),
    }
    for way, found in ways.items():
        np.testing.assert_allclose(found.numpy(), expected.numpy(), err_msg=way)


def test_a_safe_unit_vector() -> None:
    x = leaf(eg, [[3.0, 4.0], [0.0, 0.0]])
    length = (x * x).sum(1, keepdim=True).sqrt()
    unit = eg.where(length > 0, x / length, 0.0)
    unit[:, 0].sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [[16 / 125, -12 / 125], [0.0, 0.0]], atol=1e-12)


def test_broadcast_factors_of_unchosen_elements() -> None:
    scale, x = leaf(eg, 2.0), fixed(eg, POINTS)
    eg.where(x > 0, scale / x, 0.0).sum().backward()
    assert scale.grad.item() == 1 / 4 + 1 / 0.25


def test_a_cotangent_of_zero_is_no_choice() -> None:
    """Where the slope is sound, the second derivative survives a first one that happens to be 0."""
    x = leaf(eg, [1.0, 2.0])
    y = eg.where(x > 0, x.log(), 0.0)
    (first,) = eg.autograd.grad((y * y).sum(), x, create_graph=True)
    assert first.tolist()[0] == 0.0
    (second,) = eg.autograd.grad(first.sum(), x)
    np.testing.assert_allclose(second.tolist(), [2.0, (2 - 2 * np.log(2)) / 4])


def test_real_infinities_are_not_hidden(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [0.0, 4.0])
        ns.where(x >= 0, x.sqrt(), ns.zeros_like(x)).sum().backward()
        y = leaf(ns, [0.0, 0.0])
        ((y * y).sum().sqrt() * 1).backward()
        return x.grad, y.grad

    agree(program, torch)


@pytest.mark.parametrize("loss", ["smooth_l1_loss", "huber_loss"])
def test_rounded_losses_are_parabolas_at_zero_and_pass_nan_on(loss: str, torch: ModuleType) -> None:
    """Where the arguments are equal the second derivative is that of the parabola, and the
    gradient of what is not a number is not a number."""

    def program(ns: Any) -> Any:
        x = leaf(ns, [0.0, 0.5, -0.25, 3.0, NAN])
        value = getattr(ns.nn.functional, loss)(x, ns.zeros_like(x), reduction="none")
        (first,) = ns.autograd.grad(value.sum(), x, create_graph=True)
        (second,) = ns.autograd.grad(first[:4].sum(), x)
        return value, first, second

    agree(program, torch)
