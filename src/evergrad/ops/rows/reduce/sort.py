"""Order along a dimension: sorted, or the few that come first.

Rows give places; values are gathered from there, which is where their gradient goes. Sorting is
always stable, and NaN counts as larger than any number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from evergrad import return_types
from evergrad.core import dtypes
from evergrad.core.bind import bind
from evergrad.core.eager import lanes
from evergrad.core.prepared import prepared
from evergrad.core.shapes import normalize_dim
from evergrad.core.tensor import Array, Tensor
from evergrad.ops.rows.movement.views import owned, reshape
from evergrad.ops.rows.reduce.lanes import SORTED, as_lanes, chosen, gathered, place_row
from evergrad.ops.surface.public import expose

# -- sorting ------------------------------------------------------------------------------------


def stable_order(x: Array, dim: int, descending: bool = False) -> Array:
    """The places that sort each lane; equal elements keep their order."""
    if not descending:
        return x.argsort(dim, kind="stable")
    flip = (*(slice(None),) * dim, slice(None, None, -1))
    places = x[flip].argsort(dim, kind="stable")
    return (x.shape[dim] - 1 - places)[flip]  # type: ignore[no-any-return]


ARGSORT = place_row(
    "argsort", lambda x, *, dim, descending: stable_order(x, dim, descending), SORTED,
    "The places that sort a dimension.", extent=lambda n, *, descending: n,
)  # fmt: skip


@expose(numpy_names=True)
@prepared
def sort(
    input: Tensor, dim: int = -1, descending: bool = False, stable: bool | None = False
) -> Any:
    """A dimension in order, and where each element came from."""
    return return_types.sort(*gathered(ARGSORT, input, dim, descending=bool(descending)))


@expose(numpy_names=True)
@prepared
def argsort(
    input: Tensor, dim: int = -1, descending: bool = False, stable: bool | None = False
) -> Tensor:
    """The places that sort a dimension."""
    lanes, dim = as_lanes(input, dim)
    places = bind(ARGSORT, lanes, dim=dim, descending=bool(descending))
    return owned(reshape(places, input._type.shape))


@expose()
def msort(input: Tensor) -> Tensor:
    """The first dimension in order."""
    return sort(input, 0).values  # type: ignore[no-any-return]


# Of fewer elements all are sorted.
_FEW = 1 << 10

# -- the first few ------------------------------------------------------------------------------


def _has_ties(x: Array, dim: int) -> bool:
    """Whether a lane has equal elements: which of them are taken is as for long lanes then."""
    ranked, before = np.sort(x, dim), (slice(None),) * dim
    return bool((ranked[(*before, slice(1, None))] == ranked[(*before, slice(-1))]).any())


def _topk_places(x: Array, *, dim: int, k: int, largest: bool) -> Array:
    native = lanes.topk(x, k, largest) if dim == x.ndim - 1 else None
    if native is not None:
        return native
    extent = x.shape[dim]
    if x.size < _FEW and extent and not _has_ties(x, dim):
        return stable_order(x, dim, largest)[(*(slice(None),) * dim, slice(k))]
    is_last = dim == x.ndim - 1
    x = x if is_last else np.moveaxis(x, dim, -1)
    extent = x.shape[-1]
    if 0 < k < extent:
        found = np.argpartition(x, extent - k if largest else k - 1, -1)
        few = np.sort(found[..., extent - k :] if largest else found[..., :k], -1)
    else:
        few = np.broadcast_to(np.arange(k), (*x.shape[:-1], k))
    order = stable_order(np.take_along_axis(x, few, -1), x.ndim - 1, largest)
    places = np.take_along_axis(few, order, -1)
    return places if is_last else np.moveaxis(places, -1, dim)


TOPK = place_row("topk_places", _topk_places, SORTED,
                 "Where the largest or smallest few stand, in order.",
                 extent=lambda n, *, k, largest: k)  # fmt: skip


@expose(numpy_names=True)
@prepared
def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """The ``k`` largest (or smallest) along a dimension, in order, and where they stand."""
    if input.dtype is dtypes.bool_:
        raise RuntimeError("topk does not support bool dtypes on CPU")
    at = normalize_dim(dim, input.ndim)
    extent = input._type.shape[at] if input.ndim else 1
    if not 0 <= k <= extent:
        raise RuntimeError("selected index k out of range")
    k = int(k) if input.ndim else 1
    return return_types.topk(*gathered(TOPK, input, dim, k=k, largest=bool(largest)))


def _kth_place(x: Array, *, dim: int, k: int) -> Array:
    return np.take(np.argpartition(x, k - 1, dim), [k - 1], dim)


KTHVALUE = place_row("kthvalue_place", _kth_place, SORTED, "Where the k-th smallest stands.",
                     extent=lambda n, *, k: 1, booleans=False)  # fmt: skip


@expose(numpy_names=True)
@prepared
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> return_types.kthvalue:
    """The ``k``-th smallest along a dimension, counted from 1, and where it stands."""
    at = normalize_dim(dim, input.ndim)
    extent = input._type.shape[at] if input.ndim else 1
    if extent and not 1 <= k <= extent:
        raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {at}")
    return chosen(return_types.kthvalue, KTHVALUE, input, dim, keepdim, k=int(k))
