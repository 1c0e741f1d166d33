"""Decompositions: ops expressed in more elementary ones that fuse, or that have faster kernels."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, prod
from typing import Any

import numpy as np

from evergrad.compiler.kernels.gemm.pairs import PAIRED_MATMUL, can_pair
from evergrad.compiler.kernels.gemm.problem import BATCH_DIMS
from evergrad.compiler.kernels.gemm.select import needs_copy
from evergrad.core import dtypes
from evergrad.core.bind import bind, cast
from evergrad.core.op import TABLE, Op
from evergrad.core.shapes import broadcast_shapes, reduced_shape
from evergrad.core.tensor import Tensor
from evergrad.ops.rows.check import require
from evergrad.ops.rows.conv import CONV_WEIGHT
from evergrad.ops.rows.creation.constants import full
from evergrad.ops.rows.elementwise.basic import CLONE, POW, exp, log, sqrt, where
from evergrad.ops.rows.elementwise.logic import isfinite
from evergrad.ops.rows.matmul import ADD_PRODUCT, LINEAR, MATMUL
from evergrad.ops.rows.movement.views import RESHAPE, expand, reshape, transpose
from evergrad.ops.rows.pool.geometry import Windows
from evergrad.ops.rows.reduce.extrema import ARGMAX, ARGMIN, amax
from evergrad.ops.rows.reduce.scan import LOGCUMSUMEXP, before, cummax, recur
from evergrad.ops.rows.reduce.softmax import LOG_SOFTMAX, SOFTMAX
from evergrad.ops.rows.reduce.sums import ALL, ANY, LOGSUMEXP, MEAN, count_of
from evergrad.ops.rows.reduce.sums import sum as total
from evergrad.ops.rows.reduce.variance import NORM, POWER_NORM, STD, VAR

# For an op: a function of the arguments that returns the replacement, or ``None`` to keep it.
Rule = Callable[..., Any]
DECOMPOSITIONS: dict[Op, Rule] = {}

_WIDE = (dtypes.float32, dtypes.float64)
_NARROW = (dtypes.bfloat16, dtypes.float16)
# The elements of vectors whose dot product is a sum of its own.
_LONG_DOT = 1 << 12
_BY_ZERO = "ZeroDivisionError: integer division or modulo by zero"


def decomposition(row: Op) -> Callable[[Rule], Rule]:
    """Register a rule for an op."""

    def enter(rule: Rule) -> Rule:
        DECOMPOSITIONS[row] = rule
        return rule

    return enter


@decomposition(RESHAPE)
def _reshape(x: Tensor, shape: tuple[int, ...]) -> object:
    """Copied first if the layout, which a pass may have changed, does not allow a view."""
    try:
        np.reshape(x.layout_array(), shape, copy=False)
    except ValueError:
        return bind(RESHAPE, bind(CLONE, x), shape=shape)
    return None


@decomposition(MEAN)
def _mean(x: Tensor, dims: tuple[int, ...], keepdim: bool) -> Any:
    if x.dtype not in _WIDE:
        return None
    return total(x, dims, keepdim) / prod(x.shape[d] for d in dims) if dims else x


@decomposition(NORM)
def _norm(x: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor | None:
    if x.dtype not in _WIDE or not x.numel():
        return None
    return sqrt(total(x * x, dims, keepdim) if dims else x * x)


@decomposition(POWER_NORM)
def _power_norm(x: Tensor, p: Any, dims: tuple[int, ...], keepdim: bool) -> object:
    if x.dtype not in _WIDE or isinstance(p, Tensor) or not dims:
        return None
    return total(x.abs() ** p, dims, keepdim) ** (1 / p)


def _truth_of_bools(row: Op) -> Rule:
    """Of bools, which loops reduce; over dimensions of extent 1 nothing is reduced."""

    def rule(x: Tensor, dims: tuple[int, ...], keepdim: bool) -> object:
        if x.dtype is dtypes.uint8 or x.dtype.is_complex:
            return None
        if x.dtype is not dtypes.bool_:
            return bind(row, x != 0, dims=dims, keepdim=keepdim)
        if any(x.shape[d] != 1 for d in dims):
            return None
        return reshape(x, reduced_shape(x._type.shape, dims, keepdim))

    return rule


for _row in (ALL, ANY):
    DECOMPOSITIONS[_row] = _truth_of_bools(_row)


def _wide_variance(
    x: Tensor, correction: object, dims: tuple[int, ...], keepdim: bool
) -> Tensor | None:
    """In float64: the mean of elements far from zero is rounded by more than their differences, and
    squares overflow where their root does not."""
    freedom = _degrees_of_freedom(x, correction, dims)
    if freedom is None:
        return None
    wide = cast(x, dtypes.float64)
    centred = wide - total(wide, dims, True) / count_of(x.shape, dims)
    return total(centred * centred, dims, keepdim) / freedom


def _degrees_of_freedom(x: Tensor, correction: Any, dims: tuple[int, ...]) -> float | None:
    """The divisor of a variance; ``None`` if it is not known, not positive, or there is nothing to
    decompose."""
    if x.dtype not in _WIDE or not dims or not x.numel() or isinstance(correction, Tensor):
        return None
    freedom = count_of(x.shape, dims) - float(correction)
    return freedom if freedom > 0 else None


@decomposition(VAR)
def _variance(x: Tensor, correction: object, dims: tuple[int, ...], keepdim: bool) -> Tensor | None:
    variance = _wide_variance(x, correction, dims, keepdim)
    return None if variance is None else cast(variance, x.dtype)


@decomposition(STD)
def _deviation(
    x: Tensor, correction: object, dims: tuple[int, ...], keepdim: bool
) -> Tensor | None:
    variance = _wide_variance(x, correction, dims, keepdim)
    return None if variance is None else cast(sqrt(variance), x.dtype)


@decomposition(SOFTMAX)
def _softmax(x: Tensor, dim: int) -> Tensor | None:
    if x.dtype not in _WIDE or not x.ndim or not x.numel():
        return None
    powers = exp(x - amax(x, dim, True))
    return powers / total(powers, dim, True)


@decomposition(LOG_SOFTMAX)
def _log_softmax(x: Tensor, dim: int) -> Tensor | None:
    if x.dtype not in _WIDE or not x.ndim or not x.numel():
        return None
    shifted = x - amax(x, dim, True)
    return shifted - log(total(exp(shifted), dim, True))


@decomposition(LOGSUMEXP)
def _logsumexp(x: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor | None:
    if x.dtype not in _WIDE or not dims or not x.numel():
        return None
    top = amax(x, dims, True)
    top = where(isfinite(top), top, 0)
    found = log(total(exp(x - top), dims, True)) + top
    return found if keepdim else found.reshape(reduced_shape(x.shape, dims, False))


@decomposition(LOGCUMSUMEXP)
def _logcumsumexp(x: Tensor, dim: int, reverse: bool) -> Tensor | None:
    """Sums relative to the largest so far, which a recurrence rescales where that grows."""
    if x.dtype not in _WIDE or not x.numel() or reverse:
        return None
    top = cummax(x, dim).values
    previous = before(top, dim, fill=-inf)
    scale = where(isfinite(top), top, 0)
    share = where(isfinite(previous), exp(previous - scale), where(previous == -inf, 0.0, 1.0))
    return log(recur(share, exp(x - scale), dim)) + scale


@decomposition(POW)
def _pow(x: object, exponent: object) -> Tensor | None:
    if not isinstance(x, Tensor) or isinstance(exponent, Tensor) or not x.is_floating_point():
        return None
    if exponent == 2:
        return x * x
    if exponent == 0.5:
        return sqrt(x)
    if x.dtype not in _WIDE:
        return None  # products of narrow types would be rounded in between
    if exponent == 3:
        return x * x * x
    if exponent == -1:
        return 1 / x
    return 1 / (x * x) if exponent == -2 else None


def _integer_division(x: object, y: object) -> None:
    """Unchanged, after a check of the divisors of integers, which native code does not make."""
    types = [a.dtype for a in (x, y) if isinstance(a, Tensor)]
    if not isinstance(y, Tensor):
        if y == 0 and not any(t.is_floating_point for t in types):
            require(full((), False, dtype=dtypes.bool_), RuntimeError, lambda: _BY_ZERO)
    elif not any(t.is_floating_point for t in types) and not isinstance(x, float):
        require(y != 0, RuntimeError, lambda: _BY_ZERO)


for _name in ("floor_divide", "trunc_divide", "remainder", "fmod"):
    DECOMPOSITIONS[TABLE[_name]] = _integer_division


def _wide_positions(row: Op) -> Rule:
    """Of narrow types: in the wider types of the kernels, which have the same order."""

    def rule(x: Tensor, dim: int) -> object:
        if x.dtype in (*_WIDE, dtypes.int64) or x.dtype.is_complex:
            return None
        wide = dtypes.float32 if x.dtype.is_floating_point else dtypes.int64
        return bind(row, cast(x, wide), dim=dim)

    return rule


for _row in (ARGMAX, ARGMIN):
    DECOMPOSITIONS[_row] = _wide_positions(_row)


def _wide_product(row: Op, a: Tensor, b: Tensor) -> Any:
    """A product of 16-bit factors in float32: by pairs, or of the factors in float32."""
    other = transpose(b, 0, 1) if row is LINEAR else b
    if can_pair(a.layout_array(), other.layout_array()):
        return bind(PAIRED_MATMUL, a, other)
    return bind(row, *(cast(x, dtypes.float32) for x in (a, b)))


def _is_long_dot(row: Op, a: Tensor, b: Tensor) -> bool:
    """Whether a product is one dot product of float vectors that fill a cache."""
    if row not in (MATMUL, LINEAR) or a.ndim != 2 or b.ndim != 2 or a.dtype not in _WIDE:
        return False
    (rows, depth), other = a._type.shape, b._type.shape
    columns = other[0] if row is LINEAR else other[1]
    return rows == columns == 1 and depth >= _LONG_DOT


def _in_one_batch(a: Tensor, b: Tensor) -> Tensor:
    """A product of more batches than kernels take: copies of the factors with one."""
    batch = broadcast_shapes(a._type.shape[:-2], b._type.shape[:-2])
    factors = []
    for x in (a, b):
        matrix = x._type.shape[-2:]
        wide = x if x.ndim == 2 else expand(x, (*batch, *matrix))
        factors.append(x if x.ndim == 2 else reshape(bind(CLONE, wide), (-1, *matrix)))
    found: Any = _as_product(MATMUL)(*factors)
    if found is None:
        found = bind(MATMUL, *factors)
    return reshape(found, (*batch, *found._type.shape[-2:]))


def _as_product(row: Op) -> Rule:
    """A product of what GEMM can take: operands with other strides are copied, those of 16 bits
    are multiplied in float32. An outer product (the weight gradient of a batch of one) is a loop,
    which fuses with the loops that read it; so is the dot product of two long vectors, a sum that
    several threads share."""

    def rule(a: Tensor, b: Tensor) -> object:
        if row is MATMUL and min(a.ndim, b.ndim) > 1 and a._type.shape[-1] == 1:
            return a * b
        if _is_long_dot(row, a, b):
            other = reshape(b, (1, -1))
            return reshape(total(a * other), (1,) * a.ndim)
        if row is MATMUL and max(a.ndim, b.ndim) > BATCH_DIMS + 2 and a.numel() and b.numel():
            return _in_one_batch(a, b)
        if a.dtype in _NARROW and a.numel() and b.numel():
            return cast(_wide_product(row, a, b), a.dtype)
        if row is LINEAR and a.dtype.category <= dtypes.INTEGRAL:
            return bind(MATMUL, a, transpose(b, 0, 1)) if a.ndim > 1 else None
        if not (needs_copy(a._value) or needs_copy(b._value)):
            return None
        copies = [bind(CLONE, x) if needs_copy(x._value) else x for x in (a, b)]
        return bind(row, *copies)

    return rule


for _row in (MATMUL, LINEAR):
    DECOMPOSITIONS[_row] = _as_product(_row)


@decomposition(ADD_PRODUCT)
def _add_product(addend: Tensor, a: Tensor, b: Tensor, *, beta: float, alpha: float) -> Tensor:
    kind = a.dtype if a.dtype in _NARROW else None
    if kind is None:
        product = a @ b
    else:
        addend, product = cast(addend, dtypes.float32), _wide_product(MATMUL, a, b)
    scaled = product if alpha == 1 else product * alpha
    total = scaled + (addend if beta == 1 else addend * beta)
    return total if kind is None else cast(total, kind)


# From so many pixels on, if the products of all samples have no more bytes than this.
_MANY_PIXELS = 512
_PRODUCTS_LIMIT = 16 << 20


@decomposition(CONV_WEIGHT)
def _conv_weight(y: Tensor, x: Tensor, *, windows: Windows, groups: int) -> Tensor | None:
    """Pointwise kernels over large images: one matrix product per sample, summed."""
    (samples, outputs), channels, pixels = y.shape[:2], x.shape[1], prod(windows.counts)
    nbytes = samples * outputs * channels * y.dtype.itemsize
    if not windows.is_pointwise or groups > 1 or pixels < _MANY_PIXELS:
        return None
    if nbytes > _PRODUCTS_LIMIT or y.dtype not in _WIDE:
        return None
    a = y.reshape(samples, outputs, pixels)
    b = x.reshape(samples, channels, pixels).transpose(1, 2)
    gradient: Tensor = (a @ b).sum(0).reshape(outputs, channels, *windows.kernel)
    return gradient
