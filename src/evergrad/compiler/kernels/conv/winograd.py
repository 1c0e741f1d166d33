"""Convolution with kernels of 3x3 elements in fewer products (Winograd's F(2x2, 3x3)).

Outputs are taken in squares of 2x2, each of which depends on a square of 4x4 elements of x. 16 sums
of these elements, times 16 sums of the kernel's elements, added over channels, give 16 numbers
whose sums are the 4 outputs: 16 products instead of 36. A chunk transforms some rows of squares of
a sample, or some samples; then come 16 products of matrices.

Factors are 1 and 1/2, so whole numbers stay exact. An infinity in x makes NaN of all four outputs
of its squares, also of those that do not depend on it.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import NamedTuple

from evergrad.compiler.codegen.ir_builder import KernelBuilder, Vector, with_numbers
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.kernels.conv.padded_planes import Axis, Correlation, Steps
from evergrad.compiler.kernels.conv.winograd_pack_weight import place_step
from evergrad.compiler.kernels.conv.winograd_transforms import (
    PLACES,
    SIDE,
    Matrix,
    both_ways,
    multiply,
    of_inputs,
    panel_of,
)
from evergrad.compiler.kernels.gemm.microkernel import Tile, tile_for
from evergrad.compiler.native.target import machine
from evergrad.compiler.passes.conv_epilogue import Epilogue, emit_epilogue, pointers

# Fewer channels or outputs are not worth transforming.
_FEW = 32
# There are at least so many chunks; bands of outputs have at least so many, if there are more.
_FEW_CHUNKS = 4
_BAND = 64
# Samples are taken together up to so many squares.
_MOST_SQUARES = 1024
# Convolutions whose cut is remembered.
_KNOWN = 256
# Transformed elements of x that stay in cache, in bytes, and sums of some outputs that should.
_NEAR = machine().l2_bytes // 2
_SUMS = 7 * machine().l2_bytes // 32
# Bytes in a cycle that come from the cache nearby, and from further away.
# Fitted by tools/fit_kernel_costs.py.
_FROM_NEAR = 32
_FROM_FAR = 8
# Cycles to transform a register of each of the 16 elements: of x with laying it out, of sums and of
# the weight.
# Fitted by tools/fit_kernel_costs.py.
_TRANSFORMING = 60.0
_WRITING = 40.0
_WEIGHING = 400.0
# How much longer products take than their number says.
# Fitted by tools/fit_kernel_costs.py.
_SLOWER = 1.1


def is_winograd(vector: Vector, given: Correlation) -> bool:
    """Whether a convolution can be computed so, and may be worth it."""
    return (
        vector.element == "float"
        and min(given.channels, given.outputs) >= _FEW
        and all(_is_plain(axis) for axis in (given.rows, given.columns))
    )


def _is_plain(axis: Axis) -> bool:
    """Whether windows are three neighbours each, one element apart, for all outputs."""
    shifts = sorted(shift for _, shift in axis.taps)
    return axis.stride == axis.step == 1 and shifts == list(range(axis.low, axis.low + 3))


def _pairs(axis: Axis) -> int:
    """The squares along an axis."""
    return -(-axis.extent // 2)


class WinogradCut(NamedTuple):
    """What is transformed at a time, and the outputs of a chunk and of the sums that are held."""

    together: int  # samples
    block: int  # rows of squares
    band: int
    held: int

    @classmethod
    @lru_cache(_KNOWN)
    def choose(cls, vector: Vector, given: Correlation) -> WinogradCut:
        rows = _pairs(given.rows)
        most = max(1, min(given.samples, _MOST_SQUARES // (rows * _pairs(given.columns))))
        sizes = [(1, block) for block in range(1, rows)]
        sizes += [(together, rows) for together in range(1, most + 1)]
        cuts = [cls._of(vector, given, *size) for size in sizes]
        return min(cuts, key=lambda cut: cut.cycles(vector, given))

    @classmethod
    def _of(cls, vector: Vector, given: Correlation, together: int, block: int) -> WinogradCut:
        chunks = given.groups * -(-given.samples // together) * -(-_pairs(given.rows) // block)
        bands = min(-(-_FEW_CHUNKS // chunks), max(1, given.outputs // _BAND))
        high = tile_for(vector).rows
        band = _rounded(-(-given.outputs // bands), high)
        length = together * block * _pairs(given.columns)
        place = PLACES * length * vector.size
        parts = 1
        if place * given.channels <= _NEAR:  # it is read again for each part
            parts = -(-place * band // _SUMS)
        return cls(together, block, band, _rounded(-(-band // parts), high))

    def cycles(self, vector: Vector, given: Correlation) -> float:
        """About how many cycles a sample takes."""
        lanes = vector.lanes
        vectors = -(-self.length(given) // lanes)
        pieces = self.together * self.block * -(-_pairs(given.columns) // lanes)
        bands = -(-given.outputs // self.band)
        chunk = PLACES * given.channels * given.outputs * vectors / 2 * _SLOWER
        chunk += _TRANSFORMING * given.channels * pieces * bands
        chunk += _WRITING * given.outputs * pieces
        weight = PLACES * given.channels * given.outputs * vector.size
        chunk += weight / (_FROM_NEAR if weight <= _NEAR else _FROM_FAR)
        inputs = PLACES * given.channels * lanes * vectors * vector.size
        chunk += 2 * bands * inputs / _FROM_FAR if inputs > _NEAR else 0.0
        chunks = -(-given.samples // self.together) * -(-_pairs(given.rows) // self.block)
        whole = _WEIGHING * given.channels * -(-given.outputs // lanes)
        return (chunk * chunks + whole) / given.samples

    def length(self, given: Correlation) -> int:
        """The squares of a chunk."""
        return self.together * self.block * _pairs(given.columns)


def _rounded(value: int, step: int) -> int:
    return -(-value // step) * step


class _Numbers(NamedTuple):
    """The kernel's numbers."""

    channels: int
    outputs: int
    place_step: int
    bands: int
    band: int
    held: int
    groups: int
    samples: int
    together: int
    row_blocks: int
    block: int
    square_rows: int
    square_columns: int
    width: int
    plane: int
    size_rows: int
    size_columns: int
    first_row: int
    first_column: int
    count_rows: int
    count_columns: int
    leading: int
    panel: int
    inputs_at: int
    inputs_step: int
    sums_at: int
    sums_step: int
    x_sample: int
    x_channel: int
    x_row: int
    y_sample: int
    y_channel: int
    y_row: int


