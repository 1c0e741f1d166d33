"""Winograd weight gradient of 3x3 kernels (see :mod:`.kernels.conv.winograd`).

A chunk takes some rows of spatial tiles of a sample, or some samples, for a band of output
channels. x and the output gradient y are packed to NHWC and transformed; 16 matrix products follow,
reduced over all spatial tiles. Partitions of the tiles leave partial sums; a second kernel reduces
these in a fixed order and transforms them to the 3x3 taps.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import NamedTuple

from evergrad.compiler.codegen.ir_builder import Vector
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.kernel_builder import ENOUGH_CHUNKS, KernelBuilder, with_numbers
from evergrad.compiler.kernels.conv.im2col_weight_grad import WeightGradient
from evergrad.compiler.kernels.conv.padded_planes import Strides
from evergrad.compiler.kernels.conv.winograd_transforms import (
    PLACES,
    SIDE,
    Matrix,
    Transform1d,
    input_transform,
    multiply,
    panel_width,
    transform_2d,
)
from evergrad.compiler.kernels.gemm.microkernel import tile_for, transposed
from evergrad.compiler.native.target import machine

_TAPS = 3
# Fewer input or output channels are not worth transforming.
_FEW = 32
# What is transformed at a time stays in a cache of this many bytes, if there are so many spatial
# tiles.
_CACHE = 13 * machine().l2_bytes // 16
_ENOUGH = 48
# Partial sums of all chunks have at most this many bytes.
_SUMS = min(16 << 20, machine().l3_bytes // 2)
# There are at least so many chunks; more of them have at least so many spatial tiles. Bands have at
# least so many output channels, if there are more.
_FEW_CHUNKS = 4
_LONG_PART = 256
_BAND = 64
# Cycles to pack and transform a register of a tile, of x and of y.
# Fitted by tools/fit_kernel_costs.py.
_TRANSFORMING = 80.0
# The overhead of the matrix products over their FMAs, and bytes of sums read per cycle.
# Fitted by tools/fit_kernel_costs.py.
_SLOWER = 1.15
_BYTES_A_CYCLE = 24
# Convolutions whose tiling is cached.
_KNOWN = 256


def supports_winograd_weight_grad(
    vector: Vector, problem: WeightGradient, x: Strides, y: Strides
) -> bool:
    """Whether a weight gradient can use Winograd, and may profit."""
    return (
        vector.element == "float"
        and min(problem.channels, problem.outputs) >= _FEW
        and all(
            s.kernel == _TAPS and s.stride == s.dilation == 1
            for s in (problem.rows, problem.columns)
        )
        and x.column == y.column == 1
    )


class _Tiling(NamedTuple):
    """The samples and rows of spatial tiles that are transformed at a time, the partitions of the
    reduction, and the output channels of a chunk."""

    block_samples: int
    block_rows: int  # of spatial tiles
    parts: int
    band: int

    @classmethod
    @lru_cache(_KNOWN)
    def choose(cls, vector: Vector, problem: WeightGradient) -> _Tiling:
        rows, columns = _tile_counts(problem)
        size = (
            _tile_stride(vector, problem.channels) + _tile_stride(vector, problem.outputs)
        ) * vector.size
        fitting = max(_ENOUGH, _CACHE // (PLACES * size))
        block = max(1, min(rows, fitting // columns))
        block = -(-rows // -(-rows // block))
        block_samples = 1
        if block == rows:
            block_samples = max(1, min(problem.samples, fitting // (rows * columns)))
        items = -(-problem.samples // block_samples) * -(-rows // block)
        most = max(1, _SUMS // (_sum_size(vector, problem) * problem.groups * vector.size))
        long = max(1, problem.samples * rows * columns // _LONG_PART)
        parts = min(items, most, long, -(-ENOUGH_CHUNKS // problem.groups))
        few = -(-_FEW_CHUNKS // (parts * problem.groups))
        bands = min(few, max(1, problem.outputs // _BAND))
        parts = min(items, max(parts, -(-few // bands)))
        parts = -(-items // -(-items // parts))
        high = tile_for(vector).rows
        return cls(block_samples, block, parts, -(-problem.outputs // (bands * high)) * high)


def _tile_counts(problem: WeightGradient) -> tuple[int, int]:
    """The rows and columns of spatial tiles."""
    return -(-problem.rows.extent // 2), -(-problem.columns.extent // 2)


def _tile_stride(vector: Vector, channels: int) -> int:
    """The stride of spatial tiles: an odd number of registers, else they would share cache sets."""
    return (-(-channels // vector.lanes) | 1) * vector.lanes


def _sum_size(vector: Vector, problem: WeightGradient) -> int:
    """The elements of the sums of a group."""
    return PLACES * problem.outputs * _sum_row(vector, problem)


def _sum_row(vector: Vector, problem: WeightGradient) -> int:
    """The padded channels of a row of the sums."""
    return -(-problem.channels // vector.lanes) * vector.lanes


def winograd_weight_grad_cycles(vector: Vector, problem: WeightGradient) -> float:
    """Estimated cycles of a pixel of y, with packing x and y."""
    tiling = _Tiling.choose(vector, problem)
    rows, columns = _tile_counts(problem)
    bands = -(-problem.outputs // tiling.band)
    channels, outputs = (-(-n // vector.lanes) for n in (problem.channels, problem.outputs))
    tile_cycles = PLACES * channels * problem.outputs / 2 * _SLOWER
    tile_cycles += _TRANSFORMING * (channels * bands + outputs)
    chunks = -(-rows // tiling.block_rows) * problem.samples / tiling.block_samples + tiling.parts
    read = 2 * chunks * _sum_size(vector, problem) * vector.size / _BYTES_A_CYCLE
    pixels = problem.samples * problem.rows.extent * problem.columns.extent
    return (tile_cycles * rows * columns * problem.samples + read) / pixels


def winograd_weight_grad_sum_bytes(vector: Vector, problem: WeightGradient) -> int:
    """The bytes of the partial sums."""
    return (
        _Tiling.choose(vector, problem).parts
        * problem.groups
        * _sum_size(vector, problem)
        * vector.size
    )


class _Numbers(NamedTuple):
    """Integer arguments."""

    groups: int
    bands: int
    band: int
    items: int
    per_part: int
    samples: int
    block_samples: int
    row_blocks: int
    block_rows: int
    tile_rows: int
    tile_columns: int
    channels: int
    outputs: int
    x_rows: int
    x_columns: int
    y_rows: int
    y_columns: int
    first_row: int
    first_column: int
    x_tile_stride: int
    y_tile_stride: int
    x_element_stride: int
    y_element_stride: int
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


def winograd_weight_grad_kernel(
    vector: Vector, problem: WeightGradient, x: Strides, y: Strides
) -> Kernel:
    """The kernel with the arguments y, x and the partial sums."""
    tiling = _Tiling.choose(vector, problem)
    rows, columns = problem.rows, problem.columns
    tile_rows, tile_columns = _tile_counts(problem)
    lanes = vector.lanes
    row_blocks = -(-tile_rows // tiling.block_rows)
    items = -(-problem.samples // tiling.block_samples) * row_blocks
    tiles = tiling.block_samples * tiling.block_rows * tile_columns
    x_tile_stride = _tile_stride(vector, problem.channels)
    y_tile_stride = _tile_stride(vector, tiling.band)
    x_element_stride, y_element_stride = (
        tiles * stride + lanes for stride in (x_tile_stride, y_tile_stride)
    )
    # Rows of pixels are packed at the start; whole blocks of registers are stored.
    x_at = ((2 * tiling.block_rows + 2) * (2 * tile_columns + 2) + lanes) * lanes
    y_at = x_at + PLACES * x_element_stride
    bands = -(-problem.outputs // tiling.band)
    numbers = _Numbers(
        problem.groups, bands, tiling.band, items, -(-items // tiling.parts), problem.samples,
        tiling.block_samples, row_blocks, tiling.block_rows, tile_rows, tile_columns,
        problem.channels, problem.outputs,
        rows.size, columns.size, rows.extent, columns.extent, -rows.padding, -columns.padding,
        x_tile_stride, y_tile_stride, x_element_stride, y_element_stride, x_at, y_at,
        panel_width(tile_for(vector), problem.channels),
        _sum_size(vector, problem), _sum_row(vector, problem), *x[:3], *y[:3],
    )  # fmt: skip
    return with_numbers(
        _kernel_ir(vector), numbers, [], tiling.parts * problem.groups * bands,
        (y_at + PLACES * y_element_stride) * vector.size,
    )  # fmt: skip


@cache
def _kernel_ir(vector: Vector) -> Kernel:
    ir = KernelBuilder(vector, ("y", "x", "sums"), _Numbers._fields)
    partition, band = ir.split("%chunk", ir["bands"])
    part, group = ir.split(partition, ir["groups"])
    first, last = ir.items(part, ir["per_part"], ir["items"])
    output, end = ir.items(band, ir["band"], ir["outputs"])
    outputs = ir.sub(end, output)
    top_output = ir.add(ir.mul(group, ir["outputs"]), output)
    x = ir.at(ir["x"], ir.mul(group, ir["channels"], ir["x_channel"]))
    y = ir.at(ir["y"], ir.mul(top_output, ir["y_channel"]))
    sums = ir.at(
        ir["sums"],
        ir.mul(partition, ir["sums_size"]),
        ir.mul(output, ir["sums_row"]),
    )
    with ir.loop(last, first=first) as item:
        some, block = ir.split(item, ir["row_blocks"])
        sample, row = ir.mul(some, ir["block_samples"]), ir.mul(block, ir["block_rows"])
        samples = ir.least(ir["block_samples"], ir.sub(ir["samples"], sample))
        rows = ir.least(ir["block_rows"], ir.sub(ir["tile_rows"], row))
        with ir.loop(samples) as number:
            begin = ir.add(sample, number)
            done = ir.mul(number, rows, ir["tile_columns"])
            start = ir.at(x, ir.mul(begin, ir["x_sample"]))
            _transform_x(ir, start, row, rows, done)
            start = ir.at(y, ir.mul(begin, ir["y_sample"]))
            _transform_y(ir, start, row, rows, done, outputs)
        tiles = ir.mul(samples, rows, ir["tile_columns"])
        more = ir.op(f"icmp ne i64 {item}, {first}")
        _multiply(ir, sums, tiles, outputs, more)
    return ir.kernel("conv_winograd_weight_grad")


class _Image(NamedTuple):
    """An image to be packed: its strides and extents, the first row and column of the block (which
    may be in the padding), and the extents of the block."""

    start: str
    channels: str
    channel_stride: str
    row_stride: str
    size_rows: str
    size_columns: str
    first_row: str
    first_column: str
    rows: str
    width: str


def _transform_x(ir: KernelBuilder, x: str, row: str, rows: str, done: str) -> None:
    """Store the input transform of tiles of x after ``done`` tiles: [elements of the tile, tiles,
    channels]."""
    image = _Image(
        x, ir["channels"], ir["x_channel"], ir["x_row"], ir["x_rows"], ir["x_columns"],
        ir.add(ir["first_row"], ir.mul(row, 2)), ir["first_column"],
        ir.add(ir.mul(rows, 2), 2), ir.add(ir.mul(ir["tile_columns"], 2), 2),
    )  # fmt: skip
    to = ir.at(ir.scratch, ir["x_at"], ir.mul(done, ir["x_tile_stride"]))
    _transform(ir, image, SIDE, input_transform, to, ir["x_tile_stride"], ir["x_element_stride"])


def _transform_y(ir: KernelBuilder, y: str, row: str, rows: str, done: str, outputs: str) -> None:
    """The same for the output gradient."""
    image = _Image(
        y, outputs, ir["y_channel"], ir["y_row"], ir["y_rows"], ir["y_columns"],
        ir.mul(row, 2), "0", ir.mul(rows, 2), ir.mul(ir["tile_columns"], 2),
    )  # fmt: skip
    to = ir.at(ir.scratch, ir["y_at"], ir.mul(done, ir["y_tile_stride"]))
    _transform(
        ir, image, 2, _output_grad_transform, to, ir["y_tile_stride"], ir["y_element_stride"]
    )


def _output_grad_transform(ir: KernelBuilder, y: list[str]) -> list[str]:
    """The transpose of the output transform along one dimension; the last element is negated."""
    return [y[0], ir.plus(y[0], y[1]), ir.minus(y[0], y[1]), y[1]]


def _transform(
    ir: KernelBuilder,
    image: _Image,
    side: int,
    transform: Transform1d,
    to: str,
    tile_stride: str,
    element_stride: str,
) -> None:
    """Pack and transform a vector of channels at a time, for all spatial tiles."""
    lanes = ir.vector.lanes
    with ir.loop(image.channels, lanes) as channel:
        _pack(ir, image, channel)
        tiles = ir.op(f"udiv i64 {image.rows}, 2")
        if side == SIDE:
            tiles = ir.sub(tiles, 1)
        with ir.loop(tiles) as r, ir.loop(ir["tile_columns"]) as column:
            corner = ir.add(ir.mul(r, 2, image.width), ir.mul(column, 2))
            begin = ir.at(ir.scratch, ir.mul(corner, lanes))
            values = [
                ir.load_vector(ir.at(begin, ir.mul(ir.add(ir.mul(image.width, i), j), lanes)))
                for i in range(side)
                for j in range(side)
            ]
            number = ir.add(ir.mul(r, ir["tile_columns"]), column)
            target = ir.at(to, ir.mul(number, tile_stride), channel)
            for n, value in enumerate(transform_2d(ir, values, transform)):
                ir.store_vector(value, ir.at(target, ir.mul(element_stride, n)))


def _pack(ir: KernelBuilder, image: _Image, channel: str) -> None:
    """Pack the pixels of a vector of channels to the start of scratch memory. The last pixels may
    extend past a row: rows are stored in ascending order."""
    lanes = ir.vector.lanes
    final = ir.sub(image.channels, 1)
    starts = [
        ir.at(image.start, ir.mul(ir.least(ir.add(channel, n), final), image.channel_stride))
        for n in range(lanes)
    ]
    with ir.loop(image.rows) as r:
        at = ir.add(image.first_row, r)
        inside = ir.op(f"icmp ult i64 {at}, {image.size_rows}")
        upto = ir.op(f"select i1 {inside}, i64 {image.size_columns}, i64 0")
        begin = ir.mul(at, image.row_stride)
        sources = [ir.at(start, begin) for start in starts]
        target = ir.at(ir.scratch, ir.mul(r, image.width, lanes))
        with ir.loop(image.width, lanes) as column:
            first = ir.add(image.first_column, column)
            block = [
                ir.load_strided(1, source, first, "1", "0", upto, "zeroinitializer")
                for source in sources
            ]
            for n, pixel in enumerate(transposed(ir, block)):
                ir.store_vector(pixel, ir.at(target, ir.mul(ir.add(column, n), lanes)))


def _multiply(ir: KernelBuilder, sums: str, tiles: str, outputs: str, more: str) -> None:
    """Accumulate the products of these spatial tiles onto all sums."""
    with ir.loop(PLACES) as element:
        a = ir.at(ir.scratch, ir["y_at"], ir.mul(element, ir["y_element_stride"]))
        b = ir.at(ir.scratch, ir["x_at"], ir.mul(element, ir["x_element_stride"]))
        c = ir.at(sums, ir.mul(element, ir["outputs"], ir["sums_row"]))
        multiply(
            ir, tile_for(ir.vector), Matrix(a, ir["y_tile_stride"]), Matrix(b, ir["x_tile_stride"]),
            Matrix(c, ir["sums_row"]), tiles, outputs, ir["channels"], ir["panel"], more,
        )  # fmt: skip


# -- reduction of partial sums -------------------------------------------------------------------


class _SumNumbers(NamedTuple):
    items: int
    per_chunk: int
    parts: int
    part_stride: int
    outputs: int
    group_stride: int
    element_stride: int
    row: int
    channels: int


def winograd_weight_grad_sum_kernel(vector: Vector, problem: WeightGradient) -> Kernel:
    """The kernel that reduces partial sums and transforms them to the gradient; its arguments are
    the sums and the gradient."""
    parts = _Tiling.choose(vector, problem).parts
    items = problem.groups * problem.outputs
    row, size = _sum_row(vector, problem), _sum_size(vector, problem)
    per_chunk = max(1, min(items, (1 << 15) // (PLACES * row * parts)))
    numbers = _SumNumbers(
        items, per_chunk, parts, problem.groups * size, problem.outputs, size,
        problem.outputs * row, row, problem.channels,
    )  # fmt: skip
    return with_numbers(_sum_kernel_ir(vector), numbers, [], -(-items // per_chunk))


@cache
def _sum_kernel_ir(vector: Vector) -> Kernel:
    ir = KernelBuilder(vector, ("sums", "out"), _SumNumbers._fields)
    first, last = ir.items("%chunk", ir["per_chunk"], ir["items"])
    taps = _TAPS * _TAPS
    with (
        ir.loop(last, first=first) as item,
        ir.loop(ir["channels"], vector.lanes) as channel,
    ):
        group, output = ir.split(item, ir["outputs"])
        start = ir.at(
            ir["sums"], channel, ir.mul(group, ir["group_stride"]),
            ir.mul(output, ir["row"]),
        )  # fmt: skip
        begins = [ir.at(start, ir.mul(ir["element_stride"], n)) for n in range(PLACES)]
        held = [(vector.type, ir.load_vector(begin)) for begin in begins]
        with ir.carrying_loop(ir["parts"], held, first=1) as (part, carried):
            offset = ir.mul(part, ir["part_stride"])
            others = [ir.load_vector(ir.at(begin, offset)) for begin in begins]
            pairs = zip(carried.values, others, strict=True)
            carried.after = [ir.plus(value, other) for value, other in pairs]
        element = ir.add(ir.mul(item, ir["channels"]), channel)
        to = ir.at(ir["out"], ir.mul(element, taps))
        left = ir.sub(ir["channels"], channel)
        for n, value in enumerate(transform_2d(ir, carried.after, _weight_grad_transform)):
            ir.store_strided(0, value, ir.at(to, n), str(taps), left)
    return ir.kernel("conv_winograd_weight_grad_sum")


def _weight_grad_transform(ir: KernelBuilder, u: list[str]) -> list[str]:
    """The transpose of the weight transform along one dimension; its last operand is negated."""
    outer = ir.half(ir.plus(u[1], u[2]))
    middle = ir.half(ir.minus(u[1], u[2]))
    return [ir.plus(u[0], outer), middle, ir.minus(outer, u[3])]
