"""Many values of any shapes without padding: all elements in one dimension, and the shapes.

What moves elements between layouts is an index for each element, made of the shapes with NumPy and
kept for the layouts seen last; the rows that apply it (``index``, ``index_copy``, ``index_sum``)
have each other as transposes. So time and memory follow the number of elements, never the largest
shape times the number of values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from evergrad.core.bind import bind
from evergrad.core.shapes import Shape
from evergrad.core.tensor import Array, from_array
from evergrad.core.tensor import Tensor as Dense
from evergrad.core.tree import register_pytree_node
from evergrad.ops.rows.creation.constants import full
from evergrad.ops.rows.indexing.index import INDEX, INDEX_COPY, INDEX_SUM
from evergrad.ops.rows.movement.joining import cat
from evergrad.ops.rows.movement.slices import slice_dim
from evergrad.ops.rows.movement.views import expand, reshape
from evergrad.ragged.value import (
    Tensor,
    Value,
    aligned,
    as_shapes,
    common_shape,
    normal_shape,
    offsets_of,
    tensor,
)

Shapes = tuple[Shape, ...]


class Batch(Value):
    """Values of any shapes, as many as ``batch_shape`` has places.

    ``elements`` has the elements of the first value, then of the second, and so on; ``shapes`` says
    how they divide::

        >>> streams = ragged.batch([[1.0, 2.0], [3.0], [4.0, 5.0, 6.0]])
        >>> ragged.sum(ragged.convolve(streams, streams))
        tensor([  9.,   9., 225.])
    """

    __slots__ = ("_elements", "batch_shape", "shapes")

    def __init__(
        self, elements: Dense, shapes: Sequence[Sequence[int]],
        batch_shape: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        self._elements = elements
        self.shapes: tuple[Shape, ...] = as_shapes(shapes)
        self.batch_shape: tuple[int] | tuple[int, ...] = (
            (len(self.shapes),) if batch_shape is None else tuple(batch_shape)
        )
        count = sum(map(math.prod, self.shapes))
        if elements.ndim != 1 or elements.numel() != count:
            raise ValueError(
                f"Batch(): {len(self.shapes)} shapes with {count} elements in all need a tensor of "
                f"[{count}], got {list(elements.shape)}"
            )
        if math.prod(self.batch_shape) != len(self.shapes):
            raise ValueError(f"Batch(): {len(self.shapes)} values are no {self.batch_shape}")

    @property
    def elements(self) -> Dense:
        return self._elements

    @property
    def layout(self) -> Shapes:
        return self.shapes

    def extended(self, layout: Shapes) -> Dense:
        if layout == self.shapes:
            return self._elements
        target = full((sum(map(math.prod, layout)),), 0, dtype=self.dtype)
        at = from_array(_places_within(self.shapes, layout))
        return bind(INDEX_COPY, target, self._elements, at, start=0, wrap=False)  # type: ignore[no-any-return]

    def rebuilt(self, elements: Dense, layout: Shapes | None = None) -> Batch:
        return raw_batch(elements, self.shapes if layout is None else layout, self.batch_shape)

    def joined(self, other: Batch, shape: Callable[[Shape, Shape], Shape]) -> Shapes:
        if self.batch_shape != other.batch_shape:
            raise ValueError(
                f"batches of {list(self.batch_shape)} and {list(other.batch_shape)} values do not "
                "go together, one by one"
            )
        return tuple(shape(a, b) for a, b in zip(self.shapes, other.shapes, strict=True))

    def _operand(self, symbol: str, other: Any) -> Batch:
        if isinstance(other, Tensor):
            return repeated(other, self.batch_shape)
        return super()._operand(symbol, other)

    def gathered(self, at: Array, shapes: Shapes) -> Dense:
        """The elements at these places, which become the values of other shapes."""
        return bind(INDEX, self._elements, from_array(at), start=0, wrap=False)  # type: ignore[no-any-return]

    def totals(self, terms: Dense) -> Dense:
        """The sum over the elements of each value of something that is computed elementwise."""
        owner = from_array(_owners(self.shapes))
        sums = bind(INDEX_SUM, terms, owner, start=0, extents=(len(self.shapes),))
        return reshape(sums, self.batch_shape)

    def shrunk(self) -> Batch:
        """The smallest representative of each value."""
        array = self._elements.detach().numpy()
        ends = offsets_of([math.prod(s) for s in self.shapes])
        parts = zip(ends, ends[1:], self.shapes, strict=False)
        shapes = tuple(normal_shape(array[begin:end].reshape(s)) for begin, end, s in parts)
        return self.rebuilt(self.gathered(_places_within(shapes, self.shapes), shapes), shapes)

    def chosen(self, numbers: Sequence[int], batch_shape: Shape) -> Batch:
        """The values of these numbers, each as often as it is named."""
        shapes = tuple(self.shapes[i] for i in numbers)
        return raw_batch(self.gathered(_places_of(self.shapes, tuple(numbers)), shapes),
                         shapes, batch_shape)  # fmt: skip

    # -- values -----------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.shapes)

    def unbind(self) -> list[Tensor]:
        """The values one by one, as views of the elements."""
        ends = offsets_of([math.prod(s) for s in self.shapes])
        return [
            Tensor(reshape(slice_dim(self._elements, 0, begin, end), shape))
            for begin, end, shape in zip(ends, ends[1:], self.shapes, strict=False)
        ]

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.unbind())

    def __getitem__(self, index: int | tuple[int, ...]) -> Tensor:
        """The value at a place of the batch."""
        at = index if isinstance(index, tuple) else (index,)
        number = int(np.arange(len(self)).reshape(self.batch_shape)[at])
        ends = offsets_of([math.prod(s) for s in self.shapes])
        part = slice_dim(self._elements, 0, ends[number], ends[number + 1])
        return Tensor(reshape(part, self.shapes[number]))

    def reshape(self, *batch_shape: int) -> Batch:
        """The same values in another arrangement."""
        return Batch(self._elements, self.shapes, batch_shape)

    def tolist(self) -> list[Any]:
        """The elements as nested lists."""
        return [value.tolist() for value in self.detach().unbind()]

    def __repr__(self) -> str:
        return f"ragged.batch({self.tolist()}, batch_shape={self.batch_shape})"


def raw_batch(elements: Dense, shapes: Shapes, batch_shape: Shape) -> Batch:
    """A batch of these parts. Nothing is checked."""
    made = Batch.__new__(Batch)
    made._elements = elements
    made.shapes = shapes
    made.batch_shape = batch_shape
    return made


def batch(values: Any, dtype: Any = None, requires_grad: bool = False) -> Batch:
    """A batch of values (or what :func:`~evergrad.ragged.tensor` takes), with their history.

    ``requires_grad`` makes it a leaf of the graph.

    >>> a, b = ragged.tensor([1.0, 2.0, 3.0]), ragged.tensor([4.0, 5.0])
    >>> ragged.batch([a, b])
    ragged.batch([[1.0, 2.0, 3.0], [4.0, 5.0]], batch_shape=(2,))
    """
    items = [tensor(value, dtype) for value in values]
    if not items:
        return Batch(tensor([], dtype).dense, [])
    elements = cat([reshape(item.dense, (-1,) if item.numel() else (0,)) for item in items])
    if requires_grad:
        elements = elements.detach().clone().requires_grad_()
    return Batch(elements, [item.layout for item in items])


def repeated(value: Tensor, batch_shape: Shape) -> Batch:
    """One value at all places of a batch."""
    count = math.prod(batch_shape)
    rows = expand(reshape(value.dense, (1, value.numel())), (count, value.numel()))
    return raw_batch(reshape(rows, (count * value.numel(),)), (value.layout,) * count, batch_shape)


register_pytree_node(
    Batch,
    lambda x: ((x._elements,), (x.shapes, x.batch_shape)),
    lambda children, context: raw_batch(children[0], *context),
)


# -- places of elements -------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _owners(shapes: Shapes) -> Array:
    """The number of the value that each element belongs to."""
    return np.repeat(np.arange(len(shapes)), [math.prod(s) for s in shapes])


@lru_cache(maxsize=64)
def _places_within(inner: Shapes, outer: Shapes) -> Array:
    """For each element of the values of smaller shapes, its place among those of larger ones."""
    begins = offsets_of([math.prod(s) for s in outer])[:-1]
    if all(len(s) == 1 for s in (*inner, *outer)):
        counts = [s[0] for s in inner]
        own = np.array(offsets_of(counts)[:-1], np.int64)
        shift = np.array(begins, np.int64) - own
        return np.arange(sum(counts)) + np.repeat(shift, counts)
    found = [np.zeros(0, np.int64)]
    for begin, small, large in zip(begins, inner, outer, strict=True):
        part, whole = aligned(small, large)
        grid = np.arange(math.prod(whole)).reshape(whole)
        found.append(begin + grid[tuple(slice(0, n) for n in part)].reshape(-1))
    return np.concatenate(found)


@lru_cache(maxsize=64)
def _places_of(shapes: Shapes, numbers: tuple[int, ...]) -> Array:
    """The places of the elements of the values of these numbers."""
    ends = np.array(offsets_of([math.prod(s) for s in shapes]), np.int64)
    chosen = np.array(numbers, np.int64)
    counts = ends[chosen + 1] - ends[chosen]
    begins = np.cumsum(counts) - counts
    places: Array = np.arange(counts.sum()) + np.repeat(ends[chosen] - begins, counts)
    return places


@lru_cache(maxsize=64)
def kron_places(a: Shapes, b: Shapes) -> tuple[Array, Array]:
    """For each element of the Kronecker products, the places of its two factors."""
    left, right = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    a_begins, b_begins = (offsets_of([math.prod(s) for s in shapes])[:-1] for shapes in (a, b))
    for x, y, at, other in zip(a, b, a_begins, b_begins, strict=True):
        n, m = aligned(x, y)
        grids = [np.arange(math.prod(s)).reshape(s) for s in (n, m)]
        ones = [np.ones(s, np.int64) for s in (n, m)]
        left.append(at + np.kron(grids[0], ones[1]).reshape(-1))
        right.append(other + np.kron(ones[0], grids[1]).reshape(-1))
    return np.concatenate(left), np.concatenate(right)


def summed_groups(values: Batch, groups: Sequence[int], batch_shape: Shape) -> Batch:
    """The sum of the values of each group, in the common shape of the group."""
    count = math.prod(batch_shape)
    shapes: list[Shape] = [(0,)] * count
    for group, shape in zip(groups, values.shapes, strict=True):
        shapes[group] = common_shape(shapes[group], shape)
    targets = tuple(shapes[group] for group in groups)
    begins = np.array(offsets_of([math.prod(s) for s in shapes])[:-1], np.int64)
    own = np.array(offsets_of([math.prod(s) for s in targets])[:-1], np.int64)
    shift = (begins[list(groups)] - own) if groups else own
    at = _places_within(values.shapes, targets)
    counts = [math.prod(s) for s in values.shapes]
    at = at + np.repeat(shift, counts)
    total = sum(map(math.prod, shapes))
    elements = bind(INDEX_SUM, values.elements, from_array(at), start=0, extents=(total,))
    return raw_batch(elements, tuple(shapes), batch_shape)
