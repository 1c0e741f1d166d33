"""Images with samples side by side, as convolutions of many small images read them.

Samples go into blocks of a few registers: [blocks, elements of an image, samples of a block]. What
a block has too many are zeros.
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
from evergrad.compiler.kernels.conv.padded_planes import Steps
from evergrad.compiler.kernels.gemm.microkernel import transposed
from evergrad.compiler.native.target import machine

# What turning a square of registers costs, in operations of other kernels.
_COST = 1 << 10
# Cycles to turn a vector: as many lines as there are samples side by side are under way at once,
# which takes longer if they share places in caches, or do not stay there.
# Fitted by tools/fit_kernel_costs.py.
_TURNING = 5.0
_TURNING_SHARED = 14.0
_TURNING_FAR = 30.0
_NEAR = machine().l2_bytes


class Image(NamedTuple):
    """Samples of so many channels, rows and columns."""

    samples: int
    channels: int
    rows: int
    columns: int

    @property
    def plane(self) -> int:
        return self.rows * self.columns

    @property
    def elements(self) -> int:
        return self.channels * self.plane

    def lies_in_order(self, steps: Steps) -> bool:
        """Whether the elements of a sample lie one after the other."""
        given = (self.channels, steps.channel), (self.rows, steps.row), (self.columns, steps.column)
        wanted = self.plane, self.columns, 1
        return all(
            step == expected
            for (extent, step), expected in zip(given, wanted, strict=True)
            if extent > 1
        )

    def turning_cycles(self, vector: Vector) -> float:
        """About how many cycles it takes to turn a sample."""
        nbytes = self.elements * vector.size
        cycles = _TURNING if nbytes % machine().critical_stride else _TURNING_SHARED
        if self.samples * nbytes > _NEAR:
            cycles = _TURNING_FAR
        return cycles * self.elements / vector.lanes

    def block_size(self, vector: Vector, vectors: int) -> int:
        """The elements of a block of turned samples, which ends with a whole square."""
        return -(-self.elements // vector.lanes) * vector.lanes * vectors * vector.lanes

    def blocks(self, vector: Vector, vectors: int) -> int:
        return -(-self.samples // (vectors * vector.lanes))

    def turned_bytes(self, vector: Vector, vectors: int) -> int:
        size = self.block_size(vector, vectors)
        return self.blocks(vector, vectors) * size * vector.size


class _Numbers(NamedTuple):
    items: int
    per_chunk: int
    squares: int
    together: int
    samples: int
    elements: int
    x_sample: int


def turn_kernel(vector: Vector, image: Image, x_sample: int, vectors: int) -> Kernel:
    """The kernel that takes images, which lie ``x_sample`` elements apart, and the memory for them
    in blocks of so many registers."""
    squares = -(-image.elements // vector.lanes)
    items = image.blocks(vector, vectors) * squares
    per_chunk = items_per_chunk(items, vectors * _COST)
    numbers = _Numbers(
        items, per_chunk, squares, vectors * vector.lanes, image.samples, image.elements, x_sample
    )
    return with_numbers(_text(vector), numbers, [], -(-items // per_chunk))


@cache
def _text(vector: Vector) -> Kernel:
    text = KernelBuilder(vector, ("x", "turned"), _Numbers._fields)
    first, last = text.items("%chunk", text["per_chunk"], text["items"])
    lanes, final = vector.lanes, text.sub(text["samples"], 1)
    with text.loop(last, first=first) as item, text.loop(text["together"], lanes) as some:
        block, square = text.split(item, text["squares"])
        element = text.mul(square, lanes)
        inside = text.range_mask(text.lane_indices(element), "0", text["elements"])
        sample = text.add(text.mul(block, text["together"]), some)
        x = text.at(text["x"], element)
        rows = [
            text.load_masked(
                text.at(x, text.mul(text.least(text.add(sample, n), final), text["x_sample"])),
                inside,
                "zeroinitializer",
            )
            for n in range(lanes)
        ]
        there = text.range_mask(text.lane_indices(sample), "0", text["samples"])
        target = text.at(text["turned"], text.mul(item, lanes, text["together"]), some)
        for n, values in enumerate(transposed(text, rows)):
            kept = text.op(
                f"select {vector.of('i1')} {there}, {vector.type} {values}, "
                f"{vector.type} zeroinitializer"
            )
            text.store_vector(kept, text.at(target, text.mul(text["together"], n)))
    return text.kernel("conv_turn")
