"""Large ufunc calls in parallel, by chunks.

NumPy releases the GIL while it computes. A call is split into chunks of fixed size, which the
calling thread and the workers take from one queue; each element is computed as before, so results
do not depend on the number of threads. A worker that is not scheduled in time delays nothing: the
calling thread computes the remaining chunks itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core import fork, settings
from evergrad.core.errstate import QUIET, numpy_errors
from evergrad.core.types import Array

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction

Chunk = tuple[Any, ...]

# Elements of a chunk, and of the smallest call that runs in parallel.
_CHUNK = 1 << 17
PARALLEL_MIN_ELEMENTS = 1 << 20
# How long set_num_threads() waits for surplus workers, which may be in a chunk.
_END_SECONDS = 1.0


class _Job:
    """The chunks of one call. A worker needs a ticket to take part; when no chunk is left the
    caller withdraws the remaining tickets, and joins the workers that have one."""

    def __init__(self, ufunc: AnyFunction, chunks: Iterator[Chunk], workers: int) -> None:
        self.ufunc = ufunc
        self.chunks = chunks
        self.tickets = [None] * workers
        self.finished: SimpleQueue[BaseException | None] = SimpleQueue()

    def run_in_worker(self) -> None:
        """Take part in a worker thread, if a ticket is left."""
        try:
            self.tickets.pop()
        except IndexError:
            return
        failure = None
        try:
            self.work()
        except BaseException as error:
            failure = error
        self.finished.put(failure)

    def work(self) -> None:
        for *given, out in self.chunks:
            self.ufunc(*given, out=out)

    def finish(self, workers: int) -> None:
        """Join the workers that took part and release the arrays."""
        while True:
            try:
                self.tickets.pop()
            except IndexError:
                break
            workers -= 1
        failures = [self.finished.get() for _ in range(workers)]
        self.chunks = iter(())
        for failure in filter(None, failures):
            raise failure


# The queue of the workers (None ends one), their number and their threads, which include those
# that are about to end.
_jobs: SimpleQueue[_Job | None] = SimpleQueue()
_workers = 0
_threads: list[threading.Thread] = []
_starting = threading.Lock()


def _forget_workers() -> None:
    """A forked child has no workers."""
    global _jobs, _workers, _starting
    _jobs, _workers, _starting = SimpleQueue(), 0, threading.Lock()
    _threads.clear()


fork.register("parallel ufunc", after_in_child=_forget_workers)


def _serve(jobs: SimpleQueue[_Job | None]) -> None:
    numpy_errors.set(QUIET)
    while (job := jobs.get()) is not None:
        job.run_in_worker()
        del job  # its arrays are not held while this thread waits


def _start_workers(count: int) -> None:
    """Start workers up to this number, or as many as the system allows: a job needs none."""
    global _workers
    with _starting:
        while _workers < count:
            thread = threading.Thread(
                target=_serve, args=(_jobs,), daemon=True, name=f"evergrad-ufunc-{_workers + 1}"
            )
            try:
                thread.start()
            except RuntimeError:  # the system has no more threads
                return
            _workers += 1
            _threads.append(thread)


def _end_surplus(threads: int) -> None:
    """End the workers beyond a number of threads, the caller among them."""
    global _workers
    with _starting:
        surplus = max(_workers - (threads - 1), 0)
        _workers -= surplus
        for _ in range(surplus):
            _jobs.put(None)
        deadline = time.monotonic() + _END_SECONDS
        while len(_threads) > _workers and time.monotonic() < deadline:
            _threads[:] = [thread for thread in _threads if thread.is_alive()]
            time.sleep(0.0002)


settings.on_num_threads(_end_surplus)


def parallel_ufunc(ufunc: Callable[..., object]) -> Callable[..., Array]:
    """A ufunc that runs large calls in parallel."""

    def run(*operands: object, out: Array) -> Array:
        workers = settings.get_num_threads() - 1
        if workers < 1 or not _is_parallel(operands, out):
            ufunc(*operands, out=out)
        else:
            _run_parallel(ufunc, (*operands, out), workers)
        return out

    return run


_parallel_add = parallel_ufunc(np.add)


def add_arrays(a: Array, b: Array, out: Array) -> None:
    """``np.add``, in parallel if it is large."""
    if out.size < PARALLEL_MIN_ELEMENTS:
        np.add(a, b, out=out)
    else:
        _parallel_add(a, b, out=out)


def parallel_for(function: Callable[[Any], None], items: Sequence[object]) -> None:
    """Call a function for every item, in parallel; items write to memory of their own."""
    workers = min(settings.get_num_threads(), len(items)) - 1
    if workers < 1:
        for item in items:
            function(item)
    else:
        _run_chunks(lambda item, out: function(item), iter([(i, None) for i in items]), workers)


def _run_parallel(ufunc: Callable[..., object], arrays: Sequence[object], workers: int) -> None:
    _run_chunks(ufunc, _chunks(arrays), workers)


def _run_chunks(ufunc: Callable[..., object], chunks: Iterator[Chunk], workers: int) -> None:
    if _workers < workers:
        _start_workers(workers)
    job = _Job(ufunc, chunks, workers)
    for _ in range(workers):
        _jobs.put(job)
    try:
        job.work()
    finally:
        job.finish(workers)


def _is_parallel(operands: Sequence[Any], out: Array) -> bool:
    """Whether all arrays are contiguous and have the result's shape; scalars may be among them."""
    return (
        out.size >= PARALLEL_MIN_ELEMENTS
        and out.flags.c_contiguous
        and all(
            not _is_array(o) or (o.shape == out.shape and o.flags.c_contiguous) for o in operands
        )
    )


def _chunks(values: Sequence[Any]) -> Iterator[Chunk]:
    """The chunks of all arrays, the result last; the iterator is shared by threads."""
    flat = [v.reshape(-1) if _is_array(v) else v for v in values]
    chunks = [slice(start, start + _CHUNK) for start in range(0, flat[-1].size, _CHUNK)]
    return iter([tuple([v[p] if _is_array(v) else v for v in flat]) for p in chunks])


def _is_array(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.ndim > 0
