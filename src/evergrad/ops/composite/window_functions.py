"""Window functions of signal processing. They are numbers known beforehand, made with NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core.tensor import Array, Tensor
from evergrad.ops.rows.creation.constants import check_place, chosen_dtype, finish
from evergrad.ops.surface.convert import adopt
from evergrad.ops.surface.public import expose

if TYPE_CHECKING:
    from evergrad.core.types import DeviceLike, DtypeLike, LayoutLike

Options = tuple[Any, Any, bool]  # dtype, device, requires_grad


def _window(
    name: str, length: int, periodic: bool, shape: Callable[[Array, int], Any], options: Options
) -> Tensor:
    """``shape(places, last)`` gives the window's values; a periodic one leaves off the last."""
    given, device, requires_grad = options
    check_place(device)
    target = chosen_dtype(given)
    if not target.is_floating_point:
        raise RuntimeError(f"{name} expects floating point dtypes, got: {target.name}")
    if length < 0:
        raise RuntimeError(
            f"{name} requires non-negative window_length, got window_length={length}"
        )
    if length < 2:
        values = np.ones(length, target.np)
    else:
        full = length + 1 if periodic else length
        values = shape(np.arange(full, dtype=target.compute), full - 1)[:length]
    return finish(adopt(values.astype(target.np)), requires_grad)


@expose(method=False, out=False)
def hamming_window(
    window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *,
    dtype: DtypeLike = None, layout: LayoutLike = None, device: DeviceLike = None,
    pin_memory: bool = False, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """``alpha - beta * cos(2 pi n / N)``"""

    def shape(n: Array, last: int) -> Any:
        return np.cos(n * n.dtype.type(2 * math.pi / last)) * -beta + alpha

    options = (dtype, device, requires_grad)
    return _window("hamming_window", window_length, periodic, shape, options)


@expose(method=False, out=False)
def hann_window(
    window_length: int, periodic: bool = True, *, dtype: DtypeLike = None,
    layout: LayoutLike = None, device: DeviceLike = None, pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """``0.5 - 0.5 * cos(2 pi n / N)``"""
    return hamming_window(
        window_length, periodic, 0.5, 0.5, dtype=dtype, device=device, requires_grad=requires_grad
    )


@expose(method=False, out=False)
def blackman_window(
    window_length: int, periodic: bool = True, *, dtype: DtypeLike = None,
    layout: LayoutLike = None, device: DeviceLike = None, pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """``0.42 - 0.5 * cos(2 pi n / N) + 0.08 * cos(4 pi n / N)``"""

    def shape(n: Array, last: int) -> Any:
        angle = n * n.dtype.type(math.pi / last)
        return np.cos(angle * 4) * 0.08 - np.cos(angle * 2) * 0.5 + 0.42

    options = (dtype, device, requires_grad)
    return _window("blackman_window", window_length, periodic, shape, options)


@expose(method=False, out=False)
def bartlett_window(
    window_length: int, periodic: bool = True, *, dtype: DtypeLike = None,
    layout: LayoutLike = None, device: DeviceLike = None, pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """A triangle from 0 up to 1 and back."""

    def shape(n: Array, last: int) -> Any:
        rising = n * n.dtype.type(2 / last)
        return np.where(n <= last // 2, rising, 2 - rising)

    options = (dtype, device, requires_grad)
    return _window("bartlett_window", window_length, periodic, shape, options)


@expose(method=False, out=False)
def kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, *, dtype: DtypeLike = None,
    layout: LayoutLike = None, device: DeviceLike = None, pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """``i0(beta * sqrt(1 - (2 n / N - 1)^2)) / i0(beta)``"""

    def shape(n: Array, last: int) -> Array:
        place = n.astype(np.float64) * (2 / last) - 1
        return np.i0(beta * np.sqrt(np.maximum(1 - place * place, 0))) / np.i0(beta)

    options = (dtype, device, requires_grad)
    return _window("kaiser_window", window_length, periodic, shape, options)
