"""The first few of each row in order, by a scan: vectors of elements are compared with the last one
that is kept, and most are passed over.

Few elements are kept in order (insertion). More are collected in a buffer of twice their number,
which is sorted, and its second half dropped, whenever it is full. Of equal elements the first are
kept. A chunk is some rows, so that results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from evergrad.compiler.codegen.elementwise import KINDS
from evergrad.compiler.codegen.ir_builder import Vector
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.kernel_builder import KernelBuilder, items_per_chunk, with_numbers
from evergrad.compiler.kernels.sort_lanes import (
    DIGITS,
    Sorted,
    key_of,
    moved_behind,
    signed,
    sort_keys,
)
from evergrad.compiler.native.jit import vector_bits
from evergrad.core import dtypes
from evergrad.core.dtypes import dtype
from evergrad.core.shapes import TensorType

_DTYPES = (dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64)
# As few elements are kept in order; more are collected, if there are many for each that is kept.
_FEW = 32
_SPARSE = 4
# Elements that are collected at least before they are sorted.
_LEAST_BUFFER = 128


class _Numbers(NamedTuple):
    rows: int
    per_chunk: int
    extent: int
    taken: int
    capacity: int  # of the buffer
    flipped: int  # what keys are xored with: all ones for descending order
    shift: int  # past the highest byte of a key


def topk_kernel(source: TensorType, taken: int, largest: bool) -> Kernel | None:
    """The kernel for the last dimension of a contiguous tensor; ``None`` if sorting is better."""
    extent, found = source.shape[-1], source.dtype
    is_few = taken <= _FEW
    if found not in _DTYPES or not (is_few or taken * _SPARSE <= extent):
        return None
    rows, bits = source.numel // extent, 8 * found.itemsize
    capacity = taken if is_few else max(2 * taken, _LEAST_BUFFER)
    per_chunk = items_per_chunk(rows, 2 * extent)
    numbers = _Numbers(
        rows, per_chunk, extent, taken, capacity, signed((1 << bits) - 1) if largest else 0, bits
    )
    made = _topk_ir(found, largest, is_few, vector_bits())
    scratch = 8 * (2 * capacity if is_few else 4 * capacity + DIGITS)
    return with_numbers(made, numbers, (), -(-rows // per_chunk), scratch)


@cache
def _topk_ir(found: dtype, largest: bool, is_few: bool, bits: int) -> Kernel:
    vector = Vector(KINDS[found].storage, bits // 8 // found.itemsize, found.itemsize)
    ir = KernelBuilder(Vector("i64", 1, 8), ("x", "out"), _Numbers._fields)
    parts = [ir.at(ir.scratch, ir.mul(ir["capacity"], n)) for n in range(5)]
    is_float, counts = KINDS[found].is_float, parts[4]
    kept, spare = (Sorted(parts[n], parts[n + 1], is_float) for n in (0, 2))
    held, is_open = "%held", "%is_open"
    ir.do(f"{held} = alloca i64")
    ir.do(f"{is_open} = alloca i1")
    slots = held, is_open
    offer = _inserted(ir, kept, *slots) if is_few else _collected(ir, kept, spare, counts, *slots)
    last = ir.sub(ir["taken"], 1)
    first, end = ir.items("%chunk", ir["per_chunk"], ir["rows"])
    with ir.loop(end, first=first) as row:
        start = ir.op(
            f"getelementptr i8, ptr {ir['x']}, i64 {ir.mul(row, ir['extent'], found.itemsize)}"
        )
        ir.store("0", held)
        ir.do(f"store i1 true, ptr {is_open}")
        with ir.loop(ir["extent"], vector.lanes) as column:
            opened = ir.op(f"load i1, ptr {is_open}")
            at = ir.op(f"select i1 {opened}, i64 0, i64 {last}")
            place = ir.op(f"select i1 {opened}, i64 0, i64 {ir.load(ir.at(kept.places, at))}")
            with ir.when(_may_pass(ir, vector, start, column, place, opened, largest)):
                stop = ir.least(ir.add(column, vector.lanes), ir["extent"])
                with ir.loop(stop, first=column) as number:
                    address = _element(ir, vector, start, number)
                    key = ir.op(f"xor i64 {key_of(ir, found, address)}, {ir['flipped']}")
                    offer(key, number)
        result = kept if is_few else sort_keys(ir, kept, spare, counts, ir.load(held))
        out = ir.at(ir["out"], ir.mul(row, ir["taken"]))
        with ir.loop(ir["taken"]) as number:
            ir.store(ir.load(ir.at(result.places, number)), ir.at(out, number))
    return ir.kernel("topk")


def _element(ir: KernelBuilder, vector: Vector, start: str, number: str) -> str:
    return ir.op(f"getelementptr {vector.element}, ptr {start}, i64 {number}")


def _may_pass(
    ir: KernelBuilder, vector: Vector, start: str, column: str, place: str, is_open: str,
    largest: bool,
) -> str:  # fmt: skip
    """Whether one of a vector of elements may come before the last one that is kept. NaN, which
    order does not compare, may."""
    masks, lanes = vector.of("i1"), vector.lanes
    last = ir.op(f"load {vector.element}, ptr {_element(ir, vector, start, place)}")
    one = ir.op(f"insertelement {vector.type} poison, {vector.element} {last}, i64 0")
    zeros = f"{vector.of('i32')} zeroinitializer"
    every = ir.op(f"shufflevector {vector.type} {one}, {vector.type} poison, {zeros}")
    left = ir.op(f"trunc i64 {ir.sub(ir['extent'], column)} to i32")
    one = ir.op(f"insertelement {vector.of('i32')} poison, i32 {left}, i64 0")
    limit = ir.op(f"shufflevector {vector.of('i32')} {one}, {vector.of('i32')} poison, {zeros}")
    numbers = f"<{', '.join(f'i32 {n}' for n in range(lanes))}>"
    inside = ir.op(f"icmp slt {vector.of('i32')} {numbers}, {limit}")
    values = ir.load_masked(_element(ir, vector, start, column), inside, every, vector)
    word = f"fcmp u{'gt' if largest else 'lt'}"
    if not vector.element.startswith(("float", "double")):
        word = f"icmp s{'gt' if largest else 'lt'}"
    better = ir.op(f"{word} {vector.type} {values}, {every}")
    name = f"llvm.vector.reduce.or.v{lanes}i1"
    ir.helpers[name] = f"declare i1 @{name}({masks})"
    return ir.op(f"or i1 {is_open}, {ir.op(f'call i1 @{name}({masks} {better})')}")


_Offer = Callable[[str, str], None]


def _inserted(ir: KernelBuilder, kept: Sorted, held: str, is_open: str) -> _Offer:
    """Insert an element among those that are kept, after equal ones."""
    last = ir.sub(ir["taken"], 1)

    def offer(key: str, number: str) -> None:
        count = ir.load(held)
        with ir.when(_is_before_last(ir, kept, key, last, is_open)):
            position = moved_behind(ir, kept, key, ir.least(count, last))
            ir.store(key, ir.at(kept.keys, position))
            ir.store(number, ir.at(kept.places, position))
            more = ir.least(ir.add(count, 1), ir["taken"])
            ir.store(more, held)
            has_room = ir.op(f"icmp slt i64 {more}, {ir['taken']}")
            ir.do(f"store i1 {has_room}, ptr {is_open}")

    return offer


def _is_before_last(ir: KernelBuilder, kept: Sorted, key: str, last: str, is_open: str) -> str:
    """Whether a key comes before the last one that is kept, or none has to go for it."""
    opened = ir.op(f"load i1, ptr {is_open}")
    at = ir.op(f"select i1 {opened}, i64 0, i64 {last}")
    is_before = ir.op(f"icmp ult i64 {key}, {ir.load(ir.at(kept.keys, at))}")
    return ir.op(f"or i1 {opened}, {is_before}")


def _collected(
    ir: KernelBuilder, kept: Sorted, spare: Sorted, counts: str, held: str, is_open: str
) -> _Offer:
    """Append an element that comes before the last one that was kept when the buffer was sorted."""
    copy = "llvm.memcpy.p0.p0.i64"
    ir.helpers[copy] = f"declare void @{copy}(ptr, ptr, i64, i1)"
    last = ir.sub(ir["taken"], 1)

    def offer(key: str, number: str) -> None:
        count = ir.load(held)
        with ir.when(_is_before_last(ir, kept, key, last, is_open)):
            ir.store(key, ir.at(kept.keys, count))
            ir.store(number, ir.at(kept.places, count))
            more = ir.add(count, 1)
            ir.store(more, held)
            with ir.when(ir.op(f"icmp eq i64 {more}, {ir['capacity']}")):
                found = sort_keys(ir, kept, spare, counts, ir["capacity"])
                size = ir.mul(ir["taken"], 8)
                for source, target in ((found.keys, kept.keys), (found.places, kept.places)):
                    # An even number of passes leaves them where they were.
                    with ir.when(ir.op(f"icmp ne ptr {source}, {target}")):
                        given = f"ptr {target}, ptr {source}, i64 {size}, i1 false"
                        ir.do(f"call void @{copy}({given})")
                ir.store(ir["taken"], held)
                ir.do(f"store i1 false, ptr {is_open}")

    return offer
