"""The gradient of ``max_pool``, with a recomputed argmax.

If pooling windows partition x, vectors of windows store each element of the gradient once. If they
overlap or leave gaps, gradients are scattered one by one onto zeros, in the order of windows.
"""

from __future__ import annotations

from functools import cache
from math import prod

from evergrad.compiler.codegen.ir_builder import Vector, vector_for
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.kernel_builder import KernelBuilder, with_numbers
from evergrad.compiler.kernels.contiguous import contiguous
from evergrad.compiler.kernels.pooling.reduce import (
    Numbers,
    as_2d,
    can_unroll,
    is_larger,
    is_supported,
    load_window_row,
    pooling_numbers,
    select,
    specialized_stride,
    window_argmax,
)
from evergrad.compiler.kernels.pooling.rows import MAX_POOL_INPUT
from evergrad.compiler.kernels.pooling.transposes import accumulate, zero_fill
from evergrad.compiler.schedule.lower import Lowering
from evergrad.compiler.schedule.lowering_registry import lowers
from evergrad.core.trace import Equation
from evergrad.ops.rows.pool.geometry import Windows


@lowers(MAX_POOL_INPUT)
def lower_max_pool_input(lowering: Lowering, eqn: Equation) -> bool:
    (g, x), out = eqn.args, eqn.outs[0]
    if not is_supported(eqn):
        return False
    windows, of_relu = as_2d(eqn.attrs["windows"]), eqn.attrs["of_relu"]
    vector = vector_for(x.type.dtype)
    numbers = pooling_numbers(windows, g.type.numel // prod(windows.counts))
    if _partition_input(windows):
        made = _partition_kernel_ir(vector, windows.kernel[0], of_relu)
    else:
        made = _kernel_ir(vector, specialized_stride(windows), of_relu)
    scratch = 0 if _partition_input(windows) else vector.lanes * (vector.size + 4)
    kernel = with_numbers(made, numbers, [], -(-numbers.items // numbers.per_chunk), scratch)
    operands = [contiguous(lowering, a) for a in (g, x)]
    lowering.add_kernel(eqn.op.name, kernel, operands, [out], g.type.numel * prod(windows.kernel))
    return True


def _partition_input(windows: Windows) -> bool:
    """Whether windows, two columns wide, partition x."""
    return (
        can_unroll(windows)
        and windows.kernel == windows.stride
        and windows.kernel[1] == 2
        and all(n * s == size for n, s, size in zip(
            windows.counts, windows.stride, windows.size, strict=True))
    )  # fmt: skip


def _after_relu(ir: KernelBuilder, gradient: str, best: str, of_relu: bool) -> str:
    """The gradients of windows through relu: zero where the maximum is not positive."""
    if not of_relu:
        return gradient
    below = ir.op(f"fcmp ole {ir.vector.type} {best}, zeroinitializer")
    return select(ir, below, ir.vector.type, "zeroinitializer", gradient)


# -- windows that partition x -------------------------------------------------------------------


@cache
def _partition_kernel_ir(vector: Vector, rows: int, of_relu: bool) -> Kernel:
    ir = KernelBuilder(vector, ("g", "x", "out"), Numbers._fields)
    first, last = ir.items("%chunk", ir["per_chunk"], ir["items"])
    first, last = (ir.mul(item, ir["y_rows"]) for item in (first, last))
    # Consecutive rows of windows cover consecutive rows of x.
    with ir.loop(last, first=first) as row, ir.loop(ir["y_columns"], vector.lanes) as column:
        mask = ir.range_mask(ir.lane_indices(column), "0", ir["y_columns"])
        left = ir.mul(column, 2)
        begins = [ir.mul(ir.add(ir.mul(row, rows), r), ir["x_columns"]) for r in range(rows)]
        values = [
            value
            for begin in begins
            for value in load_window_row(ir, 2, 2, ir.at(ir["x"], begin), left, mask)
        ]
        best, number = _argmax(ir, values)
        source = ir.at(ir["g"], ir.mul(row, ir["y_columns"]), column)
        gradient = ir.load_masked(source, mask)
        parts = _at_argmax(ir, _after_relu(ir, gradient, best, of_relu), number, len(values))
        for r, begin in enumerate(begins):
            pair = ir.interleaved(*parts[2 * r : 2 * r + 2])
            for half, part in enumerate(pair):
                at = ir.add(left, half * vector.lanes)
                inside = ir.range_mask(ir.lane_indices(at), "0", ir["x_columns"])
                ir.store_masked(part, ir.at(ir["out"], begin, at), inside)
    return ir.kernel("max_pool_grad_partition")


def _argmax(ir: KernelBuilder, values: list[str]) -> tuple[str, str]:
    """The maximum of some values in each lane, and its index."""
    best, number = values[0], "zeroinitializer"
    for n, value in enumerate(values[1:], 1):
        larger = is_larger(ir, value, best)
        best = select(ir, larger, ir.vector.type, value, best)
        number = select(ir, larger, ir.vector.of("i32"), ir.splat(str(n), "i32"), number)
    return best, number


def _at_argmax(ir: KernelBuilder, gradient: str, number: str, count: int) -> list[str]:
    """The gradient for each element of the windows: zero except at the argmax."""
    many, integers = ir.vector.type, ir.vector.of("i32")
    parts = []
    for n in range(count):
        is_argmax = ir.op(f"icmp eq {integers} {number}, {ir.splat(str(n), 'i32')}")
        parts.append(select(ir, is_argmax, many, gradient, "zeroinitializer"))
    return parts


# -- any windows --------------------------------------------------------------------------------


@cache
def _kernel_ir(vector: Vector, stride: int, of_relu: bool) -> Kernel:
    ir = KernelBuilder(vector, ("g", "x", "out"), Numbers._fields)
    first, last = ir.items("%chunk", ir["per_chunk"], ir["items"])
    size = ir.mul(ir["x_rows"], ir["x_columns"])
    count = ir.mul(ir["y_rows"], ir["y_columns"])
    with ir.loop(last, first=first) as item:
        x, out = (ir.at(ir[name], ir.mul(item, size)) for name in ("x", "out"))
        g = ir.at(ir["g"], ir.mul(item, count))
        zero_fill(ir, out, size)
        with (
            ir.loop(ir["y_rows"]) as row,
            ir.loop(ir["y_columns"], vector.lanes) as column,
        ):
            best, positions = window_argmax(ir, stride, x, row, column)
            left = ir.sub(ir["y_columns"], column)
            mask = ir.range_mask(ir.lane_indices("0"), "0", left)
            source = ir.at(g, ir.mul(row, ir["y_columns"]), column)
            gradient = ir.load_masked(source, mask)
            through = _after_relu(ir, gradient, best, of_relu)
            _scatter_add(ir, out, through, positions, ir.least(left, str(vector.lanes)))
    return ir.kernel("max_pool_grad")


def _scatter_add(ir: KernelBuilder, out: str, gradient: str, positions: str, count: str) -> None:
    """Accumulate the first ``count`` lanes at their positions, one after the other."""
    lanes = ir.vector.lanes
    at = ir.at(ir.scratch, lanes)
    ir.store_vector(gradient, ir.scratch)
    ir.do(f"store {ir.vector.of('i32')} {positions}, ptr {at}, align 4")
    with ir.loop(count) as n:
        address = ir.op(f"getelementptr i32, ptr {at}, i64 {n}")
        position = ir.op(f"sext i32 {ir.op(f'load i32, ptr {address}')} to i64")
        accumulate(ir, ir.at(out, position), ir.load(ir.at(ir.scratch, n)))
