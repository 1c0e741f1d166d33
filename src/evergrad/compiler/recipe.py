"""What a program needs to run, apart from the graph that it was made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from evergrad.compiler.kernel import Instruction, Place
from evergrad.compiler.plan import Buffer, Plan
from evergrad.core.storage import Storage
from evergrad.core.trace import Var

if TYPE_CHECKING:
    from evergrad.compiler.lowering import Lowering


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
        copies: Sequence[tuple[Place, Any]], written: Sequence[Storage], results: int,
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
    waves = in_waves(lowering.instructions)
    for number, instructions in enumerate(waves):
        for instruction in instructions:
            for buffer in (*instruction.reads, *instruction.writes):
                buffer.used_in(number)
    outputs = [lowering.home(v) if isinstance(v, Var) else v for v in lowering.graph.outputs]
    for place in outputs:  # what is copied out at the end lives to the end
        if isinstance(place, Place):
            place.buffer.used_in(len(waves) - 1)
    copies = [(lowering.home(var), storage) for var, storage in lowering.copies]
    made = Recipe(
        lowering.buffers, waves, outputs, copies, lowering.written, lowering.results,
        lowering.numbers, lowering.streams, lowering.generators,
    )  # fmt: skip
    made.lowering = lowering
    return made


def in_waves(instructions: Sequence[Instruction]) -> list[list[Instruction]]:
    """Instructions that may run at the same time, in their order; a Python call stands alone, and
    what writes to the outside waits until what may fail has ended."""
    waves: list[list[Instruction]] = []
    read: set[int] = set()
    written: dict[int, list[tuple[int, int]]] = {}
    risky = False
    for instruction in instructions:
        reads = {b.number for b in instruction.reads}
        writes = {b.number: _ranges(instruction, b) for b in instruction.writes}
        clash = not (reads.isdisjoint(written) and read.isdisjoint(writes))
        clash = clash or any(_meet(ranges, written.get(b, ())) for b, ranges in writes.items())
        alone = instruction.kernel is None
        too_early = risky and any(b.home == "outside" for b in instruction.writes)
        if not waves or clash or alone or too_early or waves[-1][0].kernel is None:
            waves.append([])
            read, written, risky = set(), {}, False
        waves[-1].append(instruction)
        risky = risky or instruction.may_fail
        read |= reads
        for number, ranges in writes.items():
            written.setdefault(number, []).extend(ranges)
    return waves


def _ranges(instruction: Instruction, buffer: Buffer) -> list[tuple[int, int]]:
    """The bytes of a buffer that an instruction goes over: its part of a join, say."""
    places = [p for p in instruction.pointers if p is not None and p.buffer is buffer]
    if instruction.kernel is None or any(not p.shape for p in places):
        return [(0, buffer.nbytes)]  # a place without a shape is only where something begins
    return [(p.offset, p.offset + _span(p)) for p in places]


def _span(place: Place) -> int:
    """The bytes from the first element of a place to its last."""
    if 0 in place.shape:
        return 0
    steps = zip(place.shape, place.strides, strict=True)
    return sum((n - 1) * step for n, step in steps) + int(place.dtype.itemsize)


def _meet(these: Iterable[tuple[int, int]], those: Iterable[tuple[int, int]]) -> bool:
    return any(a < d and c < b for a, b in these for c, d in those)
