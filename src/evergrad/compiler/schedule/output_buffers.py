"""Buffers of outputs: results and final values of storages are computed in place where possible.

A final value may be computed right in outside memory only if nothing reads the old content
afterwards; otherwise it is copied there at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evergrad.compiler.schedule.buffers import Buffer, address_of, full_view, strides_of
from evergrad.compiler.schedule.def_use import DefUse
from evergrad.compiler.schedule.nodes import Group, ScheduleNode
from evergrad.compiler.schedule.row_writes import table_in_place
from evergrad.core.storage import Storage
from evergrad.core.trace import Equation, Var

if TYPE_CHECKING:
    from evergrad.compiler.schedule.lower import Lowering


def assign_outputs(lowering: Lowering) -> None:
    """Assign the outputs that are computed in place; enters the others of storages into
    ``lowering.copies``."""
    targets = _Targets(lowering)
    for number, var in enumerate(lowering.graph.outputs):
        if not isinstance(var, Var):
            continue
        written = number - lowering.results
        is_write = 0 <= written < len(lowering.written)
        is_free = lowering.values.root(var) is var and targets.is_unassigned(var)
        if is_write:
            storage = lowering.written[written]
            if is_free and targets.may_overwrite(var, storage):
                buffer = _overwriting(lowering, storage)
                lowering.buffer_views[var] = full_view(buffer, var)
                lowering.in_place.append((var, buffer))
                targets.assigned.add(var)
            else:
                lowering.copies.append((var, storage))
        elif targets.is_unassigned(root := lowering.values.root(var)) and _is_whole(var, root):
            buffer = lowering.new_buffer(var.type.nbytes, "output", "result", number)
            lowering.buffer_views[root] = full_view(buffer, root)
            targets.assigned.add(root)


def _is_whole(var: Var, root: Var) -> bool:
    """Whether a value is all elements of another in order: itself, or a reshape of it."""
    return var is root or (
        var.type.nbytes == root.type.nbytes
        and bool(var.layout.flags.c_contiguous)
        and address_of(var.layout) == address_of(root.layout)
    )


def _overwriting(lowering: Lowering, storage: Storage) -> Buffer:
    """The buffer of a storage's final value: the memory, and so the number, of its old content, but
    a buffer of its own, which may still be moved to the arena."""
    held = lowering.storages[id(storage)]
    return Buffer(held.number, held.nbytes, "outside", held.label, storage)


class _Targets:
    """What has to be known of a lowering to compute an output in place."""

    def __init__(self, lowering: Lowering) -> None:
        self.lowering = lowering
        self.order = {id(node): number for number, node in enumerate(lowering.nodes)}
        self.producer = {
            out: node for node in lowering.nodes for eqn in node.equations for out in eqn.outs
        }
        self.assigned: set[Var] = set()
        # The values that each buffer holds before the program runs.
        self.held: dict[int, list[Var]] = {}
        for source, view in lowering.buffer_views.items():
            self.held.setdefault(view.buffer.number, []).append(source)

    def is_unassigned(self, var: Var) -> bool:
        return var in self.producer and var not in self.assigned

    def may_overwrite(self, var: Var, storage: Storage) -> bool:
        """Whether the node that produces a value may write it right to outside memory."""
        values, node = self.lowering.values, self.producer[var]
        buffer = self.lowering.storages.get(id(storage))
        array = storage.value
        if buffer is None or not array.flags.c_contiguous or array.shape != var.type.shape:
            return False
        held = self.held.get(buffer.number, [])
        if any(values.escapes(source) for source in held):
            return False
        if not isinstance(node, Group):  # writes of rows come last, behind all that reads
            return table_in_place(node.equations[0], storage, values, held)
        if var in node.outer_reductions:
            return False
        for source in held:
            for eqn in values.users(source):
                if not self.is_read_before(node, eqn, var, source):
                    return False
        return True

    def is_read_before(self, node: Group, eqn: Equation, var: Var, source: Var) -> bool:
        """Whether an equation reads each element of ``source`` before ``var`` overwrites it."""
        reader: ScheduleNode = self.lowering.node_of[id(eqn)]
        if reader is node:
            return _reads_same_element(node, eqn, var, source, self.lowering.values)
        return self.order[id(reader)] <= self.order[id(node)]


def _reads_same_element(group: Group, eqn: Equation, var: Var, source: Var, values: DefUse) -> bool:
    """Whether a loop that overwrites ``source`` by ``var`` reads each element of ``source`` only at
    the iteration that overwrites it."""
    if group.inner is not None or eqn.op.looks_up:
        return False
    if group.varying(group.axes[var]) != group.dims:
        return False
    for arg in eqn.args:
        if isinstance(arg, Var) and values.root(arg) is source:
            if arg.type.shape != var.type.shape or arg.layout.strides != strides_of(var):
                return False
            if group.maps[id(eqn)] != group.axes[var]:
                return False
    return True
