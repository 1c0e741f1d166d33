"""The gradient of a weight of 3x3 elements in fewer products (see :mod:`.kernels.conv.winograd`).

A chunk goes through some rows of squares of a sample, or through some samples, for a band of
outputs. Elements of x, and those of the gradient y of the outputs, are laid out with channels last
and transformed; 16 products of matrices follow, over all squares. Parts of the squares leave sums
of their own; a second kernel adds these up in their order and makes the 3x3 elements of them.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import NamedTuple

from evergrad.compiler.codegen.ir_builder import ENOUGH_CHUNKS, KernelBuilder, Vector, with_numbers
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.kernels.conv.im2col_weight_grad import WeightGradient
from evergrad.compiler.kernels.conv.padded_planes import Steps
from evergrad.compiler.kernels.conv.winograd_transforms import (
    PLACES,
    SIDE,
    Change,
    Matrix,
    both_ways,
    multiply,
    of_inputs,
    panel_of,
)
from evergrad.compiler.kernels.gemm.microkernel import tile_for, transposed
from evergrad.compiler.native.target import machine

_TAPS = 3
# Fewer channels or outputs are not worth transforming.
_FEW = 32
# What is transformed at a time stays in a cache of this many bytes, if there are so many squares.
_CACHE = 13 * machine().l2_bytes // 16
_ENOUGH = 48
# All chunks together may leave sums of this many bytes.
_SUMS = min(16 << 20, machine().l3_bytes // 2)
# There are at least so many chunks; more of them have at least so many squares. Bands have at least
# so many outputs, if there are more.
_FEW_CHUNKS = 4
_LONG_PART = 256
_BAND = 64
# Cycles to lay a register of a square out and to transform it, of x and of y.
# Fitted by tools/fit_kernel_costs.py.
_TRANSFORMING = 80.0
# How much longer products take than their number says, and bytes of sums that are read in a cycle.
# Fitted by tools/fit_kernel_costs.py.
_SLOWER = 1.15
_BYTES_A_CYCLE = 24
# Convolutions whose cut is remembered.
_KNOWN = 256


def is_winograd_gradient(vector: Vector, given: WeightGradient, x: Steps, y: Steps) -> bool:
    """Whether a gradient can be computed so, and may be worth it."""
    return (
        vector.element == "float"
        and min(given.channels, given.outputs) >= _FEW
        and all(
            s.kernel == _TAPS and s.stride == s.dilation == 1 for s in (given.rows, given.columns)
        )
        and x.column == y.column == 1
    )


class _Cut(NamedTuple):
    """What is transformed at a time, and the parts of the work."""

    together: int  # samples
    block: int  # rows of squares
    parts: int
    band: int  # outputs

    @classmethod
    @lru_cache(_KNOWN)
    def choose(cls, vector: Vector, given: WeightGradient) -> _Cut:
        rows, columns = _squares(given)
        size = (_step(vector, given.channels) + _step(vector, given.outputs)) * vector.size
        fitting = max(_ENOUGH, _CACHE // (PLACES * size))
        block = max(1, min(rows, fitting // columns))
        block = -(-rows // -(-rows // block))
        together = 1
        if block == rows:
            together = max(1, min(given.samples, fitting // (rows * columns)))
        items = -(-given.samples // together) * -(-rows // block)
        most = max(1, _SUMS // (_sums(vector, given) * given.groups * vector.size))
        long = max(1, given.samples * rows * columns // _LONG_PART)
        parts = min(items, most, long, -(-ENOUGH_CHUNKS // given.groups))
        few = -(-_FEW_CHUNKS // (parts * given.groups))
        bands = min(few, max(1, given.outputs // _BAND))
        parts = min(items, max(parts, -(-few // bands)))
        parts = -(-items // -(-items // parts))
        high = tile_for(vector).rows
        return cls(together, block, parts, -(-given.outputs // (bands * high)) * high)


def _squares(given: WeightGradient) -> tuple[int, int]:
    """Rows and columns of squares."""
    return -(-given.rows.extent // 2), -(-given.columns.extent // 2)


def _step(vector: Vector, channels: int) -> int:
    """The elements from one square to the next: an odd number of registers, else squares would
    share places in the cache."""
    return (-(-channels // vector.lanes) | 1) * vector.lanes


def _sums(vector: Vector, given: WeightGradient) -> int:
    """The elements of the sums of a group."""
    return PLACES * given.outputs * _row(vector, given)


def _row(vector: Vector, given: WeightGradient) -> int:
    """The elements of the sums of an output and a place."""
    return -(-given.channels // vector.lanes) * vector.lanes


def winograd_cycles(vector: Vector, given: WeightGradient) -> float:
    """About how many cycles a pixel of y takes, with laying x and y out."""
    cut = _Cut.choose(vector, given)
    rows, columns = _squares(given)
    bands = -(-given.outputs // cut.band)
    channels, outputs = (-(-n // vector.lanes) for n in (given.channels, given.outputs))
    square = PLACES * channels * given.outputs / 2 * _SLOWER
    square += _TRANSFORMING * (channels * bands + outputs)
    chunks = -(-rows // cut.block) * given.samples / cut.together + cut.parts
    read = 2 * chunks * _sums(vector, given) * vector.size / _BYTES_A_CYCLE
    pixels = given.samples * given.rows.extent * given.columns.extent
    return (square * rows * columns * given.samples + read) / pixels


def winograd_sum_bytes(vector: Vector, given: WeightGradient) -> int:
    """The bytes of the sums of all parts."""
    return _Cut.choose(vector, given).parts * given.groups * _sums(vector, given) * vector.size


class _Numbers(NamedTuple):
    """The numbers of the kernel."""

    groups: int
    bands: int
    band: int
    items: int
    per_part: int
    samples: int
    together: int
    row_blocks: int
    block: int
    square_rows: int
    square_columns: int
    channels: int
    outputs: int
    x_rows: int
    x_columns: int
    y_rows: int
    y_columns: int
    first_row: int
    first_column: int
    x_step: int
    y_step: int
    x_place: int
    y_place: int
    x_at: int
    y_at: int
    panel: int
    sums_size: int
    sums_row: int
    x_sample: int
    x_channel: int
    x_row: int
    y_sample: int
    y_channel: int
    y_row: int


def winograd_gradient_kernel(vector: Vector, given: WeightGradient, x: Steps, y: Steps) -> Kernel:
    """The kernel that takes y, x and the memory for sums."""
    cut = _Cut.choose(vector, given)
    rows, columns = given.rows, given.columns
    square_rows, square_columns = _squares(given)
    lanes = vector.lanes
    row_blocks = -(-square_rows // cut.block)
    items = -(-given.samples // cut.together) * row_blocks
    squares = cut.together * cut.block * square_columns
    x_step, y_step = _step(vector, given.channels), _step(vector, cut.band)
    x_place, y_place = (squares * step + lanes for step in (x_step, y_step))
    # Rows of pixels are laid out at the beginning; whole squares of registers are written.
    x_at = ((2 * cut.block + 2) * (2 * square_columns + 2) + lanes) * lanes
    y_at = x_at + PLACES * x_place
    bands = -(-given.outputs // cut.band)
    numbers = _Numbers(
        given.groups, bands, cut.band, items, -(-items // cut.parts), given.samples, cut.together,
        row_blocks, cut.block, square_rows, square_columns, given.channels, given.outputs,
        rows.size, columns.size, rows.extent, columns.extent, -rows.padding, -columns.padding,
        x_step, y_step, x_place, y_place, x_at, y_at, panel_of(tile_for(vector), given.channels),
        _sums(vector, given), _row(vector, given), *x[:3], *y[:3],
    )  # fmt: skip
    return with_numbers(
        _text(vector), numbers, [], cut.parts * given.groups * bands,
        (y_at + PLACES * y_place) * vector.size,
    )  # fmt: skip


@cache
def _text(vector: Vector) -> Kernel:
    text = KernelBuilder(vector, ("y", "x", "sums"), _Numbers._fields)
    place, band = text.split("%chunk", text["bands"])
    part, group = text.split(place, text["groups"])
    first, last = text.items(part, text["per_part"], text["items"])
    output, end = text.items(band, text["band"], text["outputs"])
    outputs = text.sub(end, output)
    top_output = text.add(text.mul(group, text["outputs"]), output)
    x = text.at(text["x"], text.mul(group, text["channels"], text["x_channel"]))
    y = text.at(text["y"], text.mul(top_output, text["y_channel"]))
    sums = text.at(
        text["sums"],
        text.mul(place, text["sums_size"]),
        text.mul(output, text["sums_row"]),
    )
    with text.loop(last, first=first) as item:
        some, block = text.split(item, text["row_blocks"])
        sample, row = text.mul(some, text["together"]), text.mul(block, text["block"])
        samples = text.least(text["together"], text.sub(text["samples"], sample))
        rows = text.least(text["block"], text.sub(text["square_rows"], row))
        with text.loop(samples) as number:
            begin = text.add(sample, number)
            done = text.mul(number, rows, text["square_columns"])
            start = text.at(x, text.mul(begin, text["x_sample"]))
            _transform_x(text, start, row, rows, done)
            start = text.at(y, text.mul(begin, text["y_sample"]))
            _transform_y(text, start, row, rows, done, outputs)
        squares = text.mul(samples, rows, text["square_columns"])
        more = text.op(f"icmp ne i64 {item}, {first}")
        _multiply(text, sums, squares, outputs, more)
    return text.kernel("conv_winograd_gradient")


class _Image(NamedTuple):
    """An image that is laid out: what it has, the first row and column that are wanted (which may
    lie outside) and how many of them."""

    start: str
    channels: str
    channel_step: str
    row_step: str
    size_rows: str
    size_columns: str
    first_row: str
    first_column: str
    rows: str
    width: str


def _transform_x(text: KernelBuilder, x: str, row: str, rows: str, done: str) -> None:
    """Write the sums of squares of x behind ``done`` squares: [places, squares, channels]."""
    image = _Image(
        x, text["channels"], text["x_channel"], text["x_row"], text["x_rows"], text["x_columns"],
        text.add(text["first_row"], text.mul(row, 2)), text["first_column"],
        text.add(text.mul(rows, 2), 2), text.add(text.mul(text["square_columns"], 2), 2),
    )  # fmt: skip
    to = text.at(text.scratch, text["x_at"], text.mul(done, text["x_step"]))
    _transform(text, image, SIDE, of_inputs, to, text["x_step"], text["x_place"])


def _transform_y(text: KernelBuilder, y: str, row: str, rows: str, done: str, outputs: str) -> None:
    """The same for the gradient of outputs."""
    image = _Image(
        y, outputs, text["y_channel"], text["y_row"], text["y_rows"], text["y_columns"],
        text.mul(row, 2), "0", text.mul(rows, 2), text.mul(text["square_columns"], 2),
    )  # fmt: skip
    to = text.at(text.scratch, text["y_at"], text.mul(done, text["y_step"]))
    _transform(text, image, 2, _of_gradient, to, text["y_step"], text["y_place"])


def _of_gradient(text: KernelBuilder, y: list[str]) -> list[str]:
    """What an output and its neighbour add to the gradients of their sums; the last with its sign
    turned."""
    return [y[0], text.plus(y[0], y[1]), text.minus(y[0], y[1]), y[1]]


def _transform(
    text: KernelBuilder, image: _Image, side: int, change: Change, to: str, step: str, place: str
) -> None:
    """Lay some channels out at a time, and write the sums of all squares."""
    lanes = text.vector.lanes
    with text.loop(image.channels, lanes) as channel:
        _lay_out(text, image, channel)
        squares = text.op(f"udiv i64 {image.rows}, 2")
        if side == SIDE:
            squares = text.sub(squares, 1)
        with text.loop(squares) as r, text.loop(text["square_columns"]) as column:
            corner = text.add(text.mul(r, 2, image.width), text.mul(column, 2))
            begin = text.at(text.scratch, text.mul(corner, lanes))
            values = [
                text.load_vector(
                    text.at(begin, text.mul(text.add(text.mul(image.width, i), j), lanes))
                )
                for i in range(side)
                for j in range(side)
            ]
            number = text.add(text.mul(r, text["square_columns"]), column)
            target = text.at(to, text.mul(number, step), channel)
            for n, value in enumerate(both_ways(text, values, change)):
                text.store_vector(value, text.at(target, text.mul(place, n)))


def _lay_out(text: KernelBuilder, image: _Image, channel: str) -> None:
    """Write the pixels of a register of channels at the beginning of scratch memory. A row's last
    pixels may go on behind it: rows are written in order."""
    lanes = text.vector.lanes
    final = text.sub(image.channels, 1)
    starts = [
        text.at(image.start, text.mul(text.least(text.add(channel, n), final), image.channel_step))
        for n in range(lanes)
    ]
    with text.loop(image.rows) as r:
        at = text.add(image.first_row, r)
        inside = text.op(f"icmp ult i64 {at}, {image.size_rows}")
        upto = text.op(f"select i1 {inside}, i64 {image.size_columns}, i64 0")
        begin = text.mul(at, image.row_step)
        sources = [text.at(start, begin) for start in starts]
        target = text.at(text.scratch, text.mul(r, image.width, lanes))
        with text.loop(image.width, lanes) as column:
            place = text.add(image.first_column, column)
            block = [
                text.load_strided(1, source, place, "1", "0", upto, "zeroinitializer")
                for source in sources
            ]
            for n, pixel in enumerate(transposed(text, block)):
                text.store_vector(pixel, text.at(target, text.mul(text.add(column, n), lanes)))


def _multiply(text: KernelBuilder, sums: str, squares: str, outputs: str, more: str) -> None:
    """Add the products of these squares to all sums."""
    with text.loop(PLACES) as place:
        a = text.at(text.scratch, text["y_at"], text.mul(place, text["y_place"]))
        b = text.at(text.scratch, text["x_at"], text.mul(place, text["x_place"]))
        c = text.at(sums, text.mul(place, text["outputs"], text["sums_row"]))
        multiply(
            text, tile_for(text.vector), Matrix(a, text["y_step"]), Matrix(b, text["x_step"]),
            Matrix(c, text["sums_row"]), squares, outputs, text["channels"], text["panel"], more,
        )  # fmt: skip


# -- adding up ----------------------------------------------------------------------------------


class _SumNumbers(NamedTuple):
    items: int
    per_chunk: int
    parts: int
    part_step: int
    outputs: int
    group_step: int
    place_step: int
    row: int
    channels: int


def winograd_sum_kernel(vector: Vector, given: WeightGradient) -> Kernel:
    """The kernel that adds the sums of all parts up and makes the gradient of them; it takes the
    sums and the gradient."""
    parts = _Cut.choose(vector, given).parts
    items = given.groups * given.outputs
    row, size = _row(vector, given), _sums(vector, given)
    per_chunk = max(1, min(items, (1 << 15) // (PLACES * row * parts)))
    numbers = _SumNumbers(
        items, per_chunk, parts, given.groups * size, given.outputs, size, given.outputs * row,
        row, given.channels,
    )  # fmt: skip
    return with_numbers(_sum_text(vector), numbers, [], -(-items // per_chunk))


@cache
def _sum_text(vector: Vector) -> Kernel:
    text = KernelBuilder(vector, ("sums", "out"), _SumNumbers._fields)
    first, last = text.items("%chunk", text["per_chunk"], text["items"])
    taps = _TAPS * _TAPS
    with (
        text.loop(last, first=first) as item,
        text.loop(text["channels"], vector.lanes) as channel,
    ):
        group, output = text.split(item, text["outputs"])
        start = text.at(
            text["sums"], channel, text.mul(group, text["group_step"]),
            text.mul(output, text["row"]),
        )  # fmt: skip
        begins = [text.at(start, text.mul(text["place_step"], n)) for n in range(PLACES)]
        held = [(vector.type, text.load_vector(begin)) for begin in begins]
        with text.carrying_loop(text["parts"], held, first=1) as (part, carried):
            step = text.mul(part, text["part_step"])
            others = [text.load_vector(text.at(begin, step)) for begin in begins]
            pairs = zip(carried.values, others, strict=True)
            carried.after = [text.plus(value, other) for value, other in pairs]
        element = text.add(text.mul(item, text["channels"]), channel)
        to = text.at(text["out"], text.mul(element, taps))
        left = text.sub(text["channels"], channel)
        for n, value in enumerate(both_ways(text, carried.after, _of_weight)):
            text.store_strided(0, value, text.at(to, n), str(taps), left)
    return text.kernel("conv_winograd_sum")


def _of_weight(text: KernelBuilder, u: list[str]) -> list[str]:
    """The gradients of three elements from those of their sums, the last with its sign turned."""
    outer = text.half(text.plus(u[1], u[2]))
    middle = text.half(text.minus(u[1], u[2]))
    return [text.plus(u[0], outer), middle, text.minus(outer, u[3])]
