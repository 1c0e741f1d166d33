"""Winograd weight transform, packed as [groups, elements of the tile, blocks of outputs, channels,
outputs].

The last block is padded with copies of the last output channel.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from evergrad.compiler.codegen.ir_builder import Vector
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.kernel_builder import KernelBuilder, items_per_chunk, with_numbers
from evergrad.compiler.kernels.conv.pack_weight import WeightStrides, transpose_runs
from evergrad.compiler.kernels.conv.padded_planes import Correlation
from evergrad.compiler.kernels.conv.winograd_transforms import PLACES, transform_2d
from evergrad.compiler.kernels.gemm.microkernel import tile_for

_TAPS = 9
# The channels that are transformed at a time.
_CHANNELS = 32


def _blocks(vector: Vector, problem: Correlation) -> int:
    """The blocks of output channels of a group."""
    return -(-problem.outputs // tile_for(vector).rows)


def element_stride(vector: Vector, problem: Correlation) -> int:
    """The stride of the elements of a transformed tile: padded by a cache line, since powers of two
    would share cache sets."""
    return (_blocks(vector, problem) * problem.channels + 2) * tile_for(vector).rows


def transformed_bytes(vector: Vector, problem: Correlation) -> int:
    return problem.groups * PLACES * element_stride(vector, problem) * vector.size


class _Numbers(NamedTuple):
    """Integer arguments; a table of taps in the order of x follows."""

    items: int
    per_chunk: int
    blocks: int
    outputs: int
    channels: int
    element_stride: int
    w_group: int
    w_output: int
    w_channel: int


def transform_weight_kernel(vector: Vector, problem: Correlation, strides: WeightStrides) -> Kernel:
    """The kernel with the arguments weight and transformed weight."""
    rows = tile_for(vector).rows
    items = problem.groups * _blocks(vector, problem)
    per_chunk = items_per_chunk(items, problem.channels * PLACES * rows * 8)
    numbers = _Numbers(
        items,
        per_chunk,
        _blocks(vector, problem),
        problem.outputs,
        problem.channels,
        element_stride(vector, problem),
        *strides[:3],
    )
    return with_numbers(
        _kernel_ir(vector._replace(lanes=rows)), numbers, _taps_by_shift(problem),
        -(-items // per_chunk), _CHANNELS * _TAPS * rows * vector.size,
    )  # fmt: skip


def _taps_by_shift(problem: Correlation) -> list[int]:
    """The taps in the order of the elements of x that they read."""
    shifts = [(r, c) for _, r in problem.rows.taps for _, c in problem.columns.taps]
    return sorted(range(_TAPS), key=shifts.__getitem__)


@cache
def _kernel_ir(vector: Vector) -> Kernel:
    """Lanes are the output channels of a block."""
    ir = KernelBuilder(vector, ("weight", "transformed"), _Numbers._fields)
    first, last = ir.items("%chunk", ir["per_chunk"], ir["items"])
    size = ir.mul(ir["channels"], vector.lanes)
    stride = ir["element_stride"]
    final = ir.sub(ir["outputs"], 1)
    is_joined = ir.op(f"icmp eq i64 {ir['w_channel']}, {_TAPS}")
    with ir.loop(last, first=first) as item:
        group, block = ir.split(item, ir["blocks"])
        weight = ir.at(ir["weight"], ir.mul(group, ir["w_group"]))
        top = ir.mul(block, vector.lanes)
        starts = [
            ir.at(weight, ir.mul(ir.least(ir.add(top, r), final), ir["w_output"]))
            for r in range(vector.lanes)
        ]
        start = ir.at(ir["transformed"], ir.mul(group, stride, PLACES), ir.mul(block, size))
        with ir.loop(ir["channels"], _CHANNELS) as channel:
            count = ir.least(str(_CHANNELS), ir.sub(ir["channels"], channel))
            begin = ir.mul(channel, ir["w_channel"])
            sources = [ir.at(source, begin) for source in starts]
            runs = ir.op(f"select i1 {is_joined}, i64 1, i64 {count}")
            length = ir.op(f"select i1 {is_joined}, i64 {ir.mul(count, _TAPS)}, i64 {_TAPS}")
            transpose_runs(ir, sources, ir.scratch, runs, length, vector.lanes)
            _transform(ir, ir.at(start, ir.mul(channel, vector.lanes)), count)
    return ir.kernel("conv_winograd_pack_weight")


def _transform(ir: KernelBuilder, to: str, count: str) -> None:
    """Transform the channels in scratch memory."""
    lanes = ir.vector.lanes
    order = [ir.number(ir.table(), n) for n in range(_TAPS)]
    with ir.loop(count) as channel:
        source = ir.at(ir.scratch, ir.mul(channel, _TAPS * lanes))
        taps = [ir.load_vector(ir.at(source, ir.mul(tap, lanes))) for tap in order]
        target = ir.at(to, ir.mul(channel, lanes))
        for n, value in enumerate(transform_2d(ir, taps, _weight_transform)):
            ir.store_vector(value, ir.at(target, ir.mul(ir["element_stride"], n)))


def _weight_transform(ir: KernelBuilder, g: list[str]) -> list[str]:
    outer = ir.half(ir.plus(g[0], g[2]))
    middle = ir.half(g[1])
    return [g[0], ir.plus(outer, middle), ir.minus(outer, middle), g[2]]
