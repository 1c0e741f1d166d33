"""Data sets and ``random_split`` against PyTorch's."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import evergrad
from evergrad.utils.data import ConcatDataset, Dataset, Subset, random_split
from twins import agree, refuse


def counting(ns: Any, count: int, told: int | None = None) -> Any:
    """An iterable data set of the numbers below ``count``."""

    class Counting(ns.utils.data.IterableDataset):
        def __iter__(self) -> Any:
            return iter(range(count))

    class CountingWithLength(Counting):
        def __len__(self) -> int:
            assert told is not None
            return told

    return Counting() if told is None else CountingWithLength()


def squares(ns: Any, count: int) -> Any:
    """A map from numbers to their squares, which also gives many at a time."""

    class Squares(ns.utils.data.Dataset):
        def __len__(self) -> int:
            return count

        def __getitem__(self, index: int) -> int:
            if not 0 <= index < count:
                raise IndexError(index)
            return index * index

        def __getitems__(self, indices: list[int]) -> list[int]:
            return [self[i] for i in indices]

    return Squares()


def pairs(ns: Any) -> Any:
    return ns.utils.data.TensorDataset(ns.arange(12.0).reshape(6, 2), ns.arange(6))


PROGRAMS = {
    "tensor rows": lambda ns: [pairs(ns)[i] for i in (0, 5, -1)],
    "tensor slices": lambda ns: [pairs(ns)[1:3], pairs(ns)[[4, 0]], len(pairs(ns))],
    "concat": lambda ns: [
        [d[i] for i in range(-9, 9)] + [len(d), d.cumulative_sizes]
        for d in [ns.utils.data.ConcatDataset([squares(ns, 4), squares(ns, 0), squares(ns, 5)])]
    ],
    "plus": lambda ns: [(squares(ns, 2) + squares(ns, 3))[i] for i in range(5)],
    "plus of iterables": lambda ns: list(counting(ns, 2) + counting(ns, 3)),
    "chain": lambda ns: list(ns.utils.data.ChainDataset([counting(ns, 2), counting(ns, 3)])),
    "chain length": lambda ns: len(
        ns.utils.data.ChainDataset([counting(ns, 2, 2), counting(ns, 3, 7)])
    ),
    "subset": lambda ns: [
        [s[0], s[-1], len(s), s.__getitems__([1, 2])]
        for s in [ns.utils.data.Subset(squares(ns, 9), [8, 3, 5, 1])]
    ],
    "subset by list": lambda ns: ns.utils.data.Subset(pairs(ns), [3, 1, 0])[[0, 2]],
    "subset of subset": lambda ns: ns.utils.data.Subset(
        ns.utils.data.Subset(squares(ns, 9), [8, 3, 5, 1]), [2, 0]
    ).__getitems__([0, 1]),
    "stack as tuple": lambda ns: [
        [s[2], s.__getitems__([0, 3]), len(s)]
        for s in [ns.utils.data.StackDataset(squares(ns, 4), range(4))]
    ],
    "stack as dict": lambda ns: [
        [s[2], s.__getitems__([0, 3])]
        for s in [ns.utils.data.StackDataset(a=squares(ns, 4), b=range(4))]
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_gives_what_pytorch_gives(name: str, torch: ModuleType) -> None:
    agree(PROGRAMS[name], torch)


REFUSED = {
    "other lengths": lambda ns: ns.utils.data.TensorDataset(ns.ones(2), ns.ones(3)),
    "no data set": lambda ns: ns.utils.data.ConcatDataset([]),
    "iterable in concat": lambda ns: ns.utils.data.ConcatDataset([counting(ns, 1)]),
    "far below zero": lambda ns: ns.utils.data.ConcatDataset([squares(ns, 3)])[-4],
    "above": lambda ns: ns.utils.data.ConcatDataset([squares(ns, 3)])[3],
    "map in chain": lambda ns: list(ns.utils.data.ChainDataset([squares(ns, 1)])),
    "map in chain's length": lambda ns: len(ns.utils.data.ChainDataset([squares(ns, 1)])),
    "chain without length": lambda ns: len(ns.utils.data.ChainDataset([counting(ns, 1)])),
    "nothing to stack": lambda ns: ns.utils.data.StackDataset(),
    "both kinds of stack": lambda ns: ns.utils.data.StackDataset(range(2), a=range(2)),
    "stack of other lengths": lambda ns: ns.utils.data.StackDataset(range(2), range(3)),
    "stack of other lengths in a dict": lambda ns: ns.utils.data.StackDataset(
        a=range(2), b=range(3)
    ),
    "no __getitem__": lambda ns: ns.utils.data.Dataset()[0],
    "no __len__": lambda ns: len(ns.utils.data.Dataset()),
    "no __iter__": lambda ns: ns.utils.data.IterableDataset(),
    "beyond a subset": lambda ns: ns.utils.data.Subset(range(3), [1])[1],
    "split too small": lambda ns: ns.utils.data.random_split(range(10), [3, 4]),
    "fractions too small": lambda ns: ns.utils.data.random_split(range(10), [0.3, 0.4]),
    "fractions above 1": lambda ns: ns.utils.data.random_split(range(10), [1.3, -0.3]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_what_pytorch_refuses(name: str, torch: ModuleType) -> None:
    refuse(REFUSED[name], torch)


def test_getitems_that_gives_too_few_is_refused() -> None:
    class Short(Dataset[int]):
        def __len__(self) -> int:
            return 3

        def __getitems__(self, indices: list[int]) -> list[int]:
            return indices[1:]

    stacked = evergrad.utils.data.StackDataset(Short(), range(3))
    with pytest.raises(ValueError, match="Expected 2, got 1"):
        stacked.__getitems__([0, 1])


def test_the_former_spelling_of_cumulative_sizes_warns() -> None:
    with pytest.warns(FutureWarning, match="renamed"):
        assert ConcatDataset([range(3), range(2)]).cummulative_sizes == [3, 5]


# -- random_split -------------------------------------------------------------------------------

LENGTHS: list[list[float]] = [
    [7, 3], [10, 0], [0, 10], [1.0], [0.5, 0.5], [0.33, 0.33, 0.34], [0.15, 0.85],
    [0.1] * 10, [5, 3, 2],
]  # fmt: skip


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("seeded", ["default generator", "own generator"])
def test_splits_are_those_of_pytorch(lengths: Any, seeded: str, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        ns.manual_seed(11)
        own = {"generator": ns.Generator().manual_seed(4)} if seeded == "own generator" else {}
        parts = ns.utils.data.random_split(range(10), lengths, **own)
        drawn = [ns.rand(2, **own), ns.rand(2)]
        return [part.indices for part in parts], [list(part) for part in parts], drawn

    agree(program, torch)


def test_an_empty_split_warns_as_in_pytorch(torch: ModuleType) -> None:
    for ns in (torch, evergrad):
        with pytest.warns(UserWarning, match="Length of split at index 1 is 0"):
            ns.utils.data.random_split(range(10), [0.95, 0.05])


@given(size=st.integers(2, 60), weights=st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_splits_have_every_example_once(size: int, weights: list[int]) -> None:
    total = sum(weights)
    lengths = [size * weight // total for weight in weights]
    lengths[0] += size - sum(lengths)
    parts: list[Subset[int]] = random_split(range(size), lengths)  # type: ignore[arg-type]
    assert [len(part) for part in parts] == lengths
    assert sorted(i for part in parts for i in part.indices) == list(range(size))
