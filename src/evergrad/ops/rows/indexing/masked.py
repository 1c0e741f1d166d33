"""Reading and writing under masks.

Filling needs no more than the mask; what has as many elements as the mask is true has a shape that
depends on data, so those functions read the mask, then go through the same rows as an index would.
A compiled function reads only how many elements are true, if it can, and its program is for that
many. Writes have the shape of what they are written to: inside a trace each element looks up its
value by the prefix sum of the mask.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import bind, cast
from evergrad.core.functionalize import data_size
from evergrad.core.namespace import late_bound
from evergrad.core.shapes import Shape, broadcast_shapes
from evergrad.core.tensor import Tensor, from_array
from evergrad.core.tracing import is_known
from evergrad.errors import ShapeError
from evergrad.ops.rows.check import require
from evergrad.ops.rows.creation.constants import arange, zeros
from evergrad.ops.rows.elementwise.basic import WHERE
from evergrad.ops.rows.indexing.arguments import fill_value
from evergrad.ops.rows.indexing.index import INDEX, INDEX_COPY
from evergrad.ops.rows.movement.joining import stack
from evergrad.ops.rows.movement.slices import slice_dim
from evergrad.ops.rows.movement.views import clone, expand, reshape
from evergrad.ops.rows.reduce.scan import cumsum
from evergrad.ops.rows.reduce.sums import sum as total
from evergrad.ops.surface.public import expose

# Of larger masks NumPy finds the places in less time than a prefix sum takes.
_MOST_TRACED = 1 << 16


def _require_mask(name: str, mask: Tensor) -> None:
    if not isinstance(mask, Tensor):
        raise TypeError(f"{name}(): argument 'mask' must be Tensor, not {type(mask).__name__}")
    if mask.dtype is not dtypes.bool_:
        raise RuntimeError(
            f"{name} only supports boolean masks, but got mask with dtype {mask.dtype.name}. "
            "Compare (mask > 0), or convert with .bool()."
        )


def _places(mask: Tensor) -> Tensor:
    """The numbers of the elements where a mask holds."""
    found = None if is_known(mask) else traced_places(mask)
    return from_array(np.flatnonzero(mask.array())) if found is None else found


def traced_places(mask: Tensor) -> Tensor | None:
    """The same where only the count of these is read; ``None`` if that is not possible."""
    extent = mask._type.numel
    if not 0 < extent <= _MOST_TRACED:
        return None
    ranks, total_count = ranks_of(reshape(mask, -1))
    count = data_size(total_count)
    if count is None:
        return None
    # Elements where it does not hold write to the place behind the others.
    targets = bind(WHERE, reshape(mask, -1), ranks, count)
    empty = zeros(count + 1, dtype=dtypes.int64)
    found = bind(INDEX_COPY, empty, arange(extent), targets, start=0, wrap=False)
    return slice_dim(found, 0, 0, count)


@expose(inplace=True, out=False)
def masked_fill(input: Tensor, mask: Tensor, value: object) -> Tensor:
    """A number, or a 0-d tensor, where the mask holds."""
    _require_mask("masked_fill_", mask)
    value = fill_value("masked_fill_", input, value)
    return bind(WHERE, mask, value, input)  # type: ignore[no-any-return]


@expose()
def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where the mask holds, in one dimension."""
    _require_mask("masked_select", mask)
    shape = broadcast_shapes(input._type.shape, mask._type.shape)
    places = _places(expand(mask, shape))
    flat = reshape(expand(input, shape), -1)
    return bind(INDEX, flat, places, start=0, wrap=True)  # type: ignore[no-any-return]


