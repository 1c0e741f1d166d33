"""Rows that find the largest and smallest along dimensions, and where they stand.

``max`` and ``min`` along one dimension gather what stands at the place they found, so all of the
gradient goes there. Over several dimensions, or all, equal extremes share it evenly. NaN is taken
for larger and smaller than any number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad import return_types
from evergrad.core import dtypes
from evergrad.core.bind import bind, bind_prepared
from evergrad.core.compound import is_jagged
from evergrad.core.families import reduction
from evergrad.core.op import Op, prepared_calls
from evergrad.core.prepared import prepared
from evergrad.core.row_facts import AutocastPolicy, Combine, EagerReduction, lowered
from evergrad.core.shapes import Shape, TensorType, listed_dims, normalize_dims
from evergrad.core.tensor import Tensor
from evergrad.core.types import DimsLike
from evergrad.ops.rows.elementwise.basic import maximum, minimum, where
from evergrad.ops.rows.movement.views import owned, reshape, squeeze
from evergrad.ops.rows.reduce.lanes import as_lanes, check_nonempty, chosen, place_row, places_along
from evergrad.ops.rows.reduce.sums import batch_fold, folded, reduced
from evergrad.ops.rows.reduce.sums import sum as total
from evergrad.ops.surface.public import expose

if TYPE_CHECKING:
    from evergrad import return_types
    from evergrad.core.types import Array

# -- values -------------------------------------------------------------------------------------


def shared_by_ties(t: Tensor, y: Tensor, x: Tensor, dims: Shape) -> Tensor:
    """The slope of a fold that chooses: the same for all elements that equal the result."""
    tied = (x == y) | ((x != x) & (y != y))
    return where(tied, t / total(tied, dims, True), 0)


def _extreme(name: str, ufunc: Any, combine: Combine, doc: str) -> Op:
    def evaluate(x: object, *, dims: Shape, keepdim: bool, **out: object) -> Array:
        result: Array = ufunc.reduce(x, axis=dims, keepdims=keepdim, **out)
        return result

    def type_rule(x: TensorType, *, dims: Shape, keepdim: bool) -> TensorType:
        if x.dtype.is_complex:
            raise NotImplementedError(f"\"{name}\" not implemented for '{x.dtype.name}'")
        return folded(x, dims=dims, keepdim=keepdim)

    return reduction(name, evaluate, type_rule, shared_by_ties, batch=batch_fold, takes_out=True,
                     emit=lowered("loops"), autocast=AutocastPolicy.KEEP, combine=combine,
                     eager_reduction=EagerReduction(combine), doc=doc)  # fmt: skip


AMAX = _extreme("amax", np.maximum, Combine.MAX, "The largest over dimensions.")
AMIN = _extreme("amin", np.minimum, Combine.MIN, "The smallest over dimensions.")


_FOLDS = {AMAX: prepared_calls(), AMIN: prepared_calls()}


def _fold(op: Op, name: str, input: Tensor, dim: DimsLike = (), keepdim: bool = False) -> Tensor:
    if dim is not None and dim.__class__ is not int:
        dim = tuple(listed_dims(dim))
    if input._type.numel and (dim is None or dim == ()):
        return reduced(_FOLDS[op], op, input, None, keepdim)
    if dim.__class__ is int and keepdim.__class__ is bool:
        found = _FOLDS[op].get((input._type, dim, keepdim))
        if found is not None:
            return bind_prepared(found, input)  # type: ignore[no-any-return]
    if (dim is None or dim == ()) and not input._type.numel:
        raise RuntimeError(
            f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify "
            "the reduction dim with the 'dim' argument."
        )
    dims = normalize_dims(dim, input.ndim)
    check_nonempty(name, input._type.shape, dims)
    return reduced(_FOLDS[op], op, input, dim, keepdim)


@expose(numpy_names=True)
def amax(input: Tensor, dim: DimsLike = (), keepdim: bool = False) -> Tensor:
    """The largest over all or the given dimensions."""
    return _fold(AMAX, "amax", input, dim, keepdim)


@expose(numpy_names=True)
def amin(input: Tensor, dim: DimsLike = (), keepdim: bool = False) -> Tensor:
    """The smallest over all or the given dimensions."""
    return _fold(AMIN, "amin", input, dim, keepdim)


@expose(numpy_names=True)
@prepared
def aminmax(
    input: Tensor, *, dim: int | None = None, keepdim: bool = False
) -> return_types.aminmax:
    """The smallest and the largest, of all or along a dimension."""
    if dim is None and not input._type.numel:
        raise RuntimeError(
            "aminmax(): cannot compute aminmax over an empty dimension as the operation has no "
            "identity."
        )
    at = () if dim is None else dim
    low, high = (_fold(op, "aminmax", input, at, keepdim) for op in (AMIN, AMAX))
    return return_types.aminmax(low, high)


# -- places -------------------------------------------------------------------------------------

POSITIONS = lowered("kernels.lanes")
ARGMAX = place_row("argmax", lambda x, *, dim: x.argmax(dim, keepdims=True),
                   POSITIONS, "Where the largest first stands.")  # fmt: skip
ARGMIN = place_row("argmin", lambda x, *, dim: x.argmin(dim, keepdims=True),
                   POSITIONS, "Where the smallest first stands.")  # fmt: skip


def _place(op: Op, input: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    if input.dtype is dtypes.bool_:
        raise RuntimeError(f"{op.name}(): does not support bool input")
    if dim is not None:
        lanes, dim = as_lanes(input, dim)
        check_nonempty(op.name, lanes._type.shape, (dim,))
        found = places_along(op, lanes, dim)
        return found if keepdim and input.ndim else owned(squeeze(found, dim))
    if not input._type.numel:
        raise IndexError(
            f"{op.name}(): Expected reduction dim to be specified for input.numel() == 0."
        )
    # Of a nested tensor among its values, as in PyTorch.
    elements = input.values() if is_jagged(input) and input.is_contiguous() else input
    found = bind(op, reshape(elements, -1), dim=0)
    return owned(reshape(found, (1,) * input.ndim if keepdim else ()))


@expose(numpy_names=True)
@prepared
def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Where the largest first stands, in a dimension or among all elements in order."""
    return _place(ARGMAX, input, dim, keepdim)


@expose(numpy_names=True)
@prepared
def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Where the smallest first stands, in a dimension or among all elements in order."""
    return _place(ARGMIN, input, dim, keepdim)


# -- both ---------------------------------------------------------------------------------------


@expose(numpy_names=True)
@prepared
def max(
    input: Tensor, dim: int | None = None, keepdim: bool = False, *, other: object = None
) -> Any:
    """The largest of all; with a dimension, the largest along it and their places; with another
    tensor, the larger of each two."""
    if other is not None or isinstance(dim, Tensor):
        return maximum(input, dim if other is None else other)
    if dim is None:
        return _fold(AMAX, "max", input)
    return chosen(return_types.max, ARGMAX, input, dim, keepdim)


@expose(numpy_names=True)
@prepared
def min(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: object = None) -> Any:
    """The smallest of all; with a dimension, the smallest along it and their places; with another
    tensor, the smaller of each two."""
    if other is not None or isinstance(dim, Tensor):
        return minimum(input, dim if other is None else other)
    if dim is None:
        return _fold(AMIN, "min", input)
    return chosen(return_types.min, ARGMIN, input, dim, keepdim)
