"""Rows that read and write at index tensors: ``x[i, j]``, ``index_select``, ``embedding``.

A row takes one index tensor for each of some adjacent dimensions, beginning at ``start``; the
broadcast shape of the index tensors stands in their place. Where places repeat, the source is added
in its own order, so the numbers are the same on every run. The functions are in
:mod:`evergrad.ops.rows.indexing.functions`, rows with one place per element in
:mod:`evergrad.ops.rows.indexing.scatter`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import bind
from evergrad.core.dtypes import dtype
from evergrad.core.eager import lanes
from evergrad.core.families import linear, opaque
from evergrad.core.op import Op
from evergrad.core.row_facts import (
    AutocastPolicy,
    Cost,
    EagerKernel,
    Indexing,
    lowered,
)
from evergrad.core.shapes import (
    Shape,
    TensorType,
    broadcast_shapes,
    tensor_type,
)
from evergrad.core.tensor import Array, Tensor
from evergrad.ops.rows.creation.constants import arange, ones, zeros_like
from evergrad.ops.rows.elementwise.basic import where
from evergrad.ops.rows.movement.views import expand, movedim, reshape, sum_to_type, to_front
from evergrad.ops.rows.reduce.pairwise import pairwise_sum
from evergrad.ops.rows.reduce.sums import sum as total

Dims = Sequence[int | None]

# Adding up whole groups of rows costs this many times more per group than per element added.
_GROUP_COST = 2048

# Rows from this width on are added whole if no place gets more than so many of them.
_WIDE, _TURNS = 8, 8

# Elements added at a time: their numbers take eight bytes each.
_PIECE = 65536


# -- places -------------------------------------------------------------------------------------

Refusal = Callable[[str], Exception]

_INT64, _UINT64 = np.dtype(np.int64), np.dtype(np.uint64)


def in_bounds(index: Array, extent: int, dim: int, wrap: bool, error: Refusal) -> Array:
    """The index counted from the front; ``wrap`` lets negative ones count from the end."""
    if not index.size:
        return index
    if index.dtype is _INT64 and np.maximum.reduce(index.view(_UINT64), axis=None) < extent:
        return index  # negative ones would be huge
    low, high = np.minimum.reduce(index, axis=None), np.maximum.reduce(index, axis=None)
    if high >= extent or low < (-extent if wrap else 0):
        place = high if high >= extent else low
        raise error(f"index {place} is out of bounds for dimension {dim} with size {extent}")
    return np.where(index < 0, index + extent, index) if low < 0 else index


def _all_in_bounds(
    indices: Sequence[Any], extents: Shape, wrap: bool, error: Refusal
) -> tuple[Any, ...]:
    return tuple(
        [
            in_bounds(index, extent, dim, wrap, error)
            for dim, (index, extent) in enumerate(zip(indices, extents, strict=True))
        ]
    )


def start_from(x: Array, out: Array | None) -> Array:
    """A copy of ``x`` to write to: ``out`` where it is given, which may be ``x`` itself."""
    if out is None:
        return x.copy()
    if out is not x:
        np.copyto(out, x)
    return out


# -- index: read --------------------------------------------------------------------------------


def _index_type(x: TensorType, *indices: TensorType, start: int, wrap: bool) -> TensorType:
    found = broadcast_shapes(*[i.shape for i in indices])
    return tensor_type((*x.shape[:start], *found, *x.shape[start + len(indices) :]), x.dtype)


def _not_in_self(text: str) -> IndexError:
    return IndexError(f"index out of range in self: {text}")


def _index_eval(x: Array, *indices: Any, start: int, wrap: bool, out: Any = None) -> object:
    extents = x.shape[start : start + len(indices)]
    if len(indices) > 1 and any(not i.size for i in indices):
        return _nothing(x, indices, start)
    single = len(indices) == 1 and x.flags.c_contiguous
    if not wrap or out is not None:
        indices = _all_in_bounds(indices, extents, wrap, IndexError if wrap else _not_in_self)
        if single:
            return x.take(indices[0], start, out, "clip")
    try:  # NumPy checks the bounds as well, but has other words for it
        found = x.take(indices[0], start) if single else x[(slice(None),) * start + indices]
    except IndexError:
        _all_in_bounds(indices, extents, wrap, IndexError)
        raise
    if found.ndim == x.ndim - len(indices):  # only 0-d indices: NumPy gives a number, or a view
        return np.array(found)
    if out is not None and not found.flags.c_contiguous:
        np.copyto(out, found)
        return out
    return found


def _nothing(x: Array, indices: tuple[Array, Array], start: int) -> Array:
    """The elements at no places; what the other indices say is not looked at."""
    found = np.broadcast_shapes(*[i.shape for i in indices])
    return np.zeros((*x.shape[:start], *found, *x.shape[start + len(indices) :]), x.dtype)


def _index_transpose(
    g: Tensor, x: Tensor, *indices: Tensor, start: int, wrap: bool
) -> tuple[Tensor | None, ...]:
    extents = x._type.shape[start : start + len(indices)]
    return bind(INDEX_SUM, g, *indices, start=start, extents=extents), *[None] * len(indices)


def _batch_index(
    op: Op, args: Sequence[Tensor], dims: Dims, *, start: int, wrap: bool
) -> tuple[Tensor, int]:
    x, *indices = args
    if all(d is None for d in dims[1:]):
        return bind(op, to_front(x, dims[0] or 0), *indices, start=start + 1, wrap=wrap), 0
    indices = _fronted_indices(indices, dims[1:])
    if dims[0] is None:
        return bind(op, x, *indices, start=start, wrap=wrap), start
    x = _indexed_second(to_front(x, dims[0]), start, len(indices))
    found = bind(op, x, _batch_places(indices), *indices, start=0, wrap=wrap)
    rank = max(i.ndim for i in indices) - 1
    return _indexed_back(found, start, rank), 0


INDEX = linear("index", _index_eval, _index_type, _index_transpose, batch=_batch_index,
               arguments=(0,), takes_out=True,
               emit=lowered("loops", Cost.EXPENSIVE), indexing=Indexing.LOOKUP,
               autocast=AutocastPolicy.KEEP, shape_generic=True,
               doc="The elements at index tensors.")  # fmt: skip


def _index_evaluator(
    plain: Callable[..., object], x: TensorType, *indices: TensorType, start: int, wrap: bool
) -> Callable[..., object]:
    if len(indices) > 1:
        return plain
    return lanes.take_evaluator(x, indices[0], start, plain)


INDEX.prepare_for = _index_evaluator


# -- index: the transpose, and writes -----------------------------------------------------------


def _index_sum_type(g: TensorType, *indices: TensorType, start: int, extents: Shape) -> TensorType:
    rank = len(broadcast_shapes(*[i.shape for i in indices]))
    return tensor_type((*g.shape[:start], *extents, *g.shape[start + rank :]), g.dtype)


def _index_sum_eval(g: Array, *indices: Array, start: int, extents: Shape) -> Array:
    rank = max(i.ndim for i in indices)
    out = np.zeros((*g.shape[:start], *extents, *g.shape[start + rank :]), g.dtype)
    _add_at(out, g, indices, start, wrap=True)
    return out


def _add_at(out: Array, source: Array, indices: Sequence[object], start: int, wrap: bool) -> None:
    """Add the source at the indices; where they repeat, one after the other."""
    extents = out.shape[start : start + len(indices)]
    if not source.size or not (out.size or 0 in extents):
        return
    indices = _all_in_bounds(indices, extents, wrap, IndexError if wrap else RuntimeError)
    if not out.flags.c_contiguous:
        np.add.at(out, (slice(None),) * start + indices, source)
        return
    lead, extent = math.prod(out.shape[:start]), math.prod(extents)
    width = math.prod(out.shape[start + len(indices) :])
    rows = _merged(indices, extents).reshape(-1)
    if lead > 1:
        rows = (np.arange(lead)[:, None] * extent + rows).reshape(-1)
    target, source = out.reshape(lead * extent, width), source.reshape(rows.size, width)
    if lanes.add_rows(target, source, rows):
        return
    if source.size > _GROUP_COST * min(len(target), rows.size):
        _add_groups(target, source, rows)
    elif width < _WIDE or not _add_rows(target, source, rows):
        _add_elements(target, source, rows)


def _add_rows(target: Array, source: Array, rows: Array) -> bool:
    """Add whole rows: first those that each place gets first, then those it gets second, and so
    on, which is the order of the source for each of them. Declines where a place gets many."""
    order = np.argsort(rows, kind="stable")
    ranked = rows[order]
    number = np.arange(len(rows))
    begin = np.where(np.concatenate(([True], ranked[1:] != ranked[:-1])), number, 0)
    turn = number - np.maximum.accumulate(begin)  # how many of the same place are before this one
    last = int(turn.max())
    if last >= _TURNS:
        return False
    if not last:
        target[rows] += source
        return True
    for now in range(last + 1):
        chosen = order[turn == now]
        target[rows[chosen]] += source[chosen]
    return True


def _add_elements(target: Array, source: Array, rows: Array) -> None:
    """Add single elements, which NumPy has a fast loop for; in pieces, as each needs a number."""
    width = target.shape[1]
    within = np.arange(width)
    count = max(1, _PIECE // width)
    for first in range(0, rows.size, count):
        piece = slice(first, first + count)
        places = rows[piece, None] * width + within
        np.add.at(target.reshape(-1), places.reshape(-1), source[piece].reshape(-1))


def _merged(indices: tuple[Array, ...], extents: Shape) -> Array:
    """Several index arrays as one into the flattened dimensions."""
    merged = indices[0].astype(np.intp, copy=False)
    for index, extent in zip(indices[1:], extents[1:], strict=True):
        merged = merged * extent + index
    return merged


def _add_groups(target: Array, source: Array, rows: Array) -> None:
    """Add whole rows, all that go to one place together: for few places and many elements."""
    order = np.argsort(rows, kind="stable")
    ranked = rows[order]
    starts = np.flatnonzero(np.concatenate(([True], ranked[1:] != ranked[:-1]))).tolist()
    for first, last in zip(starts, [*starts[1:], len(ranked)], strict=True):
        together = source[order[first:last]]
        target[ranked[first]] += pairwise_sum(together, (0,))


def _index_sum_transpose(
    g: Tensor, source: Tensor, *indices: Tensor, start: int, extents: Shape
) -> tuple[Tensor | None, ...]:
    return bind(INDEX, g, *indices, start=start, wrap=True), *[None] * len(indices)


def _batch_index_sum(
    op: Op, args: Sequence[Tensor], dims: Dims, *, start: int, extents: Shape
) -> tuple[Tensor, int]:
    g, *indices = args
    size = batch_size(args, dims)
    g = at_front(g, dims[0], size)
    if all(d is None for d in dims[1:]):
        return bind(op, g, *indices, start=start + 1, extents=extents), 0
    indices = _fronted_indices(indices, dims[1:])
    g = _indexed_second(g, start, max(i.ndim for i in indices) - 1)
    found = bind(op, g, _batch_places(indices), *indices, start=0, extents=(size, *extents))
    return _indexed_back(found, start, len(extents)), 0


INDEX_SUM = linear(
    "index_sum", _index_sum_eval, _index_sum_type, _index_sum_transpose, batch=_batch_index_sum,
    arguments=(0,), upcast=True,
    emit=lowered("kernels.embedding_grad"), autocast=AutocastPolicy.KEEP,
    eager=EagerKernel(1 << 13, integers=True),
    doc="Zeros with the source added at index tensors.",
)  # fmt: skip


def _one_dtype(types: Sequence[Any]) -> tuple[dtype, ...]:
    """Target and source share the target's type; an index tensor keeps its own."""
    target: dtype = types[0].dtype
    return target, target, *[t.dtype for t in types[2:]]


