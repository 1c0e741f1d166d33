"""Nested tensors in training: attention without padding, collation, offsets known at run time."""

from __future__ import annotations

from collections import namedtuple
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad import memory, nested
from evergrad.autograd import gradcheck, gradgradcheck
from evergrad.models.gpt import GPT, GPTConfig
from evergrad.nn import functional as F
from evergrad.utils.data import DataLoader

OFFSETS = [0, 3, 3, 4, 9]


def values(*shape: int, seed: int = 0) -> eg.Tensor:
    return eg.tensor(np.random.default_rng([seed, *shape]).standard_normal(shape))


def jagged(x: eg.Tensor, ends: list[int] = OFFSETS) -> Any:
    return nested.nested_tensor_from_jagged(x, eg.tensor(ends))


# -- attention ----------------------------------------------------------------------------------


def attended(q: eg.Tensor, k: eg.Tensor, v: eg.Tensor, **options: Any) -> eg.Tensor:
    """Attention of ``[tokens, heads, width]`` through nested tensors, or example by example."""
    a = jagged(q).transpose(1, 2)
    offsets = a.offsets()
    b, c = (nested.nested_tensor_from_jagged(x, offsets).transpose(1, 2) for x in (k, v))
    return F.scaled_dot_product_attention(a, b, c, **options).transpose(1, 2).values()


def by_example(q: eg.Tensor, k: eg.Tensor, v: eg.Tensor, **options: Any) -> eg.Tensor:
    parts = []
    for begin, end in pairwise(OFFSETS):
        one = [x[begin:end].transpose(0, 1) for x in (q, k, v)]
        parts.append(F.scaled_dot_product_attention(*one, **options).transpose(0, 1))
    return eg.cat(parts)


OPTIONS = {
    "plain": (2, {}),
    "causal": (2, {"is_causal": True}),
    "scaled": (2, {"scale": 0.3}),
    "shared heads": (1, {"enable_gqa": True, "is_causal": True}),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_attention_is_that_of_the_examples(name: str) -> None:
    shared, options = OPTIONS[name]
    inputs = [
        values(9, heads, 4, seed=i).requires_grad_() for i, heads in enumerate((2, shared, shared))
    ]
    g = values(9, 2, 4, seed=7)
    found, expected = attended(*inputs, **options), by_example(*inputs, **options)
    eg.testing.assert_close(found, expected)
    ours, theirs = (eg.autograd.grad(out, inputs, g) for out in (found, expected))
    for a, b in zip(ours, theirs, strict=True):
        eg.testing.assert_close(a, b)


def test_derivatives_of_attention() -> None:
    inputs = [values(9, 1, 2, seed=i).requires_grad_() for i in range(3)]
    for options in ({}, {"is_causal": True}):
        call = lambda q, k, v, o=options: attended(q, k, v, **o)
        assert gradcheck(call, inputs, check_forward_ad=True)
        assert gradgradcheck(call, inputs)


def test_attention_longer_than_a_block() -> None:
    ends = [0, 300, 301, 430]
    q, k, v = (values(430, 2, 8, seed=i).float().requires_grad_() for i in range(3))
    offsets = eg.tensor(ends)
    parts = [nested.nested_tensor_from_jagged(x, offsets).transpose(1, 2) for x in (q, k, v)]
    for causal in (False, True):
        found = F.scaled_dot_product_attention(*parts, is_causal=causal).transpose(1, 2).values()
        for begin, end in pairwise(ends):
            one = [x[begin:end].transpose(0, 1) for x in (q, k, v)]
            expected = F.scaled_dot_product_attention(*one, is_causal=causal).transpose(0, 1)
            eg.testing.assert_close(found[begin:end], expected, atol=1e-5, rtol=1e-4)
        ours = eg.autograd.grad((found * found).sum(), [q, k, v])
        assert all(g.isfinite().all() for g in ours)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_attention_does_not_depend_on_the_threads(threads: int) -> None:
    before = eg.get_num_threads()
    inputs = [values(9, 2, 4, seed=i).float() for i in range(3)]
    expected = attended(*inputs)
    eg.set_num_threads(threads)
    try:
        assert attended(*inputs).tolist() == expected.tolist()
    finally:
        eg.set_num_threads(before)


def test_attention_with_dropout_keeps_the_examples_apart() -> None:
    q, v = values(9, 2, 4), eg.arange(9.0).reshape(9, 1, 1).expand(9, 2, 4).double()
    found = attended(q, q, v, dropout_p=0.5)
    assert found.shape == (9, 2, 4)
    assert attended(q, q, v * 0, dropout_p=0.5).abs().max().item() == 0


def test_attention_holds_no_padding() -> None:
    """One long sequence beside many short ones: memory for the scores of one block."""
    ends = [0, *range(512, 512 + 64 * 4, 4)]
    x = values(ends[-1], 4, 16).float()
    q = nested.nested_tensor_from_jagged(x, eg.tensor(ends)).transpose(1, 2)
    with memory.track() as tracked:
        F.scaled_dot_product_attention(q, q, q)
    padded = len(ends) * 512 * 4 * 16 * 4
    assert tracked.peak - tracked.live_at_start < padded / 8


def test_wrong_arguments_of_attention() -> None:
    q = jagged(values(9, 2, 4)).transpose(1, 2)
    k = jagged(values(9, 1, 4)).transpose(1, 2)
    with pytest.raises(RuntimeError, match="enable_gqa"):
        F.scaled_dot_product_attention(q, k, k)
    with pytest.raises(RuntimeError, match="no attn_mask"):
        F.scaled_dot_product_attention(q, q, q, attn_mask=eg.ones(3, 3))
    short = jagged(values(9, 2, 4), [0, 4, 9]).transpose(1, 2)
    with pytest.raises(RuntimeError, match="sequences of queries"):
        F.scaled_dot_product_attention(short, q, q)


# -- other operations ---------------------------------------------------------------------------

REDUCTIONS = {
    "var": lambda x, dim: x.var(dim), "std": lambda x, dim: x.std(dim),
    "logsumexp": lambda x, dim: x.logsumexp(dim), "prod": lambda x, dim: x.prod(dim),
    "amax": lambda x, dim: x.amax(dim), "any": lambda x, dim: (x > 0).any(dim),
    "all": lambda x, dim: (x > 0).all(dim), "sum": lambda x, dim: x.sum(dim),
    "mean": lambda x, dim: x.mean(dim),
}  # fmt: skip
ENDS = [0, 3, 5, 9]


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str) -> None:
    x = values(9, 4)
    call = REDUCTIONS[name]
    inner = call(jagged(x, ENDS), -1)
    eg.testing.assert_close(inner.values(), call(x, -1))
    parts = [x[a:b] for a, b in pairwise(ENDS)]
    eg.testing.assert_close(call(jagged(x, ENDS), 1), eg.stack([call(part, 0) for part in parts]))


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("name", ["amax", "amin"])
def test_extremes_of_empty_examples_are_those_of_torch(
    name: str, keepdim: bool, torch: ModuleType
) -> None:
    found = []
    for ns in (eg, torch):
        parts = [ns.tensor(values(n, 2, seed=n).numpy()) for n in (3, 0, 2)]
        x = ns.nested.nested_tensor(parts, layout=ns.jagged, requires_grad=True)
        y = getattr(x, name)(1, keepdim=keepdim)
        if not keepdim:  # PyTorch has no gradient for the other
            y[0].sum().backward()
            y = ns.cat([y.detach(), x.grad.values()[:3]])
        found.append(y.detach().numpy())
    np.testing.assert_array_equal(*found)
    for lengths in ((0, 0), (0,)):
        empty = nested.nested_tensor([eg.ones(n, 2) for n in lengths], layout=eg.jagged)
        with pytest.raises(IndexError, match="reduction dim 1 to have non-zero size"):
            getattr(empty, name)(1)
    with pytest.raises(IndexError, match="non-zero size"):
        getattr(jagged(values(0, 4), [0]), name)(1)


