"""Iterators over the batches of a loader: in this process, or made ahead by worker processes."""

from __future__ import annotations

import warnings
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from evergrad.utils.data._utils.collate import default_collate
from evergrad.utils.data._utils.fetch import make_fetcher, skip_batches
from evergrad.utils.data._utils.pool import WorkerPool
from evergrad.utils.data._utils.snapshot import Progress, State, new_worker, stateful_sampler
from evergrad.utils.data._utils.worker import Job, Reply
from evergrad.utils.data.sampler import draw_seed

if TYPE_CHECKING:
    from evergrad.utils.data.dataloader import DataLoader


class BaseIterator:
    """One pass over a loader: the indices of its batches, and how far it has come."""

    progress: Progress

    def __init__(self, loader: DataLoader[object], resume: State | None) -> None:
        self._loader_length = loader._length_told
        self._iterable = loader._is_iterable
        self._dataset = loader.dataset
        self._num_workers = loader.num_workers
        # Whether nothing else references a batch that is given out.
        self.makes_batches = loader.num_workers > 0 or loader.collate_fn is default_collate
        self._index_sampler = loader._index_sampler
        _warn_of_pinning(loader)
        base_seed = None if resume is None else resume["base_seed"]
        self._base_seed: int = draw_seed(loader.generator) if base_seed is None else base_seed
        self._begin(loader, resume)

    def _begin(self, loader: DataLoader[object], resume: State | None) -> None:
        """Start the indices from the first, or after those that had been given out."""
        self._loader_length = loader._length_told
        self._yielded = 0
        self._sampler = stateful_sampler(loader)
        if resume is not None and resume["within_epoch"]:
            self.progress = Progress.resumed(resume, loader)
        else:
            self.progress = Progress.begin(loader, self._base_seed)
        self._indices = iter(loader._index_sampler)
        if self._sampler is None and not self._iterable:
            for _ in range(self.progress.batches):
                next(self._indices, None)

    def __iter__(self) -> BaseIterator:
        return self

    def __len__(self) -> int:
        return len(self._index_sampler)

    def __next__(self) -> Any:
        try:
            batch = self._next_batch()
        except StopIteration:
            self.progress.finished = True
            raise
        self._yielded += 1
        told = self._loader_length
        if told is not None and self._yielded > told:
            self._warn_of_length(told)
        return batch

    def _next_batch(self) -> object:
        raise NotImplementedError

    def _next_index(self) -> tuple[object, object]:
        """An index, and where a sampler that can tell stands behind it."""
        index = next(self._indices)
        return index, None if self._sampler is None else self._sampler.state_dict()

    def _warn_of_length(self, told: int) -> None:
        text = (
            f"Length of IterableDataset {self._dataset} was reported to be {told}"
            f"(when accessing len(dataloader)), but {self._yielded} samples have been fetched. "
        )
        if self._num_workers > 0:
            text += (
                "For multiprocessing data-loading, this could be caused by not properly "
                "configuring the IterableDataset replica at each worker: let its __iter__ use "
                "get_worker_info() to give each worker a part of its own."
            )
        warnings.warn(text, UserWarning, stacklevel=3)

    def __getstate__(self) -> NoReturn:
        raise NotImplementedError(f"{type(self).__name__} cannot be pickled")


def _warn_of_pinning(loader: DataLoader[object]) -> None:
    if not loader.pin_memory:
        return
    if loader.pin_memory_device:
        warnings.warn(
            "pin_memory_device is deprecated, the current accelerator will be used as the device,"
            f"ignore pin_memory_device='{loader.pin_memory_device}'.",
            UserWarning,
            stacklevel=5,
        )
    warnings.warn(
        "'pin_memory' argument is set as true but no accelerator is found, then device pinned "
        "memory won't be used.",
        UserWarning,
        stacklevel=5,
    )


class SingleProcessIterator(BaseIterator):
    """Makes each batch on demand."""

    def __init__(self, loader: DataLoader[object], resume: State | None) -> None:
        if loader.timeout != 0:
            raise AssertionError(
                "a DataLoader with num_workers=0 requires timeout == 0, but got "
                f"timeout={loader.timeout}"
            )
        super().__init__(loader, resume)
        record = self.progress.workers[0]
        if record["dataset"] is not None and not record["ended"]:
            loader.dataset.load_state_dict(record["dataset"])
        self._fetcher = make_fetcher(
            loader.dataset,
            self._iterable,
            loader._auto_collation,
            loader.collate_fn,
            loader.drop_last,
        )
        self._fetcher.ended = record["ended"]
        if self._iterable and record["dataset"] is None and self.progress.batches:
            skip_batches(self._fetcher, next(self._indices), self.progress.batches)

    def _next_batch(self) -> object:
        index, sampler_state = self._next_index()
        try:
            batch = self._fetcher.fetch(index)
        except StopIteration:
            raise
        except Exception:
            self.progress.advance(0, sampler_state, False)  # the next call continues after it
            raise
        self.progress.advance(0, sampler_state, self._fetcher.ended)
        return batch


