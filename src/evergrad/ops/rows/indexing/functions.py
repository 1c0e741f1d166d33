"""Reading and writing at indices and under masks, by function.

``x[...]`` itself is in :mod:`evergrad.ops.rows.indexing.getitem`. What depends on the values of a
mask (``nonzero``, ``masked_select``) reads the array, then goes through the same rows as an index
would.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evergrad.core import dtypes
from evergrad.core.autocast import autocast_policy
from evergrad.core.bind import bind, cast
from evergrad.core.functionalize import data_size
from evergrad.core.namespace import late_bound
from evergrad.core.op import Op
from evergrad.core.prepared import prepared
from evergrad.core.row_facts import AutocastPolicy
from evergrad.core.shapes import Shape, broadcast_shapes, normalize_dim
from evergrad.core.state import STATE
from evergrad.core.tensor import Tensor
from evergrad.core.tracing import is_known
from evergrad.core.types import Array
from evergrad.errors import ShapeError
from evergrad.extension import ExtensionPoint
from evergrad.ops.rows.check import require
from evergrad.ops.rows.creation.constants import arange
from evergrad.ops.rows.elementwise.basic import WHERE
from evergrad.ops.rows.indexing.arguments import (
    Write,
    at_least_1d,
    checked_number,
    fill_value,
    require_dtype,
    require_index,
    writing,
)
from evergrad.ops.rows.indexing.index import EMBEDDING, INDEX, INDEX_ADD, INDEX_COPY
from evergrad.ops.rows.indexing.masked import (
    argwhere,
    masked_fill,
    masked_scatter,
    masked_select,
    masked_values,
    nonzero,
)
from evergrad.ops.rows.indexing.scatter import (
    gather,
    scatter,
    scatter_add,
    scatter_reduce,
    take_along_dim,
)
from evergrad.ops.rows.movement.views import expand, reshape
from evergrad.ops.rows.reduce.extrema import amax, argmax
from evergrad.ops.surface.public import NUMBERS, expose

_sparse_lookup: ExtensionPoint[..., Tensor] = ExtensionPoint("sparse_lookup")

# -- whole slices by number ---------------------------------------------------------------------


def _vector_write(
    name: str, op: Op, input: Tensor, dim: int, index: Tensor, source: Tensor
) -> Write:
    """A write of whole slices: ``source`` has one for each index."""
    require_dtype(name, input, source)
    error = IndexError if op is INDEX_COPY else ShapeError
    if source.ndim != input.ndim:
        raise error(
            f"{name}(): When source and destination are not scalars, their dimensionality must "
            f"match. Source dimensionality ({source.ndim}), destination dimensionality "
            f"({input.ndim})"
        )
    dim = normalize_dim(dim, input.ndim)
    target, source = at_least_1d(input), at_least_1d(source)
    count = source._type.shape[dim]
    if count != index._type.numel:
        raise error(
            f"{name}(): Number of indices ({index._type.numel}) should be equal to "
            f"source.size(dim) ({count}) for dim {dim}"
        )
    shape = target._type.shape
    if source._type.shape != (*shape[:dim], count, *shape[dim + 1 :]):
        raise ShapeError(
            f"{name}(): source tensor shape must match self tensor shape, excluding the specified "
            f"dimension. Got self.shape = {list(shape)} source.shape = {list(source._type.shape)}"
        )
    return op, (target, source, index), {"start": dim, "wrap": False}


@late_bound
@expose(numpy_names=True)
@prepared
def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices of a dimension with the given numbers."""
    index = require_index("index_select", index)
    dim = normalize_dim(dim, input.ndim)
    if input.ndim:
        return bind(INDEX, input, index, start=dim, wrap=False)  # type: ignore[no-any-return]
    if index._type.numel != 1:
        raise RuntimeError(
            f"index_select(): Index to scalar can have only 1 value, got {index._type.numel} "
            "value(s)"
        )
    return reshape(bind(INDEX, reshape(input, (1,)), index, start=0, wrap=False), ())


@late_bound
@writing
def index_add(
    input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: object = 1
) -> Write:
    """``alpha * source`` added, slice by slice, to the slices with the given numbers."""
    index = require_index("index_add_", index)
    if not (type(alpha) in NUMBERS and alpha == 1):
        source = source * checked_number(alpha, source.dtype)
    return _vector_write("index_add_", INDEX_ADD, input, dim, index, source)


@writing
@autocast_policy(AutocastPolicy.WIDEST)
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Write:
    """The slices with the given numbers replaced by those of ``source``."""
    index = require_index("index_copy_", index, int32=False)
    return _vector_write("index_copy_", INDEX_COPY, input, dim, index, source)


@writing
def index_fill(input: Tensor, dim: int, index: Tensor, value: object) -> Write:
    """The slices with the given numbers filled with one number."""
    index = require_index("index_fill_", index, int32=False)
    value = fill_value("index_fill_", input, value)
    dim = normalize_dim(dim, input.ndim)
    return INDEX_COPY, (at_least_1d(input), value, index), {"start": dim, "wrap": True}


