"""Concatenation without a copy: parts of a ``cat`` are computed in the buffer of its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from evergrad.compiler.codegen.elementwise import KINDS
from evergrad.compiler.kernels.attention.rows import ATTENTION_BACKWARD
from evergrad.compiler.schedule.buffers import BufferView
from evergrad.compiler.schedule.nodes import Group, ScheduleNode, SingleNode
from evergrad.core.trace import Equation, Var
from evergrad.ops.rows.matmul import LINEAR, MATMUL
from evergrad.ops.rows.movement.joining import CAT

if TYPE_CHECKING:
    from evergrad.compiler.schedule.lower import Lowering

_PRODUCTS = (MATMUL, LINEAR)
# Ops whose kernels write results of any strides, as long as the last dimension is contiguous.
_STRIDED = (ATTENTION_BACKWARD,)


def is_concatenation(node: ScheduleNode) -> bool:
    """Whether a node is a ``cat`` of parts that kernels can write."""
    if not isinstance(node, SingleNode) or node.eqn.op is not CAT:
        return False
    return node.eqn.outs[0].type.dtype in KINDS and node.eqn.outs[0].type.numel > 0


def assign_parts(lowering: Lowering, eqn: Equation) -> None:
    """Assign parts that have no other use to their slices of the result."""
    for var, view in _parts(lowering, eqn):
        root = lowering.values.root(var)
        strides = _strides_in_place(lowering, var, view)
        if strides is not None:
            lowering.buffer_views[root] = BufferView(
                view.buffer, view.offset, root.type.shape, strides, view.dtype
            )


def lower_parts(lowering: Lowering, eqn: Equation) -> None:
    """Copy the parts that are not computed in place."""
    for var, view in _parts(lowering, eqn):
        root = lowering.values.root(var)
        assigned = lowering.buffer_views.get(root)
        if assigned is None or assigned.buffer is not view.buffer:
            lowering.copy(var, view)


def _parts(lowering: Lowering, eqn: Equation) -> list[tuple[Var, BufferView]]:
    """The arguments of a ``cat`` that have elements, each with its slice of the result."""
    result = lowering.buffer_view(eqn.outs[0])
    dim = eqn.attrs["dim"] % len(result.shape)
    parts = []
    offset = result.offset
    for var in eqn.args:
        view = BufferView(result.buffer, offset, var.type.shape, result.strides, var.type.dtype)
        if var.type.numel:
            parts.append((var, view))
            offset += var.type.shape[dim] * result.strides[dim]
    return parts


def _strides_in_place(lowering: Lowering, var: Var, view: BufferView) -> tuple[int, ...] | None:
    """The strides with which the producer of a part can write it to its slice; ``None`` if it
    cannot, or if the part has another use."""
    values = lowering.values
    root = values.root(var)
    if root in lowering.buffer_views or values.escapes(root) or not _is_reshaped(var, root):
        return None
    eqn = values.producer.get(root)
    if eqn is None or len(list(values.users(root))) != 1:
        return None
    node = lowering.node_of[id(eqn)]
    if isinstance(node, SingleNode) and eqn.op not in (*_PRODUCTS, *_STRIDED):
        return None
    if isinstance(node, Group) and root in node.outer_reductions:
        return None
    layout = np.lib.stride_tricks.as_strided(np.empty(1, view.dtype.np), view.shape, view.strides)
    try:
        shaped = layout.reshape(root.type.shape, copy=False)
    except ValueError:
        return None  # the slice has no such view
    if isinstance(node, SingleNode) and shaped.strides[-1] != shaped.itemsize:
        return None
    if eqn.op in _PRODUCTS and len(root.type.shape) != 2:
        return None
    return shaped.strides


def _is_reshaped(var: Var, root: Var) -> bool:
    """Whether a view is a reshape of all of its root, both contiguous."""
    layouts = (var.layout, root.layout)
    return var.type.numel == root.type.numel and all(x.flags.c_contiguous for x in layouts)