def test_layers_that_work_on_values() -> None:
    x, weight, bias = values(9, 4), values(4, seed=1), values(4, seed=2)
    eg.testing.assert_close(
        F.layer_norm(jagged(x), (4,), weight, bias).values(), F.layer_norm(x, (4,), weight, bias)
    )
    eg.testing.assert_close(
        F.rms_norm(jagged(x), (4,), weight).values(), F.rms_norm(x, (4,), weight)
    )
    for approximate in ("none", "tanh"):
        found = F.gelu(jagged(x), approximate=approximate)
        eg.testing.assert_close(found.values(), F.gelu(x, approximate=approximate))
    eg.manual_seed(3)
    dropped = F.dropout(jagged(x), 0.5)
    eg.manual_seed(3)
    eg.testing.assert_close(dropped.values(), F.dropout(x, 0.5))
    assert dropped.ragged is not None and F.dropout(jagged(x), 0.5, training=False).shape[2] == 4


def test_softmax_over_examples() -> None:
    x = values(9, 4).requires_grad_()
    found = jagged(x, ENDS).softmax(1).values()
    parts = [x[a:b].softmax(0) for a, b in pairwise(ENDS)]
    eg.testing.assert_close(found, eg.cat(parts))
    assert gradcheck(lambda v: jagged(v, ENDS).softmax(1).values(), (x,))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy(reduction: str) -> None:
    x, classes = values(9, 5).requires_grad_(), eg.arange(9) % 5
    classes[4] = -100
    scores = jagged(x)
    targets = nested.nested_tensor_from_jagged(classes, scores.offsets())
    found = F.cross_entropy(scores, targets, reduction=reduction, label_smoothing=0.1)
    expected = F.cross_entropy(x, classes, reduction=reduction, label_smoothing=0.1)
    eg.testing.assert_close(found.values() if reduction == "none" else found, expected)
    with pytest.raises(RuntimeError, match="same offsets"):
        F.cross_entropy(scores, jagged(classes))


