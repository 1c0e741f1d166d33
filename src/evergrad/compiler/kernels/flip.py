"""The lowering of ``flip``: a copy to a view whose strides are negative."""

from __future__ import annotations

from evergrad.compiler.codegen.elementwise import KINDS
from evergrad.compiler.schedule.buffers import BufferView
from evergrad.compiler.schedule.lower import Lowering
from evergrad.compiler.schedule.lowering_registry import lowers
from evergrad.core.trace import Equation
from evergrad.ops.rows.movement.rearrange import FLIP


@lowers(FLIP)
def lower_flip(lowering: Lowering, eqn: Equation) -> bool:
    (x,), (out,) = eqn.args, eqn.outs
    if x.type.dtype not in KINDS or not x.type.numel:
        return False
    whole = lowering.buffer_view(out)
    offset, strides = whole.offset, list(whole.strides)
    for dim in eqn.attrs["dims"]:
        offset += strides[dim] * (whole.shape[dim] - 1)
        strides[dim] = -strides[dim]
    lowering.copy(x, BufferView(whole.buffer, offset, whole.shape, tuple(strides), whole.dtype))
    return True