@expose(inplace=True, numpy_names=True)
def index_reduce(
    input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *,
    include_self: bool = True,
) -> Tensor:  # fmt: skip
    """The slices with the given numbers folded with those of ``source``."""
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise RuntimeError(
            "index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got "
            f"{reduce}."
        )
    index = require_index("index_reduce", index)
    _, (target, source, index), attrs = _vector_write(
        "index_reduce", INDEX_ADD, input, dim, index, source
    )
    dim = attrs["start"]
    along = (1,) * dim + index._type.shape + (1,) * (target.ndim - dim - 1)
    places = expand(reshape(index, along), source._type.shape)
    folded = scatter_reduce(target, dim, places, source, reduce, include_self=include_self)
    return reshape(folded, input._type.shape)


@expose(method=False, out=False)
def embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:  # fmt: skip
    """Rows of a table. The row ``padding_idx`` gets no gradient; with ``sparse`` the gradient
    names only the rows that were looked up."""
    if weight.ndim != 2:
        raise RuntimeError("'weight' must be 2-D")
    indices = require_index("embedding", indices, vector=False)
    trace = STATE.get().trace
    if sparse and weight.requires_grad and trace is not None:
        trace.note_sparse(weight, padding_idx < 0 and not scale_grad_by_freq)
    if sparse and weight.requires_grad and (trace is None or trace.is_off):
        return _sparse_lookup(weight, indices, padding_idx, bool(scale_grad_by_freq))
    if padding_idx < 0 and not scale_grad_by_freq:
        return bind(INDEX, weight, indices, start=0, wrap=False)  # type: ignore[no-any-return]
    return bind(  # type: ignore[no-any-return]
        EMBEDDING, weight, indices, padding_idx=padding_idx, by_frequency=bool(scale_grad_by_freq)
    )


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """A last dimension that is 1 at the place the number names and 0 elsewhere."""
    if tensor.dtype is not dtypes.int64:
        raise RuntimeError(
            "one_hot is only applicable to index tensor of type LongTensor. Got "
            f"{tensor.dtype.name}; convert it with .long()."
        )
    if not tensor._type.numel:
        if num_classes <= 0:
            raise RuntimeError("Can not infer total number of classes from empty tensor.")
    elif num_classes == -1 and (greatest := _greatest(tensor)) is not None:
        require(tensor >= 0, RuntimeError, lambda: "Class values must be non-negative.")
        num_classes = greatest + 1
    elif num_classes == -1 or is_known(tensor):
        num_classes = _checked_classes(tensor.array(), num_classes)
    else:
        require(tensor >= 0, RuntimeError, lambda: "Class values must be non-negative.")
        require(
            tensor < num_classes, RuntimeError,
            lambda: "Class values must be smaller than num_classes.",
        )  # fmt: skip
    places = arange(num_classes)
    return cast(reshape(tensor, (*tensor._type.shape, 1)) == places, dtypes.int64)


def _greatest(tensor: Tensor) -> int | None:
    """The greatest element as a size that depends on the data; ``None`` if it can be read."""
    return None if is_known(tensor) else data_size(amax(tensor))


def _checked_classes(classes: Array, count: int) -> int:
    if np.minimum.reduce(classes, axis=None) < 0:
        raise RuntimeError("Class values must be non-negative.")
    most = np.maximum.reduce(classes, axis=None)
    if count == -1:
        return int(most) + 1
    if most >= count:
        raise RuntimeError("Class values must be smaller than num_classes.")
    return count


def first_where(mask: Tensor, values: Tensor) -> Tensor:
    """The first of the values for which a mask of their shape holds; for messages."""
    place = argmax(cast(reshape(mask, -1), dtypes.uint8))
    return reshape(index_select(reshape(values, -1), 0, place), ())


# -- single elements ----------------------------------------------------------------------------


@expose()
def take(input: Tensor, index: Tensor) -> Tensor:
    """The elements with the given numbers, counted through the whole tensor."""
    index = require_index("take", index, int32=False, vector=False)
    return bind(INDEX, reshape(input, -1), index, start=0, wrap=True)  # type: ignore[no-any-return]


@expose(inplace=True)
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """The elements with the given numbers replaced by, or added to, those of ``source``."""
    index = require_index("put_", index, int32=False, vector=False)
    require_dtype("put_", input, source)
    if source._type.numel != index._type.numel:
        raise IndexError(
            "put_(): Expected source and index to have the same number of elements, but got "
            f"source.numel() = {source._type.numel}, index.numel() = {index._type.numel}"
        )
    row = INDEX_ADD if accumulate else INDEX_COPY
    flat = bind(
        row, reshape(input, -1), reshape(source, -1), reshape(index, -1), start=0, wrap=True
    )
    return reshape(flat, input._type.shape)


