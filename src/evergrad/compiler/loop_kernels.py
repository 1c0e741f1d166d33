"""Kernels of loops, each written once: layers and parameters of a model share most of them."""

from __future__ import annotations

from copy import copy
from typing import Any

from evergrad.compiler.kernel import Kernel
from evergrad.compiler.loops import LoopWriter

WRITTEN: dict[Any, Kernel] = {}
_MOST_WRITTEN = 1024


def kernel_of(writer: LoopWriter) -> Kernel:
    """The kernel of a group; it is written if none of the same structure was before."""
    structure = writer.structure()
    known = WRITTEN.get(structure)
    if known is None:
        known = writer.write()
        if len(WRITTEN) >= _MOST_WRITTEN:
            WRITTEN.clear()
        WRITTEN[structure] = known
    made = copy(known)
    made.numbers = list(known.numbers)  # who cuts the loop otherwise changes them
    late = writer.late_slots()
    made.slots = [*writer.slots, *(("partial", e.outs[0]) for e in late)]
    made.partials = [(e.outs[0], e.op.name, writer.late_length(e)) for e in late]
    return made
