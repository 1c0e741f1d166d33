"""Kernels of loops, each written once: layers and parameters of a model share most of them."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evergrad.compiler.codegen.emit_loops import LoopWriter
    from evergrad.compiler.schedule.instructions import Kernel

# By the structure of their groups, without the values they are called with.
WRITTEN: dict[Any, Kernel] = {}
_MOST_WRITTEN = 1024


def shared(writer: LoopWriter) -> Kernel:
    """The kernel of a group; it is written if none of the same structure was before."""
    structure = writer.structure()
    known = WRITTEN.get(structure)
    if known is None:
        made = writer.written()
        if len(WRITTEN) >= _MOST_WRITTEN:
            WRITTEN.clear()
        WRITTEN[structure] = _called_with(made, [], [])
        return made
    late = writer.late_slots()
    return _called_with(
        known,
        [*writer.slots, *(("partial", e.outs[0]) for e in late)],
        [(e.outs[0], e.op.name, writer.late_length(e)) for e in late],
    )


def _called_with(kernel: Kernel, slots: list[Any], partials: list[Any]) -> Kernel:
    """A kernel for other values, with numbers of its own."""
    made = copy(kernel)
    made.numbers = list(kernel.numbers)
    made.slots, made.partials = slots, partials
    return made
