"""Windows that are folded into one element each: ``max_pool``, ``max_pool_places``, ``window_sum``.

A vector of neighbouring windows goes through the places of the window together.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import prod
from typing import NamedTuple

import numpy as np

from evergrad.compiler.codegen.ir_builder import (
    KernelBuilder,
    Vector,
    is_native,
    items_per_chunk,
    vector_for,
    with_numbers,
)
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.schedule.buffers import BufferView, strides_of
from evergrad.compiler.schedule.lower import Lowering
from evergrad.compiler.schedule.lowering_registry import lowers
from evergrad.core.op import Op
from evergrad.core.trace import Equation, Var
from evergrad.ops.rows.pool.geometry import Windows
from evergrad.ops.rows.pool.windows import MAX_POOL, MAX_POOL_PLACES, WINDOW_SUM

# How much a place of a window costs, in operations of other kernels.
_COST = 4
_FEW_PLACES = 9


class Numbers(NamedTuple):
    """The numbers of kernels over windows."""

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


def in_two_dims(windows: Windows) -> Windows:
    """Windows over one dimension as windows over a single row."""
    if len(windows.size) == 2:
        return windows
    return Windows(
        (1, *windows.size), (1, *windows.kernel), (1, *windows.stride),
        ((0, 0), *windows.padding), (1, *windows.dilation),
    )  # fmt: skip


def fits(eqn: Equation) -> bool:
    """Whether an equation over windows of its first argument can be native."""
    found = eqn.args[0].type
    return (
        is_native(found.dtype)
        and 0 < found.numel < 1 << 31
        and eqn.outs[0].type.numel > 0
        and len(eqn.attrs["windows"].size) <= 2
    )


def in_order(lowering: Lowering, var: Var) -> Var | BufferView:
    """A value that lies in order: itself, or a copy of it."""
    if var.layout.flags.c_contiguous:
        return var
    place = lowering.scratch(var.type.nbytes, f"copy of {var.type}")
    copy = BufferView(place.buffer, 0, var.type.shape, strides_of(var), var.type.dtype)
    lowering.copy(var, copy)
    return copy


def window_numbers(windows: Windows, items: int) -> Numbers:
    """The numbers of kernels over windows of so many images."""
    windows = in_two_dims(windows)
    work = prod(windows.counts) * prod(windows.kernel) * _COST
    return Numbers(
        items, items_per_chunk(items, work), *windows.size, *windows.counts, *windows.kernel,
        *windows.stride, *windows.dilation, *(low for low, _ in windows.padding),
    )  # fmt: skip


@lowers(MAX_POOL, MAX_POOL_PLACES, WINDOW_SUM)
def lower_fold(lowering: Lowering, eqn: Equation) -> bool:
    if not fits(eqn):
        return False
    (x,), out = eqn.args, eqn.outs[0]
    windows = in_two_dims(eqn.attrs["windows"])
    numbers = window_numbers(windows, out.type.numel // prod(windows.counts))
    step = near_step(windows)
    kernel_size = windows.kernel if is_plain(windows) else None
    made = _text(vector_for(x.type.dtype), eqn.op, step, kernel_size)
    kernel = with_numbers(made, numbers, [], -(-numbers.items // numbers.per_chunk))
    work = out.type.numel * prod(windows.kernel)
    lowering.add_kernel(eqn.op.name, kernel, [in_order(lowering, x)], [out], work)
    return True


def near_step(windows: Windows) -> int:
    """How many columns windows are apart if that is 1 or 2, for which there are faster kernels; 0
    stands for other numbers."""
    return windows.stride[1] if windows.stride[1] <= 2 else 0


def is_plain(windows: Windows) -> bool:
    """Whether windows are few elements that all lie in x, without others between them: their places
    are then written out one by one."""
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


class _Fold(NamedTuple):
    """What is done with a window: values carried from place to place, how one more place changes
    them, and which of them is the result."""

    start: Callable[[KernelBuilder, str], list[tuple[str, str]]]
    step: Callable[[KernelBuilder, list[str], str, str, str], list[str]]
    outside: str  # what elements outside of x count as
    result: int


def _largest_start(text: KernelBuilder, begin: str) -> list[tuple[str, str]]:
    return [(text.vector.type, _lowest(text.vector))]


def _lowest(vector: Vector) -> str:
    bits = np.array(-np.inf).view(np.uint64)
    return "<" + ", ".join([f"{vector.element} 0x{int(bits):016X}"] * vector.lanes) + ">"


def is_larger(text: KernelBuilder, value: str, best: str) -> str:
    """NaN is larger than anything; of two NaNs the later."""
    many, masks = text.vector.type, text.vector.of("i1")
    above = text.op(f"fcmp ogt {many} {value}, {best}")
    unordered = text.op(f"fcmp uno {many} {value}, {value}")
    return text.op(f"or {masks} {above}, {unordered}")


def select(text: KernelBuilder, mask: str, type: str, a: str, b: str) -> str:
    """Lanes of one or the other, as a mask says."""
    return text.op(f"select {text.vector.of('i1')} {mask}, {type} {a}, {type} {b}")


def _largest(text: KernelBuilder, held: list[str], value: str, mask: str, here: str) -> list[str]:
    larger = is_larger(text, value, held[0])
    return [select(text, larger, text.vector.type, value, held[0])]


def _place_start(text: KernelBuilder, begin: str) -> list[tuple[str, str]]:
    vector = text.vector
    found = (vector.of("i1"), "zeroinitializer")
    return [(vector.type, _lowest(vector)), (vector.of("i32"), begin), found]


def _place(text: KernelBuilder, held: list[str], value: str, mask: str, here: str) -> list[str]:
    best, place, found = held
    masks = text.vector.of("i1")
    first = text.op(f"xor {masks} {found}, {text.splat('true', 'i1')}")
    wanted = text.op(f"or {masks} {is_larger(text, value, best)}, {first}")
    take = text.op(f"and {masks} {wanted}, {mask}")
    return [
        select(text, take, text.vector.type, value, best),
        select(text, take, text.vector.of("i32"), here, place),
        text.op(f"or {masks} {found}, {mask}"),
    ]


def _sum_start(text: KernelBuilder, begin: str) -> list[tuple[str, str]]:
    return [(text.vector.type, "zeroinitializer")]


def _sum(text: KernelBuilder, held: list[str], value: str, mask: str, here: str) -> list[str]:
    return [text.op(f"fadd {text.vector.type} {held[0]}, {value}")]


def _fold_of(op: Op, vector: Vector) -> _Fold:
    if op is WINDOW_SUM:
        return _Fold(_sum_start, _sum, "zeroinitializer", 0)
    if op is MAX_POOL:
        return _Fold(_largest_start, _largest, _lowest(vector), 0)
    return _Fold(_place_start, _place, _lowest(vector), 1)


@cache
def _text(vector: Vector, op: Op, step: int, kernel: tuple[int, ...] | None) -> Kernel:
    """The kernel of a fold; for ``step`` see :func:`near_step`. ``kernel`` says how large windows
    are if they are plain."""
    text = KernelBuilder(vector, ("x", "y"), Numbers._fields)
    fold = _fold_of(op, vector)
    first, last = text.items("%chunk", text["per_chunk"], text["items"])
    size = text.mul(text["x_rows"], text["x_columns"])
    count = text.mul(text["y_rows"], text["y_columns"])
    with text.loop(last, first=first) as item, text.loop(text["y_rows"]) as row:
        x = text.at(text["x"], text.mul(item, size))
        line = text.add(text.mul(item, count), text.mul(row, text["y_columns"]))
        with text.loop(text["y_columns"], vector.lanes) as column:
            mask = text.range_mask(text.lane_indices(column), "0", text["y_columns"])
            if kernel is None:
                result = _fold_windows(text, fold, step, x, row, column)[fold.result]
            else:
                result = _fold_plain(text, fold, step, kernel, x, row, column, mask)
            _store(text, fold, result, text.add(line, column), mask)
    return text.kernel(op.name)


def _fold_plain(
    text: KernelBuilder, fold: _Fold, step: int, kernel: tuple[int, ...], x: str, row: str,
    column: str, mask: str,
) -> str:  # fmt: skip
    """A vector of plain windows from (row, column) on, as the mask says, folded."""
    many = text.vector.of("i32")
    top, left = (
        text.mul(place, text[f"stride_{word}"])
        for place, word in ((row, "rows"), (column, "columns"))
    )
    corner = text.add(text.mul(top, text["x_columns"]), left)
    begin = text.lane_indices(corner, text["stride_columns"])
    everywhere = f"<{', '.join(['i1 true'] * text.vector.lanes)}>"
    held = [value for _, value in fold.start(text, begin)]
    for r in range(kernel[0]):
        line = text.at(x, text.mul(text.add(top, r), text["x_columns"]))
        for c, value in enumerate(row_of_windows(text, step, kernel[1], line, left, mask)):
            distance = text.add(text.mul(text["x_columns"], r), c)
            here = text.op(f"add {many} {begin}, {text.splat_index(distance)}")
            held = fold.step(text, held, value, everywhere, here)
    return held[fold.result]


def row_of_windows(
    text: KernelBuilder, step: int, count: int, line: str, left: str, mask: str
) -> list[str]:
    """The ``count`` elements of each window in a row of x; two neighbours are read together if
    windows are two columns apart."""
    if step == 2:
        found = []
        for c in range(0, count, 2):
            halves = [
                text.load_strided(
                    1, line, text.add(left, c + half * text.vector.lanes), "1", "0",
                    text["x_columns"], "zeroinitializer",
                )
                for half in range(2)
            ]  # fmt: skip
            found += text.deinterleaved(*halves)
        return found[:count]
    if step == 1:
        return [
            text.load_masked(text.at(line, left, c), mask, "zeroinitializer") for c in range(count)
        ]
    places = text.lane_indices("0", text["stride_columns"])
    return [
        text.gather(text.at(line, left, c), places, mask, "zeroinitializer") for c in range(count)
    ]


def _store(text: KernelBuilder, fold: _Fold, result: str, place: str, mask: str) -> None:
    if not fold.result:
        text.store_masked(result, text.at(text["y"], place), mask)
        return
    lanes = text.vector.lanes
    wide = Vector("i64", lanes, 8)
    widened = text.op(f"sext {wide.of('i32')} {result} to {wide.type}")
    address = text.op(f"getelementptr i64, ptr {text['y']}, i64 {place}")
    text.store_masked(widened, address, mask, wide)


def places_of_largest(
    text: KernelBuilder, step: int, x: str, row: str, column: str
) -> tuple[str, str]:
    """The largest elements of a vector of windows from (row, column) on, and their places."""
    fold = _fold_of(MAX_POOL_PLACES, text.vector)
    best, places, _ = _fold_windows(text, fold, step, x, row, column)
    return best, places


def _fold_windows(
    text: KernelBuilder, fold: _Fold, step: int, x: str, row: str, column: str
) -> list[str]:
    """What is held after a vector of windows from (row, column) on was folded."""
    top = text.mul(row, text["stride_rows"])
    left = text.mul(column, text["stride_columns"])
    corner = text.add(text.mul(top, text["x_columns"]), left)
    start = fold.start(text, text.lane_indices(corner, text["stride_columns"]))
    types = [type for type, _ in start]
    with text.carrying_loop(text["kernel_rows"], start) as (r, outer):
        at = text.add(top, text.sub(text.mul(r, text["dilation_rows"]), text["pad_rows"]))
        inside = text.op(f"icmp ult i64 {at}, {text['x_rows']}")
        last = text.op(f"select i1 {inside}, i64 {text['x_columns']}, i64 0")
        begin = text.mul(at, text["x_columns"])
        held = list(zip(types, outer.values, strict=True))
        with text.carrying_loop(text["kernel_columns"], held) as (c, inner):
            shift = text.sub(text.mul(c, text["dilation_columns"]), text["pad_columns"])
            at_column = text.add(left, shift)
            places = text.lane_indices(at_column, step or text["stride_columns"])
            mask = text.range_mask(places, "0", last)
            value = text.load_strided(
                step, text.at(x, begin), at_column, text["stride_columns"], "0", last, fold.outside
            )
            here = text.op(f"add {text.vector.of('i32')} {places}, {text.splat_index(begin)}")
            inner.after = fold.step(text, inner.values, value, mask, here)
        outer.after = inner.values
    return outer.values
