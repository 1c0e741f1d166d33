"""Lowering of attention of uniform batches to kernels: numbers and chunks."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod

from evergrad.compiler.codegen.reductions import combine_partials
from evergrad.compiler.kernels.attention.backward import backward
from evergrad.compiler.kernels.attention.call import FEW_HEADS, Call, bits_of, contiguous_rows
from evergrad.compiler.kernels.attention.common import KEYS, ScoreStep
from evergrad.compiler.kernels.attention.forward import forward
from evergrad.compiler.kernels.attention.primitives import EIGHT, QUERIES, up
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
from evergrad.compiler.schedule.buffers import BufferView, strides_of
from evergrad.compiler.schedule.lower import Lowering
from evergrad.compiler.schedule.lowering_registry import lowers
from evergrad.core import dtypes
from evergrad.core.row_facts import Combine
from evergrad.core.shapes import Shape
from evergrad.core.trace import Equation, Var

_MOST_HEADS = 4  # of a chunk
# With fewer items (batches and heads of keys) than this, the keys of each are cut into spans.
_FEW_ITEMS = 8


class _DenseCall(Call):
    """The extents of an equation of uniform items."""

    def __init__(self, lowering: Lowering, eqn: Equation, first_mask: int) -> None:
        q, k, v = eqn.args[:3]
        super().__init__(lowering, k.type.shape[-1], v.type.shape[-1])
        self.groups: int = eqn.attrs["groups"]
        self.batch = batch_of(q.type, k.type, v.type)
        self.items: int = prod(self.batch)
        self.length: int = q.type.shape[-2] // self.groups
        self.blocks = max(-(-self.length // QUERIES), 1)
        self.keys: int = k.type.shape[-2]
        extents = [1] * (BATCH_DIMS - len(self.batch)) + list(self.batch)
        self.numbers |= {
            "items_1": extents[1], "items_2": extents[2], "groups": self.groups,
            "length": self.length, "keys": self.keys,
        }  # fmt: skip
        self.places = [self.given(name, var) for name, var in zip("qkv", (q, k, v), strict=True)]
        self.masks: list[BufferView] = []
        self.steps = self.score_steps(eqn, first_mask)
        dropout: Dropout | None = eqn.attrs["dropout"]
        self.drawn = [] if dropout is None else list(eqn.args[-dropout.drawn :])
        self.dropout = self.set_dropout(dropout)

    def item_steps(self, name: str, shape: Shape, strides: Sequence[int]) -> None:
        """The strides of items, for each dimension of the batch."""
        own = [s if n > 1 else 0 for n, s in zip(shape[:-2], strides, strict=False)]
        for d, step in enumerate([0] * (BATCH_DIMS - len(own)) + own):
            self.numbers[f"{name}_{d}"] = step

    def given(self, name: str, var: Var) -> BufferView:
        place = contiguous_rows(self.lowering, var)
        self.rows(name, place.shape, place.strides)
        return place

    def rows(self, name: str, shape: Shape, strides: Sequence[int]) -> None:
        """The strides of items, groups and rows."""
        self.item_steps(name, shape, strides)
        self.numbers[f"{name}_row"] = strides[-2]
        self.numbers[f"{name}_g"] = strides[-2] * self.length

    def result(self, name: str, var: Var, order: Order) -> BufferView:
        place = self.lowering.buffer_view(var)
        back = way_back(order)
        self.rows(name, laid_out(place.shape, back), [place.strides[d] for d in back])
        return place

    def score_steps(self, eqn: Equation, first_mask: int) -> tuple[ScoreStep, ...]:
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
            steps.append(ScoreStep(kind, spread, finite))
        return tuple(steps)

    def mask(self, name: str, var: Var) -> bool:
        """Enter a mask; whether it varies along queries."""
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

    def writes_directly(self) -> bool:
        """Whether the last product that adds to a gradient writes it to the result: there are whole
        tiles of rows of whole vectors, and no block of keys or queries is skipped."""
        skips = any(step.kind in ("keep", "drop") for step in self.steps)
        unseen = self.keys > self.length and any(step.kind == "causal" for step in self.steps)
        fits = self.has_whole_vectors()
        return fits and not (self.length % EIGHT or self.keys % EIGHT or skips or unseen)

    def work(self, products: int) -> int:
        scores = self.items * self.groups * self.length * self.keys
        return products * scores * max(self.width, self.value_width) // 8


def _run_of(heads: int) -> int:
    """The heads of a chunk: while one is computed, the next is prefetched."""
    return max(1, min(_MOST_HEADS, heads // FEW_HEADS))


@lowers(ATTENTION)
def lower_attention(lowering: Lowering, eqn: Equation) -> bool:
    call = _DenseCall(lowering, eqn, 3)
    made = forward(call.steps, eqn.attrs["empty_is_zero"], call.dropout)
    call.result("y", eqn.outs[0], eqn.attrs["order"])
    heads = call.items * call.groups
    run = _run_of(heads)
    part = -(-call.blocks // min(call.blocks, -(-FEW_HEADS // max(heads, 1))))
    parts = -(-call.blocks // part)
    call.numbers |= {"heads": heads, "run": run, "parts": parts, "part": part * QUERIES}
    call.set_packing(part)
    kernel = call.kernel(made, -(-heads // run) * parts, call.forward_scratch(call.keys))
    reads = [*call.places, *call.masks, *call.drawn]
    lowering.add_kernel("attention", kernel, reads, eqn.outs, call.work(2))
    return True


@lowers(ATTENTION_BACKWARD)
def lower_attention_backward(lowering: Lowering, eqn: Equation) -> bool:
    call = _DenseCall(lowering, eqn, 6)
    cotangent = call.given("g", eqn.args[3])
    y = call.given("y", eqn.args[4])
    dq, dk, dv = eqn.outs
    places = [
        call.result(name, out, order)
        for name, out, order in zip(("dq", "dk", "dv"), eqn.outs, eqn.attrs["orders"], strict=True)
    ]
    reads = [*call.places, cotangent, y, eqn.args[5], *call.masks, *call.drawn]
    # Partial gradients are summed in the order of memory.
    may_cut = places[0].strides == strides_of(dq)
    wanted = -(-_FEW_ITEMS // call.items) if may_cut else 1
    span = min(up(-(-call.keys // wanted), KEYS), up(call.keys, EIGHT))
    spans = -(-call.keys // span)
    run = _run_of(call.items)
    call.numbers |= {
        "items": call.items, "run": run, "spans": spans, "span": span, "dq_part": dq.type.nbytes,
        "direct": int(spans == 1 and call.writes_directly()),
    }  # fmt: skip
    call.set_packing(call.blocks * call.groups)
    made = backward(call.steps, call.dropout)
    kernel = call.kernel(made, -(-call.items // run) * spans, call.backward_scratch(span))
    if spans == 1:
        lowering.add_kernel("attention_backward", kernel, reads, [dq, dk, dv], call.work(5))
        return True
    parts = lowering.scratch(spans * dq.type.nbytes, f"parts of the gradient of {dq.type}")
    lowering.add_kernel("attention_backward", kernel, reads, [parts, dk, dv], call.work(5))
    total = combine_partials(Combine.SUM, dtypes.float32, spans, dq.type.numel)
    lowering.add_kernel("combine sum", total, [parts], [dq])
    return True
