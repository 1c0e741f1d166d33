"""A counter of mutations of what compiled programs depend on besides tensors' elements.

Changes of existing modules, hooks and handles advance it. While the count is unchanged a program
skips its guards on all of them.
"""

from __future__ import annotations

import itertools


class MutationCounter:
    """Advanced after a mutation, so that reading the count before the objects misses none. Every
    count is unique, so that none is lost between threads, with a GIL or without."""

    __slots__ = ("_numbers", "count")

    count: int

    def __init__(self) -> None:
        self.count = 0
        self._numbers = itertools.count(1)

    def advance(self) -> None:
        self.count = next(self._numbers)


MUTATIONS = MutationCounter()
