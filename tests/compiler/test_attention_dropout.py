"""Dropout of attention's weights inside compiled programs: tiled, with the random numbers of eager
evaluation, and with nothing kept of the size of the weights but bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import evergrad as eg
import evergrad.nn.functional as F
from evergrad import nn
from evergrad.compiler.kernels import random_rows
from evergrad.compiler.kernels.attention import rows
from evergrad.core.rng.default_generator import using_generator

from .steps import programs_of
from .test_attention import labels, leaves, normal, run_row, sdpa, with_grads

TOLERANCE = 2e-5
ALGORITHMS = ["mt19937", "philox"]
Form = Callable[..., Any]


def assert_as_eager(form: Form, algorithm: str, *given: Any) -> Any:
    """Compiled and eager: the same values and gradients, and streams that end at the same place."""
    run, compiled = with_grads(form), eg.compile(with_grads(form))
    generator = eg.Generator(algorithm=algorithm)
    found = []
    for function in (compiled, run):
        generator.manual_seed(3)
        with using_generator(generator):
            eg.rand(3)  # so that the twister does not begin at an even place
            results = [function(*given) for _ in range(2)]
        found.append((results, generator.get_state().tolist()))
    assert found[0][1] == found[1][1], "the random stream is at another place"
    for ours, theirs in zip(*(results for results, _ in found), strict=True):
        for a, b in zip(ours, theirs, strict=True):
            scale = max(1.0, float(np.abs(b.numpy()).max(initial=0)))
            np.testing.assert_allclose(a.numpy() / scale, b.numpy() / scale, atol=TOLERANCE)
    assert not np.array_equal(found[0][0][0][0].numpy(), found[0][0][1][0].numpy())
    assert labels(compiled).count("attention") == 1
    assert labels(compiled).count("attention_backward") == 1
    assert not any(label.startswith("call") for label in labels(compiled))
    return compiled


# -- forms --------------------------------------------------------------------------------------


def dropped(q: Any, k: Any, v: Any) -> Any:
    return sdpa(q, k, v, dropout_p=0.3)


def causal(q: Any, k: Any, v: Any) -> Any:
    return sdpa(q, k, v, dropout_p=0.3, is_causal=True)


def masked(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return sdpa(q, k, v, attn_mask=mask, dropout_p=0.3)


def shared(q: Any, k: Any, v: Any) -> Any:
    return sdpa(q, k, v, dropout_p=0.3, is_causal=True, enable_gqa=True)


def by_hand(q: Any, k: Any, v: Any) -> Any:
    seen = eg.ones(q.shape[-2], k.shape[-2]).tril()
    att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
    att = F.softmax(att.masked_fill(seen == 0, float("-inf")), dim=-1)
    return F.dropout(att, 0.2, training=True) @ v


SIZES = [
    (1, 2, 5, 7, 4),
    (2, 3, 33, 70, 17),
    (1, 2, 100, 129, 8),
    (1, 9, 64, 64, 32),
]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_sizes(size: tuple[int, ...], algorithm: str) -> None:
    b, h, t, s, d = size
    given = leaves(normal(b, h, t, d), normal(b, h, s, d, seed=1), normal(b, h, s, 12, seed=2))
    for form in (dropped, causal):
        assert_as_eager(form, algorithm, *given)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("length", [7, 33, 63, 64, 65, 128])
def test_short_sequences(length: int, algorithm: str) -> None:
    given = leaves(*(normal(1, 8, length, 32, seed=n) for n in range(3)))
    for form in (dropped, causal):
        assert_as_eager(form, algorithm, *given)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_forms(algorithm: str) -> None:
    q, k, v = (normal(2, 4, 70, 8, seed=n) for n in range(3))
    assert_as_eager(by_hand, algorithm, *leaves(q, k, v))
    assert_as_eager(masked, algorithm, *leaves(q, k, v), eg.tensor(normal(70, 70) > -1))
    assert_as_eager(shared, algorithm, *leaves(q, k[:, :2].copy(), v[:, :2].copy()))
    assert_as_eager(dropped, algorithm, *leaves(q[0, 0], k[0, 0], v[0, 0]))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_modules(algorithm: str) -> None:
    attention = nn.MultiheadAttention(16, 2, dropout=0.2, batch_first=True)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
    padding = np.zeros((2, 40), bool)
    padding[1, 25:] = True

    def attend(q: Any, k: Any, v: Any, padding: Any) -> Any:
        return attention(q, k, v, key_padding_mask=padding, need_weights=False)[0]

    def encode(q: Any, k: Any, v: Any, padding: Any) -> Any:
        return layer(q + k + v, src_key_padding_mask=padding)

    given = leaves(*(normal(2, 40, 16, seed=n) for n in range(3)))
    for form in (attend, encode):
        assert_as_eager(form, algorithm, *given, eg.tensor(padding))


def test_a_generator_that_is_given() -> None:
    generator = eg.Generator(algorithm="philox")

    def form(q: Any, k: Any, v: Any) -> Any:
        weights = eg.softmax(q @ k.mT, -1)
        mask = eg.empty_like(weights).bernoulli_(0.6, generator=generator)
        return (mask / 0.6 * weights) @ v

    given = leaves(*(normal(2, 31, 8, seed=n) for n in range(3)))
    compiled, found = eg.compile(with_grads(form)), []
    for function in (with_grads(form), compiled):
        generator.manual_seed(2**63 + 5)
        generator.offset = 2**32 - 100  # the counters pass 32 bits
        found.append(([x.numpy() for x in function(*given)], generator.offset))
    assert found[0][1] == found[1][1]
    for a, b in zip(found[0][0], found[1][0], strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=TOLERANCE)
    assert labels(compiled).count("attention_backward") == 1


# -- memory, threads ----------------------------------------------------------------------------

LENGTH = 512


@pytest.mark.parametrize(("algorithm", "kept"), [("mt19937", LENGTH * LENGTH // 8), ("philox", 0)])
def test_nothing_of_the_size_of_the_weights_is_kept(algorithm: str, kept: int) -> None:
    """A bit for each weight, or, where the generator counts, nothing."""
    heads, width = 4, 8
    given = leaves(*(normal(1, heads, LENGTH, width, seed=n) for n in range(3)))
    with using_generator(eg.Generator(algorithm=algorithm)):
        for form in (causal, by_hand):
            plan = eg.compile(with_grads(form)).plan(*given)
            # What grows with the length alone: results, gradients, and parts of these.
            linear = 64 * heads * LENGTH * width * 4 // 10
            assert plan.peak < heads * kept + linear < heads * LENGTH * LENGTH


def saved_bytes(compiled: Any) -> int:
    """What a compiled function keeps for its derivative."""
    (variant,) = [v for variants in compiled.variants.values() for v in variants]
    captured = variant.captured
    return sum(o.type.nbytes for o in captured.graph.outputs[captured.output_count :])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("form", [sdpa, causal, by_hand])
def test_a_derivative_asked_for_from_outside_keeps_no_weights(form: Form, algorithm: str) -> None:
    heads, width = 2, 8
    given = leaves(*(normal(1, heads, 256, width, seed=n) for n in range(3)))
    weights = np.linspace(-1, 1, 256 * width * heads, dtype=np.float32).reshape(
        1, heads, 256, width
    )
    generator = eg.Generator(algorithm=algorithm)
    compiled, found, states = eg.compile(form), [], []
    with using_generator(generator):
        for function in (compiled, form):
            generator.manual_seed(1)
            y = function(*given)
            grads = eg.autograd.grad((y * eg.tensor(weights)).sum(), given)
            found.append([x.detach().numpy() for x in (y, *grads)])
            states.append(generator.get_state().tolist())
    assert states[0] == states[1]
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=TOLERANCE)
    # The result and two numbers for each query; a bit for each weight that the twister dropped.
    bits = heads * 256 * 256 // 8 if algorithm == "mt19937" and form is not sdpa else 64
    assert saved_bytes(compiled) <= given[0].nbytes + heads * 256 * 2 * 4 + bits
    assert labels(compiled).count("attention") == 1


def test_gradients_of_gradients_see_the_same_mask() -> None:
    def second(function: Form, *given: Any) -> Any:
        (first,) = eg.autograd.grad(function(*given).sin().sum(), given[:1], create_graph=True)
        return eg.autograd.grad(first.square().sum(), given)

    def plain(q: Any, k: Any, v: Any) -> Any:
        return F.dropout(q * k, 0.4) * v

    arrays = [np.float64(normal(2, 20, 8, seed=n)) for n in range(3)]
    for form in (dropped, plain):
        for algorithm in ALGORITHMS:
            generator = eg.Generator(algorithm=algorithm)
            found = []
            for function in (eg.compile(form), form):
                generator.manual_seed(4)
                with using_generator(generator):
                    results = second(function, *leaves(*arrays))
                found.append(([x.numpy() for x in results], generator.get_state().tolist()))
            assert found[0][1] == found[1][1]
            for a, b in zip(found[0][0], found[1][0], strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_same_bits_for_any_number_of_threads(algorithm: str) -> None:
    given = leaves(*(normal(2, 4, 100, 24, seed=n) for n in range(3)))
    generator = eg.Generator(algorithm=algorithm)
    found = []
    for threads in (1, 2):
        eg.set_num_threads(threads)
        compiled = eg.compile(with_grads(causal))
        with using_generator(generator):
            compiled(*given)
            (program,) = programs_of(compiled)
            program.threads = threads
            generator.manual_seed(0)
            found.append([x.numpy().tobytes() for x in compiled(*given)])
    assert found[0] == found[1]


# -- the rows themselves ------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("counted", [False, True])
def test_kernels_give_what_the_rows_say(groups: int, counted: bool) -> None:
    q, k = normal(2, 2, 70 * groups, 10), normal(2, 2, 51, 10, seed=1)
    v = normal(2, 2, 51, 18, seed=2)
    mask = normal(2, 2 * groups, 70, 51, seed=3) > -0.5
    position = [np.asarray(n, np.int64) for n in (-7, 2**33 - 5)]
    drawn = position if counted else [random_rows.pack(mask)]
    attrs: dict[str, Any] = {
        "steps": (("scale", 0.4),), "groups": groups,
        "dropout": rows.Dropout(0.6, 1.5, counted),
    }  # fmt: skip
    order = (0, 1, 2, 3) if groups > 1 else (2, 0, 1, 3)
    more = {"empty_is_zero": False, "order": order}
    forward, backward = rows.ATTENTION, rows.ATTENTION_BACKWARD
    given = [q, k, v, *drawn]
    y, stats = forward.eval(*given, **attrs, **more)
    natural = np.ascontiguousarray(y.transpose(rows.way_back(order)))
    given_back = [q, k, v, normal(*natural.shape, seed=5), natural, stats, *drawn]
    gradients = backward.eval(*given_back, **attrs, orders=(order,) * 3)
    found = run_row(forward, given, {**attrs, **more})
    found += run_row(backward, given_back, {**attrs, "orders": (order,) * 3})
    for ours, theirs in zip(found, [y, stats, *gradients], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=TOLERANCE)


def test_words_of_bits() -> None:
    mask = normal(3, 70, 5) > 0
    words = random_rows.pack(mask)
    assert words.shape == (3, 3, 5) and words.dtype == np.int32
    assert words[1, 2, 4] >> 5 & 1 == mask[1, 69, 4]
    np.testing.assert_array_equal(random_rows.unpack(words, mask.shape), mask)
