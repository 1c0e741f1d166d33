"""Packing of a convolution's weight: [groups, blocks of outputs, channels, taps, outputs].

The last block is padded with copies of the last output channel.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import NamedTuple

from evergrad.compiler.codegen.ir_builder import Vector
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.kernel_builder import KernelBuilder, items_per_chunk, with_numbers
from evergrad.compiler.kernels.conv.padded_planes import Correlation
from evergrad.compiler.kernels.gemm.microkernel import transposed


class WeightStrides(NamedTuple):
    """The strides of a weight in elements, and the offsets of its taps."""

    group: int
    output: int
    channel: int
    taps: list[int]

    @property
    def has_contiguous_taps(self) -> bool:
        """Whether the taps of each channel are contiguous."""
        return self.taps == list(range(len(self.taps)))


class _Numbers(NamedTuple):
    """Integer arguments; the table of tap offsets follows."""

    items: int
    per_chunk: int
    blocks: int
    outputs: int
    channels: int
    taps: int
    w_group: int
    w_output: int
    w_channel: int
    runs: int
    run: int


def pack_weight_kernel(
    vector: Vector, problem: Correlation, rows: int, strides: WeightStrides
) -> Kernel:
    """The kernel that packs a weight into blocks of ``rows`` output channels; its arguments are the
    weight and the packed copy."""
    blocks = -(-problem.outputs // rows)
    items = problem.groups * blocks
    count = len(strides.taps)
    per_chunk = items_per_chunk(items, problem.channels * count * rows * 8)
    runs, run = _runs_of(problem.channels, strides) if strides.has_contiguous_taps else (0, 0)
    numbers = _Numbers(
        items, per_chunk, blocks, problem.outputs, problem.channels, count, strides.group,
        strides.output, strides.channel, runs, run,
    )  # fmt: skip
    return with_numbers(_kernel_ir(vector, rows), numbers, strides.taps, -(-items // per_chunk))


def packed_bytes(vector: Vector, problem: Correlation, rows: int) -> int:
    """The bytes of a weight packed into blocks of ``rows`` output channels."""
    blocks = -(-problem.outputs // rows)
    count = prod((problem.groups, blocks, rows, problem.channels, max(1, len(problem.taps))))
    return count * vector.size


@cache
def _kernel_ir(vector: Vector, rows: int) -> Kernel:
    ir = KernelBuilder(vector, ("weight", "packed"), _Numbers._fields)
    first, last = ir.items("%chunk", ir["per_chunk"], ir["items"])
    final = ir.sub(ir["outputs"], 1)
    depth = ir.mul(ir["channels"], ir["taps"])
    is_contiguous = ir.op(f"icmp ne i64 {ir['runs']}, 0")
    scattered = ir.op(f"xor i1 {is_contiguous}, true")
    with ir.loop(last, first=first) as item:
        group, block = ir.split(item, ir["blocks"])
        source = ir.at(ir["weight"], ir.mul(group, ir["w_group"]))
        top = ir.mul(block, rows)
        starts = [
            ir.at(source, ir.mul(ir.least(ir.add(top, r), final), ir["w_output"]))
            for r in range(rows)
        ]
        target = ir.at(ir["packed"], ir.mul(item, depth, rows))
        with ir.when(is_contiguous):
            for number in range(0, rows, vector.lanes):
                some = starts[number : number + vector.lanes]
                transpose_runs(ir, some, ir.at(target, number), ir["runs"], ir["run"], rows)
        with ir.when(scattered):
            _interleave_taps(ir, starts, target)
    return ir.kernel("conv_pack_weight")


def _runs_of(channels: int, strides: WeightStrides) -> tuple[int, int]:
    """The number and the length of the contiguous runs of an output channel: one run if its input
    channels are contiguous too."""
    count = len(strides.taps)
    return (1, channels * count) if strides.channel == count else (channels, count)


def transpose_runs(
    ir: KernelBuilder, starts: list[str], target: str, runs: str, length: str, stride: int
) -> None:
    """Interleave the runs of some output channels."""
    with ir.loop(runs) as run:
        begin = ir.mul(run, ir["w_channel"])
        sources = [ir.at(start, begin) for start in starts]
        _transpose_run(ir, sources, ir.at(target, ir.mul(run, length, stride)), length, stride)


def _transpose_run(
    ir: KernelBuilder, starts: list[str], target: str, depth: str, stride: int
) -> None:
    """Interleave one contiguous run of some output channels."""
    lanes = ir.vector.lanes
    with ir.loop(depth, lanes) as k:
        left = ir.sub(depth, k)
        mask = ir.range_mask(ir.lane_indices("0"), "0", left)
        block = [ir.load_masked(ir.at(s, k), mask) for s in starts]
        block += ["zeroinitializer"] * (lanes - len(block))
        for n, values in enumerate(transposed(ir, block)):
            is_there = ir.op(f"icmp sgt i64 {left}, {n}")
            count = ir.op(f"select i1 {is_there}, i64 {len(starts)}, i64 0")
            to = ir.at(target, ir.mul(ir.add(k, n), stride))
            ir.store_strided(1, values, to, "1", count)


def _interleave_taps(ir: KernelBuilder, starts: list[str], target: str) -> None:
    """Interleave the taps of all output channels one by one."""
    table, rows = ir.table(), len(starts)
    with ir.loop(ir["channels"]) as channel, ir.loop(ir["taps"]) as tap:
        offset = ir.add(ir.mul(channel, ir["w_channel"]), ir.number(table, tap))
        to = ir.at(target, ir.mul(ir.add(ir.mul(channel, ir["taps"]), tap), rows))
        for r, start in enumerate(starts):
            ir.store(ir.load(ir.at(start, offset)), ir.at(to, r))
