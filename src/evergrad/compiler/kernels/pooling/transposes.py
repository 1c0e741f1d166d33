"""The transposes of folded windows: ``window_spread``, and ``scatter_sum`` and ``gather`` at places
along the last dimension.

Every image or row belongs to one chunk, which adds to it in a fixed order.
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
from evergrad.compiler.kernels.pooling.reduce import fits, in_order, in_two_dims, window_numbers
from evergrad.compiler.schedule.lower import Lowering
from evergrad.compiler.schedule.lowering_registry import lowers
from evergrad.core import dtypes
from evergrad.core.shapes import TensorType
from evergrad.core.trace import Equation
from evergrad.ops.rows.indexing.scatter import GATHER, SCATTER_SUM
from evergrad.ops.rows.pool.geometry import Windows
from evergrad.ops.rows.pool.windows import WINDOW_SPREAD

# How much an element costs, in operations of other kernels.
_COST = 16


# -- windows ------------------------------------------------------------------------------------


@lowers(WINDOW_SPREAD)
def lower_spread(lowering: Lowering, eqn: Equation) -> bool:
    if not fits(eqn):
        return False
    (y,), out = eqn.args, eqn.outs[0]
    windows = in_two_dims(eqn.attrs["windows"])
    rows, columns = windows.counts
    numbers = window_numbers(windows, y.type.numel // (rows * columns))
    kernel = with_numbers(
        _spread_text(vector_for(y.type.dtype), type(numbers)._fields), numbers,
        _column_table(windows), -(-numbers.items // numbers.per_chunk),
    )  # fmt: skip
    work = y.type.numel * windows.kernel[0] * windows.kernel[1]
    lowering.add_kernel("window_spread", kernel, [in_order(lowering, y)], [out], work)
    return True


def _column_table(windows: Windows) -> list[int]:
    """For each column of the window: its distance from where windows begin, and which windows
    have it inside of x (from, to)."""
    table = []
    size, count, stride = windows.size[1], windows.counts[1], windows.stride[1]
    for column in range(windows.kernel[1]):
        shift = column * windows.dilation[1] - windows.padding[1][0]
        first = max(0, -(shift // stride))
        table += [shift, first, min(count, (size - 1 - shift) // stride + 1)]
    return table


@cache
def _spread_text(vector: Vector, names: tuple[str, ...]) -> Kernel:
    text = KernelBuilder(vector, ("y", "x"), names)
    first, last = text.items("%chunk", text["per_chunk"], text["items"])
    size = text.mul(text["x_rows"], text["x_columns"])
    count = text.mul(text["y_rows"], text["y_columns"])
    with text.loop(last, first=first) as item:
        x = text.at(text["x"], text.mul(item, size))
        y = text.at(text["y"], text.mul(item, count))
        clear(text, x, size)
        with text.loop(text["y_rows"]) as row, text.loop(text["kernel_rows"]) as r:
            shift = text.sub(text.mul(r, text["dilation_rows"]), text["pad_rows"])
            at = text.add(text.mul(row, text["stride_rows"]), shift)
            inside = text.op(f"icmp ult i64 {at}, {text['x_rows']}")
            with text.when(inside):
                target = text.at(x, text.mul(at, text["x_columns"]))
                _spread_row(text, text.at(y, text.mul(row, text["y_columns"])), target)
    return text.kernel("window_spread")


def _spread_row(text: KernelBuilder, source: str, target: str) -> None:
    """Add a row to another at all columns of the window."""
    with text.loop(text["kernel_columns"]) as c:
        shift, low, high = (text.number(text.table(text.mul(c, 3)), n) for n in range(3))
        with text.loop(high, first=low) as column:
            place = text.add(text.mul(column, text["stride_columns"]), shift)
            add_to(text, text.at(target, place), text.load(text.at(source, column)))


def add_to(text: KernelBuilder, address: str, value: str) -> None:
    """Add to an element in memory."""
    total = text.op(f"fadd {text.vector.element} {text.load(address)}, {value}")
    text.store(total, address)


def clear(text: KernelBuilder, start: str, count: str) -> None:
    """Write zeros."""
    with text.loop(count) as n:
        text.store("0.0", text.at(start, n))


# -- places along the last dimension ------------------------------------------------------------


class _RowNumbers(NamedTuple):
    items: int
    per_chunk: int
    extent: int  # elements of a row that places count through
    places: int  # places of a row


def _row_numbers(eqn: Equation, whole: TensorType) -> _RowNumbers | None:
    """The numbers of a gather or scatter between ``whole`` and its index, if rows of the one
    belong to rows of the other."""
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
    extent, places = whole.shape[-1], index.shape[-1]
    return _RowNumbers(items, items_per_chunk(items, places * _COST + extent), extent, places)


def _lower_rows(
    lowering: Lowering, eqn: Equation, whole: TensorType, text: Callable[[Vector], Kernel]
) -> bool:
    numbers = _row_numbers(eqn, whole)
    if numbers is None:
        return False
    made = text(vector_for(whole.dtype))
    kernel = with_numbers(made, numbers, [], -(-numbers.items // numbers.per_chunk))
    given = [in_order(lowering, a) for a in eqn.args]
    work = numbers.items * numbers.places * _COST
    lowering.add_kernel(eqn.op.name, kernel, given, [eqn.outs[0], None], work)
    return True


@lowers(SCATTER_SUM)
def lower_scatter_sum(lowering: Lowering, eqn: Equation) -> bool:
    return _lower_rows(lowering, eqn, eqn.outs[0].type, _scatter_text)


@lowers(GATHER)
def lower_gather(lowering: Lowering, eqn: Equation) -> bool:
    return _lower_rows(lowering, eqn, eqn.args[0].type, _gather_text)


@cache
def _scatter_text(vector: Vector) -> Kernel:
    text = KernelBuilder(vector, ("source", "index", "out", "status"), _RowNumbers._fields)
    first, last = text.items("%chunk", text["per_chunk"], text["items"])
    with text.loop(last, first=first) as item:
        target = text.at(text["out"], text.mul(item, text["extent"]))
        clear(text, target, text["extent"])
        with text.loop(text["places"]) as n:
            element = text.add(text.mul(item, text["places"]), n)
            place, inside = _place(text, element)
            with text.when(inside):
                add_to(text, text.at(target, place), text.load(text.at(text["source"], element)))
    return text.kernel("scatter_sum")


@cache
def _gather_text(vector: Vector) -> Kernel:
    text = KernelBuilder(vector, ("x", "index", "out", "status"), _RowNumbers._fields)
    first, last = text.items("%chunk", text["per_chunk"], text["items"])
    with text.loop(last, first=first) as item:
        source = text.at(text["x"], text.mul(item, text["extent"]))
        with text.loop(text["places"]) as n:
            element = text.add(text.mul(item, text["places"]), n)
            place, inside = _place(text, element)
            with text.when(inside):
                text.store(text.load(text.at(source, place)), text.at(text["out"], element))
    return text.kernel("gather")


def _place(text: KernelBuilder, element: str) -> tuple[str, str]:
    """The place an element of the index names, and whether it exists; tells if not."""
    place = text.number(text["index"], element)
    inside = text.op(f"icmp ult i64 {place}, {text['extent']}")
    outside = text.op(f"xor i1 {inside}, true")
    with text.when(outside):
        text.do(f"store i64 1, ptr {text['status']}")
    return place, inside
