"""Convolution without columns: the kernel behind ``conv`` and ``conv_input``.

A chunk lays a few padded rows of a sample out in scratch memory, rows end to end and, where windows
are more than one element apart, every phase of them in a plane of its own. All windows that begin
in these rows are then neighbours, and an element of the kernel is always the same distance away:
the output is a product of matrices whose second factor is read in place. What comes out between two
rows means nothing and is left behind when rows are written.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import NamedTuple

from evergrad.compiler.conv_text import Text, Vector, items_per_chunk, numbered
from evergrad.compiler.conv_tile import Tile, best_tile, call_tile
from evergrad.compiler.kernel import Kernel

# Rows and sums of a chunk stay in a cache of this many bytes.
_CACHE = 384 << 10
# The elements of the kernel that a tile goes through at once, over a few channels.
_DEPTH = 256


class Steps(NamedTuple):
    """How many elements lie from one sample, channel, row and column to the next."""

    sample: int
    channel: int
    row: int
    column: int


class Axis(NamedTuple):
    """One dimension of a correlation: ``y[start + step * i] = sum of w[tap] x[stride * i + shift]``
    over (tap, shift) pairs, for ``count`` numbers ``i``; ``x`` has ``size`` elements."""

    size: int
    count: int
    stride: int
    start: int
    step: int
    taps: tuple[tuple[int, int], ...]

    @property
    def low(self) -> int:
        return min((shift for _, shift in self.taps), default=0)

    @property
    def phases(self) -> list[int]:
        return sorted({(shift - self.low) % self.stride for _, shift in self.taps}) or [0]

    @property
    def reach(self) -> int:
        """How many more rows than outputs a plane has."""
        return max(((shift - self.low) // self.stride for _, shift in self.taps), default=0)

    def place(self, shift: int) -> tuple[int, int]:
        """The phase of a shift and how far it is into its plane."""
        distance = shift - self.low
        return self.phases.index(distance % self.stride), distance // self.stride


class Correlation(NamedTuple):
    """A convolution as the kernel does it."""

    samples: int
    groups: int
    channels: int  # of a group of x
    outputs: int  # of a group of y
    rows: Axis
    columns: Axis

    @property
    def taps(self) -> list[tuple[int, int]]:
        """The pairs of row and column in the kernel."""
        return [(r, c) for r, _ in self.rows.taps for c, _ in self.columns.taps]


class _Numbers(NamedTuple):
    """The numbers of the kernel; tables of planes and of places follow."""

    items: int
    per_chunk: int
    groups: int
    row_blocks: int
    block: int
    count_rows: int
    count_columns: int
    channels: int
    outputs: int
    planes: int
    plane_rows: int
    width: int
    channel_size: int
    places: int
    channel_block: int
    leading: int
    sums_at: int
    size_rows: int
    stride_rows: int
    x_sample: int
    x_channel: int
    x_row: int
    x_step: int
    y_start: int
    y_sample: int
    y_channel: int
    y_row: int
    y_step: int


class _Block(NamedTuple):
    """How the outputs are cut: tiles, and the rows of a chunk."""

    tile: Tile
    rows: int
    width: int

    @classmethod
    def choose(cls, vector: Vector, given: Correlation) -> _Block:
        width = given.columns.count + given.columns.reach
        count = given.rows.count
        planes = len(given.rows.phases) * len(given.columns.phases)
        row = (given.channels * planes + given.outputs) * width * vector.size
        fitting = max(1, min(count, _CACHE // row - given.rows.reach))
        parallel = given.samples * given.groups
        blocks = max(-(-count // fitting), -(-4 // parallel) if count * width > 512 else 1)
        rows = -(-count // blocks)
        return cls(best_tile(vector, given.outputs, rows * width), rows, width)


def packed_blocks(vector: Vector, given: Correlation) -> tuple[Tile, int]:
    """The tile whose rows weights are laid out for, and how many there are in a group."""
    tile = _Block.choose(vector, given).tile
    return tile, -(-given.outputs // tile.rows)


def correlation_kernel(vector: Vector, given: Correlation, x: Steps, y: Steps) -> Kernel:
    """The kernel that takes x, the packed weight and y."""
    block = _Block.choose(vector, given)
    tile = block.tile
    rows, columns = given.rows, given.columns
    plane_rows = block.rows + rows.reach
    plane = plane_rows * block.width
    planes = _plane_table(rows, columns, block.width)
    channel_size = len(planes) // 4 * plane
    wide = tile.vectors * vector.lanes
    leading = -(-((block.rows - 1) * block.width + columns.count) // wide) * wide
    # Tiles read on behind the last row, where there are zeros.
    sums_at = (given.channels * channel_size // wide + 3) * wide
    row_blocks = -(-rows.count // block.rows)
    items = given.samples * given.groups * row_blocks
    taps = given.taps
    work = given.outputs * given.channels * len(taps) * plane
    per_chunk = items_per_chunk(items, work)
    numbers = _Numbers(
        items, per_chunk, given.groups, row_blocks, block.rows, rows.count, columns.count,
        given.channels, given.outputs, len(planes) // 4, plane_rows, block.width, channel_size,
        len(taps), max(1, _DEPTH // max(1, len(taps))), leading, sums_at, rows.size, rows.stride,
        x.sample, x.channel, x.row, x.column * columns.stride,
        rows.start * y.row + columns.start * y.column, y.sample, y.channel, y.row * rows.step,
        y.column * columns.step,
    )  # fmt: skip
    tables = [n * x.column if p % 4 == 1 else n for p, n in enumerate(planes)]
    tables += _place_table(rows, columns, block.width, plane)
    scratch = (sums_at + -(-given.outputs // tile.rows) * tile.rows * leading) * vector.size
    made = _text(vector, tile)
    return numbered(made, numbers, tables, -(-items // per_chunk), scratch)


def _plane_table(rows: Axis, columns: Axis, width: int) -> list[int]:
    """For each plane the row and column of x at its beginning, and which of its columns lie in x
    (from, to)."""
    table = []
    for row_phase in rows.phases:
        for phase in columns.phases:
            begin = columns.low + phase
            first = max(0, -(begin // columns.stride))
            last = min(width, (columns.size - 1 - begin) // columns.stride + 1)
            table += [rows.low + row_phase, begin, first, max(first, last)]
    return table


def _place_table(rows: Axis, columns: Axis, width: int, plane: int) -> list[int]:
    """Where each element of the kernel meets x, from where its window begins."""
    table = []
    for _, row_shift in rows.taps:
        row_phase, row = rows.place(row_shift)
        for _, shift in columns.taps:
            phase, column = columns.place(shift)
            number = row_phase * len(columns.phases) + phase
            table.append(number * plane + row * width + column)
    return table


# -- the kernel ---------------------------------------------------------------------------------


@cache
def _text(vector: Vector, tile: Tile) -> Kernel:
    text = Text(vector, ("x", "weight", "y"), _Numbers._fields)
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
        _lay_out(text, tile, x, text.mul(row, text["stride_rows"]))
        _multiply(text, tile, group, rows)
        y = text.at(
            text["y"],
            text["y_start"],
            text.mul(sample, text["y_sample"]),
            text.mul(group, text["outputs"], text["y_channel"]),
            text.mul(row, text["y_row"]),
        )
        _write_rows(text, y, rows)
    return text.kernel("conv")


def _lay_out(text: Text, tile: Tile, x: str, row: str) -> None:
    """Write the padded planes of all channels to scratch memory, and zeros behind them."""
    vector = text.vector
    size = text.mul(text["plane_rows"], text["width"])
    with text.loop(text["channels"]) as channel:
        source = text.at(x, text.mul(channel, text["x_channel"]))
        target = text.mul(channel, text["channel_size"])
        with text.loop(text["planes"]) as plane:
            entry = text.table(text.mul(plane, 4))
            begin, column, low, high = (text.number(entry, n) for n in range(4))
            above = text.add(row, begin)
            to = text.at("%scratch", target, text.mul(plane, size))
            with text.loop(text["plane_rows"]) as r:
                at = text.add(above, text.mul(r, text["stride_rows"]))
                inside = text.op(f"icmp ult i64 {at}, {text['size_rows']}")
                upto = text.op(f"select i1 {inside}, i64 {high}, i64 0")
                from_row = text.at(source, text.mul(at, text["x_row"]), column)
                copy_row(text, from_row, text.at(to, text.mul(r, text["width"])), low, upto)
    end = text.at("%scratch", text.mul(text["channels"], text["channel_size"]))
    with text.loop(2 * tile.vectors * vector.lanes, vector.lanes) as n:
        text.store_vector("zeroinitializer", text.at(end, n))


def copy_row(text: Text, source: str, target: str, low: str, high: str) -> None:
    """Write a row of ``width`` elements: from the source between two places, zeros elsewhere."""
    lanes = text.vector.lanes
    alone = text.op(f"icmp eq i64 {text['x_step']}, 1")
    apart = text.op(f"xor i1 {alone}, true")
    for condition in (alone, apart):
        with text.when(condition), text.loop(text["width"], lanes) as j:
            mask = text.between(text.places(j), low, high)
            if condition is alone:
                value = text.load_masked(text.at(source, j), mask, "zeroinitializer")
            else:
                places = text.places(text.mul(j, text["x_step"]), text["x_step"])
                value = text.gather(source, places, mask, "zeroinitializer")
            text.store_vector(value, text.at(target, j))


def _multiply(text: Text, tile: Tile, group: str, rows: str) -> None:
    """All tiles of the outputs that begin in these rows."""
    whole = text.mul(text.sub(rows, 1), text["width"])
    pixels = text.add(whole, text["count_columns"])
    blocks = text.op(f"udiv i64 {text.add(text['outputs'], tile.rows - 1)}, {tile.rows}")
    depth = text.mul(text["channels"], text["places"])
    weight = text.at(text["weight"], text.mul(group, blocks, depth, tile.rows))
    sums = text.at("%scratch", text["sums_at"])
    table = text.table(text.mul(text["planes"], 4))
    with (
        text.loop(pixels, tile.vectors * text.vector.lanes) as pixel,
        text.loop(text["channels"], text["channel_block"]) as channel,
    ):
        count = text.least(text["channel_block"], text.sub(text["channels"], channel))
        b = text.at("%scratch", text.mul(channel, text["channel_size"]), pixel)
        more = text.op(f"icmp ne i64 {channel}, 0")
        with text.loop(blocks) as number:
            done = text.add(text.mul(number, depth), text.mul(channel, text["places"]))
            a = text.at(weight, text.mul(done, tile.rows))
            c = text.at(sums, text.mul(number, tile.rows, text["leading"]), pixel)
            call_tile(
                text, tile, a, b, c, text["leading"], count, text["channel_size"],
                text["places"], table, more,
            )  # fmt: skip


def _write_rows(text: Text, y: str, rows: str) -> None:
    """Take the outputs out of the sums."""
    lanes = text.vector.lanes
    alone = text.op(f"icmp eq i64 {text['y_step']}, 1")
    apart = text.op(f"xor i1 {alone}, true")
    sums = text.at("%scratch", text["sums_at"])
    with text.loop(text["outputs"]) as channel, text.loop(rows) as row:
        source = text.at(
            sums, text.mul(channel, text["leading"]), text.mul(row, text["width"])
        )
        target = text.at(y, text.mul(channel, text["y_channel"]), text.mul(row, text["y_row"]))
        for condition in (alone, apart):
            with text.when(condition), text.loop(text["count_columns"], lanes) as j:
                value = text.load_vector(text.at(source, j))
                mask = text.between(text.places(j), "0", text["count_columns"])
                if condition is alone:
                    text.store_masked(value, text.at(target, j), mask)
                else:
                    places = text.places(text.mul(j, text["y_step"]), text["y_step"])
                    text.scatter(value, target, places, mask)


# -- the weight ---------------------------------------------------------------------------------


class _WeightNumbers(NamedTuple):
    """The numbers of the kernel that lays a weight out; the table of taps follows."""

    items: int
    per_chunk: int
    blocks: int
    outputs: int
    channels: int
    taps: int
    w_group: int
    w_output: int
    w_channel: int


def weight_kernel(
    vector: Vector, given: Correlation, group: int, output: int, channel: int, taps: list[int]
) -> Kernel:
    """The kernel that lays a weight out for tiles: [groups, blocks, channels, taps, rows]; it
    takes the weight, with so many elements from group to group and so on, and the copy."""
    tile, blocks = packed_blocks(vector, given)
    items = given.groups * blocks
    per_chunk = items_per_chunk(items, given.channels * len(taps) * tile.rows * 8)
    numbers = _WeightNumbers(
        items, per_chunk, blocks, given.outputs, given.channels, len(taps), group, output, channel
    )
    return numbered(_weight_text(vector, tile.rows), numbers, taps, -(-items // per_chunk))


def packed_bytes(vector: Vector, given: Correlation) -> int:
    tile, blocks = packed_blocks(vector, given)
    count = prod((given.groups, blocks, tile.rows, given.channels, max(1, len(given.taps))))
    return count * vector.size


@cache
def _weight_text(vector: Vector, rows: int) -> Kernel:
    text = Text(vector, ("weight", "packed"), _WeightNumbers._fields)
    first, last = text.items("%chunk", text["per_chunk"], text["items"])
    table = text.table()
    final = text.sub(text["outputs"], 1)
    with text.loop(last, first=first) as item:
        group, block = text.split(item, text["blocks"])
        source = text.at(text["weight"], text.mul(group, text["w_group"]))
        top = text.mul(block, rows)
        starts = [
            text.at(source, text.mul(text.least(text.add(top, r), final), text["w_output"]))
            for r in range(rows)
        ]
        depth = text.mul(text["channels"], text["taps"])
        target = text.at(text["packed"], text.mul(item, depth, rows))
        with text.loop(text["channels"]) as channel, text.loop(text["taps"]) as tap:
            offset = text.add(text.mul(channel, text["w_channel"]), text.number(table, tap))
            place = text.mul(text.add(text.mul(channel, text["taps"]), tap), rows)
            to = text.at(target, place)
            for r, start in enumerate(starts):
                text.store(text.load(text.at(start, offset)), text.at(to, r))
    return text.kernel("conv_pack")
