"""Attention over a paged key-value cache, as one kernel: one query at a time, page by page.

An item is a query head of a sequence. Scores of as many keys as a register has lanes are computed
at once, a streaming softmax joins them with those before, and values are added as they are read:
neither pages nor scores are copied. A sequence reads its own pages alone, in their order, and then
the new tokens, so that its result does not depend on what else is in the batch.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import NamedTuple

from evergrad.compiler.codegen.elementwise import constant
from evergrad.compiler.codegen.elementwise_lanes import call_lanes
from evergrad.compiler.codegen.ir_builder import Vector, vector_for
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.kernel_builder import KernelBuilder, items_per_chunk, with_numbers
from evergrad.compiler.kernels.attention.call import bits_of, contiguous_rows
from evergrad.compiler.native.jit import has_fma
from evergrad.compiler.schedule.buffers import BufferView
from evergrad.compiler.schedule.lower import Lowering
from evergrad.compiler.schedule.lowering_registry import lowers
from evergrad.core import dtypes
from evergrad.core.shapes import contiguous_strides
from evergrad.core.trace import Equation
from evergrad.ops.rows.paged_attention import PAGED_ATTENTION

_POINTERS = ("q", "k", "v", "keys", "values", "table", "start", "out")
# Registers of a head: with more the accumulators would be spilled.
_MOST_REGISTERS = 16


class _Sizes(NamedTuple):
    """Extents, and strides in elements of sequences, tokens, heads; of pages and their rows."""

    length: int  # new tokens of a sequence
    heads: int
    groups: int  # query heads that share keys
    width: int  # numbers of a head
    pages: int  # of the pool
    page: int  # tokens of a page
    table_width: int
    items: int
    per_chunk: int
    scale: int  # bits of a float
    q_sequence: int
    q_token: int
    q_head: int
    k_sequence: int
    k_token: int
    k_head: int
    v_sequence: int
    v_token: int
    v_head: int
    keys_page: int
    keys_token: int
    keys_head: int
    values_page: int
    values_token: int
    values_head: int


class _Rows(NamedTuple):
    """Consecutive tokens of keys and of values in memory: addresses and strides."""

    keys: str
    keys_step: str
    values: str
    values_step: str


# -- the kernel ---------------------------------------------------------------------------------


@cache
def _ir(vector: Vector, registers: int) -> Kernel:
    """A chunk is some items; each goes through its new tokens."""
    ir = KernelBuilder(vector, _POINTERS, _Sizes._fields)
    attention = _Attention(ir, registers)
    first, last = ir.items("%chunk", ir["per_chunk"], ir["items"])
    with ir.loop(last, first=first) as item:
        sequence, head = ir.split(item, ir["heads"])
        shared = ir.op(f"udiv i64 {head}, {ir['groups']}")
        with ir.loop(ir["length"]) as token:
            attention.attend(sequence, head, shared, token)
    return ir.kernel("paged_attention")


class _Attention:
    """Emits the attention of one query. Carried from block to block are the sums of values, in
    ``registers``, the largest score and the sum of weights, both in all lanes."""

    def __init__(self, ir: KernelBuilder, registers: int) -> None:
        self.ir = ir
        self.lowest: str = ir.splat_constant(constant(float("-inf"), dtypes.float32), "float")
        self.registers = registers
        self.many = ir.vector.type
        whole = (registers - 1) * ir.vector.lanes
        left = ir.sub(ir["width"], whole)
        self.mask = ir.range_mask(ir.lane_indices("0"), "0", left)
        bits = ir.op(f"trunc i64 {ir['scale']} to i32")
        self.scale = ir.splat(ir.op(f"bitcast i32 {bits} to float"), ir.vector.element)

    def call(self, function: str, *args: str) -> str:
        """Call an intrinsic or an elementary function for registers."""
        return call_lanes(self.ir, self.ir.vector.lanes, function, "float", *args)

    def attend(self, sequence: str, head: str, shared: str, token: str) -> None:
        ir = self.ir
        query = self.row(self.place("q", sequence, token, head))
        query = [ir.op(f"fmul {self.many} {part}, {self.scale}") for part in query]
        state = ["zeroinitializer"] * self.registers + [self.lowest]
        state = [*state, "zeroinitializer"]
        state = self.through_pages(query, state, sequence, shared)
        new = _Rows(
            self.place("k", sequence, "0", shared), ir["k_token"],
            self.place("v", sequence, "0", shared), ir["v_token"],
        )  # fmt: skip
        state = self.through_rows(query, state, new, ir.add(token, 1))
        *sums, _, total = state
        count = ir.mul(ir["length"], ir["heads"], ir["width"])
        place = ir.add(ir.mul(token, ir["heads"]), head)
        out = ir.at(ir["out"], ir.mul(sequence, count), ir.mul(place, ir["width"]))
        self.write([ir.op(f"fdiv {self.many} {part}, {total}") for part in sums], out)

    def through_pages(
        self, query: list[str], state: list[str], sequence: str, shared: str
    ) -> list[str]:
        """Attend to the tokens of the pages that a sequence has used."""
        ir = self.ir
        room = ir.mul(ir["table_width"], ir["page"])
        count = ir.least(ir.number(ir["start"], sequence), room)
        table = ir.mul(sequence, ir["table_width"])
        start = [(self.many, value) for value in state]
        with ir.carrying_loop(count, start, ir["page"]) as (before, carried):
            entry = ir.add(table, ir.op(f"udiv i64 {before}, {ir['page']}"))
            number = ir.call("llvm.umin", "i64", ir.number(ir["table"], entry), self.last_page())
            page = _Rows(
                self.place("keys", number, "0", shared), ir["keys_token"],
                self.place("values", number, "0", shared), ir["values_token"],
            )  # fmt: skip
            inside = ir.least(ir.sub(count, before), ir["page"])
            carried.after = self.through_rows(query, carried.values, page, inside)
        return carried.after

    def last_page(self) -> str:
        return self.ir.sub(self.ir["pages"], 1)

    def through_rows(
        self, query: list[str], state: list[str], rows: _Rows, count: str
    ) -> list[str]:
        """Attend to the first rows, as many at once as there are lanes."""
        ir = self.ir
        start = [(self.many, value) for value in state]
        with ir.carrying_loop(count, start, ir.vector.lanes) as (first, carried):
            left = ir.sub(count, first)
            here = _Rows(
                ir.at(rows.keys, ir.mul(first, rows.keys_step)), rows.keys_step,
                ir.at(rows.values, ir.mul(first, rows.values_step)), rows.values_step,
            )  # fmt: skip
            carried.after = self.block(query, carried.values, here, left)
        return carried.after

    def block(self, query: list[str], state: list[str], rows: _Rows, left: str) -> list[str]:
        """One step of the streaming softmax."""
        ir = self.ir
        *sums, largest, total = state
        inside = ir.range_mask(ir.lane_indices("0"), "0", left)
        scores = ir.choose(inside, self.scores(query, rows, left), self.lowest)
        top = self.call("llvm.maximum", largest, self.in_all_lanes("fmaximum", scores))
        factor = self.call("vm_exp", ir.minus(largest, top))
        weights = self.call("vm_exp", ir.minus(scores, top))
        weights = ir.choose(inside, weights, "zeroinitializer")
        total = ir.multiply_add(total, factor, ir.splat(ir.sum_of_lanes(weights), "float"))
        ir.store_vector(weights, ir.scratch)
        start = [(self.many, ir.op(f"fmul {self.many} {part}, {factor}")) for part in sums]
        with ir.carrying_loop(ir.least(left, str(ir.vector.lanes)), start) as (number, carried):
            weight = ir.splat(ir.load(ir.at(ir.scratch, number)), "float")
            values = self.row(ir.at(rows.values, ir.mul(number, rows.values_step)))
            carried.after = [
                ir.multiply_add(weight, value, part)
                for value, part in zip(values, carried.values, strict=True)
            ]
        return [*carried.after, top, total]

    def scores(self, query: list[str], rows: _Rows, left: str) -> str:
        """A score in each lane; after the last row it is that of the last again."""
        ir = self.ir
        last = ir.sub(left, 1)
        found = []
        for number in range(ir.vector.lanes):
            at = ir.mul(ir.least(str(number), last), rows.keys_step)
            total = "zeroinitializer"
            for part, key in zip(query, self.row(ir.at(rows.keys, at)), strict=True):
                total = ir.multiply_add(part, key, total)
            found.append(total)
        return ir.lane_sums(found)

    # -- rows of a head -------------------------------------------------------------------------

    def place(self, name: str, outer: str, token: str, head: str) -> str:
        ir = self.ir
        first = "page" if name in ("keys", "values") else "sequence"
        steps = (ir[f"{name}_{first}"], ir[f"{name}_token"], ir[f"{name}_head"])
        pairs = zip((outer, token, head), steps, strict=True)
        return ir.at(ir[name], *(ir.mul(index, step) for index, step in pairs))

    def row(self, address: str) -> list[str]:
        ir = self.ir
        places = [ir.at(address, r * ir.vector.lanes) for r in range(self.registers)]
        *whole, last = places
        return [
            *map(ir.load_vector, whole), ir.load_masked(last, self.mask)
        ]  # fmt: skip

    def write(self, values: list[str], address: str) -> None:
        ir = self.ir
        *whole, last = values
        for number, value in enumerate(whole):
            ir.store_vector(value, ir.at(address, number * ir.vector.lanes))
        ir.store_masked(last, ir.at(address, len(whole) * ir.vector.lanes), self.mask)

    def in_all_lanes(self, reduction: str, value: str) -> str:
        ir = self.ir
        name = f"llvm.vector.reduce.{reduction}.{ir.vector.mangled}"
        ir.helpers[name] = f"declare float @{name}({self.many})"
        return ir.splat(ir.op(f"call float @{name}({self.many} {value})"), "float")


# -- lowering -----------------------------------------------------------------------------------


@lowers(PAGED_ATTENTION)
def lower_paged_attention(lowering: Lowering, eqn: Equation) -> bool:
    if eqn.outs[0].type.dtype is not dtypes.float32 or not has_fma():
        return False
    vector = vector_for(dtypes.float32)
    registers = -(-eqn.args[0].type.shape[-1] // vector.lanes)
    numbers = [lowering.buffer_view(var) for var in eqn.args[5:]]
    if registers > _MOST_REGISTERS or not all(map(_is_contiguous, numbers)):
        return False
    operands = [contiguous_rows(lowering, var) for var in eqn.args[:5]]
    sizes = _sizes(eqn, operands)
    chunks = -(-sizes.items // sizes.per_chunk)
    kernel = with_numbers(_ir(vector, registers), sizes, (), chunks, vector.lanes * vector.size)
    work = _work(eqn) * sizes.items // 8
    lowering.add_kernel("paged attention", kernel, [*operands, *numbers], list(eqn.outs), work)
    return True


def _is_contiguous(view: BufferView) -> bool:
    return view.strides == tuple(
        view.dtype.itemsize * step for step in contiguous_strides(view.shape)
    )


def _sizes(eqn: Equation, operands: list[BufferView]) -> _Sizes:
    q, k, _, keys, _, table, _ = (var.type.shape for var in eqn.args)
    batch, length, heads, width = q
    items = batch * heads
    strides = [step // view.dtype.itemsize for view in operands for step in view.strides[:3]]
    return _Sizes(
        length, heads, heads // k[2], width, keys[0], keys[1], table[1], items,
        items_per_chunk(items, _work(eqn)), bits_of(eqn.attrs["scale"]), *strides,
    )  # fmt: skip


def _work(eqn: Equation) -> int:
    """Multiplications of an item whose table is full."""
    _, length, _, width = eqn.args[0].type.shape
    return int(2 * length * width * prod((eqn.args[5].type.shape[1], eqn.args[3].type.shape[1])))
