"""Lists and dictionaries that iterators give away: those that a ``yield`` makes are inputs of
a program, others are objects that the iterator may keep."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.compiler.frontend.recording.fresh_yields import is_fresh
from evergrad.utils.data import DataLoader, TensorDataset


def displayed() -> Iterator[Any]:
    while True:
        yield [1, 2]


def comprehended() -> Iterator[Any]:
    while True:
        yield [k + 1 for k in range(3)]


def mapped() -> Iterator[Any]:
    k = 1
    while True:
        yield {"x": k, "y": 2}


def delegated() -> Iterator[Any]:
    yield from displayed()


def local() -> Iterator[Any]:
    while True:
        held = [1, 2]
        yield held


def shared(buffer: Any = [1]) -> Iterator[Any]:  # noqa: B006
    while True:
        yield buffer


def from_a_list() -> Iterator[Any]:
    yield from [[1], [2]]


def returned() -> Iterator[Any]:
    kept: list[Any] = []

    def make() -> list[Any]:
        kept.append([1])
        return kept[-1]

    while True:
        yield make()


def passed_on() -> Iterator[Any]:
    held = yield [0]
    while True:
        held = yield held


@pytest.mark.parametrize("make", [displayed, comprehended, mapped, delegated])
def test_made_by_the_yield(make: Callable[[], Any]) -> None:
    iterator = make()
    for _ in range(2):
        assert is_fresh(iterator, next(iterator))


@pytest.mark.parametrize("make", [local, shared, from_a_list, returned])
def test_may_be_kept(make: Callable[[], Any]) -> None:
    iterator = make()
    assert not is_fresh(iterator, next(iterator))


def test_what_was_sent() -> None:
    iterator: Any = passed_on()
    assert is_fresh(iterator, next(iterator))
    assert not is_fresh(iterator, iterator.send([3]))


def test_batches_of_a_loader() -> None:
    rows = TensorDataset(eg.arange(8.0), eg.arange(8.0) * 2)
    own = iter(DataLoader(rows, batch_size=2))
    assert is_fresh(own, next(own))
    kept: list[Any] = []

    def collate(samples: Any) -> Any:
        kept.append(list(samples))
        return kept[-1]

    users = iter(DataLoader(rows, batch_size=2, collate_fn=collate))
    assert not is_fresh(users, next(users))


@pytest.mark.parametrize("make", [displayed, comprehended, mapped, local, shared, returned])
def test_a_step_that_changes_what_it_draws(make: Callable[[], Any]) -> None:
    found: list[Any] = []
    warnings.simplefilter("ignore")
    for wrap in (lambda f: f, eg.compile):
        iterator = make()

        def step(x: Any) -> Any:
            held = next(iterator)  # noqa: B023
            if isinstance(held, dict):
                held["x"] += 1
                return x * held["x"]
            held[0] += 1
            return x * held[0]

        if make is shared:
            shared.__defaults__[0][0] = 1  # type: ignore[index]
        run = wrap(step)
        found.append([run(eg.arange(3.0)).tolist() for _ in range(5)])
    np.testing.assert_array_equal(*found)
