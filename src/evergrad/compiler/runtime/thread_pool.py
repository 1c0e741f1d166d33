"""Thread pool: runs a native program on several threads, without the GIL.

A program is a list of tasks (function, arguments, chunk) divided into waves. The threads claim the
tasks of a wave from one atomic counter, some from its front and some from its back, until none is
left; then a barrier waits until all claimed tasks are done. The result of a task depends on its
chunk alone, not on the thread that ran it. A worker that is late, because it is still waking up or
preempted, delays nothing unless it has claimed a task. Waiting threads, at a barrier or for the
next program, spin briefly and then park on a futex.

One program at a time has the pool; a second caller, a nested one, or one in a forked child runs its
program serially on its own thread. Frequent concurrent callers are faster serially: after a caller
has found the pool busy, the next runs do not try to acquire it.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from evergrad.compiler.native import jit
from evergrad.compiler.runtime.thread_pool_code import BRIEF, FUTEX, LONG, SHORT, native
from evergrad.core import fork
from evergrad.core.settings import get_num_threads, on_num_threads
from evergrad.extension import provides
from evergrad.memory.cache_lines import isolated_copy, isolated_zeros

if TYPE_CHECKING:
    from evergrad.core.tensor import Array

_CAN_PARK = sys.platform == "linux" and FUTEX is not None
# Upper bounds on the work (elements and products) of a brief and of a short run.
_BRIEF, _SHORT = 1 << 14, 1 << 19
# How many runs are serial after a caller has found the pool busy.
_SERIAL_RUNS = 64
# How long the end of a worker is waited for; it is idle, so this takes microseconds.
_END_SECONDS = 1.0


class ThreadPool:
    """The worker threads besides the caller; fewer than wanted where the system has no more. They
    read its words, so it is referenced until they have ended."""

    def __init__(self, size: int) -> None:
        self.lock: threading.Lock = threading.Lock()
        # Whether it ends when its current run does.
        self.is_retired: bool = False
        # How many more runs are serial.
        self.serial_runs: int = 0
        self.words: Array = isolated_zeros((32,), np.int64)
        self.address: int = self.words.ctypes.data
        addresses = native()
        worker = jit.function_of(addresses["pool_worker"], ctypes.c_void_p, ctypes.c_int64)
        self._run = jit.function_of(
            addresses["pool_run"], ctypes.c_void_p, ctypes.c_void_p, result=ctypes.c_int64
        )
        self.threads: list[threading.Thread] = []
        for number in range(1, size):
            # The thread holds the pool, and with it the words, while it runs.
            thread = threading.Thread(
                target=self._work, args=(worker, number), daemon=True, name=f"evergrad-{number}"
            )
            try:
                thread.start()
            except RuntimeError:  # the system has no more threads
                break
            self.threads.append(thread)
        self.size: int = 1 + len(self.threads)

    def _work(self, worker: Callable[[int, int], None], number: int) -> None:
        worker(self.address, number)

    def try_acquire(self) -> bool:
        """Acquire the pool without blocking; on success the caller must release it."""
        if self.serial_runs > 0:
            self.serial_runs -= 1
            return False
        if self.lock.acquire(blocking=False):
            return True
        self.serial_runs = _SERIAL_RUNS
        return False

    def run(self, run: int) -> int:
        return int(self._run(self.address, run))

    def release(self) -> None:
        """Release the pool after a run; a retired one ends."""
        self.lock.release()
        if self.is_retired:
            self.retire()

    def retire(self) -> None:
        """End the worker threads, now or after the current run. The lock is never released again,
        so that what still references the pool runs serially."""
        self.is_retired = True
        if self.lock.acquire(blocking=False):
            jit.function_of(native()["pool_end"], ctypes.c_void_p)(self.address)
            for thread in self.threads:
                thread.join(_END_SECONDS)


# The thread pools of this process by the number of threads wanted.
_pools: dict[int, ThreadPool] = {}
_made = threading.Lock()


def thread_pool() -> ThreadPool:
    """The thread pool of this process, of the size set by ``set_num_threads``."""
    size = get_num_threads() if _CAN_PARK else 1
    found = _pools.get(size)
    if found is None:
        with _made:
            found = _pools.get(size) or _pools.setdefault(size, ThreadPool(size))
    return found


def _retire_others(threads: int) -> None:
    """Retire the pools of other sizes."""
    with _made:
        for size in [size for size in _pools if size != threads]:
            _pools.pop(size).retire()


on_num_threads(_retire_others)


def _reset_in_child() -> None:
    """Drop the pools and other callers in a forked child: their threads are gone."""
    global _made
    _pools.clear()
    _made = threading.Lock()
    if native.cache_info().currsize:
        jit.function_of(native()["pool_forget_callers"])()


fork.register("thread pool", after_in_child=_reset_in_child)


@provides("set_flushing")
def set_flushing(is_on: bool) -> bool:
    """Flush subnormal numbers to zero, or no longer, in programs and in the calling thread."""
    if not jit.can_jit():
        return False
    jit.function_of(native()["pool_set_flushing"], ctypes.c_int32)(int(is_on))
    return True


def _serial_runner(run: int) -> Callable[[], int]:
    """Runs tasks on the calling thread; with a GIL the native code is entered holding it, and
    releases it where the run is long enough."""
    if _has_gil():
        with_gil = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(native()["pool_serial"])
        return functools.partial(with_gil, ctypes.c_void_p(run))
    without = jit.function_of(
        native()["pool_run"], ctypes.c_void_p, ctypes.c_void_p, result=ctypes.c_int64
    )
    return functools.partial(without, None, ctypes.c_void_p(run))


def _has_gil() -> bool:
    """Whether this is a build with a GIL, not a free-threaded one."""
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def length_of(work: int) -> int:
    """The duration class of a run with so much work on one thread."""
    return BRIEF if work < _BRIEF else SHORT if work < _SHORT else LONG


def _isolated_bytes(nbytes: int) -> Array:
    return isolated_zeros((nbytes,), np.uint8)


class Run:
    """A list of tasks in waves, bound and ready to run; ``length`` is its duration class.
    ``scratch_memory`` allocates bytes that hold nothing between two tasks."""

    def __init__(
        self, tasks: Sequence[tuple[int, int, int]], ends: list[int], scratch: int,
        status: np.ndarray, length: int = LONG,
        scratch_memory: Callable[[int], Array] | None = None,
    ) -> None:  # fmt: skip
        self.scratch_memory: Callable[[int], Array] = scratch_memory or _isolated_bytes
        self.tasks: Array = isolated_copy(tasks, np.int64)
        self.ends: Array = isolated_copy(ends, np.int64)
        self.counters: Array = isolated_zeros((8 * len(ends),), np.int64)
        self.first_counter: memoryview[int] = self.counters.data[:1]
        self.scratch_bytes: int = -(-max(scratch, 64) // 64) * 64
        self.status = status
        self.status_word: memoryview[int] = status.data[:1]
        self.length = length
        self.words: Array = isolated_copy([
            self.tasks.ctypes.data, self.ends.ctypes.data, len(ends), self.counters.ctypes.data, 0,
            self.scratch_bytes, status.ctypes.data, length,
        ], np.int64)  # fmt: skip
        self.address: int = int(self.words.ctypes.data)
        self.run_serial: Callable[[], int] = _serial_runner(self.address)
        self.threads: int = 0
        self.reserve_scratch(1)

    def run(self, threads: int) -> int:
        """Run all tasks, by the thread pool if it is free and ``threads`` is more than one. Returns
        the status word, nonzero on failure."""
        pool = self.acquire_pool(threads) if threads > 1 else None
        if pool is None:
            return self.run_serial()
        try:
            return pool.run(self.address)
        finally:
            pool.release()

    def acquire_pool(self, threads: int) -> ThreadPool | None:
        """The acquired thread pool, with scratch memory for its threads, if it is free and
        ``threads`` is more than one; the caller must release it."""
        if threads > 1:
            found = thread_pool()
            if found.size > 1:
                self.reserve_scratch(found.size)
                return found if found.try_acquire() else None
        return None

    @property
    def nbytes(self) -> int:
        """The bytes of its tables."""
        return self.tasks.nbytes + self.ends.nbytes + self.counters.nbytes

    def reset(self) -> None:
        """Clear the mark that it was run."""
        self.first_counter[0] = 0

    def has_succeeded(self) -> bool:
        """Whether it was run since the last reset, and no task has failed."""
        return bool(self.first_counter[0]) and not self.status_word[0]

    def reserve_scratch(self, threads: int) -> None:
        """Allocate scratch memory for so many threads."""
        if threads > self.threads:
            self.scratch: object = self.scratch_memory(threads * self.scratch_bytes)
            self.words[4] = self.scratch.ctypes.data
            self.threads = threads
