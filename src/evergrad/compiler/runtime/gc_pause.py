"""The cyclic garbage collector: paused while a step is traced and compiled, and at the end of a
process with many programs."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager

# From so many programs on, the objects of a process are not scanned again at its end.
_MANY_PROGRAMS = 64
_programs = 0


class gc_paused:  # noqa: N801 - used like a function
    """``with gc_paused() as pause: ...``: disables the cyclic garbage collector inside.

    A trace and the passes allocate a hundred thousand objects that stay, and leave no cycles;
    scanning them again and again took a fifth of the time of a first call.
    """

    __slots__ = ("is_active", "was_enabled")

    def __init__(self) -> None:
        self.is_active = self.was_enabled = False

    def __enter__(self) -> gc_paused:
        self.is_active, self.was_enabled = True, gc.isenabled()
        gc.disable()
        return self

    def __exit__(self, *exc: object) -> None:
        self.is_active = False
        if self.was_enabled:
            gc.enable()

    @contextmanager
    def resumed(self) -> Iterator[None]:
        """The collector as it was before the pause, for code of the user's, which may read and
        change that."""
        if not self.is_active:
            yield
            return
        if self.was_enabled:
            gc.enable()
        try:
            yield
        finally:
            self.was_enabled = gc.isenabled()
            gc.disable()


def count_program() -> None:
    """Note that a program was made.

    At its end CPython collects garbage several times; with thousands of programs, each of some
    thousand objects, that took seconds. Frozen objects are left to the system instead.
    """
    global _programs
    _programs += 1
    if _programs == _MANY_PROGRAMS:
        atexit.register(gc.freeze)
