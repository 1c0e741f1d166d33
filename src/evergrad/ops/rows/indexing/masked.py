"""Reading and writing under masks.

Filling needs no more than the mask; what has as many elements as the mask is true has a shape that
depends on data, so those functions read the mask (and cannot be traced through it), then go through
the same rows as an index would.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import bind
from evergrad.core.namespace import late_bound
from evergrad.core.shapes import broadcast_shapes
from evergrad.core.tensor import Tensor, from_array
from evergrad.ops.rows.elementwise.basic import WHERE
from evergrad.ops.rows.indexing.arguments import fill_value
from evergrad.ops.rows.indexing.index import INDEX, INDEX_COPY
from evergrad.ops.rows.movement.slices import slice_dim
from evergrad.ops.rows.movement.views import expand, reshape
from evergrad.ops.surface.public import expose


def _require_mask(name: str, mask: Any) -> None:
    if not isinstance(mask, Tensor):
        raise TypeError(f"{name}(): argument 'mask' must be Tensor, not {type(mask).__name__}")
    if mask.dtype is not dtypes.bool_:
        raise RuntimeError(
            f"{name} only supports boolean masks, but got mask with dtype {mask.dtype.name}"
        )


def _places(mask: Tensor) -> Tensor:
    """The numbers of the elements where a mask holds."""
    return from_array(np.flatnonzero(mask.array()))


@expose(inplace=True, out=False)
def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:
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
    places = _places(expand(mask, shape))
    count = places._type.numel
    if source._type.numel < count:
        raise RuntimeError("Number of elements of source < number of ones in mask")
    given = slice_dim(reshape(source, -1), 0, 0, count)
    flat = reshape(expand(input, shape), -1)
    return reshape(bind(INDEX_COPY, flat, given, places, start=0, wrap=True), shape)


@late_bound
@expose()
def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """Where the elements are not zero: a row for each, or an index tensor for each dimension."""
    found = input.array() != 0
    if not as_tuple:
        return from_array(np.argwhere(found).astype(np.int64, copy=False))
    return tuple([from_array(places) for places in np.atleast_1d(found).nonzero()])


@expose(out=False)
def argwhere(input: Tensor) -> Tensor:
    """Where the elements are not zero, a row for each."""
    return nonzero(input)  # type: ignore[no-any-return]
