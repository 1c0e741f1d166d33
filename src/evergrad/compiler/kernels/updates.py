"""The lowering of writes to a part of a tensor: a copy of the whole, then one to a view of it."""

from __future__ import annotations

import numpy as np

from evergrad.compiler.codegen.elementwise import KINDS
from evergrad.compiler.schedule.buffers import BufferView, address_of
from evergrad.compiler.schedule.lower import Lowering
from evergrad.compiler.schedule.lowering_registry import lowers
from evergrad.core.trace import Equation
from evergrad.ops.surface.view_forms import UPDATE, part_of


@lowers(UPDATE)
def lower_update(lowering: Lowering, eqn: Equation) -> bool:
    """A view op that copies, as a reshape of a slice may, is left to NumPy."""
    base, value = eqn.args
    (out,) = eqn.outs
    whole = lowering.buffer_view(out)
    layout = out.layout
    part = part_of(layout, eqn.attrs["chain"])
    is_view = np.may_share_memory(part, layout)
    if not is_view or not part.size or part.shape != value.type.shape:
        return False
    if layout.strides != whole.strides or base.type.dtype is not value.type.dtype:
        return False
    if out.type.dtype not in KINDS:
        return False
    lowering.copy(base, whole)
    offset = whole.offset + address_of(part) - address_of(layout)
    view = BufferView(whole.buffer, offset, part.shape, part.strides, out.type.dtype)
    lowering.copy(value, view)
    return True
