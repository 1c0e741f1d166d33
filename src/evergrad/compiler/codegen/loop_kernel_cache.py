"""Loop kernels by structure: layers of a model share most of them, and so do all batch sizes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from evergrad import config
from evergrad.compiler.codegen.blocked_sums import BLOCK, ROWS, is_float_sum
from evergrad.compiler.codegen.loop_ir import loop_program, verify
from evergrad.errors import VerificationError

if TYPE_CHECKING:
    from evergrad.compiler.codegen.emit_loops import LoopEmitter
    from evergrad.compiler.codegen.kernel import Kernel

# The kernels by structure, without arguments.
EMITTED: dict[object, Kernel] = {}
_MAX_EMITTED = 1024


def cached_kernel(loops: LoopEmitter) -> Kernel:
    """The kernel of a group; emitted if none of the same structure was before. With
    ``config.VERIFY_EACH_PASS`` its loops are verified, and it is emitted in any case and
    compared."""
    program = loop_program(loops, _blocks_of_sums(loops))
    key = program.structure()
    if config.VERIFY_EACH_PASS:
        verify(program)
    if config.SHOW_PASSES:
        print(f"== loops\n{program}", file=sys.stderr)
    known = EMITTED.get(key)
    if known is None:
        if len(EMITTED) >= _MAX_EMITTED:
            EMITTED.clear()
        known = EMITTED[key] = loops.emit()
    elif config.VERIFY_EACH_PASS and loops.emit().name != known.name:
        raise VerificationError(f"two kernels have the structure {key}")
    return known


def _blocks_of_sums(loops: LoopEmitter) -> tuple[bool, ...]:
    """Which loops are blocked, and which sums: that depends on extents."""
    inner = loops.inner_extents[-1] if loops.inner_extents else 0
    reductions = [eqn for eqn in loops.group.members if eqn.op.combine is not None]
    if not any(map(is_float_sum, reductions)):
        return (inner <= BLOCK,)
    return (
        inner <= loops.block, bool(loops.tall_sums),
        loops.outer_size * loops.inner_size > ROWS,
    )  # fmt: skip
