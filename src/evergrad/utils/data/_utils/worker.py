"""What runs in a worker process: answer tasks with batches until the pipe is closed.

A thread reads tasks as they come, whatever the main thread is doing. The process that sends them
can therefore never be held up by a worker that is itself waiting to get rid of a batch, and a
worker notices at once when that process is gone.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from evergrad.core import blas, settings
from evergrad.utils.data._utils.failure import Failure
from evergrad.utils.data._utils.fetch import Fetcher, make_fetcher, skip_batches
from evergrad.utils.data._utils.seeding import (
    RandomStates,
    RandomWatch,
    seed_worker,
    set_random_states,
)
from evergrad.utils.data._utils.shared import Packer, Parcel, Place

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction

# How often a worker that has nothing to do looks whether its parent is still there, in seconds.
_LOOK_FOR_PARENT = 5.0


@dataclass(frozen=True)
class WorkerInfo:
    """What a worker knows of itself.

    ``id``, ``num_workers``, ``seed`` and ``dataset`` are its attributes.

    >>> eg.utils.data.get_worker_info() is None  # not within a worker
    True
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any
    rng: object = None
    worker_method: str = "multiprocessing"


_worker_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """In a worker: its number, how many there are, its seed and its copy of the data set.

    ``None`` in the main process.

    >>> eg.utils.data.get_worker_info() is None
    True
    """
    return _worker_info


@dataclass(frozen=True)
class Job:
    """The settings of all workers of a loader."""

    dataset: Any
    iterable: bool
    auto_collation: bool
    collate_fn: AnyFunction
    drop_last: bool
    num_workers: int
    base_seed: int
    init_fn: Callable[[int], object] | None


class Task(NamedTuple):
    """A batch to make; a new epoch starts the data set anew."""

    epoch: int
    index: Any
    freed: list[Place]


class Reply(NamedTuple):
    """A batch, or why there is none; with neither, the data set has no more.

    ``dataset_state`` and ``random_states`` tell where the worker stands afterwards, ``is_last``
    that it already knows there are no more.
    """

    epoch: int
    parcel: Parcel | None = None
    failure: Failure | None = None
    dataset_state: object = None
    random_states: RandomStates | None = None
    is_last: bool = False

    @property
    def ended(self) -> bool:
        return self.parcel is None and self.failure is None


def run_worker(
    connection: Connection,
    parents_end: Connection | None,
    job: Job,
    worker_id: int,
    resume: dict[str, object] | None,
) -> None:
    """The main function of a worker process.

    ``parents_end`` is what a forked worker must close to notice that its parent did; ``resume`` is
    where another worker stood whose work this one continues.
    """
    global _worker_info
    if parents_end is not None:
        parents_end.close()
    _leave_interrupts_to_parent()
    inbox = _Inbox(connection)
    _use_one_thread()
    seed = seed_worker(job.base_seed, worker_id)
    _worker_info = WorkerInfo(worker_id, job.num_workers, seed, job.dataset)
    worker = _Worker(job, worker_id, resume)
    try:
        for task in inbox.tasks():
            worker.answer(task, connection)
    except (BrokenPipeError, ConnectionResetError):
        pass  # the batch is not waited for any more


def _leave_interrupts_to_parent() -> None:
    """Ctrl-C reaches all processes; the parent decides what it means, and stops its workers."""
    # Not SIG_IGN: programs that the data set starts would inherit that.
    signal.signal(signal.SIGINT, lambda number, frame: None)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def _use_one_thread() -> None:
    """Workers are as many as there is room for; more threads would only be in each other's way."""
    settings.set_num_threads(1)
    quiet_blas()


def quiet_blas() -> None:
    """Have BLAS use one thread, until a large product is allowed more.

    Done before a fork, the worker inherits it and never has to touch the threads of BLAS.
    """
    blas.matmul(np.ones((1, 1)), np.ones((1, 1)))


