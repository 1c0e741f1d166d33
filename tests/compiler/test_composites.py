"""Composites keep their names until they are lowered: attention whose result nobody reads still has
its kernels, and a traced model shows one equation for each composite and one for its derivative."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import evergrad as eg
import evergrad.nn.functional as F
from evergrad import nn
from evergrad.utils.checkpoint import checkpoint

from .test_attention import labels, leaves, normal

sdpa = F.scaled_dot_product_attention
Form = Callable[..., Any]

SMALL = (2, 4, 70, 16)
LARGE = (8, 8, 512, 64)
# What gradients of the large size may take beside arguments and results: the result of attention,
# which nobody else reads. Scores and weights would take 200 MiB.
ARENA = 10 << 20
# Where gradients that nobody wants, or a cotangent, have to be in memory as well.
MORE = 25 << 20


def assert_close(found: Any, expected: Any) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype is theirs.dtype
        ours, theirs = ours.detach().numpy(), theirs.detach().numpy()
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)


# -- gradients of attention without its result --------------------------------------------------
# Each gives gradients for queries, keys, values and a cotangent (or weights), and nothing else.


def all_three(q: Any, k: Any, v: Any, g: Any) -> Any:
    return eg.autograd.grad(sdpa(q, k, v), [q, k, v], g)


def linear_loss(q: Any, k: Any, v: Any, g: Any) -> Any:
    return eg.autograd.grad((sdpa(q, k, v) * g).sum(), [q, k, v])


def only_dq(q: Any, k: Any, v: Any, g: Any) -> Any:
    return eg.autograd.grad(sdpa(q, k, v), [q], g)


def only_dv(q: Any, k: Any, v: Any, g: Any) -> Any:
    return eg.autograd.grad(sdpa(q, k, v), [v], g)


def cotangent_of_ones(q: Any, k: Any, v: Any, g: Any) -> Any:
    y = sdpa(q, k, v)
    return eg.autograd.grad(y, [q, k, v], eg.ones_like(y))


def sum_loss(q: Any, k: Any, v: Any, g: Any) -> Any:
    return eg.autograd.grad(sdpa(q, k, v).sum(), [q, k, v])


def with_mask(q: Any, k: Any, v: Any, g: Any) -> Any:
    mask = eg.arange(k.shape[-2]) % 5 > 0
    return eg.autograd.grad(sdpa(q, k, v, attn_mask=mask), [q, k, v], g)


def with_bias(q: Any, k: Any, v: Any, g: Any) -> Any:
    bias = eg.linspace(-1, 1, k.shape[-2])
    return eg.autograd.grad(sdpa(q, k, v, attn_mask=bias), [q, k, v], g)


def causal(q: Any, k: Any, v: Any, g: Any) -> Any:
    return eg.autograd.grad(sdpa(q, k, v, is_causal=True), [q, k, v], g)


def shared_heads(q: Any, k: Any, v: Any, g: Any) -> Any:
    k, v = k[:, ::2], v[:, ::2]
    y = sdpa(q, k, v, is_causal=True, enable_gqa=True)
    return eg.autograd.grad(y, [q, k, v], g)


def by_vjp(q: Any, k: Any, v: Any, g: Any) -> Any:
    _, pull = eg.func.vjp(sdpa, q, k, v)
    return pull(g)


def by_grad_of_a_loss(q: Any, k: Any, v: Any, g: Any) -> Any:
    return eg.func.grad(lambda q, k, v: (sdpa(q, k, v) * g).sum(), argnums=(0, 1, 2))(q, k, v)


def result_used_twice(q: Any, k: Any, v: Any, g: Any) -> Any:
    y = sdpa(q, k, v)
    return eg.autograd.grad((y * g).sum() + (3 * y).mean(), [q, k, v])


def heads_in_rows(q: Any, k: Any, v: Any, g: Any) -> Any:
    y = sdpa(q, k, v).transpose(1, 2).reshape(q.shape[0], q.shape[2], -1)
    return eg.autograd.grad((y * g.transpose(1, 2).reshape(y.shape)).sum(), [q, k, v])


def checkpointed(q: Any, k: Any, v: Any, g: Any) -> Any:
    y = checkpoint(sdpa, q, k, v, use_reentrant=False)
    return eg.autograd.grad(y, [q, k, v], g)


def dropped(q: Any, k: Any, v: Any, g: Any) -> Any:
    return eg.autograd.grad(sdpa(q, k, v, dropout_p=0.25), [q, k, v], g)


FORMS = [
    all_three, linear_loss, only_dq, only_dv, cotangent_of_ones, sum_loss, with_mask, with_bias,
    causal, shared_heads, by_vjp, by_grad_of_a_loss, result_used_twice, heads_in_rows, checkpointed,
    dropped,
]  # fmt: skip
LEAN = [
    all_three, linear_loss, with_mask, with_bias, causal, by_vjp, by_grad_of_a_loss, checkpointed,
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_gradients_alone_use_the_attention_kernels(form: Form) -> None:
    given = [
        *leaves(*(normal(*SMALL, seed=n) for n in range(3))),
        eg.tensor(normal(*SMALL, seed=3)),
    ]
    compiled = eg.compile(form)
    eg.manual_seed(1)
    found = compiled(*given)
    assert labels(compiled).count("attention") == 1
    assert labels(compiled).count("attention_backward") == 1
    assert not any("matmul" in label for label in labels(compiled))
    eg.manual_seed(1)
    assert_close(found, form(*given))


@pytest.mark.parametrize("form", FORMS)
def test_gradients_alone_need_little_memory(form: Form) -> None:
    given = [*leaves(*(np.zeros(LARGE, np.float32) for _ in range(3))), eg.zeros(LARGE)]
    plan = eg.compile(form).plan(*given)
    assert plan.peak < (ARENA if form in LEAN else MORE)


def test_backward_of_a_module_with_a_linear_loss() -> None:
    """``backward()`` in a step that does not give its loss."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(16, 48)

        def forward(self, x: Any) -> Any:
            b, t, _ = x.shape
            q, k, v = self.qkv(x).view(b, t, 3, 4, 4).permute(2, 0, 3, 1, 4)
            return sdpa(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, 16)

    eg.manual_seed(0)
    block = Block()
    x, g = (eg.tensor(normal(2, 40, 16, seed=n)) for n in range(2))

    def step(x: Any, g: Any) -> None:
        block.zero_grad()
        (block(x) * g).sum().backward()

    step(x, g)
    expected = [p.grad.clone() for p in block.parameters()]
    compiled = eg.compile(step)
    compiled(x, g)
    assert labels(compiled).count("attention_backward") == 1
    assert_close([p.grad for p in block.parameters()], expected)


def test_one_attention_serves_several_cotangents() -> None:
    def form(q: Any, k: Any, v: Any, g: Any) -> Any:
        y = sdpa(q, k, v)
        first = eg.autograd.grad(y, [q, v], g, retain_graph=True)
        return *first, *eg.autograd.grad(y, [k], g * g)

    given = [
        *leaves(*(normal(*SMALL, seed=n) for n in range(3))),
        eg.tensor(normal(*SMALL, seed=3)),
    ]
    compiled = eg.compile(form)
    assert_close(compiled(*given), form(*given))
    assert labels(compiled).count("attention") == 1
    assert labels(compiled).count("attention_backward") == 2
