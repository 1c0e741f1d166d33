"""Evaluations of several NumPy passes, run on pieces that stay in cache.

NumPy's ``expm1`` and ``log1p`` take one element at a time; ``exp`` and ``log`` of float32 take
sixteen. The single-precision versions here use those, corrected where they lose digits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from evergrad.memory import pool

Array = np.ndarray[Any, Any]

_PIECE = 1 << 14


def in_pieces(function: Callable[..., Any]) -> Callable[..., Any]:
    """An elementwise function of an array (and numbers), a few thousand elements at a time."""

    def run(x: Any, *numbers: Any, out: Any = None) -> Any:
        if out is None:
            out = pool.empty(x.shape, x.dtype)
        if x.size <= _PIECE or not (x.flags.c_contiguous and out.flags.c_contiguous):
            out[...] = function(x, *numbers)
            return out
        source, target = x.reshape(-1), out.reshape(-1)
        for start in range(0, source.size, _PIECE):
            piece = slice(start, start + _PIECE)
            target[piece] = function(source[piece], *numbers)
        return out

    return run


def log1p_single(x: Array) -> Any:
    """``log(1 + x)`` of float32: the rounding of ``1 + x`` is undone by a quotient."""
    up = 1 + x
    rounded = up - 1
    exact = np.log(up) * (x / rounded)
    return np.where(rounded == 0, x, np.where(np.isposinf(up), up, exact))


def expm1_single(x: Array) -> Any:
    """``exp(x) - 1`` of float32: the rounding of ``exp(x)`` is undone by a quotient."""
    up = np.exp(x)
    rounded = up - 1
    exact = rounded * (x / np.log(up))
    return np.where(rounded == 0, x, np.where((up == 0) | np.isinf(up), rounded, exact))


def _by_precision(single: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    pieces = in_pieces(single)

    def run(x: Any, **out: Any) -> Any:
        return pieces(x, **out) if x.dtype == np.float32 else plain(x, **out)

    return run


log1p = _by_precision(log1p_single, np.log1p)
expm1 = _by_precision(expm1_single, np.expm1)


def softplus_of_negative(x: Array) -> Any:
    """``log(1 + exp(-|x|))``, which lies between 0 and log 2."""
    small = np.exp(-np.abs(x))
    return log1p_single(small) if x.dtype == np.float32 else np.log1p(small)


# -- choosing -----------------------------------------------------------------------------------
# ``np.where`` branches on each element, which costs ten times the arithmetic when the condition is
# irregular. On the bits of the numbers the choice is a few logical operations; infinities and NaNs
# pass unchanged.

_BITS = {4: np.dtype(np.int32), 8: np.dtype(np.int64)}
_WORTH_BITS = 512  # elements; below, the calls cost more than the branches


def where(condition: Any, a: Any, b: Any) -> Any:
    """``np.where``, without branches where the operands are plain."""
    sides = [s for s in (a, b) if isinstance(s, np.ndarray) and s.ndim]
    kind = sides[0].dtype if sides else None
    if kind is None or condition.size < _WORTH_BITS or not _plain(condition, sides, kind):
        return np.where(condition, a, b)
    bits: Any = _BITS[kind.itemsize]
    out = pool.empty(condition.shape, kind)
    flags, target = condition.reshape(-1).view(np.int8), out.reshape(-1).view(bits)
    first, second = (_as_bits(s, kind, bits) for s in (a, b))
    for start in range(0, target.size, _PIECE):
        piece = slice(start, start + _PIECE)
        _choose(
            flags[piece].astype(bits),
            first[piece] if first.ndim else first,
            second[piece] if second.ndim else second,
            target[piece],
        )
    return out


def _plain(condition: Any, sides: list[Any], kind: Any) -> bool:
    """Whether all operands are contiguous, of one shape and of one type with whole-word numbers."""
    return (
        condition.dtype == np.bool_
        and kind.itemsize in _BITS
        and kind.kind in "fiu"
        and condition.flags.c_contiguous
        and all(
            s.dtype == kind and s.shape == condition.shape and s.flags.c_contiguous for s in sides
        )
    )


def _as_bits(side: Any, kind: Any, bits: Any) -> Any:
    array = np.asarray(side, kind)
    return array.view(bits) if not array.ndim else array.reshape(-1).view(bits)


def _choose(flags: Array, a: Array, b: Array, out: Array) -> None:
    """``flags`` (0 or 1) decides between the bits of a and b; it is used up."""
    if not b.ndim and not b:
        np.bitwise_and(a, np.negative(flags, out=flags), out=out)
    elif not a.ndim and not a:
        flags -= 1
        np.bitwise_and(b, flags, out=out)
    else:
        np.negative(flags, out=flags)
        np.bitwise_xor(a, b, out=out)
        np.bitwise_and(out, flags, out=out)
        np.bitwise_xor(out, b, out=out)
