"""Sorting of one lane: the keys of elements, and their stable order.

An element becomes an unsigned key of its bits whose order is that of the elements: NaNs come last
and are equal, as both zeros are. A tiny lane is sorted by insertion; a short one counts for each
element how many stand before it; a longer one is sorted by its bytes, from the lowest to the
highest (radix sort), without those that all elements share.
"""

from __future__ import annotations

from typing import NamedTuple

from evergrad.compiler.codegen.elementwise import KINDS
from evergrad.compiler.codegen.kernel_builder import KernelBuilder
from evergrad.core import dtypes
from evergrad.core.dtypes import dtype

# Lanes up to these extents are sorted by insertion, and by counting.
_TINY = 24
SHORT = 96
DIGITS = 256
_INFINITY = {dtypes.float16: 0x7C00, dtypes.bfloat16: 0x7F80, dtypes.float32: 0x7F800000,
             dtypes.float64: 0x7FF0000000000000}  # fmt: skip


# -- keys ---------------------------------------------------------------------------------------


def key_of(ir: KernelBuilder, found: dtype, address: str) -> str:
    """The key of an element: an unsigned number of as many bits."""
    bits = 8 * found.itemsize
    stored = ir.op(f"load i{bits}, ptr {address}")
    value = stored if bits == 64 else ir.op(f"zext i{bits} {stored} to i64")
    sign, ones = 1 << (bits - 1), (1 << bits) - 1
    if not KINDS[found].is_float:
        return ir.op(f"xor i64 {value}, {signed(sign)}") if KINDS[found].signed else value
    magnitude = ir.op(f"and i64 {value}, {sign - 1}")
    is_nan = ir.op(f"icmp ugt i64 {magnitude}, {_INFINITY[found]}")
    is_zero = ir.op(f"icmp eq i64 {magnitude}, 0")
    is_negative = ir.op(f"icmp ne i64 {ir.op(f'and i64 {value}, {signed(sign)}')}, 0")
    below = ir.op(f"xor i64 {value}, {signed(ones)}")
    above = ir.op(f"or i64 {value}, {signed(sign)}")
    key = ir.op(f"select i1 {is_negative}, i64 {below}, i64 {above}")
    key = ir.op(f"select i1 {is_zero}, i64 {signed(sign)}, i64 {key}")
    return ir.op(f"select i1 {is_nan}, i64 {signed(ones)}, i64 {key}")


def signed(number: int) -> int:
    """A word as LLVM writes it."""
    return number - (1 << 64) if number >> 63 else number


# -- sorting ------------------------------------------------------------------------------------


class Sorted(NamedTuple):
    """Keys in order, and the places of their elements, which may be NaN if they are floats."""

    keys: str
    places: str
    is_float: bool


def sort_keys(ir: KernelBuilder, given: Sorted, spare: Sorted, counts: str, extent: str) -> Sorted:
    """The memory that holds the sorted elements: one of the two."""
    is_short = ir.op(f"icmp sle i64 {extent}, {SHORT}")
    is_tiny = ir.op(f"icmp sle i64 {extent}, {_TINY}")
    with ir.when(is_tiny):
        _sort_by_insertion(ir, given, spare, extent)
    with ir.when(ir.op(f"and i1 {is_short}, {ir.op(f'xor i1 {is_tiny}, true')}")):
        _sort_by_counting(ir, given, spare, extent)
    # A short lane has no bytes left to sort by.
    bytes_left = ir.op(f"select i1 {is_short}, i64 0, i64 {ir['shift']}")
    start = [("ptr", part) for part in (*given[:2], *spare[:2])]
    with ir.carrying_loop(bytes_left, start, 8) as (shift, carried):
        source, target = carried.values[:2], carried.values[2:]
        is_shared = _count_digits(ir, source[0], shift, counts, extent)
        with ir.when(ir.op(f"xor i1 {is_shared}, true")):
            _distribute(ir, source, target, shift, counts, extent)
        pairs = zip((*source, *target), (*target, *source), strict=True)
        carried.after = [ir.op(f"select i1 {is_shared}, ptr {a}, ptr {b}") for a, b in pairs]
    chosen = [
        ir.op(f"select i1 {is_short}, ptr {b}, ptr {a}")
        for a, b in zip(carried.after[:2], spare[:2], strict=True)
    ]
    return Sorted(chosen[0], chosen[1], given.is_float)


