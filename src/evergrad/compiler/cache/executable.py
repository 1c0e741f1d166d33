"""Executables: instructions in waves over planned buffers, without the graph they come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evergrad import config
from evergrad.compiler.schedule.buffers import Buffer, BufferView
from evergrad.compiler.schedule.instructions import Instruction
from evergrad.compiler.schedule.memory_plan import Plan
from evergrad.compiler.schedule.verify_plan import verify_plan
from evergrad.compiler.schedule.waves import partition_into_waves
from evergrad.core.storage import Storage
from evergrad.core.trace import Var

if TYPE_CHECKING:
    from evergrad.compiler.passes.pipeline import Target
    from evergrad.compiler.schedule.lower import Lowering


class Executable:
    """Buffers, the instructions over them in waves, and the buffer views of the outputs.

    ``outputs`` are buffer views, or constants. ``results`` of them are results, then comes the
    final value of each of the ``written`` storages, then more results. ``copies`` are written to
    their storages when a run has ended. ``streams`` are the random generators whose states kernels
    advance, among all ``generators`` of the step. ``lowering`` and the ``target`` of its passes are
    ``None`` for an executable from the disk.
    """

    lowering: Lowering | None = None
    target: Target | None = None
    # The bytes of folded constants.
    constant_bytes = 0

    def __init__(
        self, buffers: list[Buffer], waves: list[list[Instruction]], outputs: Sequence[object],
        copies: Sequence[tuple[BufferView, Any]], written: Sequence[Storage], results: int,
        numbers: int, streams: Sequence[object], generators: Sequence[object],
        peak: int | None = None,
    ) -> None:  # fmt: skip
        self.buffers = buffers
        self.waves = waves
        self.outputs = outputs
        self.copies = copies
        self.written = written
        self.results = results
        self.numbers = numbers
        self.streams = streams
        self.generators = generators
        self.plan: Plan = Plan(buffers, len(waves), peak)

    @property
    def instructions(self) -> list[Instruction]:
        return [instruction for wave in self.waves for instruction in wave]


def executable_of(lowering: Lowering) -> Executable:
    """The executable of a lowered graph, with a memory plan."""
    waves = partition_into_waves(lowering.instructions)
    for number, instructions in enumerate(waves):
        for instruction in instructions:
            for buffer in (*instruction.reads, *instruction.writes):
                buffer.used_in(number)
    outputs = [lowering.buffer_view(v) if isinstance(v, Var) else v for v in lowering.graph.outputs]
    copies = [(lowering.buffer_view(var), storage) for var, storage in lowering.copies]
    for place in _ends(outputs, copies):  # copies at the end extend the live range
        place.buffer.used_in(len(waves) - 1)
    made = Executable(
        lowering.buffers, waves, outputs, copies, lowering.written, lowering.results,
        lowering.numbers, lowering.native_generators, lowering.generators,
    )  # fmt: skip
    made.lowering = lowering
    if len(made.instructions) <= config.VERIFY_EQUATIONS:
        verify_plan(made.waves, made.plan.peak, [p.buffer for p in _ends(outputs, copies)])
    return made


def _ends(
    outputs: Sequence[object], copies: Sequence[tuple[BufferView, object]]
) -> list[BufferView]:
    """The buffer views that are read when all waves have run."""
    return [p for p in (*outputs, *(place for place, _ in copies)) if isinstance(p, BufferView)]
