"""What a fork does to the state of a process: one registry, in a defined order.

A forked child has one thread. Locks that other threads held would never be released in it, and
threads, pipes and jobs of the parent are not its own. Each part of the engine that has such state
registers here what to do: take its locks before the fork, release them after it, or begin anew in
the child.

The order is that of :data:`ORDER`, however modules are imported: before a fork from the last to the
first, because a thread that holds a later lock may need an earlier one to release it; after a fork
from the first to the last.
"""

from __future__ import annotations

import logging  # noqa: F401 - see below
import os
import threading
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

from evergrad import lazy
from evergrad.memory.ledger import LOCK

ORDER = (
    "ledger",
    "imports",
    "blas threads",
    "parallel ufunc",
    "compile workers",
    "compiled objects",
    "step locks",
    "thread pool",
)

Hook = Callable[[], Any]


class Part(NamedTuple):
    """State of this process, and what to do with it around a fork."""

    name: str
    before: Hook | None
    after_in_parent: Hook | None
    after_in_child: Hook | None


_parts: dict[str, Part] = {}
# The parts whose ``before`` has run in a thread that is forking: no others are released.
_forking = threading.local()


def register(
    name: str,
    *,
    before: Hook | None = None,
    after_in_parent: Hook | None = None,
    after_in_child: Hook | None = None,
) -> None:
    """Say what to do with a part of :data:`ORDER` around a fork; a second time replaces it."""
    if name not in ORDER:
        raise ValueError(f"{name!r} has no place in evergrad.core.fork.ORDER")
    _parts[name] = Part(name, before, after_in_parent, after_in_child)


def registered() -> list[str]:
    """The names of all parts so far, in their order."""
    return [name for name in ORDER if name in _parts]


def _before() -> None:
    parts = [_parts[name] for name in registered()]
    for part in reversed(parts):
        _run(part.before)
    _forking.parts = parts


def _after_in_parent() -> None:
    for part in _forking.__dict__.pop("parts", ()):
        _run(part.after_in_parent)


def _after_in_child() -> None:
    for part in _forking.__dict__.pop("parts", ()):
        _run(part.after_in_child)


def _run(hook: Hook | None) -> None:
    """A hook that fails is reported, and keeps no other from running."""
    try:
        if hook is not None:
            hook()
    except Exception:
        traceback.print_exc()


# Hooks run from the last registered to the first. That of logging takes its lock, for which a
# module that another thread imports may be waiting: it must have been registered before this one.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )

register("ledger", before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=LOCK.release)
register(
    "imports",
    before=lazy.hold_imports,
    after_in_parent=lazy.release_imports,
    after_in_child=lazy.release_imports,
)
