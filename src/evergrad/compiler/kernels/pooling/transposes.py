"""The transpose of a pooling reduction: ``window_spread``.

Every plane belongs to one chunk, which accumulates in a fixed order.
"""

from __future__ import annotations

from functools import cache

from evergrad.compiler.codegen.ir_builder import Vector, vector_for
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.kernel_builder import KernelBuilder, with_numbers
from evergrad.compiler.kernels.contiguous import contiguous
from evergrad.compiler.kernels.pooling.reduce import (
    as_2d,
    is_supported,
    pooling_numbers,
)
from evergrad.compiler.schedule.lower import Lowering
from evergrad.compiler.schedule.lowering_registry import lowers
from evergrad.core.trace import Equation
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
