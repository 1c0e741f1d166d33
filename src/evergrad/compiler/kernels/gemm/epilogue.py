"""Epilogues of products: loops that read rows of a product while these are in cache.

An elementwise reader of a product (a bias and an activation, the update of a parameter) would fetch
it from memory again. If it is the only reader, a chunk computes some rows of the product in scratch
memory and runs the loop over these rows: the whole product has no buffer. Both kernels are those
that would run separately, called by their addresses with arguments of their own.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from evergrad.compiler.codegen.elementwise import Code
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.kernels.gemm.bias import bias_of, biased
from evergrad.compiler.kernels.gemm.tiling import Tiling
from evergrad.compiler.native.jit import name_of
from evergrad.compiler.native.target import machine
from evergrad.compiler.schedule.buffers import Buffer, BufferView
from evergrad.compiler.schedule.instructions import Instruction
from evergrad.compiler.schedule.nodes import Group
from evergrad.core.trace import Equation

if TYPE_CHECKING:
    from evergrad.compiler.schedule.lower import Lowering

_WORD = 8
_LINE = machine().line_bytes
# Deferred over more instructions, a product would extend the liveness of its factors too far.
_MOST_BETWEEN = 4


class DeferredProduct(NamedTuple):
    """A product deferred to the loop that reads it: the instruction that computes it separately,
    its tiling, and the instruction that this one follows."""

    eqn: Equation
    alone: Instruction
    tiling: Tiling
    behind: Instruction | None

    @property
    def result(self) -> Buffer:
        (found,) = self.alone.writes
        return found

    def fuses(self, lowering: Lowering, loop: Kernel) -> bool:
        """Give the loop the chunks of the product, if the two can be fused; otherwise add the
        separate instruction of the product."""
        instructions = lowering.instructions
        at = 0 if self.behind is None else instructions.index(self.behind) + 1
        if self.can_defer(lowering, loop, instructions[at:]) and self.fits(lowering, loop):
            return True
        instructions.insert(at, self.alone)
        return False

    def can_defer(self, lowering: Lowering, loop: Kernel, between: list[Instruction]) -> bool:
        """Whether the loop follows soon, and nothing writes to the factors before it has run."""
        written = [
            lowering.buffer_view(value).buffer for kind, value in loop.slots if kind == "write"
        ]
        written += [buffer for instruction in between for buffer in instruction.writes]
        changed = {buffer.number for buffer in written}
        is_near = len(between) <= _MOST_BETWEEN
        return is_near and changed.isdisjoint(b.number for b in self.alone.reads)

    def fits(self, lowering: Lowering, loop: Kernel) -> bool:
        """Give a loop the chunks of the product, if it reads nothing but the rows of a chunk."""
        tiling, walk = self.tiling, loop.chunking
        if walk is None or walk.unit * walk.total != tiling.m * tiling.n:
            return False
        taken = {
            slot for slot, (kind, value) in enumerate(loop.slots)
            if kind == "read" and lowering.buffer_view(value).buffer is self.result
        }  # fmt: skip
        units, rest = divmod(tiling.part_rows * tiling.n, walk.unit)
        if rest or not walk.contiguous_slots.issuperset(taken):
            return False
        loop.numbers[walk.per_chunk] = units
        loop.chunks = tiling.row_parts
        return True

    def fused(self, lowering: Lowering, group: Group, loop: Instruction) -> Instruction:
        """The product and the loop, which has its chunks, as one instruction."""
        self.join(lowering, group)
        bias = bias_of(group, self.eqn.outs[0], lowering.values)
        if bias is not None and self.writes_rows(loop):
            return self.from_bias(lowering.buffer_view(bias), loop)
        taken = [p is not None and p.buffer is self.result for p in loop.pointers]
        others = [p for p, is_taken in zip(loop.pointers, taken, strict=True) if not is_taken]
        made = Instruction(f"{self.alone.label} then {loop.label}")
        made.kernel = self.kernel_with(loop, tuple(taken))
        made.work = self.alone.work + loop.work
        made.pointers = [*self.alone.pointers[:2], *others]
        made.reads = [*self.alone.reads, *(b for b in loop.reads if b is not self.result)]
        made.writes = loop.writes
        return made

    def writes_rows(self, loop: Instruction) -> bool:
        """Whether a loop writes with the layout of the product, and C is not computed
        transposed."""
        kernel = loop.kernel
        assert kernel is not None and kernel.chunking is not None
        written = {slot for slot, (kind, _) in enumerate(kernel.slots) if kind == "write"}
        return kernel.chunking.contiguous_slots.issuperset(written) and not self.tiling.transposed

    def from_bias(self, bias: BufferView, loop: Instruction) -> Instruction:
        """The product with a bias, in place of a loop that would add it."""
        assert self.alone.kernel is not None and loop.kernel is not None
        slots = zip(loop.kernel.slots, loop.pointers, strict=True)
        (target,) = [place for (kind, _), place in slots if kind == "write"]
        made = Instruction(f"{self.alone.label} then {loop.label}")
        made.kernel = biased(self.alone.kernel)
        made.work = self.alone.work
        made.pointers = [*self.alone.pointers[:2], target, bias]
        made.reads = [*self.alone.reads, bias.buffer]
        made.writes = loop.writes
        return made

    def join(self, lowering: Lowering, group: Group) -> None:
        """Make the product, with the packing of its factors, part of the loop's group."""
        unit = lowering.node_of[id(self.eqn)]
        for instruction in lowering.instructions:
            if instruction.node is unit:
                instruction.node = group
        lowering.node_of[id(self.eqn)] = group
        group.product = self.eqn

    def kernel_with(self, loop: Instruction, taken: tuple[bool, ...]) -> Kernel:
        first, second = self.alone.kernel, loop.kernel
        assert first is not None and second is not None
        ir = _ir(len(first.numbers), taken, len(second.numbers))
        kernel = Kernel(ir.name, ir.body, ir.code.helpers)
        aside = -(-max(first.scratch, second.scratch) // _LINE) * _LINE
        rows = self.result.nbytes // self.tiling.m * self.tiling.part_rows
        kernel.numbers = [*first.numbers, *second.numbers, aside, rows, 0, 0]
        count = len(kernel.numbers)
        kernel.calls = {count - 2: first, count - 1: second}
        kernel.chunks = second.chunks
        kernel.scratch = aside + rows + _LINE
        kernel.passes = second.passes
        return kernel


class _Text(NamedTuple):
    code: Code
    name: str
    body: str


@cache
def _ir(product_numbers: int, taken: tuple[bool, ...], loop_numbers: int) -> _Text:
    """The kernel that calls both. It is given the two factors, the loop's pointers but for those
    ``taken``, which are to the product, and the numbers of both; then where the rows lie in the
    scratch memory, their bytes, and the two addresses."""
    code = Code()
    code.helpers["llvm.memcpy.p0.p0.i64"] = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"
    numbers = 2 + taken.count(False)
    more = numbers + product_numbers
    end = more + loop_numbers

    def at(block: str, word: int) -> str:
        return code.op(f"getelementptr i64, ptr {block}, i64 {word}")

    def copy(target: str, to: int, source: int, count: int = 1) -> None:
        places = f"ptr {at(target, to)}, ptr {at('%args', source)}"
        code.do(f"call void @llvm.memcpy.p0.p0.i64({places}, i64 {count * _WORD}, i1 false)")

    def given(type: str, word: int) -> str:
        return code.op(f"load {type}, ptr {at('%args', word)}")

    product = code.op(f"alloca i64, i64 {3 + product_numbers}")
    loop = code.op(f"alloca i64, i64 {len(taken) + loop_numbers}")
    rows = _rows_in_scratch(code, given("i64", end), given("i64", end + 1))
    copy(product, 0, 0, 2)
    code.do(f"store i64 {rows}, ptr {at(product, 2)}")
    copy(product, 3, numbers, product_numbers)
    others = iter(range(2, numbers))
    for slot, is_taken in enumerate(taken):
        if is_taken:
            code.do(f"store i64 {rows}, ptr {at(loop, slot)}")
        else:
            copy(loop, slot, next(others))
    copy(loop, len(taken), more, loop_numbers)
    for address, block in ((end + 2, product), (end + 3, loop)):
        code.do(f"call void {given('ptr', address)}(ptr {block}, i64 %chunk, ptr %scratch)")
    lines = "\n".join(code.lines)
    body = (
        "define void @SELF(ptr %args, i64 %chunk, ptr %scratch) nounwind {\nentry:\n"
        f"{lines}\n  ret void\n}}\n"
    )
    name = name_of(body, "gemm_epilogue")
    return _Text(code, name, body.replace("@SELF", f"@{name}"))


def _rows_in_scratch(code: Code, aside: str, rows: str) -> str:
    """The address of the product of which this chunk's rows are in scratch memory."""
    begin = code.op("ptrtoint ptr %scratch to i64")
    behind = code.op(f"add i64 {code.op(f'add i64 {begin}, {_LINE - 1}')}, {aside}")
    place = code.op(f"and i64 {behind}, {-_LINE}")
    return code.op(f"sub i64 {place}, {code.op(f'mul i64 %chunk, {rows}')}")
