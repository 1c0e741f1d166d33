"""Sorting along one dimension: the stable order of each lane, and the rows that follow from it.

:mod:`.sort_lanes` has the order of one lane, :mod:`.topk` the first few of contiguous ones. A chunk
is some lanes, so that results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import cache
from math import prod
from typing import Any, NamedTuple

from evergrad.compiler.codegen.elementwise import KINDS
from evergrad.compiler.codegen.ir_builder import Vector
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.kernel_builder import KernelBuilder, with_numbers
from evergrad.compiler.kernels.contiguous import contiguous
from evergrad.compiler.kernels.sort_lanes import (
    DIGITS,
    SHORT,
    Sorted,
    clear_counts,
    key_of,
    signed,
    sort_keys,
)
from evergrad.compiler.kernels.topk import topk_kernel
from evergrad.compiler.schedule.lower import Lowering
from evergrad.compiler.schedule.lowering_registry import lowers
from evergrad.core.dtypes import dtype
from evergrad.core.op import Op
from evergrad.core.trace import Equation
from evergrad.ops.rows.reduce.counting import FIRST_OF_SAME
from evergrad.ops.rows.reduce.quantiles import MEDIAN_PLACE, NANMEDIAN_PLACE
from evergrad.ops.rows.reduce.sort import ARGSORT, KTHVALUE, TOPK

# Longer lanes are left to NumPy: a thread would need too much scratch memory.
_LONGEST = 1 << 22
# As few elements of a lane are kept in order while the others pass by.
_FEW = 32
_CHUNK = 1 << 12  # the elements of a chunk, at least
_WORD = Vector("i64", 1, 8)


class _Numbers(NamedTuple):
    """The numbers of a kernel: ``x`` is ``(outer, extent, inner)``, lanes are its columns."""

    extent: int
    inner: int
    lanes: int
    per_chunk: int
    first: int  # of the places in order that are results
    taken: int  # how many are
    flipped: int  # what keys are xored with: all ones for descending order
    shift: int  # past the highest byte of a key


# -- selection ----------------------------------------------------------------------------------


def _select(ir: KernelBuilder, given: Sorted, counts: str) -> None:
    """Move the elements that come first in order to the front, in the order of their places: as
    many as are taken. Of equal ones the first are chosen."""
    start = [("i64", "0"), ("i64", ir["taken"])]
    with ir.carrying_loop(ir["shift"], start, 8) as (done, carried):
        shift = ir.sub(ir.sub(ir["shift"], 8), done)
        carried.after = _next_byte(ir, given.keys, counts, shift, *carried.values)
    _compact(ir, given, *carried.after)


def _next_byte(
    ir: KernelBuilder, keys: str, counts: str, shift: str, prefix: str, rank: str
) -> list[str]:
    """The last key that is taken, with one more of its bytes known, and its rank among the keys
    that begin with it, counted from 1."""
    clear_counts(ir, counts)
    with ir.loop(ir["extent"]) as place:
        known = ir.op(f"lshr i64 {ir.load(ir.at(keys, place))}, {shift}")
        # In two steps: a shift by all 64 bits is undefined.
        fits = ir.op(f"icmp eq i64 {ir.op(f'lshr i64 {known}, 8')}, {prefix}")
        with ir.when(fits):
            at = ir.at(counts, ir.op(f"and i64 {known}, {DIGITS - 1}"))
            ir.store(ir.add(ir.load(at), 1), at)
    start = [("i64", "0"), ("i64", "0"), ("i64", rank)]
    with ir.carrying_loop(DIGITS, start) as (digit, carried):
        before, found, left = carried.values
        total = ir.add(before, ir.load(ir.at(counts, digit)))
        is_below = ir.op(f"icmp slt i64 {total}, {rank}")
        carried.after = [
            total,
            ir.op(f"select i1 {is_below}, i64 {ir.add(digit, 1)}, i64 {found}"),
            ir.op(f"select i1 {is_below}, i64 {ir.sub(rank, total)}, i64 {left}"),
        ]
    _, found, left = carried.after
    return [ir.add(ir.mul(prefix, DIGITS), found), left]


def _compact(ir: KernelBuilder, given: Sorted, last: str, ties: str) -> None:
    """Move the keys below the last one, and so many of those equal to it, to the front."""
    with ir.carrying_loop(ir["extent"], [("i64", "0"), ("i64", ties)]) as (number, carried):
        position, left = carried.values
        key, place = (ir.load(ir.at(part, number)) for part in given[:2])
        is_below = ir.op(f"icmp ult i64 {key}, {last}")
        is_last = ir.op(f"icmp eq i64 {key}, {last}")
        counts = ir.op(f"and i1 {is_last}, {ir.op(f'icmp sgt i64 {left}, 0')}")
        ir.store(key, ir.at(given.keys, position))
        ir.store(place, ir.at(given.places, position))
        one = ir.op(f"zext i1 {ir.op(f'or i1 {is_below}, {counts}')} to i64")
        less = ir.op(f"zext i1 {counts} to i64")
        carried.after = [ir.add(position, one), ir.sub(left, less)]


def _insert(ir: KernelBuilder, given: Sorted, best: Sorted) -> None:
    """Keep the few elements that come first, in order: most others are only compared with the last
    of these."""
    last = ir.sub(ir["taken"], 1)
    with ir.loop(ir["extent"]) as number:
        key = ir.load(ir.at(given.keys, number))
        held = ir.least(number, ir["taken"])
        is_free = ir.op(f"icmp slt i64 {number}, {ir['taken']}")
        is_before = ir.op(f"icmp ult i64 {key}, {ir.load(ir.at(best.keys, last))}")
        with ir.when(ir.op(f"or i1 {is_free}, {is_before}")):
            with ir.carrying_loop(held, [("i64", "0")]) as (other, carried):
                is_ahead = ir.op(f"icmp ule i64 {ir.load(ir.at(best.keys, other))}, {key}")
                one = ir.op(f"zext i1 {is_ahead} to i64")
                carried.after = [ir.add(carried.values[0], one)]
            (position,) = carried.after
            end = ir.least(held, last)
            with ir.loop(ir.sub(end, position)) as moved:
                to = ir.sub(end, moved)
                for part in (best.keys, best.places):
                    ir.store(ir.load(ir.at(part, ir.sub(to, 1))), ir.at(part, to))
            ir.store(key, ir.at(best.keys, position))
            ir.store(number, ir.at(best.places, position))


# -- results ------------------------------------------------------------------------------------

# Stores the results of a lane: the builder, its sorted elements, where its results begin.
_Finish = Callable[[KernelBuilder, Sorted, str], None]


def _store_places(ir: KernelBuilder, found: Sorted, out: str) -> None:
    with ir.loop(ir["taken"]) as number:
        place = ir.load(ir.at(found.places, ir.add(number, ir["first"])))
        ir.store(place, ir.at(out, ir.mul(number, ir["inner"])))


def _numbers_before_nan(ir: KernelBuilder, found: Sorted) -> str:
    """How many elements are not NaN, whose key has all bits set."""
    if not found.is_float:
        return ir["extent"]
    largest = ir.op(f"lshr i64 -1, {ir.sub(64, ir['shift'])}")
    with ir.carrying_loop(ir["extent"], [("i64", "0")]) as (place, carried):
        is_number = ir.op(f"icmp ne i64 {ir.load(ir.at(found.keys, place))}, {largest}")
        one = ir.op(f"zext i1 {is_number} to i64")
        carried.after = [ir.add(carried.values[0], one)]
    return carried.after[0]


def _store_median(ir: KernelBuilder, found: Sorted, out: str) -> None:
    """The lower of two in the middle, or the first NaN."""
    count = _numbers_before_nan(ir, found)
    middle = ir.op(f"lshr i64 {ir.sub(ir['extent'], 1)}, 1")
    has_nan = ir.op(f"icmp slt i64 {count}, {ir['extent']}")
    at = ir.op(f"select i1 {has_nan}, i64 {count}, i64 {middle}")
    ir.store(ir.load(ir.at(found.places, at)), out)


def _store_nanmedian(ir: KernelBuilder, found: Sorted, out: str) -> None:
    count = ir.call("llvm.smax", "i64", ir.sub(_numbers_before_nan(ir, found), 1), "0")
    ir.store(ir.load(ir.at(found.places, ir.op(f"lshr i64 {count}, 1"))), out)


def _store_first_of_same(ir: KernelBuilder, found: Sorted, out: str) -> None:
    """Equal elements follow each other, the first of them first."""
    start = [("i64", ir.load(found.keys)), ("i64", ir.load(found.places))]
    with ir.carrying_loop(ir["extent"], start) as (number, carried):
        key, place = ir.load(ir.at(found.keys, number)), ir.load(ir.at(found.places, number))
        is_same = ir.op(f"icmp eq i64 {key}, {carried.values[0]}")
        first = ir.op(f"select i1 {is_same}, i64 {carried.values[1]}, i64 {place}")
        ir.store(first, ir.at(out, place))
        carried.after = [key, first]


_FINISHES: dict[Op, _Finish] = {
    ARGSORT: _store_places,
    TOPK: _store_places,
    KTHVALUE: _store_places,
    MEDIAN_PLACE: _store_median,
    NANMEDIAN_PLACE: _store_nanmedian,
    FIRST_OF_SAME: _store_first_of_same,
}


class _How(Enum):
    """How a lane is brought in order."""

    WHOLE = "all elements are sorted"
    SELECTED = "those that are taken are found, then sorted"
    INSERTED = "the few that are taken are kept in order"


@cache
def _sort_ir(found: dtype, finish: _Finish, how: _How) -> Kernel:
    ir = KernelBuilder(_WORD, ("x", "out"), _Numbers._fields)
    parts = [ir.at(ir.scratch, ir.mul(ir["extent"], n)) for n in range(5)]
    is_float, counts = KINDS[found].is_float, parts[4]
    given, spare = (Sorted(parts[n], parts[n + 1], is_float) for n in (0, 2))
    first, last = ir.items("%chunk", ir["per_chunk"], ir["lanes"])
    with ir.loop(last, first=first) as lane:
        outer, column = ir.split(lane, ir["inner"])
        start = ir.add(ir.mul(outer, ir["extent"], ir["inner"]), column)
        with ir.loop(ir["extent"]) as place:
            at = ir.mul(ir.add(start, ir.mul(place, ir["inner"])), found.itemsize)
            key = key_of(ir, found, ir.op(f"getelementptr i8, ptr {ir['x']}, i64 {at}"))
            ir.store(ir.op(f"xor i64 {key}, {ir['flipped']}"), ir.at(given.keys, place))
            ir.store(place, ir.at(given.places, place))
        begin = ir.add(ir.mul(outer, ir["taken"], ir["inner"]), column)
        finish(ir, _in_order(ir, given, spare, counts, how), ir.at(ir["out"], begin))
    return ir.kernel("sort")


def _in_order(ir: KernelBuilder, given: Sorted, spare: Sorted, counts: str, how: _How) -> Sorted:
    """The elements of a lane in order, or those that are taken."""
    if how is _How.INSERTED:
        _insert(ir, given, spare)
        return spare
    if how is _How.SELECTED:
        _select(ir, given, counts)
        return sort_keys(ir, given, spare, counts, ir["taken"])
    return sort_keys(ir, given, spare, counts, ir["extent"])


def _how(eqn: Equation, extent: int) -> _How:
    """Depends on extents alone."""
    if eqn.op is not TOPK or extent <= SHORT or eqn.attrs["k"] == extent:
        return _How.WHOLE
    return _How.INSERTED if eqn.attrs["k"] <= _FEW else _How.SELECTED


def _kernel(eqn: Equation) -> Kernel:
    source, attrs = eqn.args[0].type, eqn.attrs
    dim = attrs.get("dim", 0)
    extent, inner = source.shape[dim], prod(source.shape[dim + 1 :])
    lanes = source.numel // extent
    per_chunk = max(1, _CHUNK // extent)
    is_descending = attrs.get("descending", False) or attrs.get("largest", False)
    first = attrs["k"] - 1 if eqn.op is KTHVALUE else 0
    bits = 8 * source.dtype.itemsize
    numbers = _Numbers(
        extent, inner, lanes, per_chunk, first, eqn.outs[0].type.numel // lanes,
        signed((1 << bits) - 1) if is_descending else 0, bits,
    )  # fmt: skip
    made = _sort_ir(source.dtype, _FINISHES[eqn.op], _how(eqn, extent))
    scratch = 8 * (4 * extent + DIGITS)
    return with_numbers(made, numbers, (), -(-lanes // per_chunk), scratch)


@lowers(*_FINISHES)
def lower_sort(lowering: Lowering, eqn: Equation) -> bool:
    x: Any = eqn.args[0]
    (out,) = eqn.outs
    is_known = x.type.dtype in KINDS and x.type.numel > 0 and out.type.numel > 0
    kernel = None
    if eqn.op is TOPK and is_known and eqn.attrs["dim"] == len(x.type.shape) - 1:
        kernel = topk_kernel(x.type, eqn.attrs["k"], eqn.attrs["largest"])
    if kernel is not None:
        lowering.add_kernel("topk", kernel, [contiguous(lowering, x)], [out], 2 * x.type.numel)
        return True
    if not is_known or x.type.shape[eqn.attrs.get("dim", 0)] > _LONGEST:
        return False
    kernel = _kernel(eqn)
    lowering.add_kernel(eqn.op.name, kernel, [contiguous(lowering, x)], [out], 8 * x.type.numel)
    return True
