"""The memory-plan verifier: simulates the arena wave by wave. Shares no code with the planner.

Every read must find the whole buffer that was written for it, nothing may be written over a buffer
that is read later, and no two instructions of a wave may race. Live ranges are derived from the
instructions, not taken from the plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from evergrad.core.source_location import describe
from evergrad.errors import VerificationError

if TYPE_CHECKING:
    from evergrad.compiler.schedule.buffers import Buffer, BufferView
    from evergrad.compiler.schedule.instructions import Instruction
    from evergrad.core.types import Array

CACHE_LINE = 64
# Effort for the exact test whether two strided ranges share bytes; beyond it they count as shared.
_MOST_WORK = 100_000


def verify_plan(
    waves: Sequence[Sequence[Instruction]], arena: int, read_at_end: Iterable[Buffer] = ()
) -> None:
    """Raise :class:`VerificationError` unless instructions in waves can run in an arena of so many
    bytes, after which these buffers are read."""
    _check_offsets(waves, arena)
    for number, wave in enumerate(waves):
        for one, other in combinations(wave, 2):
            _check_race(number, one, other)
    _check_lifetimes(waves, [b for b in read_at_end if _in_arena(b)])


def _check_offsets(waves: Sequence[Sequence[Instruction]], arena: int) -> None:
    for number, wave in enumerate(waves):
        for instruction in wave:
            for buffer in (*instruction.reads, *instruction.writes):
                if not _in_arena(buffer):
                    continue
                if buffer.offset < 0 or buffer.offset + buffer.nbytes > arena:
                    raise _broken(buffer, f"does not fit the arena of {arena:,} bytes", number)
                if buffer.offset % CACHE_LINE:
                    raise _broken(buffer, f"is not aligned to {CACHE_LINE} bytes", number)


def _check_race(wave: int, one: Instruction, other: Instruction) -> None:
    """Two instructions of a wave: neither writes what the other accesses. They may write different
    bytes of one buffer."""
    for first, second in ((one, other), (other, one)):
        for mine in first.writes:
            if any(_overlap(mine, theirs) for theirs in second.reads):
                raise _broken(mine, f"is written by {first.label}, read by {second.label}", wave)
            for theirs in second.writes:
                if theirs is mine:
                    if _share_bytes(first, second, mine):
                        raise _broken(mine, "is written twice", wave)
                elif _overlap(mine, theirs):
                    raise _broken(mine, f"overlaps {theirs}", wave, theirs)


def _check_lifetimes(waves: Sequence[Sequence[Instruction]], read_at_end: Sequence[Buffer]) -> None:
    """A write takes its byte range over from buffers that are not read any more; a read must find
    its own buffer there."""
    accesses = [*_accesses(waves), *((len(waves), buffer, False) for buffer in read_at_end)]
    last = {id(buffer): wave for wave, buffer, _ in accesses}
    live: dict[int, Buffer] = {}
    for wave, buffer, is_write in accesses:
        if not is_write:
            if id(buffer) not in live:
                raise _broken(buffer, "is read, but it was not written or was overwritten", wave)
            continue
        for other in [b for b in live.values() if b is not buffer and _overlap(b, buffer)]:
            if last[id(other)] >= wave:
                raise _broken(buffer, f"overwrites {other}, which is read later", wave, other)
            del live[id(other)]
        live[id(buffer)] = buffer


def _accesses(waves: Sequence[Sequence[Instruction]]) -> Iterator[tuple[int, Buffer, bool]]:
    """(wave, buffer, whether it is written): of each wave the reads, then the writes."""
    for number, wave in enumerate(waves):
        for instruction in wave:
            yield from ((number, b, False) for b in instruction.reads if _in_arena(b))
        for instruction in wave:
            yield from ((number, b, True) for b in instruction.writes if _in_arena(b))


def _in_arena(buffer: Buffer) -> bool:
    return bool(buffer.kind == "arena" and buffer.nbytes)


def _overlap(one: Buffer, other: Buffer) -> bool:
    if one is other:
        return True
    if not (_in_arena(one) and _in_arena(other)):
        return False
    return bool(one.offset < other.offset + other.nbytes and other.offset < one.offset + one.nbytes)


def _share_bytes(one: Instruction, other: Instruction, buffer: Buffer) -> bool:
    """Whether two instructions access a byte of a buffer in common."""
    for mine in _views(one, buffer):
        for theirs in _views(other, buffer):
            try:
                if np.shares_memory(mine, theirs, _MOST_WORK):  # type: ignore[arg-type]
                    return True
            except np.exceptions.TooHardError:
                return True
    return False


def _views(instruction: Instruction, buffer: Buffer) -> list[Array]:
    """The bytes of a buffer that an instruction accesses, as arrays that are never read."""
    views = [p for p in instruction.pointers if p is not None and p.buffer is buffer]
    return [np.asarray(_Bytes(view, buffer.nbytes)) for view in views]


class _Bytes:
    """The byte addresses of a buffer view, as if the buffer began at a page of its own. A view
    without a shape is only a start address: all bytes."""

    def __init__(self, view: BufferView, nbytes: int) -> None:
        item = (int(view.dtype.itemsize),) if view.shape else ()
        start = int(view.offset) if view.shape else 0
        self.__array_interface__ = {
            "shape": (*view.shape, *item) or (nbytes,),
            "strides": (*view.strides, 1) if view.shape else (1,),
            "typestr": "|u1",
            "data": ((1 << 20) + start, True),
            "version": 3,
        }


def _broken(buffer: Buffer, problem: str, wave: int, *others: Buffer) -> VerificationError:
    locations = [b.location for b in (buffer, *others) if b.location is not None]
    where = "".join(f"\n  traced at: {describe(location)}" for location in locations)
    return VerificationError(
        f"the memory plan is broken: {buffer} {problem} (wave {wave}).{where}\n"
        "  fix: a bug of the compiler; EVERGRAD_SHOW_PASSES=1 prints the graphs."
    )