def _index_add_eval(
    x: Array, source: Array, *indices: object, start: int, wrap: bool, out: Array | None = None
) -> Array:
    out = start_from(x, out)
    _add_at(out, source, indices, start, wrap)
    return out


def _index_add_transpose(
    g: Tensor, x: Tensor, source: Tensor, *indices: Tensor, start: int, wrap: bool
) -> tuple[Tensor, Tensor, None]:
    return g, bind(INDEX, g, *indices, start=start, wrap=True), *[None] * len(indices)


def _batch_index_write(
    op: Op, args: Sequence[Any], dims: Dims, *, start: int, wrap: bool
) -> tuple[Tensor, int]:
    x, source, *indices = args
    size = batch_size(args, dims)
    x = at_front(x, dims[0], size)
    plain = not isinstance(source, Tensor) or (not source.ndim and dims[1] is None)
    if not plain:
        inner = source.ndim - (dims[1] is not None)
        source = at_front(source, dims[1], size)
        if not inner:  # a number for each member of the batch
            rank = max(i.ndim - (d is not None) for i, d in zip(indices, dims[2:], strict=True))
            source = reshape(source, (size,) + (1,) * (x.ndim - 1 - len(indices) + rank))
    if all(d is None for d in dims[2:]):
        return bind(op, x, source, *indices, start=start + 1, wrap=wrap), 0
    indices = _fronted_indices(indices, dims[2:])
    x = _indexed_second(x, start, len(indices))
    if not plain:
        source = _indexed_second(source, start, max(i.ndim for i in indices) - 1)
    written = bind(op, x, source, _batch_places(indices), *indices, start=0, wrap=wrap)
    return _indexed_back(written, start, len(indices)), 0


