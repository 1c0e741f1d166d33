"""Lowerings of random ops: kernels that sample from states which the program holds while it runs
(:mod:`.runtime.rng_state`)."""

from __future__ import annotations

from math import prod

from evergrad.compiler.codegen import rng
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.rng import KernelIR, threshold_of
from evergrad.compiler.kernels.random_rows import (
    CHANCE_BITS,
    ROWS_OF_A_WORD,
    STREAM_POSITION,
    blocks_of,
    is_counted,
)
from evergrad.compiler.schedule.lower import Lowering
from evergrad.compiler.schedule.lowering_registry import lowers
from evergrad.core import dtypes
from evergrad.core.trace import Equation
from evergrad.ops.rows.random.draws import CHANCE


def _kernel(made: KernelIR, numbers: list[int]) -> Kernel:
    kernel = Kernel(made.name, made.ir, made.helpers)
    kernel.numbers = numbers
    kernel.scratch = rng.PIECE_BYTES
    return kernel


@lowers(CHANCE)
def lower_chance(lowering: Lowering, eqn: Equation) -> bool:
    out = eqn.outs[0]
    if out.type.dtype is not dtypes.bool_ or is_counted(eqn.attrs["generator"]):
        return False
    numbers = [out.type.numel, threshold_of(eqn.args[0])]
    state = lowering.rng_state(eqn.attrs["generator"])
    kernel = _kernel(rng.chance_bytes(), numbers)
    lowering.add_kernel("chance", kernel, [], [state, out], out.type.numel * 4)
    return True


@lowers(CHANCE_BITS)
def lower_chance_bits(lowering: Lowering, eqn: Equation) -> bool:
    *lead, rows, columns = eqn.attrs["size"]
    blocks = -(-rows // ROWS_OF_A_WORD)
    numbers = [prod(lead), rows, columns, blocks, threshold_of(eqn.args[0])]
    state = lowering.rng_state(eqn.attrs["generator"])
    kernel = _kernel(rng.chance_bits(), numbers)
    work = prod(eqn.attrs["size"]) * 4
    lowering.add_kernel("chance_bits", kernel, [], [state, eqn.outs[0]], work)
    return True


@lowers(STREAM_POSITION)
def lower_position(lowering: Lowering, eqn: Equation) -> bool:
    kernel = _kernel(rng.position(), [blocks_of(eqn.attrs["count"])])
    state = lowering.rng_state(eqn.attrs["generator"])
    lowering.add_kernel("stream_position", kernel, [], [state, *eqn.outs])
    return True
