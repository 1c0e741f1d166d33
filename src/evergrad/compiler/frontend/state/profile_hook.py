"""A profile hook of this thread for the time of a session, beside a profiler of the user's."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

Hook = Callable[[FrameType, str, object], None]


@contextmanager
def profile_hook(hook: Hook) -> Iterator[None]:
    """Call ``hook`` with the profile events of this thread. A profiler written in Python gets them
    too; one of C is paused, since it cannot be called (``cProfile`` before CPython 3.12)."""
    former: Any = sys.getprofile()
    if former is None or callable(former):
        sys.setprofile(hook if former is None else _both(hook, former))
        try:
            yield
        finally:
            sys.setprofile(former)
        return
    former.disable()
    sys.setprofile(hook)
    try:
        yield
    finally:
        sys.setprofile(None)
        former.enable()


def _both(first: Hook, second: Hook) -> Hook:
    def hook(frame: FrameType, event: str, argument: object) -> None:
        first(frame, event, argument)
        second(frame, event, argument)

    return hook