INDEX_ADD = linear(
    "index_add", _index_add_eval, lambda x, source, *indices, start, wrap: x, _index_add_transpose,
    batch=_batch_index_write, arguments=(0, 1), promote=_one_dtype, takes_out=True, upcast=True,
    emit=lowered("kernels.row_writes"), autocast=AutocastPolicy.KEEP,
    doc="A tensor with the source added at index tensors.",
)  # fmt: skip


def _index_add_evaluator(
    plain: Callable[..., object], x: TensorType, source: TensorType, *indices: TensorType,
    start: int, wrap: bool,
) -> Callable[..., object]:  # fmt: skip
    if len(indices) > 1:
        return plain
    return lanes.add_rows_evaluator(x, source, indices[0], start, plain)


INDEX_ADD.prepare_for = _index_add_evaluator


_ALL = (slice(None),) * 64


def _index_copy_eval(
    x: Array,
    source: float | Array,
    *indices: Array,
    start: int,
    wrap: bool,
    out: Array | None = None,
) -> Array:
    out = start_from(x, out)
    if len(indices) == 1:
        (index,) = indices
        if index.size == 1 and index.ndim == 1:
            place = int(index[0])
            if 0 <= place < x.shape[start]:
                out[(*_ALL[:start], slice(place, place + 1))] = source
                return out
        elif lanes.put(out, index, source, start, True):
            return out
    extents = x.shape[start : start + len(indices)]
    if any(not i.size for i in indices) or not (out.size or 0 in extents):
        return out
    if not wrap or not out.size:  # NumPy takes any index where there is nothing to write
        _all_in_bounds(indices, extents, wrap, _index_copy_refuses)
    try:  # NumPy checks all bounds before it writes
        out[(slice(None),) * start + indices] = source
    except IndexError:
        _all_in_bounds(indices, extents, wrap, IndexError)
        raise
    return out