class _Inbox:
    """Receives tasks in a thread of its own, and ends the process if its parent has died."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._received: SimpleQueue[Task | None] = SimpleQueue()
        self._newest_epoch = 0
        self._closed = False
        self._parent = os.getppid()
        threading.Thread(target=self._read, daemon=True).start()

    def tasks(self) -> Iterator[Task]:
        """Tasks of the newest epoch in the order they were sent, until the pipe is closed."""
        while (task := self._received.get()) is not None and not self._closed:
            if task.epoch == self._newest_epoch:
                yield task

    def _read(self) -> None:
        try:
            while True:
                while not self._connection.poll(_LOOK_FOR_PARENT):
                    self._check_parent()
                task: Task = self._connection.recv()
                self._newest_epoch = task.epoch
                self._received.put(task)
        except (EOFError, OSError):
            self._check_parent()
            self._closed = True
            self._received.put(None)

    def _check_parent(self) -> None:
        parent = parent_process()
        if os.getppid() != self._parent or parent is None or not parent.is_alive():
            os._exit(1)


class _Worker:
    """Makes batches, and reports its position after each."""

    def __init__(self, job: Job, worker_id: int, resume: dict[str, object] | None) -> None:
        self.job = job
        self.where = f"in DataLoader worker process {worker_id}"
        self.resume = resume
        self.packer = Packer()
        self.watch = RandomWatch()
        self.epoch = -1
        self.fetcher: Fetcher | None = None
        self.ended = False
        self.init_failure: Failure | None = None
        try:
            if job.init_fn is not None:
                job.init_fn(worker_id)
        except Exception as error:
            self.init_failure = Failure.of(error, self.where)

    def answer(self, task: Task, connection: Connection) -> None:
        self.packer.release(task.freed)
        if self.ended and task.epoch == self.epoch:
            return  # the end has been told
        reply, message = self._reply(task)
        connection.send_bytes(message)
        if reply.parcel is not None and reply.parcel.new_arena is not None:
            self.packer.send_new_arena(connection)

    def _reply(self, task: Task) -> tuple[Reply, bytes]:
        """The answer to a task, and the same as bytes; whatever goes wrong is an answer, too."""
        try:
            reply = self._batch(task)
            return reply, _bytes(reply)
        except Exception as error:
            failure = Failure.of(error, self.where)
        reply = Reply(task.epoch, failure=failure, random_states=self.watch.moved())
        return reply, _bytes(reply)

    def _batch(self, task: Task) -> Reply:
        if self.init_failure is not None:
            return Reply(task.epoch, failure=self.init_failure)
        fetcher = self._fetcher_for(task)
        try:
            batch = fetcher.fetch(task.index)
        except StopIteration:
            if not self.job.iterable:
                raise
            self.ended = True
            return Reply(task.epoch, random_states=self.watch.moved())
        parcel = self.packer.pack(batch)
        return Reply(
            task.epoch, parcel, None, self._dataset_state(), self.watch.moved(), fetcher.ended
        )

    def _dataset_state(self) -> object:
        tell = getattr(self.job.dataset, "state_dict", None)
        return tell() if self.job.iterable and callable(tell) else None

    def _fetcher_for(self, task: Task) -> Fetcher:
        if self.fetcher is None or task.epoch != self.epoch:
            self.ended = False
            self.epoch = task.epoch
            self.fetcher = None
            resume, self.resume = self.resume, None
            self.fetcher = self._start(task.index, resume)
        return self.fetcher

    def _start(self, index: object, resume: dict[str, Any] | None) -> Fetcher:
        """Begin an epoch, or go on where another worker stood."""
        job = self.job
        own_state = None if resume is None else resume["dataset"]
        if own_state is not None:
            job.dataset.load_state_dict(own_state)
        if resume is not None and resume["random_at_start"] is not None:
            set_random_states(resume["random_at_start"])
        fetcher = make_fetcher(
            job.dataset, job.iterable, job.auto_collation, job.collate_fn, job.drop_last
        )
        if resume is None:
            return fetcher
        if own_state is None:
            skip_batches(fetcher, index, resume["batches"])
        if resume["random"] is not None:
            set_random_states(resume["random"])
        return fetcher


def _bytes(reply: Reply) -> bytes:
    return pickle.dumps(reply, protocol=5)
