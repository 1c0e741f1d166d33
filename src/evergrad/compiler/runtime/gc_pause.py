"""Looking for garbage is left until later while a step is made into a program."""

from __future__ import annotations

import gc


class uncollected:  # noqa: N801 - used like a function
    """``with uncollected(): ...``: inside, Python does not look for cycles that nobody holds.

    A trace and the passes behind it make a hundred thousand objects that stay, and leave no cycles;
    looking through them again and again took a fifth of the time of a first call.
    """

    __slots__ = ("was_on",)

    def __enter__(self) -> None:
        self.was_on = gc.isenabled()
        gc.disable()

    def __exit__(self, *exc: object) -> None:
        if self.was_on:
            gc.enable()
