"""Several tensors as one: end to end, stacks, grids, blocks on a diagonal; or of one shape."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from evergrad import config
from evergrad.core import shapes
from evergrad.core.bind import bind, bind_and_prepare, bind_prepared_list, cast
from evergrad.core.compound import Compound
from evergrad.core.dtypes import name_of_type
from evergrad.core.families import linear, result_dtype
from evergrad.core.namespace import late_bound
from evergrad.core.op import Op, prepared_calls
from evergrad.core.prepared import prepared
from evergrad.core.row_facts import AutocastPolicy, lowered
from evergrad.core.shapes import Size, TensorType, normalize_dim
from evergrad.core.tensor import Array, Tensor, from_array
from evergrad.errors import ShapeError
from evergrad.memory import pool
from evergrad.ops.rows.creation.constants import zeros
from evergrad.ops.rows.movement.slices import PAD_SLICE, slice_dim
from evergrad.ops.rows.movement.views import (
    Dims,
    expand,
    owned,
    reshape,
    shaped,
    to_front,
    unsqueeze,
)
from evergrad.ops.surface.public import expose


def _tensor_list(name: str, tensors: object) -> list[Tensor]:
    if isinstance(tensors, Tensor) or not isinstance(tensors, Sequence):
        raise TypeError(
            f"{name}(): argument 'tensors' (position 1) must be tuple of Tensors, not "
            f"{type(tensors).__name__}. Put them in a list: {name}([x, y])."
        )
    if not tensors:
        raise RuntimeError(f"{name} expects a non-empty TensorList")
    return list(tensors)


def _given(tensors: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """Tensors given one by one, or as one list."""
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        return tuple(tensors[0])
    return tensors


# -- one after the other ------------------------------------------------------------------------


def _cat_type(*xs: TensorType, dim: int) -> TensorType:
    first = xs[0]
    total = 0
    for i, x in enumerate(xs):
        if len(x.shape) != len(first.shape):
            raise RuntimeError(
                f"Tensors must have same number of dimensions: got {len(first.shape)} and "
                f"{len(x.shape)} for tensor number {i} in the list. Add a dimension with "
                ".unsqueeze(0)."
            )
        for d, (n, m) in enumerate(zip(first.shape, x.shape, strict=True)):
            if d != dim and n != m:
                raise ShapeError(
                    f"Sizes of tensors must match except in dimension {dim}. Expected size {n} but "
                    f"got size {m} for tensor number {i} in the list."
                )
        total += x.shape[dim]
    return shaped(first, (*first.shape[:dim], total, *first.shape[dim + 1 :]))


def _cat_transpose(g: Tensor, *xs: Tensor, dim: int) -> tuple[Tensor, ...]:
    parts, start = [], 0
    for x in xs:
        stop = start + x._type.shape[dim]
        parts.append(slice_dim(g, dim, start, stop))
        start = stop
    return tuple(parts)


def _batch_cat(op: Op, args: Sequence[Tensor], dims: Dims, *, dim: int) -> tuple[Tensor, int]:
    size = next(a._type.shape[d] for a, d in zip(args, dims, strict=True) if d is not None)
    fronted = [
        expand(a, (size, *a._type.shape)) if d is None else to_front(a, d)
        for a, d in zip(args, dims, strict=True)
    ]
    return bind(op, *fronted, dim=dim + 1), 0


def _cat_eval(*xs: Array, dim: int) -> Array:
    return np.concatenate(xs, dim)


def _cat_evaluator(plain: object, *types: TensorType, dim: int) -> Callable[..., Array]:
    """Joins to an array from the pool, if it is large."""
    out = _cat_type(*types, dim=dim)
    if out.nbytes < config.POOL_MIN_BYTES:
        return lambda *xs: np.concatenate(xs, dim)
    allocate = pool.allocator(out.shape, out.dtype.np)
    return lambda *xs: np.concatenate(xs, dim, allocate())


CAT = linear("cat", _cat_eval, _cat_type, _cat_transpose, batch=_batch_cat,
             emit=lowered("schedule.lower"), autocast=AutocastPolicy.KEEP,
             doc="Tensors one after the other.")  # fmt: skip


CAT.prepare_for = _cat_evaluator


def _together(name: str, given: Iterable[Tensor]) -> list[Tensor]:
    if isinstance(given, Tensor):
        raise TypeError(
            f"{name}(): argument 'tensors' (position 1) must be tuple of Tensors, not Tensor. Put "
            f"them in a list: {name}([x, y])."
        )
    tensors = list(given)
    if not tensors:
        refusal = ValueError if name == "cat" else RuntimeError  # as in PyTorch
        raise refusal(f"{name}(): expected a non-empty list of Tensors")
    for i, x in enumerate(tensors):
        if not isinstance(x, Tensor):
            raise TypeError(
                f"{name}(): expected Tensor as element {i} in argument 0, but got "
                f"{name_of_type(type(x))}"
            )
    found = {x._type.dtype for x in tensors}
    if len(found) == 1:
        return tensors
    common = result_dtype([x._type for x in tensors])
    return [cast(x, common) for x in tensors]


_JOINED = prepared_calls()


def _call_key(tensors: object, dim: int) -> tuple[tuple[TensorType | None, ...], int] | None:
    """The types of a list of tensors and the dimension; ``None`` for other arguments."""
    if dim.__class__ is not int or tensors.__class__ not in (list, tuple):
        return None
    types = tuple([x._type if isinstance(x, Tensor) else None for x in tensors])
    return None if None in types else (types, dim)


@late_bound
@expose("concat", "concatenate", method=False, numpy_names=True)
def cat(tensors: Any, dim: int = 0) -> Tensor:
    """Tensors one after the other along a dimension."""
    key = _call_key(tensors, dim)
    if key is not None and (found := _JOINED.get(key)) is not None:
        return bind_prepared_list(found, tuple(tensors))  # type: ignore[no-any-return]
    parts = _together("cat", tensors)
    ranks = [len(x._type.shape) for x in parts]
    rank = max(ranks)
    if not min(ranks):
        raise RuntimeError("zero-dimensional tensor (at position 0) cannot be concatenated")
    dim = normalize_dim(dim, rank)
    kept = [x for x in parts if x._type.shape != (0,) or rank == 1]  # as PyTorch has always done
    if (
        key is None
        or len(kept) < len(parts)
        or any(a is not b for a, b in zip(kept, tensors, strict=True))
    ):
        return bind(CAT, *kept, dim=dim)  # type: ignore[no-any-return]
    return bind_and_prepare(_JOINED, key, CAT, *kept, dim=dim)  # type: ignore[no-any-return]


@late_bound
@expose(method=False)
@prepared
def stack(tensors: Any, dim: int = 0) -> Tensor:
    """Tensors of one shape along a new dimension."""
    parts = _together("stack", tensors)
    shape = parts[0]._type.shape
    for i, x in enumerate(parts):
        if x._type.shape != shape:
            raise ShapeError(
                f"stack expects each tensor to be equal size, but got {list(parts[0]._type.shape)} "
                f"at entry 0 and {list(x._type.shape)} at entry {i}"
            )
    dim = normalize_dim(dim, len(shape) + 1)
    is_dense = True not in [isinstance(x, Compound) for x in parts]
    if is_dense and dim < len(shape):  # one after the other, each in a place of its own
        joined = cat(parts, dim)
        return owned(reshape(joined, (*shape[:dim], len(parts), *shape[dim:])), *parts)
    return bind(CAT, *[unsqueeze(x, dim) for x in parts], dim=dim)  # type: ignore[no-any-return]


# -- at least so many dimensions ----------------------------------------------------------------


def _each(function: Callable[[Tensor], Tensor], tensors: tuple[object, ...]) -> object:
    if len(tensors) == 1 and isinstance(tensors[0], Tensor):
        return function(tensors[0])
    return tuple([function(x) for x in _given(tensors)])


def _to_1d(x: Tensor) -> Tensor:
    return x if x.ndim else reshape(x, (1,))


def _to_2d(x: Tensor) -> Tensor:
    return x if x.ndim >= 2 else reshape(x, (1, x._type.numel))


def _to_3d(x: Tensor) -> Tensor:
    if x.ndim >= 3:
        return x
    return reshape(x, (*_to_2d(x)._type.shape, 1))


@expose(method=False, out=False)
def atleast_1d(*tensors: object) -> object:
    """Scalars as vectors of one."""
    return _each(_to_1d, tensors)


@expose(method=False, out=False)
def atleast_2d(*tensors: object) -> object:
    """Vectors as matrices of one row."""
    return _each(_to_2d, tensors)


@expose(method=False, out=False)
def atleast_3d(*tensors: object) -> object:
    """Matrices with a third dimension of one."""
    return _each(_to_3d, tensors)


# -- stacks -------------------------------------------------------------------------------------


@expose(method=False)
def hstack(tensors: object) -> Tensor:
    """Side by side: along the second dimension, vectors along their only one."""
    parts = [_to_1d(x) for x in _tensor_list("hstack", tensors)]
    return cat(parts, 0 if parts[0].ndim == 1 else 1)


@expose("row_stack", method=False)
def vstack(tensors: object) -> Tensor:
    """Below each other: along the first dimension, vectors as rows."""
    return cat([_to_2d(x) for x in _tensor_list("vstack", tensors)], 0)


@expose(method=False)
def dstack(tensors: object) -> Tensor:
    """Behind each other: along the third dimension."""
    return cat([_to_3d(x) for x in _tensor_list("dstack", tensors)], 2)


@expose(method=False)
def column_stack(tensors: object) -> Tensor:
    """Side by side, vectors as columns."""
    parts = [
        x if x.ndim >= 2 else reshape(x, (x._type.numel, 1))
        for x in _tensor_list("column_stack", tensors)
    ]
    return cat(parts, 1)


@expose(method=False, out=False)
def block_diag(*tensors: Tensor) -> Tensor:
    """Matrices along a diagonal, zeros elsewhere."""
    if not tensors:
        return zeros(1, 0)
    common = result_dtype([x._type for x in tensors])
    blocks = []
    for i, x in enumerate(tensors):
        if x.ndim > 2:
            raise RuntimeError(
                "block_diag: Input tensors must have 2 or fewer dimensions. "
                f"Input {i} has {x.ndim} dimensions"
            )
        blocks.append(cast(_to_2d(x), common))
    width = sum(x._type.shape[1] for x in blocks)
    rows, start = [], 0
    for block in blocks:
        height, own = block._type.shape
        slices = ((0, height, 1), (start, start + own, 1))
        rows.append(bind(PAD_SLICE, block, slices=slices, shape=(height, width)))
        start += own
    return cat(rows, 0)


# -- broadcasting -------------------------------------------------------------------------------


@expose(method=False, out=False)
def broadcast_tensors(*tensors: object) -> tuple[Tensor, ...]:
    """Every tensor expanded to the shape they have in common."""
    given = _given(tensors)
    shape = shapes.broadcast_shapes(*[x._type.shape for x in given])
    return tuple([expand(x, shape) for x in given])


@expose(method=False, out=False)
def broadcast_shapes(*shapes_: Any) -> Size:
    """The shape that all given shapes expand to."""
    return Size(shapes.broadcast_shapes(*[(s,) if isinstance(s, int) else s for s in shapes_]))


# -- grids --------------------------------------------------------------------------------------


@expose(method=False, out=False)
def meshgrid(*tensors: object, indexing: str | None = None) -> tuple[Tensor, ...]:
    """For each vector a grid in which it varies along its own dimension."""
    given = _given(tensors)
    indexing = "ij" if indexing is None else indexing
    if indexing not in ("ij", "xy"):
        raise RuntimeError(
            f'meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}'
        )
    if any(x.ndim > 1 for x in given):
        wrong = next(x for x in given if x.ndim > 1)
        raise RuntimeError(
            "meshgrid: Expected 0D or 1D tensor in the tensor list but got: "
            f"{list(wrong._type.shape)}"
        )
    if any(x.dtype is not given[0].dtype for x in given):
        raise RuntimeError("meshgrid expects all tensors to have the same dtype")
    swapped = indexing == "xy" and len(given) >= 2
    vectors = [given[1], given[0], *given[2:]] if swapped else list(given)
    shape = tuple(x._type.numel for x in vectors)
    grids = [
        expand(reshape(x, (x._type.numel,) + (1,) * (len(shape) - 1 - i)), shape)
        for i, x in enumerate(vectors)
    ]
    return (grids[1], grids[0], *grids[2:]) if swapped else tuple(grids)


@expose(method=False, out=False)
def cartesian_prod(*tensors: Tensor) -> Tensor:
    """Every way to take one element of each vector, a row for each."""
    given = _given(tensors)
    for x in given:
        _require_vector(x)
    if len(given) == 1:
        return given[0]
    return stack([reshape(grid, -1) for grid in meshgrid(*given)], 1)


@expose(method=False, out=False)
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """Every way to take ``r`` elements in order, a row for each."""
    _require_vector(input)
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    if r == 0:
        return input[:0]
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    numbers = range(input._type.numel)
    places = np.fromiter(itertools.chain.from_iterable(choose(numbers, r)), np.int64)
    return input[from_array(places.reshape(-1, r))]


def _require_vector(x: Tensor) -> None:
    if x.ndim != 1:
        raise RuntimeError(f"Expect a 1D vector, but got shape {list(x._type.shape)}")
