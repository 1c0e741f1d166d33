"""Rows of several NumPy calls on contiguous floats of one shape, evaluated by one native loop.

Below a size nothing changes. Whether the loop is used depends on types and strides alone. Rows that
NumPy evaluates by one call stay with NumPy: those of a ufunc, and cheap ones that do not state
``eager_loop``.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import addressof, c_char
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad import config
from evergrad.core import dtypes
from evergrad.core.eager.parallel_ufunc import PARALLEL_MIN_ELEMENTS, parallel_ufunc
from evergrad.core.row_facts import Cost
from evergrad.core.shapes import TensorType
from evergrad.extension import ExtensionPoint
from evergrad.memory import pool

if TYPE_CHECKING:
    from evergrad.core.op import ArgType, Attrs, Op

_elementwise_kernel: ExtensionPoint[..., Any] = ExtensionPoint("elementwise_kernel")

# From so many elements on: for fewer the calls of NumPy are as fast.
_LEAST_ELEMENTS = 128
# Loops over fewer elements keep the GIL: releasing it would take as long.
_BRIEF = 1 << 14

_FLOATS = (dtypes.float32, dtypes.float64)
# Kernels by row, attributes, element types and which operands are numbers; None: there is none.
_kernels: dict[Any, Any] = {}


def may_use_loop(
    op: Op, types: tuple[ArgType, ...], operands: tuple[Any, ...], out_types: tuple[Any, ...]
) -> bool:
    """Whether a row on these types may be evaluated by one native loop."""
    if op.emit.function is None or not _prefers_loop(op):
        return False
    shape = out_types[0].shape
    return (
        len(out_types) == 1
        and not op.emit.numbered
        and out_types[0].dtype in (*_FLOATS, dtypes.bool_)
        and operands[-1].dtype in _FLOATS
        and any(t.shape == shape for t in operands)
        and all(_is_supported(t, shape) for t in operands)
    )


def _prefers_loop(op: Op) -> bool:
    if op.eager_loop is not None:
        return op.eager_loop
    return op.emit.cost is Cost.EXPENSIVE and not isinstance(op.eval, np.ufunc)


def _is_supported(operand: TensorType, shape: tuple[int, ...]) -> bool:
    if operand.shape == shape and shape:
        return operand.dtype in (*_FLOATS, dtypes.bool_)
    return not operand.shape and operand.dtype in _FLOATS


def loop_evaluator(
    op: Op, attrs: Attrs, operands: tuple[TensorType, ...], out: TensorType,
    plain: Callable[..., Any],
) -> Callable[..., Any]:  # fmt: skip
    """An evaluator by one native loop from a number of elements on; ``plain`` for fewer, and for
    arrays that are not contiguous."""
    count = out.numel
    allocate = pool.allocator(out.shape, out.dtype.np)
    is_number = [not t.shape for t in operands]
    key = op.name, tuple(attrs.items()), out.dtype, tuple([t.dtype for t in operands]), *is_number
    from_buffer: Callable[[Any], Any] = c_char.from_buffer
    loop: Any = None

    def run(*given: Any) -> Any:
        nonlocal loop
        forced = config.EAGER_KERNEL_ELEMENTS
        least = _LEAST_ELEMENTS if forced is None else forced
        if count < least or not count or not config.EAGER_KERNELS:
            return plain(*given)
        words = []
        for operand, number in zip(given, is_number, strict=True):
            if number:
                words.append(float(operand))
            elif operand.__class__ is np.ndarray and operand.flags.carray:
                words.append(addressof(from_buffer(operand)))
            else:
                return plain(*given)
        if loop is None:
            loop = _loop(key, op, attrs, operands, out)
        if loop is False:
            return plain(*given)
        result = allocate()
        if count < _BRIEF:
            loop[0](addressof(from_buffer(result)), *words, count)
        elif count < PARALLEL_MIN_ELEMENTS:
            loop[1](addressof(from_buffer(result)), *words, count)
        else:
            _in_parallel(loop[1], given, result)
        return result

    return run


def _loop(key: Any, op: Op, attrs: Attrs, operands: Any, out: TensorType) -> Any:
    found = _kernels.get(key)
    if found is None:
        found = _kernels[key] = _elementwise_kernel(op, attrs, operands, out) or False
    return found


def _in_parallel(loop: Any, operands: tuple[Any, ...], result: Any) -> None:
    """Chunks of a large call by several threads."""

    def chunk(*given: Any, out: Any) -> None:
        words = [o if isinstance(o, float) else _address(o) for o in given]
        loop(_address(out), *words, out.size)

    numbers = [o if isinstance(o, np.ndarray) and o.ndim else float(o) for o in operands]
    parallel_ufunc(chunk)(*numbers, out=result)


def _address(array: Any) -> int:
    return addressof(c_char.from_buffer(array))
