"""What a program needs to run, apart from the graph that it was made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evergrad.compiler.schedule.buffers import Buffer, BufferView
from evergrad.compiler.schedule.instructions import Instruction
from evergrad.compiler.schedule.memory_plan import Plan
from evergrad.compiler.schedule.waves import partition_into_waves
from evergrad.core.storage import Storage
from evergrad.core.trace import Var

if TYPE_CHECKING:
    from evergrad.compiler.schedule.lower import Lowering


class Recipe:
    """Buffers, the instructions over them in waves, and where the outputs are found.

    ``outputs`` are places, or constants. ``results`` of them are results, then comes what each of
    the ``written`` storages ends at, then more results. ``copies`` are written to their storages
    when a run has ended. ``streams`` are the generators whose states kernels move on, among all
    ``generators`` that are drawn from. ``lowering`` is what it was made of; one from the disk has
    none.
    """

    lowering: Lowering | None = None

    def __init__(
        self, buffers: list[Buffer], waves: list[list[Instruction]], outputs: Sequence[Any],
        copies: Sequence[tuple[BufferView, Any]], written: Sequence[Storage], results: int,
        numbers: int, streams: Sequence[Any], generators: Sequence[Any], peak: int | None = None,
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
        self.plan = Plan(buffers, len(waves), peak)

    @property
    def instructions(self) -> list[Instruction]:
        return [instruction for wave in self.waves for instruction in wave]


def recipe_of(lowering: Lowering) -> Recipe:
    """The recipe of a lowered graph, with a plan of its memory."""
    waves = partition_into_waves(lowering.instructions)
    for number, instructions in enumerate(waves):
        for instruction in instructions:
            for buffer in (*instruction.reads, *instruction.writes):
                buffer.used_in(number)
    outputs = [lowering.buffer_view(v) if isinstance(v, Var) else v for v in lowering.graph.outputs]
    copies = [(lowering.buffer_view(var), storage) for var, storage in lowering.copies]
    for place in (*outputs, *(place for place, _ in copies)):
        if isinstance(place, BufferView):  # what is copied out at the end lives to the end
            place.buffer.used_in(len(waves) - 1)
    made = Recipe(
        lowering.buffers, waves, outputs, copies, lowering.written, lowering.results,
        lowering.numbers, lowering.native_generators, lowering.generators,
    )  # fmt: skip
    made.lowering = lowering
    return made
