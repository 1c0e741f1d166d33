"""Many values of any shapes without padding: all elements in one dimension, and the shapes.

Rows move elements between layouts: ``extend_items`` and ``restrict_items`` into larger shapes and
back, ``index`` and ``index_sum`` by an index for each element, made of the shapes with NumPy and
kept for the layouts seen last. They have each other as transposes. So time and memory follow the
number of elements, never the largest shape times the number of values.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core.bind import bind, bind_and_prepare, bind_prepared_list, cast
from evergrad.core.dtypes import FLOATING, int64
from evergrad.core.op import prepared_calls
from evergrad.core.shapes import Shape
from evergrad.core.tensor import Array
from evergrad.core.tensor import Tensor as Dense
from evergrad.core.tree import register_pytree_node
from evergrad.extension import provides
from evergrad.ops.rows.creation.constants import zeros
from evergrad.ops.rows.indexing.functions import index_reduce
from evergrad.ops.rows.indexing.index import INDEX, INDEX_SUM
from evergrad.ops.rows.movement.item_layouts import places_within
from evergrad.ops.rows.movement.items import (
    ADD_ITEMS,
    MUL_ITEMS,
    SUB_ITEMS,
    extend_items,
    restrict_items,
)
from evergrad.ops.rows.movement.joining import cat
from evergrad.ops.rows.movement.slices import slice_dim
from evergrad.ops.rows.movement.views import expand, reshape
from evergrad.ops.rows.reduce.item_sums import sum_items
from evergrad.ops.surface.convert import adopt
from evergrad.ragged.value import (
    Tensor,
    Value,
    aligned,
    as_shapes,
    check_shapes,
    common_shape,
    is_place,
    normal_shape,
    offsets_of,
    refuse_nested,
    tensor,
)

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction, Leaves

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
        self.shapes: tuple[Shape, ...] = _interned(as_shapes(shapes))
        self.batch_shape: tuple[int] | tuple[int, ...] = (
            (len(self.shapes),) if batch_shape is None else as_shapes([batch_shape])[0]
        )
        check_shapes("Batch()", (*self.shapes, self.batch_shape))
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
        return extend_items(self._elements, self.shapes, layout)

    def combined(self, function: AnyFunction, other: Batch) -> Batch:
        """One row that makes one pass over the elements of the result."""
        a, b = self._elements, other._elements
        own, second = self.shapes, other.shapes
        if own is second and self.batch_shape == other.batch_shape:
            return raw_batch(function(a, b), own, self.batch_shape)
        # Equal layouts are one object, or they are compared element by element here.
        key = function, id(own), id(second), a._type, b._type
        prepared = _COMBINED.get(key)
        if prepared is not None and self.batch_shape == other.batch_shape:
            attrs = prepared.attrs
            inner = attrs["inner"]
            if inner[0] is own and inner[1] is second:
                found = bind_prepared_list(prepared, (a, b))
                return raw_batch(found, attrs["outer"], self.batch_shape)
        if a._type.dtype is not b._type.dtype or not a._type.dtype.is_floating_point:
            return super().combined(function, other)
        layout = self.joined(other, common_shape)
        if own == second:
            return self.rebuilt(function(a, b), layout)
        layouts = {"inner": (own, second), "outer": layout}
        found = bind_and_prepare(_COMBINED, key, _ROWS[function], a, b, **layouts)
        return self.rebuilt(found, layout)

    def rebuilt(self, elements: Dense, layout: Shapes | None = None) -> Batch:
        return raw_batch(elements, self.shapes if layout is None else layout, self.batch_shape)

    def joined(self, other: Batch, shape: Callable[[Shape, Shape], Shape]) -> Shapes:
        if self.batch_shape != other.batch_shape:
            raise ValueError(
                f"batches of {list(self.batch_shape)} and {list(other.batch_shape)} values do not "
                "go together, one by one"
            )
        return _joined(self.shapes, other.shapes, shape)

    def maker(self) -> Callable[..., Batch]:
        return partial(raw_batch, shapes=self.shapes, batch_shape=self.batch_shape)

    def __reduce__(self) -> tuple[object, ...]:
        return Batch, (self._elements, self.shapes, tuple(self.batch_shape))

    def _operand(self, symbol: str, other: object) -> Batch:
        if type(other) is Batch:
            return other
        if isinstance(other, Tensor):
            return repeated(other, self.batch_shape)
        return super()._operand(symbol, other)

    def gathered(self, at: Array, shapes: Shapes) -> Dense:
        """The elements at these places, which become the values of other shapes."""
        return bind(INDEX, self._elements, adopt(at), start=0, wrap=False)  # type: ignore[no-any-return]

    def maxima(self, terms: Dense) -> Dense:
        """The largest of what is computed elementwise for each value, zero where nothing is."""
        owner = adopt(_owners(self.shapes))
        none = zeros((len(self.shapes),), dtype=terms.dtype)
        return reshape(index_reduce(none, 0, owner, terms, "amax"), self.batch_shape)

    def totals(self, terms: Dense) -> Dense:
        """The sum over the elements of each value of something that is computed elementwise; of
        integers and bools as int64."""
        if terms._type.dtype.category < FLOATING:
            terms = cast(terms, int64)
        if terms._type.dtype.is_floating_point:
            return reshape(sum_items(terms, self.shapes), self.batch_shape)
        owner = adopt(_owners(self.shapes))
        sums = bind(INDEX_SUM, terms, owner, start=0, extents=(len(self.shapes),))
        return reshape(sums, self.batch_shape)

    def shrunk(self) -> Batch:
        """The smallest representative of each value."""
        array = self._elements.detach().numpy()
        ends = offsets_of([math.prod(s) for s in self.shapes])
        parts = zip(ends, ends[1:], self.shapes, strict=False)
        shapes = tuple(normal_shape(array[begin:end].reshape(s)) for begin, end, s in parts)
        return self.rebuilt(restrict_items(self._elements, shapes, self.shapes), shapes)

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
        if len(at) != len(self.batch_shape) or not all(map(is_place, at)):
            raise IndexError(
                f"a batch of {list(self.batch_shape)} values takes as many integers, got {index}"
            )
        number = int(np.arange(len(self)).reshape(self.batch_shape)[at])
        ends = offsets_of([math.prod(s) for s in self.shapes])
        part = slice_dim(self._elements, 0, ends[number], ends[number + 1])
        return Tensor(reshape(part, self.shapes[number]))

    def reshape(self, *batch_shape: Any) -> Batch:
        """The same values in another arrangement; one extent may be -1, which follows from the
        others."""
        try:
            arranged = np.empty(len(self)).reshape(*batch_shape)
        except ValueError:
            raise ValueError(f"reshape(): {len(self)} values are no {batch_shape}") from None
        return Batch(self._elements, self.shapes, arranged.shape)

    def tolist(self) -> Leaves:
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


@provides("ragged_value")
def from_parts(elements: Dense, *layout: Any) -> Tensor | Batch:
    """The value that a file has, from its parts: checked as by the constructors."""
    return Batch(elements, *layout) if layout else Tensor(elements)


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


# The rows that combine batches, and the calls of them that were made before.
_ROWS = {operator.add: ADD_ITEMS, operator.sub: SUB_ITEMS, operator.mul: MUL_ITEMS}
_COMBINED = prepared_calls()


def _unflattened(children: Sequence[Any], layout: tuple[Shapes, Shape]) -> Batch:
    refuse_nested(children[0])
    if isinstance(children[0], Dense) and children[0].ndim != 1:
        raise TypeError(
            "a ragged.Batch has its elements in one dimension: vmap can neither map over it nor "
            "stack several.\n  fix: map over other arguments and return x.elements, or use a batch "
            "of more values, which its functions take one by one."
        )
    return raw_batch(children[0], *layout)


register_pytree_node(Batch, lambda x: ((x._elements,), (x.shapes, x.batch_shape)), _unflattened)


# -- layouts and places of elements -------------------------------------------------------------


@lru_cache(maxsize=256)
def _interned(shapes: Shapes) -> Shapes:
    """One object for equal layouts."""
    return shapes


@lru_cache(maxsize=64)
def _joined(a: Shapes, b: Shapes, shape: Callable[[Shape, Shape], Shape]) -> Shapes:
    """The shapes of the results for pairs of operands."""
    return _interned(tuple(map(shape, a, b)))


@lru_cache(maxsize=64)
def _owners(shapes: Shapes) -> Array:
    """The number of the value that each element belongs to."""
    return np.repeat(np.arange(len(shapes)), [math.prod(s) for s in shapes])


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
    at = places_within(values.shapes, targets)
    counts = [math.prod(s) for s in values.shapes]
    at = at + np.repeat(shift, counts)
    total = sum(map(math.prod, shapes))
    elements = bind(INDEX_SUM, values.elements, adopt(at), start=0, extents=(total,))
    return raw_batch(elements, tuple(shapes), batch_shape)
