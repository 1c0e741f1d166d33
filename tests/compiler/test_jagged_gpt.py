"""A compiled step on jagged batches: values and gradients are those of the sequences by themselves.

One program serves all offsets. Operands are strided parts of one projection, and so are the
gradients that the backward kernel writes; tokens outside of all sequences contribute nothing.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evergrad as eg
from evergrad import nested
from evergrad.autograd import gradcheck, gradgradcheck
from evergrad.core.bind import bind
from evergrad.core.rng.bit_generators import philox_chances
from evergrad.core.rng.default_generator import using_generator
from evergrad.models.gpt import GPT, GPTConfig
from evergrad.nn import functional as F
from evergrad.ops.rows.jagged_attention import JAGGED_ATTENTION, jagged_attention

from .steps import programs_of

TOKENS, SEQUENCES = 192, 5
# Lengths of five sequences of at most 192 tokens: with fill, empty ones, one token, whole tiles,
# more than a block, one that takes all.
BATCHES = [
    (70, 1, 0, 33, 64), (64, 8, 16, 96, 8), (0, 0, 0, 0, 0), (1, 1, 1, 1, 1), (0, 192, 0, 0, 0),
    (5, 130, 0, 2, 7),
]  # fmt: skip
MODELS = {
    "heads": GPTConfig(vocabulary=23, context=192, layers=2, heads=2, width=32),
    "shared heads": GPTConfig(vocabulary=23, context=192, layers=2, heads=4, kv_heads=2, width=64),
    "odd widths": GPTConfig(vocabulary=23, context=192, layers=1, heads=3, kv_heads=1, width=21),
}


def offsets_of(lengths: tuple[int, ...]) -> eg.Tensor:
    return eg.tensor(np.cumsum([0, *lengths]))


def labels(compiled: Any) -> list[str]:
    return [i.label for program in programs_of(compiled) for i in program.instructions]


# -- a GPT --------------------------------------------------------------------------------------


def by_sequence(model: GPT, tokens: Any, targets: Any, lengths: tuple[int, ...]) -> list[Any]:
    """The loss and the gradients of dense sequences, one after the other, in float64."""
    losses, ends = [], np.cumsum([0, *lengths])
    for begin, end in pairwise(ends.tolist()):
        if end > begin:
            scores = model(tokens[None, begin:end])[0]
            losses.append(F.cross_entropy(scores, targets[begin:end], reduction="sum"))
    if not losses:
        return [eg.tensor(float("nan"))]
    loss = eg.stack(losses).sum() / int(ends[-1])
    return [loss, *eg.autograd.grad(loss, list(model.parameters()))]


@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_a_gpt_are_those_of_its_sequences(name: str) -> None:
    eg.manual_seed(0)
    model, exact = GPT(MODELS[name]), GPT(MODELS[name]).double()
    exact.load_state_dict(model.state_dict())
    parameters = list(model.parameters())

    @eg.compile
    def step(tokens: eg.Tensor, targets: eg.Tensor, offsets: eg.Tensor) -> Any:
        x, y = (nested.nested_tensor_from_jagged(v, offsets) for v in (tokens, targets))
        loss = model.loss(x, y)
        return loss, *eg.autograd.grad(loss, parameters)

    rng = np.random.default_rng(0)
    for lengths in BATCHES:
        tokens = eg.tensor(rng.integers(0, 23, TOKENS))
        following = rng.integers(0, 23, TOKENS)
        following[sum(lengths) :] = -100
        found = step(tokens, eg.tensor(following), offsets_of(lengths))
        expected = by_sequence(exact, tokens, eg.tensor(following), lengths)
        for ours, theirs in zip(found, expected, strict=False):
            size = theirs.abs().max().item()
            worst = (ours.double() - theirs).abs().max().item()
            assert worst <= 2e-5 * size or size != size, (lengths, worst, size)
    assert len(list(programs_of(step))) == 1
    launched = labels(step)
    assert launched.count("jagged_attention_backward") == MODELS[name].layers
    assert not any(label.startswith("call jagged") for label in launched)


# -- attention alone ----------------------------------------------------------------------------


def expected_attention(
    q: Any, k: Any, v: Any, ends: Any, key_ends: Any, causal: bool, factors: Any = None
) -> Any:
    """By dense ops, sequence by sequence; ``factors`` are those of dropout, for all tokens."""
    groups, width = q.shape[1] // k.shape[1], q.shape[2]
    parts, at = [q.new_zeros(int(ends[0]), q.shape[1], v.shape[2])], int(ends[0])
    for (a, b), (c, d) in zip(pairwise(ends.tolist()), pairwise(key_ends.tolist()), strict=True):
        keys, values = (x[c:d].repeat_interleave(groups, 1).transpose(0, 1) for x in (k, v))
        scores = q[a:b].transpose(0, 1) @ keys.transpose(1, 2) / width**0.5
        if causal:
            hidden = eg.arange(d - c) > eg.arange(b - a)[:, None]
            scores = scores.masked_fill(hidden, -np.inf)
        weights = scores.softmax(-1) if d > c else scores
        if factors is not None:
            weights = weights * factors[:, a:b, c:d]
        parts.append((weights @ values).transpose(0, 1))
        at = b
    parts.append(q.new_zeros(len(q) - at, q.shape[1], v.shape[2]))
    return eg.cat(parts)


def projected(heads: int, shared: int, width: int, causal: bool, dropout: float = 0.0) -> Any:
    """Attention of the parts of one projection, and the gradient of that: strided in and out."""

    def function(x: eg.Tensor, g: eg.Tensor, ends: eg.Tensor, drawn: eg.Tensor) -> Any:
        x = x.detach().requires_grad_()
        parts = x.view(len(x), heads + 2 * shared, width).split([heads, shared, shared], 1)
        y = bind(
            JAGGED_ATTENTION, *parts, ends, ends, *(drawn.unbind() if dropout else ()),
            scale=width**-0.5, causal=causal, dropout=dropout,
        )[0]  # fmt: skip
        (gradient,) = eg.autograd.grad((y * g).sum(), [x])
        return y.detach(), gradient

    return function


def expected_projected(
    x: Any, g: Any, ends: Any, drawn: Any, heads: int, shared: int, width: int, causal: bool,
    dropout: float,
) -> Any:  # fmt: skip
    x = x.double().requires_grad_()
    parts = x.view(len(x), heads + 2 * shared, width).split([heads, shared, shared], 1)
    factors = None
    if dropout:
        numbers = np.arange(heads * len(x) ** 2, dtype=np.uint64).reshape(heads, len(x), len(x))
        key, start = drawn.tolist()
        keep = 1 - dropout
        kept = philox_chances(key, start, keep, numbers).astype(float)
        factors = eg.tensor(kept / keep if keep else kept)
    y = expected_attention(*parts, ends, ends, causal, factors)
    (gradient,) = eg.autograd.grad((y * g.double()).sum(), [x])
    return y.detach(), gradient


@pytest.mark.parametrize("dropout", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(2, 2, 16), (4, 1, 8), (6, 3, 20)])
def test_strided_projections(shape: tuple[int, int, int], causal: bool, dropout: float) -> None:
    heads, shared, width = shape
    function = projected(*shape, causal, dropout)
    compiled = eg.compile(function)
    rng = np.random.default_rng(1)
    drawn = eg.tensor([-(1 << 62) + 12345, (1 << 63) - 7])
    for lengths in BATCHES:
        ends = offsets_of(lengths)
        x = rng.standard_normal((TOKENS, (heads + 2 * shared) * width)).astype(np.float32)
        g = rng.standard_normal((TOKENS, heads, width)).astype(np.float32)
        expected = expected_projected(
            eg.tensor(x), eg.tensor(g), ends, drawn, *shape, causal, dropout
        )
        # What belongs to no sequence is not read.
        x[sum(lengths) :] = np.nan
        g[sum(lengths) :] = 0
        for run in (compiled, function):
            y, gradient = run(eg.tensor(x), eg.tensor(g), ends, drawn)
            assert eg.allclose(y.double(), expected[0], atol=2e-5), (lengths, run)
            assert eg.allclose(gradient.double(), expected[1], atol=5e-5), (lengths, run)
    assert len(list(programs_of(compiled))) == 1
    assert "jagged_attention_backward" in labels(compiled)


def test_offsets_that_begin_later() -> None:
    function = projected(2, 2, 16, True)
    rng = np.random.default_rng(2)
    x = eg.tensor(rng.standard_normal((TOKENS, 96)).astype(np.float32))
    g = eg.tensor(rng.standard_normal((TOKENS, 2, 16)).astype(np.float32))
    compiled = eg.compile(function)
    for ends in ([9, 20, 100], [0, 5, 191], [192, 192, 192], [64, 128, 128]):
        given_ends, drawn = eg.tensor(ends), eg.tensor([0, 0])
        expected = expected_projected(x, g, given_ends, drawn, 2, 2, 16, True, 0.0)
        for found, right in zip(compiled(x, g, given_ends, drawn), expected, strict=True):
            assert eg.allclose(found.double(), right, atol=5e-5), ends


@settings(max_examples=12, deadline=None)
@given(
    pairs=st.lists(st.tuples(st.integers(0, 90), st.integers(0, 90)), min_size=1, max_size=4),
    heads=st.sampled_from([(1, 1), (2, 1), (4, 2)]),
    widths=st.sampled_from([(16, 16), (5, 3), (32, 48), (1, 1)]),
    causal=st.booleans(), fill=st.integers(0, 9), seed=st.integers(0, 99),
)  # fmt: skip
def test_cross_attention_of_any_lengths(
    pairs: Any, heads: Any, widths: Any, causal: bool, fill: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    ends, key_ends = (np.cumsum([0, *lengths]) for lengths in zip(*pairs, strict=True))
    (own, shared), (width, value_width) = heads, widths
    sizes = ((ends[-1] + fill, own, width), (key_ends[-1] + fill, shared, width),
             (key_ends[-1] + fill, shared, value_width))  # fmt: skip
    inputs = [eg.tensor(rng.standard_normal(s).astype(np.float32)) for s in sizes]
    offsets = eg.tensor(ends), eg.tensor(key_ends)

    def gradients(q: Any, k: Any, v: Any, a: Any, b: Any) -> Any:
        q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
        y = jagged_attention(q, k, v, a, b, scale=width**-0.5, causal=causal)
        return y.detach(), *eg.autograd.grad((y * y).sum(), [q, k, v])

    exact = [x.double().requires_grad_() for x in inputs]
    y = expected_attention(*exact, *offsets, causal)
    expected = [y.detach(), *eg.autograd.grad((y * y).sum(), exact)]
    for found, right in zip(eg.compile(gradients)(*inputs, *offsets), expected, strict=True):
        assert found.shape == right.shape
        # The gradient of a query with one key is a difference of equal products: of |y|^2.
        size = 1 + right.abs().max().item() if right.numel() else 1
        assert eg.allclose(found.double(), right, atol=1e-4 * size)


# -- dropout ------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["mt19937", "philox"])
def test_dropout_of_nested_attention_is_drawn_by_the_generator(algorithm: str) -> None:
    """Compiled and eager drop the same weights for the same seed, others at every call, and leave
    the generator in the same state."""
    rng = np.random.default_rng(3)
    x = eg.tensor(rng.standard_normal((40, 2, 16)).astype(np.float32))
    ends = eg.tensor([0, 17, 17, 38])

    def attend(x: eg.Tensor, ends: eg.Tensor) -> eg.Tensor:
        q = nested.nested_tensor_from_jagged(x, ends).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, q, q, dropout_p=0.5, is_causal=True)
        return y.transpose(1, 2).values()

    found = []
    for run in (attend, eg.compile(attend)):
        with using_generator(eg.Generator(algorithm=algorithm)):
            eg.manual_seed(5)
            found.append([*(run(x, ends) for _ in range(3)), eg.rand(3)])
    for eager, compiled in zip(*found, strict=True):
        assert eg.allclose(eager, compiled, atol=1e-5)
    assert not eg.allclose(found[0][0], found[0][1])


def test_derivatives_with_dropout() -> None:
    inputs = [
        eg.tensor(np.random.default_rng(i).standard_normal((9, 2, 2))).requires_grad_()
        for i in range(3)
    ]
    ends, drawn = eg.tensor([0, 3, 3, 8]), eg.tensor([5, 6]).unbind()

    def call(q: Any, k: Any, v: Any) -> Any:
        return bind(
            JAGGED_ATTENTION, q, k, v, ends, ends, *drawn, scale=0.7, causal=True, dropout=0.3
        )[0]

    assert gradcheck(call, inputs, check_forward_ad=True)
    assert gradgradcheck(call, inputs)
