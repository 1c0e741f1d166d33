"""Weight gradient of a convolution with implicit im2col: a matrix product over pixels.

A chunk takes some rows of a sample, or some samples if these are small, for one group and a band of
its output channels. It packs x to padded NHWC, in which a row of a window is a contiguous *run* of
the im2col matrix, and y to NHWC; the gradient of a run is a matrix product reduced over all pixels.
Partitions of the pixels leave partial sums, and a second kernel reduces these in a fixed order.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from evergrad.compiler.codegen.ir_builder import Vector
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.kernel_builder import (
    ENOUGH_CHUNKS,
    MAX_CHUNK_WORK,
    KernelBuilder,
    with_numbers,
)
from evergrad.compiler.kernels.conv.microkernel import Tile, best_tile, call_tile, tile_cycles
from evergrad.compiler.kernels.conv.pack_nhwc import pack_x, pack_y
from evergrad.compiler.kernels.conv.padded_planes import Strides
from evergrad.compiler.native.target import machine

# The rows of a chunk stay in a cache of this many bytes; a tile reduces so many pixels at once.
_CACHE = 3 * machine().l2_bytes // 8
_DEPTH = 192
# Partial sums of all chunks have at most this many bytes; those of one chunk should stay in cache.
_SUMS = min(16 << 20, machine().l3_bytes // 2)
_BAND = machine().l2_bytes // 2
# There are at least so many chunks, if there is work; more of them have at least so many pixels.
_FEW_CHUNKS = 4
_LONG_PART = 512
# A band has at least so many products for each element of x that is packed for it.
_WORTH_LAYING = 128
# With so many channels pixels are padded, and each column of the kernel is a run.
_MANY_CHANNELS = 128
# Cycles to pack an element.
# Fitted by tools/fit_kernel_costs.py.
_LAYING = 0.4


class WindowAxis(NamedTuple):
    """Window geometry of one dimension: x has ``size`` elements, y has ``extent``."""

    size: int
    extent: int
    kernel: int
    stride: int
    dilation: int
    padding: int

    def input_extent(self, count: int) -> int:
        """The elements of padded x that ``count`` outputs read."""
        return (count - 1) * self.stride + self.dilation * (self.kernel - 1) + 1


class WeightGradient(NamedTuple):
    """The shape of a weight gradient."""

    samples: int
    groups: int
    channels: int
    outputs: int
    rows: WindowAxis
    columns: WindowAxis

    @property
    def is_split(self) -> bool:
        """Whether each column of the kernel is a run of its own."""
        return self.columns.dilation > 1 or self.channels >= _MANY_CHANNELS

    @property
    def width(self) -> int:
        """The pixels of a row of x."""
        return self.columns.input_extent(self.columns.extent)

    @property
    def run_length(self) -> int:
        return self.channels * (1 if self.is_split else self.columns.kernel)

    def pixel(self, vector: Vector) -> int:
        """The stride of pixels of packed x: with many channels an odd number of vectors, as powers
        of two would share cache sets."""
        if self.channels < _MANY_CHANNELS:
            return self.channels
        return (-(-self.channels // vector.lanes) | 1) * vector.lanes

    def runs(self, vector: Vector) -> list[int]:
        """The offset of each run from the start of its window."""
        starts = [r * self.rows.dilation * self.width for r in range(self.rows.kernel)]
        if self.is_split:
            across = [c * self.columns.dilation for c in range(self.columns.kernel)]
            starts = [row + column for row in starts for column in across]
        return [start * self.pixel(vector) for start in starts]


class Im2colTiling(NamedTuple):
    """The register tile, the samples and rows packed at a time, and the partitions of the
    reduction."""

    tile: Tile
    blocks: int  # of output channels, as high as a tile
    padded_run: int
    leading: int  # dimension of the sums
    is_whole: bool  # a tile reduces whole samples rather than rows
    block_samples: int
    block_rows: int
    items: int
    parts: int
    band: int  # blocks of output channels

    @classmethod
    def choose(cls, vector: Vector, problem: WeightGradient) -> Im2colTiling:
        tile = best_tile(vector, problem.outputs, problem.run_length)
        wide = tile.vectors * vector.lanes
        padded_run = -(-problem.run_length // wide) * wide
        leading = padded_run * len(problem.runs(vector))
        blocks = -(-problem.outputs // tile.rows)
        band = _band(vector, problem, tile, blocks, leading)
        is_whole = problem.rows.extent * problem.columns.extent <= _DEPTH
        block_samples, block = _block_shape(vector, problem, band * tile.rows, is_whole)
        items = -(-problem.samples // block_samples) * -(-problem.rows.extent // block)
        sums = blocks * tile.rows * leading
        pixels = problem.columns.extent * block * block_samples * items
        chunks = problem.groups * -(-blocks // band)
        few, many = -(-_FEW_CHUNKS // chunks), -(-ENOUGH_CHUNKS // chunks)
        fitting = _SUMS // (sums * vector.size * problem.groups)
        many = min(many, max(few, min(pixels // _LONG_PART, fitting)))
        parts = max(1, min(items, many, sums * pixels // MAX_CHUNK_WORK))
        parts = -(-items // -(-items // parts))
        return cls(
            tile, blocks, padded_run, leading, is_whole, block_samples, block, items, parts, band
        )

    @property
    def sums(self) -> int:
        """The elements of the sums of a group."""
        return self.blocks * self.tile.rows * self.leading

    @property
    def bands(self) -> int:
        return -(-self.blocks // self.band)


def _band(vector: Vector, problem: WeightGradient, tile: Tile, blocks: int, leading: int) -> int:
    """The blocks of output channels of a chunk: all, or those of an even number of bands."""
    fitting = _BAND // (tile.rows * leading * vector.size)
    taps = problem.rows.kernel * problem.columns.kernel
    least = -(-_WORTH_LAYING // (taps * tile.rows))
    bands = -(-blocks // max(1, fitting, least))
    bands += bands % 2 if bands > 1 else 0
    return -(-blocks // bands)


def _block_shape(
    vector: Vector, problem: WeightGradient, outputs: int, is_whole: bool
) -> tuple[int, int]:
    """The samples and rows that are packed at a time."""
    rows, columns = problem.rows, problem.columns
    pixel = problem.pixel(vector)
    if is_whole:
        size = rows.input_extent(rows.extent) * problem.width * pixel
        size += rows.extent * columns.extent * outputs
        return max(1, min(problem.samples, _CACHE // (size * vector.size))), rows.extent
    row = problem.width * pixel * rows.stride + columns.extent * outputs
    block = max(1, min(rows.extent, _CACHE // (row * vector.size)))
    return 1, -(-rows.extent // -(-rows.extent // block))


def im2col_cycles(vector: Vector, problem: WeightGradient) -> float:
    """Estimated cycles of a pixel of y, with packing x and y."""
    tile = best_tile(vector, problem.outputs, problem.run_length)
    packed = problem.rows.stride * problem.columns.stride * -(-problem.channels // vector.lanes)
    packed = (packed + -(-problem.outputs // vector.lanes)) * vector.lanes
    products = tile_cycles(vector, tile, problem.outputs, problem.run_length)
    return len(problem.runs(vector)) * products + _LAYING * packed


def im2col_sum_bytes(vector: Vector, problem: WeightGradient) -> int:
    """The bytes of the partial sums, and of a vector that is read past their end."""
    tiling = Im2colTiling.choose(vector, problem)
    return (tiling.parts * problem.groups * tiling.sums + vector.lanes) * vector.size


def sums_are_gradient(vector: Vector, problem: WeightGradient) -> bool:
    """Whether the sums have the layout of the gradient and need no reduction."""
    tiling = Im2colTiling.choose(vector, problem)
    is_full = tiling.sums == problem.outputs * problem.channels
    return (
        tiling.parts == 1 and is_full and len(problem.runs(vector)) == problem.columns.kernel == 1
    )


class _Numbers(NamedTuple):
    """Integer arguments; the tables of pixel offsets in a unit (a row of pixels or a sample) and of
    runs follow."""

    groups: int
    bands: int
    band: int
    blocks: int
    items: int
    per_part: int
    samples: int
    block_samples: int
    row_blocks: int
    block_rows: int
    unit_rows: int
    unit_pixels: int
    unit_stride: int
    sub_block: int
    channels: int
    outputs: int
    count_rows: int
    count_columns: int
    size_rows: int
    stride_rows: int
    extra_rows: int
    pad_rows: int
    pad_columns: int
    width: int
    first_column: int
    last_column: int
    pixel: int
    sample_size: int
    runs: int
    padded_run: int
    leading: int
    sums_size: int
    y_at: int
    x_sample: int
    x_channel: int
    x_row: int
    x_column: int
    y_sample: int
    y_channel: int
    y_row: int
    y_column: int


def im2col_kernel(vector: Vector, problem: WeightGradient, x: Strides, y: Strides) -> Kernel:
    """The kernel with the arguments y, x and the partial sums."""
    tiling = Im2colTiling.choose(vector, problem)
    rows, columns, tile = problem.rows, problem.columns, tiling.tile
    pixel, runs = problem.pixel(vector), problem.runs(vector)
    row_size = problem.width * pixel
    sample_size = rows.input_extent(tiling.block_rows) * row_size
    wide = tile.vectors * vector.lanes
    y_at = (tiling.block_samples * sample_size // wide + 3) * wide
    first = min(max(0, columns.padding), problem.width)
    last = min(problem.width, columns.size + columns.padding)
    unit_rows = rows.extent if tiling.is_whole else 1
    unit_pixels = unit_rows * columns.extent
    numbers = _Numbers(
        problem.groups, tiling.bands, tiling.band, tiling.blocks, tiling.items,
        -(-tiling.items // tiling.parts), problem.samples, tiling.block_samples,
        -(-rows.extent // tiling.block_rows), tiling.block_rows,
        unit_rows, unit_pixels, sample_size if tiling.is_whole else rows.stride * row_size,
        max(1, _DEPTH // unit_pixels), problem.channels, problem.outputs, rows.extent,
        columns.extent, rows.size, rows.stride, rows.input_extent(1) - rows.stride, rows.padding,
        columns.padding, problem.width, first, max(first, last), pixel, sample_size, len(runs),
        tiling.padded_run, tiling.leading, tiling.sums, y_at, *x, *y,
    )  # fmt: skip
    pixels = [
        r * rows.stride * row_size + c * columns.stride * pixel
        for r in range(unit_rows)
        for c in range(columns.extent)
    ]
    y_size = tiling.block_samples * tiling.block_rows * columns.extent * tiling.band * tile.rows
    overrun = vector.lanes * (max(pixel, tile.rows) + 2)  # of the last stores
    return with_numbers(
        _kernel_ir(vector, tile), numbers, [*pixels, *runs],
        tiling.parts * problem.groups * tiling.bands,
        (y_at + y_size + overrun) * vector.size,
    )  # fmt: skip


@cache
def _kernel_ir(vector: Vector, tile: Tile) -> Kernel:
    ir = KernelBuilder(vector, ("y", "x", "sums"), _Numbers._fields)
    partition, band = ir.split("%chunk", ir["bands"])
    part, group = ir.split(partition, ir["groups"])
    first, last = ir.items(part, ir["per_part"], ir["items"])
    first_block, end = ir.items(band, ir["band"], ir["blocks"])
    blocks = ir.sub(end, first_block)
    sums = ir.at(
        ir["sums"],
        ir.mul(partition, ir["sums_size"]),
        ir.mul(first_block, tile.rows, ir["leading"]),
    )
    x = ir.at(ir["x"], ir.mul(group, ir["channels"], ir["x_channel"]))
    y = ir.at(ir["y"], ir.mul(group, ir["outputs"], ir["y_channel"]))
    with ir.loop(last, first=first) as item:
        some, block = ir.split(item, ir["row_blocks"])
        sample, row = ir.mul(some, ir["block_samples"]), ir.mul(block, ir["block_rows"])
        samples = ir.least(ir["block_samples"], ir.sub(ir["samples"], sample))
        rows = ir.least(ir["block_rows"], ir.sub(ir["count_rows"], row))
        x_start = ir.at(x, ir.mul(sample, ir["x_sample"]))
        pack_x(ir, x_start, row, samples, rows)
        y_start = ir.at(y, ir.mul(sample, ir["y_sample"]), ir.mul(row, ir["y_row"]))
        pack_y(ir, tile, y_start, samples, rows, first_block, blocks)
        is_later = ir.op(f"icmp ne i64 {item}, {first}")
        units = ir.op(f"udiv i64 {ir.mul(samples, rows)}, {ir['unit_rows']}")
        _multiply(ir, tile, sums, units, blocks, is_later)
    return ir.kernel("conv_im2col_weight_grad")


def _multiply(
    ir: KernelBuilder, tile: Tile, sums: str, units: str, blocks: str, is_later: str
) -> None:
    """Accumulate the products of these rows or samples onto all tiles of the sums."""
    pixels = ir.mul(units, ir["unit_pixels"])
    table = ir.table()
    runs = ir.table(ir["unit_pixels"])
    with ir.loop(units, ir["sub_block"]) as unit, ir.loop(ir["runs"]) as run:
        count = ir.least(ir["sub_block"], ir.sub(units, unit))
        begin = ir.at(ir.scratch, ir.mul(unit, ir["unit_stride"]), ir.number(runs, run))
        column = ir.mul(run, ir["padded_run"])
        below = ir.op(f"icmp ne i64 {unit}, 0")
        more = ir.op(f"or i1 {below}, {is_later}")
        with (
            ir.loop(ir["padded_run"], tile.vectors * ir.vector.lanes) as q,
            ir.loop(blocks) as number,
        ):
            done = ir.add(ir.mul(number, pixels), ir.mul(unit, ir["unit_pixels"]))
            a = ir.at(ir.scratch, ir["y_at"], ir.mul(done, tile.rows))
            c = ir.at(sums, ir.mul(number, tile.rows, ir["leading"]), column, q)
            call_tile(
                ir, tile, a, ir.at(begin, q), c, ir["leading"], count, ir["unit_stride"],
                ir["unit_pixels"], table, more,
            )  # fmt: skip


# -- reduction of partial sums -------------------------------------------------------------------


class _SumNumbers(NamedTuple):
    items: int
    per_chunk: int
    parts: int
    part_stride: int
    outputs: int
    group_stride: int
    leading: int
    channels: int
    kernel_rows: int
    kernel_columns: int
    row_stride: int
    column_stride: int


def im2col_sum_kernel(vector: Vector, problem: WeightGradient) -> Kernel:
    """The kernel that reduces partial sums and stores them in the layout of a weight, channels
    first; its arguments are the sums and the gradient."""
    tiling = Im2colTiling.choose(vector, problem)
    items = problem.groups * problem.outputs
    per_chunk = max(1, min(items, (1 << 15) // (tiling.leading * tiling.parts)))
    if problem.is_split:
        row_stride, column_stride = problem.columns.kernel * tiling.padded_run, tiling.padded_run
    else:
        row_stride, column_stride = tiling.padded_run, problem.channels
    numbers = _SumNumbers(
        items, per_chunk, tiling.parts, problem.groups * tiling.sums, problem.outputs,
        tiling.sums, tiling.leading, problem.channels, problem.rows.kernel, problem.columns.kernel,
        row_stride, column_stride,
    )  # fmt: skip
    return with_numbers(_sum_kernel_ir(vector), numbers, [], -(-items // per_chunk))


@cache
def _sum_kernel_ir(vector: Vector) -> Kernel:
    ir = KernelBuilder(vector, ("sums", "out"), _SumNumbers._fields)
    first, last = ir.items("%chunk", ir["per_chunk"], ir["items"])
    columns = ir["kernel_columns"]
    taps = ir.mul(ir["kernel_rows"], columns)
    for kind in ir.by_stride(taps):
        with (
            ir.loop(last, first=first) as item,
            ir.loop(ir["kernel_rows"]) as r,
            ir.loop(columns) as c,
            ir.loop(ir["channels"], vector.lanes) as channel,
        ):
            group, output = ir.split(item, ir["outputs"])
            at = ir.at(
                ir["sums"], channel,
                ir.mul(group, ir["group_stride"]), ir.mul(output, ir["leading"]),
                ir.mul(r, ir["row_stride"]), ir.mul(c, ir["column_stride"]),
            )  # fmt: skip
            start = [(vector.type, ir.load_vector(at))]
            with ir.carrying_loop(ir["parts"], start, first=1) as (part, held):
                other = ir.load_vector(ir.at(at, ir.mul(part, ir["part_stride"])))
                held.after = [ir.op(f"fadd {vector.type} {held.values[0]}, {other}")]
            element = ir.add(ir.mul(item, ir["channels"]), channel)
            to = ir.at(ir["out"], ir.mul(element, taps), ir.mul(r, columns), c)
            left = ir.sub(ir["channels"], channel)
            ir.store_strided(kind, held.values[0], to, taps, left)
    return ir.kernel("conv_im2col_weight_grad_sum")
