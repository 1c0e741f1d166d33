"""Arithmetic on raw arrays with the roundings of PyTorch's compiled kernels.

Those are compiled with fused multiply-add, so that ``r * (b - a) + a`` rounds once, and take
elementary functions from the C library or from their own vector code. Results here do not depend on
the machine's vector unit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from evergrad.core.errstate import QUIET, numpy_errors
from evergrad.core.types import Array as Array

SIGNIFICAND_BITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
CHUNK = 1 << 14  # elements per pass of the long elementwise chains: they stay in cache


def fma32(a: Array, b: Array | np.float32, c: Array | np.float32) -> Array:
    """`a * b + c` of float32 operands rounded once: the product is exact in float64."""
    product = a.astype(np.float64)
    product *= b
    product += c
    return product.astype(np.float32)


def _split(a: Array) -> tuple[Array, Array]:
    """Two halves of 26 bits whose sum is `a` (Veltkamp)."""
    scaled = a * 134217729.0  # 2^27 + 1
    high = scaled - (scaled - a)
    return high, a - high


def fma64(a: Array, b: float, c: float | Array) -> Array:
    """`a * b + c` of float64 operands rounded once (Dekker's product, Knuth's sum)."""
    if b == 1.0 or not np.any(c):
        return a * b + c
    factor = np.asarray(b, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        product = a * factor
        a_high, a_low = _split(a)
        b_high, b_low = _split(factor)
        product_error = a_low * b_low - (
            ((product - a_high * b_high) - a_low * b_high) - a_high * b_low
        )
        total = product + c
        back = total - product
        total_error = (product - (total - back)) + (c - back)
        fused: Array = total + (total_error + product_error)
    # Splitting overflows near the largest numbers; there the plain sum has to do.
    return np.where(np.isfinite(fused), fused, total)


def libm(function: Callable[[float], float], values: Array) -> Array:
    """`function` of the C library, elementwise: NumPy's vector code differs in the last bit."""
    flat = map(function, values.ravel().tolist())
    return np.fromiter(flat, np.float64, count=values.size).reshape(values.shape)


def c_log(x: float) -> float:
    return math.log(x) if x > 0.0 else -math.inf


def c_exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def converted(values: Array, dtype: np.dtype[np.generic]) -> Array:
    """Float results as `dtype`; to 16 bits by way of float32, as C++ converts."""
    if dtype.itemsize == 2 and dtype.name in SIGNIFICAND_BITS:
        values = values.astype(np.float32, copy=False)
    if values.dtype == dtype:
        return values
    token = numpy_errors.set(QUIET)
    try:
        return values.astype(dtype, copy=False)
    finally:
        numpy_errors.reset(token)


# -- Box-Muller ---------------------------------------------------------------------------------

LOG_POLYNOMIAL = (
    7.0376836292e-2,
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
)
SIN_POLYNOMIAL = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
COS_POLYNOMIAL = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
PI_OVER_4 = (0.78515625, 2.4187564849853515625e-4, 3.77489497744594108e-8)


def _horner32(coefficients: Sequence[float], x: Array) -> Array:
    """The polynomial with the highest coefficient first, each step a float32 fused multiply-add.

    `x` holds float32 values in float64, and so does the result: keeping the wide type between the
    steps saves half of the conversions.
    """
    value = np.full_like(x, np.float32(coefficients[0]))
    narrow = np.empty(x.shape, np.float32)
    for coefficient in coefficients[1:]:
        value *= x
        value += np.float32(coefficient)
        narrow[...] = value
        value[...] = narrow
    return value


def _log32(x: Array) -> Array:
    """Cephes `logf` on float32 in (0, 1], with the roundings of PyTorch's vector code."""
    mantissa, exponent = np.frexp(x)
    below = mantissa < np.float32(math.sqrt(0.5))
    power = (exponent - below).astype(np.float32)
    m = (mantissa - np.float32(1)) + np.where(below, mantissa, np.float32(0))
    square = m * m
    y = _horner32(LOG_POLYNOMIAL, m.astype(np.float64)).astype(np.float32) * m
    y = fma32(y, square, power * np.float32(-2.12194440e-4))
    y = fma32(square, np.float32(-0.5), y)
    return fma32(power, np.float32(0.693359375), m + y)


def _sincos32(x: Array) -> tuple[Array, Array]:
    """Cephes `sinf` and `cosf` on float32 in [0, 2 pi), rounded as PyTorch's vector code does."""
    octant = (x * np.float32(4 / math.pi)).astype(np.int32)
    octant += octant & 1
    turns = octant.astype(np.float32)
    for part in PI_OVER_4:
        x = fma32(turns, np.float32(-part), x)
    square = x * x
    wide = square.astype(np.float64)
    sine = _horner32(SIN_POLYNOMIAL, wide).astype(np.float32) * square
    sine = fma32(sine, x, x)
    cosine = _horner32(COS_POLYNOMIAL, wide).astype(np.float32) * square
    cosine = fma32(cosine, square, square * np.float32(-0.5)) + np.float32(1)
    swap = (octant & 2) != 0
    sin = np.where(swap, cosine, sine)
    cos = np.where(swap, sine, cosine)
    sin *= 1 - ((octant & 4) >> 1).astype(np.float32)
    cos *= 1 - ((octant + 2 & 4) >> 1).astype(np.float32)
    return sin, cos


def box_muller(radius: Array, angle: Array) -> tuple[Array, Array]:
    """Two independent normals from two uniforms in [0, 1), in the uniforms' precision.

    Both precisions use arithmetic that does not depend on the machine's vector unit.
    """
    radius, angle = np.ascontiguousarray(radius), np.ascontiguousarray(angle)
    if radius.dtype == np.float64:
        length = np.sqrt(-2.0 * libm(math.log, 1.0 - radius))
        theta = 2.0 * math.pi * angle
        return length * libm(math.cos, theta), length * libm(math.sin, theta)
    first, second = np.empty(radius.size, np.float32), np.empty(radius.size, np.float32)
    for start in range(0, radius.size, CHUNK):
        part = slice(start, start + CHUNK)
        length = np.sqrt(np.float32(-2) * _log32(np.float32(1) - radius.reshape(-1)[part]))
        sin, cos = _sincos32(np.float32(2 * math.pi) * angle.reshape(-1)[part])
        np.multiply(length, cos, out=first[part])
        np.multiply(length, sin, out=second[part])
    return first.reshape(radius.shape), second.reshape(radius.shape)
