"""Decompositions: ops expressed in more elementary ones that fuse, or that have faster kernels."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from evergrad.compiler.kernels.gemm.select import needs_copy
from evergrad.core import dtypes
from evergrad.core.bind import bind, cast
from evergrad.core.op import Op
from evergrad.core.tensor import Tensor
from evergrad.ops.rows.conv import CONV_WEIGHT
from evergrad.ops.rows.elementwise.basic import CLONE, POW, exp, log, sqrt
from evergrad.ops.rows.matmul import LINEAR, MATMUL
from evergrad.ops.rows.movement.views import RESHAPE
from evergrad.ops.rows.pool.geometry import Windows
from evergrad.ops.rows.reduce.extrema import amax
from evergrad.ops.rows.reduce.softmax import LOG_SOFTMAX, SOFTMAX
from evergrad.ops.rows.reduce.sums import MEAN
from evergrad.ops.rows.reduce.sums import sum as total

# For an op: a function of the arguments that returns the replacement, or ``None`` to keep it.
Rule = Callable[..., Any]
DECOMPOSITIONS: dict[Op, Rule] = {}

_WIDE = (dtypes.float32, dtypes.float64)
_NARROW = (dtypes.bfloat16, dtypes.float16)


def decomposition(row: Op) -> Callable[[Rule], Rule]:
    """Register a rule for an op."""

    def enter(rule: Rule) -> Rule:
        DECOMPOSITIONS[row] = rule
        return rule

    return enter


@decomposition(RESHAPE)
def _reshape(x: Tensor, shape: tuple[int, ...]) -> Any:
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


@decomposition(SOFTMAX)
def _softmax(x: Tensor, dim: int) -> Any:
    if x.dtype not in _WIDE or not x.ndim or not x.numel():
        return None
    powers = exp(x - amax(x, dim, True))
    return powers / total(powers, dim, True)


@decomposition(LOG_SOFTMAX)
def _log_softmax(x: Tensor, dim: int) -> Any:
    if x.dtype not in _WIDE or not x.ndim or not x.numel():
        return None
    shifted = x - amax(x, dim, True)
    return shifted - log(total(exp(shifted), dim, True))


@decomposition(POW)
def _pow(x: Any, exponent: Any) -> Any:
    if not isinstance(x, Tensor) or isinstance(exponent, Tensor) or not x.is_floating_point():
        return None
    if exponent == 2:
        return x * x
    return sqrt(x) if exponent == 0.5 else None


def _with_copies(row: Op) -> Rule:
    """Copies of operands whose strides GEMM cannot take; 16-bit operands are cast to float32."""

    def rule(a: Tensor, b: Tensor) -> Any:
        if a.dtype in _NARROW and a.numel() and b.numel():
            wide = [cast(x, dtypes.float32) for x in (a, b)]
            return cast(bind(row, *wide), a.dtype)
        if not (needs_copy(a._value) or needs_copy(b._value)):
            return None
        copies = [bind(CLONE, x) if needs_copy(x._value) else x for x in (a, b)]
        return bind(row, *copies)

    return rule


for _row in (MATMUL, LINEAR):
    DECOMPOSITIONS[_row] = _with_copies(_row)


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
