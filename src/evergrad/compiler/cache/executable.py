"""Executables: instructions in waves over planned buffers, without the graph they come from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from evergrad import config
from evergrad.compiler.schedule.instructions import Instruction, Place
from evergrad.compiler.schedule.memory_plan import Buffer, Plan
from evergrad.compiler.schedule.verify_plan import verify_plan
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


def executable_of(lowering: Lowering) -> Executable:
    """The executable of a lowered graph, with a memory plan."""
    waves = in_waves(lowering.instructions)
    for number, instructions in enumerate(waves):
        for instruction in instructions:
            for buffer in (*instruction.reads, *instruction.writes):
                buffer.used_in(number)
    outputs = [lowering.home(v) if isinstance(v, Var) else v for v in lowering.graph.outputs]
    copies = [(lowering.home(var), storage) for var, storage in lowering.copies]
    for place in _ends(outputs, copies):  # copies at the end extend the live range
        place.buffer.used_in(len(waves) - 1)
    made = Executable(
        lowering.buffers, waves, outputs, copies, lowering.written, lowering.results,
        lowering.numbers, lowering.streams, lowering.generators,
    )  # fmt: skip
    made.lowering = lowering
    if len(made.instructions) <= config.VERIFY_EQUATIONS:
        verify_plan(made.waves, made.plan.peak, [p.buffer for p in _ends(outputs, copies)])
    return made


def _ends(outputs: Sequence[Any], copies: Sequence[tuple[Place, Any]]) -> list[Place]:
    """The buffer views that are read when all waves have run."""
    return [p for p in (*outputs, *(place for place, _ in copies)) if isinstance(p, Place)]


# A small instruction may move to a wave so many before the last; its results live longer then.
_REACH = 4
# With more bytes it stays in its order: its operands are still in cache.
_SMALL = 2 << 20


def in_waves(instructions: Sequence[Instruction]) -> list[list[Instruction]]:
    """Waves of independent instructions, in program order but for small ones, which move to an
    earlier wave if their dependences allow: small waves leave threads idle. A Python call is a wave
    by itself, and writes to outside storages come after all instructions that may fail."""
    waves: list[_Wave] = []
    for instruction in instructions:
        place = len(waves)
        for wave in reversed(waves[-_reach_of(instruction) :]):
            if wave.blocks(instruction):
                break
            place -= 1
        if place == len(waves):
            waves.append(_Wave())
        waves[place].enter(instruction)
    return [wave.instructions for wave in waves]


def task_order(wave: Sequence[Instruction]) -> list[tuple[int, int]]:
    """The tasks of a wave, (instruction, chunk). One half of the thread pool claims from the front,
    the other from the back: each has the chunks in cache that it computed in earlier waves, and the
    smallest tasks are in the middle, where both meet."""
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
    """Instructions of one wave, and the memory they access."""

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

    def blocks(self, instruction: Instruction) -> bool:
        """Whether a later instruction depends on this wave."""
        if instruction.kernel is None or self.instructions[0].kernel is None:
            return True
        if any(b.number in self.written for b in instruction.reads):
            return True
        return any(
            b.number in self.read
            or (self.risky and b.home == "outside")
            or _overlap(_ranges(instruction, b), self.written.get(b.number, ()))
            for b in instruction.writes
        )


def _ranges(instruction: Instruction, buffer: Buffer) -> list[tuple[int, int]]:
    """The byte ranges of a buffer that an instruction accesses: its slice of a ``cat``, say."""
    places = [p for p in instruction.pointers if p is not None and p.buffer is buffer]
    if instruction.kernel is None or any(not p.shape for p in places):
        return [(0, buffer.nbytes)]  # a view without a shape is only a start address
    return [(p.offset, p.offset + _span(p)) for p in places]


def _span(place: Place) -> int:
    """The bytes from the first element of a buffer view to its last."""
    if 0 in place.shape:
        return 0
    extents = zip(place.shape, place.strides, strict=True)
    return sum((n - 1) * stride for n, stride in extents) + int(place.dtype.itemsize)


def _overlap(these: Iterable[tuple[int, int]], those: Iterable[tuple[int, int]]) -> bool:
    return any(a < d and c < b for a, b in these for c, d in those)
