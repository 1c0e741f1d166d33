"""NHWC packing of images for the weight gradient of a convolution.

Square blocks of registers are transposed. Whole registers are stored, also for a partial block: the
excess is overwritten by later stores, since both images are stored in ascending order of pixels, x
before y.
"""

from __future__ import annotations

from evergrad.compiler.codegen.kernel_builder import KernelBuilder
from evergrad.compiler.kernels.conv.microkernel import Tile
from evergrad.compiler.kernels.gemm.microkernel import transposed


def pack_x(ir: KernelBuilder, x: str, row: str, samples: str, rows: str) -> None:
    """Pack padded rows of some samples into scratch memory: [samples, rows, columns, channels].
    Blocks of channels are in descending order: the excess of the last one is in the first block of
    the next pixel."""
    lanes = ir.vector.lanes
    top = ir.sub(ir.mul(row, ir["stride_rows"]), ir["pad_rows"])
    high = ir.add(ir.mul(rows, ir["stride_rows"]), ir["extra_rows"])
    final = ir.sub(ir["channels"], 1)
    last_block = ir.mul(ir.op(f"udiv i64 {final}, {lanes}"), lanes)
    before = ir.mul(ir["pad_columns"], ir["x_column"])
    for kind in ir.by_stride(ir["x_column"]):
        with ir.loop(ir["channels"], lanes) as done:
            channel = ir.sub(last_block, done)
            starts = [
                ir.at(x, ir.mul(ir.least(ir.add(channel, n), final), ir["x_channel"]))
                for n in range(lanes)
            ]
            with ir.loop(samples) as sample, ir.loop(high) as r:
                at = ir.add(top, r)
                inside = ir.op(f"icmp ult i64 {at}, {ir['size_rows']}")
                upto = ir.op(f"select i1 {inside}, i64 {ir['last_column']}, i64 0")
                begin = ir.add(ir.mul(sample, ir["x_sample"]), ir.mul(at, ir["x_row"]))
                begin = ir.sub(begin, before)
                target = ir.at(
                    ir.scratch,
                    channel,
                    ir.mul(sample, ir["sample_size"]),
                    ir.mul(r, ir["width"], ir["pixel"]),
                )
                _transpose_channels(ir, kind, [ir.at(s, begin) for s in starts], target, upto)


def _transpose_channels(
    ir: KernelBuilder, kind: int, sources: list[str], target: str, upto: str
) -> None:
    """Store a block of channels of a row of pixels."""
    lanes, stride = ir.vector.lanes, ir["x_column"]
    low = ir.mul(ir["first_column"], stride)
    high = ir.add(ir.mul(ir.sub(upto, 1), stride), 1)
    with ir.loop(ir["width"], lanes) as column:
        start = ir.mul(column, stride)
        block = [
            ir.load_strided(kind, source, start, stride, low, high, "zeroinitializer")
            for source in sources
        ]
        to = ir.at(target, ir.mul(column, ir["pixel"]))
        for n, pixel in enumerate(transposed(ir, block)):
            ir.store_vector(pixel, ir.at(to, ir.mul(ir["pixel"], n)))


def pack_y(
    ir: KernelBuilder, tile: Tile, y: str, samples: str, rows: str, first: str, blocks: str
) -> None:
    """Pack some blocks of as many output channels as a tile has rows into scratch memory: [blocks,
    pixels, output channels]. ``first`` is the first block."""
    final = ir.sub(ir["outputs"], 1)
    columns = ir["count_columns"]
    size = ir.mul(samples, rows, columns, tile.rows)
    for kind in ir.by_stride(ir["y_column"]):
        with ir.loop(blocks) as number:
            top = ir.mul(ir.add(first, number), tile.rows)
            starts = [
                ir.at(y, ir.mul(ir.least(ir.add(top, r), final), ir["y_channel"]))
                for r in range(tile.rows)
            ]
            target = ir.at(ir.scratch, ir["y_at"], ir.mul(number, size))
            with ir.loop(samples) as sample, ir.loop(rows) as row:
                begin = ir.add(ir.mul(sample, ir["y_sample"]), ir.mul(row, ir["y_row"]))
                before = ir.mul(ir.add(ir.mul(sample, rows), row), columns)
                to = ir.at(target, ir.mul(before, tile.rows))
                _transpose_outputs(ir, kind, [ir.at(s, begin) for s in starts], to)


def _transpose_outputs(ir: KernelBuilder, kind: int, sources: list[str], target: str) -> None:
    """Store a row of pixels with one element of each source."""
    lanes, stride, count = ir.vector.lanes, ir["y_column"], len(sources)
    high = ir.add(ir.mul(ir.sub(ir["count_columns"], 1), stride), 1)
    with ir.loop(ir["count_columns"], lanes) as column:
        start = ir.mul(column, stride)
        blocks = []
        for first in range(0, count, lanes):
            block = [
                ir.load_strided(kind, source, start, stride, "0", high, "zeroinitializer")
                for source in sources[first : first + lanes]
            ]
            block += ["zeroinitializer"] * (lanes - len(block))
            blocks.append(transposed(ir, block))
        to = ir.at(target, ir.mul(column, count))
        for n, parts in enumerate(zip(*blocks, strict=True)):
            for number, part in enumerate(parts):
                ir.store_vector(part, ir.at(to, n * count + number * lanes))
