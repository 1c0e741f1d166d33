"""How long each instruction of a program takes, measured on one thread.

Instructions write to the outside; what they write is put back when the measuring has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from time import thread_time_ns
from typing import Any

from evergrad.compiler.frontend.diagnose import Snapshot
from evergrad.compiler.passes.conv_epilogue import CONV_EPILOGUE
from evergrad.compiler.runtime.program import Program
from evergrad.compiler.runtime.thread_pool import Run
from evergrad.compiler.schedule.buffers import BufferView, address_of
from evergrad.compiler.schedule.instructions import Instruction
from evergrad.core.errstate import QUIET, numpy_errors
from evergrad.core.trace import Equation, Var
from evergrad.ops.rows.conv import CONV, CONV_INPUT, CONV_WEIGHT
from evergrad.ops.rows.matmul import LINEAR, MATMUL

_REPEATS = 4
# Nanoseconds: what is shorter is measured together with others of its kind, up to so many.
_LONG_ENOUGH = 50_000
_MANY = 20
# An instruction is not repeated once it has taken this long in all.
_ENOUGH = 20_000_000


def seconds_of(program: Program, arguments: list[Any], numbers: list[float]) -> list[float]:
    """The CPU time of each instruction, the best of a few runs."""
    if not program.bound:
        program.bind()
    snapshot = Snapshot(program.executable.written, program.generators())
    token = numpy_errors.set(QUIET)
    try:
        with _alone(program, arguments, numbers) as runs:
            return _measured(program, runs)
    finally:
        numpy_errors.reset(token)
        snapshot.restore()


@contextmanager
def _alone(
    program: Program, arguments: list[Any], numbers: list[float]
) -> Iterator[list[Callable[[], object]]]:
    """Each instruction as something that can be run by itself, in their order."""
    patches, told, kept = program.patches, program.told, len(program.keep)
    program.patches = {}
    program.forget_arguments()
    try:
        runs = [_runner(program, i) for i in program.instructions]
        program.prepare(arguments, numbers)
        yield runs
    finally:
        program.patches, program.told = patches, told
        del program.keep[kept:]
        program.forget_arrays()


def _runner(program: Program, instruction: Instruction) -> Callable[[], object]:
    kernel = instruction.kernel
    if kernel is None:
        return lambda: program.python_call(instruction)
    block = program.argument_block(instruction)
    address = program.addresses[kernel.name]
    tasks = [(address, address_of(block), n) for n in range(kernel.chunks)]
    return _one_wave(program, tasks, kernel.scratch)


def _one_wave(
    program: Program, tasks: list[tuple[int, int, int]], scratch: int
) -> Callable[[], object]:
    run = Run(tasks, [len(tasks)], scratch, program.status)
    return lambda: run.run(1)


def _measured(program: Program, runs: list[Callable[[], object]]) -> list[float]:
    for run in runs:  # so that nobody's time is that of the system bringing fresh memory
        run()
    nothing = _best_of(_one_wave(program, [], 0))
    found = []
    for instruction, run in zip(program.instructions, runs, strict=True):
        taken = _best_of(run)
        if program.status[0]:
            raise IndexError(f"an index is out of range in {instruction.label}")
        found.append(max(taken - (nothing if instruction.kernel else 0), 0) / 1e9)
    return found


def _best_of(run: Callable[[], object]) -> float:
    """The nanoseconds of one run; short ones are measured several at a time."""
    spent = best = _nanoseconds(run, 1)
    times = max(1, min(_MANY, int(_LONG_ENOUGH / max(spent, 1))))
    for _ in range(_REPEATS):
        if spent > _ENOUGH:
            break
        taken = _nanoseconds(run, times)
        best = min(best, taken / times)
        spent += taken
    return best


def _nanoseconds(run: Callable[[], object], times: int) -> float:
    start = thread_time_ns()
    for _ in range(times):
        run()
    return thread_time_ns() - start


# -- what there was to do -----------------------------------------------------------------------


def flops_of(eqn: Equation) -> int:
    """Additions and multiplications of a product; 0 for what is none."""
    op, out = eqn.op, eqn.outs[0].type
    if op in (MATMUL, LINEAR):
        return 2 * out.numel * int(eqn.args[0].type.shape[-1])
    if op not in (CONV, CONV_EPILOGUE, CONV_INPUT, CONV_WEIGHT):
        return 0
    result = out if op in (CONV, CONV_EPILOGUE) else eqn.args[0].type
    weight = out if op is CONV_WEIGHT else eqn.args[1].type
    return 2 * int(result.numel) * prod(map(int, weight.shape[1:]))


def bytes_of(instruction: Instruction, equations: list[Equation]) -> int:
    """The bytes an instruction reads and writes. Of a table that is looked up these are the rows
    that are taken."""
    if instruction.kernel is None:
        places = [*instruction.args, *instruction.outs]
        return sum(_size(p) for p in places if isinstance(p, BufferView))
    lookups = [e for e in equations if e.op.looks_up]
    taken = {e.args[0]: e.outs[0].type.nbytes for e in lookups}
    total = 0
    slots = instruction.kernel.slots or [("", None)] * len(instruction.pointers)
    for (_, value), place in zip(slots, instruction.pointers, strict=True):
        if place is not None:
            limit = taken.get(value) if isinstance(value, Var) else None
            total += _size(place) if limit is None else min(limit, _size(place))
    return total


def _size(place: BufferView) -> int:
    """The bytes of a place; repeated elements are counted once."""
    pairs = zip(place.shape, place.strides, strict=True)
    distinct = prod(n for n, step in pairs if step or n == 0)
    return min(distinct * int(place.dtype.itemsize), place.buffer.nbytes)
