"""The progress engine: communication as generators, advanced by whichever thread waits.

A :class:`Task` wraps a generator that yields MPI requests and is resumed when the request has
completed. Tasks of one queue run one after the other, in the order they were submitted, which is
the same on every rank; different queues progress independently. Every MPI call is made while the
engine's lock is held, so ``MPI_THREAD_SERIALIZED`` is enough.

A thread that waits polls by itself; a background thread polls for all other tasks, so that
communication overlaps computation. Nothing waits without a limit: a task that is not complete
at its deadline fails, and takes its engine with it, because MPI requests cannot be withdrawn.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from typing import Any

# A generator of a task: yields requests, returns the result.
Steps = Generator[Any, None, Any]

# Polls without a pause, then pauses that grow to the longest: ranks may share a core.
_SPINS = 200
_SHORTEST_PAUSE = 20e-6
_LONGEST_PAUSE = 1e-3
# The pauses of the background thread: they grow while no request completes, since each poll takes
# the core from a kernel, and end before the buffers of a network run empty.
_SHORTEST_BACKGROUND_PAUSE = 50e-6
_LONGEST_BACKGROUND_PAUSE = 500e-6
_IDLE_PAUSE = 0.1


class DistributedError(RuntimeError):
    """Ranks disagree, one of them does not answer, or communication failed.

    >>> issubclass(eg.distributed.DistributedError, RuntimeError)
    True
    """


class Task:
    """One communication in progress."""

    __slots__ = ("deadline", "description", "error", "is_done", "queue", "request", "result",
                 "steps", "when_done")  # fmt: skip

    def __init__(self, steps: Steps, description: object, deadline: float) -> None:
        self.steps: Steps = steps
        self.description: object = description
        self.deadline: float = deadline
        self.request: Any = None
        self.result: Any = None
        self.error: BaseException | None = None
        self.is_done: bool = False
        self.when_done: list[Callable[[], None]] = []

    def advance(self) -> bool:
        """Resume the generator until it waits for a request that is not complete; gives whether it
        was resumed."""
        is_resumed = False
        try:
            while self.request is None or self.request.Test():
                is_resumed = True
                self.request = next(self.steps)
        except StopIteration as stop:
            self.complete(stop.value, None)
        except Exception as error:
            self.complete(None, error)
        return is_resumed or self.is_done

    def complete(self, result: object, error: BaseException | None) -> None:
        self.result, self.error = result, error
        self.is_done = True
        for function in self.when_done:
            function()


class Engine:
    """The tasks of one process. ``explain`` turns a task that timed out into an error; ``idle`` is
    called now and then by the background thread, with the lock held."""

    def __init__(self, explain: Callable[[Task], Exception], idle: Callable[[], None]) -> None:
        self.lock: threading.RLock = threading.RLock()
        self.queues: dict[object, deque[Task]] = {}
        self.broken: BaseException | None = None
        # What the task that broke it was for.
        self.given_up: object = None
        self._explain = explain
        self._idle = idle
        self._wake = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._background, name="distributed", daemon=True)
        self._thread.start()

    # -- submitting ---------------------------------------------------------------------------

    def submit(self, queue: object, steps: Steps, description: object, timeout: float) -> Task:
        """Append a task to a queue; it starts when those before it have completed."""
        with self.lock:
            if self.broken is not None:
                raise DistributedError(
                    "communication has failed and cannot be resumed; the first failure was: "
                    f"{self.broken}"
                ) from self.broken
            task = Task(steps, description, time.monotonic() + timeout)
            self.queues.setdefault(queue, deque()).append(task)
            self.progress()
        self._wake.set()
        return task

    def wait(self, task: Task, timeout: float | None = None) -> Any:
        """Poll until a task is done; gives its result or raises its error."""
        give_up = None if timeout is None else time.monotonic() + timeout
        spins, pause = 0, _SHORTEST_PAUSE
        while not task.is_done:
            with self.lock:
                self.progress()
                if give_up is not None and time.monotonic() > give_up:
                    self._fail(task)
            spins += 1
            if spins < _SPINS:
                time.sleep(0)
            else:
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        if task.error is not None:
            raise task.error
        return task.result

    # -- progress -----------------------------------------------------------------------------

    def progress(self) -> bool:
        """Advance the first task of every queue, with the lock held; gives whether one moved."""
        is_resumed = False
        for key, queue in list(self.queues.items()):
            while queue:
                task = queue[0]
                is_resumed |= task.advance()
                if not task.is_done:
                    if time.monotonic() > task.deadline:
                        self._fail(task)
                    break
                queue.popleft()
            if not queue:
                self.queues.pop(key, None)
        return is_resumed

    def _fail(self, task: Task) -> None:
        """A task is late: explain it, and fail all others, whose requests cannot be relied on."""
        if self.broken is not None or task.is_done:
            return
        self.given_up = task.description
        self.broken = DistributedError(f"{task.description} did not complete in time")
        error = self._explain(task)
        self.broken = error
        failed = [t for queue in self.queues.values() for t in queue if t is not task]
        self.queues.clear()
        task.complete(None, error)
        for other in failed:
            other.complete(None, DistributedError(f"{other.description} was given up: {error}"))

    def _background(self) -> None:
        last_idle, pause = 0.0, _SHORTEST_BACKGROUND_PAUSE
        while not self._closed:
            self._wake.clear()
            with self.lock:
                is_resumed = self.progress()
                if time.monotonic() - last_idle > _IDLE_PAUSE and not self._closed:
                    last_idle = time.monotonic()
                    self._idle()
            if self.queues:
                longer = min(2 * pause, _LONGEST_BACKGROUND_PAUSE)
                pause = _SHORTEST_BACKGROUND_PAUSE if is_resumed else longer
                time.sleep(pause)
            else:
                self._wake.wait(_IDLE_PAUSE)

    def close(self) -> None:
        """End the background thread; no MPI call is made afterwards."""
        with self.lock:
            self._closed = True
        self._wake.set()
        self._thread.join(5)
