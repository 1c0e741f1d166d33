"""Reductions of pooling windows: ``max_pool``, ``max_pool_places`` (argmax), ``window_sum``.

Lanes are neighbouring windows, reduced over the elements of the window.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import prod
from typing import NamedTuple

import numpy as np

from evergrad.compiler.codegen.ir_builder import Vector, is_native, vector_for
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.kernel_builder import KernelBuilder, items_per_chunk, with_numbers
from evergrad.compiler.kernels.contiguous import contiguous
from evergrad.compiler.schedule.lower import Lowering
from evergrad.compiler.schedule.lowering_registry import lowers
from evergrad.core.op import Op
from evergrad.core.trace import Equation
from evergrad.ops.rows.pool.geometry import Windows
from evergrad.ops.rows.pool.windows import MAX_POOL, MAX_POOL_PLACES, WINDOW_SUM

# The cost of an element of a window, in operations of other kernels.
_COST = 4
_FEW_PLACES = 9


class Numbers(NamedTuple):
    """Integer arguments of pooling kernels."""

    items: int
    per_chunk: int
    x_rows: int
    x_columns: int
    y_rows: int
    y_columns: int
    kernel_rows: int
    kernel_columns: int
    stride_rows: int
    stride_columns: int
    dilation_rows: int
    dilation_columns: int
    pad_rows: int
    pad_columns: int


def as_2d(windows: Windows) -> Windows:
    """One-dimensional windows as windows over an image with one row of pixels."""
    if len(windows.size) == 2:
        return windows
    return Windows(
        (1, *windows.size), (1, *windows.kernel), (1, *windows.stride),
        ((0, 0), *windows.padding), (1, *windows.dilation),
    )  # fmt: skip


def is_supported(eqn: Equation) -> bool:
    """Whether there are kernels for an equation over pooling windows of its first argument."""
    type = eqn.args[0].type
    return (
        is_native(type.dtype)
        and 0 < type.numel < 1 << 31
        and eqn.outs[0].type.numel > 0
        and len(eqn.attrs["windows"].size) <= 2
    )


def pooling_numbers(windows: Windows, items: int) -> Numbers:
    """The integer arguments of pooling kernels over so many planes."""
    windows = as_2d(windows)
    work = prod(windows.counts) * prod(windows.kernel) * _COST
    return Numbers(
        items, items_per_chunk(items, work), *windows.size, *windows.counts, *windows.kernel,
        *windows.stride, *windows.dilation, *(low for low, _ in windows.padding),
    )  # fmt: skip


@lowers(MAX_POOL, MAX_POOL_PLACES, WINDOW_SUM)
def lower_pooling(lowering: Lowering, eqn: Equation) -> bool:
    if not is_supported(eqn):
        return False
    (x,), out = eqn.args, eqn.outs[0]
    windows = as_2d(eqn.attrs["windows"])
    numbers = pooling_numbers(windows, out.type.numel // prod(windows.counts))
    stride = specialized_stride(windows)
    kernel_size = windows.kernel if can_unroll(windows) else None
    made = _kernel_ir(vector_for(x.type.dtype), eqn.op, stride, kernel_size)
    kernel = with_numbers(made, numbers, [], -(-numbers.items // numbers.per_chunk))
    work = out.type.numel * prod(windows.kernel)
    lowering.add_kernel(eqn.op.name, kernel, [contiguous(lowering, x)], [out], work)
    return True


def specialized_stride(windows: Windows) -> int:
    """The column stride if it is 1 or 2, for which kernels are specialized, else 0."""
    return windows.stride[1] if windows.stride[1] <= 2 else 0


def can_unroll(windows: Windows) -> bool:
    """Whether the loops over a window are unrolled: it is small and dense, and no window reads
    padding."""
    return (
        prod(windows.kernel) <= _FEW_PLACES
        and all(low == 0 for low, _ in windows.padding)
        and windows.dilation == (1, 1)
        and all(
            (count - 1) * stride + kernel <= size
            for size, count, kernel, stride in zip(
                windows.size, windows.counts, windows.kernel, windows.stride, strict=True
            )
        )
    )


# -- the kernel ---------------------------------------------------------------------------------


class _Reduction(NamedTuple):
    """A reduction over a window: the initial values, the update with one more element, and which
    value is the result."""

    start: Callable[[KernelBuilder, str], list[tuple[str, str]]]
    update: Callable[[KernelBuilder, list[str], str, str, str], list[str]]
    padding: str  # the value of elements outside of x
    result: int


def _max_start(ir: KernelBuilder, begin: str) -> list[tuple[str, str]]:
    return [(ir.vector.type, _minus_infinity(ir.vector))]


def _minus_infinity(vector: Vector) -> str:
    bits = np.array(-np.inf).view(np.uint64)
    return "<" + ", ".join([f"{vector.element} 0x{int(bits):016X}"] * vector.lanes) + ">"


def is_larger(ir: KernelBuilder, value: str, best: str) -> str:
    """Whether a value replaces the maximum: NaN exceeds all others, and a later NaN an earlier."""
    many, masks = ir.vector.type, ir.vector.of("i1")
    above = ir.op(f"fcmp ogt {many} {value}, {best}")
    unordered = ir.op(f"fcmp uno {many} {value}, {value}")
    return ir.op(f"or {masks} {above}, {unordered}")


def select(ir: KernelBuilder, mask: str, type: str, a: str, b: str) -> str:
    """Lanes of ``a`` where the mask is set, else of ``b``."""
    return ir.op(f"select {ir.vector.of('i1')} {mask}, {type} {a}, {type} {b}")


def _max(ir: KernelBuilder, held: list[str], value: str, mask: str, here: str) -> list[str]:
    larger = is_larger(ir, value, held[0])
    return [select(ir, larger, ir.vector.type, value, held[0])]


def _argmax_start(ir: KernelBuilder, begin: str) -> list[tuple[str, str]]:
    vector = ir.vector
    found = (vector.of("i1"), "zeroinitializer")
    return [(vector.type, _minus_infinity(vector)), (vector.of("i32"), begin), found]


def _argmax(ir: KernelBuilder, held: list[str], value: str, mask: str, here: str) -> list[str]:
    best, position, found = held
    masks = ir.vector.of("i1")
    first = ir.op(f"xor {masks} {found}, {ir.splat('true', 'i1')}")
    wanted = ir.op(f"or {masks} {is_larger(ir, value, best)}, {first}")
    take = ir.op(f"and {masks} {wanted}, {mask}")
    return [
        select(ir, take, ir.vector.type, value, best),
        select(ir, take, ir.vector.of("i32"), here, position),
        ir.op(f"or {masks} {found}, {mask}"),
    ]


def _sum_start(ir: KernelBuilder, begin: str) -> list[tuple[str, str]]:
    return [(ir.vector.type, "zeroinitializer")]


def _sum(ir: KernelBuilder, held: list[str], value: str, mask: str, here: str) -> list[str]:
    return [ir.op(f"fadd {ir.vector.type} {held[0]}, {value}")]


def _reduction_of(op: Op, vector: Vector) -> _Reduction:
    if op is WINDOW_SUM:
        return _Reduction(_sum_start, _sum, "zeroinitializer", 0)
    if op is MAX_POOL:
        return _Reduction(_max_start, _max, _minus_infinity(vector), 0)
    return _Reduction(_argmax_start, _argmax, _minus_infinity(vector), 1)


@cache
def _kernel_ir(vector: Vector, op: Op, stride: int, kernel: tuple[int, ...] | None) -> Kernel:
    """The kernel of a reduction; for ``stride`` see :func:`specialized_stride`. ``kernel`` is the
    size of windows if their loops are unrolled."""
    ir = KernelBuilder(vector, ("x", "y"), Numbers._fields)
    reduction = _reduction_of(op, vector)
    first, last = ir.items("%chunk", ir["per_chunk"], ir["items"])
    size = ir.mul(ir["x_rows"], ir["x_columns"])
    count = ir.mul(ir["y_rows"], ir["y_columns"])
    with ir.loop(last, first=first) as item, ir.loop(ir["y_rows"]) as row:
        x = ir.at(ir["x"], ir.mul(item, size))
        line = ir.add(ir.mul(item, count), ir.mul(row, ir["y_columns"]))
        with ir.loop(ir["y_columns"], vector.lanes) as column:
            mask = ir.range_mask(ir.lane_indices(column), "0", ir["y_columns"])
            if kernel is None:
                result = _reduce_windows(ir, reduction, stride, x, row, column)[reduction.result]
            else:
                result = _reduce_unrolled(ir, reduction, stride, kernel, x, row, column, mask)
            _store(ir, reduction, result, ir.add(line, column), mask)
    return ir.kernel(op.name)


def _reduce_unrolled(
    ir: KernelBuilder, reduction: _Reduction, stride: int, kernel: tuple[int, ...], x: str,
    row: str, column: str, mask: str,
) -> str:  # fmt: skip
    """Reduce a masked vector of windows from (row, column) on, with unrolled loops."""
    many = ir.vector.of("i32")
    top, left = (
        ir.mul(index, ir[f"stride_{word}"]) for index, word in ((row, "rows"), (column, "columns"))
    )
    corner = ir.add(ir.mul(top, ir["x_columns"]), left)
    begin = ir.lane_indices(corner, ir["stride_columns"])
    everywhere = f"<{', '.join(['i1 true'] * ir.vector.lanes)}>"
    held = [value for _, value in reduction.start(ir, begin)]
    for r in range(kernel[0]):
        line = ir.at(x, ir.mul(ir.add(top, r), ir["x_columns"]))
        for c, value in enumerate(load_window_row(ir, stride, kernel[1], line, left, mask)):
            distance = ir.add(ir.mul(ir["x_columns"], r), c)
            here = ir.op(f"add {many} {begin}, {ir.splat_index(distance)}")
            held = reduction.update(ir, held, value, everywhere, here)
    return held[reduction.result]


def load_window_row(
    ir: KernelBuilder, stride: int, count: int, line: str, left: str, mask: str
) -> list[str]:
    """The ``count`` elements of each window in a row of x; with stride 2 a pair is loaded and
    deinterleaved."""
    if stride == 2:
        found = []
        for c in range(0, count, 2):
            halves = [
                ir.load_strided(
                    1, line, ir.add(left, c + half * ir.vector.lanes), "1", "0",
                    ir["x_columns"], "zeroinitializer",
                )
                for half in range(2)
            ]  # fmt: skip
            found += ir.deinterleaved(*halves)
        return found[:count]
    if stride == 1:
        return [ir.load_masked(ir.at(line, left, c), mask) for c in range(count)]
    indices = ir.lane_indices("0", ir["stride_columns"])
    return [ir.gather(ir.at(line, left, c), indices, mask, "zeroinitializer") for c in range(count)]


def _store(ir: KernelBuilder, reduction: _Reduction, result: str, element: str, mask: str) -> None:
    if not reduction.result:
        ir.store_masked(result, ir.at(ir["y"], element), mask)
        return
    lanes = ir.vector.lanes
    wide = Vector("i64", lanes, 8)
    widened = ir.op(f"sext {wide.of('i32')} {result} to {wide.type}")
    address = ir.op(f"getelementptr i64, ptr {ir['y']}, i64 {element}")
    ir.store_masked(widened, address, mask, wide)


def window_argmax(ir: KernelBuilder, stride: int, x: str, row: str, column: str) -> tuple[str, str]:
    """The maxima of a vector of windows from (row, column) on, and their positions."""
    reduction = _reduction_of(MAX_POOL_PLACES, ir.vector)
    best, positions, _ = _reduce_windows(ir, reduction, stride, x, row, column)
    return best, positions


def _reduce_windows(
    ir: KernelBuilder, reduction: _Reduction, stride: int, x: str, row: str, column: str
) -> list[str]:
    """The carried values after the reduction of a vector of windows from (row, column) on."""
    top = ir.mul(row, ir["stride_rows"])
    left = ir.mul(column, ir["stride_columns"])
    corner = ir.add(ir.mul(top, ir["x_columns"]), left)
    start = reduction.start(ir, ir.lane_indices(corner, ir["stride_columns"]))
    types = [type for type, _ in start]
    with ir.carrying_loop(ir["kernel_rows"], start) as (r, outer):
        at = ir.add(top, ir.sub(ir.mul(r, ir["dilation_rows"]), ir["pad_rows"]))
        inside = ir.op(f"icmp ult i64 {at}, {ir['x_rows']}")
        last = ir.op(f"select i1 {inside}, i64 {ir['x_columns']}, i64 0")
        begin = ir.mul(at, ir["x_columns"])
        held = list(zip(types, outer.values, strict=True))
        with ir.carrying_loop(ir["kernel_columns"], held) as (c, inner):
            shift = ir.sub(ir.mul(c, ir["dilation_columns"]), ir["pad_columns"])
            at_column = ir.add(left, shift)
            indices = ir.lane_indices(at_column, stride or ir["stride_columns"])
            mask = ir.range_mask(indices, "0", last)
            value = ir.load_strided(
                stride,
                ir.at(x, begin),
                at_column,
                ir["stride_columns"],
                "0",
                last,
                reduction.padding,
            )
            here = ir.op(f"add {ir.vector.of('i32')} {indices}, {ir.splat_index(begin)}")
            inner.after = reduction.update(ir, inner.values, value, mask, here)
        outer.after = inner.values
    return outer.values
