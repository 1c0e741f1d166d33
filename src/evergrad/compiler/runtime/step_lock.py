"""The lock of a step: who has it may use the step's programs.

Python takes it like any lock. A call that is native from its beginning to its end only says in a
word that it is going on (:mod:`.runtime.native_call`), if nobody has the lock; it does so under the
GIL, so that neither can miss the other. Who takes the lock waits until that call has ended.
"""

from __future__ import annotations

import os
import threading
import time
import weakref

import numpy as np

from evergrad.compiler.native.object_words import times_taken
from evergrad.compiler.schedule.instructions import address_of
from evergrad.memory.lines import apart

# So long, in seconds, who has to wait for a native call sleeps before it looks again.
_NAP = 2e-5

_all: weakref.WeakSet[Turns] = weakref.WeakSet()


class Turns:
    """A lock that a thread may take several times, and the word of native calls."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.words = apart((8,), np.int64)
        self.busy = self.words.data[:1]
        _all.add(self)

    def __enter__(self) -> None:
        self.lock.acquire()
        try:
            while self.busy[0]:
                time.sleep(_NAP)
        except BaseException:
            self.lock.release()
            raise

    def __exit__(self, *exc: object) -> None:
        self.lock.release()

    def addresses(self) -> tuple[int, int]:
        """Where native code sees how often the lock is taken, zero if it cannot, and where the word
        of native calls lies."""
        times = times_taken()
        return 0 if times is None else id(self.lock) + times, address_of(self.words)


def _forget_others() -> None:
    """In a forked child other threads are gone, and so are their turns."""
    for turns in _all:
        turns.lock._at_fork_reinit()  # type: ignore[attr-defined]
        turns.busy[0] = 0


os.register_at_fork(after_in_child=_forget_others)
