"""Functions that compute each element by itself."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from typing import Any

import evergrad as eg
from evergrad.array_api.adapt import binary, standard, unary
from evergrad.core import dtypes
from evergrad.core.bind import cast
from evergrad.core.dtypes import dtype
from evergrad.core.tensor import Tensor

unary("""
    abs acos acosh asin asinh atan atanh ceil conj cos cosh exp expm1 floor imag isfinite isinf
    isnan log log1p log2 log10 logical_not negative positive real reciprocal signbit sin sinh
    sqrt square tan tanh trunc
""")

binary("""
    add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign
    divide floor_divide greater greater_equal hypot less less_equal logaddexp logical_and
    logical_or logical_xor maximum minimum multiply nextafter not_equal pow remainder subtract
""")

# The engine's names for these are PyTorch's; its own `equal` compares whole tensors.
unary("bitwise_invert", {"bitwise_invert": eg.bitwise_not})
binary("equal", {"equal": eg.eq})


@standard()
def sign(x: Tensor, /) -> Tensor:
    """-1, 0 or 1; on the unit circle for complex numbers. The sign of NaN is NaN."""
    if x.dtype.category < dtypes.FLOATING:
        return eg.sgn(x)
    missing = complex(math.nan, math.nan) if x.dtype.is_complex else math.nan
    return eg.where(eg.isnan(x), missing, eg.sgn(x))


@standard("round")
def _round(x: Tensor, /) -> Tensor:
    """The nearest whole number, or the nearest even one; of each part of a complex number."""
    if x.dtype.is_complex:
        return eg.complex(eg.round(eg.real(x)), eg.round(eg.imag(x)))
    return eg.round(x)


@standard()
def clip(x: Tensor, /, min: object = None, max: object = None) -> Tensor:
    """Elements held between bounds, in the element type of ``x``."""
    if min is None and max is None:
        return eg.clone(x)
    return cast(eg.clamp(x, _as_bound(min, x.dtype), _as_bound(max, x.dtype)), x.dtype)


def _as_bound(value: object, target: dtype) -> Any:
    """A bound that an element type can hold."""
    if isinstance(value, Tensor):
        return cast(value, target)
    if isinstance(value, int) and target.category == dtypes.INTEGRAL:
        limits = dtypes.iinfo(target)
        return sorted((limits.min, value, limits.max))[1]
    return value
