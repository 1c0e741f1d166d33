"""The gradient of ``max_pool``: the places of the largest elements are found again.

Where windows lie side by side, each element of the gradient is written once, by a vector of
windows. Where they overlap or leave elements out, gradients are added to zeros one by one, in the
order of windows.
"""

from __future__ import annotations

from functools import cache
from math import prod

from evergrad.compiler.codegen.ir_builder import KernelBuilder, Vector, vector_for, with_numbers
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.kernels.pooling.reduce import (
    Numbers,
    fits,
    in_order,
    in_two_dims,
    is_larger,
    is_plain,
    near_step,
    places_of_largest,
    row_of_windows,
    select,
    window_numbers,
)
from evergrad.compiler.kernels.pooling.rows import MAX_POOL_INPUT
from evergrad.compiler.kernels.pooling.transposes import add_to, clear
from evergrad.compiler.schedule.lower import Lowering
from evergrad.compiler.schedule.lowering_registry import lowers
from evergrad.core.trace import Equation
from evergrad.ops.rows.pool.geometry import Windows


@lowers(MAX_POOL_INPUT)
def lower_max_pool_input(lowering: Lowering, eqn: Equation) -> bool:
    (g, x), out = eqn.args, eqn.outs[0]
    if not fits(eqn):
        return False
    windows, of_relu = in_two_dims(eqn.attrs["windows"]), eqn.attrs["of_relu"]
    vector = vector_for(x.type.dtype)
    numbers = window_numbers(windows, g.type.numel // prod(windows.counts))
    if _are_beside(windows):
        made = _beside_text(vector, windows.kernel[0], of_relu)
    else:
        made = _text(vector, near_step(windows), of_relu)
    scratch = 0 if _are_beside(windows) else vector.lanes * (vector.size + 4)
    kernel = with_numbers(made, numbers, [], -(-numbers.items // numbers.per_chunk), scratch)
    given = [in_order(lowering, a) for a in (g, x)]
    lowering.add_kernel(eqn.op.name, kernel, given, [out], g.type.numel * prod(windows.kernel))
    return True


def _are_beside(windows: Windows) -> bool:
    """Whether windows two columns wide cover x, each element once."""
    return (
        is_plain(windows)
        and windows.kernel == windows.stride
        and windows.kernel[1] == 2
        and all(n * s == size for n, s, size in zip(
            windows.counts, windows.stride, windows.size, strict=True))
    )  # fmt: skip


def _kept(text: KernelBuilder, gradient: str, best: str, of_relu: bool) -> str:
    """The gradients of windows, after relu's: zero where the largest element is not above zero."""
    if not of_relu:
        return gradient
    below = text.op(f"fcmp ole {text.vector.type} {best}, zeroinitializer")
    return select(text, below, text.vector.type, "zeroinitializer", gradient)


# -- windows side by side -----------------------------------------------------------------------


@cache
def _beside_text(vector: Vector, rows: int, of_relu: bool) -> Kernel:
    text = KernelBuilder(vector, ("g", "x", "out"), Numbers._fields)
    first, last = text.items("%chunk", text["per_chunk"], text["items"])
    first, last = (text.mul(item, text["y_rows"]) for item in (first, last))
    # Rows of windows follow each other, and so do the rows of x that they cover.
    with text.loop(last, first=first) as row, text.loop(text["y_columns"], vector.lanes) as column:
        mask = text.range_mask(text.lane_indices(column), "0", text["y_columns"])
        left = text.mul(column, 2)
        begins = [
            text.mul(text.add(text.mul(row, rows), r), text["x_columns"]) for r in range(rows)
        ]
        values = [
            value
            for begin in begins
            for value in row_of_windows(text, 2, 2, text.at(text["x"], begin), left, mask)
        ]
        best, number = _largest(text, values)
        source = text.at(text["g"], text.mul(row, text["y_columns"]), column)
        gradient = text.load_masked(source, mask, "zeroinitializer")
        parts = _dealt(text, _kept(text, gradient, best, of_relu), number, len(values))
        for r, begin in enumerate(begins):
            pair = text.interleaved(*parts[2 * r : 2 * r + 2])
            for half, part in enumerate(pair):
                at = text.add(left, half * vector.lanes)
                inside = text.range_mask(text.lane_indices(at), "0", text["x_columns"])
                text.store_masked(part, text.at(text["out"], begin, at), inside)
    return text.kernel("max_pool_beside")


def _largest(text: KernelBuilder, values: list[str]) -> tuple[str, str]:
    """The largest of some values in each lane, and which it is."""
    best, number = values[0], "zeroinitializer"
    for n, value in enumerate(values[1:], 1):
        larger = is_larger(text, value, best)
        best = select(text, larger, text.vector.type, value, best)
        number = select(text, larger, text.vector.of("i32"), text.splat(str(n), "i32"), number)
    return best, number


def _dealt(text: KernelBuilder, gradient: str, number: str, count: int) -> list[str]:
    """The gradient for each element of the windows: zero for all but one of them."""
    many, integers = text.vector.type, text.vector.of("i32")
    found = []
    for n in range(count):
        here = text.op(f"icmp eq {integers} {number}, {text.splat(str(n), 'i32')}")
        found.append(select(text, here, many, gradient, "zeroinitializer"))
    return found


# -- any windows --------------------------------------------------------------------------------


@cache
def _text(vector: Vector, step: int, of_relu: bool) -> Kernel:
    text = KernelBuilder(vector, ("g", "x", "out"), Numbers._fields)
    first, last = text.items("%chunk", text["per_chunk"], text["items"])
    size = text.mul(text["x_rows"], text["x_columns"])
    count = text.mul(text["y_rows"], text["y_columns"])
    with text.loop(last, first=first) as item:
        x, out = (text.at(text[name], text.mul(item, size)) for name in ("x", "out"))
        g = text.at(text["g"], text.mul(item, count))
        clear(text, out, size)
        with (
            text.loop(text["y_rows"]) as row,
            text.loop(text["y_columns"], vector.lanes) as column,
        ):
            best, places = places_of_largest(text, step, x, row, column)
            left = text.sub(text["y_columns"], column)
            mask = text.range_mask(text.lane_indices("0"), "0", left)
            source = text.at(g, text.mul(row, text["y_columns"]), column)
            gradient = text.load_masked(source, mask, "zeroinitializer")
            kept = _kept(text, gradient, best, of_relu)
            _add_each(text, out, kept, places, text.least(left, str(vector.lanes)))
    return text.kernel("max_pool_gradient")


def _add_each(text: KernelBuilder, out: str, gradient: str, places: str, count: str) -> None:
    """Add the first ``count`` lanes at their places, one after the other."""
    lanes = text.vector.lanes
    at = text.at(text.scratch, lanes)
    text.store_vector(gradient, text.scratch)
    text.do(f"store {text.vector.of('i32')} {places}, ptr {at}, align 4")
    with text.loop(count) as n:
        address = text.op(f"getelementptr i32, ptr {at}, i64 {n}")
        place = text.op(f"sext i32 {text.op(f'load i32, ptr {address}')} to i64")
        add_to(text, text.at(out, place), text.load(text.at(text.scratch, n)))
