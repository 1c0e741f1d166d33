"""An elementwise in-place update of arrays as one kernel, for eager optimizers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from evergrad.compiler.eager.program import EagerProgram
from evergrad.compiler.kernels.registry import LOWERINGS
from evergrad.compiler.native import jit
from evergrad.compiler.passes.pipeline import Target, lift_captures, optimize
from evergrad.compiler.schedule.buffers import BufferView
from evergrad.compiler.schedule.lower import Lowering
from evergrad.core.trace import Graph
from evergrad.extension import provides

Update = Callable[[Sequence[Any], Sequence[float]], None]


@provides("native_update")
def native_update(graph: Graph, tensors: int) -> Update | None:
    """A function that overwrites the first of ``tensors`` arrays, one for each output of the graph,
    whose further inputs are numbers. ``None`` unless every array is read before it is overwritten,
    or if native code is not available."""
    if not jit.can_jit():
        return None
    optimized, constants = lift_captures(optimize(graph, Target.EAGER))
    numbers = len(graph.inputs) - tensors
    lowering = Lowering(optimized, LOWERINGS, tensors, numbers, constants, len(graph.outputs), ())
    if not _reads_before_writing(lowering):
        return None
    idle = [_InPlace(lowering)]

    def run(arrays: Sequence[object], values: Sequence[float]) -> None:
        try:
            program = idle.pop()
        except IndexError:
            program = _InPlace(_another(lowering))
        program.targets = arrays
        try:
            program.run(arrays, values)
        finally:
            program.targets = ()
            idle.append(program)

    return run


def _reads_before_writing(lowering: Lowering) -> bool:
    """Whether the outputs can reuse the memory of arguments. One kernel over flat arrays reads an
    element before it writes the new one; a later kernel must not read the old one."""
    written: set[int] = set()
    for instruction in lowering.instructions:
        if instruction.kernel is None:
            return False
        if any(b.kind == "input" and b.owner in written for b in instruction.reads):
            return False
        written |= {int(b.owner) for b in instruction.writes if b.kind == "output"}
    return written == set(range(len(lowering.graph.outputs)))


def _another(lowering: Lowering) -> Lowering:
    """The same instructions for another program: two threads update different tensors at once."""
    return Lowering(
        lowering.graph, LOWERINGS, lowering.arguments, lowering.numbers, lowering.outside,
        lowering.results, (),
    )  # fmt: skip


class _InPlace(EagerProgram):
    """A program whose outputs overwrite its first arguments."""

    targets: Sequence[object] = ()

    def memory_for(self, number: int, view: BufferView) -> Any:
        return self.targets[number]