@expose(inplace=True, out=False)
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """The elements where the mask holds replaced by those of ``source``, one after the other."""
    _require_mask("masked_scatter_", mask)
    if source.dtype is not input.dtype:
        raise RuntimeError(
            "masked_scatter: expected self and source to have same dtypes but got "
            f"{input.dtype.name} and {source.dtype.name}"
        )
    shape = broadcast_shapes(input._type.shape, mask._type.shape)
    if not is_known(mask):
        return _scattered(expand(input, shape), expand(mask, shape), source)
    places = _places(expand(mask, shape))
    count = places._type.numel
    if source._type.numel < count:
        raise RuntimeError("Number of elements of source < number of ones in mask")
    given = slice_dim(reshape(source, -1), 0, 0, count)
    flat = reshape(expand(input, shape), -1)
    return reshape(bind(INDEX_COPY, flat, given, places, start=0, wrap=True), shape)


def _scattered(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """``masked_scatter`` inside a trace: each element looks up its own in the source."""
    ranks, count = ranks_of(mask)
    require(
        count <= source._type.numel, RuntimeError,
        lambda: "Number of elements of source < number of ones in mask",
    )  # fmt: skip
    if not source._type.numel:
        return clone(input)
    found = bind(INDEX, reshape(source, -1), ranks, start=0, wrap=False)
    return bind(WHERE, mask, found, input)  # type: ignore[no-any-return]


def ranks_of(mask: Tensor) -> tuple[Tensor, Tensor]:
    """For each element where a mask holds how many do before it (0 elsewhere), and the count of
    all: with a prefix sum the shapes do not depend on data."""
    numbers = cast(reshape(mask, -1), dtypes.int64)
    ranks = reshape(cumsum(numbers, 0) - numbers, mask._type.shape)
    return bind(WHERE, mask, ranks, 0), total(numbers)


def masked_values(view: Tensor, dim: int, mask: Tensor, value: Tensor) -> Tensor:
    """For each element of ``view`` what ``view[mask] = value`` writes there, if the mask (of the
    dimensions from ``dim`` on) holds: a lookup, so that it can be traced."""
    shape, lead = view._type.shape, view._type.shape[:dim]
    behind = shape[dim + mask.ndim :]
    own = value._type.shape
    extra = len(own) - len(lead) - 1 - len(behind)
    if extra > 0 and all(n == 1 for n in own[:extra]):
        value = reshape(value, own[extra:])
    at = value.ndim - len(behind) - 1  # the dimension with an element for each that is true
    given = value._type.shape[at] if at >= 0 else 1
    ranks, count = ranks_of(mask)

    def message() -> str:
        found = ", ".join([*map(str, lead), f"{count}", *map(str, behind)])
        return (
            f"shape mismatch: value tensor of shape {list(own)} cannot be broadcast to indexing "
            f"result of shape [{found}]"
        )

    if given != 1:
        require(count == given, ShapeError, message)
    try:
        value = expand(value, (*lead, given, *behind))
    except RuntimeError:
        require(count < 0, ShapeError, message)  # whatever the mask is
    if given == 1:
        return reshape(value, (*lead, *(1,) * mask.ndim, *behind))
    if given == 0:
        return zeros(shape, dtype=view.dtype)
    return bind(INDEX, value, ranks, start=len(lead), wrap=False)  # type: ignore[no-any-return]


def _holds(input: Tensor) -> Tensor:
    return input if input.dtype is dtypes.bool_ else input != 0


def _coordinates(places: Tensor, shape: Shape) -> tuple[Tensor, ...]:
    """The index of elements in each dimension, by their numbers."""
    steps = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
    return tuple([places // step % n for step, n in zip(steps, shape, strict=True)])


@late_bound
@expose()
def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """Where the elements are not zero: a row for each, or an index tensor for each dimension."""
    places = None if is_known(input) or not input.ndim else traced_places(_holds(input))
    if places is not None:
        rows = _coordinates(places, input._type.shape)
        return rows if as_tuple else stack(rows, 1)
    found = input.array() != 0
    if not as_tuple:
        return from_array(np.argwhere(found).astype(np.int64, copy=False))
    return tuple([from_array(places) for places in np.atleast_1d(found).nonzero()])


@expose(out=False)
def argwhere(input: Tensor) -> Tensor:
    """Where the elements are not zero, a row for each."""
    return nonzero(input)  # type: ignore[no-any-return]
