"""Softmax and its logarithm of contiguous floats, evaluated by one native kernel.

Below a size nothing changes. Whether the kernel is used depends on types and strides alone; its
extents are arguments, so that all shapes share its machine code.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from ctypes import addressof, c_char
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad import config
from evergrad.core import dtypes
from evergrad.core.eager.copies import contiguous_copy
from evergrad.core.shapes import Shape, TensorType
from evergrad.core.types import Array
from evergrad.extension import ExtensionPoint
from evergrad.memory import pool

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction

_softmax_kernel: ExtensionPoint[..., Any] = ExtensionPoint("softmax_kernel")

# From so many elements on: for fewer the calls of NumPy are as fast.
_LEAST_ELEMENTS = 4
# Loops over fewer elements keep the GIL: releasing it would take as long.
_BRIEF = 1 << 14
# Columns of fewer neighbours would leave most lanes of a vector empty.
_LEAST_COLUMNS = 8

_NAMES = {dtypes.float32: "float32", dtypes.float64: "float64"}
_from_buffer: AnyFunction = c_char.from_buffer


def _extents(shape: Shape, dim: int) -> tuple[int, int, int] | None:
    """The extents before, of and after a dimension; ``None`` where the kernel does not gain."""
    inner = math.prod(shape[dim + 1 :])
    if not math.prod(shape) or 1 < inner < _LEAST_COLUMNS:
        return None
    return math.prod(shape[:dim]), shape[dim], inner


def softmax_evaluator(
    operand: TensorType, dim: int, is_log: bool, plain: AnyFunction
) -> Callable[..., object]:
    """An evaluator by one kernel from a number of elements on; ``plain`` for fewer. Arrays that are
    not contiguous are copied."""
    name = _NAMES.get(operand.dtype)
    extents = _extents(operand.shape, dim) if operand.shape else None
    if name is None or extents is None:
        return plain
    outer, count, inner = extents
    total = operand.numel
    allocate = pool.allocator(operand.shape, operand.dtype.np)
    numpy_type = operand.dtype.np
    kernel: Any = None

    def run(x: Any) -> Any:
        nonlocal kernel
        forced = config.EAGER_KERNEL_ELEMENTS
        least = _LEAST_ELEMENTS if forced is None else forced
        if total < least or not config.EAGER_KERNELS:
            return plain(x)
        if not x.flags.carray:
            x = contiguous_copy(x)
        if kernel is None:
            found = _softmax_kernel(name, inner == 1, is_log)
            kernel = found[total >= _BRIEF] if found else False
        if kernel is False:
            return plain(x)
        out = allocate()
        start, source = addressof(_from_buffer(out)), addressof(_from_buffer(x))
        if inner == 1:
            kernel(start, source, None, outer, count, 1)
        else:
            work = np.empty(2 * inner, numpy_type)
            kernel(start, source, addressof(_from_buffer(work)), outer, count, inner)
        return out

    return run


def softmax(x: Array, dim: int, is_log: bool) -> Array | None:
    """The same for an array of any shape; ``None`` where the kernel does not apply."""
    extents = _extents(x.shape, dim) if x.ndim else None
    name = {"f": "float32", "d": "float64"}.get(x.dtype.char)
    forced = config.EAGER_KERNEL_ELEMENTS
    least = _LEAST_ELEMENTS if forced is None else forced
    if extents is None or name is None or x.size < least:
        return None
    if not x.flags.carray:
        x = contiguous_copy(x)
    found = _softmax_kernel(name, extents[2] == 1, is_log) if config.EAGER_KERNELS else None
    if not found:
        return None
    out = pool.empty(x.shape, x.dtype)
    work = np.empty(2 * extents[2], x.dtype)
    starts = [addressof(_from_buffer(a)) for a in (out, x, work)]
    found[x.size >= _BRIEF](*starts, *extents)
    return out
