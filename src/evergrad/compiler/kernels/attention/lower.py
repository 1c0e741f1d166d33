"""How the rows of attention become kernels: numbers, scratch memory and chunks."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from math import inf, prod

from evergrad.compiler.codegen.function_builder import lanes
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.reductions import combine_partials
from evergrad.compiler.codegen.rng import threshold_of
from evergrad.compiler.kernels.attention.backward import PLACES as BACKWARD_PLACES
from evergrad.compiler.kernels.attention.backward import backward
from evergrad.compiler.kernels.attention.common import (
    BITS,
    BITS_BYTES,
    COUNTED,
    KEPT,
    KEYS,
    Step,
    Text,
)
from evergrad.compiler.kernels.attention.forward import PLACES as FORWARD_PLACES
from evergrad.compiler.kernels.attention.forward import forward
from evergrad.compiler.kernels.attention.primitives import EIGHT, QUERIES, ROW, up
from evergrad.compiler.kernels.attention.rows import (
    ATTENTION,
    ATTENTION_BACKWARD,
    BATCH_DIMS,
    MASKS,
    Dropout,
    Order,
    batch_of,
    laid_out,
    way_back,
)
from evergrad.compiler.schedule.buffers import BufferView, full_view, strides_of
from evergrad.compiler.schedule.lower import Lowering
from evergrad.compiler.schedule.lowering_registry import lowers
from evergrad.core import dtypes
from evergrad.core.row_facts import Combine
from evergrad.core.shapes import Shape
from evergrad.core.trace import Equation, Var

# With fewer heads of queries than this, the queries of each are cut into parts.
_FEW_HEADS = 16
_MOST_HEADS = 4  # of a chunk
_FEW_BLOCKS = 2  # of queries, that share keys
# With fewer items (batches and heads of keys) than this, the keys of each are cut into spans.
_FEW_ITEMS = 8


class _Call:
    """The sizes of an equation, and the numbers its kernel is called with."""

    def __init__(self, lowering: Lowering, eqn: Equation, first_mask: int) -> None:
        self.lowering = lowering
        q, k, v = eqn.args[:3]
        self.groups: int = eqn.attrs["groups"]
        self.batch = batch_of(q.type, k.type, v.type)
        self.items: int = prod(self.batch)
        self.length: int = q.type.shape[-2] // self.groups
        self.blocks = max(-(-self.length // QUERIES), 1)
        self.keys: int = k.type.shape[-2]
        self.width: int = k.type.shape[-1]
        self.value_width: int = v.type.shape[-1]
        extents = [1] * (BATCH_DIMS - len(self.batch)) + list(self.batch)
        self.numbers: dict[str, int] = {
            "items_1": extents[1], "items_2": extents[2], "groups": self.groups,
            "length": self.length, "keys": self.keys, "width": self.width,
            "value_width": self.value_width,
        }  # fmt: skip
        # Of rows in scratch memory, and of matrices that have a row for each column of these.
        self.row, self.value_row = (up(n, lanes()) * 4 for n in (self.width, self.value_width))
        height = max(lanes(), EIGHT)
        self.turned, self.value_turned = (
            up(n, height) * ROW for n in (self.width, self.value_width)
        )
        self.numbers |= {
            "width_row": self.row, "value_row": self.value_row,
            "row_bytes": 4 * min(self.width, self.value_width),
        }  # fmt: skip
        self.places = [self.given(name, var) for name, var in zip("qkv", (q, k, v), strict=True)]
        self.masks: list[BufferView] = []
        self.steps = self.note_steps(eqn, first_mask)
        self.drawn: list[Var] = []
        self.dropout = self.note_dropout(eqn, eqn.attrs["dropout"])

    def item_steps(self, name: str, shape: Shape, strides: Sequence[int]) -> None:
        """The bytes between items, for each dimension of the batch."""
        own = [s if n > 1 else 0 for n, s in zip(shape[:-2], strides, strict=False)]
        for d, step in enumerate([0] * (BATCH_DIMS - len(own)) + own):
            self.numbers[f"{name}_{d}"] = step

    def given(self, name: str, var: Var) -> BufferView:
        """What is read row by row: each must lie in one piece."""
        place = self.lowering.buffer_view(var)
        if place.strides[-1] != 4 and place.shape[-1] > 1:
            buffer = self.lowering.new_buffer(var.type.nbytes, "arena", f"rows of {var.type}")
            place = full_view(buffer, var)
            self.lowering.copy(var, place)
        self.rows(name, place.shape, place.strides)
        return place

    def rows(self, name: str, shape: Shape, strides: Sequence[int]) -> None:
        """The bytes between items, groups and rows."""
        self.item_steps(name, shape, strides)
        self.numbers[f"{name}_row"] = strides[-2]
        self.numbers[f"{name}_g"] = strides[-2] * self.length

    def result(self, name: str, var: Var, order: Order) -> BufferView:
        place = self.lowering.buffer_view(var)
        back = way_back(order)
        self.rows(name, laid_out(place.shape, back), [place.strides[d] for d in back])
        return place

    def note_steps(self, eqn: Equation, first_mask: int) -> tuple[Step, ...]:
        steps = []
        given = iter(eqn.args[first_mask:])
        for n, (kind, number) in enumerate(eqn.attrs["steps"]):
            spread, finite = False, kind in ("keep", "drop") and number > -inf
            if kind in MASKS:
                spread = self.mask(f"m{n}", next(given))
            elif kind == "scale":
                self.numbers[f"scale{n}"] = bits_of(number)
            if finite:
                self.numbers[f"fill{n}"] = bits_of(number)
            steps.append(Step(kind, spread, finite))
        return tuple(steps)

    def note_dropout(self, eqn: Equation, dropout: Dropout | None) -> str:
        """Enter what was drawn; gives how weights are dropped."""
        if dropout is None:
            return KEPT
        self.drawn = list(eqn.args[-dropout.drawn :])
        self.numbers["drop"] = bits_of(dropout.scale)
        self.numbers["limit"] = threshold_of(dropout.keep)
        return COUNTED if dropout.counted else BITS

    def mask(self, name: str, var: Var) -> bool:
        """Enter a mask; gives whether it varies along queries."""
        place = self.lowering.buffer_view(var)
        self.masks.append(place)
        rank = len(self.batch) + 2
        shape = (1,) * (rank - len(place.shape)) + place.shape
        strides = (0,) * (rank - len(place.shape)) + place.strides
        self.item_steps(name, shape, strides)
        heads = self.numbers[f"{name}_{BATCH_DIMS - 1}"]
        self.numbers[f"{name}_g"] = heads if self.groups > 1 else 0
        self.numbers[f"{name}_{BATCH_DIMS - 1}"] = heads * self.groups
        self.numbers[f"{name}_key"] = strides[-2] if shape[-2] > 1 else 0
        return shape[-1] > 1

    def note_packing(self, blocks: int) -> None:
        """Whether keys and values are packed: not if they lie in one piece already, or so few
        blocks of queries go through them that it does not pay. Rows must be whole vectors."""
        for name, width, row in (
            ("k", self.width, self.row),
            ("v", self.value_width, self.value_row),
        ):
            is_apart = self.numbers[f"{name}_row"] != row
            pays = is_apart and blocks > _FEW_BLOCKS
            self.numbers[f"pack_{name}"] = int(pays or row != width * 4)

    def is_whole(self) -> bool:
        """Whether gradients may be written by the products that add to them last: there are whole
        tiles of rows of whole vectors, and each block of keys or queries is looked at."""
        skips = any(step.kind in ("keep", "drop") for step in self.steps)
        unseen = self.keys > self.length and any(step.kind == "causal" for step in self.steps)
        fits = self.row == self.width * 4 and self.value_row == self.value_width * 4
        return fits and not (self.length % EIGHT or self.keys % EIGHT or skips or unseen)

    def scratch(self, names: tuple[str, ...], sizes: list[int]) -> int:
        """Lay out scratch memory, with the bits of a block; gives its size, with room to align
        it."""
        offset = 0
        for name, size in zip((*names, "at_bits"), (*sizes, BITS_BYTES), strict=True):
            self.numbers[name] = offset
            offset += up(size, 64)
        return offset + 64

    def kernel(self, text: Text, chunks: int, scratch: int) -> Kernel:
        kernel = Kernel(text.name, text.text, text.helpers)
        kernel.numbers = [self.numbers[name] for name in text.numbers]
        kernel.chunks = chunks
        kernel.scratch = scratch
        return kernel

    def work(self, products: int) -> int:
        scores = self.items * self.groups * self.length * self.keys
        return products * scores * max(self.width, self.value_width) // 8


def bits_of(number: float) -> int:
    """The bits of a float32."""
    (bits,) = struct.unpack("<i", struct.pack("<f", number))
    return int(bits)


def _run_of(heads: int) -> int:
    """How many heads a chunk takes one after the other: while it computes one, the next is fetched
    from memory."""
    return max(1, min(_MOST_HEADS, heads // _FEW_HEADS))


@lowers(ATTENTION)
def lower_attention(lowering: Lowering, eqn: Equation) -> bool:
    call = _Call(lowering, eqn, 3)
    text = forward(call.steps, eqn.attrs["empty_is_zero"], call.dropout)
    call.result("y", eqn.outs[0], eqn.attrs["order"])
    heads = call.items * call.groups
    run = _run_of(heads)
    part = -(-call.blocks // min(call.blocks, -(-_FEW_HEADS // max(heads, 1))))
    parts = -(-call.blocks // part)
    call.numbers |= {"heads": heads, "run": run, "parts": parts, "part": part * QUERIES}
    sizes = [
        call.keys * call.row, call.keys * call.value_row, call.turned, KEYS * ROW,
        QUERIES * call.value_row, ROW, ROW, ROW,
    ]  # fmt: skip
    call.note_packing(part)
    scratch = call.scratch(FORWARD_PLACES, sizes)
    kernel = call.kernel(text, -(-heads // run) * parts, scratch)
    reads = [*call.places, *call.masks, *call.drawn]
    lowering.add_kernel("attention", kernel, reads, eqn.outs, call.work(2))
    return True


@lowers(ATTENTION_BACKWARD)
def lower_attention_backward(lowering: Lowering, eqn: Equation) -> bool:
    call = _Call(lowering, eqn, 6)
    cotangent = call.given("g", eqn.args[3])
    y = call.given("y", eqn.args[4])
    dq, dk, dv = eqn.outs
    places = [
        call.result(name, out, order)
        for name, out, order in zip(("dq", "dk", "dv"), eqn.outs, eqn.attrs["orders"], strict=True)
    ]
    reads = [*call.places, cotangent, y, eqn.args[5], *call.masks, *call.drawn]
    # Parts of a gradient are added up in the order of memory.
    may_cut = places[0].strides == strides_of(dq)
    wanted = -(-_FEW_ITEMS // call.items) if may_cut else 1
    span = min(up(-(-call.keys // wanted), KEYS), up(call.keys, EIGHT))
    spans = -(-call.keys // span)
    run = _run_of(call.items)
    call.numbers |= {
        "items": call.items, "run": run, "spans": spans, "span": span, "dq_part": dq.type.nbytes,
        "direct": int(spans == 1 and call.is_whole()),
    }  # fmt: skip
    packed = [span * call.row, span * call.value_row]
    sizes = [
        *packed, call.turned, QUERIES * call.row, call.value_turned, QUERIES * call.value_row,
        KEYS * ROW, KEYS * ROW, QUERIES * call.row, ROW, *packed,
    ]  # fmt: skip
    call.note_packing(call.blocks * call.groups)
    scratch = call.scratch(BACKWARD_PLACES, sizes)
    kernel = call.kernel(backward(call.steps, call.dropout), -(-call.items // run) * spans, scratch)
    if spans == 1:
        lowering.add_kernel("attention_backward", kernel, reads, [dq, dk, dv], call.work(5))
        return True
    parts = lowering.scratch(spans * dq.type.nbytes, f"parts of the gradient of {dq.type}")
    lowering.add_kernel("attention_backward", kernel, reads, [parts, dk, dv], call.work(5))
    total = combine_partials(Combine.SUM, dtypes.float32, spans, dq.type.numel)
    lowering.add_kernel("combine sum", total, [parts], [dq])
    return True
