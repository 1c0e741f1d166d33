"""How far elements are from their mean, from zero and from each other: variances and norms.

At the edges: ``std`` and norms have slope 0 where they are 0, and norms slope 0 at every element
that is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import bind, cast
from evergrad.core.compound import Compound
from evergrad.core.dtypes import as_dtype, dtype
from evergrad.core.eager import lanes
from evergrad.core.families import opaque, reduction
from evergrad.core.op import ArgType, Op
from evergrad.core.prepared import prepared
from evergrad.core.row_facts import AutocastPolicy, Combine, EagerReduction, lowered
from evergrad.core.shapes import Shape, TensorType, normalize_dims, reduced_shape
from evergrad.core.tensor import Array, Tensor
from evergrad.core.types import DimsLike
from evergrad.ops.rows.creation.constants import scalar_tensor
from evergrad.ops.rows.elementwise.basic import pow as power
from evergrad.ops.rows.elementwise.basic import sqrt, where
from evergrad.ops.rows.elementwise.logic import isfinite, isnan
from evergrad.ops.rows.elementwise.magnitude import abs as absolute
from evergrad.ops.rows.elementwise.magnitude import sign
from evergrad.ops.rows.linalg.base import LINALG
from evergrad.ops.rows.movement.complex_parts import imag, real, view_as_real
from evergrad.ops.rows.movement.views import reshape
from evergrad.ops.rows.reduce.extrema import amax, amin
from evergrad.ops.rows.reduce.pairwise import pairwise_sum
from evergrad.ops.rows.reduce.sums import batch_fold, count_of, folded, mean, unfolded
from evergrad.ops.rows.reduce.sums import sum as total
from evergrad.ops.surface.public import expose

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction, DtypeLike

# -- variance and standard deviation ------------------------------------------------------------


def _var_eval(x: Array, correction: Any, *, dims: Shape, keepdim: bool) -> Array:
    count = count_of(x.shape, dims)
    distances = np.asarray(x - pairwise_sum(x, dims, True) / count)
    # The mean is rounded: what the distances lack to a sum of 0 is taken off their squares.
    lack = pairwise_sum(distances, dims, keepdim)
    squares = pairwise_sum(np.square(distances, out=distances), dims, keepdim)
    result: Array = (squares - np.square(lack) / count) / max(count - float(correction), 0.0)
    return result


# Squares of float32 below it are subnormal or nearly so.
_SMALL_VARIANCE = 1e-30


def _std_eval(x: Array, correction: object, *, dims: Shape, keepdim: bool) -> Array:
    variance = _var_eval(x, correction, dims=dims, keepdim=keepdim)
    if x.dtype == np.float32 and not _in_range(variance):
        variance = _var_eval(x.astype(np.float64), correction, dims=dims, keepdim=keepdim)
    return np.asarray(np.sqrt(variance)).astype(x.dtype, copy=False)


def _in_range(variance: Array) -> bool:
    """Whether no square can have overflowed or lost digits whose root has not."""
    least, most = np.minimum.reduce, np.maximum.reduce
    return not variance.size or bool(
        least(variance, axis=None) > _SMALL_VARIANCE and most(variance, axis=None) < math.inf
    )


def _var_weight(x: Tensor, correction: Tensor, dims: Shape) -> Tensor:
    """What the tangent of each element is multiplied with in the tangent of the variance."""
    freedom = scalar_tensor(count_of(x._type.shape, dims), dtype=dtypes.float64) - correction
    return (x - mean(x, dims, True)) * cast(2 / freedom, x.dtype)


def _var_vjp(
    g: Tensor, y: Tensor, x: Tensor, correction: Tensor, *, dims: Shape, keepdim: bool
) -> tuple[Tensor, None]:
    return unfolded(g, x._type.shape, dims, keepdim) * _var_weight(x, correction, dims), None


def _var_jvp(
    tangents: Any, y: Tensor, x: Tensor, correction: Any, *, dims: Shape, keepdim: bool
) -> Tensor:
    return total(tangents[0] * _var_weight(x, correction, dims), dims, keepdim)


def _half_over(y: Tensor) -> Tensor:
    """The slope of the square root by its result, and 0 at 0."""
    return where(y == 0, 0, 0.5 / where(y == 0, 1, y))


def _std_vjp(g: Tensor, y: Tensor, x: Tensor, correction: Tensor, **at: Any) -> tuple[Tensor, None]:
    return _var_vjp(g * _half_over(y), y, x, correction, **at)


def _std_jvp(tangents: object, y: Tensor, x: Tensor, correction: object, **at: Any) -> Tensor:
    return _var_jvp(tangents, y, x, correction, **at) * _half_over(y)


def _spread_type(x: TensorType, parameter: TensorType, *, dims: Shape, keepdim: bool) -> TensorType:
    return folded(x, dims=dims, keepdim=keepdim)


def _correction_in_double(types: Sequence[ArgType]) -> tuple[dtype, dtype]:
    first = types[0]
    assert isinstance(first, TensorType)
    return first.dtype, dtypes.float64


VAR = opaque("var", _var_eval, _spread_type, _var_vjp, jvp=_var_jvp, batch=batch_fold,
             promote=_correction_in_double,
             emit=lowered("decomposed into sums"),
             autocast=AutocastPolicy.KEEP,
             doc="The variance over dimensions.")  # fmt: skip
STD = opaque("std", _std_eval, _spread_type, _std_vjp, jvp=_std_jvp, batch=batch_fold,
             promote=_correction_in_double,
             emit=lowered("decomposed into sums"),
             autocast=AutocastPolicy.KEEP,
             doc="The standard deviation.")  # fmt: skip


def _small_evaluator(root: bool) -> Callable[..., AnyFunction]:
    def evaluator(
        plain: AnyFunction, x: TensorType, correction: object, *, dims: Shape, keepdim: bool
    ) -> AnyFunction:
        return lanes.variance_evaluator(x, dims, keepdim, root, plain)

    return evaluator


VAR.prepare_for, STD.prepare_for = _small_evaluator(False), _small_evaluator(True)


def _spread(
    op: Op, input: Tensor, dim: DimsLike, unbiased: bool | None, keepdim: bool, correction: object
) -> tuple[Tensor, Shape]:
    """A spread with PyTorch's ways to say how many degrees of freedom are lost; and its dims."""
    if isinstance(dim, bool):  # var(unbiased)
        dim, unbiased = None, dim
    if unbiased is not None and correction is not None:
        raise TypeError(f"{op.name}() takes either unbiased or correction, not both")
    if correction is None:
        correction = 1 if unbiased is None else int(unbiased)
    if input.dtype.category < dtypes.FLOATING:
        raise RuntimeError("std and var only support floating point and complex dtypes")
    dims = normalize_dims(dim, input.ndim)
    at = {"dims": dims, "keepdim": bool(keepdim)}
    if not input.dtype.is_complex:
        return bind(op, input, correction, **at), dims
    parts = [bind(VAR, part, correction, **at) for part in (real(input), imag(input))]
    variance = parts[0] + parts[1]
    return (sqrt(variance) if op is STD else variance), dims