class MultiProcessIterator(BaseIterator):
    """Has workers make batches ahead, and gives them out in order (or as they come).

    Tasks go to the workers in turn and each worker answers in the order it was asked, so the next
    batch in order is always the next reply of a known worker.
    """

    def __init__(self, loader: DataLoader[object], resume: State | None) -> None:
        self._timeout = loader.timeout
        self._in_order = loader.in_order
        self._persistent = loader.persistent_workers
        self._capacity = max(1, loader.prefetch_factor or 0) * loader.num_workers
        self._epoch = 0
        self._pool: WorkerPool | None = None
        super().__init__(loader, resume)

    @property
    def closed(self) -> bool:
        """Whether the workers are gone."""
        return self._pool is None

    def _begin(self, loader: DataLoader[object], resume: State | None) -> None:
        super()._begin(loader, resume)
        if self._pool is None:
            self._pool = self._start_workers(loader, resume)
        self._epoch += 1
        self._tasks: deque[tuple[int, object]] = deque()
        self._live = [not record["ended"] for record in self.progress.workers]
        self._turn = self.progress.last_worker
        with self._closing_on_error():
            for _ in range(self._capacity):
                self._dispatch()

    def begin_again(self, loader: DataLoader[object]) -> None:
        """Another epoch with the same workers."""
        former = self.progress.workers
        self._begin(loader, None)
        self.progress.workers = [new_worker(record["random"]) for record in former]

    def _start_workers(self, loader: DataLoader[object], resume: State | None) -> WorkerPool:
        job = Job(
            dataset=loader.dataset,
            iterable=self._iterable,
            auto_collation=loader._auto_collation,
            collate_fn=loader.collate_fn,
            drop_last=loader.drop_last,
            num_workers=loader.num_workers,
            base_seed=self._base_seed,
            init_fn=loader.worker_init_fn,
        )
        records: list[State | None] = [None] * loader.num_workers
        if resume is not None and len(resume["workers"]) == loader.num_workers:
            records = [
                new_worker(record["random"]) if record["ended"] else record
                for record in resume["workers"]
            ]
        pool = WorkerPool(loader._context(), job, records)
        self._finalizer = weakref.finalize(self, pool.finalize)
        return pool

    def close(self, in_a_hurry: bool = False) -> None:
        """End the workers; nothing more can be had from this iterator."""
        pool, self._pool = self._pool, None
        if pool is not None:
            self._finalizer.detach()
            pool.shut_down(in_a_hurry)

    def _dispatch(self) -> None:
        """Give the next index to the worker whose turn it is."""
        try:
            index, sampler_state = self._next_index()
        except StopIteration:
            return
        worker = self._next_worker()
        if worker is not None and self._pool is not None:
            self._pool.send(worker, self._epoch, index)
            self._tasks.append((worker, sampler_state))

    def _next_worker(self) -> int | None:
        for _ in range(self._num_workers):
            self._turn = (self._turn + 1) % self._num_workers
            if self._live[self._turn] and (self._in_order or self._has_room(self._turn)):
                return self._turn
        return None

    def _has_room(self, worker: int) -> bool:
        """Out of order, no worker may be given more than its share of what is made ahead."""
        waiting = sum(1 for number, _ in self._tasks if number == worker)
        return waiting < self._capacity // sum(self._live)

    def _next_batch(self) -> object:
        while self._tasks:
            place = self._place_of_next()
            worker, sampler_state = self._tasks[place]
            reply = self._receive(worker) if self._live[worker] else None
            del self._tasks[place]
            if reply is None:
                continue  # asked for before the worker was known to have no more
            if reply.ended:
                self._end_of(worker)
            self._dispatch()
            if not reply.ended:
                return self._deliver(worker, reply, sampler_state)
        if not self._persistent:
            self.close()
        raise StopIteration

    def _place_of_next(self) -> int:
        """Which task to wait for: the first, or out of order the first of a worker that is done."""
        if self._in_order:
            return 0
        workers = [worker for worker, _ in self._tasks]
        for place, worker in enumerate(workers):
            if not self._live[worker]:
                return place
        with self._closing_on_error() as pool:
            return workers.index(pool.first_ready(sorted(set(workers)), self._timeout))

    def _receive(self, worker: int) -> Reply:
        """The next reply of a worker that belongs to this epoch."""
        with self._closing_on_error() as pool:
            while (reply := pool.receive(worker, self._timeout)).epoch != self._epoch:
                pool.discard(worker, reply)
        if reply.random_states is not None:
            self.progress.workers[worker]["random"] = reply.random_states
        return reply

    @contextmanager
    def _closing_on_error(self) -> Iterator[WorkerPool]:
        """The workers; after a death, a timeout or Ctrl-C they cannot be relied on any more."""
        if self._pool is None:
            raise RuntimeError("the workers of this iterator have ended; make a new one with iter")
        try:
            yield self._pool
        except BaseException:
            self.close(in_a_hurry=True)
            raise

    def _end_of(self, worker: int) -> None:
        assert self._pool is not None
        self._live[worker] = False
        self.progress.workers[worker]["ended"] = True
        if not self._persistent:
            self._pool.retire(worker)

    def _deliver(self, worker: int, reply: Reply, sampler_state: object) -> object:
        assert self._pool is not None
        self.progress.advance(worker, sampler_state, reply.is_last, reply.dataset_state)
        if reply.failure is not None:
            reply.failure.reraise()
        return self._pool.unpack(worker, reply)
