"""The gradient of a convolution's weight: the kernel behind ``conv_weight``.

A chunk goes through some rows of some samples for one group. It lays x out with channels last and
padding, so that the elements of a window that share a row lie in one *run*, and y with its pixels
first; a run times the pixels of y is a product of matrices over all pixels. Every chunk leaves sums
of its own, and a second kernel adds these up in their order.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from evergrad.compiler.conv_planes import Steps
from evergrad.compiler.conv_text import ENOUGH_CHUNKS, PIECE, Text, Vector, numbered
from evergrad.compiler.conv_tile import Tile, best_tile, call_tile, tile_cycles
from evergrad.compiler.kernel import Kernel

# The rows of a chunk stay in a cache of this many bytes; a tile goes through so many pixels.
_CACHE = 384 << 10
_DEPTH = 192
# All chunks together may leave sums of this many bytes.
_SUMS = 16 << 20


class Side(NamedTuple):
    """One dimension: x has ``size`` elements, y has ``extent``."""

    size: int
    extent: int
    kernel: int
    stride: int
    dilation: int
    padding: int

    def needed(self, count: int) -> int:
        """How many elements of padded x so many outputs need."""
        return (count - 1) * self.stride + self.dilation * (self.kernel - 1) + 1


class WeightGradient(NamedTuple):
    """The problem, and how it is cut."""

    samples: int
    groups: int
    channels: int
    outputs: int
    rows: Side
    columns: Side

    @property
    def runs(self) -> list[int]:
        """Where each run begins, from where its window does."""
        width = self.columns.needed(self.columns.extent)
        starts = [r * self.rows.dilation * width for r in range(self.rows.kernel)]
        if self.columns.dilation > 1:
            across = [c * self.columns.dilation for c in range(self.columns.kernel)]
            starts = [row + column for row in starts for column in across]
        return [start * self.channels for start in starts]

    @property
    def run_length(self) -> int:
        return self.channels * (1 if self.columns.dilation > 1 else self.columns.kernel)


class Cut(NamedTuple):
    """Tiles, the rows laid out at a time, and the parts of the work."""

    tile: Tile
    blocks: int
    padded_run: int
    block: int
    items: int
    parts: int

    @classmethod
    def choose(cls, vector: Vector, given: WeightGradient) -> Cut:
        tile = best_tile(vector, given.outputs, given.run_length)
        wide = tile.vectors * vector.lanes
        padded_run = -(-given.run_length // wide) * wide
        blocks = -(-given.outputs // tile.rows)
        rows, columns = given.rows, given.columns
        row = columns.needed(columns.extent) * given.channels * rows.stride
        row += columns.extent * blocks * tile.rows
        block = max(1, min(rows.extent, _CACHE // (row * vector.size)))
        block = -(-rows.extent // -(-rows.extent // block))
        items = given.samples * -(-rows.extent // block)
        sums = blocks * tile.rows * len(given.runs) * padded_run
        work = sums * columns.extent * block * items
        most = min(items, ENOUGH_CHUNKS, max(2, _SUMS // (sums * vector.size * given.groups)))
        parts = max(1, min(most, work // PIECE))
        parts = -(-items // -(-items // parts))
        return cls(tile, blocks, padded_run, block, items, parts)

    def leading(self, given: WeightGradient) -> int:
        """The elements of a row of sums."""
        return self.padded_run * len(given.runs)

    def sums(self, given: WeightGradient) -> int:
        """The elements of the sums that a chunk leaves."""
        return self.blocks * self.tile.rows * self.leading(given)


def run_cycles(vector: Vector, given: WeightGradient) -> float:
    """About how many cycles a pixel of y takes, with laying x and y out."""
    tile = best_tile(vector, given.outputs, given.run_length)
    laying = given.channels * given.rows.stride * given.columns.stride + given.outputs
    products = tile_cycles(vector, tile, given.outputs, given.run_length)
    return len(given.runs) * products + laying


def run_sum_bytes(vector: Vector, given: WeightGradient) -> int:
    """The bytes of the sums of all chunks."""
    cut = Cut.choose(vector, given)
    return cut.parts * given.groups * cut.sums(given) * vector.size


class _Numbers(NamedTuple):
    """The numbers of the kernel; the tables of pixels in a row and of runs follow."""

    groups: int
    items: int
    per_part: int
    row_blocks: int
    block: int
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
    row_step: int
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


def run_kernel(vector: Vector, given: WeightGradient, x: Steps, y: Steps) -> Kernel:
    """The kernel that takes y, x and the memory for sums."""
    cut = Cut.choose(vector, given)
    rows, columns = given.rows, given.columns
    width = columns.needed(columns.extent)
    high = rows.needed(cut.block)
    wide = cut.tile.vectors * vector.lanes
    y_at = (high * width * given.channels // wide + 3) * wide
    first = min(max(0, columns.padding), width)
    last = min(width, columns.size + columns.padding)
    numbers = _Numbers(
        given.groups, cut.items, -(-cut.items // cut.parts), -(-rows.extent // cut.block),
        cut.block, max(1, _DEPTH // columns.extent), given.channels, given.outputs, rows.extent,
        columns.extent, rows.size, rows.stride,
        rows.needed(1) - rows.stride, rows.padding, columns.padding, width, first,
        max(first, last), rows.stride * width * given.channels, len(given.runs), cut.padded_run,
        cut.leading(given), cut.sums(given), y_at, *x, *y,
    )  # fmt: skip
    pixels = [c * columns.stride * given.channels for c in range(columns.extent)]
    scratch = y_at + cut.block * columns.extent * cut.blocks * cut.tile.rows
    return numbered(
        _text(vector, cut.tile), numbers, [*pixels, *given.runs], cut.parts * given.groups,
        scratch * vector.size,
    )  # fmt: skip


@cache
def _text(vector: Vector, tile: Tile) -> Kernel:
    text = Text(vector, ("y", "x", "sums"), _Numbers._fields)
    part, group = text.split("%chunk", text["groups"])
    first, last = text.items(part, text["per_part"], text["items"])
    sums = text.at(text["sums"], text.mul("%chunk", text["sums_size"]))
    x = text.at(text["x"], text.mul(group, text["channels"], text["x_channel"]))
    y = text.at(text["y"], text.mul(group, text["outputs"], text["y_channel"]))
    with text.loop(last, first=first) as item:
        sample, block = text.split(item, text["row_blocks"])
        row = text.mul(block, text["block"])
        rows = text.least(text["block"], text.sub(text["count_rows"], row))
        _lay_out_x(text, tile, text.at(x, text.mul(sample, text["x_sample"])), row, rows)
        start = text.at(y, text.mul(sample, text["y_sample"]), text.mul(row, text["y_row"]))
        _lay_out_y(text, tile, start, rows)
        is_later = text.op(f"icmp ne i64 {item}, {first}")
        _multiply(text, tile, sums, rows, is_later)
    return text.kernel("conv_weight")


def _lay_out_x(text: Text, tile: Tile, x: str, row: str, rows: str) -> None:
    """Write padded rows with channels last to scratch memory, and zeros behind them."""
    lanes = text.vector.lanes
    top = text.sub(text.mul(row, text["stride_rows"]), text["pad_rows"])
    high = text.add(text.mul(rows, text["stride_rows"]), text["extra_rows"])
    length = text.mul(text["width"], text["channels"])
    behind = 2 * tile.vectors * lanes
    with text.loop(text.add(text.mul(high, length), behind), lanes) as n:
        text.store_vector("zeroinitializer", text.at(text.scratch, n))
    with text.loop(high) as r:
        at = text.add(top, r)
        inside = text.op(f"icmp ult i64 {at}, {text['size_rows']}")
        with text.when(inside), text.loop(text["channels"]) as channel:
            source = text.at(x, text.mul(channel, text["x_channel"]), text.mul(at, text["x_row"]))
            target = text.at(text.scratch, text.mul(r, length), channel)
            with text.loop(text["last_column"], first=text["first_column"]) as j:
                column = text.mul(text.sub(j, text["pad_columns"]), text["x_column"])
                value = text.load(text.at(source, column))
                text.store(value, text.at(target, text.mul(j, text["channels"])))


def _lay_out_y(text: Text, tile: Tile, y: str, rows: str) -> None:
    """Write pixels to scratch memory, each with ``rows`` of a tile's outputs: [blocks, pixels,
    outputs]."""
    blocks = _blocks(text, tile)
    pixels = text.mul(rows, text["count_columns"])
    final = text.sub(text["outputs"], 1)
    with text.loop(blocks) as number:
        top = text.mul(number, tile.rows)
        starts = [
            text.at(y, text.mul(text.least(text.add(top, r), final), text["y_channel"]))
            for r in range(tile.rows)
        ]
        target = text.at(text.scratch, text["y_at"], text.mul(number, pixels, tile.rows))
        with text.loop(rows) as row, text.loop(text["count_columns"]) as column:
            offset = text.add(text.mul(row, text["y_row"]), text.mul(column, text["y_column"]))
            pixel = text.add(text.mul(row, text["count_columns"]), column)
            to = text.at(target, text.mul(pixel, tile.rows))
            for r, start in enumerate(starts):
                text.store(text.load(text.at(start, offset)), text.at(to, r))


def _blocks(text: Text, tile: Tile) -> str:
    return text.op(f"udiv i64 {text.add(text['outputs'], tile.rows - 1)}, {tile.rows}")


def _multiply(text: Text, tile: Tile, sums: str, rows: str, is_later: str) -> None:
    """Add the products of these rows to all tiles of the sums."""
    blocks = _blocks(text, tile)
    pixels = text.mul(rows, text["count_columns"])
    table = text.table()
    runs = text.table(text["count_columns"])
    with text.loop(rows, text["sub_block"]) as row, text.loop(text["runs"]) as run:
        count = text.least(text["sub_block"], text.sub(rows, row))
        begin = text.at(text.scratch, text.mul(row, text["row_step"]), text.number(runs, run))
        place = text.mul(run, text["padded_run"])
        below = text.op(f"icmp ne i64 {row}, 0")
        more = text.op(f"or i1 {below}, {is_later}")
        with (
            text.loop(text["padded_run"], tile.vectors * text.vector.lanes) as q,
            text.loop(blocks) as number,
        ):
            done = text.add(text.mul(number, pixels), text.mul(row, text["count_columns"]))
            a = text.at(text.scratch, text["y_at"], text.mul(done, tile.rows))
            c = text.at(sums, text.mul(number, tile.rows, text["leading"]), place, q)
            call_tile(
                text, tile, a, text.at(begin, q), c, text["leading"], count, text["row_step"],
                text["count_columns"], table, more,
            )  # fmt: skip


# -- adding up ----------------------------------------------------------------------------------


class _SumNumbers(NamedTuple):
    items: int
    per_chunk: int
    parts: int
    step: int
    outputs: int
    group_step: int
    leading: int
    channels: int
    kernel_rows: int
    kernel_columns: int
    row_step: int
    column_step: int


def run_sum_kernel(vector: Vector, given: WeightGradient) -> Kernel:
    """The kernel that adds the sums of all parts up and writes the weight's gradient; it takes the
    sums, which it overwrites, and the gradient."""
    cut = Cut.choose(vector, given)
    items = given.groups * given.outputs
    leading = cut.leading(given)
    per_chunk = max(1, min(items, (1 << 15) // (leading * cut.parts)))
    if given.columns.dilation > 1:
        row_step, column_step = given.columns.kernel * cut.padded_run, cut.padded_run
    else:
        row_step, column_step = cut.padded_run, given.channels
    numbers = _SumNumbers(
        items, per_chunk, cut.parts, given.groups * cut.sums(given), given.outputs,
        cut.sums(given), leading, given.channels, given.rows.kernel, given.columns.kernel,
        row_step, column_step,
    )  # fmt: skip
    return numbered(_sum_text(vector), numbers, [], -(-items // per_chunk))


@cache
def _sum_text(vector: Vector) -> Kernel:
    text = Text(vector, ("sums", "out"), _SumNumbers._fields)
    first, last = text.items("%chunk", text["per_chunk"], text["items"])
    size = text.mul(text["channels"], text["kernel_rows"], text["kernel_columns"])
    with text.loop(last, first=first) as item:
        group, output = text.split(item, text["outputs"])
        row = text.at(
            text["sums"],
            text.mul(group, text["group_step"]),
            text.mul(output, text["leading"]),
        )
        with text.loop(text["leading"], vector.lanes) as q:
            at = text.at(row, q)
            start = [(vector.text, text.load_vector(at))]
            with text.carrying(text["parts"], start, first=1) as (part, held):
                other = text.load_vector(text.at(at, text.mul(part, text["step"])))
                held.after = [text.op(f"fadd {vector.text} {held.values[0]}, {other}")]
            text.store_vector(held.values[0], at)
        _write_kernel(text, row, text.at(text["out"], text.mul(item, size)))
    return text.kernel("conv_weight_sum")


def _write_kernel(text: Text, sums: str, out: str) -> None:
    """A row of sums in the order of a weight: channels first."""
    columns = text["kernel_columns"]
    size = text.mul(text["kernel_rows"], columns)
    with (
        text.loop(text["channels"]) as channel,
        text.loop(text["kernel_rows"]) as r,
        text.loop(columns) as c,
    ):
        place = text.add(text.mul(r, text["row_step"]), text.mul(c, text["column_step"]), channel)
        to = text.add(text.mul(channel, size), text.mul(r, columns), c)
        text.store(text.load(text.at(sums, place)), text.at(out, to))
