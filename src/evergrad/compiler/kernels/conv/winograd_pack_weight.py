"""A weight of 3x3 elements as Winograd's convolution reads it: 16 sums of each 9 elements, laid out
as [groups, places, blocks of outputs, channels, outputs].

What a block has too many are copies of the last output.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from evergrad.compiler.codegen.ir_builder import (
    KernelBuilder,
    Vector,
    items_per_chunk,
    with_numbers,
)
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.kernels.conv.pack_weight import WeightSteps, turn_runs
from evergrad.compiler.kernels.conv.padded_planes import Correlation
from evergrad.compiler.kernels.conv.winograd_transforms import PLACES, both_ways
from evergrad.compiler.kernels.gemm.microkernel import tile_for

_TAPS = 9
# So many channels are transformed at a time.
_CHANNELS = 32


def _blocks(vector: Vector, given: Correlation) -> int:
    """The blocks of outputs of a group."""
    return -(-given.outputs // tile_for(vector).rows)


def place_step(vector: Vector, given: Correlation) -> int:
    """The elements from one place to the next: a line of the cache more than there are, since
    powers of two would share places in it."""
    return (_blocks(vector, given) * given.channels + 2) * tile_for(vector).rows


def transformed_bytes(vector: Vector, given: Correlation) -> int:
    return given.groups * PLACES * place_step(vector, given) * vector.size


class _Numbers(NamedTuple):
    """The numbers of the kernel; a table of taps in the order of x follows."""

    items: int
    per_chunk: int
    blocks: int
    outputs: int
    channels: int
    place_step: int
    w_group: int
    w_output: int
    w_channel: int


def transform_kernel(vector: Vector, given: Correlation, steps: WeightSteps) -> Kernel:
    """The kernel that takes a weight and the memory for its sums."""
    rows = tile_for(vector).rows
    items = given.groups * _blocks(vector, given)
    per_chunk = items_per_chunk(items, given.channels * PLACES * rows * 8)
    numbers = _Numbers(
        items,
        per_chunk,
        _blocks(vector, given),
        given.outputs,
        given.channels,
        place_step(vector, given),
        *steps[:3],
    )
    return with_numbers(
        _text(vector._replace(lanes=rows)), numbers, _by_shift(given),
        -(-items // per_chunk), _CHANNELS * _TAPS * rows * vector.size,
    )  # fmt: skip


def _by_shift(given: Correlation) -> list[int]:
    """The kernel's elements, in the order of the elements of x that they meet."""
    shifts = [(r, c) for _, r in given.rows.taps for _, c in given.columns.taps]
    return sorted(range(_TAPS), key=shifts.__getitem__)


@cache
def _text(vector: Vector) -> Kernel:
    """A register has the outputs of a block."""
    text = KernelBuilder(vector, ("weight", "sums"), _Numbers._fields)
    first, last = text.items("%chunk", text["per_chunk"], text["items"])
    size = text.mul(text["channels"], vector.lanes)
    step = text["place_step"]
    final = text.sub(text["outputs"], 1)
    is_joined = text.op(f"icmp eq i64 {text['w_channel']}, {_TAPS}")
    with text.loop(last, first=first) as item:
        group, block = text.split(item, text["blocks"])
        weight = text.at(text["weight"], text.mul(group, text["w_group"]))
        top = text.mul(block, vector.lanes)
        starts = [
            text.at(weight, text.mul(text.least(text.add(top, r), final), text["w_output"]))
            for r in range(vector.lanes)
        ]
        start = text.at(text["sums"], text.mul(group, step, PLACES), text.mul(block, size))
        with text.loop(text["channels"], _CHANNELS) as channel:
            count = text.least(str(_CHANNELS), text.sub(text["channels"], channel))
            begin = text.mul(channel, text["w_channel"])
            sources = [text.at(source, begin) for source in starts]
            runs = text.op(f"select i1 {is_joined}, i64 1, i64 {count}")
            length = text.op(f"select i1 {is_joined}, i64 {text.mul(count, _TAPS)}, i64 {_TAPS}")
            turn_runs(text, sources, text.scratch, runs, length, vector.lanes)
            _transform(text, text.at(start, text.mul(channel, vector.lanes)), count)
    return text.kernel("conv_winograd_weight")


def _transform(text: KernelBuilder, to: str, count: str) -> None:
    """Write the sums of the channels in scratch memory."""
    lanes = text.vector.lanes
    places = [text.number(text.table(), n) for n in range(_TAPS)]
    with text.loop(count) as channel:
        source = text.at(text.scratch, text.mul(channel, _TAPS * lanes))
        taps = [text.load_vector(text.at(source, text.mul(place, lanes))) for place in places]
        target = text.at(to, text.mul(channel, lanes))
        for n, value in enumerate(both_ways(text, taps, _of_three)):
            text.store_vector(value, text.at(target, text.mul(text["place_step"], n)))


def _of_three(text: KernelBuilder, g: list[str]) -> list[str]:
    outer = text.half(text.plus(g[0], g[2]))
    middle = text.half(g[1])
    return [g[0], text.plus(outer, middle), text.minus(outer, middle), g[2]]