@expose(numpy_names=True)
@prepared
def var(
    input: Tensor, dim: DimsLike = None, unbiased: bool | None = None, keepdim: bool = False,
    *, correction: object = None,
) -> Tensor:  # fmt: skip
    """The mean squared distance from the mean, with ``correction`` taken off the count."""
    return _spread(VAR, input, dim, unbiased, keepdim, correction)[0]


@expose(numpy_names=True)
@prepared
def std(
    input: Tensor, dim: DimsLike = None, unbiased: bool | None = None, keepdim: bool = False,
    *, correction: object = None,
) -> Tensor:  # fmt: skip
    """The square root of the variance."""
    return _spread(STD, input, dim, unbiased, keepdim, correction)[0]


@expose(method=False, out=False, numpy_names=True)
@prepared
def var_mean(
    input: Tensor, dim: DimsLike = None, unbiased: bool | None = None, keepdim: bool = False,
    *, correction: object = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The variance and the mean."""
    found, dims = _spread(VAR, input, dim, unbiased, keepdim, correction)
    return found, mean(input, dims, keepdim)


@expose(method=False, out=False, numpy_names=True)
@prepared
def std_mean(
    input: Tensor, dim: DimsLike = None, unbiased: bool | None = None, keepdim: bool = False,
    *, correction: object = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The standard deviation and the mean."""
    found, dims = _spread(STD, input, dim, unbiased, keepdim, correction)
    return found, mean(input, dims, keepdim)


# -- norms --------------------------------------------------------------------------------------


def _norm_eval(x: Array, *, dims: Shape, keepdim: bool) -> object:
    return np.sqrt(pairwise_sum(np.square(x), dims, keepdim))


def _norm_slope(t: Tensor, y: Tensor, x: Tensor, dims: Shape) -> Tensor:
    return t * where(y == 0, 0, x / where(y == 0, 1, y))


NORM = reduction(
    "norm", _norm_eval, folded, _norm_slope,
    batch=batch_fold,
    emit=lowered("a square root of a sum"), autocast=AutocastPolicy.KEEP,
    eager_reduction=EagerReduction(Combine.SUM, squares=True, root=True),
    doc="The Euclidean length over dimensions.",
)  # fmt: skip


def _power_norm_eval(x: Array, p: Any, *, dims: Shape, keepdim: bool) -> object:
    return pairwise_sum(np.absolute(x) ** p, dims, keepdim) ** (1 / p)


def _power_norm_weight(y: Tensor, x: Tensor, p: Tensor) -> Tensor:
    dead = (x == 0) | (y == 0)
    share = absolute(where(dead, 1, x)) / where(dead, 1, y)
    return where(dead, 0, sign(x) * power(share, p - 1))


def _power_norm_vjp(
    g: Tensor, y: Tensor, x: Tensor, p: Tensor, *, dims: Shape, keepdim: bool
) -> tuple[Tensor, None]:
    g, y = (unfolded(v, x._type.shape, dims, keepdim) for v in (g, y))
    return g * _power_norm_weight(y, x, p), None


def _power_norm_jvp(
    tangents: Any, y: Tensor, x: Tensor, p: Tensor, *, dims: Shape, keepdim: bool
) -> Tensor:
    weight = _power_norm_weight(unfolded(y, x._type.shape, dims, keepdim), x, p)
    return total(tangents[0] * weight, dims, keepdim)


def _in_own_type(types: Sequence[ArgType]) -> dtype:
    return _correction_in_double(types)[0]


POWER_NORM = opaque(
    "power_norm", _power_norm_eval, _spread_type, _power_norm_vjp, jvp=_power_norm_jvp,
    batch=batch_fold, promote=_in_own_type,
    emit=lowered("powers and a sum"), autocast=AutocastPolicy.KEEP,
    doc="sum(|x|**p) ** (1/p) over dimensions.",
)  # fmt: skip


def vector_norm(x: Tensor, p: float, dims: Shape, keepdim: bool) -> Tensor:
    """``sum(|x|**p) ** (1/p)`` over dimensions, with its limits where ``p`` is 0 or infinite."""
    if p == 0:  # what is not a number is not zero
        return total(sign(absolute(where(isnan(x), 1, x))), dims, keepdim)
    if x.dtype.is_complex:
        if p == 2:
            length = vector_norm(view_as_real(x), 2, (*dims, x.ndim), keepdim)
            return reshape(length, reduced_shape(x._type.shape, dims, keepdim))
        x = absolute(x)
    at = {"dims": dims, "keepdim": keepdim}
    if p == 2:
        return _without_powers(x, bind(NORM, x, **at), dims, keepdim)
    if p < 0 or p == math.inf:
        _check_identity(p, x._type.shape, dims)
    if math.isinf(p):
        return (amax if p > 0 else amin)(absolute(x), dims, keepdim)
    if p == 1:
        return total(absolute(x), dims, keepdim)
    return _without_powers(x, bind(POWER_NORM, x, p, **at), dims, keepdim)


def _without_powers(x: Tensor, length: Tensor, dims: Shape, keepdim: bool) -> Tensor:
    """The absolute value where each norm is of one element, whose power may overflow or vanish;
    what is not finite keeps the norm and its slope, which is no number."""
    if any(x._type.shape[d] != 1 for d in dims):
        return length
    size = reshape(absolute(x), reduced_shape(x._type.shape, dims, keepdim))
    return where(isfinite(size), size, length)


def _check_identity(p: float, shape: Shape, dims: Shape) -> None:
    empty = [d for d in dims if not shape[d]]
    if empty:
        raise RuntimeError(
            f"linalg.vector_norm cannot compute the {p} norm on the dimension {empty[0]} because "
            "this dimension is empty and the operation does not have an identity"
        )


@expose(numpy_names=True)
def norm(
    input: Tensor,
    p: Any = "fro",
    dim: DimsLike = None,
    keepdim: bool = False,
    *,
    dtype: DtypeLike = None,
) -> Tensor:
    """The ``p``-norm of all elements or along dimensions; ``"fro"`` is the Euclidean one."""
    if isinstance(input, Compound):
        return input.norm(p, dim, keepdim, dtype=dtype)
    if dtype is not None:
        input = cast(input, as_dtype(dtype))
    if input.dtype.category < dtypes.FLOATING:
        raise RuntimeError(
            "linalg.vector_norm: Expected a floating point or complex tensor as input. Got "
            f"{input.dtype.name}"
        )
    if p == "nuc":
        matrix_dims = (-2, -1) if dim is None else dim
        return LINALG["matrix_norm"](input, "nuc", matrix_dims, keepdim)  # type: ignore[no-any-return]
    if p is None or p == "fro":
        p = 2
    if isinstance(p, str):
        raise RuntimeError(f"linalg.matrix_norm: Order {p} not supported.")
    return vector_norm(input, p, normalize_dims(dim, input.ndim), bool(keepdim))


@expose(out=False)
def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The ``p``-norm of the difference."""
    return norm(input - other, p)
