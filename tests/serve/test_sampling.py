"""Which tokens may be drawn, how often they are, penalties, speculation, beams."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.serve.beam import beam_search
from evergrad.serve.paged import PagedGPT
from evergrad.serve.pages import PageTable
from evergrad.serve.sampling import Distribution, Sampler, Sampling, log_softmax
from evergrad.serve.speculative import Proposal, accepts, excess

from .models import answer, ask, engine_of, likeliest, made

SCORES = np.random.default_rng(3).standard_normal(600).astype(np.float32) * 2


def direct(scores: Any, temperature: float, top_k: Any, top_p: Any, min_p: Any) -> Any:
    """Token by token, from the likeliest on, as the rules say."""
    p = np.exp(scores.astype(float) / temperature)
    p /= p.sum()
    ranked = sorted(range(len(p)), key=lambda i: (-p[i], i))[:top_k]
    total, reached, kept = sum(p[i] for i in ranked), 0.0, []
    for i in ranked:
        kept.append(i)
        reached += p[i] / total
        if top_p is not None and reached >= top_p:
            break
    if min_p is not None:
        kept = [i for i in kept if p[i] >= min_p * p[kept[0]]]
    left = np.zeros(len(p))
    left[kept] = p[kept] / p[kept].sum()
    return left


@pytest.mark.parametrize("temperature", [0.3, 1.0, 20.0])
@pytest.mark.parametrize("top_k", [None, 1, 4, 300, 10_000])
@pytest.mark.parametrize("top_p", [None, 0.05, 0.6, 0.999])
@pytest.mark.parametrize("min_p", [None, 0.0, 0.2, 1.0])
def test_filters(temperature: float, top_k: Any, top_p: Any, min_p: Any) -> None:
    options = Sampling(temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    found = Sampler(options).distribution(SCORES).dense(len(SCORES))
    expected = direct(SCORES, temperature, top_k, top_p, min_p)
    np.testing.assert_array_equal(found > 0, expected > 0)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_ties_go_to_the_smaller_token() -> None:
    flat = np.zeros(10, np.float32)
    assert Sampler(Sampling(top_k=3)).distribution(flat).tokens.tolist() == [0, 1, 2]
    assert Sampler(Sampling(0)).draw(flat) == 0


def test_penalties() -> None:
    scores = np.array([2.0, -2.0, 1.0, 0.5], np.float32)
    options = Sampling(repetition_penalty=2.0)
    changed = Sampler(options, prompt=[0, 1])._penalized(scores)
    np.testing.assert_array_equal(changed, [1.0, -4.0, 1.0, 0.5])
    sampler = Sampler(Sampling(presence_penalty=0.5, frequency_penalty=0.25), prompt=[0])
    for token in (2, 2, 3):
        sampler.note(token)
    np.testing.assert_allclose(sampler._penalized(scores), [2.0, -2.0, 0.0, -0.25])
    biased = Sampler(Sampling(logit_bias={1: 100.0, 99: 5.0}))
    assert biased.pick(biased.distribution(scores)) == 1
    np.testing.assert_array_equal(scores, [2.0, -2.0, 1.0, 0.5])


def test_draws_follow_the_distribution() -> None:
    distribution = Sampler(Sampling(top_k=5)).distribution(SCORES)
    sampler = Sampler(Sampling(seed=1))
    drawn = [sampler.pick(distribution) for _ in range(4000)]
    for token, p in zip(*distribution, strict=True):
        deviation = np.sqrt(4000 * p * (1 - p))
        assert abs(drawn.count(int(token)) - 4000 * p) < 4 * deviation


# -- speculation ----------------------------------------------------------------------------------


def test_accepting_or_correcting_gives_the_wanted_distribution() -> None:
    rng = np.random.default_rng(0)
    for seed in range(3):
        p, q = (rng.dirichlet(np.ones(6) * 0.7) for _ in range(2))
        wanted = Distribution(np.arange(6), p)
        given = Distribution(np.arange(5), q[:5] / q[:5].sum())  # one token is never proposed
        sampler = Sampler(Sampling(seed=seed))
        counts = np.zeros(6)
        for _ in range(20_000):
            proposal = Proposal(sampler.pick(given), given)
            accepted = accepts(sampler, wanted, proposal)
            counts[proposal.token if accepted else sampler.pick(excess(wanted, proposal))] += 1
        assert (np.abs(counts - 20_000 * p) < 4.5 * np.sqrt(20_000 * p * (1 - p)) + 1).all()


@pytest.mark.parametrize("proposals", [1, 3, 15])
def test_a_draft_model_changes_no_likeliest_token(proposals: int) -> None:
    model = made()
    for draft in (made(), made(seed=5, layers=1)):
        engine = engine_of(model, draft=draft, proposals=proposals)
        for prompt in ([1], [1, 2, 3] * 6, list(range(16))):
            assert answer(engine, prompt, 25, temperature=0) == likeliest(model, prompt, 25)
        assert engine.speculation is not None and engine.table.used == 0
        if draft.config.layers == 2:  # the same model: all it proposes is right
            assert engine.speculation.accepted == engine.speculation.proposed > 0
        else:
            assert engine.speculation.accepted < engine.speculation.proposed


def test_texts_with_a_draft_model_are_distributed_as_without() -> None:
    """The second and third token of many answers, against the model's own probabilities."""
    model, draft = made(vocabulary=5), made(vocabulary=5, seed=9, layers=1)
    engine = engine_of(model, draft=draft, proposals=2)
    count = 1500
    told = [ask(engine, [1, 2], 3, seed=i, temperature=0.7) for i in range(20)]
    for i in range(20, count):
        engine.run() if len(told) % 20 == 0 else None
        told.append(ask(engine, [1, 2], 3, seed=i, temperature=0.7))
    engine.run()
    found = np.zeros((5, 5, 5))
    for one in told:
        found[tuple(one.tokens)] += 1
    with eg.no_grad():
        p = np.zeros((5, 5, 5))
        for a, b in product(range(5), repeat=2):
            scores = model(eg.tensor([[1, 2, a, b]]))[0].numpy() / np.float32(0.7)
            first, second, third = (np.exp(log_softmax(row)) for row in scores[1:])
            p[a, b] = first[a] * second[b] * third
    np.testing.assert_allclose(p.sum(), 1, rtol=1e-6)
    assert (np.abs(found - count * p) < 4.5 * np.sqrt(count * p * (1 - p)) + 1.5).all()


