"""Winograd convolution F(2x2, 3x3): kernels of 3x3 elements with stride one.

A spatial tile of 2x2 outputs depends on an input tile of 4x4 elements. The input transform of the
input tile, times the transformed weight, elementwise and reduced over channels, has the spatial
tile as its output transform: 16 products instead of 36. A chunk transforms some rows of spatial
tiles of a sample, or some samples, and computes 16 matrix products.

Factors are 1 and 1/2, so integers stay exact. An infinity in x makes all four outputs of its
spatial tiles NaN, also those that do not depend on it.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import NamedTuple

from evergrad.compiler.codegen.epilogue import Epilogue
from evergrad.compiler.codegen.ir_builder import Vector
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.kernel_builder import KernelBuilder, with_numbers
from evergrad.compiler.kernels.conv.epilogue import (
    Place,
    emit_epilogue,
    pointers,
)
from evergrad.compiler.kernels.conv.padded_planes import Axis, Correlation, Strides
from evergrad.compiler.kernels.conv.winograd_pack_weight import element_stride
from evergrad.compiler.kernels.conv.winograd_transforms import (
    PLACES,
    SIDE,
    Matrix,
    input_transform,
    multiply,
    panel_width,
    transform_2d,
)
from evergrad.compiler.kernels.gemm.microkernel import Tile, tile_for
from evergrad.compiler.native.target import machine

# Fewer input or output channels are not worth transforming.
_FEW = 32
# There are at least so many chunks; bands have at least so many output channels, if there are more.
_FEW_CHUNKS = 4
_BAND = 64
# Blocks of samples have at most so many spatial tiles.
_MOST_SQUARES = 1024
# Convolutions whose tiling is cached.
_KNOWN = 256
# Transformed inputs that stay in cache, in bytes, and accumulators that should.
_NEAR = machine().l2_bytes // 2
_SUMS = 7 * machine().l2_bytes // 32
# Bytes per cycle from the near cache, and from the next one.
# Fitted by tools/fit_kernel_costs.py.
_FROM_NEAR = 32
_FROM_FAR = 8
# Cycles to transform a tile of 16 registers: of inputs with packing, of outputs and of the weight.
# Fitted by tools/fit_kernel_costs.py.
_TRANSFORMING = 60.0
_WRITING = 40.0
_WEIGHING = 400.0
# The overhead of the matrix products over their FMAs.
# Fitted by tools/fit_kernel_costs.py.
_SLOWER = 1.1


def supports_winograd(vector: Vector, problem: Correlation) -> bool:
    """Whether a convolution can use Winograd, and may profit."""
    return (
        vector.element == "float"
        and min(problem.channels, problem.outputs) >= _FEW
        and all(_is_three_taps(axis) for axis in (problem.rows, problem.columns))
    )


def _is_three_taps(axis: Axis) -> bool:
    """Whether windows have three contiguous taps and stride one, and all outputs are written."""
    shifts = sorted(shift for _, shift in axis.taps)
    return axis.stride == axis.out_stride == 1 and shifts == list(range(axis.low, axis.low + 3))


def _tile_count(axis: Axis) -> int:
    """The spatial tiles along an axis."""
    return -(-axis.extent // 2)


class WinogradTiling(NamedTuple):
    """The samples and rows of spatial tiles that are transformed at a time, and the output channels
    of a chunk and of its accumulators."""

    block_samples: int
    block_rows: int  # of spatial tiles
    band: int
    held: int

    @classmethod
    @lru_cache(_KNOWN)
    def choose(cls, vector: Vector, problem: Correlation) -> WinogradTiling:
        rows = _tile_count(problem.rows)
        most = max(1, min(problem.samples, _MOST_SQUARES // (rows * _tile_count(problem.columns))))
        sizes = [(1, block) for block in range(1, rows)]
        sizes += [(block_samples, rows) for block_samples in range(1, most + 1)]
        tilings = [cls._of(vector, problem, *size) for size in sizes]
        return min(tilings, key=lambda tiling: tiling.cycles(vector, problem))

    @classmethod
    def _of(
        cls, vector: Vector, problem: Correlation, block_samples: int, block: int
    ) -> WinogradTiling:
        row_blocks = -(-_tile_count(problem.rows) // block)
        chunks = problem.groups * -(-problem.samples // block_samples) * row_blocks
        bands = min(-(-_FEW_CHUNKS // chunks), max(1, problem.outputs // _BAND))
        high = tile_for(vector).rows
        band = _round_up(-(-problem.outputs // bands), high)
        length = block_samples * block * _tile_count(problem.columns)
        channel = PLACES * length * vector.size
        parts = 1
        if channel * problem.channels <= _NEAR:  # inputs are read again for each part
            parts = -(-channel * band // _SUMS)
        return cls(block_samples, block, band, _round_up(-(-band // parts), high))

    def cycles(self, vector: Vector, problem: Correlation) -> float:
        """Estimated cycles of a sample."""
        lanes = vector.lanes
        vectors = -(-self.length(problem) // lanes)
        pieces = self.block_samples * self.block_rows * -(-_tile_count(problem.columns) // lanes)
        bands = -(-problem.outputs // self.band)
        chunk = PLACES * problem.channels * problem.outputs * vectors / 2 * _SLOWER
        chunk += _TRANSFORMING * problem.channels * pieces * bands
        chunk += _WRITING * problem.outputs * pieces
        weight = PLACES * problem.channels * problem.outputs * vector.size
        chunk += weight / (_FROM_NEAR if weight <= _NEAR else _FROM_FAR)
        inputs = PLACES * problem.channels * lanes * vectors * vector.size
        chunk += 2 * bands * inputs / _FROM_FAR if inputs > _NEAR else 0.0
        row_blocks = -(-_tile_count(problem.rows) // self.block_rows)
        chunks = -(-problem.samples // self.block_samples) * row_blocks
        whole = _WEIGHING * problem.channels * -(-problem.outputs // lanes)
        return (chunk * chunks + whole) / problem.samples

    def length(self, problem: Correlation) -> int:
        """The spatial tiles of a chunk."""
        return self.block_samples * self.block_rows * _tile_count(problem.columns)


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


class _Numbers(NamedTuple):
    """Integer arguments."""

    channels: int
    outputs: int
    element_stride: int
    bands: int
    band: int
    held: int
    groups: int
    samples: int
    block_samples: int
    row_blocks: int
    block_rows: int
    tile_rows: int
    tile_columns: int
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
    input_stride: int
    sums_at: int
    sum_stride: int
    x_sample: int
    x_channel: int
    x_row: int
    y_sample: int
    y_channel: int
    y_row: int


def winograd_kernel(
    vector: Vector, problem: Correlation, x: Strides, y: Strides, epilogue: Epilogue | None
) -> Kernel:
    """The kernel with the arguments x, whose columns are contiguous, the transformed weight,
    operands of the epilogue, and y."""
    tiling = WinogradTiling.choose(vector, problem)
    rows, columns = problem.rows, problem.columns
    tile_rows, tile_columns = _tile_count(rows), _tile_count(columns)
    width = tile_columns + 1
    lanes = vector.lanes
    # An odd number of registers, else rows would share cache sets; one more is stored.
    leading = (-(-tiling.length(problem) // lanes) + 1 | 1) * lanes
    plane = (tiling.block_rows + 1) * width + lanes
    inputs_at = -(-SIDE * plane // lanes) * lanes + lanes
    input_stride, sum_stride = (
        count * leading + lanes for count in (problem.channels, tiling.held)
    )
    sums_at = inputs_at + PLACES * input_stride
    row_blocks = -(-tile_rows // tiling.block_rows)
    bands = -(-problem.outputs // tiling.band)
    numbers = _Numbers(
        problem.channels, problem.outputs, element_stride(vector, problem), bands, tiling.band,
        tiling.held, problem.groups, problem.samples, tiling.block_samples, row_blocks,
        tiling.block_rows, tile_rows, tile_columns, width, plane, rows.size, columns.size, rows.low,
        columns.low, rows.extent, columns.extent, leading,
        panel_width(tile_for(vector), tiling.length(problem)), inputs_at,
        input_stride, sums_at, sum_stride, *x[:3], *y[:3],
    )  # fmt: skip
    chunks = -(-problem.samples // tiling.block_samples) * problem.groups * row_blocks * bands
    nbytes = (sums_at + PLACES * sum_stride + lanes) * vector.size
    return with_numbers(_kernel_ir(vector, epilogue), numbers, [], chunks, nbytes)


@cache
def _kernel_ir(vector: Vector, epilogue: Epilogue | None) -> Kernel:
    ir = KernelBuilder(vector, pointers(epilogue), _Numbers._fields)
    item, band = ir.split("%chunk", ir["bands"])
    image, block = ir.split(item, ir["row_blocks"])
    some, group = ir.split(image, ir["groups"])
    sample, row = ir.mul(some, ir["block_samples"]), ir.mul(block, ir["block_rows"])
    samples = ir.least(ir["block_samples"], ir.sub(ir["samples"], sample))
    rows = ir.least(ir["block_rows"], ir.sub(ir["tile_rows"], row))
    x = ir.at(
        ir["x"],
        ir.mul(sample, ir["x_sample"]),
        ir.mul(group, ir["channels"], ir["x_channel"]),
    )
    _transform(ir, x, samples, row, rows)
    first, last = ir.items(band, ir["band"], ir["outputs"])
    y = ir.at(
        ir["y"],
        ir.mul(sample, ir["y_sample"]),
        ir.mul(group, ir["outputs"], ir["y_channel"]),
        ir.mul(row, ir["y_row"], 2),
    )
    with ir.loop(last, ir["held"], first) as output:
        outputs = ir.least(ir["held"], ir.sub(last, output))
        _multiply(ir, tile_for(vector), group, output, outputs, ir.mul(samples, rows))
        to = ir.at(y, ir.mul(output, ir["y_channel"]))
        number = ir.add(ir.mul(group, ir["outputs"]), output)
        _write(ir, epilogue, to, number, samples, row, rows, outputs)
    return ir.kernel("conv_winograd")


def _transform(ir: KernelBuilder, x: str, samples: str, row: str, rows: str) -> None:
    """Store the input transform of all spatial tiles: [elements of the tile, channels, tiles]. The
    last register may extend past a row: rows are stored in ascending order."""
    lanes = ir.vector.lanes
    length = ir.mul(rows, ir["tile_columns"])
    offsets = [
        ir.add(ir.mul(ir["plane"], 2 * (r % 2) + c % 2), ir.mul(ir["width"], r // 2), c // 2)
        for r in range(SIDE)
        for c in range(SIDE)
    ]
    with ir.loop(ir["channels"]) as channel, ir.loop(samples) as sample:
        source = ir.at(x, ir.mul(sample, ir["x_sample"]), ir.mul(channel, ir["x_channel"]))
        _pack_phases(ir, source, row, rows)
        target = ir.at(
            ir.scratch,
            ir["inputs_at"],
            ir.mul(channel, ir["leading"]),
            ir.mul(sample, length),
        )
        with ir.loop(rows) as r, ir.loop(ir["tile_columns"], lanes) as column:
            begin = ir.at(ir.scratch, ir.mul(r, ir["width"]), column)
            values = [ir.load_vector(ir.at(begin, offset)) for offset in offsets]
            to = ir.at(target, ir.mul(r, ir["tile_columns"]), column)
            for n, value in enumerate(transform_2d(ir, values, input_transform)):
                ir.store_vector(value, ir.at(to, ir.mul(ir["input_stride"], n)))


def _pack_phases(ir: KernelBuilder, x: str, row: str, rows: str) -> None:
    """Pack padded rows of a channel into planes by phase: the even and odd columns of even rows,
    then those of odd rows. The last register may extend past a row: rows are stored in ascending
    order, and planes are padded."""
    lanes = ir.vector.lanes
    top = ir.add(ir["first_row"], ir.mul(row, 2))
    with ir.loop(ir.mul(ir.add(rows, 1), 2)) as number:
        at = ir.add(top, number)
        inside = ir.op(f"icmp ult i64 {at}, {ir['size_rows']}")
        upto = ir.op(f"select i1 {inside}, i64 {ir['size_columns']}, i64 0")
        source = ir.at(x, ir.mul(at, ir["x_row"]))
        pair, odd = ir.split(number, "2")
        target = ir.at(ir.scratch, ir.mul(odd, ir["plane"], 2), ir.mul(pair, ir["width"]))
        with ir.loop(ir["width"], lanes) as tile_column:
            column = ir.add(ir["first_column"], ir.mul(tile_column, 2))
            halves = [
                ir.load_strided(1, source, start, "1", "0", upto, "zeroinitializer")
                for start in (column, ir.add(column, lanes))
            ]
            for phase, part in enumerate(ir.deinterleaved(*halves)):
                ir.store_vector(part, ir.at(target, ir.mul(ir["plane"], phase), tile_column))


def _multiply(
    ir: KernelBuilder, tile: Tile, group: str, output: str, outputs: str, rows: str
) -> None:
    """The 16 matrix products for some output channels: [elements of the tile, outputs, tiles]."""
    tiles = ir.mul(rows, ir["tile_columns"])
    with ir.loop(PLACES) as element:
        number = ir.add(ir.mul(group, PLACES), element)
        a = ir.at(
            ir["weight"],
            ir.mul(number, ir["element_stride"]),
            ir.mul(output, ir["channels"]),
        )
        b = ir.at(ir.scratch, ir["inputs_at"], ir.mul(element, ir["input_stride"]))
        c = ir.at(ir.scratch, ir["sums_at"], ir.mul(element, ir["sum_stride"]))
        leading = ir["leading"]
        multiply(
            ir, tile, Matrix(a, tile.rows), Matrix(b, leading), Matrix(c, leading),
            ir["channels"], outputs, tiles, ir["panel"],
        )  # fmt: skip


def _write(
    ir: KernelBuilder,
    epilogue: Epilogue | None,
    y: str,
    first: str,
    samples: str,
    row: str,
    rows: str,
    outputs: str,
) -> None:
    """Apply the output transform and the epilogue, and store the outputs. ``first`` is the first
    output channel, counted over all groups."""
    lanes = ir.vector.lanes
    top = ir.mul(row, 2)
    below = ir.sub(ir.sub(ir["count_rows"], top), 1)
    with (
        ir.loop(samples) as sample,
        ir.loop(outputs) as output,
        ir.loop(rows) as r,
        ir.loop(ir["tile_columns"], lanes) as column,
    ):
        before = ir.mul(ir.add(ir.mul(sample, rows), r), ir["tile_columns"])
        source = ir.at(ir.scratch, ir["sums_at"], ir.mul(output, ir["leading"]), before, column)
        values = [ir.load_vector(ir.at(source, ir.mul(ir["sum_stride"], n))) for n in range(PLACES)]
        target = ir.at(
            y,
            ir.mul(sample, ir["y_sample"]),
            ir.mul(output, ir["y_channel"]),
            ir.mul(r, ir["y_row"], 2),
            ir.mul(column, 2),
        )
        left = ir.sub(ir["count_columns"], ir.mul(column, 2))
        is_there = ir.op(f"icmp slt i64 {ir.mul(r, 2)}, {below}")
        lower = ir.op(f"select i1 {is_there}, i64 {left}, i64 0")
        number = ir.add(first, output)
        pairs = transform_2d(ir, values, _output_transform)
        for n, count in enumerate((left, lower)):
            to = ir.at(target, ir.mul(ir["y_row"], n))
            for half, mixed in enumerate(ir.interleaved(pairs[2 * n], pairs[2 * n + 1])):
                place = Place(number, ir.at(to, half * lanes), ir.sub(count, half * lanes))
                value = emit_epilogue(ir, epilogue, mixed, place)
                ir.store_strided(1, value, place.address, "1", place.there)


def _output_transform(ir: KernelBuilder, m: list[str]) -> list[str]:
    return [
        ir.plus(m[0], ir.plus(m[1], m[2])),
        ir.minus(ir.minus(m[1], m[2]), m[3]),
    ]
