"""The gradient of a convolution's weight: the kernel behind ``conv_weight``.

A chunk goes through some rows of a sample, or through some samples if these are small, for one
group and a band of its outputs. It lays x out with channels last and padding, so that elements of a
window lie in *runs*, and y with its pixels first; a run times the pixels of y is a product of
matrices over all pixels. Parts of the pixels leave sums of their own, and a second kernel adds
these up in their order.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from evergrad.compiler.codegen.ir_builder import (
    ENOUGH_CHUNKS,
    MAX_CHUNK_WORK,
    KernelBuilder,
    Vector,
    with_numbers,
)
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.kernels.conv.microkernel import Tile, best_tile, call_tile, tile_cycles
from evergrad.compiler.kernels.conv.pack_nhwc import lay_out_x, lay_out_y
from evergrad.compiler.kernels.conv.padded_planes import Steps
from evergrad.compiler.native.target import machine

# The rows of a chunk stay in a cache of this many bytes; a tile goes through so many pixels.
_CACHE = 3 * machine().l2_bytes // 8
_DEPTH = 192
# All chunks together may leave sums of this many bytes; those of one chunk should stay in cache.
_SUMS = min(16 << 20, machine().l3_bytes // 2)
_BAND = machine().l2_bytes // 2
# There are at least so many chunks, if there is work; more of them have at least so many pixels.
_FEW_CHUNKS = 4
_LONG_PART = 512
# A band has at least so many products for each element of x that is laid out for it.
_WORTH_LAYING = 128
# Pixels of so many channels lie apart, and each column of the kernel is a run.
_MANY_CHANNELS = 128
# Cycles to lay an element out.
# Fitted by tools/fit_kernel_costs.py.
_LAYING = 0.4


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
    """The problem."""

    samples: int
    groups: int
    channels: int
    outputs: int
    rows: Side
    columns: Side

    @property
    def is_split(self) -> bool:
        """Whether each column of the kernel is a run of its own."""
        return self.columns.dilation > 1 or self.channels >= _MANY_CHANNELS

    @property
    def width(self) -> int:
        """The pixels of a row of x."""
        return self.columns.needed(self.columns.extent)

    @property
    def run_length(self) -> int:
        return self.channels * (1 if self.is_split else self.columns.kernel)

    def pixel(self, vector: Vector) -> int:
        """The elements from one pixel of x to the next: an odd number of vectors if there are many,
        since powers of two would share places in the cache."""
        if self.channels < _MANY_CHANNELS:
            return self.channels
        return (-(-self.channels // vector.lanes) | 1) * vector.lanes

    def runs(self, vector: Vector) -> list[int]:
        """Where each run begins, from where its window does."""
        starts = [r * self.rows.dilation * self.width for r in range(self.rows.kernel)]
        if self.is_split:
            across = [c * self.columns.dilation for c in range(self.columns.kernel)]
            starts = [row + column for row in starts for column in across]
        return [start * self.pixel(vector) for start in starts]


class Cut(NamedTuple):
    """Tiles, what is laid out at a time, and the parts of the work."""

    tile: Tile
    blocks: int  # of outputs, as high as a tile
    padded_run: int
    leading: int  # the elements of a row of sums
    is_whole: bool  # a tile goes from sample to sample rather than from row to row
    together: int  # samples
    block: int  # rows
    items: int
    parts: int
    band: int  # blocks of outputs

    @classmethod
    def choose(cls, vector: Vector, given: WeightGradient) -> Cut:
        tile = best_tile(vector, given.outputs, given.run_length)
        wide = tile.vectors * vector.lanes
        padded_run = -(-given.run_length // wide) * wide
        leading = padded_run * len(given.runs(vector))
        blocks = -(-given.outputs // tile.rows)
        band = _band(vector, given, tile, blocks, leading)
        is_whole = given.rows.extent * given.columns.extent <= _DEPTH
        together, block = _laid_out(vector, given, band * tile.rows, is_whole)
        items = -(-given.samples // together) * -(-given.rows.extent // block)
        sums = blocks * tile.rows * leading
        pixels = given.columns.extent * block * together * items
        chunks = given.groups * -(-blocks // band)
        few, many = -(-_FEW_CHUNKS // chunks), -(-ENOUGH_CHUNKS // chunks)
        fitting = _SUMS // (sums * vector.size * given.groups)
        many = min(many, max(few, min(pixels // _LONG_PART, fitting)))
        parts = max(1, min(items, many, sums * pixels // MAX_CHUNK_WORK))
        parts = -(-items // -(-items // parts))
        return cls(tile, blocks, padded_run, leading, is_whole, together, block, items, parts, band)

    @property
    def sums(self) -> int:
        """The elements of the sums of all outputs of a group."""
        return self.blocks * self.tile.rows * self.leading

    @property
    def bands(self) -> int:
        return -(-self.blocks // self.band)


def _band(vector: Vector, given: WeightGradient, tile: Tile, blocks: int, leading: int) -> int:
    """How many blocks of outputs a chunk takes: all, or an even number of chunks does."""
    fitting = _BAND // (tile.rows * leading * vector.size)
    taps = given.rows.kernel * given.columns.kernel
    least = -(-_WORTH_LAYING // (taps * tile.rows))
    bands = -(-blocks // max(1, fitting, least))
    bands += bands % 2 if bands > 1 else 0
    return -(-blocks // bands)


def _laid_out(
    vector: Vector, given: WeightGradient, outputs: int, is_whole: bool
) -> tuple[int, int]:
    """How many samples and rows are laid out at a time."""
    rows, columns = given.rows, given.columns
    pixel = given.pixel(vector)
    if is_whole:
        size = rows.needed(rows.extent) * given.width * pixel
        size += rows.extent * columns.extent * outputs
        return max(1, min(given.samples, _CACHE // (size * vector.size))), rows.extent
    row = given.width * pixel * rows.stride + columns.extent * outputs
    block = max(1, min(rows.extent, _CACHE // (row * vector.size)))
    return 1, -(-rows.extent // -(-rows.extent // block))


def run_cycles(vector: Vector, given: WeightGradient) -> float:
    """About how many cycles a pixel of y takes, with laying x and y out."""
    tile = best_tile(vector, given.outputs, given.run_length)
    laid = given.rows.stride * given.columns.stride * -(-given.channels // vector.lanes)
    laid = (laid + -(-given.outputs // vector.lanes)) * vector.lanes
    products = tile_cycles(vector, tile, given.outputs, given.run_length)
    return len(given.runs(vector)) * products + _LAYING * laid


def run_sum_bytes(vector: Vector, given: WeightGradient) -> int:
    """The bytes of the sums of all parts, with a vector that is read behind them."""
    cut = Cut.choose(vector, given)
    return (cut.parts * given.groups * cut.sums + vector.lanes) * vector.size


def sums_are_gradient(vector: Vector, given: WeightGradient) -> bool:
    """Whether the sums are the gradient as it lies, so that nothing has to be added up."""
    cut = Cut.choose(vector, given)
    is_full = cut.sums == given.outputs * given.channels
    return cut.parts == 1 and is_full and len(given.runs(vector)) == given.columns.kernel == 1


class _Numbers(NamedTuple):
    """The numbers of the kernel; the tables of pixels in a unit (a row or a sample) and of runs
    follow."""

    groups: int
    bands: int
    band: int
    blocks: int
    items: int
    per_part: int
    samples: int
    together: int
    row_blocks: int
    block: int
    unit_rows: int
    unit_pixels: int
    unit_step: int
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


def run_kernel(vector: Vector, given: WeightGradient, x: Steps, y: Steps) -> Kernel:
    """The kernel that takes y, x and the memory for sums."""
    cut = Cut.choose(vector, given)
    rows, columns, tile = given.rows, given.columns, cut.tile
    pixel, runs = given.pixel(vector), given.runs(vector)
    row_size = given.width * pixel
    sample_size = rows.needed(cut.block) * row_size
    wide = tile.vectors * vector.lanes
    y_at = (cut.together * sample_size // wide + 3) * wide
    first = min(max(0, columns.padding), given.width)
    last = min(given.width, columns.size + columns.padding)
    unit_rows = rows.extent if cut.is_whole else 1
    unit_pixels = unit_rows * columns.extent
    numbers = _Numbers(
        given.groups, cut.bands, cut.band, cut.blocks, cut.items, -(-cut.items // cut.parts),
        given.samples, cut.together, -(-rows.extent // cut.block), cut.block,
        unit_rows, unit_pixels, sample_size if cut.is_whole else rows.stride * row_size,
        max(1, _DEPTH // unit_pixels), given.channels, given.outputs, rows.extent, columns.extent,
        rows.size, rows.stride, rows.needed(1) - rows.stride, rows.padding, columns.padding,
        given.width, first, max(first, last), pixel, sample_size, len(runs), cut.padded_run,
        cut.leading, cut.sums, y_at, *x, *y,
    )  # fmt: skip
    pixels = [
        r * rows.stride * row_size + c * columns.stride * pixel
        for r in range(unit_rows)
        for c in range(columns.extent)
    ]
    y_size = cut.together * cut.block * columns.extent * cut.band * tile.rows
    behind = vector.lanes * (max(pixel, tile.rows) + 2)  # what is written too much
    return with_numbers(
        _text(vector, tile), numbers, [*pixels, *runs], cut.parts * given.groups * cut.bands,
        (y_at + y_size + behind) * vector.size,
    )  # fmt: skip


@cache
def _text(vector: Vector, tile: Tile) -> Kernel:
    text = KernelBuilder(vector, ("y", "x", "sums"), _Numbers._fields)
    place, band = text.split("%chunk", text["bands"])
    part, group = text.split(place, text["groups"])
    first, last = text.items(part, text["per_part"], text["items"])
    first_block, end = text.items(band, text["band"], text["blocks"])
    blocks = text.sub(end, first_block)
    sums = text.at(
        text["sums"],
        text.mul(place, text["sums_size"]),
        text.mul(first_block, tile.rows, text["leading"]),
    )
    x = text.at(text["x"], text.mul(group, text["channels"], text["x_channel"]))
    y = text.at(text["y"], text.mul(group, text["outputs"], text["y_channel"]))
    with text.loop(last, first=first) as item:
        some, block = text.split(item, text["row_blocks"])
        sample, row = text.mul(some, text["together"]), text.mul(block, text["block"])
        samples = text.least(text["together"], text.sub(text["samples"], sample))
        rows = text.least(text["block"], text.sub(text["count_rows"], row))
        x_start = text.at(x, text.mul(sample, text["x_sample"]))
        lay_out_x(text, x_start, row, samples, rows)
        y_start = text.at(y, text.mul(sample, text["y_sample"]), text.mul(row, text["y_row"]))
        lay_out_y(text, tile, y_start, samples, rows, first_block, blocks)
        is_later = text.op(f"icmp ne i64 {item}, {first}")
        units = text.op(f"udiv i64 {text.mul(samples, rows)}, {text['unit_rows']}")
        _multiply(text, tile, sums, units, blocks, is_later)
    return text.kernel("conv_weight")


def _multiply(
    text: KernelBuilder, tile: Tile, sums: str, units: str, blocks: str, is_later: str
) -> None:
    """Add the products of these rows or samples to all tiles of the sums."""
    pixels = text.mul(units, text["unit_pixels"])
    table = text.table()
    runs = text.table(text["unit_pixels"])
    with text.loop(units, text["sub_block"]) as unit, text.loop(text["runs"]) as run:
        count = text.least(text["sub_block"], text.sub(units, unit))
        begin = text.at(text.scratch, text.mul(unit, text["unit_step"]), text.number(runs, run))
        place = text.mul(run, text["padded_run"])
        below = text.op(f"icmp ne i64 {unit}, 0")
        more = text.op(f"or i1 {below}, {is_later}")
        with (
            text.loop(text["padded_run"], tile.vectors * text.vector.lanes) as q,
            text.loop(blocks) as number,
        ):
            done = text.add(text.mul(number, pixels), text.mul(unit, text["unit_pixels"]))
            a = text.at(text.scratch, text["y_at"], text.mul(done, tile.rows))
            c = text.at(sums, text.mul(number, tile.rows, text["leading"]), place, q)
            call_tile(
                text, tile, a, text.at(begin, q), c, text["leading"], count, text["unit_step"],
                text["unit_pixels"], table, more,
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
    """The kernel that adds the sums of all parts up and writes them in the order of a weight,
    channels first; it takes the sums and the gradient."""
    cut = Cut.choose(vector, given)
    items = given.groups * given.outputs
    per_chunk = max(1, min(items, (1 << 15) // (cut.leading * cut.parts)))
    if given.is_split:
        row_step, column_step = given.columns.kernel * cut.padded_run, cut.padded_run
    else:
        row_step, column_step = cut.padded_run, given.channels
    numbers = _SumNumbers(
        items, per_chunk, cut.parts, given.groups * cut.sums, given.outputs,
        cut.sums, cut.leading, given.channels, given.rows.kernel, given.columns.kernel,
        row_step, column_step,
    )  # fmt: skip
    return with_numbers(_sum_text(vector), numbers, [], -(-items // per_chunk))


@cache
def _sum_text(vector: Vector) -> Kernel:
    text = KernelBuilder(vector, ("sums", "out"), _SumNumbers._fields)
    first, last = text.items("%chunk", text["per_chunk"], text["items"])
    columns = text["kernel_columns"]
    taps = text.mul(text["kernel_rows"], columns)
    for kind in text.by_stride(taps):
        with (
            text.loop(last, first=first) as item,
            text.loop(text["kernel_rows"]) as r,
            text.loop(columns) as c,
            text.loop(text["channels"], vector.lanes) as channel,
        ):
            group, output = text.split(item, text["outputs"])
            at = text.at(
                text["sums"], channel,
                text.mul(group, text["group_step"]), text.mul(output, text["leading"]),
                text.mul(r, text["row_step"]), text.mul(c, text["column_step"]),
            )  # fmt: skip
            start = [(vector.type, text.load_vector(at))]
            with text.carrying_loop(text["parts"], start, first=1) as (part, held):
                other = text.load_vector(text.at(at, text.mul(part, text["step"])))
                held.after = [text.op(f"fadd {vector.type} {held.values[0]}, {other}")]
            element = text.add(text.mul(item, text["channels"]), channel)
            to = text.at(text["out"], text.mul(element, taps), text.mul(r, columns), c)
            left = text.sub(text["channels"], channel)
            text.store_strided(kind, held.values[0], to, taps, left)
    return text.kernel("conv_weight_sum")
