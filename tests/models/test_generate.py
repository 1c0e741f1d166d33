"""Drawing text: the same work for each token, the choice of tokens, seeds, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.memory.ledger import LEDGER
from evergrad.models import LSTMLanguageModel
from evergrad.models.generate import Decoder, generate, probabilities

from .test_gpt import made
from .tiny import GPTS, LSTM

PROMPT = [3, 1, 4]


def lstm() -> LSTMLanguageModel:
    eg.manual_seed(0)
    return LSTMLanguageModel(LSTM).eval()


MODELS = {name: lambda config=config: made(config) for name, config in GPTS.items()}
MODELS["lstm"] = lstm
models = pytest.mark.parametrize("name", MODELS)


def likeliest(model: Any, tokens: list[int], length: int, limit: int | None) -> list[int]:
    """Without a cache: the whole text, or what of it is in sight, is read for each token."""
    tokens, start, known = list(tokens), 0, len(tokens)
    for _ in range(length):
        if limit is not None and len(tokens) - start > limit:
            start = len(tokens) - limit // 2
        with eg.no_grad():
            scores = model(eg.tensor([tokens[start:]]))[0, -1]
        tokens.append(int(scores.argmax()))
    return tokens[known:]


@models
def test_tokens_are_those_of_reading_the_whole_text(name: str) -> None:
    """Also beyond the context of 6, where its last half is read again."""
    model = MODELS[name]()
    limit = None if name == "lstm" else 6
    expected = likeliest(model, PROMPT, 14, limit)
    assert list(generate(model, PROMPT, 14, temperature=0)) == expected
    eager = Decoder(model, compiled=False)
    assert list(generate(eager, PROMPT, 14, temperature=0)) == expected


@models
def test_one_program_of_fixed_shapes_serves_all_positions(name: str) -> None:
    """So a token costs the same wherever it stands: the program's shapes are its work."""
    decoder = Decoder(MODELS[name]())
    list(generate(decoder, PROMPT, 14, seed=0))
    list(generate(decoder, PROMPT[:1], 14, seed=1))
    (programs,) = decoder._read_one.variants.values()
    assert len(programs) == 1
    decoder.begin(PROMPT)
    with eg.no_grad():
        assert "all nodes are native kernels" in str(decoder._read_one.explain(eg.tensor([[1]])))


def test_a_cached_token_is_one_row_of_work() -> None:
    """No matrix product of a step has more rows than the one token, however long the text."""
    decoder = Decoder(made(GPTS["modern"]), compiled=False)
    decoder.begin([1, 2, 3, 4, 5])
    rows: list[int] = []
    for block in decoder.model.blocks:
        block.attention.qkv.register_forward_hook(lambda m, x, y: rows.append(y.shape[1]))
    decoder.append(6)
    assert rows == [1, 1]


@models
def test_seeds_reproduce_and_differ(name: str) -> None:
    model = MODELS[name]()
    decoder = Decoder(model)
    texts = [list(generate(decoder, PROMPT, 12, seed=seed, temperature=2.0)) for seed in (1, 2, 1)]
    assert texts[0] == texts[2] != texts[1]
    eg.manual_seed(1)
    assert list(generate(decoder, PROMPT, 12, temperature=2.0)) == texts[0]
    assert len(texts[0]) == 12 and all(0 <= token < 11 for token in texts[0])


def test_the_default_generator_is_left_alone_with_a_seed() -> None:
    model = made(GPTS["gpt2"])
    before = eg.get_rng_state()
    list(generate(model, PROMPT, 3, seed=5))
    assert eg.equal(eg.get_rng_state(), before)


def test_modes_are_as_before_after_each_token() -> None:
    model = made(GPTS["gpt2"]).train()
    model.norm.eval()  # a mode of its own
    modes = [module.training for module in model.modules()]
    text = generate(model, PROMPT, 5, seed=0)
    next(text)
    assert [module.training for module in model.modules()] == modes
    assert eg.is_grad_enabled()


