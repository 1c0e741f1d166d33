"""Outputs of compiled functions alias arguments and each other as in eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import evergrad as eg
from evergrad import nn
from evergrad.ops.rows.random.draws import memory_order

from .steps import assert_alike, randn


def shared(tensors: list[Any]) -> list[list[bool]]:
    """Which of some tensors stand on one storage."""
    return [[a._storage is b._storage for b in tensors] for a in tensors]


def same_objects(tensors: list[Any]) -> list[list[bool]]:
    return [[a is b for b in tensors] for a in tensors]


def scaled_in_place(x: Any, w: Any) -> Any:
    return x.mul_(2), x[1]


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "argument": lambda x, w: (x, x * 2),
    "argument twice": lambda x, w: (x, x, w),
    "outside": lambda x, w: (w, x + w),
    "result twice": lambda x, w: [y := x * 2, y, y + 1],
    "views of an argument": lambda x, w: (x[1], x.t(), x.detach(), x[None, :, 1:]),
    "views of the outside": lambda x, w: (w.detach(), w.t(), w[0], w.reshape(-1)),
    "views of a result": lambda x, w: (y := x * 2, y.t(), y.detach(), y[1:]),
    "expanded": lambda x, w: (x[:1].expand(4, 3), x),
    "reshaped": lambda x, w: (x.reshape(-1), x.flatten()),
    "written": scaled_in_place,
    "unbound": lambda x, w: (*x.unbind(0), *w.split(1)),
    "nested": lambda x, w: {"a": [x, {"b": x.t()}], "n": 3},
}


def noted(compiled: Any) -> Callable[..., Any]:
    """A compiled function whose calls are known to be run by Python."""

    def call(*args: Any) -> Any:
        with pytest.warns(RuntimeWarning, match="not one compiled program"):
            return compiled(*args)

    return call


def leaves_of(value: Any) -> list[Any]:
    found = eg.utils._pytree.tree_leaves(value)
    return [leaf for leaf in found if isinstance(leaf, eg.Tensor)]


@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_share_memory(name: str, layout: str) -> None:
    function = FUNCTIONS[name]
    for _ in range(2):
        kinds = []
        weight = randn(3, 3, seed=1)
        compiled = eg.compile(function)
        for f in (function, compiled):
            x = randn(3, 3).t() if layout == "transposed" else randn(3, 3)
            w = weight.clone()
            found = f(x, w)
            tensors = [x, w, *leaves_of(found)]
            kinds.append((found, shared(tensors), same_objects(tensors), x))
        assert_alike(kinds[1][0], kinds[0][0])
        assert kinds[1][1:3] == kinds[0][1:3]
        assert_alike(kinds[1][3], kinds[0][3])


@pytest.mark.parametrize("function", [
    lambda x: x.repeat(2, 1), lambda x: eg.stack([x, x + 1]), lambda x: (x * 2).reshape(-1),
    lambda x: ((y := x * 2).reshape(-1), y), lambda x: ((y := x * 2), y.reshape(-1), y.t()),
    lambda x: (x * 2).reshape(-1)[1:], lambda x: (x * 2).t(), lambda x: (x.sum(0)).reshape(1, -1),
])  # fmt: skip
def test_views_of_results(function: Any) -> None:
    """A reshape of a whole result is computed in the memory of the output."""
    compiled = eg.compile(function)
    for seed in range(3):
        x = randn(130, 67, seed=seed)
        found, expected = compiled(x), function(x)
        assert_alike(found, expected)
        before = [leaf.clone() for leaf in leaves_of(found)]
        compiled(x + 1)
        assert_alike(leaves_of(found), before)


def test_an_outside_tensor_is_itself() -> None:
    weight = nn.Parameter(randn(3))
    compiled = eg.compile(lambda x: (weight, weight.detach(), weight[1:], x * weight))
    for _ in range(2):
        own, cut, part, product = compiled(randn(3))
        assert own is weight and cut._storage is weight._storage and not cut.requires_grad
        assert part._storage is weight._storage
        (grad,) = eg.autograd.grad(part.sum() + product.sum() + own.sum(), weight)
        assert_alike(grad, eg.tensor([0.0, 1.0, 1.0]).double() + 1 + randn(3))


def test_a_gradient_is_itself() -> None:
    weight = nn.Parameter(randn(3))

    @eg.compile
    def step(x: Any) -> Any:
        (weight * x).sum().backward()
        return weight.grad, weight.grad[1:]

    for count in (1, 2, 3):
        grad, part = step(randn(3))
        assert grad is weight.grad and part._storage is grad._storage
        assert_alike(grad, randn(3) * count)


def test_a_gradient_through_what_is_returned() -> None:
    def function(x: Any) -> Any:
        y = x * 3
        return x, y, y.t(), x[0], y.detach()

    def gradient(f: Callable[[Any], Any]) -> Any:
        x = randn(2, 2).requires_grad_()
        parts = f(x)
        assert [p.requires_grad for p in parts] == [True] * 4 + [False]
        total = sum(((n + 1) * p.square()).sum() for n, p in enumerate(parts))
        return eg.autograd.grad(total, x)

    assert_alike(gradient(eg.compile(function)), gradient(function))


def test_a_written_argument_gets_a_history() -> None:
    weight = randn(3).requires_grad_()

    def function(x: Any) -> Any:
        return x.mul_(weight)

    compiled = eg.compile(function)
    for number, call in enumerate((noted(compiled), compiled, compiled)):
        x = randn(3, seed=number)
        found = call(x)
        assert found is x and found.requires_grad
        assert compiled.last_call.reason == "an argument gets a history by a write to it"
        assert_alike(eg.autograd.grad(found.sum(), weight), (randn(3, seed=number),))
    with pytest.raises(eg.errors.TraceError, match="an argument gets a history"):
        eg.compile(function, fullgraph=True)(randn(3))


def test_writing_to_a_shared_result() -> None:
    compiled = eg.compile(lambda x: (y := x + 1, y[1:]))
    whole, part = compiled(eg.zeros(3))
    part.add_(5)
    assert whole.tolist() == [1.0, 6.0, 6.0]
    whole, part = compiled(eg.zeros(3))
    assert whole.tolist() == [1.0, 1.0, 1.0]


def test_a_turned_result_lies_as_in_eager_mode() -> None:
    def function(x: Any) -> Any:
        y = x * 3
        return y.permute(2, 0, 1), y[:, ::2].transpose(0, 2), y.exp().transpose(0, 1), y[1:].sum(0)

    x = randn(2, 4, 3)
    for ours, theirs in zip(eg.compile(function)(x), function(x), strict=True):
        assert_alike(ours, theirs)
        assert memory_order(ours) == memory_order(theirs)


def test_a_gradient_through_a_turned_result() -> None:
    def function(x: Any) -> Any:
        return (x * x).t()

    given = randn(2, 3)
    found = []
    for f in (function, eg.compile(function)):
        x = given.clone().requires_grad_()
        y = f(x)
        (grad,) = eg.autograd.grad((y * y).sum(), x, create_graph=True)
        assert y.stride() == (1, 3)
        found.append((y, grad, eg.autograd.grad(grad.sum(), x)[0]))
    for ours, theirs in zip(*found, strict=True):
        assert_alike(ours, theirs)
