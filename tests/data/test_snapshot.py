"""``state_dict`` and ``load_state_dict``: what follows is exactly what would have followed."""

from __future__ import annotations

import copy
import json
import pickle
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import evergrad
from evergrad.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    get_worker_info,
)

from .programs import as_it_is, many_workers

pytestmark = many_workers

COUNT = 22


class Drawing(Dataset[Any]):
    """Examples that tell their number and, in a worker, draw from all its generators."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        if get_worker_info() is None:
            return index
        return index, evergrad.rand(()).item(), random.random(), float(np.random.rand())


class Stream(IterableDataset[Any]):
    """Numbers and random numbers one after the other; each worker has its share of them."""

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        # Workers end at different times.
        for number in range(first, COUNT - 9 * first, step):
            yield number, 0 if info is None else evergrad.rand(()).item()


class Seekable(Stream):
    """A stream that tells where it stands, and need not be gone through again."""

    def __init__(self) -> None:
        self.position = 0

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        while self.position < COUNT // step - 3 * first:
            self.position += 1
            yield first + step * self.position
        self.position = 0

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


class Tape(Sampler[int]):
    """A sampler that keeps its own position over epochs of nine."""

    def __init__(self) -> None:
        self.next = 0
        self.left = 9

    def __iter__(self) -> Iterator[int]:
        while self.left:
            self.next += 1
            self.left -= 1
            yield self.next % COUNT
        self.left = 9

    def state_dict(self) -> dict[str, int]:
        return {"next": self.next, "left": self.left}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.next, self.left = state["next"], state["left"]


def own(seed: int = 4) -> evergrad.Generator:
    return evergrad.Generator().manual_seed(seed)


def shuffled_by_own_generator(**options: Any) -> Any:
    return DataLoader(Drawing(), 3, shuffle=True, generator=own(), **options)


def shared_generator(**options: Any) -> Any:
    generator = own()
    sampler = RandomSampler(range(COUNT), True, 70, generator=generator)
    return DataLoader(Drawing(), 3, sampler=sampler, generator=generator, **options)


def batches_of_a_subset(**options: Any) -> Any:
    batches = BatchSampler(SubsetRandomSampler(range(2, 20), generator=own(8)), 4, True)
    return DataLoader(Drawing(), batch_sampler=batches, **options)


def distributed(**options: Any) -> Any:
    sampler: Any = DistributedSampler(range(COUNT), 2, 1)
    sampler.set_epoch(3)
    return DataLoader(Drawing(), 2, sampler=sampler, **options)


def weighted(**options: Any) -> Any:
    sampler = WeightedRandomSampler(range(COUNT), 20)  # type: ignore[arg-type]
    return DataLoader(Drawing(), 3, sampler=sampler, **options)


LOADERS: dict[str, Callable[..., Any]] = {
    "in order": lambda **o: DataLoader(Drawing(), 3, **o),
    "shuffled": lambda **o: DataLoader(Drawing(), 3, shuffle=True, **o),
    "one by one": lambda **o: DataLoader(Drawing(), None, shuffle=True, **o),
    "own generator": shuffled_by_own_generator,
    "shared generator": shared_generator,
    "subset": batches_of_a_subset,
    "weighted": weighted,
    "distributed": distributed,
    "stream": lambda **o: DataLoader(Stream(), 2, **o),
    "stream, one by one": lambda **o: DataLoader(Stream(), None, **o),
    "seekable": lambda **o: DataLoader(Seekable(), 2, **o),
    "tape": lambda **o: DataLoader(Drawing(), 3, sampler=Tape(), **o),
}

WORKERS: list[dict[str, Any]] = [
    {},
    {"num_workers": 2},
    {"num_workers": 2, "prefetch_factor": 3, "persistent_workers": True},
]


def made(name: str, workers: dict[str, Any]) -> Any:
    return LOADERS[name](collate_fn=as_it_is, **workers)


# Starting processes takes time: new ones in each epoch are tried with some loaders only.
CASES = [(name, workers) for name in LOADERS for workers in (WORKERS[0], WORKERS[2])]
CASES += [(name, WORKERS[1]) for name in ("shuffled", "own generator", "stream", "seekable")]


@pytest.mark.parametrize(("name", "workers"), CASES, ids=str)
def test_what_would_have_followed_follows(name: str, workers: dict[str, Any]) -> None:
    """At four places of the second epoch; then the rest of it, and an epoch more."""
    evergrad.manual_seed(1)
    loader = made(name, workers)
    first = list(loader)
    snapshots = []
    batches = []
    for batch in loader:
        batches.append(batch)
        if len(batches) in (1, 2, len(first) - 1, len(first)):
            snapshots.append((len(batches), loader.state_dict(), evergrad.get_rng_state()))
    third = list(loader)
    assert len(snapshots) >= 3
    for count, state, random_state in snapshots[:: 3 if workers else 1]:
        evergrad.manual_seed(999)
        other = made(name, workers)
        other.load_state_dict(pickle.loads(pickle.dumps(state)))
        evergrad.set_rng_state(random_state)
        assert list(other) == batches[count:]
        assert list(other) == third


@pytest.mark.parametrize("workers", [WORKERS[0], WORKERS[2]], ids=str)
@pytest.mark.parametrize("name", ["shuffled", "own generator", "stream", "seekable", "tape"])
def test_between_epochs(name: str, workers: dict[str, Any]) -> None:
    evergrad.manual_seed(1)
    loader = made(name, workers)
    list(loader)
    state, random_state = loader.state_dict(), evergrad.get_rng_state()
    second = list(loader)
    evergrad.manual_seed(999)
    other = made(name, workers)
    other.load_state_dict(state)
    evergrad.set_rng_state(random_state)
    assert list(other) == second


@pytest.mark.parametrize("workers", WORKERS[:2], ids=str)
def test_after_leaving_the_loop(workers: dict[str, Any]) -> None:
    evergrad.manual_seed(1)
    whole = list(made("shuffled", workers))
    evergrad.manual_seed(1)
    loader = made("shuffled", workers)
    for _, _ in zip(range(3), loader, strict=False):
        pass
    state = loader.state_dict()
    other = made("shuffled", workers)
    other.load_state_dict(state)
    assert list(other) == whole[state["batches"] :]
    assert state["batches"] == 3


def test_a_resumed_loader_can_be_saved_again() -> None:
    evergrad.manual_seed(1)
    loader = made("shuffled", {"num_workers": 2})
    whole = list(loader)
    evergrad.manual_seed(1)
    loader = made("shuffled", {"num_workers": 2})
    for done in range(1, len(whole)):
        iterator = iter(loader)
        assert next(iterator) == whole[done - 1]
        state = loader.state_dict()
        del iterator
        loader = made("shuffled", {"num_workers": 2})
        loader.load_state_dict(state)
        assert loader.state_dict()["batches"] == done
    assert list(loader) == whole[-1:]


def test_the_default_generator_is_left_alone() -> None:
    evergrad.manual_seed(1)
    loader = made("shuffled", {})
    next(iter(loader))
    state = loader.state_dict()
    for workers in ({}, {"num_workers": 1}):
        other = made("shuffled", workers)
        other.load_state_dict(state)
        evergrad.manual_seed(5)
        list(other)
        drawn = evergrad.rand(3)
        evergrad.manual_seed(5)
        assert (evergrad.rand(3) == drawn).all()


def test_an_example_that_failed_is_not_made_again() -> None:
    class Failing(Drawing):
        def __getitem__(self, index: int) -> Any:
            if index == 1:
                raise ValueError("one")
            return index

    for workers in ({}, {"num_workers": 1}):
        loader = DataLoader(Failing(), None, **workers)
        iterator = iter(loader)
        assert next(iterator) == 0
        with pytest.raises(ValueError, match="one"):
            next(iterator)
        other = DataLoader(Failing(), None, **workers)
        other.load_state_dict(loader.state_dict())
        assert next(iter(other)) == 2


def test_a_stream_that_tells_its_position_is_not_gone_through_again() -> None:
    class Counted(Seekable):
        def __iter__(self) -> Iterator[Any]:
            for value in super().__iter__():
                taken.append(value)
                yield value

    taken: list[Any] = []
    loader = DataLoader(Counted(), 2)
    for _, _ in zip(range(4), loader, strict=False):
        pass
    state = loader.state_dict()
    taken.clear()
    other = DataLoader(Counted(), 2)
    other.load_state_dict(state)
    next(iter(other))
    assert len(taken) == 2


def test_another_number_of_workers_keeps_the_order() -> None:
    loader = DataLoader(range(20), 3, shuffle=True, generator=own())  # type: ignore[arg-type]
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    rest = [batch.tolist() for batch in iterator]
    other = DataLoader(
        range(20), 3, shuffle=True, generator=own(7), num_workers=2  # type: ignore[arg-type]
    )  # fmt: skip
    other.load_state_dict(state)
    assert [batch.tolist() for batch in other] == rest


def test_a_state_is_plain_values_and_not_changed_by_use() -> None:
    loader = made("own generator", {"num_workers": 2})
    next(iter(loader))
    state = loader.state_dict()
    before = copy.deepcopy(state)
    other = made("own generator", {"num_workers": 2})
    other.load_state_dict(state)
    list(other)
    as_text = [json.dumps(s, default=lambda tensor: tensor.tolist()) for s in (before, state)]
    assert as_text[0] == as_text[1]


# -- refusals -----------------------------------------------------------------------------------


def test_what_is_no_state_is_refused() -> None:
    loader = made("in order", {})
    for wrong in ({}, {"version": 99}, {"model": 1}, None, [1]):
        with pytest.raises(ValueError, match="expects what DataLoader"):
            loader.load_state_dict(wrong)
    assert len(list(loader)) == 8


def test_a_stream_needs_as_many_workers() -> None:
    loader = made("stream", {"num_workers": 2})
    next(iter(loader))
    other = made("stream", {})
    with pytest.raises(ValueError, match=r"num_workers=2.*num_workers=0"):
        other.load_state_dict(loader.state_dict())
    assert len(list(other)) == 11


def test_other_generators_are_refused_and_nothing_is_changed() -> None:
    state = made("in order", {}).state_dict()
    other = made("own generator", {})
    before = other.generator.get_state()
    with pytest.raises(ValueError, match="0 generators, but this one has 1"):
        other.load_state_dict(state)
    assert (other.generator.get_state() == before).all()


def test_batches_out_of_order_have_no_position() -> None:
    loader = made("in order", {"num_workers": 1, "in_order": False})
    with pytest.raises(RuntimeError, match="needs in_order=True"):
        loader.state_dict()
