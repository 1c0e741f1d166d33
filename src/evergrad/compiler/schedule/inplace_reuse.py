"""In-place buffer reuse: a result of a loop takes over the buffer of an operand that dies there.

The gradient of a hidden layer, or the activation recomputed for a weight's gradient, overwrites the
layer that both are computed from: it adds nothing to the peak, and the kernel writes to cache lines
that it has just read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evergrad.compiler.codegen.loop_accesses import NO_SLOT, STATUS, Access
from evergrad.compiler.codegen.loop_nest import LoopNest
from evergrad.compiler.schedule.buffers import BufferView, address_of, full_view
from evergrad.core.trace import Var

if TYPE_CHECKING:
    from evergrad.compiler.schedule.lower import Lowering


def reuse_buffers(lowering: Lowering, loops: LoopNest) -> None:
    """Assign results of a loop nest without a buffer to those of operands that die in it."""
    if (STATUS, None) in loops.slots:
        return  # a lookup may read elements after others were written
    dying = _dying_operands(lowering, loops)
    for var, store in loops.stores.items():
        if var in lowering.buffer_views or not _is_written_last(loops, var):
            continue
        for access, view in dying:
            if _is_same_element(loops, access, store) and view.nbytes == var.type.nbytes:
                view.buffer.label += f", then {loops.producer[var].op.name} {var.type}"
                lowering.buffer_views[var] = full_view(view.buffer, var)
                dying.remove((access, view))
                break


def _dying_operands(lowering: Lowering, loops: LoopNest) -> list[tuple[Access, BufferView]]:
    """The operands that nothing reads after a loop nest and that it reads by one access alone."""
    accesses: dict[Var, list[tuple[Access, Var]]] = {}
    for access in loops.accesses:
        if access.slot != NO_SLOT and loops.slots[access.slot][0] == "read":
            var: Var = loops.slots[access.slot][1]
            accesses.setdefault(lowering.values.root(var), []).append((access, var))
    found = []
    for root, ((access, var), *others) in accesses.items():
        view = lowering.buffer_views.get(root)
        if view is None or others or not _is_all_of(var, root, view):
            continue
        if not _is_read_later(lowering, loops, root) and not _is_pending(lowering, view):
            found.append((access, view))
    return found


def _is_all_of(var: Var, root: Var, view: BufferView) -> bool:
    """Whether a value starts where its root does, and that fills a buffer of the arena."""
    buffer = view.buffer
    if buffer.kind != "arena" or view.offset or view.nbytes != buffer.nbytes:
        return False
    return address_of(var.layout) == address_of(root.layout)


def _is_read_later(lowering: Lowering, loops: LoopNest, root: Var) -> bool:
    """Whether a value is live after a loop nest."""
    nodes = [lowering.node_of[id(eqn)] for eqn in lowering.values.users(root)]
    is_done = all(node is loops.group or id(node) in lowering.lowered for node in nodes)
    return not is_done or lowering.values.escapes(root)


def _is_pending(lowering: Lowering, view: BufferView) -> bool:
    """Whether a matrix product that is not placed yet reads or writes a buffer."""
    pending = [product.alone for product in lowering.pending_products.values()]
    return any(b is view.buffer for i in pending for b in (*i.reads, *i.writes))


def _is_written_last(loops: LoopNest, var: Var) -> bool:
    """Whether a value is written at every point of the domain, in the last pass over the inner
    dimensions, when no other pass reads operands any more."""
    group = loops.group
    is_full = group.varying(group.axes[var]) == group.dims
    return is_full and not loops.is_outer(var) and loops.stage[var] == loops.passes - 1


def _is_same_element(loops: LoopNest, access: Access, store: Access) -> bool:
    """Whether each point of the domain reads just the bytes that it writes."""
    if access.lookup is not None or access.dtype.itemsize != store.dtype.itemsize:
        return False
    return all(access.strides[d] == store.strides[d] for d in loops.group.dims)
