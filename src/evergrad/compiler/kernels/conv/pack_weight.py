"""A convolution's weight as kernels read it: [groups, blocks of outputs, channels, taps, outputs].

What a block has too many are copies of the last output.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import NamedTuple

from evergrad.compiler.codegen.ir_builder import (
    KernelBuilder,
    Vector,
    items_per_chunk,
    with_numbers,
)
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.kernels.conv.padded_planes import Correlation
from evergrad.compiler.kernels.gemm.microkernel import transposed


class WeightSteps(NamedTuple):
    """The elements of a weight from one group, output and channel to the next, and where its taps
    are."""

    group: int
    output: int
    channel: int
    taps: list[int]

    @property
    def are_taps_in_order(self) -> bool:
        """Whether the elements of each kernel lie one after the other."""
        return self.taps == list(range(len(self.taps)))


class _Numbers(NamedTuple):
    """The numbers of the kernel; the table of taps follows."""

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


def weight_kernel(vector: Vector, given: Correlation, rows: int, steps: WeightSteps) -> Kernel:
    """The kernel that lays a weight out in blocks of so many outputs; it takes the weight and the
    copy."""
    blocks = -(-given.outputs // rows)
    items = given.groups * blocks
    count = len(steps.taps)
    per_chunk = items_per_chunk(items, given.channels * count * rows * 8)
    runs, run = _runs_of(given.channels, steps) if steps.are_taps_in_order else (0, 0)
    numbers = _Numbers(
        items, per_chunk, blocks, given.outputs, given.channels, count, steps.group, steps.output,
        steps.channel, runs, run,
    )  # fmt: skip
    return with_numbers(_text(vector, rows), numbers, steps.taps, -(-items // per_chunk))


def packed_bytes(vector: Vector, given: Correlation, rows: int) -> int:
    """The bytes of a weight that is laid out in blocks of so many outputs."""
    blocks = -(-given.outputs // rows)
    count = prod((given.groups, blocks, rows, given.channels, max(1, len(given.taps))))
    return count * vector.size


@cache
def _text(vector: Vector, rows: int) -> Kernel:
    text = KernelBuilder(vector, ("weight", "packed"), _Numbers._fields)
    first, last = text.items("%chunk", text["per_chunk"], text["items"])
    final = text.sub(text["outputs"], 1)
    depth = text.mul(text["channels"], text["taps"])
    in_order = text.op(f"icmp ne i64 {text['runs']}, 0")
    scattered = text.op(f"xor i1 {in_order}, true")
    with text.loop(last, first=first) as item:
        group, block = text.split(item, text["blocks"])
        source = text.at(text["weight"], text.mul(group, text["w_group"]))
        top = text.mul(block, rows)
        starts = [
            text.at(source, text.mul(text.least(text.add(top, r), final), text["w_output"]))
            for r in range(rows)
        ]
        target = text.at(text["packed"], text.mul(item, depth, rows))
        with text.when(in_order):
            for number in range(0, rows, vector.lanes):
                some = starts[number : number + vector.lanes]
                turn_runs(text, some, text.at(target, number), text["runs"], text["run"], rows)
        with text.when(scattered):
            _copy(text, starts, target)
    return text.kernel("conv_pack")


def _runs_of(channels: int, steps: WeightSteps) -> tuple[int, int]:
    """How many runs of elements the kernels of so many channels of an output are, and of how many
    elements: one, if channels lie one after the other, too."""
    count = len(steps.taps)
    return (1, channels * count) if steps.channel == count else (channels, count)


def turn_runs(
    text: KernelBuilder, starts: list[str], target: str, runs: str, length: str, step: int
) -> None:
    """Write the elements of some outputs, which lie in runs, side by side."""
    with text.loop(runs) as run:
        begin = text.mul(run, text["w_channel"])
        sources = [text.at(start, begin) for start in starts]
        _turn(text, sources, text.at(target, text.mul(run, length, step)), length, step)


def _turn(text: KernelBuilder, starts: list[str], target: str, depth: str, step: int) -> None:
    """Write the elements of some outputs, which lie in order, side by side."""
    lanes = text.vector.lanes
    with text.loop(depth, lanes) as k:
        left = text.sub(depth, k)
        mask = text.range_mask(text.lane_indices("0"), "0", left)
        block = [text.load_masked(text.at(s, k), mask, "zeroinitializer") for s in starts]
        block += ["zeroinitializer"] * (lanes - len(block))
        for n, values in enumerate(transposed(text, block)):
            is_there = text.op(f"icmp sgt i64 {left}, {n}")
            count = text.op(f"select i1 {is_there}, i64 {len(starts)}, i64 0")
            to = text.at(target, text.mul(text.add(k, n), step))
            text.store_strided(1, values, to, "1", count)


def _copy(text: KernelBuilder, starts: list[str], target: str) -> None:
    """Write the elements of all outputs one by one."""
    table, rows = text.table(), len(starts)
    with text.loop(text["channels"]) as channel, text.loop(text["taps"]) as tap:
        offset = text.add(text.mul(channel, text["w_channel"]), text.number(table, tap))
        place = text.mul(text.add(text.mul(channel, text["taps"]), tap), rows)
        to = text.at(target, place)
        for r, start in enumerate(starts):
            text.store(text.load(text.at(start, offset)), text.at(to, r))
