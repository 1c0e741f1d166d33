"""Measures the time of each instruction of a program, on one thread.

Instructions write to captured tensors; these are restored afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import prod
from time import thread_time_ns

from evergrad.compiler.frontend.diagnose import Snapshot
from evergrad.compiler.kernels.gemm.pairs import PAIRED_MATMUL
from evergrad.compiler.kernels.gemm.rows import WIDENED_LINEAR
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
# Nanoseconds: shorter instructions are repeated and timed together, up to so many times.
_LONG_ENOUGH = 50_000
_MANY = 20
# An instruction is not repeated once it has taken this long in all.
_ENOUGH = 20_000_000


def seconds_of(program: Program, arguments: list[object], numbers: list[float]) -> list[float]:
    """The CPU time of each instruction, the best of a few runs."""
    if not program.bound:
        program.bind()
    snapshot = Snapshot(program.executable.written, program.generators())
    token = numpy_errors.set(QUIET)
    try:
        with _isolated(program, arguments, numbers) as runs:
            return _measured(program, runs)
    finally:
        numpy_errors.reset(token)
        snapshot.restore()


@contextmanager
def _isolated(
    program: Program, arguments: list[object], numbers: list[float]
) -> Iterator[list[Callable[[], object]]]:
    """A runner for each instruction by itself, in execution order."""
    patches, bound_arrays, kept = program.patches, program.bound_arrays, len(program.keep)
    program.patches = {}
    program.unbind_arguments()
    try:
        runs = [_runner(program, i) for i in program.instructions]
        program.prepare(arguments, numbers)
        yield runs
    finally:
        program.patches, program.bound_arrays = patches, bound_arrays
        del program.keep[kept:]
        program.release_arrays()


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
    for instruction, run in zip(program.instructions, runs, strict=True):
        run()  # warm up: page faults are not part of the time
        if program.status[0]:
            raise IndexError(f"an index is out of range, or a check fails, in {instruction.label}")
    nothing = _best_of(_one_wave(program, [], 0))
    found = []
    for instruction, run in zip(program.instructions, runs, strict=True):
        taken = _best_of(run if instruction.kernel else _whatever_happens(run))
        found.append(max(taken - (nothing if instruction.kernel else 0), 0) / 1e9)
    return found


def _whatever_happens(run: Callable[[], object]) -> Callable[[], object]:
    """A NumPy call that is repeated: its arguments may have been overwritten, with indices out of
    range."""

    def attempt() -> None:
        with suppress(Exception):
            run()

    return attempt


def _best_of(run: Callable[[], object]) -> float:
    """The nanoseconds of one run; short ones are timed several at a time."""
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


# -- work ---------------------------------------------------------------------------------------


def flops_of(eqn: Equation) -> int:
    """Additions and multiplications of a matrix product or convolution; 0 for other ops."""
    op, out = eqn.op, eqn.outs[0].type
    if op in (MATMUL, LINEAR, WIDENED_LINEAR, PAIRED_MATMUL):
        return 2 * out.numel * int(eqn.args[0].type.shape[-1])
    if op not in (CONV, CONV_EPILOGUE, CONV_INPUT, CONV_WEIGHT):
        return 0
    result = out if op in (CONV, CONV_EPILOGUE) else eqn.args[0].type
    weight = out if op is CONV_WEIGHT else eqn.args[1].type
    return 2 * int(result.numel) * prod(map(int, weight.shape[1:]))


def bytes_of(instruction: Instruction, equations: list[Equation]) -> int:
    """The bytes an instruction reads and writes. Of a gathered table only the gathered elements
    count."""
    if instruction.kernel is None:
        views = [*instruction.args, *instruction.outs]
        return sum(_size(p) for p in views if isinstance(p, BufferView))
    lookups = [e for e in equations if e.op.looks_up]
    taken = {e.args[0]: e.outs[0].type.nbytes for e in lookups}
    total = 0
    slots = instruction.kernel.slots or [("", None)] * len(instruction.pointers)
    for (_, value), view in zip(slots, instruction.pointers, strict=True):
        if view is not None:
            limit = taken.get(value) if isinstance(value, Var) else None
            total += _size(view) if limit is None else min(limit, _size(view))
    return total


def _size(view: BufferView) -> int:
    """The bytes of a buffer view; broadcast elements are counted once."""
    pairs = zip(view.shape, view.strides, strict=True)
    distinct = prod(n for n, stride in pairs if stride or n == 0)
    return min(distinct * int(view.dtype.itemsize), view.buffer.nbytes)
