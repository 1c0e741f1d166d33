"""How special functions are run on arrays: block by block, as polynomials. Knows no function."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from evergrad.core.types import Array as Array
from evergrad.memory import pool

_BLOCK = 1 << 13


def blockwise(
    function: Callable[..., object], single: Callable[..., object] | None = None
) -> object:
    """Run a function of flat double-precision blocks on arrays of any shape that broadcast.

    ``single`` takes its place for float32, which is widened otherwise.
    """

    @functools.wraps(function)
    def run(*arrays: Any) -> Array:
        if len(arrays) > 1:
            arrays = np.broadcast_arrays(*arrays)
        shape, kind = arrays[0].shape, np.result_type(*arrays)
        flat = [np.ascontiguousarray(a).reshape(-1) for a in arrays]
        chosen = function if single is None or kind != np.float32 else single
        out = pool.empty(flat[0].shape, kind)
        for start in range(0, out.size, _BLOCK):
            blocks = [f[start : start + _BLOCK] for f in flat]
            if chosen is function:
                blocks = [b.astype(np.float64, copy=False) for b in blocks]
            out[start : start + _BLOCK] = chosen(*blocks)
        return out.reshape(shape)

    return run


def polynomial(coefficients: Sequence[float], x: Array) -> Array:
    """By powers of ``x``, lowest first."""
    total = x * coefficients[-1]
    for c in coefficients[-2:0:-1]:
        total += c
        total *= x
    total += coefficients[0]
    return total


def chebyshev(x: Array, coefficients: Sequence[float]) -> Array:
    """By Chebyshev polynomials, lowest first (Clenshaw's recurrence)."""
    ahead, current = np.zeros_like(x), np.zeros_like(x)
    twice = 2 * x
    for c in coefficients[:0:-1]:
        step = twice * current
        step += c
        step -= ahead
        ahead, current = current, step
    return coefficients[0] + x * current - ahead
