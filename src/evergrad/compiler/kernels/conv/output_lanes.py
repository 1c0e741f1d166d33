"""Convolution with outputs side by side in registers: for many outputs, and for small images.

A chunk lays some rows of a sample, or some samples, out as planes and computes a band of their
outputs. A tile is a few pixels, wherever they lie, times vectors of outputs: no element is computed
that is not wanted, and a weight is read once for all pixels of the chunk. The sums, in which each
pixel has its outputs side by side, are turned when they are written.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from evergrad.compiler.codegen.ir_builder import KernelBuilder, Vector, with_numbers
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.kernels.conv.microkernel import Tile, call_tile
from evergrad.compiler.kernels.conv.padded_planes import (
    Correlation,
    Planes,
    Steps,
    lay_out_planes,
)
from evergrad.compiler.kernels.gemm.microkernel import transposed
from evergrad.compiler.native.target import machine
from evergrad.compiler.passes.conv_epilogue import Epilogue, emit_epilogue, pointers

# Planes and sums of a chunk stay in a cache of this many bytes.
_CACHE = 5 * machine().l2_bytes // 8
# The elements of the kernel that a tile goes through at once, over a few channels.
_DEPTH = 96
# There are at least so many chunks, if there is work for them.
_FEW_CHUNKS = 4
_WORTH_CUTTING = 1 << 20
# Pixels of a chunk: at least for a band of its own, and at most.
_ENOUGH_PIXELS = 96
_MOST_PIXELS = 1024
# Cycles to copy or to turn a vector.
# Fitted by tools/fit_kernel_costs.py.
_COPYING = 4.0
# How much longer a tile takes than its products: pixels are read one by one.
# Fitted by tools/fit_kernel_costs.py.
_SLOWER = 1.2
# Shapes of tiles, for machines with 32 and with 16 registers: addresses of pixels take others.
_TILES_32 = ((6, 4), (8, 3), (8, 2), (8, 1), (4, 4), (4, 1))
_TILES_16 = ((6, 2), (4, 2), (4, 3), (8, 1), (4, 1))


def _tile_cycles(vector: Vector, tile: tuple[int, int], pixels: int, outputs: int) -> float:
    """The cycles in which all tiles go one place further."""
    high, wide = tile
    count = -(-pixels // high) * -(-outputs // (wide * vector.lanes))
    return count * _SLOWER * machine().cycles(high * wide, high + wide + 1)


class PixelCut(NamedTuple):
    """Tiles, what is laid out at a time, and the bands of outputs, in tiles."""

    tile: Tile
    together: int  # samples
    block: int  # rows
    panels: int
    band: int

    @classmethod
    def choose(cls, vector: Vector, given: Correlation) -> PixelCut:
        together, block = _laid_out(vector, given)
        pixels = together * block * given.columns.extent
        shapes = _TILES_32 if vector.has_32_registers else _TILES_16
        tile = Tile(*min(shapes, key=lambda t: _tile_cycles(vector, t, pixels, given.outputs)))
        panels = -(-given.outputs // (tile.vectors * vector.lanes))
        chunks = given.groups * -(-given.samples // together) * -(-given.rows.extent // block)
        work = given.outputs * given.channels * len(given.taps) * pixels * chunks
        fewest = _FEW_CHUNKS if work > _WORTH_CUTTING else 1
        return cls(tile, together, block, panels, -(-panels // min(panels, -(-fewest // chunks))))

    def cycles(self, vector: Vector, given: Correlation) -> float:
        """About how many cycles a sample takes, with laying planes out and turning sums."""
        pixels = self.together * self.block * given.columns.extent
        rows = -(-given.rows.extent // self.block)
        steps = given.channels * len(given.taps)
        total = steps * _tile_cycles(vector, self.tile, pixels, given.outputs) * rows
        high = given.rows.extent + rows * given.rows.reach
        bands = -(-self.panels // self.band)
        copied = given.channels * given.planes * high * given.width * bands
        turned = given.outputs * given.rows.extent * (given.columns.extent + vector.lanes - 1)
        return total / self.together + _COPYING * (copied + turned) / vector.lanes

    def passes(self, given: Correlation) -> float:
        """How often a sample has the whole weight read."""
        return -(-given.rows.extent // self.block) / self.together


def _laid_out(vector: Vector, given: Correlation) -> tuple[int, int]:
    """How many samples and rows are laid out at a time."""
    rows, columns = given.rows.extent, given.columns.extent
    fitting = given.rows_fitting(_CACHE // vector.size, given.outputs)
    fitting = max(1, min(fitting, _MOST_PIXELS // columns))
    if fitting < rows:
        return 1, -(-rows // -(-rows // fitting))
    planes = given.channels * given.planes * (rows + given.rows.reach) * given.width
    size = (planes + given.outputs * rows * columns) * vector.size
    wanted = -(-_ENOUGH_PIXELS // (rows * columns))
    return max(1, min(given.samples, wanted, _CACHE // size)), rows


class _Numbers(NamedTuple):
    """The kernel's numbers beside those of planes; tables of places and of pixels follow that of
    planes."""

    bands: int
    band: int
    panels: int
    groups: int
    samples: int
    together: int
    row_blocks: int
    block: int
    count_rows: int
    count_columns: int
    outputs: int
    places: int
    channel_block: int
    sample_size: int
    leading: int
    sums_at: int
    y_start: int
    y_sample: int
    y_channel: int
    y_row: int
    y_step: int


def pixel_kernel(vector: Vector, given: Correlation, x: Steps, y: Steps, steps: Epilogue) -> Kernel:
    """The kernel that takes x, the packed weight, what later steps take, and y."""
    cut = PixelCut.choose(vector, given)
    tile, rows, columns = cut.tile, given.rows, given.columns
    planes = Planes.of(given, x, cut.block)
    places = planes.places(given)
    sample_size = given.channels * planes.channel_size
    wide = tile.vectors * vector.lanes
    sums_at = ((cut.together - 1) * sample_size + planes.size(vector.lanes)) // wide * wide + wide
    row_blocks = -(-rows.extent // cut.block)
    bands = -(-cut.panels // cut.band)
    leading = cut.band * wide
    numbers = _Numbers(
        bands, cut.band, cut.panels, given.groups, given.samples, cut.together, row_blocks,
        cut.block, rows.extent, columns.extent, given.outputs, len(places),
        max(1, _DEPTH // max(1, len(places))), sample_size, leading, sums_at,
        rows.start * y.row + columns.start * y.column, y.sample, y.channel, y.row * rows.step,
        y.column * columns.step,
    )  # fmt: skip
    pixels = [
        sample * sample_size + row * given.width + column
        for sample in range(cut.together)
        for row in range(cut.block)
        for column in range(columns.extent)
    ]
    pixels += pixels[-1:] * (-len(pixels) % tile.rows)
    chunks = -(-given.samples // cut.together) * given.groups * row_blocks * bands
    return with_numbers(
        _text(vector, tile, steps), [*numbers, *planes],
        [*planes.tables(given, x), *places, *pixels], chunks,
        (sums_at + len(pixels) * leading) * vector.size,
    )  # fmt: skip


@cache
def _text(vector: Vector, tile: Tile, steps: Epilogue) -> Kernel:
    text = KernelBuilder(vector, pointers(steps), (*_Numbers._fields, *Planes._fields))
    item, band = text.split("%chunk", text["bands"])
    place, block = text.split(item, text["row_blocks"])
    some, group = text.split(place, text["groups"])
    sample, row = text.mul(some, text["together"]), text.mul(block, text["block"])
    samples = text.least(text["together"], text.sub(text["samples"], sample))
    rows = text.least(text["block"], text.sub(text["count_rows"], row))
    first, last = text.items(band, text["band"], text["panels"])
    x = text.at(
        text["x"],
        text.mul(sample, text["x_sample"]),
        text.mul(group, text["channels"], text["x_channel"]),
    )
    with text.loop(samples) as number:
        start = text.at(x, text.mul(number, text["x_sample"]))
        to = text.at(text.scratch, text.mul(number, text["sample_size"]))
        lay_out_planes(text, vector.lanes, start, row, to)
    panel = text.add(text.mul(group, text["panels"]), first)
    pixels = text.mul(samples, rows, text["count_columns"])
    _multiply(text, tile, panel, text.sub(last, first), pixels)
    output = text.mul(first, tile.vectors * vector.lanes)
    y = text.at(
        text["y"],
        text["y_start"],
        text.mul(sample, text["y_sample"]),
        text.mul(text.add(text.mul(group, text["outputs"]), output), text["y_channel"]),
        text.mul(row, text["y_row"]),
    )
    outputs = text.least(text["leading"], text.sub(text["outputs"], output))
    number = text.add(text.mul(group, text["outputs"]), output)
    _write(text, steps, y, number, samples, rows, outputs)
    return text.kernel("conv_pixels")


def _multiply(text: KernelBuilder, tile: Tile, panel: str, panels: str, pixels: str) -> None:
    """All tiles of these pixels and panels."""
    wide = tile.vectors * text.vector.lanes
    depth = text.mul(text["channels"], text["places"])
    weight = text.at(text["weight"], text.mul(panel, depth, wide))
    sums = text.at(text.scratch, text["sums_at"])
    table = text.table(text.mul(text["planes"], 4))
    offsets = text.table(text.add(text.mul(text["planes"], 4), text["places"]))
    with (
        text.loop(text["channels"], text["channel_block"]) as channel,
        text.loop(panels) as number,
        text.loop(pixels, tile.rows) as pixel,
    ):
        count = text.least(text["channel_block"], text.sub(text["channels"], channel))
        done = text.add(text.mul(number, depth), text.mul(channel, text["places"]))
        a = text.at(weight, text.mul(done, wide))
        b = text.at(text.scratch, text.mul(channel, text["channel_size"]))
        c = text.at(sums, text.mul(pixel, text["leading"]), text.mul(number, wide))
        more = text.op(f"icmp ne i64 {channel}, 0")
        here = text.op(f"getelementptr i64, ptr {offsets}, i64 {pixel}")
        call_tile(
            text, tile, a, b, c, text["leading"], count, text["channel_size"], text["places"],
            table, more, here,
        )  # fmt: skip


def _write(
    text: KernelBuilder, steps: Epilogue, y: str, first: str, samples: str, rows: str, outputs: str
) -> None:
    """Turn the sums: rows of pixels, for one output after the other, from ``first`` on."""
    lanes, columns = text.vector.lanes, text["count_columns"]
    sums = text.at(text.scratch, text["sums_at"])
    for kind in text.by_stride(text["y_step"]):
        with (
            text.loop(samples) as sample,
            text.loop(outputs, lanes) as output,
            text.loop(rows) as row,
            text.loop(columns, lanes) as column,
        ):
            before = text.mul(text.add(text.mul(sample, rows), row), columns)
            left = text.sub(columns, column)
            final = text.sub(left, 1)
            corner = text.at(sums, output, text.mul(text.add(before, column), text["leading"]))
            block = [
                text.load_vector(
                    text.at(corner, text.mul(text.least(str(n), final), text["leading"]))
                )
                for n in range(lanes)
            ]
            target = text.at(
                y,
                text.mul(sample, text["y_sample"]),
                text.mul(output, text["y_channel"]),
                text.mul(row, text["y_row"]),
                text.mul(column, text["y_step"]),
            )
            there = text.sub(outputs, output)
            for n, values in enumerate(transposed(text, block)):
                is_there = text.op(f"icmp sgt i64 {there}, {n}")
                count = text.op(f"select i1 {is_there}, i64 {left}, i64 0")
                to = text.at(target, text.mul(text["y_channel"], n))
                number = text.add(first, text.least(text.add(output, n), text.sub(outputs, 1)))
                values = emit_epilogue(text, steps, values, number)
                text.store_strided(kind, values, to, text["y_step"], count)
