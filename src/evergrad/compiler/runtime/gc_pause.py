"""The cyclic garbage collector: paused while a step is traced and compiled, and at the end of a
process with many programs."""

from __future__ import annotations

import atexit
import gc

# From so many programs on, the objects of a process are not scanned again at its end.
_MANY_PROGRAMS = 64
_programs = 0


class gc_paused:  # noqa: N801 - used like a function
    """``with gc_paused(): ...``: disables the cyclic garbage collector inside.

    A trace and the passes allocate a hundred thousand objects that stay, and leave no cycles;
    scanning them again and again took a fifth of the time of a first call.
    """

    __slots__ = ("was_enabled",)

    def __enter__(self) -> None:
        self.was_enabled: bool = gc.isenabled()
        gc.disable()

    def __exit__(self, *exc: object) -> None:
        if self.was_enabled:
            gc.enable()


def count_program() -> None:
    """Note that a program was made.

    At its end CPython collects garbage several times; with thousands of programs, each of some
    thousand objects, that took seconds. Frozen objects are left to the system instead.
    """
    global _programs
    _programs += 1
    if _programs == _MANY_PROGRAMS:
        atexit.register(gc.freeze)
