"""Convolution without columns: the kernel behind ``conv`` and ``conv_input``.

A chunk lays a few rows of a sample out as planes in scratch memory. The outputs are then a product
of matrices whose second factor is read in place: each of its rows is a piece of a plane. What comes
out between two rows means nothing and is left behind when rows are written.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from evergrad.compiler.codegen.ir_builder import (
    KernelBuilder,
    Vector,
    items_per_chunk,
    with_numbers,
)
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.kernels.conv.microkernel import Tile, best_tile, call_tile, tile_cycles
from evergrad.compiler.kernels.conv.padded_planes import (
    Correlation,
    Planes,
    Steps,
    lay_out_planes,
)
from evergrad.compiler.native.target import machine
from evergrad.compiler.passes.conv_epilogue import Epilogue, emit_epilogue, pointers

# Rows and sums of a chunk stay in a cache of this many bytes.
_CACHE = machine().l2_bytes // 2
# The elements of the kernel that a tile goes through at once, over a few channels.
_DEPTH = 256
# Images of more elements than this are cut into rows until there are at least so many chunks.
_WORTH_CUTTING = 512
_FEW_CHUNKS = 4
# Cycles to copy a vector of a row.
# Fitted by tools/fit_kernel_costs.py.
_COPYING = 4.0


class _Numbers(NamedTuple):
    """The kernel's numbers beside those of planes; a table of places follows that of planes."""

    items: int
    per_chunk: int
    groups: int
    row_blocks: int
    block: int
    count_rows: int
    count_columns: int
    outputs: int
    places: int
    channel_block: int
    leading: int
    sums_at: int
    y_start: int
    y_sample: int
    y_channel: int
    y_row: int
    y_step: int


