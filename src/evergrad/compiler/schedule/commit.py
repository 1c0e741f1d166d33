"""Commit of writes to outside memory: all after the last instruction that may fail.

A step that fails leaves everything outside as it was, without an undo log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evergrad.compiler.schedule.buffers import full_view

if TYPE_CHECKING:
    from evergrad.compiler.schedule.lower import Lowering


def save_overwritten(lowering: Lowering) -> None:
    """Copy the old content of an outside tensor to the arena if it is the final value of another
    one and is itself overwritten: two tensors may swap their contents."""
    written = {id(storage) for storage in lowering.written}
    inputs = set(lowering.graph.inputs)
    for number, (var, storage) in enumerate(lowering.copies):
        source = lowering.buffer_view(var).buffer
        is_old = lowering.values.root(var) in inputs and source.owner is not storage
        if is_old and id(source.owner) in written and var.type.numel:
            saved = lowering.new_buffer(var.type.nbytes, "arena", f"saved {var.type}")
            lowering.copies[number] = lowering.copy(var, full_view(saved, var)), storage


def commit_after_failures(lowering: Lowering) -> None:
    """Move final values that would be written to outside memory before the last instruction that
    may fail to the arena, and copy them to their storages at the end."""
    last = max((n for n, i in enumerate(lowering.instructions) if i.may_fail), default=0)
    early = {id(b) for i in lowering.instructions[:last] for b in i.writes}
    for var, buffer in lowering.in_place:
        if id(buffer) in early:
            storage = buffer.owner
            eqn = lowering.values.producer[var]
            buffer.kind, buffer.number, buffer.owner = "arena", len(lowering.buffers), None
            buffer.label = f"{eqn.op.name} {var.type}"
            buffer.location = eqn.location
            lowering.buffers.append(buffer)
            lowering.copy(var, full_view(lowering.storages[id(storage)], var))
