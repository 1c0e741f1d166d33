"""Looking for garbage is left until later while a step is made into a program."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Inside, Python does not look for cycles of objects that nobody holds.

    A trace and the passes behind it make a hundred thousand objects that stay, and leave no cycles;
    looking through them again and again took a fifth of the time of a first call.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
