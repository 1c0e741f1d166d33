"""Checks of a program's memory that use nothing of the planner, and ways to run it otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

from evergrad.compiler.schedule.buffers import BufferView
from evergrad.compiler.schedule.memory_plan import ALIGNMENT
from evergrad.compiler.schedule.verify_plan import verify_plan
from evergrad.memory import pool

POISON = 0xA5


def check_plan(program: Any) -> None:
    """Every read meets what was written for it, and nobody disturbs others of its wave."""
    views = [p for p in program.executable.outputs if isinstance(p, BufferView)]
    views += [p for p, _ in program.executable.copies]
    verify_plan(program.waves, program.plan.peak, [p.buffer for p in views])
    assert program.plan.peak >= program.plan.lower_bound


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
