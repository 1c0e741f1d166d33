"""Packing of images for batch lanes.

The packed layout is [blocks, elements of an image, samples of a block], where a block is a few
vectors of samples; the last block is padded with zeros.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from evergrad.compiler.codegen.ir_builder import Vector
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.kernel_builder import KernelBuilder, items_per_chunk, with_numbers
from evergrad.compiler.kernels.conv.padded_planes import Strides
from evergrad.compiler.kernels.gemm.microkernel import transposed
from evergrad.compiler.native.target import machine

# The cost of transposing a square block of registers, in operations of other kernels.
_COST = 1 << 10
# Cycles to transpose a vector: as many cache lines as there are batch lanes are in flight at once,
# which takes longer if they share cache sets, or exceed the cache.
# Fitted by tools/fit_kernel_costs.py.
_TURNING = 5.0
_TURNING_SHARED = 14.0
_TURNING_FAR = 30.0
_NEAR = machine().l2_bytes


class Image(NamedTuple):
    """The shape of a batch of images."""

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

    def is_contiguous(self, strides: Strides) -> bool:
        """Whether each sample is contiguous."""
        dims = (
            (self.channels, strides.channel),
            (self.rows, strides.row),
            (self.columns, strides.column),
        )
        contiguous = self.plane, self.columns, 1
        return all(
            stride == expected
            for (extent, stride), expected in zip(dims, contiguous, strict=True)
            if extent > 1
        )

    def packing_cycles(self, vector: Vector) -> float:
        """Estimated cycles to pack a sample."""
        nbytes = self.elements * vector.size
        cycles = _TURNING if nbytes % machine().critical_stride else _TURNING_SHARED
        if self.samples * nbytes > _NEAR:
            cycles = _TURNING_FAR
        return cycles * self.elements / vector.lanes

    def block_size(self, vector: Vector, vectors: int) -> int:
        """The elements of a block of packed samples, padded to whole vectors of elements."""
        return -(-self.elements // vector.lanes) * vector.lanes * vectors * vector.lanes

    def blocks(self, vector: Vector, vectors: int) -> int:
        return -(-self.samples // (vectors * vector.lanes))

    def packed_bytes(self, vector: Vector, vectors: int) -> int:
        size = self.block_size(vector, vectors)
        return self.blocks(vector, vectors) * size * vector.size


class _Numbers(NamedTuple):
    """Integer arguments."""

    items: int
    per_chunk: int
    lane_blocks: int
    batch_lanes: int
    samples: int
    elements: int
    x_sample: int


def pack_batch_lanes_kernel(vector: Vector, image: Image, x_sample: int, vectors: int) -> Kernel:
    """The kernel with the arguments images, whose samples have the stride ``x_sample``, and their
    packed copy, in blocks of so many vectors."""
    lane_blocks = -(-image.elements // vector.lanes)
    items = image.blocks(vector, vectors) * lane_blocks
    per_chunk = items_per_chunk(items, vectors * _COST)
    numbers = _Numbers(
        items,
        per_chunk,
        lane_blocks,
        vectors * vector.lanes,
        image.samples,
        image.elements,
        x_sample,
    )
    return with_numbers(_kernel_ir(vector), numbers, [], -(-items // per_chunk))


@cache
def _kernel_ir(vector: Vector) -> Kernel:
    ir = KernelBuilder(vector, ("x", "packed"), _Numbers._fields)
    first, last = ir.items("%chunk", ir["per_chunk"], ir["items"])
    lanes, final = vector.lanes, ir.sub(ir["samples"], 1)
    with ir.loop(last, first=first) as item, ir.loop(ir["batch_lanes"], lanes) as some:
        block, lane_block = ir.split(item, ir["lane_blocks"])
        element = ir.mul(lane_block, lanes)
        inside = ir.range_mask(ir.lane_indices(element), "0", ir["elements"])
        sample = ir.add(ir.mul(block, ir["batch_lanes"]), some)
        x = ir.at(ir["x"], element)
        rows = [
            ir.load_masked(
                ir.at(x, ir.mul(ir.least(ir.add(sample, n), final), ir["x_sample"])), inside
            )
            for n in range(lanes)
        ]
        valid = ir.range_mask(ir.lane_indices(sample), "0", ir["samples"])
        target = ir.at(ir["packed"], ir.mul(item, lanes, ir["batch_lanes"]), some)
        for n, values in enumerate(transposed(ir, rows)):
            masked = ir.op(
                f"select {vector.of('i1')} {valid}, {vector.type} {values}, "
                f"{vector.type} zeroinitializer"
            )
            ir.store_vector(masked, ir.at(target, ir.mul(ir["batch_lanes"], n)))
    return ir.kernel("conv_pack_batch_lanes")
