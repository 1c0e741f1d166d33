"""Samplers: for a seed the order is PyTorch's, and so is what was drawn from which generator."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import evergrad
from twins import agree, refuse

Make = Callable[[Any, dict[str, Any]], Any]

# Each takes the namespace and perhaps a generator.
SAMPLERS: dict[str, Make] = {
    "random": lambda ns, g: ns.utils.data.RandomSampler(range(13), **g),
    "random, fewer": lambda ns, g: ns.utils.data.RandomSampler(range(13), num_samples=5, **g),
    "random, more": lambda ns, g: ns.utils.data.RandomSampler(range(13), num_samples=40, **g),
    "random, twice": lambda ns, g: ns.utils.data.RandomSampler(range(13), num_samples=26, **g),
    "replacement": lambda ns, g: ns.utils.data.RandomSampler(range(13), replacement=True, **g),
    "replacement, 32": lambda ns, g: ns.utils.data.RandomSampler(range(7), True, 32, **g),
    "replacement, 75": lambda ns, g: ns.utils.data.RandomSampler(range(7), True, 75, **g),
    "subset": lambda ns, g: ns.utils.data.SubsetRandomSampler([5, 2, 9, 4], **g),
    "weighted": lambda ns, g: ns.utils.data.WeightedRandomSampler([0.1, 3, 0, 0.9], 20, **g),
    "weighted, once each": lambda ns, g: ns.utils.data.WeightedRandomSampler(
        [0.1, 3, 0.2, 0.9], 3, replacement=False, **g
    ),
    "weighted by a tensor": lambda ns, g: ns.utils.data.WeightedRandomSampler(
        ns.tensor([1.0, 2.0, 3.0]), 9, **g
    ),
}


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("own", [False, True], ids=["default generator", "own generator"])
def test_orders_and_generators_are_those_of_pytorch(
    name: str, own: bool, torch: ModuleType
) -> None:
    def program(ns: Any) -> Any:
        ns.manual_seed(7)
        given = {"generator": ns.Generator().manual_seed(3)} if own else {}
        sampler = SAMPLERS[name](ns, given)
        passes = [list(sampler) for _ in range(3)]
        partly = [i for i, _ in zip(sampler, range(2), strict=False)]
        return passes, partly, len(sampler), ns.rand(3), ns.rand(3, **given)

    agree(program, torch)


def test_nothing_is_drawn_before_an_index_is_asked_for(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        ns.manual_seed(7)
        for make in SAMPLERS.values():
            iter(make(ns, {}))
        return ns.rand(3)

    agree(program, torch)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("batch_size", [1, 3, 4, 12, 13])
def test_batches_of_indices(batch_size: int, drop_last: bool, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        data = ns.utils.data
        sampler = data.BatchSampler(data.SequentialSampler(range(12)), batch_size, drop_last)
        return list(sampler), len(sampler), list(data.BatchSampler(range(0), 2, drop_last))

    agree(program, torch)


REFUSED = {
    "replacement=3": lambda ns: ns.utils.data.RandomSampler(range(3), replacement=3),
    "num_samples=0": lambda ns: ns.utils.data.RandomSampler(range(3), num_samples=0),
    "num_samples=1.5": lambda ns: ns.utils.data.RandomSampler(range(3), num_samples=1.5),
    "nothing to draw from": lambda ns: ns.utils.data.RandomSampler([]),
    "nothing, but three times": lambda ns: list(
        ns.utils.data.RandomSampler([], num_samples=3)
    ),
    "no weighted samples": lambda ns: ns.utils.data.WeightedRandomSampler([1.0], 0),
    "True weighted samples": lambda ns: ns.utils.data.WeightedRandomSampler([1.0], True),
    "weighted replacement=3": lambda ns: ns.utils.data.WeightedRandomSampler([1.0], 1, 3),
    "two dimensions": lambda ns: ns.utils.data.WeightedRandomSampler([[1.0]], 1),
    "too many without replacement": lambda ns: list(
        ns.utils.data.WeightedRandomSampler([1.0, 2.0], 3, replacement=False)
    ),
    "batch_size=0": lambda ns: ns.utils.data.BatchSampler(range(3), 0, False),
    "batch_size=True": lambda ns: ns.utils.data.BatchSampler(range(3), True, False),
    "drop_last=3": lambda ns: ns.utils.data.BatchSampler(range(3), 1, 3),
    "abstract": lambda ns: list(ns.utils.data.Sampler()),
    "abstract length": lambda ns: len(ns.utils.data.Sampler()),
    "rank too high": lambda ns: ns.utils.data.DistributedSampler(range(3), 2, 2),
    "rank below zero": lambda ns: ns.utils.data.DistributedSampler(range(3), 2, -1),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_what_pytorch_refuses(name: str, torch: ModuleType) -> None:
    refuse(REFUSED[name], torch)


# -- several processes --------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 7, 12])
@pytest.mark.parametrize("options", [{}, {"shuffle": False}, {"seed": 5}], ids=str)
@pytest.mark.parametrize("drop_last", [False, True])
def test_shares_of_replicas(size: int, options: Any, drop_last: bool, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        found = []
        for replicas in (1, 2, 3, 5):
            for rank in range(replicas):
                sampler = ns.utils.data.distributed.DistributedSampler(
                    range(size), replicas, rank, drop_last=drop_last, **options
                )
                epochs = [list(sampler)]
                sampler.set_epoch(2)
                found.append((epochs, list(sampler), len(sampler), sampler.total_size))
        return found

    agree(program, torch)


def test_replicas_share_out_every_example() -> None:
    samplers = [evergrad.utils.data.DistributedSampler(range(12), 3, rank) for rank in range(3)]
    assert sorted(i for sampler in samplers for i in sampler) == list(range(12))
