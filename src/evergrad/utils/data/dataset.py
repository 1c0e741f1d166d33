"""Data sets: what gives examples by number, what gives them one after the other, and combinations.

A data set knows nothing of batches, order or processes; samplers and the loader do.
"""

from __future__ import annotations

import bisect
import itertools
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import evergrad
from evergrad.core.rng.default_generator import Generator
from evergrad.core.tensor import Tensor

if TYPE_CHECKING:
    from evergrad.core.types import Args, Index, Leaves

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class Dataset(Generic[T_co]):
    """A map from numbers (or other keys) to examples.

    A subclass defines ``__getitem__`` and, if a sampler is to count the examples, ``__len__``. It
    may define ``__getitems__``, which takes the list of indices of a batch and gives the list of
    examples, where that is quicker than one at a time.

    >>> class Squares(Dataset):
    ...     def __len__(self):
    ...         return 3
    ...
    ...     def __getitem__(self, index):
    ...         return index**2
    >>> list(DataLoader(Squares(), batch_size=3))
    [tensor([0, 1, 4])]
    """

    def __getitem__(self, index: Index) -> T_co:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: Dataset[T_co]) -> Dataset[T_co]:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co], Iterable[T_co], ABC):
    """Examples that come one after the other, such as a stream that has no numbers.

    With several workers each of them iterates over a copy of the whole data set;
    :func:`get_worker_info` gives a copy the part that is its own.

    >>> class Lines(IterableDataset):
    ...     def __iter__(self):
    ...         return iter([1, 2, 3])
    >>> list(DataLoader(Lines(), batch_size=2))
    [tensor([1, 2]), tensor([3])]
    """

    @abstractmethod
    def __iter__(self) -> Iterator[T_co]: ...

    def __add__(self, other: Dataset[T_co]) -> Dataset[T_co]:
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """The rows of tensors that have equally many: example ``i`` is ``(a[i], b[i], ...)``.

    Args:
        tensors: of equal first extents

    >>> data = TensorDataset(eg.arange(4), eg.arange(4) * 10)
    >>> len(data), data[2]
    (4, (tensor(2), tensor(20)))
    """

    tensors: tuple[Tensor, ...]

    def __init__(self, *tensors: Tensor) -> None:
        if any(tensor.size(0) != tensors[0].size(0) for tensor in tensors):
            lengths = [tensor.size(0) for tensor in tensors]
            raise AssertionError(
                f"Size mismatch between tensors: their first dimensions are {lengths}"
            )
        self.tensors = tensors

    def __getitem__(self, index: Index) -> tuple[Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return int(self.tensors[0].size(0))


class StackDataset(Dataset[Any]):
    """Data sets side by side: example ``i`` is the tuple, or the dict, of their examples ``i``.

    Args:
        args: data sets, for tuples; or
        kwargs: data sets by name, for dicts

    >>> StackDataset(image=[1, 2], label=[3, 4])[1]
    {'image': 2, 'label': 4}
    """

    datasets: tuple[Any, ...] | dict[str, Any]

    def __init__(self, *args: Dataset[T_co], **kwargs: Dataset[T_co]) -> None:
        if args and kwargs:
            raise ValueError(
                "Supported either ``tuple``- (via ``args``) or ``dict``- (via ``kwargs``) like "
                "input/output, but both types are given."
            )
        if not args and not kwargs:
            raise ValueError("At least one dataset should be passed")
        self.datasets = args or kwargs
        sizes = {len(dataset) for dataset in self._parts()}
        if len(sizes) > 1:
            raise ValueError(f"Size mismatch between datasets: their lengths are {sorted(sizes)}")
        (self._length,) = sizes

    def _parts(self) -> Args:
        parts = self.datasets
        return tuple(parts.values()) if isinstance(parts, dict) else parts

    def _example(self, values: Sequence[object]) -> object:
        if isinstance(self.datasets, dict):
            return dict(zip(self.datasets, values, strict=True))
        return tuple(values)

    def __getitem__(self, index: Index) -> Any:
        return self._example([dataset[index] for dataset in self._parts()])

    def __getitems__(self, indices: list[object]) -> Leaves:
        columns = [_examples(dataset, indices) for dataset in self._parts()]
        return [self._example(values) for values in zip(*columns, strict=True)]

    def __len__(self) -> int:
        return self._length


def _examples(dataset: Dataset[object], indices: Sequence[object]) -> list[object]:
    """The examples of a batch, all at once if the data set can."""
    many = getattr(dataset, "__getitems__", None)
    if not callable(many):
        return [dataset[index] for index in indices]
    found: Leaves = many(indices)
    if len(found) != len(indices):
        raise ValueError(
            "Nested dataset's output size mismatch. Expected "
            f"{len(indices)}, got {len(found)}: __getitems__ of {type(dataset).__name__} has to "
            "give one example for each index"
        )
    return found


class ConcatDataset(Dataset[T_co]):
    """Data sets one behind the other.

    Args:
        datasets: data sets with a length

    >>> both = ConcatDataset([[1, 2], [3]])
    >>> len(both), both[2]
    (3, 3)
    """

    datasets: Leaves
    cumulative_sizes: list[int]

    def __init__(self, datasets: Iterable[Dataset[T_co]]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        if any(isinstance(dataset, IterableDataset) for dataset in self.datasets):
            raise AssertionError("ConcatDataset does not support IterableDataset")
        self.cumulative_sizes = self.cumsum(self.datasets)

    @staticmethod
    def cumsum(sequence: Iterable[Any]) -> list[int]:
        """The number of examples up to and including each data set."""
        return list(itertools.accumulate(len(part) for part in sequence))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, idx: int) -> T_co:
        if idx < 0:
            if -idx > len(self):
                raise ValueError("absolute value of index should not exceed dataset length")
            idx += len(self)
        which = bisect.bisect_right(self.cumulative_sizes, idx)
        start = self.cumulative_sizes[which - 1] if which else 0
        return self.datasets[which][idx - start]  # type: ignore[no-any-return]

    @property
    def cummulative_sizes(self) -> list[int]:
        """The former spelling of ``cumulative_sizes``."""
        warnings.warn(
            "`cummulative_sizes` attribute is renamed to `cumulative_sizes`",
            FutureWarning,
            stacklevel=2,
        )
        return self.cumulative_sizes


class ChainDataset(IterableDataset[Any]):
    """Iterable data sets one behind the other.

    Args:
        datasets: iterable data sets

    >>> class Count(IterableDataset):
    ...     def __iter__(self):
    ...         return iter(range(2))
    >>> list(ChainDataset([Count(), Count()]))
    [0, 1, 0, 1]
    """

    def __init__(self, datasets: Iterable[Dataset[object]]) -> None:
        self.datasets = datasets

    def _checked(self) -> Iterator[Any]:
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise AssertionError("ChainDataset only supports IterableDataset")
            yield dataset

    def __iter__(self) -> Iterator[Any]:
        for dataset in self._checked():
            yield from dataset

    def __len__(self) -> int:
        return sum(len(dataset) for dataset in self._checked())


class Subset(Dataset[T_co]):
    """The examples of a data set that stand at some indices.

    Args:
        dataset: the data set
        indices: which of its examples

    >>> list(Subset([10, 20, 30], [2, 0]))
    [30, 10]
    """

    dataset: Dataset[T_co]
    indices: Sequence[int]

    def __init__(self, dataset: Dataset[T_co], indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, list):
            return self.dataset[[self.indices[i] for i in idx]]
        return self.dataset[self.indices[idx]]

    def __getitems__(self, indices: list[int]) -> Leaves:
        chosen = [self.indices[i] for i in indices]
        many = getattr(self.dataset, "__getitems__", None)
        return many(chosen) if callable(many) else [self.dataset[i] for i in chosen]

    def __len__(self) -> int:
        return len(self.indices)


def random_split(
    dataset: Dataset[T], lengths: Sequence[int | float], generator: Generator | None = None
) -> list[Subset[T]]:
    """Cut a data set at random into parts of the given lengths, or fractions that add up to 1.

    With fractions, examples that rounding down leaves over go to the parts in turn.

    Args:
        dataset: the data set
        lengths: of the parts, or fractions
        generator: the source of random numbers; default the global one

    >>> train, test = random_split(range(10), [0.8, 0.2])
    >>> len(train), len(test)
    (8, 2)
    """
    total = len(dataset)  # type: ignore[arg-type]
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        lengths = _lengths_of_fractions(total, lengths)
    if sum(lengths) != total:
        raise ValueError("Sum of input lengths does not equal the length of the input dataset!")
    order = evergrad.randperm(total, generator=generator).tolist()
    ends = itertools.accumulate(int(length) for length in lengths)
    return [
        Subset(dataset, order[end - int(length) : end])
        for length, end in zip(lengths, ends, strict=True)
    ]


def _lengths_of_fractions(total: int, fractions: Sequence[float]) -> list[int]:
    for i, fraction in enumerate(fractions):
        if not 0 <= fraction <= 1:
            raise ValueError(f"Fraction at index {i} is not between 0 and 1")
    lengths = [math.floor(total * fraction) for fraction in fractions]
    for i in range(total - sum(lengths)):
        lengths[i % len(lengths)] += 1
    for i, length in enumerate(lengths):
        if length == 0:
            warnings.warn(
                f"Length of split at index {i} is 0. This might result in an empty dataset.",
                UserWarning,
                stacklevel=3,
            )
    return lengths