def winograd_kernel(
    vector: Vector, given: Correlation, x: Steps, y: Steps, steps: Epilogue
) -> Kernel:
    """The kernel that takes x, whose columns lie in order, the transformed weight, what later
    steps take, and y."""
    cut = WinogradCut.choose(vector, given)
    rows, columns = given.rows, given.columns
    square_rows, square_columns = _pairs(rows), _pairs(columns)
    width = square_columns + 1
    lanes = vector.lanes
    # An odd number of registers, else rows would share places in the cache; one more is written.
    leading = (-(-cut.length(given) // lanes) + 1 | 1) * lanes
    plane = (cut.block + 1) * width + lanes
    inputs_at = -(-SIDE * plane // lanes) * lanes + lanes
    inputs_step, sums_step = (count * leading + lanes for count in (given.channels, cut.held))
    sums_at = inputs_at + PLACES * inputs_step
    row_blocks = -(-square_rows // cut.block)
    bands = -(-given.outputs // cut.band)
    numbers = _Numbers(
        given.channels, given.outputs, place_step(vector, given), bands, cut.band, cut.held,
        given.groups, given.samples, cut.together, row_blocks, cut.block, square_rows,
        square_columns, width, plane, rows.size, columns.size, rows.low, columns.low, rows.extent,
        columns.extent, leading, panel_of(tile_for(vector), cut.length(given)), inputs_at,
        inputs_step, sums_at, sums_step, *x[:3], *y[:3],
    )  # fmt: skip
    chunks = -(-given.samples // cut.together) * given.groups * row_blocks * bands
    nbytes = (sums_at + PLACES * sums_step + lanes) * vector.size
    return with_numbers(_text(vector, steps), numbers, [], chunks, nbytes)


@cache
def _text(vector: Vector, steps: Epilogue) -> Kernel:
    text = KernelBuilder(vector, pointers(steps), _Numbers._fields)
    item, band = text.split("%chunk", text["bands"])
    place, block = text.split(item, text["row_blocks"])
    some, group = text.split(place, text["groups"])
    sample, row = text.mul(some, text["together"]), text.mul(block, text["block"])
    samples = text.least(text["together"], text.sub(text["samples"], sample))
    rows = text.least(text["block"], text.sub(text["square_rows"], row))
    x = text.at(
        text["x"],
        text.mul(sample, text["x_sample"]),
        text.mul(group, text["channels"], text["x_channel"]),
    )
    _transform(text, x, samples, row, rows)
    first, last = text.items(band, text["band"], text["outputs"])
    y = text.at(
        text["y"],
        text.mul(sample, text["y_sample"]),
        text.mul(group, text["outputs"], text["y_channel"]),
        text.mul(row, text["y_row"], 2),
    )
    with text.loop(last, text["held"], first) as output:
        outputs = text.least(text["held"], text.sub(last, output))
        _multiply(text, tile_for(vector), group, output, outputs, text.mul(samples, rows))
        to = text.at(y, text.mul(output, text["y_channel"]))
        number = text.add(text.mul(group, text["outputs"]), output)
        _write(text, steps, to, number, samples, row, rows, outputs)
    return text.kernel("conv_winograd")


def _transform(text: KernelBuilder, x: str, samples: str, row: str, rows: str) -> None:
    """Write the 16 sums of all squares' elements: [places, channels, squares]. A row's last
    register may go on behind its squares: rows are written in their order."""
    lanes = text.vector.lanes
    length = text.mul(rows, text["square_columns"])
    places = [
        text.add(
            text.mul(text["plane"], 2 * (r % 2) + c % 2), text.mul(text["width"], r // 2), c // 2
        )
        for r in range(SIDE)
        for c in range(SIDE)
    ]
    with text.loop(text["channels"]) as channel, text.loop(samples) as sample:
        source = text.at(
            x, text.mul(sample, text["x_sample"]), text.mul(channel, text["x_channel"])
        )
        _part(text, source, row, rows)
        target = text.at(
            text.scratch,
            text["inputs_at"],
            text.mul(channel, text["leading"]),
            text.mul(sample, length),
        )
        with text.loop(rows) as r, text.loop(text["square_columns"], lanes) as column:
            begin = text.at(text.scratch, text.mul(r, text["width"]), column)
            values = [text.load_vector(text.at(begin, place)) for place in places]
            to = text.at(target, text.mul(r, text["square_columns"]), column)
            for n, value in enumerate(both_ways(text, values, of_inputs)):
                text.store_vector(value, text.at(to, text.mul(text["inputs_step"], n)))


def _part(text: KernelBuilder, x: str, row: str, rows: str) -> None:
    """Write rows of a channel, with padding, as planes: the even and odd columns of even rows, then
    those of odd rows. A row's last register may go on behind it: rows are written in order, and
    planes lie apart."""
    lanes = text.vector.lanes
    top = text.add(text["first_row"], text.mul(row, 2))
    with text.loop(text.mul(text.add(rows, 1), 2)) as number:
        at = text.add(top, number)
        inside = text.op(f"icmp ult i64 {at}, {text['size_rows']}")
        upto = text.op(f"select i1 {inside}, i64 {text['size_columns']}, i64 0")
        source = text.at(x, text.mul(at, text["x_row"]))
        pair, odd = text.split(number, "2")
        target = text.at(
            text.scratch, text.mul(odd, text["plane"], 2), text.mul(pair, text["width"])
        )
        with text.loop(text["width"], lanes) as square:
            column = text.add(text["first_column"], text.mul(square, 2))
            halves = [
                text.load_strided(1, source, start, "1", "0", upto, "zeroinitializer")
                for start in (column, text.add(column, lanes))
            ]
            for phase, part in enumerate(text.deinterleaved(*halves)):
                text.store_vector(part, text.at(target, text.mul(text["plane"], phase), square))


def _multiply(
    text: KernelBuilder, tile: Tile, group: str, output: str, outputs: str, rows: str
) -> None:
    """The products of matrices for some outputs, place by place: [places, outputs, squares]."""
    squares = text.mul(rows, text["square_columns"])
    with text.loop(PLACES) as place:
        number = text.add(text.mul(group, PLACES), place)
        a = text.at(
            text["weight"],
            text.mul(number, text["place_step"]),
            text.mul(output, text["channels"]),
        )
        b = text.at(text.scratch, text["inputs_at"], text.mul(place, text["inputs_step"]))
        c = text.at(text.scratch, text["sums_at"], text.mul(place, text["sums_step"]))
        leading = text["leading"]
        multiply(
            text, tile, Matrix(a, tile.rows), Matrix(b, leading), Matrix(c, leading),
            text["channels"], outputs, squares, text["panel"],
        )  # fmt: skip


def _write(
    text: KernelBuilder,
    steps: Epilogue,
    y: str,
    first: str,
    samples: str,
    row: str,
    rows: str,
    outputs: str,
) -> None:
    """Make outputs, from ``first`` on, of the sums: pairs of rows for one after the other."""
    lanes = text.vector.lanes
    top = text.mul(row, 2)
    below = text.sub(text.sub(text["count_rows"], top), 1)
    with (
        text.loop(samples) as sample,
        text.loop(outputs) as output,
        text.loop(rows) as r,
        text.loop(text["square_columns"], lanes) as column,
    ):
        before = text.mul(text.add(text.mul(sample, rows), r), text["square_columns"])
        source = text.at(
            text.scratch, text["sums_at"], text.mul(output, text["leading"]), before, column
        )
        values = [
            text.load_vector(text.at(source, text.mul(text["sums_step"], n))) for n in range(PLACES)
        ]
        target = text.at(
            y,
            text.mul(sample, text["y_sample"]),
            text.mul(output, text["y_channel"]),
            text.mul(r, text["y_row"], 2),
            text.mul(column, 2),
        )
        left = text.sub(text["count_columns"], text.mul(column, 2))
        is_there = text.op(f"icmp slt i64 {text.mul(r, 2)}, {below}")
        lower = text.op(f"select i1 {is_there}, i64 {left}, i64 0")
        number = text.add(first, output)
        pairs = [
            emit_epilogue(text, steps, v, number) for v in both_ways(text, values, _of_outputs)
        ]
        for n, count in enumerate((left, lower)):
            to = text.at(target, text.mul(text["y_row"], n))
            for half, mixed in enumerate(text.interleaved(pairs[2 * n], pairs[2 * n + 1])):
                there = text.sub(count, half * lanes)
                text.store_strided(1, mixed, text.at(to, half * lanes), "1", there)


def _of_outputs(text: KernelBuilder, m: list[str]) -> list[str]:
    return [
        text.plus(m[0], text.plus(m[1], m[2])),
        text.minus(text.minus(m[1], m[2]), m[3]),
    ]
