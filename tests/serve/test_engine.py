"""The engine: tokens of reading whole texts, batches to the bit, pages, memory, refusals."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.memory.ledger import LEDGER
from evergrad.models import LoRAConfig, add_lora
from evergrad.models.lora import Adapter, adapted_layers
from evergrad.models.quantize import Weights, quantize
from evergrad.serve.engine import Engine, EngineConfig, QueueFullError
from evergrad.serve.paged import BATCHES, ROWS, WIDE, PagedGPT, Rows
from evergrad.serve.pages import PAGE, PageTable, chunk_names

from .models import VARIANTS, Told, answer, ask, engine_of, likeliest, made

variants = pytest.mark.parametrize("name", VARIANTS)


@pytest.fixture(scope="module")
def engine() -> Engine:
    """One for all tests that leave it idle; programs are compiled once."""
    return engine_of(made())


def prompts(count: int, seed: int = 0) -> list[list[int]]:
    """Of lengths around the pages' ends."""
    rng = np.random.default_rng(seed)
    lengths = [1, 15, 16, 17, 31, 32, 33, 48, 50, 2, 3, 40]
    return [rng.integers(0, 23, lengths[i % len(lengths)]).tolist() for i in range(count)]


@variants
def test_tokens_are_those_of_reading_the_whole_text(name: str) -> None:
    model = made(name)
    engine = engine_of(model)
    for prompt in prompts(9):
        assert answer(engine, prompt, 20, temperature=0) == likeliest(model, prompt, 20)


def test_an_answer_is_the_same_alone_and_among_others(engine: Engine) -> None:
    """To the bit: also the log-probabilities are equal."""
    given = prompts(ROWS + 4)
    together = [
        ask(engine, p, 10 + i, seed=i, log_probabilities=2) for i, p in enumerate(given)
    ]  # fmt: skip
    engine.run()
    for i, prompt in enumerate(given):
        alone = ask(engine, prompt, 10 + i, seed=i, log_probabilities=2)
        engine.run()
        reused = engine_of(made()) if i == 3 else None  # and without any page known before
        assert alone.events[:-1] == together[i].events[:-1]
        if reused is not None:
            fresh = ask(reused, prompt, 10 + i, seed=i, log_probabilities=2)
            reused.run()
            assert fresh.events[:-1] == alone.events[:-1]


def test_requests_that_come_and_go_leave_others_alone(engine: Engine) -> None:
    wanted = answer(engine, prompts(1)[0] * 5, 30, seed=7)
    told = ask(engine, prompts(1)[0] * 5, 30, seed=7)
    for i, prompt in enumerate(prompts(12, seed=1)):
        other = ask(engine, prompt, 5, seed=i)
        engine.step()
        if i % 3 == 0:
            other.sequence.cancel()  # type: ignore[attr-defined]
    engine.run()
    assert told.tokens == wanted


def test_seeds_reproduce_and_differ(engine: Engine) -> None:
    first, again, other = (answer(engine, [1, 2, 3], 20, seed=s) for s in (5, 5, 6))
    assert first == again != other
    assert answer(engine, [1, 2, 3], 20) != answer(engine, [1, 2, 3], 20)


def test_a_known_beginning_is_not_computed_again() -> None:
    engine = engine_of(made())
    start = prompts(9)[8][:48]
    first = ask(engine, [*start, 1, 2], 4, temperature=0)
    engine.run()
    read = []
    engine.paged._last_scores, original = (
        lambda rows, *shape: read.extend(len(r.tokens) for r in rows) or original(rows, *shape),
        engine.paged._last_scores,
    )
    second = ask(engine, [*start, 3, 4, 5], 4, temperature=0)
    engine.run()
    assert first.events[-1].reused == 0 and second.events[-1].reused == 48
    assert sum(read) == 3 + 3  # the rest of the prompt, and three of four tokens
    assert second.tokens == likeliest(engine.model, [*start, 3, 4, 5], 4)
    same = ask(engine, start, 4, temperature=0)  # its last token has to be read
    engine.run()
    assert same.events[-1].reused == 32
    assert same.tokens == likeliest(engine.model, start, 4)


