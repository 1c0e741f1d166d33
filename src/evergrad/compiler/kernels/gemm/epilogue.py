"""Products that are fused with the loop that reads them, in one of two forms.

An elementwise reader of a product (a bias and an activation, the update of a parameter) would fetch
it from memory again. As an :mod:`~.codegen.epilogue` it is applied to rectangles of the product as
these are complete (:class:`TileProduct`). A loop that needs whole rows, such as a norm, is run over
the rows of a chunk, which are in scratch memory: the whole product has no buffer
(:class:`RowProduct`). All kernels are those that would run separately, called by their addresses
with arguments of their own.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from evergrad.compiler.codegen.argument_blocks import (
    argument,
    call_kernel,
    copy_arguments,
    new_block,
    put,
)
from evergrad.compiler.codegen.code import Code
from evergrad.compiler.codegen.epilogue import Placed, epilogue_of, is_elementwise
from evergrad.compiler.codegen.epilogue_tiles import TILE, tile_kernel, tile_numbers
from evergrad.compiler.codegen.kernel import Kernel, kernel_of
from evergrad.compiler.codegen.loop_accesses import LoopAccesses
from evergrad.compiler.kernels.gemm.tile_epilogue import with_epilogue
from evergrad.compiler.kernels.gemm.tiling import Tiling
from evergrad.compiler.native.target import machine
from evergrad.compiler.schedule.buffers import Buffer
from evergrad.compiler.schedule.instructions import Instruction
from evergrad.compiler.schedule.nodes import Group
from evergrad.core.trace import Equation, Var

if TYPE_CHECKING:
    from evergrad.compiler.schedule.lower import Lowering

_LINE = machine().line_bytes
# Deferred over more instructions, a product would extend the liveness of its factors too far.
_MOST_BETWEEN = 4


def placed_epilogue(lowering: Lowering, group: Group, product: Var, columns: int) -> Placed | None:
    """A group as an epilogue of a product with so many columns, if it is one."""
    if not is_elementwise(group):
        return None
    stored = {e.outs[0] for e in group.members if lowering.is_stored(e.outs[0], group)}
    accesses = LoopAccesses(group, lowering.values, lambda v: v.layout, lowering.strides, stored)
    return epilogue_of(accesses, product, columns)


def is_needed(lowering: Lowering, product: Var, group: Group) -> bool:
    """Whether a product is used by others than a group."""
    values = lowering.values
    if product in lowering.buffer_views or values.escapes(product):
        return True
    return any(lowering.node_of[id(e)] is not group for e in values.users(product))


def heir_of(
    lowering: Lowering, group: Group, product: Var, placed: Placed, columns: int
) -> Var | None:
    """The result of an epilogue that may take the buffer of the product, which nothing else
    needs."""
    if is_needed(lowering, product, group):
        return None
    row = columns * product.type.dtype.itemsize
    for var, strides in placed.written:
        is_alike = var.type.dtype is product.type.dtype and strides == (placed.period * row, row)
        if is_alike and var not in lowering.buffer_views:
            return var
    return None


class Deferred(NamedTuple):
    """A product deferred to the loop that reads it: the instruction that computes it separately,
    and the instruction that this one follows."""

    eqn: Equation
    alone: Instruction
    behind: Instruction | None

    @property
    def result(self) -> Buffer:
        (found,) = self.alone.writes
        return found

    def place(self, lowering: Lowering) -> int:
        """Where the separate instruction would be."""
        return 0 if self.behind is None else lowering.instructions.index(self.behind) + 1

    def can_defer(self, lowering: Lowering, loop: Kernel) -> bool:
        """Whether the loop follows soon, and nothing writes to the factors before it has run."""
        between = lowering.instructions[self.place(lowering) :]
        written = [
            lowering.buffer_view(value).buffer for kind, value in loop.slots if kind == "write"
        ]
        written += [buffer for instruction in between for buffer in instruction.writes]
        changed = {buffer.number for buffer in written}
        is_near = len(between) <= _MOST_BETWEEN
        return is_near and changed.isdisjoint(b.number for b in self.alone.reads)

    def join(self, lowering: Lowering, group: Group) -> None:
        """Make the product, with the packing of its factors, part of the loop's group."""
        unit = lowering.node_of[id(self.eqn)]
        for instruction in lowering.instructions:
            if instruction.node is unit:
                instruction.node = group
        lowering.node_of[id(self.eqn)] = group
        group.product = self.eqn

    def label(self, loop: Instruction) -> str:
        return f"{self.alone.label} then {loop.label}"


class TileProduct(NamedTuple):
    """A product with an elementwise epilogue on rectangles of it; ``leading`` is the extent of its
    rows in memory."""

    deferred: Deferred
    placed: Placed
    leading: int

    @property
    def alone(self) -> Instruction:
        return self.deferred.alone

    def fuses(self, lowering: Lowering, group: Group, loop: Kernel) -> bool:
        """Whether the group can be the product's epilogue; otherwise the separate instruction of
        the product is added."""
        if self.deferred.can_defer(lowering, loop):
            return True
        lowering.instructions.insert(self.deferred.place(lowering), self.alone)
        return False

    def fused(self, lowering: Lowering, group: Group, loop: Instruction) -> Instruction:
        """The product and its epilogue as one instruction."""
        product, alone = self.deferred.eqn.outs[0], self.alone
        placed = self.placed
        assert alone.kernel is not None
        self.deferred.join(lowering, group)
        read = [lowering.buffer_view(var) for var, _ in placed.read]
        written = [lowering.buffer_view(var) for var, _ in placed.written]
        target = alone.pointers[2]
        assert target is not None
        made = Instruction(self.deferred.label(loop))
        numbers = tile_numbers(placed, self.leading * product.type.dtype.itemsize)
        made.kernel = with_epilogue(
            alone.kernel, tile_kernel(placed.epilogue), len(read) + len(written),
            [*numbers, *(0 for _ in TILE)],
        )  # fmt: skip
        made.work = alone.work + loop.work
        made.pointers = [*alone.pointers[:2], target, *read, *written]
        made.reads = [*alone.reads, *(view.buffer for view in read)]
        made.writes = list(dict.fromkeys([target.buffer, *(view.buffer for view in written)]))
        return made


