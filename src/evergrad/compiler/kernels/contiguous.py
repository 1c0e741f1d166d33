"""Operands of kernels that read contiguous memory."""

from __future__ import annotations

from evergrad.compiler.schedule.buffers import BufferView, strides_of
from evergrad.compiler.schedule.lower import Lowering
from evergrad.core.trace import Var


def contiguous(lowering: Lowering, var: Var) -> Var | BufferView:
    """A contiguous value: itself, or a copy of it."""
    if var.layout.flags.c_contiguous:
        return var
    scratch = lowering.scratch(var.type.nbytes, f"copy of {var.type}")
    copy = BufferView(scratch.buffer, 0, var.type.shape, strides_of(var), var.type.dtype)
    lowering.copy(var, copy)
    return copy