def test_pages_that_are_reused_under_pressure_hold_what_they_say() -> None:
    """Beginnings of every length in a pool that forgets, with others cancelled in between."""
    engine, rng = engine_of(made(), sequences=4, pages=12), random.Random(2)
    beginnings = [[rng.randrange(23) for _ in range(64)] for _ in range(3)]
    given: list[tuple[list[int], int, int, Told]] = []
    while len(given) < 40 or not engine.is_idle:
        if len(given) < 40 and rng.random() < 0.6:
            known = rng.choice(beginnings)[: rng.choice([0, 15, 16, 17, 32, 48, 63])]
            prompt = known + [rng.randrange(23) for _ in range(rng.randrange(1, 12))]
            seed, count = rng.randrange(100), rng.randrange(1, 16)
            told = ask(engine, prompt, count, seed=seed, temperature=0.9)
            if rng.random() < 0.15:
                told.sequence.cancel()  # type: ignore[attr-defined]
            given.append((prompt, count, seed, told))
        engine.step()
    assert engine.table.reused > 10 and engine.table.used == engine.table.reserved == 0
    for prompt, count, seed, told in given:
        engine.table.forget()
        if told.reason != "cancelled":
            assert answer(engine, prompt, count, seed=seed, temperature=0.9) == told.tokens


@pytest.mark.parametrize("weights", ["float32", "int8"])
def test_long_prompts_are_read_with_others_to_the_same_bits(weights: Any) -> None:
    """One alone, by long parts; many together, by short ones; and after beginnings of any number
    of pages that others have left: the same log-probabilities."""
    model = made(context=256, width=32)
    model = model if weights == "float32" else quantize(model, weights)
    engine = engine_of(model)
    assert engine.paged.prompt_shapes == WIDE
    rng = np.random.default_rng(3)
    text = rng.integers(23, size=240).tolist()
    given = [text[:n] for n in (240, 17, 33, 63, 64, 65, 129, 200)] + [[5] * 100, text[7:90]]
    alone = []
    for prompt in given:
        engine.table.forget()
        told = ask(engine, prompt, 6, seed=1, log_probabilities=2)
        engine.run()
        alone.append(told.events[:-1])
    engine.table.forget()
    for order in (given, given[::-1]):  # the second time pages are known
        together = [ask(engine, prompt, 6, seed=1, log_probabilities=2) for prompt in order]
        engine.run()
        expected = alone if order is given else alone[::-1]
        assert [told.events[:-1] for told in together] == expected
    assert together[-1].events[-1].reused > 0


def test_programs_of_other_bits_are_not_used() -> None:
    class Other(PagedGPT):
        def _new_values(self, rows: Any, batch: int, length: int) -> Any:
            found = super()._new_values(rows, batch, length)
            return np.nextafter(found, np.inf) if batch == 4 else found

    assert Other(made(context=128, width=32), 8).prompt_shapes == ((1, 32), (1, 128))
    assert PagedGPT(made(context=64, width=32), 8).prompt_shapes == ((1, 32), (4, 32))
    assert PagedGPT(made(context=24), 8).prompt_shapes == ((1, 16),)


def test_a_full_pool_makes_requests_wait_and_forgets_the_oldest_pages() -> None:
    """Five pages are one context: one after the other, and no answer changes."""
    model = made()
    engine = Engine(model, EngineConfig(sequences=8, pages=6))
    given = prompts(12, seed=4)
    told = [ask(engine, prompt, 20, temperature=0) for prompt in given]
    engine.run()
    for prompt, found in zip(given, told, strict=True):
        assert found.tokens == likeliest(model, prompt, 20)
    assert engine.table.used == 0 and engine.table.reserved == 0
    assert engine.table.available == 6


