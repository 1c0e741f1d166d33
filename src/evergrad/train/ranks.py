"""The processes of a training: what each does alone, and what they do together.

A run on several ranks is the run of one process, cut along the batch: every rank has all weights,
computes on its part of each micro-batch, and gradients are averaged. Files, messages, evaluations
and samples are the first rank's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import evergrad as eg
import evergrad.distributed as dist
from evergrad import nn
from evergrad.core.tensor import Tensor
from evergrad.distributed import mpi
from evergrad.distributed.reducer import Reducer, make_reducer
from evergrad.distributed.traced import apply
from evergrad.ops.rows.collective import ALL_REDUCE
from evergrad.train.values import ConfigError

if TYPE_CHECKING:
    from evergrad.core.types import Leaves
    from evergrad.distributed.process_group import ProcessGroup

T = TypeVar("T")
# The random streams of the other ranks have seeds at this distance.
_RANK_STREAM = 1 << 40


class Ranks:
    """All ranks of the job this process was started in; one, without a launcher."""

    def __init__(self) -> None:
        if (mpi.launched_size() or 1) > 1 and not dist.is_initialized():
            dist.init_process_group()
        self.group: ProcessGroup | None = dist.group.WORLD
        self.rank: int = 0 if self.group is None else self.group.rank()
        self.size: int = 1 if self.group is None else self.group.size()
        self.is_first: bool = self.rank == 0

    # -- what is done once ----------------------------------------------------------------------

    def on_first(self, function: Callable[[], T]) -> T:
        """What a function gives on the first rank, for all; its error is raised on all."""
        if self.size == 1:
            return function()
        found: Leaves = [None, None]
        if self.is_first:
            try:
                found[0] = function()
            except Exception as error:
                found[1] = error
        dist.broadcast_object_list(found, 0)
        if found[1] is not None:
            raise found[1]
        result: T = found[0]
        return result

    def gathered(self, value: T) -> list[T]:
        """The values of all ranks."""
        if self.size == 1:
            return [value]
        found: Leaves = [None] * self.size
        dist.all_gather_object(found, value)
        return found

    def greatest(self, value: int) -> int:
        """The greatest of a number over the ranks."""
        if self.size == 1:
            return value
        found = eg.tensor(value)
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return int(found.item())

    # -- a step -------------------------------------------------------------------------------

    def share(self, batch: Sequence[Tensor], rows_per_example: int = 1) -> tuple[Tensor, ...]:
        """This rank's part of a micro-batch. An example has several rows if the batch is so many
        blocks with a row of each."""
        if self.size == 1:
            return tuple(batch)
        count = batch[0].shape[0] // rows_per_example
        if count % self.size:
            raise ConfigError(
                f"batch {count} does not divide by {self.size} ranks; give --batch "
                f"{-(-count // self.size) * self.size}"
            )
        part = count // self.size
        own = slice(self.rank * part, (self.rank + 1) * part)
        blocks = [t.reshape(rows_per_example, count, *t.shape[1:])[:, own] for t in batch]
        return tuple([block.flatten(0, 1).contiguous().clone() for block in blocks])

    def reducer(self, model: nn.Module) -> Reducer | None:
        """What averages a model's gradients while backward runs; nothing for one rank."""
        if self.group is None or self.size == 1:
            return None
        named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
        return make_reducer(
            [n for n, _ in named], [p for _, p in named], self.group, bucket_cap_mb=None,
            as_views=False, find_unused=False, static_graph=False,
        )  # fmt: skip

    def mean(self, value: Tensor) -> Tensor:
        """The mean of a tensor over the ranks."""
        if self.group is None or self.size == 1:
            return value
        return apply(ALL_REDUCE, value, self.group, reduction="AVG")

    def model(self, model: nn.Module) -> nn.Module:
        """A model whose batch norms have the statistics of the whole batch."""
        return model if self.size == 1 else nn.SyncBatchNorm.convert_sync_batchnorm(model)

    def seed(self, seed: int) -> int:
        """The seed of what this rank draws: other ranks draw other numbers."""
        return seed + self.rank * _RANK_STREAM

    def threads(self, wanted: int) -> int:
        """Threads of this rank: those wanted, or its share of the machine's cores."""
        if wanted or self.size == 1:
            return wanted
        local = int(os.cpu_count() or 1) // self.local_size()
        return max(1, local)

    def local_size(self) -> int:
        """How many ranks run on this machine."""
        return sum(host == os.uname().nodename for host in self.gathered(os.uname().nodename))
