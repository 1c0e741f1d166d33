"""More ways to write attention: how heads are cut out and shared, masks of finite numbers, 16-bit
numbers. All are tiled, and nothing around them is copied."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad import nn

from .test_attention import assert_right, labels, leaves, normal, sdpa, with_grads

Form = Callable[..., Any]

# -- heads that share keys ----------------------------------------------------------------------


def repeated(q: Any, k: Any, v: Any) -> Any:
    return sdpa(q, *(x.repeat_interleave(3, dim=1) for x in (k, v)), is_causal=True)


def expanded(q: Any, k: Any, v: Any) -> Any:
    b, h, t, d = k.shape
    k, v = (x[:, :, None].expand(b, h, 3, t, d).reshape(b, h * 3, t, d) for x in (k, v))
    return eg.softmax(q @ k.transpose(-2, -1) / math.sqrt(d), -1) @ v


@pytest.mark.parametrize("form", [repeated, expanded])
def test_heads_that_share_keys_by_hand(form: Form) -> None:
    q, k, v = (normal(2, heads, 50, 8, seed=heads) for heads in (6, 2, 2))
    assert_right(form, q, k, v)
    given = leaves(normal(1, 6, 512, 8), normal(1, 2, 512, 8), normal(1, 2, 512, 8))
    plan = eg.compile(with_grads(form)).plan(*given)
    assert max(b.nbytes for b in plan.buffers) < 512 * 512


# -- masks --------------------------------------------------------------------------------------


@pytest.mark.parametrize("fill", [-1e9, -3.0, float(np.finfo(np.float32).min)])
def test_masks_of_finite_numbers(fill: float) -> None:
    mask = normal(70, 90, seed=4) > 0
    mask[5] = True  # a query that looks everywhere alike

    def form(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return eg.softmax((q @ k.mT).masked_fill(mask, fill), -1) @ v

    assert_right(form, normal(2, 70, 8), normal(2, 90, 8, seed=1), normal(2, 90, 8, seed=2), mask)


@pytest.mark.parametrize("last", [-math.inf, -4.0])
def test_a_finite_mask_before_or_after_a_triangle(last: float) -> None:
    """What a triangle has left out may be seen again, if it becomes finite."""
    first = -4.0 if last == -math.inf else -math.inf

    def form(q: Any, k: Any, v: Any, mask: Any) -> Any:
        seen = eg.full((40, 40), True).tril()
        fills = (first, last)
        scores = eg.where(seen if fills[0] == -math.inf else mask, q @ k.mT, fills[0])
        scores = eg.where(seen if fills[1] == -math.inf else mask, scores, fills[1])
        return eg.softmax(scores, -1) @ v

    mask = normal(40, 40, seed=4) > 0
    assert_right(form, *(normal(2, 40, 8, seed=n) for n in range(3)), mask)


# -- 16-bit numbers -----------------------------------------------------------------------------


def plain(q: Any, k: Any, v: Any) -> Any:
    return eg.softmax(q @ k.mT * 0.25, -1) @ v


def causal(q: Any, k: Any, v: Any) -> Any:
    return sdpa(q, k, v, is_causal=True)


def added(q: Any, k: Any, v: Any) -> Any:
    bias = eg.linspace(-1, 1, k.shape[-2], dtype=q.dtype)
    return eg.softmax(q @ k.mT * 0.25 + bias, -1) @ v


@pytest.mark.parametrize("form", [plain, causal, added])
@pytest.mark.parametrize(("dtype", "epsilon"), [("bfloat16", 2**-8), ("float16", 2**-11)])
def test_16_bit_numbers_are_summed_in_more(form: Form, dtype: str, epsilon: float) -> None:
    given = [
        eg.tensor(normal(2, 2, 40, 16, seed=n)).to(getattr(eg, dtype)).requires_grad_()
        for n in range(3)
    ]
    compiled = eg.compile(with_grads(form))
    results = compiled(*given)
    assert labels(compiled).count("attention") == labels(compiled).count("attention_backward") == 1
    exact = with_grads(form)(*leaves(*(np.float64(x.detach().float().numpy()) for x in given)))
    for ours, theirs in zip(results, exact, strict=True):
        assert ours.dtype is getattr(eg, dtype)
        error = np.abs(ours.float().numpy() - theirs.numpy()).max()
        # The cotangents and the results are rounded; nothing between them is.
        assert error < 2 * epsilon * np.abs(theirs.numpy()).max()


# -- how values lie -----------------------------------------------------------------------------


def by_split(x: Any, heads: int) -> Any:
    B, T, C = x.shape
    q, k, v = x.split(C // 3, dim=2)
    return [t.view(B, T, heads, -1).transpose(1, 2) for t in (q, k, v)]  # (B, nh, T, hs)


def by_permute(x: Any, heads: int) -> Any:
    B, T, C = x.shape
    return x.view(B, T, 3, heads, C // 3 // heads).permute(2, 0, 3, 1, 4)


def copies(compiled: Any) -> list[str]:
    return [label for label in labels(compiled) if "clone" in label or "cat" in label]


@pytest.mark.parametrize("cut", [by_split, by_permute])
@pytest.mark.parametrize("batch", [1, 4])
def test_projections_are_cut_and_joined_without_copies(cut: Form, batch: int) -> None:
    qkv, out = nn.Linear(24, 72), nn.Linear(24, 24)
    parameters = [*qkv.parameters(), *out.parameters()]

    def step(x: Any) -> Any:
        y = sdpa(*cut(qkv(x), 3), is_causal=True)
        y = out(y.transpose(1, 2).reshape(x.shape))
        return y.detach(), *eg.autograd.grad((y * x).sum(), [x, *parameters])

    x = eg.tensor(normal(batch, 40, 24), requires_grad=True)
    compiled = eg.compile(step)
    for ours, theirs in zip(compiled(x), step(x), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=2e-5, atol=2e-5)
    assert labels(compiled).count("attention_backward") == 1
    assert copies(compiled) == []


def test_the_module_copies_nothing_around_attention() -> None:
    attention = nn.MultiheadAttention(24, 3)
    parameters = list(attention.parameters())

    def step(x: Any) -> Any:
        y = attention(x, x, x, need_weights=False)[0]
        return y.detach(), *eg.autograd.grad((y * x).sum(), [x, *parameters])

    x = eg.tensor(normal(40, 4, 24), requires_grad=True)  # (T, B, C)
    compiled = eg.compile(step)
    for ours, theirs in zip(compiled(x), step(x), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=2e-5, atol=2e-5)
    assert labels(compiled).count("attention_backward") == 1
    assert copies(compiled) == []


def test_results_that_are_used_in_both_orders() -> None:
    def form(q: Any, k: Any, v: Any) -> Any:
        y = sdpa(q, k, v)
        turned = y.transpose(1, 2).reshape(2, 20, 24)
        return y.sum(1, keepdim=True).expand(y.shape) + turned.view(2, 20, 3, 8).transpose(1, 2)

    assert_right(form, *(normal(2, 3, 20, 8, seed=n) for n in range(3)))
