"""Rows that read and write at one place per element along a dimension: ``gather``, ``scatter``.

The index has the rank of the tensor and names, for each of its own elements, the place along
``dim``. Where places repeat, the source counts in its own order, so the numbers are the same on
every run. First the rows, then their functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from evergrad.core.bind import bind, cast
from evergrad.core.dtypes import FLOATING, dtype
from evergrad.core.eager import lanes
from evergrad.core.families import linear, opaque
from evergrad.core.op import Op
from evergrad.core.prepared import prepared
from evergrad.core.row_facts import (
    LEAST_DERIVATIVE,
    AutocastPolicy,
    Indexing,
    lowered,
)
from evergrad.core.shapes import (
    Shape,
    broadcast_shapes,
    contiguous_strides,
    normalize_dim,
    tensor_type,
)
from evergrad.core.tensor import Array, Tensor
from evergrad.errors import ShapeError
from evergrad.ops.rows.creation.constants import ones_like
from evergrad.ops.rows.elementwise.basic import where
from evergrad.ops.rows.indexing.arguments import (
    Write,
    at_least_1d,
    checked_number,
    require_dtype,
    require_index,
    writing,
)
from evergrad.ops.rows.indexing.index import (
    INDEX,
    Dims,
    at_front,
    batch_size,
    in_bounds,
    nowhere,
    start_from,
    sum_where,
)
from evergrad.ops.rows.movement.slices import SLICE
from evergrad.ops.rows.movement.views import expand, reshape, sum_to_type
from evergrad.ops.surface.public import expose

# -- places -------------------------------------------------------------------------------------


def _offsets(shape: Shape, counts: Shape, dim: int) -> tuple[int | Array, int]:
    """Where in a contiguous array the index elements stand if ``dim`` is left out, and its step."""
    strides = contiguous_strides(shape)
    rank = len(shape)
    total: Any = 0
    for d, count in enumerate(counts):
        if d != dim and count != 1:
            total = total + (np.arange(count) * strides[d]).reshape((-1,) + (1,) * (rank - 1 - d))
    return total, strides[dim]


def _grid(index: Array, dim: int) -> tuple[Array, ...]:
    """Index arrays for every dimension, for memory that is not contiguous."""
    rank = index.ndim
    return tuple(
        [
            index if d == dim else np.arange(count).reshape((-1,) + (1,) * (rank - 1 - d))
            for d, count in enumerate(index.shape)
        ]
    )


def _flat_places(shape: Shape, index: Array, dim: int) -> Array:
    offsets, step = _offsets(shape, index.shape, dim)
    return index.astype(np.intp, copy=False) * step + offsets


# -- reading and writing ------------------------------------------------------------------------


def _gather_eval(x: Array, index: Array, *, dim: int) -> Array:
    found = lanes.gather(x, index, dim)
    if found is not None:
        return found
    in_bounds(index, x.shape[dim], dim, False, RuntimeError)
    if x.flags.c_contiguous:
        return x.reshape(-1).take(_flat_places(x.shape, index, dim))
    return x[_grid(index, dim)]


def _batch_scatter(
    op: Op, args: Sequence[Any], dims: Dims, *, dim: int, **attrs: Any
) -> tuple[Tensor, int]:
    """Every tensor with the batch in front; a number stays one."""
    size = batch_size(args, dims)
    if "shape" in attrs:
        attrs["shape"] = (size, *attrs["shape"])
    fronted = [
        at_front(a, d, size) if isinstance(a, Tensor) and (a.ndim or d is not None) else a
        for a, d in zip(args, dims, strict=True)
    ]
    if isinstance(last := fronted[-1], Tensor) and last.ndim == 1 and fronted[0].ndim > 1:
        fronted[-1] = reshape(last, (size,) + (1,) * (fronted[0].ndim - 1))
    return bind(op, *fronted, dim=dim + 1, **attrs), 0


GATHER: Op = linear(
    "gather", _gather_eval, lambda x, index, *, dim: tensor_type(index.shape, x.dtype),
    lambda g, x, index, *, dim: (bind(SCATTER_SUM, g, index, dim=dim, shape=x._type.shape), None),
    batch=_batch_scatter, arguments=(0,),
    emit=lowered("loops, kernels.pooling"), indexing=Indexing.PICK, autocast=AutocastPolicy.KEEP,
    shape_generic=True,
    doc="For each element of the index, the element at that place of a dimension.",
)  # fmt: skip
GATHER.prepare_for = lambda plain, x, index, *, dim: lanes.gather_evaluator(x, index, dim, plain)


def _scatter_sum_eval(g: Array, index: Array, *, dim: int, shape: Shape) -> Array:
    out = np.zeros(shape, g.dtype)
    if lanes.scatter_add(out, index, g, dim):
        return out
    np.add.at(out.reshape(-1), _flat_places(shape, index, dim).reshape(-1), g.reshape(-1))
    return out


SCATTER_SUM: Op = linear(
    "scatter_sum", _scatter_sum_eval,
    lambda g, index, *, dim, shape: tensor_type(shape, g.dtype),
    lambda g, source, index, *, dim, shape: (bind(GATHER, g, index, dim=dim), None),
    batch=_batch_scatter, arguments=(0,), upcast=True,
    emit=lowered("loops, kernels.pooling"), autocast=AutocastPolicy.KEEP,
    indexing=Indexing.SPREAD, eager_derivative=LEAST_DERIVATIVE,
    doc="Zeros with the source added at places along a dimension: gather's transpose.",
)  # fmt: skip


def _at_places(ufunc: Any, out: Array, index: Array, source: Any, dim: int) -> None:
    """``ufunc`` with the source at every place, one after the other."""
    in_bounds(index, out.shape[dim], dim, False, RuntimeError)
    if ufunc is np.add and lanes.scatter_add(out, index, source, dim):
        return
    if out.flags.c_contiguous:
        places = _flat_places(out.shape, index, dim).reshape(-1)
        ufunc.at(out.reshape(-1), places, np.broadcast_to(source, index.shape).reshape(-1))
    else:
        ufunc.at(out, _grid(index, dim), source)


def _scatter_types(types: Sequence[Any]) -> tuple[dtype, ...]:
    target: dtype = types[0].dtype
    return target, types[1].dtype, target


def _scatter_add_eval(
    x: Array, index: Array, source: object, *, dim: int, out: Array | None = None
) -> Array:
    out = start_from(x, out)
    _at_places(np.add, out, index, source, dim)
    return out


def _scatter_add_transpose(
    g: Tensor, x: Tensor, index: Tensor, source: Tensor, *, dim: int
) -> tuple[Tensor, None, Tensor]:
    return g, None, sum_to_type(bind(GATHER, g, index, dim=dim), source._type)


SCATTER_ADD = linear(
    "scatter_add", _scatter_add_eval, lambda x, index, source, *, dim: x, _scatter_add_transpose,
    batch=_batch_scatter, arguments=(0, 2), promote=_scatter_types, takes_out=True, upcast=True,
    emit=lowered("kernels.indexed"), autocast=AutocastPolicy.KEEP,
    doc="A tensor with the source added at places along a dimension.",
)  # fmt: skip
SCATTER_ADD.prepare_for = lambda plain, x, index, source, *, dim: lanes.scatter_add_evaluator(
    x, index, source, dim, plain
)


def _scatter_eval(
    x: Array, index: Array, source: object, *, dim: int, out: Array | None = None
) -> Array:
    if out is not None and lanes.put(out, index, source, dim, False):
        return out
    in_bounds(index, x.shape[dim], dim, False, RuntimeError)
    out = start_from(x, out)
    if lanes.put(out, index, source, dim, False):
        return out
    if out.flags.c_contiguous:
        out.reshape(-1)[_flat_places(out.shape, index, dim)] = source
    else:
        out[_grid(index, dim)] = source
    return out


def _scatter_transpose(g: Tensor, x: Tensor, index: Tensor, source: Tensor, *, dim: int) -> object:
    if source.ndim:
        part = sum_to_type(bind(GATHER, g, index, dim=dim), source._type)
    else:
        part = sum_where(bind(SCATTER, nowhere(g), index, True, dim=dim), g)
    return bind(SCATTER, g, index, 0, dim=dim), None, part


SCATTER = linear(
    "scatter", _scatter_eval, lambda x, index, source, *, dim: x, _scatter_transpose,
    batch=_batch_scatter, arguments=(0, 2), promote=_scatter_types, takes_out=True,
    emit=lowered("kernels.indexed"), autocast=AutocastPolicy.KEEP,
    doc="A tensor with the source written at places along a dimension; the last write stays.",
)  # fmt: skip


# -- scatter_reduce -----------------------------------------------------------------------------

_FOLDS = {"prod": np.multiply, "amax": np.maximum, "amin": np.minimum}


def _scatter_reduce_eval(
    x: Array, index: Array, source: object, *, dim: int, reduce: str, include_self: bool
) -> Array:
    out = x.copy()
    if not include_self:
        out = _scatter_eval(out, index, neutral(reduce, x.dtype), dim=dim, out=out)
    _at_places(_FOLDS[reduce], out, index, source, dim)
    return out


def neutral(reduce: str, numpy_type: np.dtype[Any]) -> float:
    """What a fold starts from so that it does not count."""
    if reduce == "prod":
        return 1
    sign = -1 if reduce == "amax" else 1
    if numpy_type.kind == "f":
        return sign * np.inf
    if numpy_type.kind == "b":
        return sign > 0
    limits = np.iinfo(numpy_type)
    return limits.max if sign > 0 else limits.min


def _scatter_reduce_vjp(
    g: Tensor, out: Tensor, x: Tensor, index: Tensor, source: Tensor,
    *, dim: int, reduce: str, include_self: bool,
) -> tuple[Tensor, None, Tensor]:  # fmt: skip
    if reduce == "prod":
        of_self, of_source = _through_product(g, x, index, source, dim, include_self)
    else:
        of_self, of_source = _through_extreme(g, out, x, index, source, dim, include_self)
    if not include_self:
        of_self = bind(SCATTER, of_self, index, 0, dim=dim)
    return of_self, None, of_source


def _through_extreme(
    g: Tensor, out: Tensor, x: Tensor, index: Tensor, source: Tensor, dim: int, include_self: bool
) -> tuple[Tensor, Tensor]:
    """Those that are the extreme of their place share the gradient equally."""
    mine = x == out
    if not include_self:
        mine = bind(SCATTER, mine, index, False, dim=dim)
    theirs = source == bind(GATHER, out, index, dim=dim)
    count = bind(SCATTER_ADD, cast(mine, x.dtype), index, cast(theirs, x.dtype), dim=dim)
    share = g / count
    return where(mine, share, 0), where(theirs, bind(GATHER, share, index, dim=dim), 0)


def _through_product(
    g: Tensor, x: Tensor, index: Tensor, source: Tensor, dim: int, include_self: bool
) -> tuple[Tensor, Tensor]:
    """The slope is the product of all others at the place.

    Zeros are counted and left out of the product. Where one of the others is zero, the slope is
    zero too but changes with it, as the sum of the zeros does.
    """

    def folded(mine: Tensor, theirs: Tensor) -> Tensor:
        if not include_self:
            mine = bind(SCATTER, mine, index, 0, dim=dim)
        return bind(SCATTER_ADD, mine, index, theirs, dim=dim)  # type: ignore[no-any-return]

    def times_others(g: Tensor, value: Tensor, *met: Tensor) -> Tensor:
        product, count, total = met
        own = value == 0
        nonzero = product / where(own, 1, value)
        count = count - cast(own, count.dtype)
        one = (total - where(own, value, 0)) * nonzero
        return where(count == 0, g * nonzero, where(count == 1, g * one, 0))

    product = bind(
        SCATTER_REDUCE, where(x == 0, 1, x), index, where(source == 0, 1, source),
        dim=dim, reduce="prod", include_self=include_self,
    )  # fmt: skip
    count = folded(cast(x == 0, x.dtype), cast(source == 0, x.dtype))
    total = folded(where(x == 0, x, 0), where(source == 0, source, 0))
    met = (product, count, total)
    at_source = [bind(GATHER, value, index, dim=dim) for value in (g, *met)]
    return times_others(g, x, *met), times_others(at_source[0], source, *at_source[1:])


SCATTER_REDUCE = opaque(
    "scatter_reduce", _scatter_reduce_eval,
    lambda x, index, source, *, dim, reduce, include_self: x, _scatter_reduce_vjp,
    batch=_batch_scatter, promote=_scatter_types,
    emit=lowered("kernels.indexed"), autocast=AutocastPolicy.KEEP,
    doc="A tensor folded with the source at places along a dimension.",
)  # fmt: skip


# -- functions ----------------------------------------------------------------------------------


def _require_fit(index: Tensor, within: Tensor, dim: int | None, name: str) -> None:
    """Raise unless the index is nowhere larger than a tensor, ``dim`` apart."""
    counts, shape = index._type.shape, within._type.shape
    for d, (count, extent) in enumerate(zip(counts, shape, strict=True)):
        if d != dim and count > extent:
            apart = "" if dim is None else f" apart from dimension {dim}"
            raise ShapeError(
                f"Size does not match at dimension {d} expected index {list(counts)} to be no "
                f"larger than {name} {list(shape)}{apart}"
            )


def _require_rank(index: Tensor, input: Tensor, name: str) -> None:
    if index.ndim != input.ndim:
        raise RuntimeError(f"Index tensor must have the same number of dimensions as {name} tensor")


@expose(numpy_names=True)
@prepared
def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """For each element of the index, the element at that place of the dimension."""
    index = require_index("gather", index, vector=False)
    dim = normalize_dim(dim, input.ndim)
    shape = index._type.shape
    if not index._type.numel:
        return bind(INDEX, reshape(input, -1), index, start=0, wrap=True)  # type: ignore[no-any-return]
    input, index = at_least_1d(input), at_least_1d(index)
    _require_rank(index, input, "input")
    _require_fit(index, input, dim, "self")
    found: Tensor = bind(GATHER, input, index, dim=dim)
    return found if found._type.shape == shape else reshape(found, shape)


def _scatter_write(op: Op, input: Tensor, dim: int, index: Tensor, source: object) -> Write:
    """A write of numbers, or of the part of ``source`` that the index covers."""
    index = require_index("scatter", index, vector=False)
    dim = normalize_dim(dim, input.ndim)
    target, index = at_least_1d(input), at_least_1d(index)
    if not index._type.numel:
        nothing = reshape(index, (0,) + (1,) * (target.ndim - 1))
        return op, (target, nothing, 0), {"dim": 0}
    _require_rank(index, target, "self")
    _require_fit(index, target, dim, "self")
    if isinstance(source, Tensor):
        require_dtype("scatter", input, source)
        source = at_least_1d(source)
        _require_rank(index, source, "src")
        _require_fit(index, source, None, "src")
        if source._type.shape != index._type.shape:
            slices = tuple((0, count, 1) for count in index._type.shape)
            source = bind(SLICE, source, slices=slices)
    else:
        source = checked_number(source, input.dtype)
    return op, (target, index, source), {"dim": dim}


@writing
def scatter(
    input: Tensor, dim: int, index: Tensor, src: object = None, *, value: object = None,
    reduce: str | None = None,
) -> Write:  # fmt: skip
    """``src``, or one number, written (or added, or multiplied in) at places of a dimension."""
    source = value if src is None else src
    if source is None:
        raise TypeError("scatter() needs either src or value")
    if reduce is None:
        return _scatter_write(SCATTER, input, dim, index, source)
    if reduce == "add":
        return _scatter_write(SCATTER_ADD, input, dim, index, source)
    if reduce == "multiply":
        op, operands, attrs = _scatter_write(SCATTER_REDUCE, input, dim, index, source)
        return op, operands, {**attrs, "reduce": "prod", "include_self": True}
    raise RuntimeError("reduce argument must be either add or multiply.")


@writing
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Write:
    """``src`` added at places of a dimension."""
    return _scatter_write(SCATTER_ADD, input, dim, index, src)


@expose(inplace=True, numpy_names=True)
def scatter_reduce(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """``src`` folded in at places of a dimension: sum, prod, mean, amax or amin."""
    if reduce not in ("sum", "mean", *_FOLDS):
        raise RuntimeError(
            f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}"
        )
    _, (target, index, src), attrs = _scatter_write(SCATTER_REDUCE, input, dim, index, src)
    if reduce in _FOLDS:
        folded = bind(
            SCATTER_REDUCE, target, index, src, **attrs, reduce=reduce, include_self=include_self
        )
    else:
        folded = _scatter_sum(target, index, src, attrs, include_self)
        if reduce == "mean":
            folded = _divided(folded, _scatter_count(target, index, attrs, include_self))
    return reshape(folded, input._type.shape)


def _scatter_sum(
    target: Tensor, index: Tensor, src: object, attrs: dict[str, object], include_self: bool
) -> Tensor:
    if not include_self:
        target = bind(SCATTER, target, index, 0, **attrs)
    return bind(SCATTER_ADD, target, index, src, **attrs)  # type: ignore[no-any-return]


def _scatter_count(
    target: Tensor, index: Tensor, attrs: dict[str, object], include_self: bool
) -> Tensor:
    """How many numbers met at each place; where nothing was written, the one that was there."""
    count = _scatter_sum(ones_like(target), index, 1, attrs, include_self)
    return where(count == 0, 1, count)


def _divided(total: Tensor, count: Tensor) -> Tensor:
    return total / count if total.dtype.category >= FLOATING else total // count


@expose(numpy_names=True)
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """``gather`` with broadcasting; without ``dim`` through the flattened tensor."""
    indices = require_index("take_along_dim", indices, int32=False, vector=False)
    if dim is None:
        return gather(reshape(input, -1), 0, reshape(indices, -1))
    if input.ndim != indices.ndim:
        raise RuntimeError(
            "take_along_dim(): input and indices should have the same number of dimensions, but "
            f"got {input.ndim} dimensions for input, and {indices.ndim} dimensions for indices"
        )
    dim = normalize_dim(dim, input.ndim)
    own, places = list(input._type.shape), list(indices._type.shape)
    extent, count = own[dim], places[dim]
    common = list(broadcast_shapes(own[:dim] + own[dim + 1 :], places[:dim] + places[dim + 1 :]))
    input = expand(input, (*common[:dim], extent, *common[dim:]))
    indices = expand(indices, (*common[:dim], count, *common[dim:]))
    return gather(input, dim, where(indices < 0, indices + extent, indices))
