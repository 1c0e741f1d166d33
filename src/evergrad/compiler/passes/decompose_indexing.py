"""Decompositions of reads and writes at indices, into those that kernels cover: by one index along
one dimension (:mod:`.kernels.indexed`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from evergrad.core import dtypes
from evergrad.core.bind import bind
from evergrad.core.op import Op
from evergrad.core.shapes import broadcast_shapes, reduced_shape
from evergrad.core.tensor import Tensor
from evergrad.core.trace import Equation
from evergrad.ops.rows.creation.constants import arange, full
from evergrad.ops.rows.elementwise.basic import where
from evergrad.ops.rows.indexing.index import (
    EMBEDDING,
    INDEX,
    INDEX_ADD,
    INDEX_COPY,
    INDEX_SUM,
)
from evergrad.ops.rows.indexing.scatter import (
    GATHER,
    SCATTER,
    SCATTER_ADD,
    SCATTER_REDUCE,
    SCATTER_SUM,
    neutral,
)
from evergrad.ops.rows.movement.slices import slice_dim
from evergrad.ops.rows.movement.strided import DIAGONAL_SCATTER
from evergrad.ops.rows.movement.views import expand, reshape, unsqueeze
from evergrad.ops.rows.reduce.quantiles import MEDIAN, MEDIAN_PLACE, NANMEDIAN, NANMEDIAN_PLACE
from evergrad.ops.rows.reduce.scan import CUMPROD
from evergrad.ops.rows.reduce.sums import PROD

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction, DtypeLike

# Products over a dimension of at most this extent are written out.
_FEW_FACTORS = 8


def merged_index(indices: Sequence[Tensor], extents: Sequence[int], wrap: bool) -> Tensor | None:
    """One index in place of several, into their dimensions as one. Where one of them is out of
    range it is the number of elements, which is out of range too."""
    if len(indices) < 2 or any(i.dtype is not dtypes.int64 for i in indices):
        return None
    merged, inside = None, None
    for index, extent in zip(indices, extents, strict=True):
        from_front = where(index < 0, index + extent, index) if wrap else index
        fits = (from_front >= 0) & (from_front < extent)
        merged = from_front if merged is None else merged * extent + from_front
        inside = fits if inside is None else inside & fits
    assert merged is not None and inside is not None
    return where(inside, merged, prod(extents))


def _merged_dims(shape: Sequence[int], start: int, count: int) -> tuple[int, ...]:
    return (*shape[:start], prod(shape[start : start + count]), *shape[start + count :])


def _index(x: Tensor, *indices: Tensor, start: int, wrap: bool) -> Tensor | None:
    extents = x._type.shape[start : start + len(indices)]
    index = merged_index(indices, extents, wrap)
    if index is None:
        return None
    x = reshape(x, _merged_dims(x._type.shape, start, len(indices)))
    result: Tensor | None = bind(INDEX, x, index, start=start, wrap=False)
    return result


def _index_sum(x: Tensor, *indices: Tensor, start: int, extents: tuple[int, ...]) -> Tensor | None:
    index = merged_index(indices, extents, wrap=True)
    if index is None:
        return None
    total = bind(INDEX_SUM, x, index, start=start, extents=(prod(extents),))
    shape = total._type.shape
    return reshape(total, (*shape[:start], *extents, *shape[start + 1 :]))


def _index_write(row: Op) -> Callable[..., object]:
    def rule(x: Tensor, source: object, *indices: Tensor, start: int, wrap: bool) -> object:
        shape, count = x._type.shape, len(indices)
        found = broadcast_shapes(*[i._type.shape for i in indices])
        size = (*shape[:start], *found, *shape[start + count :])
        wide = _expanded(source, size, x.dtype)
        index = merged_index(indices, shape[start : start + count], wrap)
        if index is None:
            return None if wide is source else bind(row, x, wide, *indices, start=start, wrap=wrap)
        x = reshape(x, _merged_dims(shape, start, count))
        return reshape(bind(row, x, wide, index, start=start, wrap=False), shape)

    return rule


def _expanded(source: object, shape: Sequence[int], dtype: DtypeLike) -> Tensor:
    """A source of writes with an element for each place."""
    if not isinstance(source, Tensor):
        return full(shape, source, dtype=dtype)
    return source if source._type.shape == tuple(shape) else expand(source, tuple(shape))


def index_of_slices(index: Tensor, shape: Sequence[int], dim: int) -> Tensor | None:
    """The index by which all elements of a slice along a dimension are read or written, if there is
    one (``index.unsqueeze(1).expand(-1, columns)``), for a tensor of this shape."""
    size, layout = index._type.shape, index.layout_array()
    if index.dtype is not dtypes.int64 or not index._type.numel or len(size) < 2:
        return None
    for d, (n, m) in enumerate(zip(size, shape, strict=True)):
        if d != dim and (n != m or (n > 1 and layout.strides[d])):
            return None
    for d in range(len(size)):
        index = index if d == dim else slice_dim(index, d, 0, 1)
    return reshape(index, (size[dim],))


def _gather(x: Tensor, index: Tensor, dim: int) -> object:
    one = index_of_slices(index, x._type.shape, dim)
    return None if one is None else bind(INDEX, x, one, start=dim, wrap=False)


def _scatter_sum(source: Tensor, index: Tensor, dim: int, shape: tuple[int, ...]) -> Any:
    one = index_of_slices(index, shape, dim)
    if one is None:
        return None
    return bind(INDEX_SUM, source, one, start=dim, extents=(shape[dim],))


# Scatters that are writes of slices where one index serves for all of a slice.
_SLICE_WRITES = {SCATTER: INDEX_COPY, SCATTER_ADD: INDEX_ADD}


def _scatter(row: Op) -> AnyFunction:
    def rule(x: Tensor, index: Tensor, source: object, **attrs: Any) -> object:
        wide = _expanded(source, index._type.shape, x.dtype)
        if row in _SLICE_WRITES:
            one = index_of_slices(index, x._type.shape, attrs["dim"])
            if one is not None:
                return bind(_SLICE_WRITES[row], x, wide, one, start=attrs["dim"], wrap=False)
        if attrs.get("include_self") is False:
            first = full(index._type.shape, neutral(attrs["reduce"], x.dtype.np), dtype=x.dtype)
            cleared = _scatter(SCATTER)(x, index, first, dim=attrs["dim"])
            x = bind(SCATTER, x, index, first, dim=attrs["dim"]) if cleared is None else cleared
            attrs = {**attrs, "include_self": True}
        elif wide is source:
            return None
        return bind(row, x, index, wide, **attrs)

    return rule


def _embedding(weight: Tensor, index: Tensor, padding_idx: int, by_frequency: bool) -> Tensor:
    result: Tensor = bind(INDEX, weight, index, start=0, wrap=False)
    return result


def _prod(x: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor | None:
    """A product of few factors, one after the other; of many, the last running product."""
    shape = x._type.shape
    is_short = all(shape[dim] <= _FEW_FACTORS for dim in dims)
    if not dims or not (is_short or x.dtype.is_floating_point):
        return None
    for dim in dims:
        extent = shape[dim]
        if extent > _FEW_FACTORS:
            x = slice_dim(bind(CUMPROD, x, dim=dim, reverse=False), dim, extent - 1, extent)
            continue
        found = slice_dim(x, dim, 0, 1)
        for n in range(1, extent):
            found = found * slice_dim(x, dim, n, n + 1)
        x = found
    return reshape(x, reduced_shape(shape, dims, keepdim))


def _diagonal_embed(
    x: Tensor, *, offset: int, dim1: int, dim2: int, shape: tuple[int, ...]
) -> Tensor | None:
    """A square diagonal: where row and column are the same."""
    if offset or shape[dim1] != shape[dim2] or (dim1, dim2) != (x.ndim - 1, x.ndim):
        return None
    places = arange(shape[dim1], dtype=dtypes.int64)
    is_diagonal = unsqueeze(places, 1) == places
    return where(is_diagonal, unsqueeze(x, -1), full((), 0, dtype=x.dtype))


def _median(place: Op) -> Callable[..., object]:
    def rule(x: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor | None:
        """Over all dimensions: the element where the median of the flat tensor stands."""
        if len(dims) != x.ndim or not dims:
            return None
        flat = reshape(x, (-1,))
        found = bind(INDEX, flat, bind(place, flat, dim=0), start=0, wrap=False)
        return reshape(found, (1,) * x.ndim if keepdim else ())

    return rule


RULES: dict[Op, AnyFunction] = {
    MEDIAN: _median(MEDIAN_PLACE),
    NANMEDIAN: _median(NANMEDIAN_PLACE),
    INDEX: _index,
    INDEX_SUM: _index_sum,
    INDEX_ADD: _index_write(INDEX_ADD),
    INDEX_COPY: _index_write(INDEX_COPY),
    SCATTER: _scatter(SCATTER),
    SCATTER_ADD: _scatter(SCATTER_ADD),
    SCATTER_REDUCE: _scatter(SCATTER_REDUCE),
    GATHER: _gather,
    SCATTER_SUM: _scatter_sum,
    EMBEDDING: _embedding,
    PROD: _prod,
    DIAGONAL_SCATTER: _diagonal_embed,
}


def is_index_candidate(eqn: Equation) -> bool:
    """Whether a rule may replace an equation: those of losses, which look up single elements, are
    kept as they are."""
    if eqn.op in (GATHER, SCATTER_SUM):
        return 0 in eqn.args[1].layout.strides
    return eqn.op in RULES
