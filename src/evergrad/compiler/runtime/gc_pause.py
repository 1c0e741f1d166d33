"""Pauses the cyclic garbage collector while a step is traced and compiled."""

from __future__ import annotations

import gc


class gc_paused:  # noqa: N801 - used like a function
    """``with gc_paused(): ...``: disables the cyclic garbage collector inside.

    A trace and the passes allocate a hundred thousand objects that stay, and leave no cycles;
    scanning them again and again took a fifth of the time of a first call.
    """

    __slots__ = ("was_enabled",)

    def __enter__(self) -> None:
        self.was_enabled = gc.isenabled()
        gc.disable()

    def __exit__(self, *exc: object) -> None:
        if self.was_enabled:
            gc.enable()
