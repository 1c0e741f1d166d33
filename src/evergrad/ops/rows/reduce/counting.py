"""Which elements there are and how often: distinct ones, places in a sequence, counts in bins.

None of this has a derivative. Where the size of a result depends on the data (``unique``,
``bincount``) there is no row: the function looks at the elements. Inside a trace ``bincount`` has
``minlength`` bins, and checks that these suffice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import bind, cast
from evergrad.core.dtypes import dtype
from evergrad.core.families import meet, opaque
from evergrad.core.functionalize import data_size
from evergrad.core.op import NONDIFFERENTIABLE, ArgType
from evergrad.core.row_facts import AutocastPolicy, lowered, numpy_evaluates
from evergrad.core.shapes import TensorType, normalize_dim, tensor_type
from evergrad.core.tensor import Array, Tensor, from_array
from evergrad.core.tracing import is_known
from evergrad.errors import AssumptionError
from evergrad.ops.rows.check import require
from evergrad.ops.rows.creation.constants import ones_like, zeros
from evergrad.ops.rows.indexing.functions import index_add, index_copy, index_select
from evergrad.ops.rows.indexing.masked import traced_places
from evergrad.ops.rows.indexing.scatter import gather
from evergrad.ops.rows.movement.joining import cat
from evergrad.ops.rows.movement.views import reshape
from evergrad.ops.rows.reduce.extrema import amax
from evergrad.ops.rows.reduce.scan import cumsum
from evergrad.ops.rows.reduce.sort import argsort
from evergrad.ops.surface.public import expose

# -- distinct elements --------------------------------------------------------------------------


# The numbers of a range for each element, up to which distinct integers are counted in a table.
_SPARSE = 4
_SMALL_RANGE = 1 << 16


def _distinct(x: Array, dim: int | None, with_inverse: bool) -> tuple[Array, Array | None, Array]:
    """Distinct elements in order, for each element its place among them, and counts."""
    if dim is None and x.dtype.kind in "iu" and x.size:
        low, span = int(x.min()), int(x.max()) - int(x.min()) + 1
        if span <= max(_SPARSE * x.size, _SMALL_RANGE):
            return _counted(x, low, span, with_inverse)
    wide = x.astype(np.float32) if x.dtype == dtypes.bfloat16.np else x
    if not with_inverse:
        found, counts = np.unique(wide, return_counts=True, axis=dim, equal_nan=False)
        return found.astype(x.dtype), None, counts
    found, inverse, counts = np.unique(
        wide, return_inverse=True, return_counts=True, axis=dim, equal_nan=False
    )
    return found.astype(x.dtype), inverse.reshape(x.shape if dim is None else -1), counts


def _counted(
    x: Array, low: int, span: int, with_inverse: bool
) -> tuple[Array, Array | None, Array]:
    """The same for integers of a small range, by a table of it."""
    wide = x if x.dtype == np.uint64 else x.astype(np.int64, copy=False)
    offsets = (wide - wide.dtype.type(low)).astype(np.int64, copy=False)
    counts = np.bincount(offsets.reshape(-1), minlength=span)
    present = np.flatnonzero(counts)
    values = (present.astype(wide.dtype) + wide.dtype.type(low)).astype(x.dtype)
    inverse = (np.cumsum(counts > 0) - 1)[offsets] if with_inverse else None
    return values, inverse, counts[present]


def _runs(x: Array, dim: int | None) -> tuple[Array, Array, Array]:
    lanes = x.reshape(-1) if dim is None else np.moveaxis(x, dim, 0)
    extent = lanes.shape[0]
    rows = lanes.reshape(extent, math.prod(lanes.shape[1:]))
    begins = np.ones(extent, bool)
    begins[1:] = (rows[1:] != rows[:-1]).any(1)
    starts = np.flatnonzero(begins)
    found = lanes[starts] if dim is None else np.moveaxis(lanes[starts], 0, dim)
    inverse = (np.cumsum(begins) - 1).reshape(x.shape if dim is None else -1)
    return found, inverse, np.diff(np.append(starts, extent))


def _as_tensors(
    found: tuple[Array, Array | None, Array], with_inverse: bool, with_counts: bool
) -> tuple[Tensor, ...] | Tensor:
    values, inverse, counts = found
    wanted = [values]
    wanted += [inverse.astype(np.int64)] if with_inverse and inverse is not None else []
    wanted += [counts.astype(np.int64)] if with_counts else []
    tensors = tuple(from_array(np.asarray(a, order="C")) for a in wanted)
    return tensors if len(tensors) > 1 else tensors[0]


def _traced_distinct(
    input: Tensor, with_inverse: bool, with_counts: bool
) -> tuple[Tensor, ...] | None:  # fmt: skip
    """The same of integers where only the count of distinct elements is read; ``None`` if that is
    not possible."""
    extent = input._type.numel
    if not extent or input.dtype.category > dtypes.INTEGRAL:
        return None
    flat = reshape(input, -1)
    order = argsort(flat, stable=True)
    ranked = index_select(flat, 0, order)
    begins = cat([ones_like(ranked[:1], dtype=dtypes.bool_), ranked[1:] != ranked[:-1]])
    starts = traced_places(begins)
    if starts is None:
        return None
    tensors = [index_select(ranked, 0, starts)]
    if with_inverse:
        numbers = cumsum(cast(begins, dtypes.int64), 0) - 1
        own = index_copy(zeros(extent, dtype=dtypes.int64), 0, order, numbers)
        tensors.append(reshape(own, input._type.shape))
    if with_counts:
        end = ones_like(starts[:1]) * extent
        tensors.append(cat([starts[1:], end]) - starts)
    return tuple(tensors)


def _slices(input: Tensor, dim: int | None) -> int | None:
    if dim is None:
        return None
    dim = normalize_dim(dim, input.ndim)
    if any(not n for i, n in enumerate(input._type.shape) if i != dim):
        raise RuntimeError(
            "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied"
        )
    return dim


@expose(out=False, numpy_names=True)
def unique(
    input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False,
    dim: int | None = None,
) -> object:  # fmt: skip
    """The distinct elements (or slices of a dimension), in order; on request for each element its
    place among them, and how often each occurs."""
    if dim is None and not is_known(input):
        tensors = _traced_distinct(input, return_inverse, return_counts)
        if tensors is not None:
            return tensors if len(tensors) > 1 else tensors[0]
    found = _distinct(input.array(), _slices(input, dim), return_inverse)
    return _as_tensors(found, return_inverse, return_counts)


@expose(out=False, numpy_names=True)
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False,
    dim: int | None = None,
) -> object:  # fmt: skip
    """The elements (or slices of a dimension) without those that equal the one before."""
    found = _runs(input.array(), _slices(input, dim))
    return _as_tensors(found, return_inverse, return_counts)


# -- places in a sorted sequence ----------------------------------------------------------------


def _searchsorted_type(
    sequence: TensorType, values: TensorType, *, side: str, dtype: dtype
) -> TensorType:
    if len(sequence.shape) != 1 and sequence.shape[:-1] != values.shape[:-1]:
        raise RuntimeError(
            "searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions "
            "of boundaries tensor and input value tensor must match, but we got boundaries tensor "
            f"{list(sequence.shape)} and input value tensor {list(values.shape)}"
        )
    return tensor_type(values.shape, dtype)


def _searchsorted_eval(sequence: Array, values: Array, *, side: Any, dtype: dtype) -> object:
    if sequence.ndim == 1:
        return np.searchsorted(sequence, values, side)
    found = np.zeros(values.shape, dtype.np)
    for lane in np.ndindex(sequence.shape[:-1]):
        found[lane] = np.searchsorted(sequence[lane], values[lane], side)
    return found


def _first_of_same(x: Array) -> Array:
    _, first, inverse = np.unique(x, return_index=True, return_inverse=True)
    return first[inverse.reshape(x.shape)]


FIRST_OF_SAME = opaque(
    "first_of_same", _first_of_same, lambda x: tensor_type(x.shape, dtypes.int64),
    NONDIFFERENTIABLE, emit=lowered("kernels.sort"), autocast=AutocastPolicy.KEEP,
    doc="Of each element of a vector the position of the first that is equal to it.",
)  # fmt: skip


SEARCHSORTED = opaque(
    "searchsorted", _searchsorted_eval, _searchsorted_type, NONDIFFERENTIABLE, promote=meet,
    emit=numpy_evaluates("sorting and selection"), autocast=AutocastPolicy.KEEP,
    doc="Insertion positions of values in sorted sequences.",
)  # fmt: skip


@expose(method=False)
def searchsorted(
    sorted_sequence: Tensor, input: object, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Where each value would stand in the sorted last dimension of ``sorted_sequence``: before
    equal elements, or after them with ``right=True``."""
    if side is not None and right and side == "left":
        raise RuntimeError(
            "searchsorted(): side and right can't be set to opposites, got side of left while "
            "right was True"
        )
    if sorter is not None:
        sorted_sequence = gather(sorted_sequence, -1, sorter)
    return bind(  # type: ignore[no-any-return]
        SEARCHSORTED, sorted_sequence, input, side="right" if right else side or "left",
        dtype=dtypes.int32 if out_int32 else dtypes.int64,
    )  # fmt: skip


