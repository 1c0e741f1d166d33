"""The gradient of a convolution's weight for few channels: a dot product for each element of it.

A chunk lays rows of some samples out as planes, and y as rows of the same width with zeros between
them; an element of the gradient is the product of a row of y and a plane, shifted. Sums are kept as
whole vectors: every chunk leaves its own, and a second kernel adds these up in their order.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

from evergrad.compiler.codegen.ir_builder import (
    ENOUGH_CHUNKS,
    MAX_CHUNK_WORK,
    KernelBuilder,
    Vector,
    with_numbers,
)
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.kernels.conv.padded_planes import (
    Correlation,
    Planes,
    Steps,
    copy_row,
    lay_out_planes,
)
from evergrad.compiler.native.target import machine

# Planes and rows of y stay in a cache of this many bytes.
_CACHE = 3 * machine().l2_bytes // 8
# All chunks together may leave sums of this many bytes.
_SUMS = min(16 << 20, machine().l3_bytes // 2)
# Rows of y times places of the kernel that are held in registers: with 32 and with 16 of these.
_TILES_32 = ((4, 6), (6, 4), (5, 5), (3, 8), (2, 9), (2, 6), (1, 12), (1, 9), (1, 5), (1, 3))
_TILES_16 = ((3, 3), (4, 2), (2, 4), (1, 6), (1, 3))
# Cycles to take up a vector of sums and put it down again.
# Fitted by tools/fit_kernel_costs.py.
_KEEPING = 3.0


class DotTile(NamedTuple):
    outputs: int
    places: int


def _cycles(tile: tuple[int, int], outputs: int, places: int) -> float:
    """The cycles in which all tiles go one vector further; loads of x mostly cross cache lines."""
    high, wide = tile
    count = -(-outputs // high) * -(-places // wide)
    return count * machine().cycles(high * wide, high + 2 * wide)


class Cut(NamedTuple):
    """How the work is cut: tiles, the rows of y that are laid out at a time, and parts."""

    tile: DotTile
    outputs: int  # with those that only fill tiles
    places: int
    block: int
    items: int
    parts: int

    @classmethod
    def choose(cls, vector: Vector, given: Correlation) -> Cut:
        count = given.channels * len(given.taps)
        shapes = _TILES_32 if vector.has_32_registers else _TILES_16
        tile = DotTile(*min(shapes, key=lambda t: _cycles(t, given.outputs, count)))
        outputs = -(-given.outputs // tile.outputs) * tile.outputs
        places = -(-count // tile.places) * tile.places
        fitting = given.rows_fitting(_CACHE // vector.size, outputs)
        block = -(-given.rows.extent // -(-given.rows.extent // fitting))
        items = given.samples * -(-given.rows.extent // block)
        sums = outputs * places * vector.lanes * vector.size * given.groups
        work = outputs * places * block * given.width * items
        most = min(items, ENOUGH_CHUNKS, max(2, _SUMS // sums), max(1, work // MAX_CHUNK_WORK))
        parts = -(-items // -(-items // most))
        return cls(tile, outputs, places, block, items, parts)


def dot_cycles(vector: Vector, given: Correlation) -> float:
    """About how many cycles a pixel of y takes, with its share of keeping sums."""
    cut = Cut.choose(vector, given)
    step = _cycles(cut.tile, cut.outputs, cut.places)
    steps = -(-cut.block * given.width // vector.lanes)
    kept = cut.outputs * cut.places
    if kept * vector.lanes * vector.size > _CACHE:
        return math.inf  # sums would come from memory again and again
    return (step * steps + _KEEPING * kept) / (cut.block * given.columns.extent)


def dot_sum_bytes(vector: Vector, given: Correlation) -> int:
    """The bytes of the sums of all parts."""
    cut = Cut.choose(vector, given)
    size = cut.outputs * cut.places * vector.lanes * vector.size
    return cut.parts * given.groups * size


class _Numbers(NamedTuple):
    """The kernel's numbers beside those of planes; a table of places follows that of planes."""

    groups: int
    items: int
    per_part: int
    row_blocks: int
    block: int
    count_rows: int
    count_columns: int
    outputs: int
    outputs_padded: int
    places: int
    y_at: int
    y_leading: int
    y_sample: int
    y_channel: int
    y_row: int
    y_column: int


