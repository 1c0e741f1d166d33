"""Identity guards: whether containers that a trace has read still hold the same objects.

Every call of a program checks them, and nearly always nothing has changed. A guard is therefore a
loop without calls of Python functions, some 20 nanoseconds per member.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import chain
from operator import is_
from typing import Any

# Placeholder for a missing entry of a mapping.
MISSING = object()


def identity_guard(collections: Iterable[Collection[object]]) -> Callable[[], bool]:
    """A guard on the members of dictionaries (keys and values) and lists: whether these are the
    same objects in the same order as now. Other collections (tuples) are immutable."""
    watched = list(collections)
    parts: list[Iterable[Any]] = []
    for collection in watched:
        if isinstance(collection, dict):
            parts += dict.keys(collection), dict.values(collection)
        elif isinstance(collection, list):
            parts.append(collection)
    parts.append([MISSING])  # terminator: a changed length fails too
    seen = list(chain.from_iterable(parts))

    def holds() -> bool:
        try:
            return all(map(is_, chain.from_iterable(parts), seen))
        except RuntimeError:  # resized concurrently by another thread
            return False

    return holds
