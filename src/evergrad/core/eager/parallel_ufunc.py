"""Large elementwise NumPy calls, shared among threads.

NumPy lets go of the interpreter's lock while it computes. A call is cut into pieces of fixed size,
and whoever is free, the caller or a helper, takes the next one; each element is computed as before,
so results do not depend on who computed what. A helper that has not woken up yet, because another
process has its processor, keeps nobody waiting: the caller does its pieces, too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from typing import Any

import numpy as np

from evergrad.core import fork, settings
from evergrad.core.errstate import QUIET, numpy_errors

Array = np.ndarray[Any, Any]
Piece = tuple[Any, ...]

# Elements of a piece, and from how many on a call gains by being shared.
_PIECE = 1 << 17
PARALLEL_MIN_ELEMENTS = 1 << 20


class _Job:
    """The pieces of one call. A helper needs a ticket to take part; the caller takes back those
    that are left when no piece is, and waits for helpers that have one."""

    def __init__(self, ufunc: Callable[..., Any], pieces: Iterator[Piece], helpers: int) -> None:
        self.ufunc = ufunc
        self.pieces = pieces
        self.tickets = [None] * helpers
        self.left: SimpleQueue[BaseException | None] = SimpleQueue()

    def help(self) -> None:
        """Take part, unless it is too late."""
        try:
            self.tickets.pop()
        except IndexError:
            return
        failure = None
        try:
            self.work()
        except BaseException as error:
            failure = error
        self.left.put(failure)

    def work(self) -> None:
        for *given, out in self.pieces:
            self.ufunc(*given, out=out)

    def finish(self, helpers: int) -> None:
        """Wait until nobody works any more, and let go of the arrays."""
        while True:
            try:
                self.tickets.pop()
            except IndexError:
                break
            helpers -= 1
        failures = [self.left.get() for _ in range(helpers)]
        self.pieces = iter(())
        for failure in filter(None, failures):
            raise failure


# Where helpers wait for jobs, and how many there are.
_jobs: SimpleQueue[_Job] = SimpleQueue()
_helpers = 0
_hiring = threading.Lock()


def _forget_helpers() -> None:
    """In a forked child there are none."""
    global _jobs, _helpers, _hiring
    _jobs, _helpers, _hiring = SimpleQueue(), 0, threading.Lock()


fork.register("parallel ufunc", after_in_child=_forget_helpers)


def _serve(jobs: SimpleQueue[_Job]) -> None:
    numpy_errors.set(QUIET)
    while True:
        jobs.get().help()


def _hire(count: int) -> None:
    """See to it that there are so many helpers."""
    global _helpers
    with _hiring:
        while _helpers < count:
            _helpers += 1
            threading.Thread(
                target=_serve, args=(_jobs,), daemon=True, name=f"evergrad-ufunc-{_helpers}"
            ).start()


def parallel_ufunc(ufunc: Callable[..., Any]) -> Callable[..., Array]:
    """A ufunc that several threads compute together where that gains."""

    def run(*operands: Any, out: Array) -> Array:
        helpers = settings.get_num_threads() - 1
        if helpers < 1 or not _are_alike(operands, out):
            ufunc(*operands, out=out)
        else:
            _share(ufunc, (*operands, out), helpers)
        return out

    return run


_add_shared = parallel_ufunc(np.add)


def add_arrays(a: Array, b: Array, out: Array) -> None:
    """``np.add``, by several threads where that gains."""
    if out.size < PARALLEL_MIN_ELEMENTS:
        np.add(a, b, out=out)
    else:
        _add_shared(a, b, out=out)


def _share(ufunc: Callable[..., Any], arrays: Sequence[Any], helpers: int) -> None:
    if _helpers < helpers:
        _hire(helpers)
    job = _Job(ufunc, _pieces(arrays), helpers)
    for _ in range(helpers):
        _jobs.put(job)
    try:
        job.work()
    finally:
        job.finish(helpers)


def _are_alike(operands: Sequence[Any], out: Array) -> bool:
    """Whether all arrays lie in order and have the result's shape; numbers may be among them."""
    return (
        out.size >= PARALLEL_MIN_ELEMENTS
        and out.flags.c_contiguous
        and all(
            not _is_array(o) or (o.shape == out.shape and o.flags.c_contiguous) for o in operands
        )
    )


def _pieces(values: Sequence[Any]) -> Iterator[Piece]:
    """The same pieces of all arrays, the last of which is the result's; threads may share it."""
    flat = [v.reshape(-1) if _is_array(v) else v for v in values]
    pieces = [slice(start, start + _PIECE) for start in range(0, flat[-1].size, _PIECE)]
    return iter([tuple([v[p] if _is_array(v) else v for v in flat]) for p in pieces])


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.ndim > 0
