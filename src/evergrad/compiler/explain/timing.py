"""Measures the time of each instruction of a program, on one thread.

Instructions write to captured tensors; these are restored afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import inf, prod
from time import thread_time_ns

from evergrad.compiler.frontend.diagnose import Snapshot
from evergrad.compiler.kernels.conv.epilogue import CONV_EPILOGUE
from evergrad.compiler.kernels.gemm.pairs import PAIRED_MATMUL
from evergrad.compiler.kernels.gemm.rows import WIDENED_LINEAR
from evergrad.compiler.runtime.program import Program
from evergrad.compiler.runtime.thread_pool import Run
from evergrad.compiler.schedule.buffers import BufferView, address_of
from evergrad.compiler.schedule.instructions import Instruction
from evergrad.core.errstate import QUIET, numpy_errors
from evergrad.core.trace import Equation, Var
from evergrad.ops.rows.conv import CONV, CONV_INPUT, CONV_WEIGHT
from evergrad.ops.rows.matmul import LINEAR, MATMUL

_REPEATS = 4
_EMPTY = 8
# Nanoseconds: shorter kernels are launched several times and timed together, up to so many times.
_LONG_ENOUGH = 20_000
_MANY = 64
# The rounds end once instructions have taken this long in the mean.
_ENOUGH = 20_000_000


def seconds_of(program: Program, arguments: list[object], numbers: list[float]) -> list[float]:
    """The CPU time of each instruction, the best of a few runs."""
    if not program.bound:
        program.bind()
    snapshot = Snapshot(program.executable.written, program.generators())
    token = numpy_errors.set(QUIET)
    try:
        with _isolated(program, arguments, numbers) as runners:
            return _measured(program, runners)
    finally:
        numpy_errors.reset(token)
        snapshot.restore()


@contextmanager
def _isolated(
    program: Program, arguments: list[object], numbers: list[float]
) -> Iterator[list[_Runner]]:
    """A runner for each instruction by itself, in execution order."""
    patches, bound_arrays, kept = program.patches, program.bound_arrays, len(program.keep)
    program.patches = {}
    program.unbind_arguments()
    try:
        runners = [_Runner(program, i) for i in program.instructions]
        program.prepare(arguments, numbers)
        yield runners
    finally:
        program.patches, program.bound_arrays = patches, bound_arrays
        del program.keep[kept:]
        program.release_arrays()


class _Runner:
    """One instruction by itself. A kernel is launched several times by one native call, so that
    the time of a short one is not lost in the overhead of the call."""

    def __init__(self, program: Program, instruction: Instruction) -> None:
        self.program, self.instruction = program, instruction
        self.tasks: list[tuple[int, int, int]] = []
        kernel = instruction.kernel
        if kernel is not None:
            block, address = program.argument_block(instruction), program.addresses[kernel.name]
            self.tasks = [(address, address_of(block), n) for n in range(kernel.chunks)]

    def launches(self, times: int) -> Callable[[], object]:
        """A call that runs the instruction so many times."""
        kernel = self.instruction.kernel
        if kernel is None:
            return _whatever_happens(lambda: self.program.python_call(self.instruction))
        return _one_wave(self.program, self.tasks * times, kernel.scratch)


def _one_wave(
    program: Program, tasks: list[tuple[int, int, int]], scratch: int
) -> Callable[[], object]:
    run = Run(tasks, [len(tasks)], scratch, program.status)
    return lambda: run.run(1)


def _measured(program: Program, runners: list[_Runner]) -> list[float]:
    """Rounds through the program in order: each instruction reads what those before it wrote, and
    finds caches as it does in a run."""
    nothing = min(_nanoseconds(_one_wave(program, [], 0)) for _ in range(_EMPTY))
    best = [inf] * len(runners)
    times = [1] * len(runners)
    spent = 0.0
    for round in range(_REPEATS + 1):
        for number, runner in enumerate(runners):
            taken = _nanoseconds(runner.launches(times[number]))
            spent += taken
            if program.status[0] and not round:
                label = runner.instruction.label
                raise IndexError(f"an index is out of range, or a check fails, in {label}")
            program.status[0] = 0  # later rounds read what the first one has updated
            own = taken - nothing if runner.instruction.kernel else taken
            if round:  # the first round warms up: page faults are not part of the time
                best[number] = min(best[number], max(own, 1.0) / times[number])
            elif runner.instruction.kernel:
                times[number] = max(1, min(_MANY, int(_LONG_ENOUGH / max(own, 1.0))))
        if round and spent > _ENOUGH * len(runners):
            break
    return [taken / 1e9 for taken in best]


def _whatever_happens(run: Callable[[], object]) -> Callable[[], object]:
    """A NumPy call that is repeated: its arguments may have been overwritten, with indices out of
    range."""

    def attempt() -> None:
        with suppress(Exception):
            run()

    return attempt


def _nanoseconds(run: Callable[[], object]) -> float:
    start = thread_time_ns()
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
