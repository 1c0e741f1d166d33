"""Convolution with batch lanes: for large batches of small images.

All lanes of a register are the same pixel of different samples: nothing is padded, and taps that
would read padding are skipped. A chunk computes some rows of outputs of a block of samples; a tile
is a few output channels of one pixel. The sums are transposed when they are stored.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import NamedTuple

from evergrad.compiler.codegen.epilogue import Epilogue
from evergrad.compiler.codegen.ir_builder import Vector
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.kernel_builder import ENOUGH_CHUNKS, KernelBuilder, with_numbers
from evergrad.compiler.kernels.conv.epilogue import (
    Place,
    emit_epilogue,
    pointers,
)
from evergrad.compiler.kernels.conv.microkernel import Tile
from evergrad.compiler.kernels.conv.pack_batch_lanes import Image
from evergrad.compiler.kernels.conv.padded_planes import Axis, Correlation, Strides
from evergrad.compiler.kernels.gemm.microkernel import transposed
from evergrad.compiler.native.target import machine

# A block of packed samples and the sums of a chunk stay in caches of so many bytes.
_NEAR = machine().l2_bytes
_SUMS = machine().l2_bytes // 4
# The channels that a tile reads at once stay in the first cache.
_NEAREST = machine().l1_bytes
# Cycles to load and store a vector of sums.
# Fitted by tools/fit_kernel_costs.py.
_KEEPING = 2.0
# Convolutions whose tiling is cached.
_KNOWN = 256
# Shapes of register tiles, for machines with 32 and with 16 registers.
_TILES_32 = (
    (6, 4), (8, 3), (12, 2), (24, 1), (5, 4), (4, 4), (3, 4), (2, 4), (1, 4), (7, 3), (4, 3),
    (10, 2), (8, 2), (6, 2), (20, 1), (16, 1), (12, 1), (8, 1),
)  # fmt: skip
_TILES_16 = ((3, 4), (4, 3), (6, 2), (12, 1), (2, 4), (1, 4), (3, 3), (4, 2), (8, 1))


class BatchLanesTiling(NamedTuple):
    """The register tile (output channels times vectors of samples), the rows of a chunk, and the
    channels that are reduced at a time."""

    tile: Tile
    block_rows: int
    channels: int

    @classmethod
    @lru_cache(_KNOWN)
    def choose(cls, vector: Vector, problem: Correlation) -> BatchLanesTiling:
        """The cheapest tiling for which a block of samples stays in cache."""
        shapes = _TILES_32 if vector.has_32_registers else _TILES_16
        near = [Tile(*t) for t in shapes if t[1] == 1 or _fits_cache(vector, problem, t[1])]
        tilings = [cls.of(vector, problem, tile) for tile in near]
        return min(tilings, key=lambda tiling: tiling.cycles(vector, problem))

    @classmethod
    def of(cls, vector: Vector, problem: Correlation, tile: Tile) -> BatchLanesTiling:
        """Rows are split until there are enough chunks and sums stay in cache."""
        rows, columns = problem.rows.extent, problem.columns.extent
        pixel = tile.vectors * vector.lanes * vector.size
        outputs = -(-problem.outputs // tile.rows) * tile.rows
        blocks = input_image(problem).blocks(vector, tile.vectors) * problem.groups
        sharing = rows // -(-ENOUGH_CHUNKS // blocks)
        block = max(1, min(sharing, _SUMS // (outputs * columns * pixel)))
        parts = -(-problem.channels // max(1, _NEAREST // (len(problem.taps) * pixel)))
        return cls(tile, -(-rows // -(-rows // block)), -(-problem.channels // parts))

    def cycles(self, vector: Vector, problem: Correlation) -> float:
        """Estimated cycles of a group of a sample, with packing it and transposing its outputs."""
        high, wide = self.tile
        image = input_image(problem)
        panels = -(-problem.outputs // high)
        cycles = machine().cycles(high * wide, high + wide + 1)
        pixels = problem.rows.extent * problem.columns.extent
        valid_pairs = problem.rows.valid_pairs * problem.columns.valid_pairs
        parts = -(-problem.channels // self.channels)
        total = panels * (
            problem.channels * valid_pairs * cycles + parts * pixels * high * wide * _KEEPING
        )
        packing = sum(i.packing_cycles(vector) for i in (image, output_image(problem)))
        return total * image.blocks(vector, wide) / problem.samples + packing / problem.groups


def input_image(problem: Correlation) -> Image:
    return Image(
        problem.samples, problem.groups * problem.channels, problem.rows.size, problem.columns.size
    )


def output_image(problem: Correlation) -> Image:
    rows, columns = problem.rows.extent, problem.columns.extent
    return Image(problem.samples, problem.groups * problem.outputs, rows, columns)


def _fits_cache(vector: Vector, problem: Correlation, vectors: int) -> bool:
    return input_image(problem).block_size(vector, vectors) * vector.size <= _NEAR


def supports_batch_lanes(vector: Vector, problem: Correlation, x: Strides) -> bool:
    """Whether a convolution can use batch lanes: images are small and contiguous, so are rows of
    outputs, and every axis has taps."""
    return (
        input_image(problem).is_contiguous(x)
        and all(axis.out_stride == 1 and axis.taps for axis in (problem.rows, problem.columns))
        and _fits_cache(vector, problem, 1)
    )


def _valid_taps(axis: Axis, output: int) -> tuple[int, int]:
    """The first tap that reads inside x for an output, and the number of such taps."""
    valid_pairs = [
        n for n, (_, shift) in enumerate(axis.taps)
        if 0 <= axis.stride * output + shift < axis.size
    ]  # fmt: skip
    return (valid_pairs[0], len(valid_pairs)) if valid_pairs else (0, 0)


def _tap_distance(axis: Axis) -> int:
    """The distance in x of two neighbouring taps."""
    shifts = [shift for _, shift in axis.taps[:2]]
    return shifts[-1] - shifts[0]


def _table(axis: Axis, stride: int) -> list[int]:
    """For each output the first tap that reads inside x, the number of such taps, and the offset
    that the first one reads, given the stride of the axis in packed x."""
    table = []
    for output in range(axis.extent):
        first, count = _valid_taps(axis, output)
        at = (axis.stride * output + axis.taps[first][1]) * stride if count else 0
        table += [first, count, at]
    return table


class _Numbers(NamedTuple):
    """Integer arguments; tables of rows and of columns follow."""

    groups: int
    samples: int
    row_blocks: int
    block_rows: int
    count_rows: int
    count_columns: int
    outputs: int
    panels: int
    channels: int
    channel_block: int
    taps: int
    tap_columns: int
    x_block: int
    x_channel: int
    x_row: int
    x_column: int
    y_sample: int
    y_channel: int


def batch_lanes_kernel(
    vector: Vector, problem: Correlation, x: Strides, y: Strides, epilogue: Epilogue | None
) -> Kernel:
    """The kernel with the arguments packed x, packed weight, operands of the epilogue, and y."""
    tiling = BatchLanesTiling.choose(vector, problem)
    tile, rows, columns, image = tiling.tile, problem.rows, problem.columns, input_image(problem)
    batch_lanes = tile.vectors * vector.lanes
    panels = -(-problem.outputs // tile.rows)
    row_blocks = -(-rows.extent // tiling.block_rows)
    row_stride = image.columns * batch_lanes
    numbers = _Numbers(
        problem.groups, problem.samples, row_blocks, tiling.block_rows, rows.extent, columns.extent,
        problem.outputs, panels, problem.channels, tiling.channels, len(problem.taps),
        len(columns.taps), image.block_size(vector, tile.vectors), image.plane * batch_lanes,
        _tap_distance(rows) * row_stride, _tap_distance(columns) * batch_lanes, y.sample, y.channel,
    )  # fmt: skip
    pixels = -(-tiling.block_rows * columns.extent // vector.lanes) * vector.lanes
    return with_numbers(
        _kernel_ir(vector, tile, epilogue), numbers,
        [*_table(rows, row_stride), *_table(columns, batch_lanes)],
        image.blocks(vector, tile.vectors) * problem.groups * row_blocks,
        (panels * tile.rows * tiling.block_rows * columns.extent + pixels) * batch_lanes
        * vector.size,
    )  # fmt: skip


# -- the kernel ---------------------------------------------------------------------------------


@cache
def _kernel_ir(vector: Vector, tile: Tile, epilogue: Epilogue | None) -> Kernel:
    ir = KernelBuilder(vector, pointers(epilogue), _Numbers._fields)
    batch_lanes = tile.vectors * vector.lanes
    image, part = ir.split("%chunk", ir["row_blocks"])
    block, group = ir.split(image, ir["groups"])
    row = ir.mul(part, ir["block_rows"])
    rows = ir.least(ir["block_rows"], ir.sub(ir["count_rows"], row))
    x = ir.at(
        ir["x"],
        ir.mul(block, ir["x_block"]),
        ir.mul(group, ir["channels"], ir["x_channel"]),
    )
    leading = ir.mul(ir["block_rows"], ir["count_columns"], batch_lanes)
    _multiply(ir, tile, x, group, row, rows, leading)
    output = ir.mul(group, ir["outputs"])
    y = ir.at(
        ir["y"],
        ir.mul(output, ir["y_channel"]),
        ir.mul(row, ir["count_columns"]),
    )
    pixels = ir.mul(rows, ir["count_columns"])
    _write(ir, epilogue, batch_lanes, y, ir.mul(block, batch_lanes), output, pixels, leading)
    return ir.kernel("conv_batch_lanes")


def _multiply(
    ir: KernelBuilder, tile: Tile, x: str, group: str, row: str, rows: str, leading: str
) -> None:
    """Compute all tiles of these rows, a block of channels at a time."""
    depth = ir.mul(ir["channels"], ir["taps"], tile.rows)
    weight = ir.at(ir["weight"], ir.mul(group, ir["panels"], depth))
    columns_at = ir.mul(ir["count_rows"], 3)
    batch_lanes = tile.vectors * ir.vector.lanes
    with (
        ir.loop(ir["channels"], ir["channel_block"]) as channel,
        ir.loop(rows) as r,
        ir.loop(ir["count_columns"]) as column,
    ):
        count = ir.least(ir["channel_block"], ir.sub(ir["channels"], channel))
        more = ir.op(f"icmp ne i64 {channel}, 0")
        entries = [
            ir.table(ir.mul(ir.add(row, r), 3)),
            ir.table(ir.add(columns_at, ir.mul(column, 3))),
        ]
        (top, high, x_row), (left, wide, x_column) = (
            [ir.number(entry, n) for n in range(3)] for entry in entries
        )
        b = ir.at(x, ir.mul(channel, ir["x_channel"]), x_row, x_column)
        tap = ir.add(ir.mul(top, ir["tap_columns"]), left)
        start = ir.mul(ir.add(ir.mul(channel, ir["taps"]), tap), tile.rows)
        pixel = ir.add(ir.mul(r, ir["count_columns"]), column)
        with ir.loop(ir["panels"]) as panel:
            a = ir.at(weight, ir.mul(panel, depth), start)
            c = ir.at(ir.scratch, ir.mul(panel, tile.rows, leading), ir.mul(pixel, batch_lanes))
            _tile(ir, tile, a, b, _addresses(ir, tile, c, leading), (count, high, wide), more)


def _addresses(ir: KernelBuilder, tile: Tile, c: str, leading: str) -> list[str]:
    """The addresses of the sums of a tile."""
    rows = [ir.at(c, ir.mul(leading, r)) for r in range(tile.rows)]
    return [ir.at(row, v * ir.vector.lanes) for row in rows for v in range(tile.vectors)]


def _tile(
    ir: KernelBuilder,
    tile: Tile,
    a: str,
    b: str,
    sums: list[str],
    counts: tuple[str, str, str],
    more: str,
) -> None:
    """Accumulate the products of some channels and the valid rows and columns of the kernel; onto
    the sums in memory if ``more``."""

    def typed(values: list[str]) -> list[tuple[str, str]]:
        return [(ir.vector.type, value) for value in values]

    masks = ir.splat(more, "i1")
    start = [ir.load_masked(at, masks) for at in sums]
    channels, rows, columns = counts
    with ir.carrying_loop(channels, typed(start)) as (channel, outer):
        a = ir.at(a, ir.mul(channel, ir["taps"], tile.rows))
        b = ir.at(b, ir.mul(channel, ir["x_channel"]))
        with ir.carrying_loop(rows, typed(outer.values)) as (row, middle):
            a = ir.at(a, ir.mul(row, ir["tap_columns"], tile.rows))
            b = ir.at(b, ir.mul(row, ir["x_row"]))
            with ir.carrying_loop(columns, typed(middle.values)) as (column, inner):
                factors = ir.at(a, ir.mul(column, tile.rows))
                values = ir.at(b, ir.mul(column, ir["x_column"]))
                inner.after = _products(ir, tile, factors, values, inner.values)
            middle.after = inner.values
        outer.after = middle.values
    for address, value in zip(sums, outer.values, strict=True):
        ir.store_vector(value, address)


def _products(ir: KernelBuilder, tile: Tile, a: str, b: str, sums: list[str]) -> list[str]:
    """The sums after one multiply-add each."""
    values = [ir.load_vector(ir.at(b, v * ir.vector.lanes)) for v in range(tile.vectors)]
    after = []
    for r in range(tile.rows):
        factor = ir.splat(ir.load(ir.at(a, r)), ir.vector.element)
        for v, value in enumerate(values):
            after.append(ir.multiply_add(factor, value, sums[r * tile.vectors + v]))
    return after


def _write(
    ir: KernelBuilder,
    epilogue: Epilogue | None,
    batch_lanes: int,
    y: str,
    first: str,
    output: str,
    pixels: str,
    leading: str,
) -> None:
    """Transpose the sums to NCHW, apply the epilogue and store the samples from ``first`` on. In
    descending order: lanes past the batch are stored to its last sample, which overwrites them."""
    lanes = ir.vector.lanes
    final = ir.sub(ir["samples"], 1)
    count = ir.least(str(batch_lanes), ir.sub(ir["samples"], first))
    with ir.loop(count, lanes) as some:
        samples = [ir.least(ir.add(first, some, n), final) for n in range(lanes)]
        starts = [ir.at(y, ir.mul(sample, ir["y_sample"])) for sample in samples]
        with ir.loop(ir["outputs"]) as o, ir.loop(pixels, lanes) as pixel:
            corner = ir.at(ir.scratch, some, ir.mul(o, leading), ir.mul(pixel, batch_lanes))
            block = [ir.load_vector(ir.at(corner, n * batch_lanes)) for n in range(lanes)]
            mask = ir.range_mask(ir.lane_indices("0"), "0", ir.sub(pixels, pixel))
            to = ir.add(ir.mul(o, ir["y_channel"]), pixel)
            stores = zip(starts, transposed(ir, block), strict=True)
            for start, values in reversed(list(stores)):
                place = Place(ir.add(output, o), ir.at(start, to), ir.sub(pixels, pixel))
                values = emit_epilogue(ir, epilogue, values, place)
                ir.store_masked(values, place.address, mask)