def test_answers_end_at_stops_at_their_length_and_at_the_context(engine: Engine) -> None:
    prompt = [1, 2, 3]
    whole = answer(engine, prompt, 20, temperature=0)
    stop = whole[4]
    stopped = ask(engine, prompt, 20, temperature=0, stops=frozenset({stop}))
    long = ask(engine, prompt, 1000, temperature=0)
    one = ask(engine, prompt, 1, temperature=0)
    engine.run()
    assert stopped.tokens == whole[: whole.index(stop)] and stopped.reason == "stop"
    assert len(long.tokens) == 80 - 3 and long.reason == "length"
    assert one.tokens == whole[:1] and one.reason == "length"


def test_log_probabilities_are_those_of_the_model(engine: Engine) -> None:
    told = ask(engine, [4, 5], 6, temperature=0, log_probabilities=3)
    engine.run()
    tokens = [4, 5]
    for event in told.events[:-1]:
        with eg.no_grad():
            scores = engine.model(eg.tensor([tokens]))[0, -1].numpy().astype(float)
        log_p = scores - np.log(np.exp(scores).sum())
        assert event.log_probability == pytest.approx(log_p[event.token], abs=1e-4)
        assert [t for t, _ in event.likeliest] == np.argsort(-log_p)[:3].tolist()
        tokens.append(event.token)


def test_memory_is_known_before_and_flat(engine: Engine, collector_off: None) -> None:
    """After every program has run once, requests leave the ledger to the byte."""
    before = LEDGER.live
    engine = engine_of(made())
    assert engine.memory()["pool"] == 2 * engine.paged.keys.numel() * 4
    engine.prepare()
    known = engine.memory()
    assert known["programs"] > 0
    assert sum(known.values()) == LEDGER.live - before
    for i, prompt in enumerate(prompts(20)):
        ask(engine, prompt, 10, seed=i)
    engine.run()
    live, count = LEDGER.live, LEDGER.count
    assert live == sum(known.values()) + before
    for i, prompt in enumerate(prompts(20, seed=3)):
        ask(engine, prompt, 25, seed=i)
    engine.run()
    assert (LEDGER.live, LEDGER.count) == (live, count)
    assert engine.memory() == known


def test_preparing_compiles_all_that_requests_need() -> None:
    engine = engine_of(made())
    engine.prepare()

    def programs() -> int:
        return sum(len(v) for v in engine.paged._read_last.variants.values())

    before = programs()
    for i, prompt in enumerate(prompts(20)):
        ask(engine, prompt, 30, seed=i)
    engine.run()
    assert programs() == before
    assert not engine.paged.keys[:, 0].any() and not engine.paged.values[:, 0].any()


def test_a_full_queue_refuses() -> None:
    engine = Engine(made(), EngineConfig(sequences=2, waiting=3))
    for _ in range(5):
        ask(engine, [1], 4)
    with pytest.raises(QueueFullError, match="waiting"):
        ask(engine, [1], 4)
    engine.run()
    assert len(answer(engine, [1], 4)) == 4


def test_cancelled_requests_take_no_room_in_the_queue() -> None:
    engine = Engine(made(), EngineConfig(sequences=1, waiting=2))
    running = ask(engine, [1], 40, temperature=0.0)
    engine.step()
    waiting = [ask(engine, [2], 4, temperature=0.0) for _ in range(2)]
    waiting[1].sequence.cancel()  # type: ignore[attr-defined]
    engine.step()
    assert [one.reason for one in waiting] == [None, "cancelled"]
    assert running.reason is None
    third = ask(engine, [2], 4, temperature=0.0)
    with pytest.raises(QueueFullError):
        ask(engine, [2], 4)
    engine.run()
    assert waiting[0].tokens == third.tokens and len(third.tokens) == 4
    assert len(running.tokens) == 40
    assert engine.table.used == 0 and engine.table.reserved == 0


