"""Samplers: the order in which the examples of a data set are taken.

With the same seed the order is PyTorch's, and the generators are left in the state PyTorch's would
be in. That fixes what is drawn, from which generator, and when: never before the first index is
asked for.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Generic, TypeVar

import evergrad
from evergrad.core.rng.default_generator import Generator

T_co = TypeVar("T_co", covariant=True)

# With replacement, indices are drawn this many at a time.
_CHUNK = 32


def draw_seed(generator: Generator | None = None) -> int:
    """A seed from a generator, or from the default one."""
    return int(evergrad.empty((), dtype=evergrad.int64).random_(generator=generator).item())


def check_positive_integer(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"{name} should be a positive integer value, but got {name}={value}")


class Sampler(Generic[T_co]):
    """Gives indices, or lists of indices, by ``__iter__``; ``__len__`` is welcome.

    >>> class Backwards(Sampler):
    ...     def __init__(self, data):
    ...         self.data = data
    ...
    ...     def __iter__(self):
    ...         return reversed(range(len(self.data)))
    >>> data = [10, 20, 30]
    >>> list(DataLoader(data, batch_size=3, sampler=Backwards(data)))
    [tensor([30, 20, 10])]
    """

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError


class SequentialSampler(Sampler[int]):
    """From the first example to the last.

    Args:
        data_source: its length counts

    >>> list(SequentialSampler(range(3)))
    [0, 1, 2]
    """

    data_source: Sized

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """A random order: each example once, or ``num_samples`` draws with ``replacement``.

    Without a ``generator`` each pass draws the seed of its own from the default generator.

    Args:
        data_source: its length counts
        replacement: whether to draw each anew; default ``False``
        num_samples: how many; default the length
        generator: the source of random numbers; default seeded by the global one

    >>> sorted(RandomSampler(range(4)))
    [0, 1, 2, 3]
    """

    data_source: Sized
    replacement: bool

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ) -> None:
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        if not isinstance(replacement, bool):
            raise TypeError(
                f"replacement should be a boolean value, but got replacement={replacement}"
            )
        check_positive_integer("num_samples", self.num_samples)

    @property
    def num_samples(self) -> int:
        """How many indices are drawn."""
        # The size of a data set may change while a sampler is in use.
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        generator = self.generator
        if generator is None:
            generator = Generator()
            generator.manual_seed(draw_seed())
        size = len(self.data_source)
        if self.replacement:
            yield from _draws(size, self.num_samples, generator)
        else:
            yield from _permutations(size, self.num_samples, generator)

    def __len__(self) -> int:
        return self.num_samples


def _draws(size: int, count: int, generator: Generator) -> Iterator[int]:
    for start in range(0, count, _CHUNK):
        shape = (min(_CHUNK, count - start),)
        yield from evergrad.randint(size, shape, generator=generator).tolist()


def _permutations(size: int, count: int, generator: Generator) -> Iterator[int]:
    """Whole permutations, and of a last one the part that is left, which may be nothing."""
    for _ in range(count // size):
        yield from evergrad.randperm(size, generator=generator).tolist()
    yield from evergrad.randperm(size, generator=generator).tolist()[: count % size]


class SubsetRandomSampler(Sampler[int]):
    """The given indices in random order.

    Args:
        indices: what is drawn from
        generator: the source of random numbers; default the global one

    >>> sorted(SubsetRandomSampler([3, 5, 7]))
    [3, 5, 7]
    """

    indices: Sequence[int]

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        for place in evergrad.randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[place]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Indices drawn with probabilities in proportion to ``weights``, which need not add up to 1.

    Args:
        weights: one for each index
        num_samples: how many are drawn
        replacement: whether an index may come again; default ``True``
        generator: the source of random numbers; default the global one

    >>> list(WeightedRandomSampler([0.0, 1.0], 3))
    [1, 1, 1]
    """

    weights: evergrad.Tensor
    num_samples: int
    replacement: bool

    def __init__(
        self,
        weights: Sequence[float],
        num_samples: int,
        replacement: bool = True,
        generator: Generator | None = None,
    ) -> None:
        check_positive_integer("num_samples", num_samples)
        if not isinstance(replacement, bool):
            raise ValueError(
                f"replacement should be a boolean value, but got replacement={replacement}"
            )
        self.weights = evergrad.as_tensor(weights, dtype=evergrad.float64)
        if self.weights.ndim != 1:
            raise ValueError(
                "weights should be a 1d sequence but given weights have shape "
                f"{tuple(self.weights.shape)}"
            )
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        drawn = evergrad.multinomial(
            self.weights, self.num_samples, self.replacement, generator=self.generator
        )
        yield from drawn.tolist()

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """The indices of another sampler in lists of ``batch_size``.

    >>> list(BatchSampler(SequentialSampler(range(5)), batch_size=2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self, sampler: Sampler[int] | Iterable[int], batch_size: int, drop_last: bool
    ) -> None:
        check_positive_integer("batch_size", batch_size)
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        whole, rest = divmod(len(self.sampler), self.batch_size)  # type: ignore[arg-type]
        return whole + (rest > 0 and not self.drop_last)
