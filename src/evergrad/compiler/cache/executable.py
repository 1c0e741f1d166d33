"""What a program needs to run, apart from the graph that it was made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from evergrad.compiler.schedule.instructions import Instruction, Place
from evergrad.compiler.schedule.memory_plan import Buffer, Plan
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
    copies = [(lowering.home(var), storage) for var, storage in lowering.copies]
    for place in (*outputs, *(place for place, _ in copies)):
        if isinstance(place, Place):  # what is copied out at the end lives to the end
            place.buffer.used_in(len(waves) - 1)
    made = Recipe(
        lowering.buffers, waves, outputs, copies, lowering.written, lowering.results,
        lowering.numbers, lowering.streams, lowering.generators,
    )  # fmt: skip
    made.lowering = lowering
    return made


# A small instruction may join a wave so many before the last; what it makes is kept for longer.
_REACH = 4
# With more bytes it stays in its order: it finds in cache what was made just before.
_SMALL = 2 << 20


def in_waves(instructions: Sequence[Instruction]) -> list[list[Instruction]]:
    """Instructions that may run at the same time, in their order but for small ones, which join a
    wave before if they need nothing that was made since: small waves leave threads waiting. A
    Python call stands alone, and what writes to the outside waits until what may fail has ended."""
    waves: list[_Wave] = []
    for instruction in instructions:
        place = len(waves)
        for wave in reversed(waves[-_reach_of(instruction) :]):
            if wave.keeps_out(instruction):
                break
            place -= 1
        if place == len(waves):
            waves.append(_Wave())
        waves[place].enter(instruction)
    return [wave.instructions for wave in waves]


def task_order(wave: Sequence[Instruction]) -> list[tuple[int, int]]:
    """The tasks of a wave, (instruction, chunk). One half of a team claims from the front, the
    other from the back: each finds the rows in cache that it made in waves before, and the smallest
    tasks are in the middle, where both meet."""
    chunks = [i.kernel.chunks for i in wave if i.kernel is not None]
    sizes = [i.work / count for i, count in zip(wave, chunks, strict=True)]
    front: list[tuple[int, int]] = []
    back: list[tuple[int, int]] = []
    ahead = 0.0  # how much more work is at the front
    for number in sorted(range(len(wave)), key=lambda n: -sizes[n]):
        half, odd = divmod(chunks[number], 2)
        half += odd if ahead <= 0 else 0
        front += [(number, chunk) for chunk in range(half)]
        back += [(number, chunk) for chunk in reversed(range(half, chunks[number]))]
        ahead += (2 * half - chunks[number]) * sizes[number]
    return front + back[::-1]


def _reach_of(instruction: Instruction) -> int:
    touched = {b.number: b.nbytes for b in (*instruction.reads, *instruction.writes)}
    return _REACH if sum(touched.values()) <= _SMALL else 1


class _Wave:
    """Instructions of one wave, and the memory they touch."""

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []
        self.read: set[int] = set()
        self.written: dict[int, list[tuple[int, int]]] = {}
        self.risky = False

    def enter(self, instruction: Instruction) -> None:
        self.instructions.append(instruction)
        self.risky = self.risky or instruction.may_fail
        self.read |= {b.number for b in instruction.reads}
        for b in instruction.writes:
            self.written.setdefault(b.number, []).extend(_ranges(instruction, b))

    def keeps_out(self, instruction: Instruction) -> bool:
        """Whether an instruction that comes later has to run after this wave."""
        if instruction.kernel is None or self.instructions[0].kernel is None:
            return True
        if any(b.number in self.written for b in instruction.reads):
            return True
        return any(
            b.number in self.read
            or (self.risky and b.home == "outside")
            or _meet(_ranges(instruction, b), self.written.get(b.number, ()))
            for b in instruction.writes
        )


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
