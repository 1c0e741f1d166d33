"""Futures: values that are computed once they are waited for, under PyTorch's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from evergrad.distributed.work import Future

if TYPE_CHECKING:
    from evergrad.core.types import Leaves


def collect_all(futures: Sequence[Future]) -> Future:
    """A future of the list of futures, complete when all of them are."""

    def compute() -> list[Future]:
        for future in futures:
            future.wait()
        return list(futures)

    return Future(compute)


def wait_all(futures: Sequence[Future]) -> Leaves:
    """The values of all futures."""
    return [future.wait() for future in futures]


__all__ = ["Future", "collect_all", "wait_all"]
