"""The transport of a group of one: every collective is a copy, or nothing."""

from __future__ import annotations

import numpy as np

from evergrad.core.types import Array
from evergrad.distributed.progress import Steps


class LocalTransport:
    """What :class:`~evergrad.distributed.mpi.MpiTransport` does, for a single process."""

    rank = 0
    size = 1

    def check(self, fingerprint: str, description: object) -> Steps:
        """A group of one process always agrees."""
        yield from ()

    def barrier(self) -> Steps:
        yield from ()

    def all_reduce(self, array: Array, op: str) -> Steps:
        yield from ()

    def reduce(self, array: Array, op: str, root: int) -> Steps:
        yield from ()

    def broadcast(self, array: Array, root: int) -> Steps:
        yield from ()

    def all_gather(self, out: Array, array: Array) -> Steps:
        np.copyto(out, array.reshape(out.shape))
        yield from ()

    def gather(self, out: Array | None, array: Array, root: int) -> Steps:
        assert out is not None
        yield from self.all_gather(out, array)

    def scatter(self, out: Array, array: Array | None, root: int) -> Steps:
        assert array is not None
        yield from self.all_gather(out, array)

    def reduce_scatter(self, out: Array, array: Array, op: str) -> Steps:
        yield from self.all_gather(out, array)

    def all_to_all(self, out: Array, array: Array, received: list[int], sent: list[int]) -> Steps:
        """``received`` and ``sent`` are numbers of elements for each rank."""
        yield from self.all_gather(out, array)

    def all_gather_bytes(self, data: bytes) -> Steps:
        """The bytes of every rank, of any lengths."""
        yield from ()
        return [data]
