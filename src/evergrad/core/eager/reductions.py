"""Reductions of contiguous floats over neighbouring dimensions, evaluated by one native loop.

Below a size nothing changes. Whether the loop is used depends on types and strides alone; its
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
from evergrad.core.row_facts import Combine, EagerReduction
from evergrad.core.shapes import Shape, TensorType, reduced_shape
from evergrad.extension import ExtensionPoint
from evergrad.memory import pool

if TYPE_CHECKING:
    from evergrad.core.op import Attrs, Op
    from evergrad.core.trace import Var
    from evergrad.core.types import AnyFunction, Args, Array

_reduction_kernel: ExtensionPoint[..., object] = ExtensionPoint("reduction_kernel")

# From so many elements on: for fewer the calls of NumPy are as fast.
_LEAST_ELEMENTS = 4
# Loops over fewer elements keep the GIL: releasing it would take as long.
_BRIEF = 1 << 14
# Columns of fewer neighbours would leave most lanes of a vector empty.
_LEAST_COLUMNS = 8

_from_buffer: AnyFunction = c_char.from_buffer

_FLOATS = (dtypes.float32, dtypes.float64)
_IN_TWO_LOOPS = (Combine.SUM, Combine.MAX, Combine.MIN)
# Kernels by reduction, element type and direction; False: there is none.
_kernels: dict[object, Any] = {}


def may_reduce(op: Op, attrs: Attrs, operands: Args, out: TensorType) -> bool:
    """Whether a row on these types may be evaluated by one native loop."""
    if op.eager_reduction is None or len(operands) != 1 or operands[0].dtype not in _FLOATS:
        return False
    if out.dtype is not operands[0].dtype:
        return False
    if surrounding_extents(operands[0].shape, attrs["dims"]) is not None:
        return op.eager_reduction.combine in _IN_TWO_LOOPS and not op.eager_reduction.squares
    outer, count, inner = reduced_extents(operands[0].shape, attrs["dims"])
    return outer * count * inner > 0 and (inner == 1 or inner >= _LEAST_COLUMNS)


def reduced_extents(shape: Shape, dims: Shape) -> tuple[int, int, int]:
    """The extents before, of and after the reduced dimensions; zeros if these are no neighbours."""
    if not dims or sorted(dims) != list(range(min(dims), max(dims) + 1)):
        return 0, 0, 0
    first, last = min(dims), max(dims) + 1
    return math.prod(shape[:first]), math.prod(shape[first:last]), math.prod(shape[last:])


def surrounding_extents(shape: Shape, dims: Shape) -> tuple[int, int, int] | None:
    """The extents of the first dimensions, the middle and the last ones, where all but the middle
    are reduced, as by statistics of channels; ``None`` for other dimensions and no elements."""
    kept = [d for d in range(len(shape)) if d not in dims]
    if not kept or not kept[0] or kept[-1] == len(shape) - 1:
        return None
    if len(kept) != kept[-1] - kept[0] + 1 or 0 in shape:
        return None
    first, last = kept[0], kept[-1] + 1
    return math.prod(shape[:first]), math.prod(shape[first:last]), math.prod(shape[last:])


def reduction_evaluator(
    op: Op, attrs: Attrs, operand: TensorType, out: TensorType, plain: Callable[..., object]
) -> Callable[..., object]:
    """An evaluator by native loops from a number of elements on."""
    found = surrounding_extents(operand.shape, attrs["dims"])
    if found is not None:  # as may_reduce() has found
        return _around_the_middle(op, found, operand, out, plain)
    return _by_one_loop(op, attrs, operand, out, plain)


def _around_the_middle(
    op: Op, extents: tuple[int, int, int], operand: TensorType, out: TensorType,
    plain: Callable[..., object],
) -> Callable[..., object]:  # fmt: skip
    """Along the last dimensions by one loop, then its few results along the first ones by
    another."""
    assert op.eager_reduction is not None
    first, middle, last = extents
    total, dtype = operand.numel, operand.dtype.np
    allocate = pool.allocator(out.shape, dtype)
    plainly = EagerReduction(op.eager_reduction.combine)
    divisor = first * last if op.eager_reduction.mean else 1

    def run(array: Any) -> Any:
        forced = config.EAGER_KERNEL_ELEMENTS
        least = _LEAST_ELEMENTS if forced is None else forced
        if total < least or not config.EAGER_KERNELS or array.__class__ is not np.ndarray:
            return plain(array)
        if not array.flags.carray:
            if total >= _BRIEF:
                return plain(array)
            array = array.copy()
        along_rows = _loop((plainly, operand.dtype, True))
        along_columns = _loop((plainly, operand.dtype, False))
        if along_rows is False or along_columns is False:
            return plain(array)
        parts, found = np.empty((first, middle), dtype), allocate()
        between = addressof(_from_buffer(parts))
        address = addressof(_from_buffer(array))
        along_rows[total >= _BRIEF](between, address, first * middle, last, 1)
        along_columns[0](addressof(_from_buffer(found)), between, 1, first, middle)
        if divisor != 1:
            np.divide(found, divisor, out=found)
        return found

    return run


def _by_one_loop(
    op: Op, attrs: Attrs, operand: TensorType, out: TensorType, plain: Callable[..., object]
) -> Callable[..., object]:
    """An evaluator by one native loop from a number of elements on; ``plain`` for fewer, and for
    larger arrays that are not contiguous. Smaller ones are copied: the bits of their sums do not
    depend on strides, which a derivative has other ones of than the same ops one by one."""
    outer, count, inner = reduced_extents(operand.shape, attrs["dims"])
    total = operand.numel
    allocate = pool.allocator(out.shape, out.dtype.np)
    key = op.eager_reduction, operand.dtype, inner == 1
    from_buffer = _from_buffer
    loop: Any = None
    # Of a large matrix that is transposed: the same along the other dimension of its memory.
    turned: tuple[int, int, int] | None = None
    if len(operand.shape) == 2 and len(attrs["dims"]) == 1:
        turned = (1, count, outer) if inner == 1 else (inner, count, 1)

    def run(array: Array | Var) -> Any:
        nonlocal loop
        forced = config.EAGER_KERNEL_ELEMENTS
        least = _LEAST_ELEMENTS if forced is None else forced
        if total < least or not config.EAGER_KERNELS:
            return plain(array)
        if array.__class__ is not np.ndarray:
            return plain(array)
        if not array.flags.carray:
            if total >= _BRIEF:
                return across(array) if turned is not None else plain(array)
            array = array.copy()
        if loop is None:
            found = _loop(key)
            loop = found and found[total >= _BRIEF]
        if loop is False:
            return plain(array)
        result = allocate()
        loop(addressof(from_buffer(result)), addressof(from_buffer(array)), outer, count, inner)
        return result

    def across(array: Any) -> Any:
        assert turned is not None
        is_row = turned[2] == 1
        found = _loop((op.eager_reduction, operand.dtype, is_row))
        if (
            found is False
            or not array.T.flags.carray
            or not (is_row or turned[2] >= _LEAST_COLUMNS)
        ):
            return plain(array)
        result = allocate()
        found[1](addressof(from_buffer(result)), addressof(from_buffer(array.T)), *turned)
        return result

    return run


def any_extent_reduction(
    op: Op, attrs: Attrs, operand: TensorType, plain: Callable[..., object]
) -> Callable[..., object]:
    """The same for small arrays of any shape."""
    dims, keepdim = attrs["dims"], attrs["keepdim"]
    numpy_type = operand.dtype.np
    from_buffer = _from_buffer

    def run(array: Array) -> Any:
        forced = config.EAGER_KERNEL_ELEMENTS
        total = array.size
        if total < (_LEAST_ELEMENTS if forced is None else forced) or not config.EAGER_KERNELS:
            return np.asarray(plain(array))
        shape = array.shape
        outer, count, inner = reduced_extents(shape, dims)
        if not (inner == 1 or inner >= _LEAST_COLUMNS) or not outer * count:
            return np.asarray(plain(array))
        found = _loop((op.eager_reduction, operand.dtype, inner == 1))
        if found is False or (total >= _BRIEF and not array.flags.carray):
            return np.asarray(plain(array))
        if not array.flags.carray:
            array = array.copy()
        result = np.empty(reduced_shape(shape, dims, keepdim), numpy_type)
        function = found[total >= _BRIEF]
        function(addressof(from_buffer(result)), addressof(from_buffer(array)), outer, count, inner)
        return result

    return run


def _loop(key: Any) -> Any:
    found = _kernels.get(key)
    if found is None:
        found = _kernels[key] = _reduction_kernel(*key) or False
    return found