def _sort_by_insertion(ir: KernelBuilder, given: Sorted, target: Sorted, extent: str) -> None:
    with ir.loop(extent) as number:
        key, place = (ir.load(ir.at(part, number)) for part in given[:2])
        position = moved_behind(ir, target, key, number)
        ir.store(key, ir.at(target.keys, position))
        ir.store(place, ir.at(target.places, position))


def _sort_by_counting(ir: KernelBuilder, given: Sorted, target: Sorted, extent: str) -> None:
    """An element's position is the number of keys below its own, and of equal ones before it."""
    with ir.loop(extent) as number:
        key, place = (ir.load(ir.at(part, number)) for part in given[:2])
        position = "0"
        for word, first, last in (("ule", "0", number), ("ult", number, extent)):
            with ir.carrying_loop(last, [("i64", position)], first=first) as (other, carried):
                is_before = ir.op(f"icmp {word} i64 {ir.load(ir.at(given.keys, other))}, {key}")
                one = ir.op(f"zext i1 {is_before} to i64")
                carried.after = [ir.add(carried.values[0], one)]
            position = carried.after[0]
        ir.store(key, ir.at(target.keys, position))
        ir.store(place, ir.at(target.places, position))


def _digit(ir: KernelBuilder, key: str, shift: str) -> str:
    return ir.op(f"and i64 {ir.op(f'lshr i64 {key}, {shift}')}, {DIGITS - 1}")


def _count_digits(ir: KernelBuilder, keys: str, shift: str, counts: str, extent: str) -> str:
    """Count the keys with each byte; whether all have the same."""
    clear_counts(ir, counts)
    with ir.loop(extent) as place:
        at = ir.at(counts, _digit(ir, ir.load(ir.at(keys, place)), shift))
        ir.store(ir.add(ir.load(at), 1), at)
    first = ir.load(ir.at(counts, _digit(ir, ir.load(keys), shift)))
    return ir.op(f"icmp eq i64 {first}, {extent}")


def clear_counts(ir: KernelBuilder, counts: str) -> None:
    with ir.loop(DIGITS) as digit:
        ir.store("0", ir.at(counts, digit))


def _distribute(
    ir: KernelBuilder, source: list[str], target: list[str], shift: str, counts: str, extent: str
) -> None:
    """Move the elements to the places of their bytes, in their order."""
    with ir.carrying_loop(DIGITS, [("i64", "0")]) as (digit, carried):
        at = ir.at(counts, digit)
        count = ir.load(at)
        ir.store(carried.values[0], at)
        carried.after = [ir.add(carried.values[0], count)]
    with ir.loop(extent) as number:
        key, place = (ir.load(ir.at(part, number)) for part in source)
        at = ir.at(counts, _digit(ir, key, shift))
        position = ir.load(at)
        ir.store(ir.add(position, 1), at)
        ir.store(key, ir.at(target[0], position))
        ir.store(place, ir.at(target[1], position))


def moved_behind(ir: KernelBuilder, kept: Sorted, key: str, end: str) -> str:
    """Move the elements behind a key one place on, from the last to the first; returns its
    place."""
    word = ir.fresh("move")
    ir.do(f"br label %{word}.begin")
    ir.label(f"{word}.begin")
    ir.do(f"br label %{word}")
    ir.label(word)
    ir.do(f"%{word}.to = phi i64 [{end}, %{word}.begin], [%{word}.from, %{word}.next]")
    ir.do(f"%{word}.from = sub i64 %{word}.to, 1")
    is_first = ir.op(f"icmp eq i64 %{word}.to, 0")
    ir.do(f"br i1 {is_first}, label %{word}.end, label %{word}.compare")
    ir.label(f"{word}.compare")
    other = ir.load(ir.at(kept.keys, f"%{word}.from"))
    is_behind = ir.op(f"icmp ugt i64 {other}, {key}")
    ir.do(f"br i1 {is_behind}, label %{word}.next, label %{word}.end")
    ir.label(f"{word}.next")
    ir.store(other, ir.at(kept.keys, f"%{word}.to"))
    ir.store(ir.load(ir.at(kept.places, f"%{word}.from")), ir.at(kept.places, f"%{word}.to"))
    ir.do(f"br label %{word}")
    ir.label(f"{word}.end")
    return f"%{word}.to"
