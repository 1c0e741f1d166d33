"""How quantiles of the gamma and the beta distribution move with a shape parameter, on arrays.

A draw that keeps its probability F(x, a) while the shape ``a`` changes has the slope
``dx/da = -F_a(x, a) / f(x, a)`` with the density ``f``. F_a is an integral of the density times a
logarithm over either tail; the shorter tail is taken, on a logarithmic scale, on which the
integrand falls from the start. The double-exponential rule gives it to about 12 digits for every
shape from 0.001 up. Knows nothing of tensors.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from evergrad.core.types import Array
from evergrad.ops.rows.special.evaluate import digamma

_BLOCK = 64  # elements integrated at once, so that their nodes stay in cache


def _nodes() -> tuple[Array, Array]:
    """Points and weights for integrals from 0 to infinity of what decays on the scale of 1."""
    step = 1 / 16
    u = np.arange(-4, 4.5, step)
    points = np.exp(u - np.exp(-u))
    return points, step * points * (1 + np.exp(-u))


_POINTS, _WEIGHTS = _nodes()


def _in_blocks(
    function: Callable[[Array, Array], Array] | Callable[[Array, Array, Array], Array],
    arrays: tuple[Array, Array] | tuple[Array, Array, Array],
) -> Array:
    """Evaluate a function of columns of doubles on arrays that broadcast, in their own type."""
    wide = np.broadcast_arrays(*arrays)
    columns = [np.asarray(a, np.float64).reshape(-1, 1) for a in wide]
    out = np.empty(columns[0].shape)
    with np.errstate(all="ignore"):
        for start in range(0, len(out), _BLOCK):
            out[start : start + _BLOCK] = function(*(c[start : start + _BLOCK] for c in columns))
    return out.reshape(wide[0].shape).astype(np.result_type(*arrays))


def _integral(scale: Array, log_density: Array, factor: Array) -> Array:
    """The integral over s from 0 up, from values at ``scale * _POINTS``, for each row."""
    values = np.exp(log_density) * factor
    values = np.where(np.isneginf(log_density), 0, values)
    total: Array = scale * (values @ _WEIGHTS)[:, None]
    return total


def gamma_slope(alpha: Array, x: Array) -> Array:
    """The slope by its shape of a number drawn from the gamma distribution of scale 1."""
    return _in_blocks(_gamma_slope, (alpha, x))


def _gamma_slope(a: Array, x: Array) -> Array:
    """Over the points ``x * exp(side * s)`` of the tail."""
    x = np.maximum(x, np.finfo(np.float64).tiny)
    side = np.where(x > a, 1.0, -1.0)
    scale = 1 / (np.abs(x - a) + np.minimum(np.sqrt(x), x))
    s = scale * _POINTS
    log_density = side * a * s - x * np.expm1(side * s)
    return x * _integral(scale, log_density, side * (np.log(x) - digamma(a)) + s)


def dirichlet_slope(x: Array, alpha: Array, total: Array) -> Array:
    """The slope of a Dirichlet component by its own concentration, over ``1 - x``.

    The component is beta distributed, with ``alpha`` and ``total - alpha``. The other components
    shrink in proportion, which is where dividing by ``1 - x`` comes from.
    """
    return _in_blocks(_dirichlet_slope, (x, alpha, total))


def _dirichlet_slope(x: Array, a: Array, total: Array) -> Array:
    """Over the points of the tail whose distance from its end is that of x times ``exp(-s)``."""
    x = np.clip(x, np.finfo(np.float64).tiny, 1 - np.finfo(np.float64).epsneg)
    b = total - a
    below = x <= a / total
    near, rest = np.where(below, x, 1 - x), np.where(below, 1 - x, x)
    own, other = np.where(below, a, b), np.where(below, b, a)
    pull = np.maximum(other - 1, 0) * near
    scale = 1 / (np.maximum(own - pull / rest, 0) + np.sqrt(pull) / rest)
    s = scale * _POINTS
    growth = np.log1p(-near * np.expm1(-s) / rest)
    log_density = (other - 1) * growth - own * s
    surplus = np.log(x) - digamma(a) + digamma(total)
    factor = np.where(below, s - surplus, growth + surplus)
    return np.where(below, x / (1 - x), 1) * _integral(scale, log_density, factor)