@writing
def index_put(
    input: Tensor, indices: Sequence[Tensor], values: Tensor, accumulate: bool = False
) -> Write:
    """``input[indices] = values``, or ``+=`` where repeated places add up."""
    if not isinstance(indices, (tuple, list)):
        raise TypeError(
            "index_put(): argument 'indices' (position 1) must be tuple of Tensors, not "
            f"{type(indices).__name__}"
        )
    for i, index in enumerate(indices):
        if not isinstance(index, Tensor):
            raise TypeError(
                f"index_put(): expected Tensor as element {i} in argument 0, but got "
                f"{type(index).__name__}"
            )
    if len(indices) == 1 and is_mask(indices[0]) and not is_known(indices[0]):
        return _masked_write(input, indices[0], values, accumulate)
    places: list[Tensor] = []
    for index in indices:
        require_index_fits(index, input._type.shape, len(places))
        places += places_of(index)
    return write_at(input, places, values, 0, accumulate=accumulate)


def _masked_write(input: Tensor, index: Tensor, values: Tensor, accumulate: bool) -> Write:
    """``input[mask] = values`` where the mask cannot be read."""
    require_index_fits(index, input._type.shape, 0)
    require_same_dtype(input, values)
    mask = cast(index, dtypes.bool_)
    found = masked_values(input, 0, mask, values)
    there = reshape(mask, (*mask._type.shape, *(1,) * (input.ndim - mask.ndim)))
    return WHERE, (there, found + input if accumulate else found, input), {}


def is_mask(index: Tensor) -> bool:
    return index.dtype is dtypes.bool_ or index.dtype is dtypes.uint8


def places_of(index: Tensor) -> Sequence[Tensor]:
    """An index tensor for each dimension that an index or a mask covers."""
    return nonzero(index, as_tuple=True) if is_mask(index) else (index,)


def require_index_fits(index: Tensor, shape: Shape, dim: int) -> None:
    """Raise unless a tensor can be an index, or a mask, of the dimensions from ``dim`` on."""
    if index.dtype not in (dtypes.int64, dtypes.int32, dtypes.bool_, dtypes.uint8):
        raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
    own = index._type.shape
    if dim + (len(own) if is_mask(index) else 1) > len(shape):
        raise IndexError(f"too many indices for tensor of dimension {len(shape)}")
    for i, extent in enumerate(own if is_mask(index) else ()):
        if extent != shape[dim + i]:
            raise IndexError(
                f"The shape of the mask {list(own)} at index {i} does not match the shape of the "
                f"indexed tensor {list(shape)} at index {dim + i}"
            )


def shape_at(input: Tensor, places: Sequence[Tensor], start: int) -> Shape:
    """The shape of what stands at the places."""
    shapes = [p._type.shape for p in places]
    try:
        found = broadcast_shapes(*shapes)
    except ShapeError:
        listed = ", ".join(str(list(s)) for s in shapes)
        raise IndexError(
            "shape mismatch: indexing tensors could not be broadcast together with shapes " + listed
        ) from None
    shape = input._type.shape
    return (*shape[:start], *found, *shape[start + len(places) :])


def write_at(
    input: Tensor, places: Sequence[Tensor], values: object, start: int, *, accumulate: bool = False
) -> Write:
    """The write of a number or of broadcast values at index tensors."""
    attrs = {"start": start, "wrap": True}
    shape = shape_at(input, places, start)
    if isinstance(values, Tensor):
        require_same_dtype(input, values)
        values = _broadcast_values(values, shape)
    return INDEX_ADD if accumulate else INDEX_COPY, (input, values, *places), attrs


def require_same_dtype(input: Tensor, values: Tensor) -> None:
    if values.dtype is not input.dtype:
        raise RuntimeError(
            "Index put requires the source and destination dtypes match, got "
            f"{input.dtype.name} for the destination and {values.dtype.name} for the source."
        )


def _broadcast_values(values: Tensor, shape: Shape) -> Tensor:
    """Expanded to the indexed shape; leading dimensions of one may be too many."""
    own = values._type.shape
    extra = len(own) - len(shape)
    if extra > 0 and all(n == 1 for n in own[:extra]):
        values = reshape(values, own[extra:])
    try:
        return values if values._type.shape == shape else expand(values, shape)
    except RuntimeError:
        raise ShapeError(
            f"shape mismatch: value tensor of shape {list(own)} cannot be broadcast to indexing "
            f"result of shape {list(shape)}"
        ) from None


__all__ = [
    "argwhere", "embedding", "gather", "index_add", "index_copy", "index_fill", "index_put",
    "index_reduce", "index_select", "masked_fill", "masked_scatter", "masked_select", "nonzero",
    "one_hot", "put", "scatter", "scatter_add", "scatter_reduce", "take", "take_along_dim",
]  # fmt: skip
