"""From indices to batches: what one step of the loader asks of the data set."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from evergrad.utils.data._utils.collate import default_collate
from evergrad.utils.data.dataset import Subset, TensorDataset

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction, Index


class Fetcher(Protocol):
    """Makes batches of a data set; ``ended`` once it is known that there are no more."""

    ended: bool

    def fetch(self, index: object) -> Any:
        """The batch of an index, or of a list of them; ``StopIteration`` where there is no more."""

    def skip(self, index: object) -> None:
        """Go past a batch without making it."""


class MapFetcher:
    """Takes examples by their numbers."""

    ended = False

    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: AnyFunction) -> None:
        self.dataset = dataset
        self.auto_collation = auto_collation
        self.collate_fn = collate_fn

    def fetch(self, index: Index) -> Any:
        if not self.auto_collation:
            return self.collate_fn(self.dataset[index])
        if self.collate_fn is default_collate:
            rows = _rows(self.dataset, index)
            if rows is not None:
                return rows
        many = getattr(self.dataset, "__getitems__", None)
        examples = many(index) if many else [self.dataset[i] for i in index]
        return self.collate_fn(examples)

    def skip(self, index: object) -> None:
        """Nothing: examples that are not asked for are not made."""


def _rows(dataset: Any, index: Index) -> list[object] | None:
    """A batch of a ``TensorDataset``, or a subset of one, by indexing each tensor once.

    What collating the single rows gives, several times as quickly; ``None`` if it does not apply.
    """
    while type(dataset) is Subset:
        index = [dataset.indices[i] for i in index]
        dataset = dataset.dataset
    rows = list(index)
    if type(dataset) is not TensorDataset or any(type(row) is not int for row in rows):
        return None
    return [tensor[rows] for tensor in dataset.tensors] if rows else None


class IterableFetcher:
    """Takes the examples that come next; an index only says how many."""

    def __init__(
        self,
        dataset: Any,
        auto_collation: bool,
        collate_fn: Callable[[Any], object],
        drop_last: bool,
    ) -> None:
        self.auto_collation = auto_collation
        self.collate_fn = collate_fn
        self.drop_last = drop_last
        self.examples = iter(dataset)
        self.ended = False

    def fetch(self, index: object) -> Any:
        return self.collate_fn(self._next(index))

    def skip(self, index: object) -> None:
        self._next(index)

    def _next(self, index: Index) -> object:
        if self.ended:
            raise StopIteration
        if not self.auto_collation:
            return next(self.examples)
        examples = list(itertools.islice(self.examples, len(index)))
        if len(examples) < len(index):
            self.ended = True
            if not examples or self.drop_last:
                raise StopIteration
        return examples


def make_fetcher(
    dataset: object,
    iterable: bool,
    auto_collation: bool,
    collate_fn: Callable[[Any], object],
    drop_last: bool,
) -> Fetcher:
    """The fetcher for a kind of data set; starts the iteration of an iterable one."""
    if iterable:
        return IterableFetcher(dataset, auto_collation, collate_fn, drop_last)
    return MapFetcher(dataset, auto_collation, collate_fn)


def skip_batches(fetcher: Fetcher, index: object, count: int) -> None:
    """Go past some batches, or to the end, which the next ``fetch`` will then tell."""
    for _ in range(count):
        try:
            fetcher.skip(index)
        except StopIteration:
            return