@models
def test_a_text_leaves_no_memory_behind(name: str, collector_off: None) -> None:
    """Without the collector: nothing of a decoder refers back to it."""
    model = MODELS[name]()
    list(generate(model, PROMPT, 8, seed=0))  # rules and kernels that are kept for ever
    before = LEDGER.live, LEDGER.count
    list(generate(model, PROMPT, 8, seed=0))
    assert (LEDGER.live, LEDGER.count) == before


def test_new_weights_are_seen_by_a_decoder() -> None:
    model = made(GPTS["gpt2"])
    decoder = Decoder(model)
    list(generate(decoder, PROMPT, 4, temperature=0))
    with eg.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.4)
    assert list(generate(decoder, PROMPT, 8, temperature=0)) == likeliest(model, PROMPT, 8, 6)


# -- the choice -----------------------------------------------------------------------------------


def direct(scores: Any, temperature: float, top_k: int | None, top_p: float | None) -> Any:
    """Token by token, from the likeliest on, as the rules say."""
    p = np.exp(scores / temperature)
    p = p / p.sum()
    ranked = sorted(range(len(p)), key=lambda i: -p[i])[:top_k]
    total, sum_of_kept, kept = sum(p[i] for i in ranked), 0.0, []
    for i in ranked:
        kept.append(i)
        sum_of_kept += p[i] / total
        if top_p is not None and sum_of_kept >= top_p:
            break
    left = np.zeros(len(p))
    left[kept] = p[kept] / p[kept].sum()
    return left


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("top_k", [None, 1, 4, 100])
@pytest.mark.parametrize("top_p", [None, 0.05, 0.6, 0.95])
def test_top_k_and_top_p(temperature: float, top_k: int | None, top_p: float | None) -> None:
    scores = np.random.default_rng(3).standard_normal(20) * 2
    found = probabilities(scores.astype(np.float32), temperature, top_k, top_p)
    expected = direct(scores.astype(np.float32).astype(float), temperature, top_k, top_p)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_array_equal(found > 0, expected > 0)


def test_equal_scores_and_extreme_ones() -> None:
    np.testing.assert_array_equal(probabilities(np.zeros(4), 1.0, 2, None), [0.5, 0.5, 0, 0])
    large = probabilities(np.array([1e30, 0.0, -np.inf], np.float32), 1e-3, None, 0.9)
    np.testing.assert_array_equal(large, [1, 0, 0])


def test_draws_follow_the_probabilities() -> None:
    model = made(GPTS["gpt2"])
    decoder = Decoder(model)
    scores = decoder.begin(PROMPT[:1])
    chances = probabilities(scores.numpy(), 1.5, 4, None)
    eg.manual_seed(0)
    drawn = [next(generate(decoder, PROMPT[:1], 1, temperature=1.5, top_k=4)) for _ in range(400)]
    counts = np.bincount(drawn, minlength=11)
    assert not counts[chances == 0].any()
    deviation = np.sqrt(400 * chances * (1 - chances))
    assert (np.abs(counts - 400 * chances) <= 4 * deviation + 1e-9).all()


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "options", "message"),
    [
        ([], {}, "no token to begin with"),
        ([3, 11], {}, r"token \[11\][\s\S]*0 to 10[\s\S]*tokenizer"),
        ([-1], {}, r"token \[-1\]"),
        ([1], {"length": -1}, "length is -1"),
        ([1], {"temperature": -0.1}, r"temperature is -0\.1"),
        ([1], {"top_k": 0}, "top_k is 0"),
        ([1], {"top_p": 0.0}, r"top_p is 0\.0"),
        ([1], {"top_p": 1.5}, r"top_p is 1\.5"),
    ],
)
def test_bad_arguments_are_told_at_once(tokens: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        generate(made(GPTS["gpt2"]), tokens, **{"length": 3, **options})


def test_a_long_prompt_keeps_what_is_in_sight() -> None:
    model = made(GPTS["rotary"])
    long = [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert next(generate(model, long, 1, temperature=0)) == likeliest(model, long[-6:], 1, 6)[0]
    assert list(generate(model, long, 0)) == []
