"""Checks of a program's memory that use nothing of the planner, and ways to run it otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from typing import Any
from unittest import mock

import numpy as np

from evergrad.compiler.schedule.memory_plan import ALIGNMENT, verify
from evergrad.memory import pool

POISON = 0xA5


def check_plan(program: Any) -> None:
    """Every read meets what was written for it, and nobody disturbs others of its wave."""
    accesses = []
    for number, wave in enumerate(program.waves):
        for writes in (False, True):
            for instruction in wave:
                touched = instruction.writes if writes else instruction.reads
                accesses += [(number, b, writes) for b in touched if in_arena(b)]
        for one, other in combinations(wave, 2):
            for mine in one.writes:
                for theirs in (*other.reads, *other.writes):
                    if theirs is mine and not any(theirs is b for b in other.reads):
                        shared = touched_bytes(one, mine) & touched_bytes(other, mine)
                        assert not shared.any(), f"{mine} is written twice in wave {number}"
                    else:
                        assert not overlap(mine, theirs), f"{mine} and {theirs} in wave {number}"
            for mine in one.reads:
                for theirs in other.writes:
                    assert not overlap(mine, theirs), f"{mine} and {theirs} in wave {number}"
    verify(program.plan, accesses)
    assert program.plan.peak >= program.plan.lower_bound


def touched_bytes(instruction: Any, buffer: Any) -> Any:
    """Which bytes of a buffer an instruction goes over, one by one."""
    touched = np.zeros(buffer.nbytes, np.bool_)
    for place in instruction.pointers:
        if place is not None and place.buffer is buffer:
            if not place.shape:
                touched[:] = True
                continue
            np.lib.stride_tricks.as_strided(
                touched[place.offset :],
                (*place.shape, place.dtype.itemsize),
                (*place.strides, 1),
            )[...] = True
    return touched


def in_arena(buffer: Any) -> bool:
    return bool(buffer.home == "arena" and buffer.nbytes)


def overlap(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if not (in_arena(one) and in_arena(other)):
        return False
    return bool(one.offset < other.offset + other.nbytes and other.offset < one.offset + one.nbytes)


def spread_out(program: Any) -> None:
    """Give every buffer memory of its own, before the program first runs."""
    assert not program.bound
    end = 0
    for buffer in program.plan.buffers:
        buffer.offset = end
        end += -(-buffer.nbytes // ALIGNMENT) * ALIGNMENT
    program.plan.peak = end


@contextmanager
def poisoned(*programs: Any) -> Iterator[None]:
    """New memory and the arenas of programs hold garbage."""
    for program in programs:
        if not program.bound:
            program.bind()
        program.arena_bytes[:] = POISON
    empty = pool.empty

    def garbage(shape: Any, dtype: Any) -> Any:
        array = empty(shape, dtype)
        array.reshape(-1).view(np.uint8)[:] = POISON
        return array

    with mock.patch.object(pool, "empty", garbage):
        yield