def dot_kernel(vector: Vector, given: Correlation, x: Steps, y: Steps) -> Kernel:
    """The kernel that takes y, x and the memory for sums."""
    cut = Cut.choose(vector, given)
    planes = Planes.of(given, x, cut.block)
    leading = (cut.block * given.width // vector.lanes + 2) * vector.lanes
    numbers = _Numbers(
        given.groups, cut.items, -(-cut.items // cut.parts), -(-given.rows.extent // cut.block),
        cut.block, given.rows.extent, given.columns.extent, given.outputs, cut.outputs, cut.places,
        planes.size(vector.lanes), leading, *y,
    )  # fmt: skip
    scratch = (planes.size(vector.lanes) + cut.outputs * leading) * vector.size
    return with_numbers(
        _text(vector, cut.tile), [*numbers, *planes],
        [*planes.tables(given, x), *_all_places(planes, given, cut.places)],
        cut.parts * given.groups, scratch,
    )  # fmt: skip


def _all_places(planes: Planes, given: Correlation, count: int) -> list[int]:
    """The places of all channels, and the last of them again to fill tiles."""
    places = planes.places(given)
    found = [c * planes.channel_size + p for c in range(given.channels) for p in places]
    return found + found[-1:] * (count - len(found))


@cache
def _text(vector: Vector, tile: DotTile) -> Kernel:
    text = KernelBuilder(vector, ("y", "x", "sums"), (*_Numbers._fields, *Planes._fields))
    part, group = text.split("%chunk", text["groups"])
    first, last = text.items(part, text["per_part"], text["items"])
    size = text.mul(text["outputs_padded"], text["places"], vector.lanes)
    sums = text.at(text["sums"], text.mul("%chunk", size))
    x = text.at(text["x"], text.mul(group, text["channels"], text["x_channel"]))
    y = text.at(text["y"], text.mul(group, text["outputs"], text["y_channel"]))
    with text.loop(last, first=first) as item:
        sample, block = text.split(item, text["row_blocks"])
        row = text.mul(block, text["block"])
        rows = text.least(text["block"], text.sub(text["count_rows"], row))
        x_start = text.at(x, text.mul(sample, text["x_sample"]))
        lay_out_planes(text, vector.lanes, x_start, row, text.scratch)
        start = text.at(y, text.mul(sample, text["y_sample"]), text.mul(row, text["y_row"]))
        _lay_out_y(text, start, rows)
        is_later = text.op(f"icmp ne i64 {item}, {first}")
        _multiply(text, tile, sums, text.mul(rows, text["width"]), is_later)
    return text.kernel("conv_dots")


def _lay_out_y(text: KernelBuilder, y: str, rows: str) -> None:
    """Write rows of y with zeros between and behind them; outputs that fill tiles repeat the last
    one."""
    final = text.sub(text["outputs"], 1)
    step = text["y_column"]
    for kind in text.by_stride(step):
        with text.loop(text["outputs_padded"]) as output:
            source = text.at(y, text.mul(text.least(output, final), text["y_channel"]))
            target = text.at(text.scratch, text["y_at"], text.mul(output, text["y_leading"]))
            with text.loop(rows) as row:
                from_row = text.at(source, text.mul(row, text["y_row"]))
                to = text.at(target, text.mul(row, text["width"]))
                copy_row(text, kind, from_row, to, "0", text["count_columns"], step)
            end = text.at(target, text.mul(rows, text["width"]))
            text.store_vector("zeroinitializer", end)


def _multiply(text: KernelBuilder, tile: DotTile, sums: str, pixels: str, is_later: str) -> None:
    """Add the products of these rows to all sums."""
    lanes = text.vector.lanes
    table = text.table(text.mul(text["planes"], 4))
    leading = text.mul(text["places"], lanes)
    with (
        text.loop(text["places"], tile.places) as place,
        text.loop(text["outputs_padded"], tile.outputs) as output,
    ):
        planes = [
            text.at(text.scratch, text.number(table, text.add(place, n)))
            for n in range(tile.places)
        ]
        y = text.at(text.scratch, text["y_at"], text.mul(output, text["y_leading"]))
        rows = [text.at(y, text.mul(text["y_leading"], n)) for n in range(tile.outputs)]
        corner = text.at(sums, text.mul(output, leading), text.mul(place, lanes))
        addresses = [
            text.at(corner, text.mul(leading, o), p * lanes)
            for o in range(tile.outputs)
            for p in range(tile.places)
        ]
        _dot(text, planes, rows, addresses, pixels, is_later)


def _dot(
    text: KernelBuilder,
    planes: list[str],
    rows: list[str],
    sums: list[str],
    pixels: str,
    is_later: str,
) -> None:
    """Go along some rows and planes with a sum for each pair of them."""
    many = text.vector.type
    masks = text.splat(is_later, "i1")
    start = [(many, text.load_masked(at, masks, "zeroinitializer")) for at in sums]
    with text.carrying_loop(pixels, start, text.vector.lanes) as (pixel, held):
        factors = [text.load_vector(text.at(row, pixel)) for row in rows]
        after: list[str] = [""] * len(sums)
        for p, plane in enumerate(planes):
            value = text.load_vector(text.at(plane, pixel))
            for o, factor in enumerate(factors):
                n = o * len(planes) + p
                after[n] = text.multiply_add(factor, value, held.values[n])
        held.after = after
    for address, value in zip(sums, held.values, strict=True):
        text.store_vector(value, address)


# -- adding up ----------------------------------------------------------------------------------


class _SumNumbers(NamedTuple):
    items: int
    per_chunk: int
    parts: int
    part_size: int
    outputs: int
    group_size: int
    places: int
    total: int


def dot_sum_kernel(vector: Vector, given: Correlation) -> Kernel:
    """The kernel that adds the sums of all parts and lanes up; it takes them and the gradient."""
    cut = Cut.choose(vector, given)
    items = given.groups * given.outputs
    size = cut.outputs * cut.places * vector.lanes
    per_chunk = max(1, min(items, (1 << 13) // (cut.places * cut.parts)))
    numbers = _SumNumbers(
        items, per_chunk, cut.parts, size * given.groups, given.outputs, size, cut.places,
        given.channels * len(given.taps),
    )  # fmt: skip
    return with_numbers(_sum_text(vector), numbers, [], -(-items // per_chunk))


@cache
def _sum_text(vector: Vector) -> Kernel:
    text = KernelBuilder(vector, ("sums", "out"), _SumNumbers._fields)
    first, last = text.items("%chunk", text["per_chunk"], text["items"])
    with text.loop(last, first=first) as item, text.loop(text["total"]) as place:
        group, output = text.split(item, text["outputs"])
        number = text.add(text.mul(output, text["places"]), place)
        at = text.at(
            text["sums"], text.mul(group, text["group_size"]), text.mul(number, vector.lanes)
        )
        start = [(vector.type, text.load_vector(at))]
        with text.carrying_loop(text["parts"], start, first=1) as (part, held):
            other = text.load_vector(text.at(at, text.mul(part, text["part_size"])))
            held.after = [text.op(f"fadd {vector.type} {held.values[0]}, {other}")]
        total = text.sum_of_lanes(held.values[0])
        text.store(total, text.at(text["out"], text.mul(item, text["total"]), place))
    return text.kernel("conv_dot_sum")