def test_a_draft_of_another_vocabulary_is_refused() -> None:
    with pytest.raises(ValueError, match="same tokenizer"):
        engine_of(made(), draft=made(vocabulary=9))


# -- beams ----------------------------------------------------------------------------------------


def all_texts(model: Any, prompt: list[int], length: int, vocabulary: int) -> dict[Any, float]:
    """The log-probability of every text of this length."""
    found = {}
    for text in product(range(vocabulary), repeat=length):
        with eg.no_grad():
            scores = model(eg.tensor([[*prompt, *text]]))[0].numpy()
        rows = [log_softmax(row) for row in scores[len(prompt) - 1 : -1]]
        found[text] = sum(row[token] for row, token in zip(rows, text, strict=True))
    return found


def test_enough_beams_find_the_likeliest_texts() -> None:
    model = made(vocabulary=4)
    paged, table = PagedGPT(model, 120), PageTable(120)
    prompt = [1] * 14  # beams part within a page and go on in the next
    expected = all_texts(model, prompt, 3, 4)
    best = sorted(expected, key=lambda text: -expected[text])
    found = beam_search(paged, table, prompt, 3, beams=16, length_penalty=0.0)
    assert [beam.tokens for beam in found] == best[:16]
    for beam in found:
        assert beam.log_probability == pytest.approx(expected[beam.tokens], abs=1e-3)
    assert table.available == 120 and table.used == 0


def test_one_beam_is_the_likeliest_token_each_time() -> None:
    model = made()
    paged, table = PagedGPT(model, 60), PageTable(60)
    (found,) = beam_search(paged, table, [1, 2, 3], 40, beams=1)
    assert list(found.tokens) == likeliest(model, [1, 2, 3], 40)


def beams_of(model: Any, prompt: list[int], length: int, count: int, stops: set[int]) -> list[Any]:
    """The texts that are complete or alive in the end, by the definition."""
    alive: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    complete: list[tuple[tuple[int, ...], float]] = []
    for _ in range(length):
        with eg.no_grad():
            ends = [model(eg.tensor([[*prompt, *text]]))[0, -1].numpy() for text, _ in alive]
        longer = [
            ((*text, token), total + float(score))
            for (text, total), row in zip(alive, ends, strict=True)
            for token, score in enumerate(log_softmax(row))
        ]
        longer.sort(key=lambda pair: -pair[1])
        complete += [pair for pair in longer[:count] if pair[0][-1] in stops]
        alive = [pair for pair in longer if pair[0][-1] not in stops][:count]
    return [text for text, _ in sorted([*complete, *alive], key=lambda pair: -pair[1])[:count]]


@pytest.mark.parametrize("stops", [{3}, {1, 4, 7, 10}, set(range(11))], ids=len)
@pytest.mark.parametrize("count", [2, 4])
def test_a_beam_is_complete_only_among_the_best_of_its_length(count: int, stops: set[int]) -> None:
    model = made(vocabulary=12)
    for first in range(6):
        paged, table = PagedGPT(model, 60), PageTable(60)
        expected = beams_of(model, [first, 2], 4, count, stops)
        found = beam_search(
            paged, table, [first, 2], 4, beams=count, stops=frozenset(stops), length_penalty=0.0
        )
        assert [beam.tokens for beam in found] == expected


def test_beams_complete_at_stops_and_give_all_pages_back() -> None:
    model = made()
    paged, table = PagedGPT(model, 60), PageTable(60)
    stop = likeliest(model, [1, 2, 3], 5)[3]
    found = beam_search(paged, table, [1, 2, 3], 30, beams=4, stops=frozenset({stop}))
    assert len(found) == 4 and any(beam.tokens[-1] == stop for beam in found)
    assert all(stop not in beam.tokens[:-1] for beam in found)
    assert table.available == 60
    scores = [beam.score(1.0) for beam in found]
    assert scores == sorted(scores, reverse=True)
    with pytest.raises(ValueError, match="beams is 33"):
        beam_search(paged, table, [1], 3, beams=33)
    with pytest.raises(ValueError, match="not free"):
        beam_search(paged, table, [1], 79, beams=16)
