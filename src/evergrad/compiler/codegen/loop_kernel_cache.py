"""Loop kernels by structure: layers and parameters of a model share most of them."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evergrad.compiler.codegen.emit_loops import LoopEmitter
    from evergrad.compiler.codegen.kernel import Kernel
    from evergrad.core.row_facts import Combine
    from evergrad.core.trace import Var

# By the structure of their groups, without the values they are called with.
EMITTED: dict[Any, Kernel] = {}
_MAX_EMITTED = 1024


def cached_kernel(loops: LoopEmitter) -> Kernel:
    """The kernel of a group; emitted if none of the same structure was before."""
    structure = loops.structure()
    known = EMITTED.get(structure)
    if known is None:
        made = loops.emit()
        if len(EMITTED) >= _MAX_EMITTED:
            EMITTED.clear()
        EMITTED[structure] = _with_values(made, [], [])
        return made
    return _with_values(known, loops.kernel_slots(), loops.kernel_partials())


def _with_values(
    kernel: Kernel, slots: list[Any], partials: list[tuple[Var, Combine, int]]
) -> Kernel:
    """A kernel for other values, with a copy of its numbers."""
    made = copy(kernel)
    made.numbers = list(kernel.numbers)
    made.slots, made.partials = slots, partials
    return made
