"""Direct convolution with pixel lanes, for ``conv`` and ``conv_input``.

A chunk packs a few rows of a sample into padded planes in scratch memory. The outputs are then a
matrix product with an implicit im2col matrix, whose rows are slices of planes. The sums in the halo
between two rows are discarded when rows are stored.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from evergrad.compiler.codegen.epilogue import Epilogue
from evergrad.compiler.codegen.ir_builder import Vector
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.kernel_builder import KernelBuilder, items_per_chunk, with_numbers
from evergrad.compiler.kernels.conv.epilogue import (
    Place,
    emit_epilogue,
    pointers,
    stored_strides,
)
from evergrad.compiler.kernels.conv.microkernel import Tile, best_tile, call_tile, tile_cycles
from evergrad.compiler.kernels.conv.padded_planes import (
    Correlation,
    Planes,
    Strides,
    pack_planes,
)
from evergrad.compiler.native.target import machine

# Planes and sums of a chunk stay in a cache of this many bytes.
_CACHE = machine().l2_bytes // 2
# The depth of the reduction of one call of the microkernel: taps of a few channels.
_DEPTH = 256
# Images of more elements than this are split by rows until there are at least so many chunks.
_WORTH_CUTTING = 512
_FEW_CHUNKS = 4
# Cycles to copy a vector of a row.
# Fitted by tools/fit_kernel_costs.py.
_COPYING = 4.0


class _Numbers(NamedTuple):
    """Integer arguments besides those of planes; a table of tap offsets follows that of planes."""

    items: int
    per_chunk: int
    groups: int
    row_blocks: int
    block_rows: int
    count_rows: int
    count_columns: int
    outputs: int
    taps: int
    channel_block: int
    leading: int
    sums_at: int
    y_start: int
    y_sample: int
    y_channel: int
    y_row: int
    y_column: int


class DirectTiling(NamedTuple):
    """The register tile, the blocks of output channels as high as it, and the rows of a chunk."""

    tile: Tile
    blocks: int
    rows: int

    @classmethod
    def choose(cls, vector: Vector, problem: Correlation) -> DirectTiling:
        count = problem.rows.extent
        fewest = -(-count // problem.rows_fitting(_CACHE // vector.size, problem.outputs))
        if count * problem.width > _WORTH_CUTTING:
            few = -(-_FEW_CHUNKS // (problem.samples * problem.groups))
            fewest = min(count, max(fewest, few))
        tilings = [cls.into(vector, problem, n) for n in range(fewest, min(2 * fewest, count) + 1)]
        return min(tilings, key=lambda tiling: tiling.cycles(vector, problem))

    @classmethod
    def into(cls, vector: Vector, problem: Correlation, parts: int) -> DirectTiling:
        rows = -(-problem.rows.extent // parts)
        tile = best_tile(vector, problem.outputs, _pixels(problem, rows))
        return cls(tile, -(-problem.outputs // tile.rows), rows)

    def cycles(self, vector: Vector, problem: Correlation) -> float:
        """Estimated cycles of a sample: its tiles, packing planes and storing rows."""
        whole, rest = divmod(problem.rows.extent, self.rows)
        depth = problem.channels * len(problem.taps)
        total = 0.0
        for rows in [self.rows] * whole + [rest] * (rest > 0):
            pixels = _pixels(problem, rows)
            total += depth * tile_cycles(vector, self.tile, problem.outputs, pixels)
            copied = problem.channels * problem.planes * (rows + problem.rows.halo) * problem.width
            written = problem.outputs * rows * -(-problem.columns.extent // vector.lanes)
            total += _COPYING * (copied / vector.lanes + written)
        return total

    def passes(self, vector: Vector, problem: Correlation) -> float:
        """How often a sample reads the whole weight."""
        pixels = _pixels(problem, self.rows)
        blocks = -(-problem.rows.extent // self.rows)
        return blocks * -(-pixels // (self.tile.vectors * vector.lanes))


def _pixels(problem: Correlation, rows: int) -> int:
    """The elements of planes from the first to the last output of some rows."""
    return (rows - 1) * problem.width + problem.columns.extent


def direct_kernel(
    vector: Vector, problem: Correlation, x: Strides, y: Strides, epilogue: Epilogue | None
) -> Kernel:
    """The kernel with the arguments x, the packed weight, operands of the epilogue, and y."""
    tile, blocks, block = DirectTiling.choose(vector, problem)
    rows, columns = problem.rows, problem.columns
    planes = Planes.of(problem, x, block)
    wide = tile.vectors * vector.lanes
    leading = -(-_pixels(problem, block) // wide) * wide
    row_blocks = -(-rows.extent // block)
    items = problem.samples * problem.groups * row_blocks
    tap_offsets = planes.tap_offsets(problem)
    work = problem.outputs * problem.channels * len(tap_offsets) * block * problem.width
    per_chunk = items_per_chunk(items, work)
    numbers = _Numbers(
        items, per_chunk, problem.groups, row_blocks, block, rows.extent, columns.extent,
        problem.outputs, len(tap_offsets), max(1, _DEPTH // max(1, len(tap_offsets))), leading,
        planes.size(wide), rows.start * y.row + columns.start * y.column, y.sample, y.channel,
        y.row * rows.out_stride, y.column * columns.out_stride,
    )  # fmt: skip
    return with_numbers(
        _kernel_ir(vector, tile, epilogue), [*numbers, *planes],
        [*planes.tables(problem, x), *tap_offsets], -(-items // per_chunk),
        (planes.size(wide) + blocks * tile.rows * leading) * vector.size,
    )  # fmt: skip


# -- the kernel ---------------------------------------------------------------------------------


@cache
def _kernel_ir(vector: Vector, tile: Tile, epilogue: Epilogue | None) -> Kernel:
    ir = KernelBuilder(vector, pointers(epilogue), (*_Numbers._fields, *Planes._fields))
    first, last = ir.items("%chunk", ir["per_chunk"], ir["items"])
    with ir.loop(last, first=first) as item:
        image, block = ir.split(item, ir["row_blocks"])
        sample, group = ir.split(image, ir["groups"])
        row = ir.mul(block, ir["block_rows"])
        rows = ir.least(ir["block_rows"], ir.sub(ir["count_rows"], row))
        x = ir.at(
            ir["x"],
            ir.mul(sample, ir["x_sample"]),
            ir.mul(group, ir["channels"], ir["x_channel"]),
        )
        pack_planes(ir, tile.vectors * vector.lanes, x, row, ir.scratch)
        _multiply(ir, tile, group, rows)
        y = ir.at(
            ir["y"],
            ir["y_start"],
            ir.mul(sample, ir["y_sample"]),
            ir.mul(group, ir["outputs"], ir["y_channel"]),
            ir.mul(row, ir["y_row"]),
        )
        _write_rows(ir, epilogue, y, group, rows)
    return ir.kernel("conv_direct")


def _multiply(ir: KernelBuilder, tile: Tile, group: str, rows: str) -> None:
    """Compute all tiles of the outputs of these rows."""
    whole = ir.mul(ir.sub(rows, 1), ir["width"])
    pixels = ir.add(whole, ir["count_columns"])
    blocks = ir.op(f"udiv i64 {ir.add(ir['outputs'], tile.rows - 1)}, {tile.rows}")
    depth = ir.mul(ir["channels"], ir["taps"])
    weight = ir.at(ir["weight"], ir.mul(group, blocks, depth, tile.rows))
    sums = ir.at(ir.scratch, ir["sums_at"])
    table = ir.table(ir.mul(ir["planes"], 4))
    with (
        ir.loop(pixels, tile.vectors * ir.vector.lanes) as pixel,
        ir.loop(ir["channels"], ir["channel_block"]) as channel,
    ):
        count = ir.least(ir["channel_block"], ir.sub(ir["channels"], channel))
        b = ir.at(ir.scratch, ir.mul(channel, ir["channel_size"]), pixel)
        more = ir.op(f"icmp ne i64 {channel}, 0")
        with ir.loop(blocks) as number:
            done = ir.add(ir.mul(number, depth), ir.mul(channel, ir["taps"]))
            a = ir.at(weight, ir.mul(done, tile.rows))
            c = ir.at(sums, ir.mul(number, tile.rows, ir["leading"]), pixel)
            call_tile(
                ir, tile, a, b, c, ir["leading"], count, ir["channel_size"],
                ir["taps"], table, more,
            )  # fmt: skip


def _write_rows(
    ir: KernelBuilder, epilogue: Epilogue | None, y: str, group: str, rows: str
) -> None:
    """Apply the epilogue to the sums and store the rows of outputs."""
    sums, stride = ir.at(ir.scratch, ir["sums_at"]), ir["y_column"]
    for kind in stored_strides(ir, epilogue, stride):
        with ir.loop(ir["outputs"]) as channel, ir.loop(rows) as row:
            source = ir.at(sums, ir.mul(channel, ir["leading"]), ir.mul(row, ir["width"]))
            target = ir.at(y, ir.mul(channel, ir["y_channel"]), ir.mul(row, ir["y_row"]))
            output = ir.add(ir.mul(group, ir["outputs"]), channel)
            with ir.loop(ir["count_columns"], ir.vector.lanes) as j:
                left, to = ir.sub(ir["count_columns"], j), ir.at(target, ir.mul(j, stride))
                value = ir.load_vector(ir.at(source, j))
                value = emit_epilogue(ir, epilogue, value, Place(output, to, left))
                ir.store_strided(kind, value, to, stride, left)
