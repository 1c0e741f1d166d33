"""Waves: instructions that run in parallel, and the order of their tasks.

A wave ends with a barrier. Live ranges of buffers are counted in waves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from evergrad.compiler.schedule.buffers import Buffer, BufferView
from evergrad.compiler.schedule.instructions import Instruction

# A small instruction is hoisted by at most this many waves: its results stay live for longer.
_MAX_HOIST = 4
# With more bytes it keeps its position: its operands are still in cache.
_SMALL = 2 << 20


def partition_into_waves(instructions: Sequence[Instruction]) -> list[list[Instruction]]:
    """Instructions without dependencies between them, in program order but for small ones, which
    are hoisted into an earlier wave where their operands allow it: small waves leave threads idle.
    A Python call forms a wave alone, and a write to outside memory follows all that may fail."""
    waves: list[_Wave] = []
    for instruction in instructions:
        target = len(waves)
        for wave in reversed(waves[-_hoist_limit(instruction) :]):
            if wave.precedes(instruction):
                break
            target -= 1
        if target == len(waves):
            waves.append(_Wave())
        waves[target].add(instruction)
    return [wave.instructions for wave in waves]


def task_order(wave: Sequence[Instruction]) -> list[tuple[int, int]]:
    """The tasks of a wave, (instruction, chunk). One half of the threads claims from the front, the
    other from the back, so that both find what they wrote in earlier waves in their caches; the
    smallest tasks are in the middle, where the halves meet."""
    chunks = [i.kernel.chunks for i in wave if i.kernel is not None]
    sizes = [i.work / count for i, count in zip(wave, chunks, strict=True)]
    front: list[tuple[int, int]] = []
    back: list[tuple[int, int]] = []
    ahead = 0.0  # the surplus of work at the front
    for number in sorted(range(len(wave)), key=lambda n: -sizes[n]):
        half, odd = divmod(chunks[number], 2)
        half += odd if ahead <= 0 else 0
        front += [(number, chunk) for chunk in range(half)]
        back += [(number, chunk) for chunk in reversed(range(half, chunks[number]))]
        ahead += (2 * half - chunks[number]) * sizes[number]
    return front + back[::-1]


def _hoist_limit(instruction: Instruction) -> int:
    accessed = {b.number: b.nbytes for b in (*instruction.reads, *instruction.writes)}
    return _MAX_HOIST if sum(accessed.values()) <= _SMALL else 1


class _Wave:
    """The instructions of one wave, and the memory they access."""

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []
        self.read: set[int] = set()
        self.written: dict[int, list[tuple[int, int]]] = {}
        self.may_fail = False

    def add(self, instruction: Instruction) -> None:
        self.instructions.append(instruction)
        self.may_fail = self.may_fail or instruction.may_fail
        self.read |= {b.number for b in instruction.reads}
        for b in instruction.writes:
            self.written.setdefault(b.number, []).extend(_ranges(instruction, b))

    def precedes(self, instruction: Instruction) -> bool:
        """Whether a later instruction depends on this wave."""
        if instruction.kernel is None or self.instructions[0].kernel is None:
            return True
        if any(b.number in self.written for b in instruction.reads):
            return True
        return any(
            b.number in self.read
            or (self.may_fail and b.kind == "outside")
            or _overlap(_ranges(instruction, b), self.written.get(b.number, ()))
            for b in instruction.writes
        )


def _ranges(instruction: Instruction, buffer: Buffer) -> list[tuple[int, int]]:
    """The byte ranges of a buffer that an instruction accesses: its part of a ``cat``, say."""
    views = [p for p in instruction.pointers if p is not None and p.buffer is buffer]
    if instruction.kernel is None or any(not p.shape for p in views):
        return [(0, buffer.nbytes)]  # a view without a shape has an unknown extent
    return [(p.offset, p.offset + _span(p)) for p in views]


def _span(view: BufferView) -> int:
    """The bytes from the first element of a view to the end of its last."""
    if 0 in view.shape:
        return 0
    dims = zip(view.shape, view.strides, strict=True)
    return sum((n - 1) * stride for n, stride in dims) + int(view.dtype.itemsize)


def _overlap(these: Iterable[tuple[int, int]], those: Iterable[tuple[int, int]]) -> bool:
    return any(a < d and c < b for a, b in these for c, d in those)