@expose(method=False)
def bucketize(
    input: object, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    """The number of the bucket each value falls into, between sorted boundaries."""
    if boundaries.ndim != 1:
        raise RuntimeError(f"boundaries tensor must be 1 dimension, but got dim({boundaries.ndim})")
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


# -- counts in bins -----------------------------------------------------------------------------


def _histc_type(x: TensorType, low: TensorType, high: TensorType, *, bins: int) -> TensorType:
    if not x.dtype.is_floating_point:
        raise NotImplementedError(f"\"histogram_cpu\" not implemented for '{x.dtype.name}'")
    return tensor_type((bins,), x.dtype)


def _histc_eval(x: Array, low: float, high: float, *, bins: int) -> Array:
    if low == high and x.size:
        low, high = float(x.min()), float(x.max())
    if low == high:
        low, high = low - 1, high + 1
    if not (np.isfinite(low) and np.isfinite(high)):
        raise RuntimeError(f"histc: range of [{low}, {high}] is not finite")
    inside = x[(x >= low) & (x <= high)]
    places = ((inside - low) * (bins / (high - low))).astype(np.int64)
    return np.bincount(np.minimum(places, bins - 1), minlength=bins)


def _own_type(types: Sequence[ArgType]) -> dtype:
    first = types[0]
    assert isinstance(first, TensorType)
    return first.dtype


HISTC = opaque("histc", _histc_eval, _histc_type, NONDIFFERENTIABLE, promote=_own_type,
               emit=numpy_evaluates("counts at computed positions"), autocast=AutocastPolicy.KEEP,
               doc="How many elements fall into equal bins.")  # fmt: skip


@expose()
def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """How many elements fall into each of ``bins`` equal bins between ``min`` and ``max``, or
    between the smallest and the largest element."""
    if bins <= 0:
        raise RuntimeError(f"histc(): bins must be > 0, but got {bins}")
    if min > max:
        raise RuntimeError("histc: max must be larger than min")
    return bind(HISTC, input, float(min), float(max), bins=bins)  # type: ignore[no-any-return]


@expose(out=False)
def bincount(input: Tensor, weights: object = None, minlength: int = 0) -> Tensor:
    """How often each of 0, 1, 2, ... occurs, or the sum of the weights where it does."""
    if input.dtype.category > dtypes.INTEGRAL:
        raise NotImplementedError(f"\"bincount_cpu\" not implemented for '{input.dtype.name}'")
    refusal = "bincount only supports 1-d non-negative integral inputs."
    if input.ndim != 1:
        raise RuntimeError(refusal)
    require(input >= 0, RuntimeError, lambda: refusal)
    if minlength < 0:
        raise RuntimeError("minlength should be >= 0")
    if weights is not None and not isinstance(weights, Tensor):
        kind = type(weights).__name__
        raise TypeError(f"bincount(): argument 'weights' (position 2) must be Tensor, not {kind}")
    if weights is not None and weights._type.shape != input._type.shape:
        raise RuntimeError("weights should be 1-d and have the same length as input")
    if minlength and not (is_known(input) and (weights is None or is_known(weights))):
        return _counts_below(input, weights, minlength)
    if not minlength and input._type.numel and not is_known(input):
        greatest = data_size(amax(input))
        if greatest is not None and greatest >= 0:
            return _counts_below(input, weights, greatest + 1)
    values = input.array()
    if weights is None:
        return from_array(np.bincount(values, minlength=minlength))
    counts = np.bincount(values, weights.array().astype(np.float64), minlength)
    return from_array(counts.astype(np.float32) if weights.dtype is dtypes.float32 else counts)


def _counts_below(input: Tensor, weights: Tensor | None, length: int) -> Tensor:
    """``bincount`` inside a trace, where the length of the result must not depend on data."""
    require(
        input < length, AssumptionError,
        lambda: (
            f"bincount inside a compiled function: the value {amax(input)} needs a result longer "
            f"than minlength={length}, and its length is fixed.\n"
            "  fix: a larger minlength, or bincount outside of the function."
        ),
    )  # fmt: skip
    kind = dtypes.int64 if weights is None else dtypes.float64
    given = ones_like(input, dtype=kind) if weights is None else cast(weights, kind)
    counts = index_add(zeros(length, dtype=kind), 0, cast(input, dtypes.int64), given)
    is_single = weights is not None and weights.dtype is dtypes.float32
    return cast(counts, dtypes.float32) if is_single else counts