def _index_copy_refuses(text: str) -> IndexError:
    return IndexError(f"index_copy_(): {text}")


def _index_copy_transpose(
    g: Tensor, x: Tensor, source: Tensor, *indices: Tensor, start: int, wrap: bool
) -> tuple[Tensor | None, ...]:
    def written(target: Tensor, value: object) -> Tensor:
        return bind(INDEX_COPY, target, value, *indices, start=start, wrap=True)  # type: ignore[no-any-return]

    if source.ndim:
        part = sum_to_type(bind(INDEX, g, *indices, start=start, wrap=True), source._type)
    else:
        part = sum_where(written(nowhere(g), True), g)
    return written(g, 0), part, *[None] * len(indices)


def nowhere(g: Tensor) -> Tensor:
    return zeros_like(g, dtype=dtypes.bool_)


def sum_where(mask: Tensor, g: Tensor) -> Tensor:
    """The sum over the places of a mask, each counted once."""
    return total(where(mask, g, 0))


INDEX_COPY = linear(
    "index_copy", _index_copy_eval, lambda x, source, *indices, start, wrap: x,
    _index_copy_transpose, batch=_batch_index_write, arguments=(0, 1), promote=_one_dtype,
    takes_out=True,
    emit=lowered("kernels.row_writes"), autocast=AutocastPolicy.KEEP,
    doc="A tensor with the source, or one number, written at index tensors; the last write stays.",
)  # fmt: skip