# -- batches ------------------------------------------------------------------------------------

Pair = namedtuple("Pair", "tokens label")


def test_collate() -> None:
    made = nested.collate([eg.arange(2), eg.arange(3)])
    assert made.is_nested and made.values().tolist() == [0, 1, 0, 1, 2]
    pairs = nested.collate([(np.ones(2), 1), (np.ones(3), 2)])
    assert isinstance(pairs, tuple) and pairs[1].tolist() == [1, 2]
    both = nested.collate(
        [{"a": np.ones(2), "b": np.ones((2, 3))}, {"a": np.ones(1), "b": np.ones((1, 3))}]
    )
    assert both["a"].ragged is both["b"].ragged and both["b"].shape[2] == 3
    named = nested.collate([Pair(np.ones(2), 0), Pair(np.ones(1), 1)])
    assert isinstance(named, Pair) and named.label.tolist() == [0, 1]
    x, y = nested.collate([(eg.arange(2), eg.arange(2)), (eg.arange(3), eg.arange(3))],
                          multiple=4, fill=(0, -100))  # fmt: skip
    assert x.values().shape == (8,) and y.values()[5:].tolist() == [-100] * 3
    assert x.offsets().tolist() == [0, 2, 5] and x.ragged is y.ragged
    with pytest.raises(ValueError, match="multiple"):
        nested.collate([eg.arange(2)], multiple=0)


def test_a_loader_of_nested_batches() -> None:
    data = [(eg.arange(n), eg.arange(n)) for n in range(1, 8)]
    loader = DataLoader(data, batch_size=3, collate_fn=nested.collate)
    seen = [[len(e) for e in x.unbind()] for x, _ in loader]
    assert seen == [[1, 2, 3], [4, 5, 6], [7]]


def test_positions() -> None:
    x = jagged(values(11, 4), [0, 3, 3, 4, 8])
    assert nested.positions(x).values().tolist() == [0, 1, 2, 0, 0, 1, 2, 3, 0, 0, 0]
    assert nested.positions(x).ragged is x.ragged


# -- a model ------------------------------------------------------------------------------------

CONFIG = GPTConfig(vocabulary=20, context=16, layers=2, heads=2, width=16)


def sequences(lengths: tuple[int, ...], seed: int = 0) -> list[tuple[eg.Tensor, eg.Tensor]]:
    rng = np.random.default_rng(seed)
    made = [eg.tensor(rng.integers(0, 20, n + 1)) for n in lengths]
    return [(s[:-1], s[1:]) for s in made]


def test_a_gpt_of_sequences_of_different_lengths() -> None:
    eg.manual_seed(0)
    model = GPT(CONFIG)
    pairs = sequences((5, 1, 16, 9))
    loss = model.loss(*nested.collate(pairs, multiple=32, fill=(0, -100)))
    loss.backward()
    found = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    one_by_one = [F.cross_entropy(model(x[None])[0], y, reduction="sum") for x, y in pairs]
    expected = eg.stack(one_by_one).sum() / 31
    expected.backward()
    eg.testing.assert_close(loss, expected)
    for a, p in zip(found, model.parameters(), strict=True):
        eg.testing.assert_close(a, p.grad, atol=1e-6, rtol=1e-4)


def test_one_program_for_all_batches() -> None:
    """Offsets are inputs of the compiled program; a wrong one is found when it runs."""
    eg.manual_seed(0)
    model, twin = GPT(CONFIG), GPT(CONFIG)
    twin.load_state_dict(model.state_dict())
    optimizers = [eg.optim.SGD(m.parameters(), lr=0.1) for m in (model, twin)]

    def step_of(m: GPT, optimizer: Any) -> Any:
        def step(tokens: eg.Tensor, targets: eg.Tensor, offsets: eg.Tensor) -> eg.Tensor:
            x, y = (nested.nested_tensor_from_jagged(v, offsets) for v in (tokens, targets))
            loss = m.loss(x, y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        return step

    compiled = eg.compile(step_of(model, optimizers[0]))
    eager = step_of(twin, optimizers[1])
    for seed, lengths in enumerate([(5, 1, 16), (2, 3, 4), (16, 0, 9)]):
        x, y = nested.collate(sequences(lengths, seed), multiple=32, fill=(0, -100))
        batch = x.values(), y.values(), x.offsets()
        eg.testing.assert_close(compiled(*batch), eager(*batch), atol=1e-5, rtol=1e-4)
    assert sum(map(len, compiled.variants.values())) == 1
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        eg.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
    wrong = eg.tensor([0, 8, 4, 9])
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(Exception, match=r"offsets must grow|out of range"):
        compiled(x.values(), y.values(), wrong)
    for a, b in zip(model.parameters(), before, strict=True):
        assert eg.equal(a, b)
