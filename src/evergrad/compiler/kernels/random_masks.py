"""Lowering of random masks: kernels that sample with generator states held by the program.

Random ops without a lowering run their NumPy evaluation. See :mod:`.runtime.rng_state`.
"""

from __future__ import annotations

from math import prod

from evergrad.compiler.codegen import rng
from evergrad.compiler.codegen.elementwise import Code
from evergrad.compiler.codegen.rng import DrawText
from evergrad.compiler.passes.random_rows import ROWS_OF_A_WORD, blocks_of, is_counted, limit_of
from evergrad.compiler.schedule.instructions import Kernel
from evergrad.compiler.schedule.lower import Lowering, lowers
from evergrad.core import dtypes
from evergrad.core.trace import Equation


def _kernel(text: DrawText, numbers: list[int]) -> Kernel:
    code = Code()
    code.helpers.update(text.helpers)
    kernel = Kernel(code, text.name, text.text)
    kernel.numbers = numbers
    kernel.scratch = rng.PIECE_BYTES
    return kernel


@lowers("chance")
def lower_chance(lowering: Lowering, eqn: Equation) -> bool:
    out = eqn.outs[0]
    if out.type.dtype is not dtypes.bool_ or is_counted(eqn.attrs["generator"]):
        return False
    numbers = [out.type.numel, limit_of(eqn.args[0])]
    stream = lowering.stream(eqn.attrs["generator"])
    kernel = _kernel(rng.chance_bytes(), numbers)
    lowering.native("chance", kernel, [], [stream, out], out.type.numel * 4)
    return True


@lowers("chance_bits")
def lower_chance_bits(lowering: Lowering, eqn: Equation) -> bool:
    *lead, rows, columns = eqn.attrs["size"]
    blocks = -(-rows // ROWS_OF_A_WORD)
    numbers = [prod(lead), rows, columns, blocks, limit_of(eqn.args[0])]
    stream = lowering.stream(eqn.attrs["generator"])
    kernel = _kernel(rng.chance_bits(), numbers)
    work = prod(eqn.attrs["size"]) * 4
    lowering.native("chance_bits", kernel, [], [stream, eqn.outs[0]], work)
    return True


@lowers("stream_position")
def lower_position(lowering: Lowering, eqn: Equation) -> bool:
    kernel = _kernel(rng.position(), [blocks_of(eqn.attrs["count"])])
    stream = lowering.stream(eqn.attrs["generator"])
    lowering.native("stream_position", kernel, [], [stream, *eqn.outs])
    return True