@pytest.mark.parametrize("tokens", [(-1,), (23,), (10**30,), (1, 2, -5)])
def test_embeddings_of_unknown_tokens_are_refused(engine: Engine, tokens: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="there is no token"):
        engine.embed(tokens)


@pytest.mark.parametrize(
    ("prompt", "options", "told"),
    [
        ([], {}, "empty"),
        ([1] * 80, {}, "80 tokens"),
        ([23], {}, r"token \[23\]"),
        ([-1], {}, "token"),
        ([1], {"count": 0}, "max_tokens"),
        ([1], {"adapter": "none"}, "no adapter 'none'"),
        ([1], {"temperature": -1.0}, "temperature"),
        ([1], {"temperature": float("nan")}, "temperature"),
        ([1], {"top_k": 0}, "top_k"),
        ([1], {"top_p": 0.0}, "top_p"),
        ([1], {"min_p": 1.5}, "min_p"),
        ([1], {"repetition_penalty": 0.0}, "repetition_penalty"),
        ([1], {"repetition_penalty": 1e308}, "repetition_penalty"),
        ([1], {"repetition_penalty": 1e-308}, "repetition_penalty"),
        ([1], {"presence_penalty": 3.0}, "presence_penalty"),
        ([1], {"logit_bias": {0: float("nan")}}, "logit_bias"),
        ([1], {"logit_bias": {0: float("inf")}}, "logit_bias"),
        ([1], {"logit_bias": {0: -101.0}}, "logit_bias"),
        ([1], {"logit_bias": {1: 1.0, 23: 1.0}}, r"token \[23\]"),
        ([1], {"logit_bias": {-1: 1.0}}, "token"),
    ],
)
def test_wrong_requests_are_refused(
    engine: Engine, prompt: list[int], options: dict[str, object], told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        ask(engine, prompt, **options)  # type: ignore[arg-type]
    assert engine.is_idle


def test_an_error_ends_requests_and_the_engine_goes_on(engine: Engine) -> None:
    told = [ask(engine, [1, 2], 5, seed=0) for _ in range(3)]
    engine.step()
    engine.fail()
    assert [one.reason for one in told] == ["error"] * 3
    assert engine.is_idle and engine.table.used == 0 and engine.table.reserved == 0
    assert len(answer(engine, [1, 2], 5)) == 5


def test_an_error_of_one_request_ends_no_other(engine: Engine) -> None:
    """Neither in its first token nor in a later one."""
    expected = answer(engine, [1, 2], 6, seed=3)

    def fail(scores: object) -> int:
        raise FloatingPointError("no distribution")

    others = [ask(engine, [1, 2], 6, seed=3) for _ in range(2)]
    early, late = (ask(engine, [3, 4], 6, temperature=0.0) for _ in range(2))
    early.sequence.sampler.draw = fail  # type: ignore[attr-defined]
    engine.step()
    late.sequence.sampler.draw = fail  # type: ignore[attr-defined]
    engine.run()
    assert [one.tokens for one in others] == [expected] * 2
    assert early.reason == late.reason == "error" and not early.tokens
    assert engine.table.used == 0 and engine.table.reserved == 0


@pytest.mark.parametrize("temperature", [5e-324, 1e-308, 1e-30, 1e-5])
def test_the_coldest_temperatures_take_the_likeliest(engine: Engine, temperature: float) -> None:
    expected = answer(engine, [1, 2, 3], 6, temperature=0.0)
    for options in ({}, {"top_k": 5}, {"top_p": 0.9}, {"min_p": 0.1}):
        found = answer(engine, [1, 2, 3], 6, temperature=temperature, seed=0, **options)
        assert found == expected


def test_adapters_are_exchanged_between_requests() -> None:
    model = made()
    config = LoRAConfig(2, 4.0, ("qkv", "out", "widen"))
    wanted, adapters = {None: likeliest(model, [1, 2, 3], 8)}, {}
    for seed in (1, 2):
        other = made()
        add_lora(other, config)
        eg.manual_seed(seed)
        with eg.no_grad():
            for _, layer in adapted_layers(other):
                layer.lora_B.normal_(0.0, 0.5)
        wanted[f"a{seed}"] = likeliest(other, [1, 2, 3], 8)
        adapters[f"a{seed}"] = Adapter.of(other, config)
    engine = engine_of(model, adapters=adapters)
    order = [None, "a1", "a1", "a2", None, "a1"]
    told = [ask(engine, [1, 2, 3], 8, temperature=0, adapter=name) for name in order]
    engine.run()
    assert [one.tokens for one in told] == [wanted[name] for name in order]
    assert len({tuple(tokens) for tokens in wanted.values()}) == 3


# -- pages ----------------------------------------------------------------------------------------


def test_pages_are_counted_shared_and_forgotten() -> None:
    table = PageTable(3)
    names = chunk_names(list(range(2 * PAGE + 3)), "")
    assert len(names) == 2 and names != chunk_names(list(range(2 * PAGE)), "other")
    assert table.reserve(2) and not table.reserve(2)
    a, b = table.take(), table.take()
    table.name(a, names[0])
    table.name(b, names[1])
    table.share(a)
    table.give_back(a)
    assert table.available == 1
    table.give_back(a)
    table.give_back(b)
    assert table.find(names) == [a, b] and table.available == 3
    assert table.reserve(3)
    taken = {table.take() for _ in range(3)}
    assert taken == {1, 2, 3} and table.find(names) == []
    for page in taken:
        table.give_back(page)
    assert table.available == 3


@pytest.mark.parametrize(("name", "weights", "width"), [
    ("gpt2", "float32", 64), ("llama", "float32", 96), ("gpt2", "bfloat16", 96),
    ("gpt2", "int8", 160), ("llama", "int8", 64),
])  # fmt: skip
def test_scores_do_not_depend_on_the_batch(name: str, weights: Weights, width: int) -> None:
    """To the bit, for widths at which products take different kernels."""
    model = quantize(made(name, width=width, vocabulary=70), weights)
    paged = PagedGPT(model, 40)
    rng = np.random.default_rng(0)
    pools = [pool.numpy() for pool in (paged.keys, paged.values)]
    for pool in pools:
        pool[:] = rng.normal(0, 1, pool.shape)
    before = [pool.copy() for pool in pools]
    rows = [Rows([3 * i % 70], 5 * i % 79, range(1 + i, 7 + i)) for i in range(ROWS)]
    whole = paged.last_scores(rows).copy()
    for size in BATCHES[:-1]:
        for pool, kept in zip(pools, before, strict=True):
            pool[:] = kept
        for first in (0, ROWS - size):
            found = paged.last_scores(rows[first : first + size])
            assert (found == whole[first : first + size]).all()
            for pool, kept in zip(pools, before, strict=True):
                pool[:] = kept


def test_values_that_are_not_numbers_stay_in_their_sequence() -> None:
    """Neither what a page held before nor another sequence reaches a score."""
    paged = PagedGPT(made(), 40)
    for pool in (paged.keys, paged.values):
        pool.numpy()[:] = np.nan
    paged.keys.numpy()[:, 1:3, :, :], paged.values.numpy()[:, 1:3] = 0.5, 0.5
    paged.keys.numpy()[:, 2, 4:], paged.values.numpy()[:, 2, 4:] = np.nan, np.nan
    found = paged.last_scores([Rows([1], 20, [1, 2]), Rows([2], 20, [3, 4])])
    assert np.isfinite(found[0]).all() and np.isnan(found[1]).all()


def test_a_pool_smaller_than_the_context_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 5 pages"):
        Engine(made(), EngineConfig(pages=4))
