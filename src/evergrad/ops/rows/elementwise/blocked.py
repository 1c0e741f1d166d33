"""Evaluations of several NumPy passes, run on pieces that stay in cache.

NumPy's ``expm1`` and ``log1p`` take one element at a time; ``exp`` and ``log`` of float32 take
sixteen. The single-precision versions here use those, corrected where they lose digits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from evergrad.core.types import Array
from evergrad.memory import pool

_PIECE = 1 << 14
# Below this, 1 - x is 1 in float32.
_VANISHING = np.float32(1e-9)


def in_pieces(function: Callable[..., object]) -> Callable[..., Array]:
    """An elementwise function of arrays (and numbers), a few thousand elements at a time.

    The function is given contiguous arrays of one dimension, and numbers as they are.
    """

    def run(*operands: Any, out: Array | None = None) -> Array:
        first = operands[0]
        shape = first.shape if len(operands) == 1 else np.broadcast(*operands).shape
        if out is None:
            kind = next(o.dtype for o in operands if isinstance(o, np.ndarray))
            out = pool.empty(shape, kind)
        flat = [_flattened(o, shape) for o in operands]
        target = out if out.flags.c_contiguous else np.empty(shape, out.dtype)
        line = target.reshape(-1)
        for start in range(0, line.size, _PIECE):
            piece = slice(start, start + _PIECE)
            line[piece] = function(*[o[piece] if isinstance(o, np.ndarray) else o for o in flat])
        if target is not out:
            out[...] = target
        return out

    return run


def _flattened(operand: object, shape: tuple[int, ...]) -> object:
    """An array as one contiguous line; a number, also as an array of rank 0, as it is."""
    if not isinstance(operand, np.ndarray):
        return operand
    if operand.shape != shape:
        if not operand.ndim:
            return operand[()]
        operand = np.broadcast_to(operand, shape)
    return np.ascontiguousarray(operand).reshape(-1)


def _log1p_of_finite(x: Array) -> Array:
    """``log(1 + x)`` of float32: the rounding of ``1 + x`` is undone by a quotient."""
    up = 1 + x
    rounded = up - 1
    exact = np.log(up, out=up)
    exact *= x / rounded
    return pick(rounded == 0, x, exact)


def log1p_single(x: Array) -> Array:
    """``log(1 + x)`` of float32."""
    return pick(np.isposinf(x), x, _log1p_of_finite(x))


def log1p_complex(z: Array, out: Any = None) -> object:
    """``log(1 + z)`` of complex numbers. Near 1 the logarithm of ``|1 + z|`` follows from
    ``|1 + z|**2 - 1 = 2x + x**2 + y**2``, whose roundings are added again."""
    x, y = z.real.astype(np.float64), z.imag.astype(np.float64)
    with np.errstate(all="ignore"):
        far = np.log(np.hypot(1 + x, y))
        excess = 2 * x
        lost: Array | float = 0.0
        for part in (x, y):
            square, below = _exact_square(part)
            excess, error = _exact_sum(excess, square)
            lost = lost + (error + below)
        close = np.log1p(excess + lost) * 0.5
    is_close = (excess > -0.75) & (np.maximum(np.abs(x), np.abs(y)) < 4)
    result = np.empty(z.shape, z.dtype) if out is None else out
    result.real = np.where(is_close, close, far)
    result.imag = np.arctan2(y, 1 + x)
    return result


def _exact_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """A sum, and what its rounding lost (Knuth)."""
    total = a + b
    added = total - a
    return total, (a - (total - added)) + (b - added)


def _exact_square(x: Array) -> tuple[Array, Array]:
    """A square of float64, and what its rounding lost (Dekker)."""
    split = 134217729.0 * x
    high = split - (split - x)
    low = x - high
    square = x * x
    return square, ((high * high - square) + 2 * high * low) + low * low


def expm1_single(x: Array) -> Array:
    """``exp(x) - 1`` of float32: the rounding of ``exp(x)`` is undone by a quotient."""
    up = np.exp(x)
    rounded = up - 1
    exact = rounded * (x / np.log(up))
    exact = pick(rounded == 0, x, exact)
    # Far below 0 the result is -1, and the logarithm of a denormal number is not x.
    return pick((up < _VANISHING) | np.isinf(up), rounded, exact)


def expm1_of_negative(x: Array) -> Array:
    """``exp(x) - 1`` where x <= 0: from tanh, of which NumPy takes many at a time."""
    if x.dtype != np.float32:
        return np.expm1(x)
    half = np.tanh(x * 0.5)
    result: Array = (half + half) / (1 - half)
    return result


def _by_precision(
    single: Callable[..., object], plain: Callable[..., object]
) -> Callable[..., object]:
    pieces = in_pieces(single)

    def run(x: Array, **out: object) -> object:
        return pieces(x, **out) if x.dtype == np.float32 else plain(x, **out)

    return run


def log1p(x: Array, **out: object) -> object:
    """``log(1 + x)`` of real and complex numbers."""
    return log1p_complex(x, **out) if x.dtype.kind == "c" else _log1p_real(x, **out)


expm1: Callable[..., object] = _by_precision(expm1_single, np.expm1)
_log1p_real = _by_precision(log1p_single, np.log1p)


def softplus_of_negative(x: Array) -> Array:
    """``log(1 + exp(-|x|))``, between 0 and log 2."""
    small = np.abs(x)
    np.negative(small, out=small)
    np.exp(small, out=small)
    return _log1p_of_finite(small) if x.dtype == np.float32 else np.log1p(small, out=small)


def positive_part(x: Array) -> Array:
    """``max(x, 0)``: twice as fast with an array of zeros as with the number."""
    return np.maximum(x, np.zeros_like(x))


# -- choosing -----------------------------------------------------------------------------------
# ``np.where`` branches on each element, which costs ten times the arithmetic when the condition is
# irregular. On the bits of the numbers the choice is a few logical operations; infinities and NaNs
# pass unchanged.

_BITS = {4: np.dtype(np.int32), 8: np.dtype(np.int64)}
_WORTH_BITS = 512  # elements; below, the calls cost more than the branches


def where(condition: Array, a: float | Array, b: float | Array) -> Array:
    """``np.where``, without branches where the operands are plain."""
    a, b = (one_if_repeated(side, condition.shape) for side in (a, b))
    sides = [s for s in (a, b) if isinstance(s, np.ndarray)]
    kind = next((s.dtype for s in sides if s.ndim), sides[0].dtype if sides else None)
    if kind is None or condition.size < _WORTH_BITS or not _plain(condition, sides, kind):
        return np.where(condition, a, b)
    bits: Any = _BITS[kind.itemsize]
    out = pool.empty(condition.shape, kind)
    flags, target = condition.reshape(-1).view(np.int8), out.reshape(-1).view(bits)
    first, second = (_as_bits(s, kind, bits) for s in (a, b))
    for start in range(0, target.size, _PIECE):
        piece = slice(start, start + _PIECE)
        _choose(
            flags[piece],
            first[piece] if first.ndim else first,
            second[piece] if second.ndim else second,
            target[piece],
        )
    return out


def one_if_repeated(side: Any, shape: tuple[int, ...]) -> Any:
    """One element for an array that repeats it, as the gradient of a sum does."""
    repeated = isinstance(side, np.ndarray) and side.size > 1 and not any(side.strides)
    return side[(*[0] * side.ndim, ...)] if repeated and side.shape == shape else side


def _plain(condition: Array, sides: list[Array], kind: np.dtype[np.generic]) -> bool:
    """Whether all operands are contiguous, of one shape and of one type with whole-word numbers."""
    return (
        condition.dtype == np.bool_
        and kind.itemsize in _BITS
        and kind.kind in "fiu"
        and condition.flags.c_contiguous
        and all(
            s.dtype == kind
            and (not s.ndim or (s.shape == condition.shape and s.flags.c_contiguous))
            for s in sides
        )
    )


def _as_bits(side: float | Array, kind: np.dtype[np.generic], bits: object) -> Any:
    array = np.asarray(side, kind)
    return array.view(bits) if not array.ndim else array.reshape(-1).view(bits)


def _choose(flags: Array, a: Array, b: Array, out: Array) -> None:
    """``flags`` (bytes of 0 or 1) decide between the bits of a and b."""
    if not a.ndim and not a:
        np.bitwise_and(b, np.subtract(flags, 1).astype(out.dtype), out=out)
        return
    mask = np.negative(flags).astype(out.dtype)  # all bits, or none
    if not b.ndim and not b:
        np.bitwise_and(a, mask, out=out)
        return
    np.bitwise_xor(a, b, out=out)
    np.bitwise_and(out, mask, out=out)
    np.bitwise_xor(out, b, out=out)


def pick(condition: Array, a: Array, b: Array) -> Array:
    """``where`` for contiguous arrays of one shape and floating-point type; ``b`` is used up."""
    bits: Any = _BITS[b.itemsize]
    mask = np.negative(condition.view(np.int8)).astype(bits)
    mask &= a.view(bits) ^ b.view(bits)
    target = b.view(bits)
    target ^= mask
    return b
