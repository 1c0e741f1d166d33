"""``evergrad train`` in a process that kills itself at a chosen call: ``python -m train.killed``.

Arguments: the place, how often it is passed unharmed, then those of ``evergrad``. Places are calls
of the system a checkpoint is written with (also ``link``, which only the best one needs), and
``half``: with half of a checkpoint written.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from io import BytesIO
from typing import Any

from evergrad.cli.main import main
from evergrad.io import saving

PLACES = ("fsync", "replace", "half")


def end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def ending_after(count: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, and the end of the process when it is called once too often."""
    left = count

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal left
        if left == 0:
            end()
        left -= 1
        return function(*args, **kwargs)

    return call


def half_written(file: Any, *args: Any, **kwargs: Any) -> None:
    whole = BytesIO()
    write_archive(whole, *args, **kwargs)
    file.write(whole.getvalue()[: len(whole.getvalue()) // 2])
    file.flush()
    end()


write_archive = saving.write_archive


def kill_at(place: str, count: int) -> None:
    if place == "half":
        left = [write_archive] * count + [half_written]
        saving.write_archive = lambda *a, **k: (left.pop(0) if left else end)(*a, **k)
    else:
        setattr(os, place, ending_after(count, getattr(os, place)))


if __name__ == "__main__":
    kill_at(sys.argv[1], int(sys.argv[2]))
    main(sys.argv[3:])
