"""Rows that reduce dimensions to one value each: sums, means, products, any and all.

Variances and norms are in :mod:`evergrad.ops.rows.reduce.variance`; reductions that choose an
element in :mod:`evergrad.ops.rows.reduce.extrema` and :mod:`evergrad.ops.rows.reduce.quantiles`.

At the edges: ``prod`` has its true derivatives where factors are zero; ``logsumexp`` of nothing but
``-inf`` has slope 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import bind, bind_and_prepare, bind_prepared, cast
from evergrad.core.dtypes import as_dtype
from evergrad.core.families import linear, reduction
from evergrad.core.namespace import late_bound, ops
from evergrad.core.op import NONDIFFERENTIABLE, Op, Specialization, prepared_calls
from evergrad.core.row_facts import (
    LEAST_DERIVATIVE,
    AutocastPolicy,
    Combine,
    EagerReduction,
    lowered,
)
from evergrad.core.shapes import (
    Shape,
    TensorType,
    listed_dims,
    normalize_dim,
    normalize_dims,
    reduced_shape,
    tensor_type,
)
from evergrad.core.tensor import Array, Tensor
from evergrad.core.types import DimsLike
from evergrad.ops.rows.elementwise.basic import exp, where
from evergrad.ops.rows.movement.views import expand, movedim, reshape, to_front
from evergrad.ops.rows.reduce.pairwise import pairwise_sum
from evergrad.ops.surface.public import expose

if TYPE_CHECKING:
    from evergrad.core.types import DtypeLike


def folded(x: TensorType, *, dims: Shape, keepdim: bool) -> TensorType:
    """The type of a fold that keeps the element type."""
    return tensor_type(reduced_shape(x.shape, dims, keepdim), x.dtype)


def batch_fold(
    op: Op, args: Sequence[Any], at: Sequence[Any], *, dims: Shape, keepdim: bool, **rest: object
) -> tuple[Tensor, int]:
    """Reductions leave a leading batch dimension alone; numbers beside the tensor are passed on."""
    x = to_front(args[0], at[0])
    shifted = tuple(d + 1 for d in dims)
    return bind(op, x, *args[1:], dims=shifted, keepdim=keepdim, **rest), 0


def unfolded(value: Tensor, shape: Shape, dims: Shape, keepdim: bool) -> Tensor:
    """A folded value with its folded dimensions back as singletons."""
    return value if keepdim or not dims else reshape(value, reduced_shape(shape, dims, True))


def count_of(shape: Shape, dims: Shape) -> int:
    """How many elements are folded into one."""
    return math.prod(map(shape.__getitem__, dims))


def sum_type(input: Tensor, dtype: DtypeLike) -> Tensor:
    """The tensor in the type its sums and products have: int64 for integers."""
    if dtype is not None:
        return cast(input, as_dtype(dtype))
    return cast(input, dtypes.int64) if input.dtype.category < dtypes.FLOATING else input


# -- sum and mean -------------------------------------------------------------------------------


def reduced(
    calls: dict[object, Specialization],
    op: Op,
    input: Tensor,
    dim: int | Sequence[int] | None,
    keepdim: bool,
) -> Tensor:
    """Bind a reduction over all or the given dimensions."""
    if (dim is None or dim.__class__ is int) and keepdim.__class__ is bool:
        key = input._type, dim, keepdim
        found = calls.get(key)
        if found is not None:
            return bind_prepared(found, input)  # type: ignore[no-any-return]
        dims = normalize_dims(dim, len(input._type.shape))
        return bind_and_prepare(calls, key, op, input, dims=dims, keepdim=keepdim)  # type: ignore[no-any-return]
    dims = normalize_dims(dim, len(input._type.shape))
    return bind(op, input, dims=dims, keepdim=bool(keepdim))  # type: ignore[no-any-return]


def _sum_eval(x: object, *, dims: Shape, keepdim: bool, **out: object) -> object:
    return pairwise_sum(x, dims, keepdim, **out)


def _sum_transpose(g: Tensor, x: Tensor, *, dims: Shape, keepdim: bool) -> Tensor:
    shape = x._type.shape
    g = unfolded(g, shape, dims, keepdim)
    return g if g._type.shape == shape else expand(g, shape)


SUM = linear("sum", _sum_eval, folded, _sum_transpose, batch=batch_fold, takes_out=True,
             upcast=True,
             emit=lowered("loops"), autocast=AutocastPolicy.KEEP, combine=Combine.SUM,
             eager_derivative=LEAST_DERIVATIVE, eager_reduction=EagerReduction(Combine.SUM),
             shape_generic=True,
             doc="The sum over dimensions.")  # fmt: skip


_SUMS, _MEANS = prepared_calls(), prepared_calls()


@late_bound
@expose(numpy_names=True)
def sum(
    input: Tensor, dim: DimsLike = None, keepdim: bool = False, *, dtype: DtypeLike = None
) -> Tensor:
    """The sum over all or the given dimensions; integers are summed in int64."""
    if dtype is not None or input._type.dtype.category < dtypes.FLOATING:
        input = sum_type(input, dtype)
    return reduced(_SUMS, SUM, input, dim, keepdim)


def _mean_eval(x: Array, *, dims: Shape, keepdim: bool, **out: Any) -> object:
    total = pairwise_sum(x, dims, keepdim, **out)
    return np.divide(total, count_of(x.shape, dims), **out)


def _mean_transpose(g: Tensor, x: Tensor, *, dims: Shape, keepdim: bool) -> Tensor:
    count = count_of(x._type.shape, dims)
    return _sum_transpose(g / count, x, dims=dims, keepdim=keepdim)


MEAN = linear("mean", _mean_eval, folded, _mean_transpose, batch=batch_fold, takes_out=True,
              upcast=True,
              emit=lowered("passes.decompose"), autocast=AutocastPolicy.KEEP,
              eager_reduction=EagerReduction(Combine.SUM, mean=True), shape_generic=True,
              doc="The mean over dimensions.")  # fmt: skip


@expose(numpy_names=True)
def mean(
    input: Tensor, dim: DimsLike = None, keepdim: bool = False, *, dtype: DtypeLike = None
) -> Tensor:
    """The mean over all or the given dimensions."""
    if dtype is not None:
        input = cast(input, as_dtype(dtype))
    if input._type.dtype.category < dtypes.FLOATING:
        raise RuntimeError(
            "mean(): could not infer output dtype. Input dtype must be either a floating point or "
            f"complex dtype. Got: {input.dtype.name}"
        )
    return reduced(_MEANS, MEAN, input, dim, keepdim)


@expose(numpy_names=True)
def nansum(
    input: Tensor, dim: DimsLike = None, keepdim: bool = False, *, dtype: DtypeLike = None
) -> Tensor:
    """The sum with NaN taken as 0."""
    if input.dtype.is_complex:
        raise RuntimeError("nansum does not support complex inputs")
    return sum(where(input != input, 0, input), dim, keepdim, dtype=dtype)


@expose(numpy_names=True)
def nanmean(
    input: Tensor, dim: DimsLike = None, keepdim: bool = False, *, dtype: DtypeLike = None
) -> Tensor:
    """The mean of what is not NaN."""
    if input.dtype.category < dtypes.FLOATING:
        raise RuntimeError(
            "nanmean(): expected input to have floating point or complex dtype but got "
            f"{input.dtype.name}"
        )
    there = input == input
    total = sum(where(there, input, 0), dim, keepdim, dtype=dtype)
    return total / sum(there, dim, keepdim)


@expose(out=False, numpy_names=True)
def count_nonzero(input: Tensor, dim: Any = None, *dims: int) -> Tensor:
    """How many elements are not zero."""
    return sum(input != 0, (dim, *dims) if dims else dim)


# -- products -----------------------------------------------------------------------------------


def _prod_eval(x: Array, *, dims: Shape, keepdim: bool, **out: Array) -> Array:
    # NumPy multiplies narrow integers in int64 unless it is given their type.
    return np.multiply.reduce(x, axis=dims, keepdims=keepdim, dtype=x.dtype, **out)


def _others(x: Tensor, dims: Shape) -> Tensor:
    """For each element, the product of the others it is folded with.

    As a product of what comes before and after it: nothing is divided, so zeros are no exception.
    """
    if len(dims) == 1:
        return ops.products_before(x, dims[0]) * ops.products_before(x, dims[0], reverse=True)
    last = tuple(range(x.ndim - len(dims), x.ndim))
    moved = movedim(x, dims, last)
    shape = moved._type.shape
    lanes = reshape(moved, (*shape[: x.ndim - len(dims)], count_of(shape, last)))
    return movedim(reshape(_others(lanes, (lanes.ndim - 1,)), shape), last, dims)


PROD = reduction("prod", _prod_eval, folded, lambda t, y, x, dims: t * _others(x, dims),
                 batch=batch_fold, takes_out=True,
                 emit=lowered("passes.decompose_indexing, NumPy from 9 factors on"),
                 autocast=AutocastPolicy.FLOAT32, eager_reduction=EagerReduction(Combine.PRODUCT),
                 doc="The product over dimensions.")  # fmt: skip


@expose(numpy_names=True)
def prod(
    input: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: DtypeLike = None
) -> Tensor:
    """The product over all dimensions or one; integers are multiplied in int64."""
    input = sum_type(input, dtype)
    if dim is None:
        dims = tuple(range(input.ndim))
    else:
        at = normalize_dim(dim, input.ndim)
        dims = (at,) if input.ndim else ()
    return bind(PROD, input, dims=dims, keepdim=bool(keepdim))  # type: ignore[no-any-return]


# -- any and all --------------------------------------------------------------------------------


def _truth_type(x: TensorType, *, dims: Shape, keepdim: bool) -> TensorType:
    kind = dtypes.uint8 if x.dtype is dtypes.uint8 else dtypes.bool_
    return tensor_type(reduced_shape(x.shape, dims, keepdim), kind)


def _truth_eval(ufunc: np.ufunc) -> Callable[..., object]:
    def evaluate(x: Array, *, dims: Shape, keepdim: bool) -> object:
        return ufunc.reduce(x, axis=dims, dtype=np.bool_, keepdims=keepdim)

    return evaluate


ANY = reduction("any", _truth_eval(np.logical_or),
                _truth_type, NONDIFFERENTIABLE, batch=batch_fold,
                emit=lowered("loops"), autocast=AutocastPolicy.KEEP, combine=Combine.ANY,
                doc="Whether any element is nonzero.")  # fmt: skip
ALL = reduction("all", _truth_eval(np.logical_and),
                _truth_type, NONDIFFERENTIABLE, batch=batch_fold,
                emit=lowered("loops"), autocast=AutocastPolicy.KEEP, combine=Combine.ALL,
                doc="Whether all elements are nonzero.")  # fmt: skip


def _truth(op: Op, input: Tensor, dim: DimsLike, keepdim: bool) -> Tensor:
    # Unlike in sums, no dimensions means none here.
    none = dim is not None and not tuple(listed_dims(dim))
    dims = () if none else normalize_dims(dim, input.ndim)
    return bind(op, input, dims=dims, keepdim=bool(keepdim))  # type: ignore[no-any-return]


@expose(numpy_names=True)
def any(input: Tensor, dim: DimsLike = None, keepdim: bool = False) -> Tensor:
    """Whether any element is nonzero."""
    return _truth(ANY, input, dim, keepdim)


@expose(numpy_names=True)
def all(input: Tensor, dim: DimsLike = None, keepdim: bool = False) -> Tensor:
    """Whether all elements are nonzero."""
    return _truth(ALL, input, dim, keepdim)


# -- log of summed exponentials -----------------------------------------------------------------


def _logsumexp_eval(x: Array, *, dims: Shape, keepdim: bool) -> object:
    top = np.max(x.real, axis=dims, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0).astype(top.dtype)
    found = np.log(pairwise_sum(np.exp(x - top), dims, True)) + top
    return found if keepdim else found.reshape(reduced_shape(x.shape, dims, False))


def _softmax_weight(t: Tensor, y: Tensor, x: Tensor, dims: Shape) -> Tensor:
    return t * exp(x - where(y == -math.inf, 0, y))


LOGSUMEXP = reduction("logsumexp", _logsumexp_eval, folded, _softmax_weight, batch=batch_fold,
                      emit=lowered("loops, one after the other"),
                      autocast=AutocastPolicy.KEEP,
                      doc="log(sum(exp(x))), without overflow.")  # fmt: skip


@expose(numpy_names=True)
def logsumexp(input: Tensor, dim: DimsLike, keepdim: bool = False) -> Tensor:
    """``log(sum(exp(input), dim))``, without overflow."""
    if input.dtype.category < dtypes.FLOATING:
        input = cast(input, dtypes.get_default_dtype())
    dims = normalize_dims(dim, input.ndim)
    return bind(LOGSUMEXP, input, dims=dims, keepdim=bool(keepdim))  # type: ignore[no-any-return]
