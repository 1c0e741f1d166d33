"""The loader: batches of a data set, in an order, made here or by worker processes."""

from __future__ import annotations

import copy
import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from evergrad.core.rng.default_generator import Generator, fork_rng, set_rng_state
from evergrad.core.types import StateDict
from evergrad.utils.data._utils import snapshot
from evergrad.utils.data._utils.collate import default_collate, default_convert
from evergrad.utils.data._utils.iterators import (
    BaseIterator,
    MultiProcessIterator,
    SingleProcessIterator,
)
from evergrad.utils.data._utils.options import (
    check_batch_options,
    check_iterable_options,
    check_worker_options,
    checked_context,
    warn_of_many_workers,
)
from evergrad.utils.data._utils.worker import get_worker_info
from evergrad.utils.data.dataset import Dataset, IterableDataset
from evergrad.utils.data.sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction

__all__ = ["DataLoader", "default_collate", "default_convert", "get_worker_info"]

T_co = TypeVar("T_co", covariant=True)

_PREFETCH_FACTOR = 2

_FIXED = frozenset(
    {"batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"}
)


class _NoIndices(Sampler[Any]):
    """The sampler of an iterable data set, which has no indices."""

    def __iter__(self) -> Iterator[None]:
        while True:
            yield None


class DataLoader(Generic[T_co]):
    """Gives the batches of a data set, one epoch with each ``iter``.

    The arguments are PyTorch's, and so are the order and the numbers drawn for a seed. Beyond
    PyTorch, :meth:`state_dict` is the position of a loader within an epoch, and
    :meth:`load_state_dict` lets another one go on from there.

    >>> data = TensorDataset(eg.arange(4), eg.arange(4) * 10)
    >>> for x, y in DataLoader(data, batch_size=3):
    ...     print(x, y)
    tensor([0, 1, 2]) tensor([ 0, 10, 20])
    tensor([3]) tensor([30])
    """

    dataset: Any
    batch_size: int | None
    num_workers: int
    drop_last: bool
    timeout: float
    sampler: Any
    batch_sampler: object
    collate_fn: AnyFunction
    prefetch_factor: int | None
    pin_memory_device: str
    _initialized = False

    def __init__(
        self,
        dataset: Dataset[T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler[object] | Iterable[object] | None = None,
        batch_sampler: Sampler[list[object]] | Iterable[list[object]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[T_co]], object] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: object = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        check_worker_options(num_workers, timeout, prefetch_factor, persistent_workers)
        self.dataset = dataset
        self.num_workers = num_workers
        if num_workers > 0 and prefetch_factor is None:
            prefetch_factor = _PREFETCH_FACTOR
        self.prefetch_factor = prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.in_order = in_order
        self.generator = generator
        self.persistent_workers = persistent_workers
        self._is_iterable = isinstance(dataset, IterableDataset)
        if self._is_iterable:
            check_iterable_options(shuffle, sampler, batch_sampler)
        check_batch_options(batch_size, shuffle, sampler, batch_sampler, drop_last)
        self._choose_order(batch_size, shuffle, sampler, batch_sampler, drop_last)
        own = default_collate if self._auto_collation else default_convert
        self.collate_fn = own if collate_fn is None else collate_fn
        # The length last told of an iterable data set, to warn if it gives more.
        self._length_told: int | None = None
        self._iterator: BaseIterator | None = None
        self._progress: snapshot.Progress | None = None
        self._resume: snapshot.State | None = None
        self._initialized = True
        self.check_worker_number_rationality()

    def _choose_order(
        self,
        batch_size: int | None,
        shuffle: bool | None,
        sampler: Any,
        batch_sampler: object,
        drop_last: bool,
    ) -> None:
        if batch_sampler is not None:
            batch_size, drop_last = None, False
        if sampler is None and self._is_iterable:
            sampler = _NoIndices()
        elif sampler is None and shuffle:
            sampler = RandomSampler(self.dataset, generator=self.generator)
        elif sampler is None:
            sampler = SequentialSampler(self.dataset)
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler

    @property
    def multiprocessing_context(self) -> Any:
        """How workers are started: a context of ``multiprocessing``, or ``None``."""
        return self._multiprocessing_context

    @multiprocessing_context.setter
    def multiprocessing_context(self, given: object) -> None:
        self._multiprocessing_context = checked_context(given, self.num_workers)

    def _context(self) -> object:
        """What starts the worker processes: as it was set, or as Python's default."""
        return self.multiprocessing_context or multiprocessing.get_context()

    def __setattr__(self, name: str, value: object) -> None:
        if self._initialized and name in _FIXED:
            raise ValueError(
                f"{name} attribute should not be set after {type(self).__name__} is initialized"
            )
        super().__setattr__(name, value)

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Any:
        """Gives what one batch is made of: a list of indices, or an index as it is."""
        return self.batch_sampler if self._auto_collation else self.sampler

    def __len__(self) -> int:
        if not self._is_iterable:
            return len(self._index_sampler)
        length = self._length_told = len(self.dataset)
        if self.batch_size is None:
            return length
        whole, rest = divmod(length, self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def check_worker_number_rationality(self) -> None:
        """Warn if there are more workers than the machine has room for."""
        warn_of_many_workers(self.num_workers)

    # -- iteration --------------------------------------------------------------------------

    def __iter__(self) -> BaseIterator:
        resume, self._resume = self._resume, None
        kept = self._iterator
        if resume is None and isinstance(kept, MultiProcessIterator) and not kept.closed:
            kept.begin_again(self)
            iterator: BaseIterator = kept
        elif resume is not None and resume["within_epoch"]:
            with fork_rng():  # what the epoch had drawn from the default generator is drawn again
                set_rng_state(resume["default_generator"])
                iterator = self._get_iterator(resume)
        else:
            iterator = self._get_iterator(resume)
        self._progress = iterator.progress
        if self.persistent_workers and self.num_workers > 0:
            self._iterator = iterator
        return iterator

    def _get_iterator(self, resume: snapshot.State | None = None) -> BaseIterator:
        if self.num_workers == 0:
            return SingleProcessIterator(self, resume)
        self.check_worker_number_rationality()
        return MultiProcessIterator(self, resume)

    # -- snapshots --------------------------------------------------------------------------

    def state_dict(self) -> StateDict:
        """Where the latest iteration stands, in plain values that can be saved.

        Loaded into a loader made the same way, the next ``iter`` gives exactly the batches that
        would have followed: shuffled ones in the same order, whatever workers had made ahead, and
        with the same random numbers inside the workers. The position is that of the latest
        iterator, also if the loop over it was left. Numbers drawn from the default generator in
        the main process are the program's own: save ``get_rng_state()`` beside this.

        A sampler, or an iterable data set, that has ``state_dict`` and ``load_state_dict`` is
        asked for its position; any other is gone through again up to it.
        """
        if self._resume is not None:
            return copy.deepcopy(self._resume)
        if self.num_workers > 0 and not self.in_order:
            raise RuntimeError(
                "state_dict() needs in_order=True: batches given out as they come are not the "
                "first so many of an epoch"
            )
        kept = isinstance(self._iterator, MultiProcessIterator) and not self._iterator.closed
        return snapshot.take(self, self._progress, kept)

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Let the next ``iter`` go on from where :meth:`state_dict` was called."""
        snapshot.check(state_dict, self)
        snapshot.restore(state_dict, self)
        self._resume = copy.deepcopy(state_dict)
        if isinstance(self._iterator, MultiProcessIterator):
            self._iterator.close()
            self._iterator = None
