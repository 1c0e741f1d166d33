"""Random draws inside programs: in the leanest form that gives the numbers of eager evaluation.

:func:`draw_lean` says how masks are drawn; the lowerings below draw natively, from states that the
program holds while it runs (:mod:`.runtime.rng_state`). Draws that nobody takes run their NumPy
evaluation.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from evergrad.compiler.codegen import rng
from evergrad.compiler.codegen.elementwise import Code
from evergrad.compiler.codegen.rng import DrawText
from evergrad.compiler.passes.random_rows import (
    COUNTED_CHANCE,
    ROWS_OF_A_WORD,
    STREAM_POSITION,
    blocks_of,
    is_counted,
    limit_of,
)
from evergrad.compiler.passes.rewriter import copied, rule_of
from evergrad.compiler.schedule.instructions import Kernel
from evergrad.compiler.schedule.lower import Lowering, lowers
from evergrad.core import dtypes
from evergrad.core.trace import Equation, Graph, Trace, Var

# -- the graph ----------------------------------------------------------------------------------


def draw_lean(graph: Graph) -> Graph:
    """The graph with masks drawn as bytes, or, from a generator that counts, not kept at all but
    computed from a position wherever they are needed."""
    if not any(eqn.op.name == "chance" for eqn in graph.equations):
        return graph
    return copied(graph, lambda trace, eqn, args, env: _lean(trace, eqn))


def _lean(trace: Trace, eqn: Equation) -> Sequence[Var] | None:
    if eqn.op.name != "chance" or not eqn.outs[0].type.numel:
        return None
    size, dtype, generator = (eqn.attrs[name] for name in ("size", "dtype", "generator"))
    (keep,) = eqn.args
    if is_counted(generator):
        start = _emit(trace, STREAM_POSITION.name, (), count=prod(size), generator=generator)
        return _emit(trace, COUNTED_CHANCE.name, start, keep=keep, size=size, dtype=dtype)
    if dtype is dtypes.bool_:
        return None
    mask = _emit(trace, "chance", (keep,), size=size, dtype=dtypes.bool_, generator=generator)
    return _emit(trace, "cast", mask, dtype=dtype)


def _emit(trace: Trace, name: str, args: Sequence[Any], **attrs: Any) -> tuple[Var, ...]:
    return trace.emit(rule_of(name, *args, **attrs), tuple(args), None)


# -- kernels ------------------------------------------------------------------------------------


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
