"""Data sets for the tests of loading, in either library."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

# A machine may have fewer processors than a test has workers.
many_workers = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def rows(ns: Any, count: int = 20) -> Any:
    """Rows of two tensors that tell their number."""
    return ns.utils.data.TensorDataset(ns.arange(2.0 * count).reshape(count, 2), ns.arange(count))


def sharded(ns: Any, lengths: tuple[int, ...]) -> Any:
    """An iterable data set of which each worker has a part of its own length."""

    class Sharded(ns.utils.data.IterableDataset):
        def __iter__(self) -> Any:
            info = ns.utils.data.get_worker_info()
            worker = 0 if info is None else info.id
            return iter([100 * worker + i for i in range(lengths[worker])])

    return Sharded()


def drawing(ns: Any, count: int = 8) -> Any:
    """Examples of random numbers, from all generators a worker has."""

    class Drawing(ns.utils.data.Dataset):
        def __len__(self) -> int:
            return count

        def __getitem__(self, index: int) -> Any:
            drawn = ns.rand(()).item(), random.random(), np.random.rand()
            return (index, *drawn, ns.utils.data.get_worker_info().seed, ns.initial_seed())

    return Drawing()


def as_it_is(batch: Any) -> Any:
    """Collates nothing."""
    return batch
