"""Weight gradient of a convolution with few channels: a dot product for each element.

A chunk packs rows of some samples into padded planes, and y into rows of the same width with zeros
in the halo; an element of the gradient is the dot product of a row of y and a shifted plane. Every
chunk leaves vectors of partial sums, and a second kernel reduces these in a fixed order.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

from evergrad.compiler.codegen.ir_builder import Vector
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.kernel_builder import (
    ENOUGH_CHUNKS,
    MAX_CHUNK_WORK,
    KernelBuilder,
    with_numbers,
)
from evergrad.compiler.kernels.conv.padded_planes import (
    Correlation,
    Planes,
    Strides,
    copy_row,
    pack_planes,
)
from evergrad.compiler.native.target import machine

# Planes and rows of y stay in a cache of this many bytes.
_CACHE = 3 * machine().l2_bytes // 8
# Partial sums of all chunks have at most this many bytes.
_SUMS = min(16 << 20, machine().l3_bytes // 2)
# Shapes of register tiles (rows of y times taps), for machines with 32 and with 16 registers.
_TILES_32 = ((4, 6), (6, 4), (5, 5), (3, 8), (2, 9), (2, 6), (1, 12), (1, 9), (1, 5), (1, 3))
_TILES_16 = ((3, 3), (4, 2), (2, 4), (1, 6), (1, 3))
# Cycles to load and store a vector of sums.
# Fitted by tools/fit_kernel_costs.py.
_KEEPING = 3.0


class DotTile(NamedTuple):
    """A register tile: output channels times taps, of any input channel."""

    outputs: int
    taps: int


def _cycles(tile: tuple[int, int], outputs: int, taps: int) -> float:
    """The cycles of one step of the reduction for all tiles; most loads of x cross cache lines."""
    high, wide = tile
    count = -(-outputs // high) * -(-taps // wide)
    return count * machine().cycles(high * wide, high + 2 * wide)


class DotTiling(NamedTuple):
    """The register tile, the rows packed at a time, and the partitions of the reduction."""

    tile: DotTile
    outputs: int  # padded to whole tiles
    taps: int
    block_rows: int
    items: int
    parts: int

    @classmethod
    def choose(cls, vector: Vector, problem: Correlation) -> DotTiling:
        count = problem.channels * len(problem.taps)
        shapes = _TILES_32 if vector.has_32_registers else _TILES_16
        tile = DotTile(*min(shapes, key=lambda t: _cycles(t, problem.outputs, count)))
        outputs = -(-problem.outputs // tile.outputs) * tile.outputs
        taps = -(-count // tile.taps) * tile.taps
        fitting = problem.rows_fitting(_CACHE // vector.size, outputs)
        block = -(-problem.rows.extent // -(-problem.rows.extent // fitting))
        items = problem.samples * -(-problem.rows.extent // block)
        sums = outputs * taps * vector.lanes * vector.size * problem.groups
        work = outputs * taps * block * problem.width * items
        most = min(items, ENOUGH_CHUNKS, max(2, _SUMS // sums), max(1, work // MAX_CHUNK_WORK))
        parts = -(-items // -(-items // most))
        return cls(tile, outputs, taps, block, items, parts)


def dot_cycles(vector: Vector, problem: Correlation) -> float:
    """Estimated cycles of a pixel of y, with its share of loading and storing sums."""
    tiling = DotTiling.choose(vector, problem)
    step_cycles = _cycles(tiling.tile, tiling.outputs, tiling.taps)
    iterations = -(-tiling.block_rows * problem.width // vector.lanes)
    kept = tiling.outputs * tiling.taps
    if kept * vector.lanes * vector.size > _CACHE:
        return math.inf  # sums do not stay in cache
    return (step_cycles * iterations + _KEEPING * kept) / (
        tiling.block_rows * problem.columns.extent
    )


def dot_sum_bytes(vector: Vector, problem: Correlation) -> int:
    """The bytes of the partial sums."""
    tiling = DotTiling.choose(vector, problem)
    size = tiling.outputs * tiling.taps * vector.lanes * vector.size
    return tiling.parts * problem.groups * size


class _Numbers(NamedTuple):
    """Integer arguments besides those of planes; a table of tap offsets follows that of planes."""

    groups: int
    items: int
    per_part: int
    row_blocks: int
    block_rows: int
    count_rows: int
    count_columns: int
    outputs: int
    outputs_padded: int
    taps: int
    y_at: int
    y_leading: int
    y_sample: int
    y_channel: int
    y_row: int
    y_column: int


def dot_kernel(vector: Vector, problem: Correlation, x: Strides, y: Strides) -> Kernel:
    """The kernel with the arguments y, x and the partial sums."""
    tiling = DotTiling.choose(vector, problem)
    planes = Planes.of(problem, x, tiling.block_rows)
    leading = (tiling.block_rows * problem.width // vector.lanes + 2) * vector.lanes
    numbers = _Numbers(
        problem.groups, tiling.items, -(-tiling.items // tiling.parts),
        -(-problem.rows.extent // tiling.block_rows), tiling.block_rows, problem.rows.extent,
        problem.columns.extent, problem.outputs, tiling.outputs, tiling.taps,
        planes.size(vector.lanes), leading, *y,
    )  # fmt: skip
    scratch = (planes.size(vector.lanes) + tiling.outputs * leading) * vector.size
    return with_numbers(
        _kernel_ir(vector, tiling.tile), [*numbers, *planes],
        [*planes.tables(problem, x), *_all_tap_offsets(planes, problem, tiling.taps)],
        tiling.parts * problem.groups, scratch,
    )  # fmt: skip


def _all_tap_offsets(planes: Planes, problem: Correlation, count: int) -> list[int]:
    """The tap offsets of all channels; the last one is repeated up to whole tiles."""
    offsets = planes.tap_offsets(problem)
    found = [c * planes.channel_size + p for c in range(problem.channels) for p in offsets]
    return found + found[-1:] * (count - len(found))


@cache
def _kernel_ir(vector: Vector, tile: DotTile) -> Kernel:
    ir = KernelBuilder(vector, ("y", "x", "sums"), (*_Numbers._fields, *Planes._fields))
    part, group = ir.split("%chunk", ir["groups"])
    first, last = ir.items(part, ir["per_part"], ir["items"])
    size = ir.mul(ir["outputs_padded"], ir["taps"], vector.lanes)
    sums = ir.at(ir["sums"], ir.mul("%chunk", size))
    x = ir.at(ir["x"], ir.mul(group, ir["channels"], ir["x_channel"]))
    y = ir.at(ir["y"], ir.mul(group, ir["outputs"], ir["y_channel"]))
    with ir.loop(last, first=first) as item:
        sample, block = ir.split(item, ir["row_blocks"])
        row = ir.mul(block, ir["block_rows"])
        rows = ir.least(ir["block_rows"], ir.sub(ir["count_rows"], row))
        x_start = ir.at(x, ir.mul(sample, ir["x_sample"]))
        pack_planes(ir, vector.lanes, x_start, row, ir.scratch)
        start = ir.at(y, ir.mul(sample, ir["y_sample"]), ir.mul(row, ir["y_row"]))
        _pack_y(ir, start, rows)
        is_later = ir.op(f"icmp ne i64 {item}, {first}")
        _multiply(ir, tile, sums, ir.mul(rows, ir["width"]), is_later)
    return ir.kernel("conv_dot_weight_grad")


def _pack_y(ir: KernelBuilder, y: str, rows: str) -> None:
    """Pack rows of y with zeros in the halo; the last output channel is repeated up to whole
    tiles."""
    final = ir.sub(ir["outputs"], 1)
    stride = ir["y_column"]
    for kind in ir.by_stride(stride):
        with ir.loop(ir["outputs_padded"]) as output:
            source = ir.at(y, ir.mul(ir.least(output, final), ir["y_channel"]))
            target = ir.at(ir.scratch, ir["y_at"], ir.mul(output, ir["y_leading"]))
            with ir.loop(rows) as row:
                from_row = ir.at(source, ir.mul(row, ir["y_row"]))
                to = ir.at(target, ir.mul(row, ir["width"]))
                copy_row(ir, kind, from_row, to, "0", ir["count_columns"], stride)
            end = ir.at(target, ir.mul(rows, ir["width"]))
            ir.store_vector("zeroinitializer", end)


def _multiply(ir: KernelBuilder, tile: DotTile, sums: str, pixels: str, is_later: str) -> None:
    """Accumulate the products of these rows onto all sums."""
    lanes = ir.vector.lanes
    table = ir.table(ir.mul(ir["planes"], 4))
    leading = ir.mul(ir["taps"], lanes)
    with (
        ir.loop(ir["taps"], tile.taps) as tap,
        ir.loop(ir["outputs_padded"], tile.outputs) as output,
    ):
        planes = [ir.at(ir.scratch, ir.number(table, ir.add(tap, n))) for n in range(tile.taps)]
        y = ir.at(ir.scratch, ir["y_at"], ir.mul(output, ir["y_leading"]))
        rows = [ir.at(y, ir.mul(ir["y_leading"], n)) for n in range(tile.outputs)]
        corner = ir.at(sums, ir.mul(output, leading), ir.mul(tap, lanes))
        addresses = [
            ir.at(corner, ir.mul(leading, o), p * lanes)
            for o in range(tile.outputs)
            for p in range(tile.taps)
        ]
        _dot(ir, planes, rows, addresses, pixels, is_later)


def _dot(
    ir: KernelBuilder,
    planes: list[str],
    rows: list[str],
    sums: list[str],
    pixels: str,
    is_later: str,
) -> None:
    """Accumulate the dot products of all pairs of rows and planes."""
    many = ir.vector.type
    masks = ir.splat(is_later, "i1")
    start = [(many, ir.load_masked(at, masks)) for at in sums]
    with ir.carrying_loop(pixels, start, ir.vector.lanes) as (pixel, held):
        factors = [ir.load_vector(ir.at(row, pixel)) for row in rows]
        after: list[str] = [""] * len(sums)
        for p, plane in enumerate(planes):
            value = ir.load_vector(ir.at(plane, pixel))
            for o, factor in enumerate(factors):
                n = o * len(planes) + p
                after[n] = ir.multiply_add(factor, value, held.values[n])
        held.after = after
    for address, value in zip(sums, held.values, strict=True):
        ir.store_vector(value, address)


# -- reduction of partial sums -------------------------------------------------------------------


class _SumNumbers(NamedTuple):
    items: int
    per_chunk: int
    parts: int
    part_size: int
    outputs: int
    group_size: int
    taps: int
    total: int


def dot_sum_kernel(vector: Vector, problem: Correlation) -> Kernel:
    """The kernel that reduces partial sums and their lanes; its arguments are these and the
    gradient."""
    tiling = DotTiling.choose(vector, problem)
    items = problem.groups * problem.outputs
    size = tiling.outputs * tiling.taps * vector.lanes
    per_chunk = max(1, min(items, (1 << 13) // (tiling.taps * tiling.parts)))
    numbers = _SumNumbers(
        items, per_chunk, tiling.parts, size * problem.groups, problem.outputs, size, tiling.taps,
        problem.channels * len(problem.taps),
    )  # fmt: skip
    return with_numbers(_sum_kernel_ir(vector), numbers, [], -(-items // per_chunk))


@cache
def _sum_kernel_ir(vector: Vector) -> Kernel:
    ir = KernelBuilder(vector, ("sums", "out"), _SumNumbers._fields)
    first, last = ir.items("%chunk", ir["per_chunk"], ir["items"])
    with ir.loop(last, first=first) as item, ir.loop(ir["total"]) as tap:
        group, output = ir.split(item, ir["outputs"])
        number = ir.add(ir.mul(output, ir["taps"]), tap)
        at = ir.at(ir["sums"], ir.mul(group, ir["group_size"]), ir.mul(number, vector.lanes))
        start = [(vector.type, ir.load_vector(at))]
        with ir.carrying_loop(ir["parts"], start, first=1) as (part, held):
            other = ir.load_vector(ir.at(at, ir.mul(part, ir["part_size"])))
            held.after = [ir.op(f"fadd {vector.type} {held.values[0]}, {other}")]
        total = ir.sum_of_lanes(held.values[0])
        ir.store(total, ir.at(ir["out"], ir.mul(item, ir["total"]), tap))
    return ir.kernel("conv_dot_weight_grad_sum")
