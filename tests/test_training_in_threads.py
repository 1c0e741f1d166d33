"""Optimizers that step in several threads at once give, to the bit, what each gives alone."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import pytest

import evergrad as eg
from evergrad.core.rng.default_generator import default_generator, using_generator
from evergrad.testing.training import check_threads, start_and_run


@pytest.fixture(autouse=True)
def switching_often() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_optimizers_of_one_kind_share_no_scratch(compiled: bool) -> None:
    check_threads(compiled, steps=60)


def in_inherited_contexts(functions: list[Callable[[], Any]]) -> list[Any]:
    """The results of functions that run at once, each in a thread with a copy of this context."""
    barrier = threading.Barrier(len(functions))

    def run(function: Callable[[], Any]) -> Any:
        barrier.wait()
        return function()

    with ThreadPoolExecutor(len(functions)) as threads:
        found = [threads.submit(copy_context().run, run, function) for function in functions]
        return [each.result() for each in found]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_trainings_in_threads_that_inherit_a_context(compiled: bool) -> None:
    """As all threads of a free-threaded interpreter do: each has a stream of its own."""
    alone = [start_and_run(seed, 40, compiled) for seed in range(3)]
    beside = in_inherited_contexts(
        [lambda seed=seed: start_and_run(seed, 40, compiled) for seed in range(3)]  # type: ignore[misc]
    )
    for found, expected in zip(beside, alone, strict=True):
        assert all(a.tobytes() == b.tobytes() for a, b in zip(found, expected, strict=True))


def test_a_thread_with_a_copied_context_draws_from_a_stream_of_its_own() -> None:
    eg.manual_seed(5)
    expected = [eg.rand(4).tolist() for _ in range(3)]
    eg.manual_seed(5)

    def draw() -> list[Any]:
        return [eg.rand(4).tolist() for _ in range(3)]

    assert in_inherited_contexts([draw, draw]) == [expected, expected]
    assert draw() == expected


def test_a_chosen_generator_stays_in_its_thread() -> None:
    chosen = eg.Generator().manual_seed(9)
    with using_generator(chosen):
        (found,) = in_inherited_contexts([lambda: default_generator() is chosen])
        assert not found
        assert copy_context().run(eg.random.initial_seed) == 9


def test_contexts_of_one_thread_continue_its_stream() -> None:
    """As the tasks of asyncio are, and what it runs in a thread."""
    with ThreadPoolExecutor(1) as thread:
        drawn = [
            thread.submit(copy_context().run, lambda: eg.rand(8).tolist()).result()
            for _ in range(4)
        ]

    async def draw() -> Any:
        return eg.rand(8).tolist()

    async def tasks() -> list[Any]:
        return await asyncio.gather(*[draw() for _ in range(4)])

    assert len({tuple(numbers) for numbers in drawn}) == 4
    assert len({tuple(numbers) for numbers in asyncio.run(tasks())}) == 4
