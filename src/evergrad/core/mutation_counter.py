"""Counts changes of what compiled programs depend on besides tensors' elements.

Modules, hooks and handles count up when one that exists is changed. A program that finds the count
as it was needs not look at any of them again.
"""

from __future__ import annotations


class MutationCounter:
    """A counter. Whoever counts a change has made it already, so that a look at the count followed
    by a look at the things themselves misses nothing."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


MUTATIONS = MutationCounter()
