"""Images with their pixels first, as the gradient of a convolution's weight reads them.

Squares of registers are exchanged, rows for columns. Whole registers are written, also where fewer
elements are meant: what comes too much is overwritten by what is written next, since both images
are written in the order of their pixels, x before y.
"""

from __future__ import annotations

from evergrad.compiler.codegen.ir_builder import KernelBuilder
from evergrad.compiler.kernels.conv.microkernel import Tile
from evergrad.compiler.kernels.gemm.microkernel import transposed


def lay_out_x(text: KernelBuilder, x: str, row: str, samples: str, rows: str) -> None:
    """Write padded rows of some samples to scratch memory: [samples, rows, columns, channels]. The
    last channels come first: what they write too much belongs to the first of the next pixel."""
    lanes = text.vector.lanes
    top = text.sub(text.mul(row, text["stride_rows"]), text["pad_rows"])
    high = text.add(text.mul(rows, text["stride_rows"]), text["extra_rows"])
    final = text.sub(text["channels"], 1)
    last_block = text.mul(text.op(f"udiv i64 {final}, {lanes}"), lanes)
    before = text.mul(text["pad_columns"], text["x_column"])
    for kind in text.by_stride(text["x_column"]):
        with text.loop(text["channels"], lanes) as done:
            channel = text.sub(last_block, done)
            starts = [
                text.at(x, text.mul(text.least(text.add(channel, n), final), text["x_channel"]))
                for n in range(lanes)
            ]
            with text.loop(samples) as sample, text.loop(high) as r:
                at = text.add(top, r)
                inside = text.op(f"icmp ult i64 {at}, {text['size_rows']}")
                upto = text.op(f"select i1 {inside}, i64 {text['last_column']}, i64 0")
                begin = text.add(text.mul(sample, text["x_sample"]), text.mul(at, text["x_row"]))
                begin = text.sub(begin, before)
                target = text.at(
                    text.scratch,
                    channel,
                    text.mul(sample, text["sample_size"]),
                    text.mul(r, text["width"], text["pixel"]),
                )
                _turn_channels(text, kind, [text.at(s, begin) for s in starts], target, upto)


def _turn_channels(
    text: KernelBuilder, kind: int, sources: list[str], target: str, upto: str
) -> None:
    """Write some channels of a row's pixels."""
    lanes, step = text.vector.lanes, text["x_column"]
    low = text.mul(text["first_column"], step)
    high = text.add(text.mul(text.sub(upto, 1), step), 1)
    with text.loop(text["width"], lanes) as column:
        start = text.mul(column, step)
        block = [
            text.load_strided(kind, source, start, step, low, high, "zeroinitializer")
            for source in sources
        ]
        to = text.at(target, text.mul(column, text["pixel"]))
        for n, pixel in enumerate(transposed(text, block)):
            text.store_vector(pixel, text.at(to, text.mul(text["pixel"], n)))


def lay_out_y(
    text: KernelBuilder, tile: Tile, y: str, samples: str, rows: str, first: str, blocks: str
) -> None:
    """Write the pixels of some blocks of outputs to scratch memory, each with ``rows`` of a tile's
    outputs: [blocks, pixels, outputs]. ``first`` is the first block."""
    final = text.sub(text["outputs"], 1)
    columns = text["count_columns"]
    size = text.mul(samples, rows, columns, tile.rows)
    for kind in text.by_stride(text["y_column"]):
        with text.loop(blocks) as number:
            top = text.mul(text.add(first, number), tile.rows)
            starts = [
                text.at(y, text.mul(text.least(text.add(top, r), final), text["y_channel"]))
                for r in range(tile.rows)
            ]
            target = text.at(text.scratch, text["y_at"], text.mul(number, size))
            with text.loop(samples) as sample, text.loop(rows) as row:
                begin = text.add(text.mul(sample, text["y_sample"]), text.mul(row, text["y_row"]))
                before = text.mul(text.add(text.mul(sample, rows), row), columns)
                to = text.at(target, text.mul(before, tile.rows))
                _turn_outputs(text, kind, [text.at(s, begin) for s in starts], to)


def _turn_outputs(text: KernelBuilder, kind: int, sources: list[str], target: str) -> None:
    """Write a row of pixels with one element of each source."""
    lanes, step, count = text.vector.lanes, text["y_column"], len(sources)
    high = text.add(text.mul(text.sub(text["count_columns"], 1), step), 1)
    with text.loop(text["count_columns"], lanes) as column:
        start = text.mul(column, step)
        blocks = []
        for first in range(0, count, lanes):
            block = [
                text.load_strided(kind, source, start, step, "0", high, "zeroinitializer")
                for source in sources[first : first + lanes]
            ]
            block += ["zeroinitializer"] * (lanes - len(block))
            blocks.append(transposed(text, block))
        to = text.at(target, text.mul(column, count))
        for n, parts in enumerate(zip(*blocks, strict=True)):
            for number, part in enumerate(parts):
                text.store_vector(part, text.at(to, n * count + number * lanes))
