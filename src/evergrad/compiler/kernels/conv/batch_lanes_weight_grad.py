"""Weight gradient of a convolution with batch lanes: for large batches of small images.

A chunk computes a row of the kernel for some output channels and all input channels, reduced over
all samples: no partial sums are left. A tile is a few output channels times a few input channels,
for one tap.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import NamedTuple

from evergrad.compiler.codegen.ir_builder import Vector
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.kernel_builder import KernelBuilder, with_numbers
from evergrad.compiler.kernels.conv.batch_lanes import input_image, output_image
from evergrad.compiler.kernels.conv.padded_planes import Axis, Correlation, Strides
from evergrad.compiler.native.target import machine

# The packed samples of a block, x and y, stay in a cache of so many bytes.
_NEAR = machine().l2_bytes
_MOST_VECTORS = 4
# Convolutions whose tiling is cached.
_KNOWN = 256
# Cycles to load and store a vector of sums, and to reduce its lanes.
# Fitted by tools/fit_kernel_costs.py.
_KEEPING = 1.0
_ADDING = 8.0
# Output times input channels of a register tile, for machines with 32 and with 16 registers.
_TILES_32 = (
    (4, 6), (6, 4), (5, 5), (8, 3), (3, 8), (12, 2), (2, 12), (12, 1), (8, 1), (6, 1), (6, 3),
    (4, 4), (4, 3), (3, 3), (8, 2), (1, 12), (1, 8),
)  # fmt: skip
_TILES_16 = ((3, 4), (4, 3), (2, 5), (6, 2), (8, 1), (4, 2), (2, 3), (1, 8))


class GradTile(NamedTuple):
    """A register tile: output channels times input channels."""

    outputs: int
    channels: int


class WeightGradTiling(NamedTuple):
    """The register tile, and the vectors of batch lanes."""

    tile: GradTile
    vectors: int

    @classmethod
    @lru_cache(_KNOWN)
    def choose(cls, vector: Vector, problem: Correlation) -> WeightGradTiling:
        """The cheapest tiling for which a block of samples stays in cache."""
        shapes = _TILES_32 if vector.has_32_registers else _TILES_16
        tile = GradTile(*min(shapes, key=lambda tile: _step_cycles(problem, tile)))
        more = [n for n in range(2, _MOST_VECTORS + 1) if _fits_cache(vector, problem, n)]
        tilings = [cls(tile, n) for n in (1, *more)]
        return min(tilings, key=lambda tiling: tiling.cycles(vector, problem))

    def cycles(self, vector: Vector, problem: Correlation) -> float:
        """Estimated cycles of a pixel of a group of y, with packing samples and reducing lanes."""
        images = input_image(problem), output_image(problem)
        blocks = images[0].blocks(vector, self.vectors)
        valid_pairs = problem.rows.valid_pairs * problem.columns.valid_pairs
        total = valid_pairs * _step_cycles(problem, self.tile) * self.vectors
        kept = problem.channels * problem.outputs * len(problem.columns.taps)
        total += problem.rows.valid_pairs * kept * _KEEPING
        added = problem.outputs * problem.channels * len(problem.taps) * _ADDING
        packing = sum(image.packing_cycles(vector) for image in images) / problem.groups
        return ((total * blocks + added) / problem.samples + packing) / output_image(problem).plane


def _step_cycles(problem: Correlation, tile: tuple[int, int]) -> float:
    """The cycles of one step of the reduction for all tiles."""
    high, wide = tile
    count = -(-problem.outputs // high) * -(-problem.channels // wide)
    return count * machine().cycles(high * wide, high + wide)


def _fits_cache(vector: Vector, problem: Correlation, vectors: int) -> bool:
    images = input_image(problem), output_image(problem)
    return sum(i.block_size(vector, vectors) for i in images) * vector.size <= _NEAR


def supports_batch_lanes_weight_grad(
    vector: Vector, problem: Correlation, x: Strides, y: Strides
) -> bool:
    """Whether the weight gradient can use batch lanes: both images are small and contiguous."""
    return (
        input_image(problem).is_contiguous(x)
        and output_image(problem).is_contiguous(y)
        and _fits_cache(vector, problem, 1)
    )


class _Numbers(NamedTuple):
    """Integer arguments; tables of the rows and columns of taps follow."""

    blocks: int
    panels: int
    tap_rows: int
    tap_columns: int
    outputs: int
    channels: int
    count_columns: int
    x_block: int
    x_channel: int
    x_row: int
    x_column: int
    y_block: int
    y_channel: int


def batch_lanes_weight_grad_kernel(vector: Vector, problem: Correlation) -> Kernel:
    """The kernel with the arguments packed y, packed x and the weight gradient."""
    tiling = WeightGradTiling.choose(vector, problem)
    tile, x, y = tiling.tile, input_image(problem), output_image(problem)
    batch_lanes = tiling.vectors * vector.lanes
    panels = -(-problem.outputs // tile.outputs)
    rows, columns = problem.rows, problem.columns
    numbers = _Numbers(
        x.blocks(vector, tiling.vectors), panels, len(rows.taps), len(columns.taps),
        problem.outputs, problem.channels, columns.extent, x.block_size(vector, tiling.vectors),
        x.plane * batch_lanes, x.columns * rows.stride * batch_lanes, columns.stride * batch_lanes,
        y.block_size(vector, tiling.vectors), y.plane * batch_lanes,
    )  # fmt: skip
    channels = -(-problem.channels // tile.channels) * tile.channels
    sums = len(columns.taps) * channels * tile.outputs * vector.lanes
    return with_numbers(
        _kernel_ir(vector, tile, tiling.vectors), numbers,
        [*_table(rows, x.columns * batch_lanes), *_table(columns, batch_lanes)],
        problem.groups * panels * len(rows.taps), sums * vector.size,
    )  # fmt: skip


def _table(axis: Axis, stride: int) -> list[int]:
    """For each tap the range of outputs for which it reads inside x, and the offset that the first
    one reads, given the stride of the axis in packed x."""
    table = []
    for _, shift in axis.taps:
        first, last = axis.valid_outputs(shift)
        table += [first, last, (axis.stride * first + shift) * stride]
    return table


# -- the kernel ---------------------------------------------------------------------------------


@cache
def _kernel_ir(vector: Vector, tile: GradTile, vectors: int) -> Kernel:
    ir = KernelBuilder(vector, ("y", "x", "out"), _Numbers._fields)
    item, tap = ir.split("%chunk", ir["tap_rows"])
    group, panel = ir.split(item, ir["panels"])
    output = ir.mul(panel, tile.outputs)
    _clear(ir, tile)
    first, last, begin = (ir.number(ir.table(ir.mul(tap, 3)), n) for n in range(3))
    final = ir.sub(ir["outputs"], 1)
    y = ir.at(ir["y"], ir.mul(group, ir["outputs"], ir["y_channel"]))
    ys = [
        ir.at(y, ir.mul(ir.least(ir.add(output, n), final), ir["y_channel"]))
        for n in range(tile.outputs)
    ]
    x = ir.at(ir["x"], begin, ir.mul(group, ir["channels"], ir["x_channel"]))
    batch_lanes = vectors * vector.lanes
    with ir.loop(ir["blocks"]) as block, ir.loop(last, first=first) as row:
        line = ir.add(ir.mul(block, ir["y_block"]), ir.mul(row, ir["count_columns"], batch_lanes))
        x_row = ir.at(
            x,
            ir.mul(block, ir["x_block"]),
            ir.mul(ir.sub(row, first), ir["x_row"]),
        )
        _add_row(ir, tile, vectors, [ir.at(start, line) for start in ys], x_row)
    _write(ir, tile, group, output, tap)
    return ir.kernel("conv_batch_lanes_weight_grad")


def _clear(ir: KernelBuilder, tile: GradTile) -> None:
    count = ir.mul(_tiles(ir, tile), ir["tap_columns"], tile.outputs * tile.channels)
    with ir.loop(count) as n:
        ir.store_vector("zeroinitializer", ir.at(ir.scratch, ir.mul(n, ir.vector.lanes)))


def _tiles(ir: KernelBuilder, tile: GradTile) -> str:
    """The number of tiles of all channels."""
    channels = ir.add(ir["channels"], tile.channels - 1)
    return ir.op(f"udiv i64 {channels}, {tile.channels}")


def _add_row(ir: KernelBuilder, tile: GradTile, vectors: int, ys: list[str], x: str) -> None:
    """Accumulate the products of a row of y: [tiles, columns of the kernel, tile]."""
    lanes, batch_lanes = ir.vector.lanes, vectors * ir.vector.lanes
    table = ir.table(ir.mul(ir["tap_rows"], 3))
    size = tile.outputs * tile.channels * lanes
    final = ir.sub(ir["channels"], 1)
    with ir.loop(_tiles(ir, tile)) as number, ir.loop(ir["tap_columns"]) as tap:
        top = ir.mul(number, tile.channels)
        entry = ir.mul(tap, 3)
        first, last, begin = (ir.number(table, ir.add(entry, n)) for n in range(3))
        xs = [
            ir.at(
                x, begin, ir.mul(ir.least(ir.add(top, n), final), ir["x_channel"])
            )
            for n in range(tile.channels)
        ]  # fmt: skip
        at = ir.mul(ir.add(ir.mul(number, ir["tap_columns"]), tap), size)
        sums = [ir.at(ir.scratch, at, n * lanes) for n in range(tile.outputs * tile.channels)]
        start = [(ir.vector.type, ir.load_vector(address)) for address in sums]
        with ir.carrying_loop(ir.sub(last, first), start) as (column, held):
            y_at = ir.mul(ir.add(first, column), batch_lanes)
            x_at = ir.mul(column, ir["x_column"])
            held.after = held.values
            for v in range(vectors):
                held.after = _products(
                    ir,
                    [ir.at(y, y_at, v * lanes) for y in ys],
                    [ir.at(source, x_at, v * lanes) for source in xs],
                    held.after,
                )
        for address, value in zip(sums, held.values, strict=True):
            ir.store_vector(value, address)


def _products(ir: KernelBuilder, ys: list[str], xs: list[str], sums: list[str]) -> list[str]:
    """The sums after one multiply-add each."""
    factors = [ir.load_vector(address) for address in xs]
    after = []
    for n, address in enumerate(ys):
        value = ir.load_vector(address)
        for c, factor in enumerate(factors):
            after.append(ir.multiply_add(value, factor, sums[n * len(xs) + c]))
    return after


def _write(ir: KernelBuilder, tile: GradTile, group: str, output: str, tap: str) -> None:
    """Reduce lanes and store this row of the kernel."""
    lanes, columns = ir.vector.lanes, ir["tap_columns"]
    outputs = ir.least(str(tile.outputs), ir.sub(ir["outputs"], output))
    whole = ir.mul(ir["tap_rows"], columns)
    with (
        ir.loop(outputs) as n,
        ir.loop(ir["channels"]) as channel,
        ir.loop(columns) as column,
    ):
        number, inner = ir.split(channel, str(tile.channels))
        at = ir.add(ir.mul(number, columns), column)
        at = ir.add(ir.mul(ir.add(ir.mul(at, tile.outputs), n), tile.channels), inner)
        total = ir.sum_of_lanes(ir.load_vector(ir.at(ir.scratch, ir.mul(at, lanes))))
        row = ir.add(ir.mul(group, ir["outputs"]), output, n)
        element = ir.add(ir.mul(row, ir["channels"]), channel)
        to = ir.add(ir.mul(element, whole), ir.mul(tap, columns), column)
        ir.store(total, ir.at(ir["out"], to))
