"""Runs of the programs before the last one of a path: their results stay in memory that is kept
from call to call where it is small."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.compiler.runtime.program import Program
from evergrad.core.eager.copies import contiguous_copy
from evergrad.memory.pool import allocator

if TYPE_CHECKING:
    from evergrad.core.types import Array, Leaves

StageRun = Callable[[Sequence[Any], Sequence[float]], list[Any]]

# Results of at most so many bytes in all are computed in the same memory at each call, whose
# addresses kernels then have.
KEPT_BYTES = 1 << 16


def stage_runner(program: Program) -> StageRun:
    """A function that runs a program on arrays and numbers; its results are valid until the next
    run."""
    if not program.bound:
        program.bind()
    computed_bytes = sum(view.nbytes for _, view in program.computed)
    if not program.is_native or computed_bytes > KEPT_BYTES:
        return lambda arrays, numbers: program.run(contiguous(arrays), numbers, list)
    (segment,) = program.segments
    own = {id(buffer) for buffer in program.small_buffers.values()}
    results: Leaves = [None] * len(program.executable.outputs)
    copied: list[tuple[Any, Any]] = []
    for index, view in program.computed:
        results[index] = allocator(view.shape, view.dtype.np)()
        program.bind_address(view.buffer.number, results[index])
    for index, small in program.small_outputs:
        results[index] = small
        if id(small) not in own:  # in the arena, which the next program overwrites
            results[index] = np.empty_like(small)
            copied.append((results[index], small))
    words, bound, buffers = program.number_words, program.bound_arrays, program.argument_buffers

    def run(arrays: Sequence[Array], numbers: Sequence[float]) -> Leaves:
        given = arrays
        for number, owner in buffers:
            if number not in bound or bound[number]() is not arrays[owner]:
                given = contiguous(arrays)  # referenced until the run has ended
                program.bind_arguments(given)
                break
        for number, value in enumerate(numbers):
            words[number] = value
        segment.reset()
        if segment.run(program.threads):
            raise IndexError("an index is out of range in a lookup inside the compiled program")
        for target, source in copied:
            np.copyto(target, source)
        return results

    return run


def contiguous(arrays: Sequence[Array]) -> Leaves:
    return [a if a.flags.c_contiguous else contiguous_copy(a) for a in arrays]
