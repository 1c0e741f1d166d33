"""Selective checkpointing: the policy is called as PyTorch calls it, and what it keeps is kept."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.memory.ledger import LEDGER
from evergrad.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

Names = tuple[str, ...]


def name_of(op: Any) -> str:
    return str(op).partition("aten.")[2].partition(".")[0].rstrip("')>")


def network(ns: Any) -> Any:
    ns.manual_seed(0)
    return ns.nn.Sequential(
        ns.nn.Linear(8, 16), ns.nn.GELU(), ns.nn.Linear(16, 8), ns.nn.LayerNorm(8),
        ns.nn.Dropout(0.3),
    )  # fmt: skip


def run(ns: Any, names: Names | None) -> tuple[list[Any], list[tuple[bool, str]]]:
    """Value and gradients, and what the policy was called with; plain without names."""
    module = importlib.import_module(f"{ns.__name__}.utils.checkpoint")
    net, calls = network(ns), []

    def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append((context.is_recompute, name_of(op)))
        policies = module.CheckpointPolicy
        return policies.MUST_SAVE if name_of(op) in (names or ()) else policies.PREFER_RECOMPUTE

    def part(x: Any) -> Any:
        y = net(x)
        a = ns.nn.functional.scaled_dot_product_attention(y, y, y)
        return (a @ y.transpose(-1, -2)).softmax(-1).sin().sum()

    x = ns.randn(2, 2, 5, 8, requires_grad=True)
    ns.manual_seed(1)
    if names is None:
        out = part(x)
    else:
        contexts = lambda: module.create_selective_checkpoint_contexts(policy)
        out = module.checkpoint(part, x, use_reentrant=False, context_fn=contexts)
    out.backward()
    found = [out.detach(), x.grad, *(p.grad for p in net.parameters())]
    return [t.numpy() for t in found], calls


POLICIES: list[Names] = [
    (),
    ("mm", "addmm", "bmm"),
    ("addmm", "gelu", "native_layer_norm", "_scaled_dot_product_flash_attention_for_cpu"),
    ("sin", "_softmax"),
]
OPS = {"addmm", "bmm", "gelu", "native_layer_norm", "_softmax", "sin"}


@pytest.mark.parametrize("names", POLICIES)
def test_gradients_do_not_depend_on_the_policy(names: Names) -> None:
    for ours, plain in zip(run(eg, names)[0], run(eg, None)[0], strict=True):
        np.testing.assert_allclose(ours, plain, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("names", POLICIES)
def test_the_policy_is_called_for_the_same_ops(names: Names, torch: ModuleType) -> None:
    ours = [name for again, name in run(eg, names)[1] if not again and name in OPS]
    theirs = [name for again, name in run(torch, names)[1] if not again and name in OPS]
    assert ours == theirs


def test_kept_results_are_not_computed_again() -> None:
    weight = eg.randn(4, 4, requires_grad=True)
    x = eg.randn(3, 4, requires_grad=True)
    products = []

    class Counted(eg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, value: Any) -> Any:
            products.append(1)
            return value.clone()

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return grads[0]

    evaluated = []

    def policy(context: Any, op: Any, *args: Any) -> bool:
        evaluated.append((context.is_recompute, name_of(op)))
        return name_of(op) == "mm"

    y = checkpoint(
        lambda x: Counted.apply(x @ weight).sin().sum(), x,
        context_fn=lambda: create_selective_checkpoint_contexts(policy),
    )  # fmt: skip
    y.backward(retain_graph=True)
    first = x.grad.clone()
    y.backward()
    assert eg.allclose(x.grad, 2 * first)
    assert (True, "mm") in evaluated and len(products) >= 2


def test_lists_of_ops_and_nesting() -> None:
    weight = eg.randn(4, 4, requires_grad=True)
    x = eg.randn(3, 4, requires_grad=True)
    kept = [eg._operators.aten.mm.default]

    def inner(x: Any) -> Any:
        contexts = lambda: create_selective_checkpoint_contexts(kept)
        return checkpoint(lambda x: (x @ weight).sin(), x, context_fn=contexts)

    (expected,) = eg.autograd.grad((x @ weight).sin().sum(), x)
    (found,) = eg.autograd.grad(inner(x).sum(), x)
    (outer,) = eg.autograd.grad(checkpoint(inner, x).sum(), x)
    (second,) = eg.autograd.grad(
        eg.autograd.grad(inner(x).pow(2).sum(), x, create_graph=True)[0].sum(), weight
    )
    assert eg.allclose(found, expected) and eg.allclose(outer, expected)
    (plain,) = eg.autograd.grad(
        eg.autograd.grad((x @ weight).sin().pow(2).sum(), x, create_graph=True)[0].sum(), weight
    )
    assert eg.allclose(second, plain, atol=1e-5)
    compiled = eg.compile(lambda x: inner(x).sum())
    (found,) = eg.autograd.grad(compiled(x), x)
    assert eg.allclose(found, expected)


def test_a_kept_result_that_is_written_is_an_error() -> None:
    weight = eg.randn(4, 4, requires_grad=True)
    x = eg.randn(3, 4, requires_grad=True)

    def part(x: Any) -> Any:
        y = x @ weight
        y.mul_(2)
        return y.sin().sum()

    contexts = lambda: create_selective_checkpoint_contexts([eg._operators.aten.mm])
    with pytest.raises(RuntimeError, match="has been mutated"):
        checkpoint(part, x, context_fn=contexts).backward()
    with pytest.raises(TypeError, match="a function or a list"):
        create_selective_checkpoint_contexts(3)  # type: ignore[arg-type]


def test_memory_is_what_the_policy_keeps() -> None:
    x = eg.randn(64, 256, requires_grad=True)
    weight = eg.randn(256, 256, requires_grad=True)

    def part(x: Any) -> Any:
        for _ in range(4):
            x = (x @ weight).sin().tanh()
        return x.sum()

    def kept(policy: CheckpointPolicy) -> int:
        contexts = lambda: create_selective_checkpoint_contexts(
            lambda context, op, *args: policy if name_of(op) == "mm" else False
        )
        before = LEDGER.live
        y = checkpoint(part, x, context_fn=contexts)
        held = LEDGER.live - before
        y.backward()
        return held

    without, saved = kept(CheckpointPolicy.MUST_RECOMPUTE), kept(CheckpointPolicy.MUST_SAVE)
    assert without < x.nbytes
    assert 4 * x.nbytes <= saved <= 4.5 * x.nbytes, "four products"
