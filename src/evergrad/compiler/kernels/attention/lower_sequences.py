"""Lowering of attention of sequences of different lengths: offsets are read at run time.

The kernels are those of uniform batches, with the extents of each item given by offsets. Float64,
offsets that are not int64, and batches without sequences, heads or tokens are left to NumPy.
"""

from __future__ import annotations

from evergrad.compiler.kernels.attention.backward import backward
from evergrad.compiler.kernels.attention.call import FEW_HEADS, Call, bits_of, contiguous_rows
from evergrad.compiler.kernels.attention.common import ScoreStep
from evergrad.compiler.kernels.attention.extents import SEQUENCES
from evergrad.compiler.kernels.attention.forward import forward
from evergrad.compiler.kernels.attention.primitives import EIGHT, QUERIES, up
from evergrad.compiler.kernels.attention.rows import Dropout
from evergrad.compiler.schedule.buffers import BufferView
from evergrad.compiler.schedule.lower import Lowering
from evergrad.compiler.schedule.lowering_registry import lowers
from evergrad.core import dtypes
from evergrad.core.trace import Equation, Var
from evergrad.ops.rows.jagged_attention import JAGGED_ATTENTION, JAGGED_ATTENTION_BACKWARD


class _SequencesCall(Call):
    """The extents of an equation, whose operands start at ``first``: queries, keys, values,
    offsets of queries and of keys, and two random numbers if there is dropout."""

    def __init__(self, lowering: Lowering, eqn: Equation, first: int) -> None:
        q, k, v, *self.others = eqn.args[first:]
        super().__init__(lowering, k.type.shape[2], v.type.shape[2])
        self.queries, heads, _ = q.type.shape
        self.keys, self.shared, _ = k.type.shape
        self.groups: int = heads // self.shared
        self.sequences: int = self.others[0].type.shape[0] - 1
        self.items = self.sequences * self.shared
        self.numbers |= {
            "items_1": self.sequences, "items_2": self.shared, "groups": self.groups, "run": 1,
            "queries": self.queries, "all_keys": self.keys, "scale0": bits_of(eqn.attrs["scale"]),
        }  # fmt: skip
        causal = (ScoreStep("causal"),) if eqn.attrs["causal"] else ()
        self.steps = (ScoreStep("scale"), *causal)
        rate: float = eqn.attrs["dropout"]
        keep = 1 - rate
        dropout = Dropout(keep, 1 / keep if keep else 0.0, True) if rate else None
        self.dropout = self.set_dropout(dropout)
        self.places = [self.given("q", q), self.given("k", k), self.given("v", v)]
        # Query blocks of a head of average length.
        self.blocks = -(-self.queries // (self.sequences * QUERIES))

    def given(self, name: str, var: Var) -> BufferView:
        place = contiguous_rows(self.lowering, var)
        self.strides(name, place)
        return place

    def strides(self, name: str, place: BufferView) -> None:
        """The strides of heads of keys, of heads of queries and of tokens."""
        row, head, _ = place.strides
        shares = self.groups if name in ("q", "y", "g", "dq") else 1
        self.numbers |= {
            f"{name}_0": 0, f"{name}_1": 0, f"{name}_2": head * shares, f"{name}_g": head,
            f"{name}_row": row,
        }  # fmt: skip

    def work(self, products: int) -> int:
        average = self.keys // self.sequences
        scores: int = self.shared * self.groups * self.queries * average
        return products * scores * max(self.width, self.value_width) // 8


def _fits(eqn: Equation, first: int) -> bool:
    q, k, v, q_offsets, k_offsets, *_ = eqn.args[first:]
    return (
        all(x.type.dtype is dtypes.float32 and x.type.numel for x in (q, k, v))
        and all(
            x.type.dtype is dtypes.int64 and x.type.numel > 1 and x.layout.flags.c_contiguous
            for x in (q_offsets, k_offsets)
        )
        and q_offsets.type.shape == k_offsets.type.shape
    )


@lowers(JAGGED_ATTENTION)
def lower_jagged_attention(lowering: Lowering, eqn: Equation) -> bool:
    if not _fits(eqn, 0):
        return False
    call = _SequencesCall(lowering, eqn, 0)
    call.strides("y", lowering.buffer_view(eqn.outs[0]))
    heads = call.items * call.groups
    parts = -(-FEW_HEADS // heads)
    call.numbers |= {"heads": heads, "parts": parts, "part": 0}
    call.set_packing(call.blocks)
    made = forward(call.steps, True, call.dropout, SEQUENCES)
    # The last chunk is for the tokens outside of all sequences.
    kernel = call.kernel(made, heads * parts + 1, call.forward_scratch(call.keys))
    reads = [*call.places, *call.others]
    lowering.add_kernel("jagged_attention", kernel, reads, [*eqn.outs, None], call.work(2))
    return True


@lowers(JAGGED_ATTENTION_BACKWARD)
def lower_jagged_attention_backward(lowering: Lowering, eqn: Equation) -> bool:
    if not _fits(eqn, 3):
        return False
    call = _SequencesCall(lowering, eqn, 3)
    g, y, stats = eqn.args[:3]
    given = [*call.places, call.given("g", g), call.given("y", y), stats]
    for name, out in zip(("dq", "dk", "dv"), eqn.outs, strict=True):
        call.strides(name, lowering.buffer_view(out))
    span = up(call.keys, EIGHT)
    call.numbers |= {
        "items": call.items, "spans": 1, "span": span, "dq_part": 0,
        "direct": int(call.has_whole_vectors()),
    }  # fmt: skip
    call.set_packing(call.blocks * call.groups)
    made = backward(call.steps, call.dropout, SEQUENCES)
    kernel = call.kernel(made, call.items + 1, call.backward_scratch(span))
    reads = [*given, *call.others]
    lowering.add_kernel("jagged_attention_backward", kernel, reads, [*eqn.outs, None], call.work(5))
    return True
