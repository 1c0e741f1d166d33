"""Loop kernels by structure: layers of a model share most of them, and so do all batch sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evergrad import config
from evergrad.compiler.codegen.blocked_sums import BLOCK, LONG_RUN, ROWS, is_float_sum
from evergrad.compiler.codegen.loop_accesses import Access, Factor
from evergrad.core.trace import Equation, Var
from evergrad.errors import VerificationError

if TYPE_CHECKING:
    from evergrad.compiler.codegen.emit_loops import LoopEmitter
    from evergrad.compiler.codegen.kernel import Kernel

# The kernels by structure, without arguments.
EMITTED: dict[Any, Kernel] = {}
_MAX_EMITTED = 1024


def cached_kernel(loops: LoopEmitter) -> Kernel:
    """The kernel of a group; emitted if none of the same structure was before. With
    ``config.VERIFY_EACH_PASS`` it is emitted in any case and compared."""
    key = structure(loops)
    known = EMITTED.get(key)
    if known is None:
        if len(EMITTED) >= _MAX_EMITTED:
            EMITTED.clear()
        known = EMITTED[key] = loops.emit()
    elif config.VERIFY_EACH_PASS and loops.emit().name != known.name:
        raise VerificationError(f"two kernels have the structure {key}")
    return known


def structure(loops: LoopEmitter) -> tuple[Any, ...]:
    """All that the IR of a kernel depends on. Extents and strides are arguments, but which of them
    are 0 or contiguous is not, and neither is the size of scratch memory."""
    numbers: dict[Any, int] = {var: n for n, var in enumerate(loops.producer)}
    numbers |= {access: n for n, access in enumerate(loops.accesses)}
    numbers |= {factor: n for n, factor in enumerate(loops.factors)}
    inner = loops.group.inner
    return (
        loops.flat, inner is None, loops.group.blocks > 1, loops.passes,
        len(loops.outer_extents), len(loops.inner_extents),
        loops.scratch_stride() if loops.scratch or loops.tall_sums else 0, _blocks_of_sums(loops),
        tuple([_of_equation(loops, eqn, numbers) for eqn in loops.group.members]),
        tuple([_of_access(access, numbers) for access in loops.accesses]),
        tuple([(numbers[var], numbers[access]) for var, access in loops.stores.items()]),
        tuple([kind for kind, _ in loops.slots]),
    )  # fmt: skip


def _blocks_of_sums(loops: LoopEmitter) -> tuple[bool, ...]:
    """Which loops are blocked, and which sums: that depends on extents."""
    inner = loops.inner_extents[-1] if loops.inner_extents else 0
    reductions = [eqn for eqn in loops.group.members if eqn.op.combine is not None]
    if not any(map(is_float_sum, reductions)):
        return (inner <= BLOCK,)
    return (
        inner <= BLOCK, inner >= LONG_RUN, bool(loops.tall_sums), loops.inner_size > BLOCK,
        loops.outer_size * loops.inner_size > ROWS,
    )  # fmt: skip


def _of_equation(loops: LoopEmitter, eqn: Equation, numbers: dict[object, int]) -> tuple[Any, ...]:
    out, found = eqn.outs[0], eqn.specialization
    return (
        eqn.op.name, repr(eqn.attrs) if eqn.attrs else "",
        tuple([getattr(t, "dtype", t) for t in found.operands]), out.type.dtype,
        tuple([_of_operand(operand, numbers) for operand in loops.operands(eqn)]),
        loops.stage[out], loops.is_outer(out), loops.scratch.get(out),
        out in loops.group.outer_reductions,
        eqn.op.combine is not None and (loops.reduces_full(eqn), loops.keeps_inner(eqn)),
    )  # fmt: skip


def _of_operand(operand: object, numbers: dict[object, int]) -> Any:
    if isinstance(operand, str):
        return operand
    kind = "value" if isinstance(operand, Var) else operand.__class__
    return kind, numbers[operand], operand.type if isinstance(operand, Factor) else None


def _of_access(access: Access, numbers: dict[object, int]) -> tuple[Any, ...]:
    size, table = access.dtype.itemsize, access.lookup
    return (
        access.slot, access.dtype,
        tuple([stride != 0 for stride in access.outer]),
        tuple([stride if stride in (0, size) else None for stride in access.inner]),
        None if table is None else (numbers[table.indices], table.wraps),
    )  # fmt: skip
