"""Bessel and Airy functions on NumPy arrays: series near the origin, waves or decay far from it.

Accurate to a few units in the last place of a double, relative to the size of the oscillation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from evergrad.ops.rows.special import bessel_tables as tables
from evergrad.ops.rows.special import evaluate
from evergrad.ops.rows.special.blocks import Array, blockwise, chebyshev

Function = Callable[[Array], Any]
Series = Sequence[float]

_P: tuple[Series, Series] = (tables.P0_FAR, tables.P1_FAR)
_Q: tuple[Series, Series] = (tables.Q0_FAR, tables.Q1_FAR)
_J_NEAR: tuple[Series, Series] = (tables.J0_NEAR, tables.J1_NEAR)
_Y_NEAR: tuple[Series, Series] = (tables.Y0_NEAR, tables.Y1_NEAR)
_K_NEAR: tuple[Series, Series] = (tables.K0_NEAR, tables.K1_NEAR)
_K_FAR: tuple[Series, Series] = (tables.K0_FAR, tables.K1_FAR)


def _pieced(x: Array, edge: float, near: Function, far: Function) -> Array:
    """One function up to an edge and at NaN, another beyond it."""
    beyond = x > edge
    out = near(np.where(beyond, edge, x))
    if beyond.any():
        out[beyond] = far(x[beyond])
    result: Array = out
    return result


# -- of the first and second kind ---------------------------------------------------------------


def _wave(order: int, x: Array, second: bool) -> object:
    """For x > 8, with the angle ``x - (2 * order + 1) * pi / 4`` taken apart so that none of its
    digits are lost."""
    inverse = 8 / x
    u = 2 * inverse * inverse - 1
    p, q = chebyshev(u, _P[order]), chebyshev(u, _Q[order]) * inverse
    sine, cosine = np.sin(x), np.cos(x)
    if order == 0:
        cos_angle, sin_angle = sine + cosine, sine - cosine
    else:
        cos_angle, sin_angle = sine - cosine, -sine - cosine
    wave = p * sin_angle + q * cos_angle if second else p * cos_angle - q * sin_angle
    return wave / np.sqrt(math.pi * x)


def _square_variable(x: Array, reach: float) -> Array:
    return 2 * (x / reach) ** 2 - 1


def _j_near(order: int, x: Array) -> Array:
    result: Array = chebyshev(_square_variable(x, 8), _J_NEAR[order]) * x**order
    return result


def _first_kind(order: int) -> Function:
    def function(x: Array) -> Array:
        size = np.abs(x)
        found = _pieced(size, 8, lambda z: _j_near(order, z), lambda z: _wave(order, z, False))
        return found * np.copysign(1, x) if order else found

    return function


def _second_kind(order: int) -> Function:
    def near(x: Array) -> Array:
        rest = chebyshev(_square_variable(x, 8), _Y_NEAR[order]) * x**order
        pole = 2 / (math.pi * x) if order else 0
        result: Array = (2 / math.pi) * np.log(x) * _j_near(order, x) + rest - pole
        return result

    def function(x: Array) -> Array:
        found = _pieced(np.where(x > 0, x, 1), 8, near, lambda z: _wave(order, z, True))
        return np.where(x > 0, found, np.where(x == 0, -np.inf, np.nan))

    return function


bessel_j0: Any = blockwise(_first_kind(0))
bessel_j1: Any = blockwise(_first_kind(1))
bessel_y0: Any = blockwise(_second_kind(0))
bessel_y1: Any = blockwise(_second_kind(1))


# -- modified, of the second kind ---------------------------------------------------------------


def _modified_second_kind(order: int, scaled: bool) -> Function:
    first_kind = (evaluate.i0, evaluate.i1)[order]

    def near(x: Array) -> Array:
        logarithm = np.log(x / 2) * first_kind(x)
        rest = chebyshev(_square_variable(x, 2), _K_NEAR[order]) / x**order
        found = rest + logarithm if order else rest - logarithm
        result: Array = found * np.exp(x) if scaled else found
        return result

    def far(x: Array) -> Array:
        found = chebyshev(4 / x - 1, _K_FAR[order]) / np.sqrt(x)
        return found if scaled else found * np.exp(-x)

    def function(x: Array) -> Array:
        found = _pieced(np.where(x > 0, x, 1), 2, near, far)
        return np.where(x > 0, found, np.where(x == 0, np.inf, np.nan))

    return function


modified_bessel_k0: Any = blockwise(_modified_second_kind(0, scaled=False))
modified_bessel_k1: Any = blockwise(_modified_second_kind(1, scaled=False))
scaled_modified_bessel_k0: Any = blockwise(_modified_second_kind(0, scaled=True))
scaled_modified_bessel_k1: Any = blockwise(_modified_second_kind(1, scaled=True))


# -- spherical, and Airy's ----------------------------------------------------------------------


def _spherical_j0(x: Array) -> Array:
    zero = x == 0
    return np.where(zero, 1, np.where(np.isinf(x), 0, np.sin(x) / np.where(zero, 1, x)))


def _airy_right(x: Array) -> Array:
    z = 2 / 3 * x * np.sqrt(x)
    decay = chebyshev(2 * (2 / 3 * 2**1.5) / z - 1, tables.AIRY_RIGHT)
    return decay * np.exp(-z) / (2 * math.sqrt(math.pi) * np.sqrt(np.sqrt(x)))


def _airy_left(x: Array) -> Array:
    """For x > 6, at -x."""
    z = 2 / 3 * x * np.sqrt(x)
    inverse = (2 / 3 * 6**1.5) / z
    u = 2 * inverse * inverse - 1
    p, q = chebyshev(u, tables.AIRY_LEFT_P), chebyshev(u, tables.AIRY_LEFT_Q) * inverse
    wave = p * np.sin(z + math.pi / 4) - q * np.cos(z + math.pi / 4)
    return wave / (math.sqrt(math.pi) * np.sqrt(np.sqrt(x)))


def _airy(x: Array) -> Array:
    def not_far_left(x: Array) -> object:
        return _pieced(x, 2, lambda z: chebyshev((z + 2) / 4, tables.AIRY_MIDDLE), _airy_right)

    found = _pieced(-x, 6, lambda z: not_far_left(-z), _airy_left)
    return np.where(np.isinf(x), np.nan, found)  # as in PyTorch, on the right too


spherical_bessel_j0: Any = blockwise(_spherical_j0)
airy_ai: Any = blockwise(_airy)
