"""Identity guards: whether what a trace has read still holds the same objects.

Every call of a program checks them, and nearly always nothing has changed. A guard is therefore a
loop without calls of Python functions: it takes some 20 nanoseconds for each member.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import chain
from operator import is_
from typing import Any

# Stands for what a mapping does not have.
MISSING = object()


def unchanged(collections: Iterable[Collection[Any]]) -> Callable[[], bool]:
    """A guard on the members of dictionaries (their values) and lists: whether these are the same
    objects in the same order as now. Other collections (tuples) cannot change."""
    watched = list(collections)
    parts: list[Iterable[Any]] = [dict.values(c) for c in watched if isinstance(c, dict)]
    parts += [c for c in watched if isinstance(c, list)]
    parts.append([MISSING])  # so that neither more nor fewer members go unnoticed
    seen = list(chain.from_iterable(parts))

    def are_same() -> bool:
        try:
            return all(map(is_, chain.from_iterable(parts), seen))
        except RuntimeError:  # another thread has added to a dictionary meanwhile
            return False

    return are_same