# -- batching of index rows ---------------------------------------------------------------------


def batch_size(args: Sequence[Tensor], dims: Dims) -> int:
    sizes: list[int] = [a._type.shape[d] for a, d in zip(args, dims, strict=True) if d is not None]
    return sizes[0]


def at_front(x: Tensor, dim: int | None, size: int) -> Tensor:
    """With the batch as first dimension, repeated if the tensor has none."""
    return expand(x, (size, *x._type.shape)) if dim is None else to_front(x, dim)


def _fronted_indices(indices: Sequence[Tensor], dims: Dims) -> list[Tensor]:
    """Index tensors that broadcast with the batch as first dimension."""
    rank = max(i.ndim - (d is not None) for i, d in zip(indices, dims, strict=True))
    aligned = []
    for index, dim in zip(indices, dims, strict=True):
        if dim is not None:
            index = to_front(index, dim)
            own = index._type.shape
            index = reshape(index, (own[0],) + (1,) * (rank + 1 - len(own)) + own[1:])
        aligned.append(index)
    return aligned


def _batch_places(indices: Sequence[Tensor]) -> Tensor:
    """The number of each member of the batch, as another index tensor."""
    rank = max(i.ndim for i in indices)
    size = next(i._type.shape[0] for i in indices if i.ndim == rank)
    return reshape(arange(size), (size,) + (1,) * (rank - 1))


def _indexed_second(x: Tensor, start: int, count: int) -> Tensor:
    """The ``count`` dimensions that begin at ``start`` right behind the batch dimension."""
    if not start or not count:
        return x
    return movedim(x, list(range(start + 1, start + 1 + count)), list(range(1, 1 + count)))


def _indexed_back(x: Tensor, start: int, count: int) -> Tensor:
    if not start or not count:
        return x
    return movedim(x, list(range(1, 1 + count)), list(range(start + 1, start + 1 + count)))


# -- embedding ----------------------------------------------------------------------------------


def _embedding_eval(weight: Array, index: Array, *, padding_idx: int, by_frequency: bool) -> object:
    return _index_eval(weight, index, start=0, wrap=False)


def _embedding_type(
    weight: TensorType, index: TensorType, *, padding_idx: int, by_frequency: bool
) -> TensorType:
    return tensor_type((*index.shape, *weight.shape[1:]), weight.dtype)


def _embedding_scale(index: Tensor, like: Tensor, padding_idx: int, by_frequency: bool) -> Tensor:
    """By what the gradient of each looked-up row is multiplied."""
    scale = ones(index._type.shape, dtype=like.dtype)
    if by_frequency:
        extent = like._type.shape[0]
        counts = bind(INDEX_SUM, scale, index, start=0, extents=(extent,))
        scale = 1 / bind(INDEX, counts, index, start=0, wrap=False)
    return reshape(where(index == padding_idx, 0, scale), (*index._type.shape, 1))


def _embedding_vjp(
    g: Tensor, out: Tensor, weight: Tensor, index: Tensor, *, padding_idx: int, by_frequency: bool
) -> tuple[Tensor, None]:
    scaled = g * _embedding_scale(index, weight, padding_idx, by_frequency)
    extents = weight._type.shape[:1]
    return bind(INDEX_SUM, scaled, index, start=0, extents=extents), None


def _embedding_jvp(
    tangents: Sequence[Tensor | None], out: Tensor, weight: Tensor, index: Tensor,
    *, padding_idx: int, by_frequency: bool,
) -> object:  # fmt: skip
    if tangents[0] is None:
        return None
    moved = bind(INDEX, tangents[0], index, start=0, wrap=False)
    return moved * _embedding_scale(index, weight, padding_idx, by_frequency)


EMBEDDING = opaque(
    "embedding", _embedding_eval, _embedding_type, _embedding_vjp, jvp=_embedding_jvp, upcast=False,
    emit=lowered("passes.decompose_indexing"),
    autocast=AutocastPolicy.KEEP,
    doc="Rows of a table; one row may get no gradient, or each its share by frequency.",
)  # fmt: skip
