"""Convolution with output-channel lanes: for many output channels, and for small images.

A chunk packs some rows of a sample, or some samples, into padded planes and computes a band of
output channels. A tile is a few pixels, at any offsets, times vectors of output channels: nothing
is computed in the halo, and a weight is read once for all pixels of the chunk. The sums are in NHWC
order and are transposed when they are stored.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from evergrad.compiler.codegen.epilogue import Epilogue
from evergrad.compiler.codegen.ir_builder import Vector
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.kernel_builder import KernelBuilder, with_numbers
from evergrad.compiler.kernels.conv.epilogue import (
    Place,
    emit_epilogue,
    pointers,
    stored_strides,
)
from evergrad.compiler.kernels.conv.microkernel import Tile, call_tile
from evergrad.compiler.kernels.conv.padded_planes import (
    Correlation,
    Planes,
    Strides,
    pack_planes,
)
from evergrad.compiler.kernels.gemm.microkernel import transposed
from evergrad.compiler.native.target import machine

# Planes and sums of a chunk stay in a cache of this many bytes.
_CACHE = 5 * machine().l2_bytes // 8
# The depth of the reduction of one call of the microkernel: taps of a few channels.
_DEPTH = 96
# There are at least so many chunks, if there is work for them.
_FEW_CHUNKS = 4
_WORTH_CUTTING = 1 << 20
# Pixels of a chunk: at least for a band of its own, and at most.
_ENOUGH_PIXELS = 96
_MOST_PIXELS = 1024
# Cycles to copy or to transpose a vector.
# Fitted by tools/fit_kernel_costs.py.
_COPYING = 4.0
# The overhead of a tile over its FMAs: pixels are broadcast one by one.
# Fitted by tools/fit_kernel_costs.py.
_SLOWER = 1.2
# Shapes of register tiles, for machines with 32 and with 16 registers; addresses of pixels take
# general registers.
_TILES_32 = ((6, 4), (8, 3), (8, 2), (8, 1), (4, 4), (4, 1))
_TILES_16 = ((6, 2), (4, 2), (4, 3), (8, 1), (4, 1))


def _tile_cycles(vector: Vector, tile: tuple[int, int], pixels: int, outputs: int) -> float:
    """The cycles of one step of the reduction for all tiles."""
    high, wide = tile
    count = -(-pixels // high) * -(-outputs // (wide * vector.lanes))
    return count * _SLOWER * machine().cycles(high * wide, high + wide + 1)


class OutputLanesTiling(NamedTuple):
    """The register tile, the samples and rows packed at a time, and the panels of a band of output
    channels."""

    tile: Tile
    block_samples: int
    block_rows: int
    panels: int
    band: int

    @classmethod
    def choose(cls, vector: Vector, problem: Correlation) -> OutputLanesTiling:
        block_samples, block = _block_shape(vector, problem)
        pixels = block_samples * block * problem.columns.extent
        shapes = _TILES_32 if vector.has_32_registers else _TILES_16
        tile = Tile(*min(shapes, key=lambda t: _tile_cycles(vector, t, pixels, problem.outputs)))
        panels = -(-problem.outputs // (tile.vectors * vector.lanes))
        row_blocks = -(-problem.rows.extent // block)
        chunks = problem.groups * -(-problem.samples // block_samples) * row_blocks
        work = problem.outputs * problem.channels * len(problem.taps) * pixels * chunks
        fewest = _FEW_CHUNKS if work > _WORTH_CUTTING else 1
        return cls(
            tile, block_samples, block, panels, -(-panels // min(panels, -(-fewest // chunks)))
        )

    def cycles(self, vector: Vector, problem: Correlation) -> float:
        """Estimated cycles of a sample, with packing planes and transposing sums."""
        pixels = self.block_samples * self.block_rows * problem.columns.extent
        rows = -(-problem.rows.extent // self.block_rows)
        depth = problem.channels * len(problem.taps)
        total = depth * _tile_cycles(vector, self.tile, pixels, problem.outputs) * rows
        high = problem.rows.extent + rows * problem.rows.halo
        bands = -(-self.panels // self.band)
        copied = problem.channels * problem.planes * high * problem.width * bands
        columns = problem.columns.extent + vector.lanes - 1
        stored = problem.outputs * problem.rows.extent * columns
        return total / self.block_samples + _COPYING * (copied + stored) / vector.lanes

    def passes(self, problem: Correlation) -> float:
        """How often a sample reads the whole weight."""
        return -(-problem.rows.extent // self.block_rows) / self.block_samples


def _block_shape(vector: Vector, problem: Correlation) -> tuple[int, int]:
    """The samples and rows that are packed at a time."""
    rows, columns = problem.rows.extent, problem.columns.extent
    fitting = problem.rows_fitting(_CACHE // vector.size, problem.outputs)
    fitting = max(1, min(fitting, _MOST_PIXELS // columns))
    if fitting < rows:
        return 1, -(-rows // -(-rows // fitting))
    planes = problem.channels * problem.planes * (rows + problem.rows.halo) * problem.width
    size = (planes + problem.outputs * rows * columns) * vector.size
    enough = -(-_ENOUGH_PIXELS // (rows * columns))
    return max(1, min(problem.samples, enough, _CACHE // size)), rows


class _Numbers(NamedTuple):
    """Integer arguments besides those of planes; the tables of tap offsets and of pixel offsets
    follow that of planes."""

    bands: int
    band: int
    panels: int
    groups: int
    samples: int
    block_samples: int
    row_blocks: int
    block_rows: int
    count_rows: int
    count_columns: int
    outputs: int
    taps: int
    channel_block: int
    sample_size: int
    leading: int
    sums_at: int
    y_start: int
    y_sample: int
    y_channel: int
    y_row: int
    y_column: int


def output_lanes_kernel(
    vector: Vector, problem: Correlation, x: Strides, y: Strides, epilogue: Epilogue | None
) -> Kernel:
    """The kernel with the arguments x, the packed weight, operands of the epilogue, and y."""
    tiling = OutputLanesTiling.choose(vector, problem)
    tile, rows, columns = tiling.tile, problem.rows, problem.columns
    planes = Planes.of(problem, x, tiling.block_rows)
    tap_offsets = planes.tap_offsets(problem)
    sample_size = problem.channels * planes.channel_size
    wide = tile.vectors * vector.lanes
    packed = (tiling.block_samples - 1) * sample_size + planes.size(vector.lanes)
    sums_at = packed // wide * wide + wide
    row_blocks = -(-rows.extent // tiling.block_rows)
    bands = -(-tiling.panels // tiling.band)
    leading = tiling.band * wide
    numbers = _Numbers(
        bands, tiling.band, tiling.panels, problem.groups, problem.samples, tiling.block_samples,
        row_blocks, tiling.block_rows, rows.extent, columns.extent, problem.outputs,
        len(tap_offsets), max(1, _DEPTH // max(1, len(tap_offsets))), sample_size, leading, sums_at,
        rows.start * y.row + columns.start * y.column, y.sample, y.channel, y.row * rows.out_stride,
        y.column * columns.out_stride,
    )  # fmt: skip
    pixels = [
        sample * sample_size + row * problem.width + column
        for sample in range(tiling.block_samples)
        for row in range(tiling.block_rows)
        for column in range(columns.extent)
    ]
    pixels += pixels[-1:] * (-len(pixels) % tile.rows)
    chunks = -(-problem.samples // tiling.block_samples) * problem.groups * row_blocks * bands
    return with_numbers(
        _kernel_ir(vector, tile, epilogue), [*numbers, *planes],
        [*planes.tables(problem, x), *tap_offsets, *pixels], chunks,
        (sums_at + len(pixels) * leading) * vector.size,
    )  # fmt: skip


@cache
def _kernel_ir(vector: Vector, tile: Tile, epilogue: Epilogue | None) -> Kernel:
    ir = KernelBuilder(vector, pointers(epilogue), (*_Numbers._fields, *Planes._fields))
    item, band = ir.split("%chunk", ir["bands"])
    image, block = ir.split(item, ir["row_blocks"])
    some, group = ir.split(image, ir["groups"])
    sample, row = ir.mul(some, ir["block_samples"]), ir.mul(block, ir["block_rows"])
    samples = ir.least(ir["block_samples"], ir.sub(ir["samples"], sample))
    rows = ir.least(ir["block_rows"], ir.sub(ir["count_rows"], row))
    first, last = ir.items(band, ir["band"], ir["panels"])
    x = ir.at(
        ir["x"],
        ir.mul(sample, ir["x_sample"]),
        ir.mul(group, ir["channels"], ir["x_channel"]),
    )
    with ir.loop(samples) as number:
        start = ir.at(x, ir.mul(number, ir["x_sample"]))
        to = ir.at(ir.scratch, ir.mul(number, ir["sample_size"]))
        pack_planes(ir, vector.lanes, start, row, to)
    panel = ir.add(ir.mul(group, ir["panels"]), first)
    pixels = ir.mul(samples, rows, ir["count_columns"])
    _multiply(ir, tile, panel, ir.sub(last, first), pixels)
    output = ir.mul(first, tile.vectors * vector.lanes)
    y = ir.at(
        ir["y"],
        ir["y_start"],
        ir.mul(sample, ir["y_sample"]),
        ir.mul(ir.add(ir.mul(group, ir["outputs"]), output), ir["y_channel"]),
        ir.mul(row, ir["y_row"]),
    )
    outputs = ir.least(ir["leading"], ir.sub(ir["outputs"], output))
    number = ir.add(ir.mul(group, ir["outputs"]), output)
    _write(ir, epilogue, y, number, samples, rows, outputs)
    return ir.kernel("conv_output_lanes")


def _multiply(ir: KernelBuilder, tile: Tile, panel: str, panels: str, pixels: str) -> None:
    """Compute all tiles of these pixels and panels."""
    wide = tile.vectors * ir.vector.lanes
    depth = ir.mul(ir["channels"], ir["taps"])
    weight = ir.at(ir["weight"], ir.mul(panel, depth, wide))
    sums = ir.at(ir.scratch, ir["sums_at"])
    table = ir.table(ir.mul(ir["planes"], 4))
    offsets = ir.table(ir.add(ir.mul(ir["planes"], 4), ir["taps"]))
    with (
        ir.loop(ir["channels"], ir["channel_block"]) as channel,
        ir.loop(panels) as number,
        ir.loop(pixels, tile.rows) as pixel,
    ):
        count = ir.least(ir["channel_block"], ir.sub(ir["channels"], channel))
        done = ir.add(ir.mul(number, depth), ir.mul(channel, ir["taps"]))
        a = ir.at(weight, ir.mul(done, wide))
        b = ir.at(ir.scratch, ir.mul(channel, ir["channel_size"]))
        c = ir.at(sums, ir.mul(pixel, ir["leading"]), ir.mul(number, wide))
        more = ir.op(f"icmp ne i64 {channel}, 0")
        here = ir.op(f"getelementptr i64, ptr {offsets}, i64 {pixel}")
        call_tile(
            ir, tile, a, b, c, ir["leading"], count, ir["channel_size"], ir["taps"],
            table, more, here,
        )  # fmt: skip


def _write(
    ir: KernelBuilder,
    epilogue: Epilogue | None,
    y: str,
    first: str,
    samples: str,
    rows: str,
    outputs: str,
) -> None:
    """Transpose the sums to NCHW, apply the epilogue and store. ``first`` is the first output
    channel, counted over all groups."""
    lanes, columns = ir.vector.lanes, ir["count_columns"]
    sums = ir.at(ir.scratch, ir["sums_at"])
    for kind in stored_strides(ir, epilogue, ir["y_column"]):
        with (
            ir.loop(samples) as sample,
            ir.loop(outputs, lanes) as output,
            ir.loop(rows) as row,
            ir.loop(columns, lanes) as column,
        ):
            before = ir.mul(ir.add(ir.mul(sample, rows), row), columns)
            left = ir.sub(columns, column)
            final = ir.sub(left, 1)
            corner = ir.at(sums, output, ir.mul(ir.add(before, column), ir["leading"]))
            block = [
                ir.load_vector(ir.at(corner, ir.mul(ir.least(str(n), final), ir["leading"])))
                for n in range(lanes)
            ]
            target = ir.at(
                y,
                ir.mul(sample, ir["y_sample"]),
                ir.mul(output, ir["y_channel"]),
                ir.mul(row, ir["y_row"]),
                ir.mul(column, ir["y_column"]),
            )
            there = ir.sub(outputs, output)
            for n, values in enumerate(transposed(ir, block)):
                is_there = ir.op(f"icmp sgt i64 {there}, {n}")
                count = ir.op(f"select i1 {is_there}, i64 {left}, i64 0")
                to = ir.at(target, ir.mul(ir["y_channel"], n))
                number = ir.add(first, ir.least(ir.add(output, n), ir.sub(outputs, 1)))
                values = emit_epilogue(ir, epilogue, values, Place(number, to, count))
                ir.store_strided(kind, values, to, ir["y_column"], count)
