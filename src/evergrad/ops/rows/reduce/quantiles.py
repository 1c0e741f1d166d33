"""Medians, modes and quantiles.

Medians and modes are elements: along a dimension the gradient goes to the one that was found, and
for the median of all, equal elements share it. Quantiles are interpolated between two elements,
and have a derivative in ``q`` as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad import return_types
from evergrad.core import dtypes
from evergrad.core.autocast import autocast_policy
from evergrad.core.bind import bind, cast
from evergrad.core.families import reduction
from evergrad.core.op import Op
from evergrad.core.prepared import prepared
from evergrad.core.row_facts import AutocastPolicy, lowered, numpy_evaluates
from evergrad.core.shapes import Shape, TensorType, normalize_dim, reduced_shape
from evergrad.core.tensor import Array, Tensor
from evergrad.ops.rows.check import require
from evergrad.ops.rows.creation.constants import scalar_tensor
from evergrad.ops.rows.elementwise.arithmetic import lerp
from evergrad.ops.rows.elementwise.basic import where
from evergrad.ops.rows.elementwise.rounding import ceil, floor, round
from evergrad.ops.rows.indexing.scatter import gather
from evergrad.ops.rows.movement.slices import slice_dim
from evergrad.ops.rows.movement.views import contiguous, expand, movedim, owned, reshape
from evergrad.ops.rows.reduce.extrema import shared_by_ties
from evergrad.ops.rows.reduce.lanes import SORTED, chosen, place_row
from evergrad.ops.rows.reduce.sort import sort, stable_order
from evergrad.ops.rows.reduce.sums import batch_fold, folded
from evergrad.ops.rows.reduce.sums import sum as total
from evergrad.ops.surface.public import expose

if TYPE_CHECKING:
    from evergrad import return_types

# -- medians ------------------------------------------------------------------------------------


def _median_places(x: Array, *, dim: int) -> Array:
    """The lower of two in the middle; a NaN if there is one."""
    at = (x.shape[dim] - 1) // 2
    middle = stable_order(x, dim)[(*(slice(None),) * dim, slice(at, at + 1))]
    missing = np.isnan(x)
    if not missing.any():
        return middle
    first_missing = np.argmax(missing, dim, keepdims=True)
    return np.where(missing.any(dim, keepdims=True), first_missing, middle)


def _nanmedian_places(x: Array, *, dim: int) -> Array:
    there = np.sum(~np.isnan(x), dim, keepdims=True)
    return np.take_along_axis(stable_order(x, dim), np.maximum(there - 1, 0) // 2, dim)


MEDIAN_PLACE = place_row("median_place", _median_places, SORTED, "Where the median stands.",
                         booleans=False)  # fmt: skip
NANMEDIAN_PLACE = place_row("nanmedian_place", _nanmedian_places, SORTED,
                            "Where the median of what is not NaN stands.",
                            booleans=False)  # fmt: skip


def _median_of_all(name: str, places: Callable[..., Array], doc: str) -> Op:
    def evaluate(x: Array, *, dims: Shape, keepdim: bool) -> Array:
        if len(dims) == x.ndim and x.size:
            lane = x.reshape(-1)
            return np.asarray(lane[places(lane, dim=0)[0]])
        kept = [n for i, n in enumerate(x.shape) if i not in dims]
        lanes = np.moveaxis(x, dims, range(len(kept), x.ndim)).reshape(*kept, -1)
        if not lanes.shape[-1]:
            return np.full(kept, np.nan)
        return np.take_along_axis(lanes, places(lanes, dim=len(kept)), -1)[..., 0]

    def type_rule(x: TensorType, *, dims: Shape, keepdim: bool) -> TensorType:
        if x.dtype.is_complex or x.dtype is dtypes.bool_:
            raise NotImplementedError(f"\"{name}\" not implemented for '{x.dtype.name}'")
        return folded(x, dims=dims, keepdim=keepdim)

    return reduction(
        name, evaluate, type_rule, shared_by_ties, batch=batch_fold,
        emit=lowered("passes.decompose_indexing"),
        autocast=AutocastPolicy.KEEP, doc=doc,
    )  # fmt: skip


MEDIAN = _median_of_all("median", _median_places, "The median over dimensions.")
NANMEDIAN = _median_of_all("nanmedian", _nanmedian_places, "The median of what is not NaN.")


def _median(
    all_of: Op,
    place: Op,
    kind: type[return_types.median] | type[return_types.nanmedian],
    input: Tensor,
    dim: int | None,
    keepdim: bool,
) -> object:
    if dim is None:
        return bind(all_of, input, dims=tuple(range(input.ndim)), keepdim=False)
    return chosen(kind, place, input, dim, keepdim)


@expose(numpy_names=True)
@prepared
def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> object:
    """The element in the middle (the lower of two); along a dimension also where it stands."""
    return _median(MEDIAN, MEDIAN_PLACE, return_types.median, input, dim, keepdim)


@expose(numpy_names=True)
@prepared
def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False) -> object:
    """The median of what is not NaN."""
    return _median(NANMEDIAN, NANMEDIAN_PLACE, return_types.nanmedian, input, dim, keepdim)


# -- mode ---------------------------------------------------------------------------------------


def _mode_places(x: Array, *, dim: int) -> Array:
    """The last of the commonest elements, the smallest where several are as common."""
    x = np.moveaxis(x, dim, -1)
    order = stable_order(x, x.ndim - 1)
    ordered = np.take_along_axis(x, order, -1)
    own = np.arange(x.shape[-1])
    begins = np.ones(x.shape, bool)
    begins[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    run_so_far = own - np.maximum.accumulate(np.where(begins, own, 0), -1)
    commonest = np.argmax(run_so_far, -1, keepdims=True)
    return np.moveaxis(np.take_along_axis(order, commonest, -1), -1, dim)


MODE_PLACE = place_row(
    "mode_place",
    _mode_places,
    numpy_evaluates("runs of a sorted lane"),
    "Where the commonest element last stands.",
)


@expose(numpy_names=True)
@prepared
def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> return_types.mode:
    """The commonest element along a dimension (the smallest of several), and where it stands."""
    return chosen(return_types.mode, MODE_PLACE, input, dim, keepdim)


# -- quantiles ----------------------------------------------------------------------------------

_ROUNDINGS = {"lower": floor, "higher": ceil, "nearest": round}


def _check_quantile(name: str, input: Tensor, q: Any, interpolation: str) -> None:
    if interpolation not in ("linear", "lower", "higher", "midpoint", "nearest"):
        raise RuntimeError(
            f"{name}() interpolation must be one of linear, lower, higher, midpoint or nearest, "
            f"but got {interpolation}"
        )
    if input.dtype not in (dtypes.float32, dtypes.float64):
        raise RuntimeError(f"{name}() input tensor must be either float or double dtype")
    if not input._type.numel:
        raise RuntimeError(f"{name}() input tensor must be non-empty")
    if not isinstance(q, Tensor):
        if not 0 <= q <= 1:
            raise RuntimeError(f"{name}() q must be in the range [0, 1] but got {q}")
        return
    if q.ndim > 1:
        raise RuntimeError(f"{name}() q must be a scalar or 1D tensor")
    if q.dtype is not input.dtype:
        raise RuntimeError(f"{name}() q tensor must be same dtype as the input tensor")
    require(
        (q >= 0) & (q <= 1), RuntimeError, lambda: f"{name}() q values must be in the range [0, 1]"
    )


def _ranks(lanes: Tensor, q: Tensor, ignore_nan: bool) -> Tensor:
    """The fractional position of each quantile in a sorted lane."""
    last = lanes._type.shape[-1] - 1
    if ignore_nan:
        there = cast(total(lanes == lanes, -1, True), lanes.dtype)
        return where(there == 0, 0, q * (there - 1))
    greatest = slice_dim(lanes, lanes.ndim - 1, last, last + 1)
    return where(greatest != greatest, float(last), q * last)


def _between(lanes: Tensor, ranks: Tensor, interpolation: str) -> Tensor:
    if interpolation in _ROUNDINGS:
        ranks = _ROUNDINGS[interpolation](ranks)
        return gather(lanes, -1, cast(ranks, dtypes.int64))
    below = floor(ranks)
    low = gather(lanes, -1, cast(below, dtypes.int64))
    high = gather(lanes, -1, cast(ceil(ranks), dtypes.int64))
    return lerp(low, high, 0.5 if interpolation == "midpoint" else ranks - below)


def _quantile(
    name: str, input: Tensor, q: object, dim: int | None, keepdim: bool, interpolation: str
) -> Tensor:
    _check_quantile(name, input, q, interpolation)
    shape = input._type.shape
    dims = tuple(range(len(shape))) if dim is None else (normalize_dim(dim, len(shape)),)
    lanes = reshape(input, -1) if dim is None or not shape else movedim(input, dims[0], -1)
    lanes = sort(lanes, -1).values
    qs = q if isinstance(q, Tensor) else scalar_tensor(q, dtype=input.dtype)
    ranks = _ranks(lanes, reshape(qs, -1), ignore_nan=name == "nanquantile")
    ranks = expand(ranks, (*lanes._type.shape[:-1], qs._type.numel))
    found = movedim(_between(lanes, ranks, interpolation), -1, 0)
    rest = reduced_shape(shape, dims if shape else (), keepdim)
    return owned(reshape(contiguous(found), (*qs._type.shape, *rest)))


@expose(numpy_names=True)
@autocast_policy(AutocastPolicy.FLOAT32)
def quantile(
    input: Tensor, q: object, dim: int | None = None, keepdim: bool = False, *,
    interpolation: str = "linear",
) -> Tensor:  # fmt: skip
    """What a fraction ``q`` of the elements is below, interpolated between neighbours."""
    return _quantile("quantile", input, q, dim, keepdim, interpolation)


@expose(numpy_names=True)
@autocast_policy(AutocastPolicy.FLOAT32)
def nanquantile(
    input: Tensor, q: object, dim: int | None = None, keepdim: bool = False, *,
    interpolation: str = "linear",
) -> Tensor:  # fmt: skip
    """:func:`quantile` of what is not NaN."""
    return _quantile("nanquantile", input, q, dim, keepdim, interpolation)
