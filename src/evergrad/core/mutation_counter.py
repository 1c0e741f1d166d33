"""A counter of mutations of what compiled programs depend on besides tensors' elements.

Changes of existing modules, hooks and handles increment it. While the count is unchanged a program
skips its guards on all of them.
"""

from __future__ import annotations


class MutationCounter:
    """Incremented after a mutation, so that reading the count before the objects misses none."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


MUTATIONS = MutationCounter()