class RowProduct(NamedTuple):
    """A product whose rows a loop reads while they are in cache; its tiling is into rows."""

    deferred: Deferred
    tiling: Tiling

    @property
    def alone(self) -> Instruction:
        return self.deferred.alone

    def fuses(self, lowering: Lowering, group: Group, loop: Kernel) -> bool:
        """Give the loop the chunks of the product, if the two can be fused; otherwise add the
        separate instruction of the product."""
        if self.deferred.can_defer(lowering, loop) and self.fits(lowering, loop):
            return True
        lowering.instructions.insert(self.deferred.place(lowering), self.alone)
        return False

    def fits(self, lowering: Lowering, loop: Kernel) -> bool:
        """Give a loop the chunks of the product, if it reads nothing but the rows of a chunk."""
        tiling, chunking = self.tiling, loop.chunking
        if chunking is None or chunking.unit * chunking.total != tiling.m * tiling.n:
            return False
        taken = {
            slot for slot, (kind, value) in enumerate(loop.slots)
            if kind == "read" and lowering.buffer_view(value).buffer is self.deferred.result
        }  # fmt: skip
        units, rest = divmod(tiling.part_rows * tiling.n, chunking.unit)
        if rest or not chunking.contiguous_slots.issuperset(taken):
            return False
        loop.numbers[chunking.per_chunk] = units
        loop.chunks = tiling.row_parts
        return True

    def fused(self, lowering: Lowering, group: Group, loop: Instruction) -> Instruction:
        """The product and the loop, which has its chunks, as one instruction."""
        self.deferred.join(lowering, group)
        result = self.deferred.result
        taken = [p is not None and p.buffer is result for p in loop.pointers]
        others = [p for p, is_taken in zip(loop.pointers, taken, strict=True) if not is_taken]
        made = Instruction(self.deferred.label(loop))
        made.kernel = self.kernel_with(loop, tuple(taken))
        made.work = self.alone.work + loop.work
        made.pointers = [*self.alone.pointers[:2], *others]
        made.reads = [*self.alone.reads, *(b for b in loop.reads if b is not result)]
        made.writes = loop.writes
        return made

    def kernel_with(self, loop: Instruction, taken: tuple[bool, ...]) -> Kernel:
        first, second = self.alone.kernel, loop.kernel
        assert first is not None and second is not None
        emitted = _kernel(len(first.numbers), taken, len(second.numbers))
        kernel = Kernel(emitted.name, emitted.ir, emitted.helpers)
        aside = -(-max(first.scratch, second.scratch) // _LINE) * _LINE
        rows = self.deferred.result.nbytes // self.tiling.m * self.tiling.part_rows
        kernel.numbers = [*first.numbers, *second.numbers, aside, rows, 0, 0]
        count = len(kernel.numbers)
        kernel.calls = {count - 2: first, count - 1: second}
        kernel.chunks = second.chunks
        kernel.scratch = aside + rows + _LINE
        kernel.passes = second.passes
        return kernel


@cache
def _kernel(product_numbers: int, taken: tuple[bool, ...], loop_numbers: int) -> Kernel:
    """The kernel that calls both. It is given the two factors, the loop's pointers but for those
    ``taken``, which are to the product, and the numbers of both; then the offset of the rows in
    scratch memory, their bytes, and the two addresses."""
    code = Code()
    numbers = 2 + taken.count(False)
    more = numbers + product_numbers
    end = more + loop_numbers
    product, loop = new_block(code, 3 + product_numbers), new_block(code, len(taken) + loop_numbers)
    rows = _rows_in_scratch(code, argument(code, "i64", end), argument(code, "i64", end + 1))
    copy_arguments(code, product, 0, 0, 2)
    put(code, product, 2, rows)
    copy_arguments(code, product, 3, numbers, product_numbers)
    others = iter(range(2, numbers))
    for slot, is_taken in enumerate(taken):
        if is_taken:
            put(code, loop, slot, rows)
        else:
            copy_arguments(code, loop, slot, next(others))
    copy_arguments(code, loop, len(taken), more, loop_numbers)
    call_kernel(code, end + 2, product)
    call_kernel(code, end + 3, loop)
    return kernel_of(code, "gemm_epilogue")


def _rows_in_scratch(code: Code, aside: str, rows: str) -> str:
    """The address of the product of which this chunk's rows are in scratch memory."""
    begin = code.op("ptrtoint ptr %scratch to i64")
    behind = code.op(f"add i64 {code.op(f'add i64 {begin}, {_LINE - 1}')}, {aside}")
    place = code.op(f"and i64 {behind}, {-_LINE}")
    return code.op(f"sub i64 {place}, {code.op(f'mul i64 %chunk, {rows}')}")