class DirectCut(NamedTuple):
    """How the outputs are cut: tiles, how many of them are on top of each other, and the rows of a
    chunk."""

    tile: Tile
    blocks: int
    rows: int

    @classmethod
    def choose(cls, vector: Vector, given: Correlation) -> DirectCut:
        count = given.rows.extent
        fewest = -(-count // given.rows_fitting(_CACHE // vector.size, given.outputs))
        if count * given.width > _WORTH_CUTTING:
            few = -(-_FEW_CHUNKS // (given.samples * given.groups))
            fewest = min(count, max(fewest, few))
        cuts = [cls.into(vector, given, n) for n in range(fewest, min(2 * fewest, count) + 1)]
        return min(cuts, key=lambda cut: cut.cycles(vector, given))

    @classmethod
    def into(cls, vector: Vector, given: Correlation, parts: int) -> DirectCut:
        rows = -(-given.rows.extent // parts)
        tile = best_tile(vector, given.outputs, _pixels(given, rows))
        return cls(tile, -(-given.outputs // tile.rows), rows)

    def cycles(self, vector: Vector, given: Correlation) -> float:
        """About how many cycles a sample takes: its tiles, laying planes out, and writing rows."""
        whole, rest = divmod(given.rows.extent, self.rows)
        steps = given.channels * len(given.taps)
        total = 0.0
        for rows in [self.rows] * whole + [rest] * (rest > 0):
            pixels = _pixels(given, rows)
            total += steps * tile_cycles(vector, self.tile, given.outputs, pixels)
            copied = given.channels * given.planes * (rows + given.rows.reach) * given.width
            written = given.outputs * rows * -(-given.columns.extent // vector.lanes)
            total += _COPYING * (copied / vector.lanes + written)
        return total

    def passes(self, vector: Vector, given: Correlation) -> float:
        """How often a sample has the whole weight read."""
        pixels = _pixels(given, self.rows)
        blocks = -(-given.rows.extent // self.rows)
        return blocks * -(-pixels // (self.tile.vectors * vector.lanes))


def _pixels(given: Correlation, rows: int) -> int:
    """The elements from the first output to the last of so many rows."""
    return (rows - 1) * given.width + given.columns.extent


def correlation_kernel(
    vector: Vector, given: Correlation, x: Steps, y: Steps, steps: Epilogue
) -> Kernel:
    """The kernel that takes x, the packed weight, what later steps take, and y."""
    tile, blocks, block = DirectCut.choose(vector, given)
    rows, columns = given.rows, given.columns
    planes = Planes.of(given, x, block)
    wide = tile.vectors * vector.lanes
    leading = -(-_pixels(given, block) // wide) * wide
    row_blocks = -(-rows.extent // block)
    items = given.samples * given.groups * row_blocks
    places = planes.places(given)
    work = given.outputs * given.channels * len(places) * block * given.width
    per_chunk = items_per_chunk(items, work)
    numbers = _Numbers(
        items, per_chunk, given.groups, row_blocks, block, rows.extent, columns.extent,
        given.outputs, len(places), max(1, _DEPTH // max(1, len(places))), leading,
        planes.size(wide), rows.start * y.row + columns.start * y.column, y.sample, y.channel,
        y.row * rows.step, y.column * columns.step,
    )  # fmt: skip
    return with_numbers(
        _text(vector, tile, steps), [*numbers, *planes], [*planes.tables(given, x), *places],
        -(-items // per_chunk), (planes.size(wide) + blocks * tile.rows * leading) * vector.size,
    )  # fmt: skip


# -- the kernel ---------------------------------------------------------------------------------


@cache
def _text(vector: Vector, tile: Tile, steps: Epilogue) -> Kernel:
    text = KernelBuilder(vector, pointers(steps), (*_Numbers._fields, *Planes._fields))
    first, last = text.items("%chunk", text["per_chunk"], text["items"])
    with text.loop(last, first=first) as item:
        place, block = text.split(item, text["row_blocks"])
        sample, group = text.split(place, text["groups"])
        row = text.mul(block, text["block"])
        rows = text.least(text["block"], text.sub(text["count_rows"], row))
        x = text.at(
            text["x"],
            text.mul(sample, text["x_sample"]),
            text.mul(group, text["channels"], text["x_channel"]),
        )
        lay_out_planes(text, tile.vectors * vector.lanes, x, row, text.scratch)
        _multiply(text, tile, group, rows)
        y = text.at(
            text["y"],
            text["y_start"],
            text.mul(sample, text["y_sample"]),
            text.mul(group, text["outputs"], text["y_channel"]),
            text.mul(row, text["y_row"]),
        )
        _write_rows(text, steps, y, group, rows)
    return text.kernel("conv")


def _multiply(text: KernelBuilder, tile: Tile, group: str, rows: str) -> None:
    """All tiles of the outputs that begin in these rows."""
    whole = text.mul(text.sub(rows, 1), text["width"])
    pixels = text.add(whole, text["count_columns"])
    blocks = text.op(f"udiv i64 {text.add(text['outputs'], tile.rows - 1)}, {tile.rows}")
    depth = text.mul(text["channels"], text["places"])
    weight = text.at(text["weight"], text.mul(group, blocks, depth, tile.rows))
    sums = text.at(text.scratch, text["sums_at"])
    table = text.table(text.mul(text["planes"], 4))
    with (
        text.loop(pixels, tile.vectors * text.vector.lanes) as pixel,
        text.loop(text["channels"], text["channel_block"]) as channel,
    ):
        count = text.least(text["channel_block"], text.sub(text["channels"], channel))
        b = text.at(text.scratch, text.mul(channel, text["channel_size"]), pixel)
        more = text.op(f"icmp ne i64 {channel}, 0")
        with text.loop(blocks) as number:
            done = text.add(text.mul(number, depth), text.mul(channel, text["places"]))
            a = text.at(weight, text.mul(done, tile.rows))
            c = text.at(sums, text.mul(number, tile.rows, text["leading"]), pixel)
            call_tile(
                text, tile, a, b, c, text["leading"], count, text["channel_size"],
                text["places"], table, more,
            )  # fmt: skip


def _write_rows(text: KernelBuilder, steps: Epilogue, y: str, group: str, rows: str) -> None:
    """Take the outputs out of the sums."""
    sums, step = text.at(text.scratch, text["sums_at"]), text["y_step"]
    for kind in text.by_stride(step):
        with text.loop(text["outputs"]) as channel, text.loop(rows) as row:
            source = text.at(sums, text.mul(channel, text["leading"]), text.mul(row, text["width"]))
            target = text.at(y, text.mul(channel, text["y_channel"]), text.mul(row, text["y_row"]))
            output = text.add(text.mul(group, text["outputs"]), channel)
            with text.loop(text["count_columns"], text.vector.lanes) as j:
                value = emit_epilogue(text, steps, text.load_vector(text.at(source, j)), output)
                left = text.sub(text["count_columns"], j)
                text.store_strided(kind, value, text.at(target, text.mul(j, step)), step, left)
