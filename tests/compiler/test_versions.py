"""The version of a tensor after a call that was traced, run, or only planned."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest

import evergrad as eg
from evergrad import config


def test_a_call_that_is_traced_again_counts_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = eg.zeros(3)

    @eg.compile
    def step(x: Any) -> Any:
        weight.add_(x)
        return weight.sum()

    versions = []
    for _ in range(12):
        before = weight._version
        step(eg.ones(3))
        for variant in [v for known in step.variants.values() for v in known]:
            variant.schedule.due, variant.schedule.is_ready = 0, config.REVALIDATE
        versions.append(weight._version - before)
    assert versions == [1] * 12 and weight.tolist() == [12.0] * 3


@pytest.mark.parametrize("method", ["plan", "explain"])
@pytest.mark.parametrize("write", [
    lambda w, x: w.add_(x), lambda w, x: w[1:].mul_(x[1:]), lambda w, x: w.copy_(x),
    lambda w, x: w.view(2, 2).zero_(), lambda w, x: w.detach().add_(x),
    lambda w, x: w.data.fill_(2.0), lambda w, x: eg.optim.SGD([w], lr=0.1).step(),
])  # fmt: skip
def test_a_plan_leaves_a_pending_backward_valid(method: str, write: Callable[..., Any]) -> None:
    weight = eg.ones(4, requires_grad=True)
    weight.grad = eg.zeros(4)
    loss = (weight * weight).sum()

    @eg.compile
    def step(x: Any) -> Any:
        with eg.no_grad():
            write(weight, x)
        return weight.sum()

    getattr(step, method)(eg.ones(4))
    assert weight._version == 0
    loss.backward()
    assert weight.grad.tolist() == [2.0] * 4


# Writes to a tensor that is no argument, while gradients are recorded.
WRITES: dict[str, Callable[..., Any]] = {
    "multiply": lambda base, view, x, w: base.mul_(x),
    "through a view": lambda base, view, x, w: view.mul_(x[1:]),
    "through a new view": lambda base, view, x, w: base[:2].add_(x[:2]),
    "copy of a weight": lambda base, view, x, w: base.copy_(w * x),
    "index": lambda base, view, x, w: base.__setitem__(0, x[0]),
    "zero": lambda base, view, x, w: base.zero_(),
    "relu": lambda base, view, x, w: base.relu_(),
    "masked": lambda base, view, x, w: base.masked_fill_(x > 1, 3.0),
    "index_add": lambda base, view, x, w: base.index_add_(0, eg.arange(4), w * x),
    "augmented": lambda base, view, x, w: operator.iadd(base, w * x),
    "out": lambda base, view, x, w: eg.Tensor.lerp_(base, w, 0.5),
    "detached": lambda base, view, x, w: base.detach().mul_(x),
    "data": lambda base, view, x, w: base.data.mul_(x),
}


@pytest.mark.parametrize("kind", ["computed", "view of computed", "buffer", "view of buffer"])
@pytest.mark.parametrize("name", WRITES)
@pytest.mark.filterwarnings("ignore:.*not one compiled program:RuntimeWarning")
def test_a_write_to_a_captured_tensor_is_recorded(name: str, kind: str) -> None:
    """What it computes, and the gradients through it, are those of eager."""

    def run(wrap: Callable[..., Any]) -> Any:
        leaf = eg.full((5,), 1.5, requires_grad=True)
        weight = eg.full((4,), 0.5, requires_grad=True)
        whole = leaf * 1.0 if "computed" in kind else eg.ones(5)
        base = whole[1:] if "view" in kind else whole[1:].clone()
        view = base[1:]

        def step(x: Any) -> Any:
            WRITES[name](base, view, x, weight)
            return (view * view).sum().detach()

        compiled = wrap(step)
        found = [compiled(eg.full((4,), 2.0)).item() for _ in range(3)]
        loss = (view * view).sum() + base.sum() + whole.sum()
        if loss.requires_grad:
            loss.backward()
        grads = [None if t.grad is None else t.grad.tolist() for t in (leaf, weight)]
        return found, base.tolist(), whole.tolist(), base.requires_grad, grads, base._version

    assert run(eg.compile) == run(lambda step: step)
