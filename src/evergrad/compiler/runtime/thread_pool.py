"""Threads that run a native program together, without the GIL.

A program is a list of tasks (function, arguments, chunk) cut into waves. Everybody claims tasks of
a wave from one counter, some from its front and some from its back, until none is left, then waits
until all that were claimed are done; who ran what does not matter, since a task's result depends on
its chunk alone. A helper that is not there, because it has not woken up yet or another process has
its processor, keeps nobody waiting unless it has claimed a task. Who waits, for others or for the
next program, spins for a moment and then sleeps on a futex.

One program runs with the team at a time; a second caller, a nested one, or one in a process forked
from here runs its program by itself, one task after the other. Callers that meet often are better
off each by itself: once the team was found busy, nobody takes it for a while.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
from collections.abc import Callable, Sequence

import numpy as np

from evergrad.compiler.native import jit
from evergrad.compiler.runtime.thread_pool_code import BRIEF, FUTEX, LONG, SHORT, native
from evergrad.core import fork
from evergrad.core.settings import get_num_threads
from evergrad.memory.cache_lines import isolated_copy, isolated_zeros

_CAN_SLEEP = sys.platform == "linux" and FUTEX is not None
# With less work than this (elements and products) a run is brief, and with less than that short.
_BRIEF, _SHORT = 1 << 14, 1 << 19
# For how many runs nobody takes the team after somebody found it busy.
_APART = 64


class Team:
    """The caller and its helpers. It lives as long as the process, since they look at its words."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.lock = threading.Lock()
        # How many runs are still to be done by their callers alone.
        self.apart = 0
        self.words = isolated_zeros((32,), np.int64)
        self.address = self.words.ctypes.data
        addresses = native()
        help = jit.function_of(addresses["team_help"], ctypes.c_void_p, ctypes.c_int64)
        self._run = jit.function_of(
            addresses["team_run"], ctypes.c_void_p, ctypes.c_void_p, result=ctypes.c_int64
        )
        for number in range(1, size):
            threading.Thread(
                target=help, args=(self.address, number), daemon=True, name=f"evergrad-{number}"
            ).start()

    def take(self) -> bool:
        """Whether the caller has the team for itself now; it must release the lock then."""
        if self.apart > 0:
            self.apart -= 1
            return False
        if self.lock.acquire(blocking=False):
            return True
        self.apart = _APART
        return False

    def run(self, run: int) -> int:
        return int(self._run(self.address, run))


# The teams of this process by their size.
_teams: dict[int, Team] = {}
_made = threading.Lock()


def team() -> Team:
    """The team of this process, of the size that ``set_num_threads`` asks for."""
    size = get_num_threads() if _CAN_SLEEP else 1
    found = _teams.get(size)
    if found is None:
        with _made:
            found = _teams.get(size) or _teams.setdefault(size, Team(size))
    return found


def _forget_others() -> None:
    """In a forked child the helpers and other callers are gone."""
    global _made
    _teams.clear()
    _made = threading.Lock()
    if native.cache_info().currsize:
        jit.function_of(native()["team_forget"])()


fork.register("thread pool", after_in_child=_forget_others)


def _alone(run: int) -> Callable[[], int]:
    """Runs tasks on the calling thread; the code of a build with a GIL is called with it, and
    releases it by itself where that is worth it."""
    if _has_gil():
        with_gil = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(native()["team_alone"])
        return functools.partial(with_gil, ctypes.c_void_p(run))
    without = jit.function_of(
        native()["team_run"], ctypes.c_void_p, ctypes.c_void_p, result=ctypes.c_int64
    )
    return functools.partial(without, None, ctypes.c_void_p(run))


def _has_gil() -> bool:
    """Whether one thread at a time is in Python, as everywhere but in free-threaded builds."""
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def length_of(work: int) -> int:
    """How long a run with so much work takes on one thread, roughly."""
    return BRIEF if work < _BRIEF else SHORT if work < _SHORT else LONG


class Run:
    """A list of tasks in waves, ready to be run; ``length`` says how long that takes."""

    def __init__(
        self, tasks: Sequence[tuple[int, int, int]], ends: list[int], scratch: int,
        status: np.ndarray, length: int = LONG,
    ) -> None:  # fmt: skip
        self.tasks = isolated_copy(tasks, np.int64)
        self.ends = isolated_copy(ends, np.int64)
        self.counters = isolated_zeros((8 * len(ends),), np.int64)
        self.first_counter = self.counters.data[:1]
        self.scratch_bytes = -(-max(scratch, 64) // 64) * 64
        self.status = status
        self.status_word = status.data[:1]
        self.length = length
        self.words = isolated_copy([
            self.tasks.ctypes.data, self.ends.ctypes.data, len(ends), self.counters.ctypes.data, 0,
            self.scratch_bytes, status.ctypes.data, length,
        ], np.int64)  # fmt: skip
        self.address = int(self.words.ctypes.data)
        self.run_alone = _alone(self.address)
        self.threads = 0
        self.make_room(1)

    def run(self, threads: int) -> int:
        """Run all tasks; with the team if it is free and several threads are wanted. Gives the word
        that tells of failures."""
        helpers = self.take_helpers(threads) if threads > 1 else None
        if helpers is None:
            return self.run_alone()
        try:
            return helpers.run(self.address)
        finally:
            helpers.lock.release()

    def take_helpers(self, threads: int) -> Team | None:
        """The team, with room for all of it, if it is free and several threads are wanted; who
        has got it must release its lock."""
        if threads > 1:
            found = team()
            if found.size > 1:
                self.make_room(found.size)
                return found if found.take() else None
        return None

    def forget(self) -> None:
        """Be as if it had not been run."""
        self.first_counter[0] = 0

    def has_succeeded(self) -> bool:
        """Whether it was run since it was last forgotten, and no task has failed."""
        return bool(self.first_counter[0]) and not self.status_word[0]

    def make_room(self, threads: int) -> None:
        """Have scratch memory for so many threads."""
        if threads > self.threads:
            self.scratch = isolated_zeros((threads * self.scratch_bytes,), np.uint8)
            self.words[4] = self.scratch.ctypes.data
            self.threads = threads
