"""The sampler for several processes that train together: each takes its own share."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sized
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeVar

import evergrad
from evergrad.core.rng.default_generator import Generator
from evergrad.utils.data.sampler import Sampler

if TYPE_CHECKING:
    from types import ModuleType

    from evergrad.core.types import Leaves

T_co = TypeVar("T_co", covariant=True)

__all__ = ["DistributedSampler"]


class DistributedSampler(Sampler[T_co]):
    """Every ``num_replicas``-th example from ``rank`` on, of an order that all processes share.

    Where the examples do not divide evenly, the first ones are given again, or with ``drop_last``
    the last ones are left out. The order depends on ``seed`` and on the epoch alone: call
    :meth:`set_epoch` before each epoch, or all epochs have the same order.

    Args:
        dataset: its length counts
        num_replicas: number of processes; default those of the process group
        rank: the number of this one; default that in the process group
        shuffle: default ``True``; the order follows from ``seed`` and ``set_epoch``
        seed: default 0
        drop_last: leave out examples that would not be spread evenly; default ``False``

    >>> list(DistributedSampler(range(5), num_replicas=2, rank=1, shuffle=False))
    [1, 3, 0]
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if num_replicas is None:
            num_replicas = _process_group().get_world_size()
        if rank is None:
            rank = _process_group().get_rank()
        if not 0 <= rank < num_replicas:
            raise ValueError(
                f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]"
            )
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch: int = 0
        self.drop_last = drop_last
        self.num_samples: int = _share(len(dataset), num_replicas, drop_last)
        self.total_size: int = self.num_samples * num_replicas
        self.shuffle = shuffle
        self.seed = seed

    def __iter__(self) -> Iterator[T_co]:
        order = self._order()
        if len(order) < self.total_size:
            repeats = math.ceil(self.total_size / len(order))
            order = order * repeats
        return iter(order[self.rank : self.total_size : self.num_replicas])

    def _order(self) -> Leaves:
        size = len(self.dataset)
        if not self.shuffle:
            return list(range(size))
        generator = Generator()
        generator.manual_seed(self.seed + self.epoch)
        order: list[object] = evergrad.randperm(size, generator=generator).tolist()
        return order

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the epoch that comes next."""
        self.epoch = epoch


def _share(size: int, replicas: int, drop_last: bool) -> int:
    """How many examples each process takes."""
    return size // replicas if drop_last else math.ceil(size / replicas)


def _process_group() -> ModuleType:
    """The package that knows how many processes there are, if it has been set up."""
    if find_spec("evergrad.distributed") is None:
        raise RuntimeError(
            "Requires distributed package to be available: without it, give num_replicas and rank"
        )
    return import_module("evergrad.distributed")
