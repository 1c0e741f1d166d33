"""Transposes of pooling reductions: ``window_spread``, and ``scatter_sum`` and ``gather`` along the
last dimension.

Every plane or row of a matrix belongs to one chunk, which accumulates in a fixed order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from evergrad.compiler.codegen.ir_builder import (
    KernelBuilder,
    Vector,
    is_native,
    items_per_chunk,
    vector_for,
    with_numbers,
)
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.kernels.contiguous import contiguous
from evergrad.compiler.kernels.indexed import ADD, add_read, add_write, by_elements
from evergrad.compiler.kernels.pooling.reduce import (
    as_2d,
    is_supported,
    pooling_numbers,
)
from evergrad.compiler.schedule.lower import Lowering
from evergrad.compiler.schedule.lowering_registry import lowers
from evergrad.core import dtypes
from evergrad.core.shapes import TensorType
from evergrad.core.trace import Equation
from evergrad.ops.rows.indexing.scatter import GATHER, SCATTER_SUM
from evergrad.ops.rows.pool.geometry import Windows
from evergrad.ops.rows.pool.windows import WINDOW_SPREAD

# The cost of an element, in operations of other kernels.
_COST = 16


# -- windows ------------------------------------------------------------------------------------


@lowers(WINDOW_SPREAD)
def lower_spread(lowering: Lowering, eqn: Equation) -> bool:
    if not is_supported(eqn):
        return False
    (y,), out = eqn.args, eqn.outs[0]
    windows = as_2d(eqn.attrs["windows"])
    rows, columns = windows.counts
    numbers = pooling_numbers(windows, y.type.numel // (rows * columns))
    kernel = with_numbers(
        _spread_kernel_ir(vector_for(y.type.dtype), type(numbers)._fields), numbers,
        _column_table(windows), -(-numbers.items // numbers.per_chunk),
    )  # fmt: skip
    work = y.type.numel * windows.kernel[0] * windows.kernel[1]
    lowering.add_kernel("window_spread", kernel, [contiguous(lowering, y)], [out], work)
    return True


def _column_table(windows: Windows) -> list[int]:
    """For each column of the window: its offset from the start of windows, and the range of windows
    for which it is inside x."""
    table = []
    size, count, stride = windows.size[1], windows.counts[1], windows.stride[1]
    for column in range(windows.kernel[1]):
        shift = column * windows.dilation[1] - windows.padding[1][0]
        first = max(0, -(shift // stride))
        table += [shift, first, min(count, (size - 1 - shift) // stride + 1)]
    return table


@cache
def _spread_kernel_ir(vector: Vector, names: tuple[str, ...]) -> Kernel:
    ir = KernelBuilder(vector, ("y", "x"), names)
    first, last = ir.items("%chunk", ir["per_chunk"], ir["items"])
    size = ir.mul(ir["x_rows"], ir["x_columns"])
    count = ir.mul(ir["y_rows"], ir["y_columns"])
    with ir.loop(last, first=first) as item:
        x = ir.at(ir["x"], ir.mul(item, size))
        y = ir.at(ir["y"], ir.mul(item, count))
        zero_fill(ir, x, size)
        with ir.loop(ir["y_rows"]) as row, ir.loop(ir["kernel_rows"]) as r:
            shift = ir.sub(ir.mul(r, ir["dilation_rows"]), ir["pad_rows"])
            at = ir.add(ir.mul(row, ir["stride_rows"]), shift)
            inside = ir.op(f"icmp ult i64 {at}, {ir['x_rows']}")
            with ir.when(inside):
                target = ir.at(x, ir.mul(at, ir["x_columns"]))
                _spread_row(ir, ir.at(y, ir.mul(row, ir["y_columns"])), target)
    return ir.kernel("window_spread")


def _spread_row(ir: KernelBuilder, source: str, target: str) -> None:
    """Accumulate a row of windows at all columns of the window."""
    with ir.loop(ir["kernel_columns"]) as c:
        shift, low, high = (ir.number(ir.table(ir.mul(c, 3)), n) for n in range(3))
        with ir.loop(high, first=low) as column:
            at = ir.add(ir.mul(column, ir["stride_columns"]), shift)
            accumulate(ir, ir.at(target, at), ir.load(ir.at(source, column)))


def accumulate(ir: KernelBuilder, address: str, value: str) -> None:
    """Add a value to an element in memory."""
    total = ir.op(f"fadd {ir.vector.element} {ir.load(address)}, {value}")
    ir.store(total, address)


def zero_fill(ir: KernelBuilder, start: str, count: str) -> None:
    """Store zeros."""
    with ir.loop(count) as n:
        ir.store("0.0", ir.at(start, n))


# -- gather and scatter along the last dimension ------------------------------------------------


class _RowNumbers(NamedTuple):
    items: int
    per_chunk: int
    extent: int  # of the indexed dimension
    indices: int  # of a row of the index


def _row_numbers(eqn: Equation, whole: TensorType) -> _RowNumbers | None:
    """The integer arguments of a gather or scatter between ``whole`` and its index, if both have
    the same leading dimensions."""
    index = eqn.args[1].type
    rank = len(whole.shape)
    if (
        not is_native(whole.dtype)
        or index.dtype is not dtypes.int64
        or not rank
        or eqn.attrs["dim"] % rank != rank - 1
        or index.shape[:-1] != whole.shape[:-1]
        or not whole.numel
        or not index.numel
    ):
        return None
    items = whole.numel // whole.shape[-1]
    extent, indices = whole.shape[-1], index.shape[-1]
    return _RowNumbers(items, items_per_chunk(items, indices * _COST + extent), extent, indices)


def _lower_rows(
    lowering: Lowering, eqn: Equation, whole: TensorType, kernel_ir: Callable[[Vector], Kernel]
) -> bool:
    numbers = _row_numbers(eqn, whole)
    if numbers is None:
        return False
    made = kernel_ir(vector_for(whole.dtype))
    kernel = with_numbers(made, numbers, [], -(-numbers.items // numbers.per_chunk))
    operands = [contiguous(lowering, a) for a in eqn.args]
    work = numbers.items * numbers.indices * _COST
    lowering.add_kernel(eqn.op.name, kernel, operands, [eqn.outs[0], None], work)
    return True


@lowers(SCATTER_SUM)
def lower_scatter_sum(lowering: Lowering, eqn: Equation) -> bool:
    if _lower_rows(lowering, eqn, eqn.outs[0].type, _scatter_kernel_ir):
        return True
    source, index = eqn.args
    extents = by_elements(eqn.attrs["shape"], index.type.shape, eqn.attrs["dim"])
    return add_write(lowering, eqn, None, index, source, ADD, extents, wrap=False)


@lowers(GATHER)
def lower_gather(lowering: Lowering, eqn: Equation) -> bool:
    if _lower_rows(lowering, eqn, eqn.args[0].type, _gather_kernel_ir):
        return True
    x, index = eqn.args
    extents = by_elements(x.type.shape, index.type.shape, eqn.attrs["dim"])
    return add_read(lowering, eqn, index, extents, wrap=False)


@cache
def _scatter_kernel_ir(vector: Vector) -> Kernel:
    ir = KernelBuilder(vector, ("source", "index", "out", "status"), _RowNumbers._fields)
    first, last = ir.items("%chunk", ir["per_chunk"], ir["items"])
    with ir.loop(last, first=first) as item:
        target = ir.at(ir["out"], ir.mul(item, ir["extent"]))
        zero_fill(ir, target, ir["extent"])
        with ir.loop(ir["indices"]) as n:
            element = ir.add(ir.mul(item, ir["indices"]), n)
            index, inside = _checked_index(ir, element)
            with ir.when(inside):
                accumulate(ir, ir.at(target, index), ir.load(ir.at(ir["source"], element)))
    return ir.kernel("scatter_sum")


@cache
def _gather_kernel_ir(vector: Vector) -> Kernel:
    ir = KernelBuilder(vector, ("x", "index", "out", "status"), _RowNumbers._fields)
    first, last = ir.items("%chunk", ir["per_chunk"], ir["items"])
    with ir.loop(last, first=first) as item:
        source = ir.at(ir["x"], ir.mul(item, ir["extent"]))
        with ir.loop(ir["indices"]) as n:
            element = ir.add(ir.mul(item, ir["indices"]), n)
            index, inside = _checked_index(ir, element)
            with ir.when(inside):
                ir.store(ir.load(ir.at(source, index)), ir.at(ir["out"], element))
    return ir.kernel("gather")


def _checked_index(ir: KernelBuilder, element: str) -> tuple[str, str]:
    """An element of the index, and whether it is in range; sets the status if not."""
    index = ir.number(ir["index"], element)
    inside = ir.op(f"icmp ult i64 {index}, {ir['extent']}")
    outside = ir.op(f"xor i1 {inside}, true")
    with ir.when(outside):
        ir.do(f"store i64 1, ptr {ir['status']}")
    return index, inside
