"""A graph as native code with a planned memory, ready to run.

:class:`Program` puts the parts together: units become instructions over buffers, instructions are
put into waves, buffers into the arena, kernels into machine code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from evergrad.compiler import (  # noqa: F401 - enter their lowerings
    attention,
    conv,
    gemm,
    llvm,
    row_sums,
    windows,
    windows_places,
)
from evergrad.compiler.kernel import Instruction, Place, address_of
from evergrad.compiler.lowering import Lowering
from evergrad.compiler.plan import Buffer, Plan
from evergrad.compiler.team import Run
from evergrad.core import dtypes
from evergrad.core.generators import default_generator
from evergrad.core.quiet import QUIET, numpy_errors
from evergrad.core.shapes import tensor_type
from evergrad.core.site import describe
from evergrad.core.tensor import fresh, from_array
from evergrad.core.trace import Equation, Var
from evergrad.memory import pool

# Programs with less work than this (elements and products) run on the calling thread alone.
_WORTH_THREADS = 1 << 20


class Program:
    """A lowered graph with its plan; takes memory and compiles when it first runs."""

    def __init__(self, lowering: Lowering) -> None:
        self.lowering = lowering
        self.graph = lowering.graph
        self.buffers = lowering.buffers
        self.instructions = lowering.instructions
        self.status = np.zeros(8, np.int64)
        self.waves = in_waves(self.instructions)
        self.plan = self.make_plan()
        self.bound = False
        # Of the run that is going on: the arrays of arguments and results, by buffer and by output.
        self.current: dict[int, Any] = {}
        self.results: list[Any] = []

    # -- memory ---------------------------------------------------------------------------------

    def make_plan(self) -> Plan:
        for wave, instructions in enumerate(self.waves):
            for instruction in instructions:
                for buffer in (*instruction.reads, *instruction.writes):
                    buffer.used_in(wave)
        for var in self.graph.outputs:  # what is copied out at the end lives to the end
            if isinstance(var, Var):
                buffer = self.lowering.home(var).buffer
                buffer.used_in(len(self.waves) - 1)
        return Plan(self.buffers, len(self.waves))

    def bind(self) -> None:
        """Take memory and compile; the program can run afterwards."""
        size = self.plan.peak
        memory = self.take_arena(size + 64)
        shift = -address_of(memory) % 64
        self.arena_address = address_of(memory) + shift
        self.arena_bytes = memory[shift : shift + size]
        # Enters the ledger with the bytes of the plan.
        self.arena = fresh(self.arena_bytes, tensor_type((size,), dtypes.uint8))
        self.number_values = np.zeros(max(self.lowering.numbers, 1), np.float64)
        kernels = [i.kernel for i in self.instructions if i.kernel is not None]
        addresses = llvm.addresses(kernels)
        self.patches: dict[int, list[tuple[Any, int, int]]] = {}
        self.segments: list[Any] = []
        self.keep: list[Any] = []
        tasks: list[tuple[int, int, int]] = []
        ends: list[int] = []
        scratch = 64

        def close() -> None:
            nonlocal tasks, ends, scratch
            if tasks:
                table = np.array(tasks, np.int64).reshape(-1)
                self.segments.append(Run(table, ends, scratch, self.status))
            tasks, ends, scratch = [], [], 64

        for wave in self.waves:
            if wave[0].kernel is None:
                close()
                self.segments.append(wave[0])
                continue
            for instruction in wave:
                kernel = instruction.kernel
                assert kernel is not None
                args = self.argument_block(instruction)
                scratch = max(scratch, kernel.scratch)
                for chunk in range(kernel.chunks):
                    tasks.append((addresses[kernel.name], address_of(args), chunk))
            ends.append(len(tasks))
        close()
        self.prepare_results()
        work = sum(i.work for i in self.instructions)
        self.threads = 2 if work > _WORTH_THREADS else 1
        self.bound = True

    def take_arena(self, size: int) -> Any:
        try:
            return pool.empty((size,), np.dtype(np.uint8))
        except MemoryError:
            raise MemoryError(
                f"the compiled program needs {size:,} bytes for the values between its kernels, "
                "and there is not as much memory; nothing was written.\n"
                "  fix: a smaller batch. explain() tells who lives at the peak, and where."
            ) from None

    def prepare_results(self) -> None:
        """Find which results are computed in memory of their own and which are copied out of where
        they lie, and the segment that writes to the outside: the last one, after everything that
        may fail."""
        self.final = self.segments[-1] if self.segments else None
        written = range(self.lowering.results, self.lowering.results + len(self.lowering.written))
        self.constants = [None if isinstance(v, Var) else v for v in self.graph.outputs]
        self.given = [(b.number, b.owner) for b in self.buffers if b.home == "input"]
        self.computed: list[tuple[int, Place]] = []
        self.copied: list[tuple[int, Place]] = []
        for number, var in enumerate(self.graph.outputs):
            if isinstance(var, Var) and number not in written:
                place = self.lowering.home(var)
                own = place.buffer.home == "output" and place.buffer.owner == number
                (self.computed if own else self.copied).append((number, place))

    def argument_block(self, instruction: Instruction) -> Any:
        kernel = instruction.kernel
        assert kernel is not None
        block = np.zeros(len(instruction.pointers) + len(kernel.numbers), np.int64)
        self.keep.append(block)
        for slot, place in enumerate(instruction.pointers):
            if place is None:
                block[slot] = address_of(self.status)
                continue
            buffer = place.buffer
            if buffer.home in ("input", "output"):
                self.patches.setdefault(buffer.number, []).append((block, slot, place.offset))
            else:
                block[slot] = self.fixed_address(buffer) + place.offset
        block[len(instruction.pointers) :] = kernel.numbers
        return block

    def fixed_address(self, buffer: Buffer) -> int:
        if buffer.home == "arena":
            return self.arena_address + buffer.offset
        if buffer.home == "number":
            return address_of(self.number_values) + 8 * int(buffer.owner)
        return address_of(buffer.owner.value)

    # -- running --------------------------------------------------------------------------------

    def run(
        self,
        arguments: Sequence[Any],
        numbers: Iterable[float],
        deliver: Callable[[list[Any]], Any] = lambda found: found,
    ) -> Any:
        """Run on arrays; gives ``deliver`` the arrays of the outputs that are not written in place.

        What fails or is interrupted leaves everything outside as it was. Once the outside has been
        written, the run is brought to its end, with ``deliver``, before an interrupt goes on.
        """
        if not self.bound:
            self.bind()
        self.prepare(arguments, numbers)
        streams = [(g, g.get_state()) for g in self.generators()]
        token = numpy_errors.set(QUIET)
        try:
            for segment in self.segments:
                self.run_segment(segment)
            return deliver(self.outputs())
        except BaseException:
            if self.has_written():
                deliver(self.outputs())
            else:
                for generator, state in streams:
                    generator.set_state(state)
            raise
        finally:
            numpy_errors.reset(token)
            self.current, self.results = {}, []

    def prepare(self, arguments: Sequence[Any], numbers: Iterable[float]) -> None:
        """Take what memory is still needed and tell the kernels where their arguments lie."""
        for number, value in enumerate(numbers):
            self.number_values[number] = value
        self.results = list(self.constants)
        for number, place in (*self.computed, *self.copied):
            self.results[number] = pool.empty(place.shape, place.dtype.np)
        current = {number: arguments[owner] for number, owner in self.given}
        for number, place in self.computed:
            current[place.buffer.number] = self.results[number]
        for number, array in current.items():
            start = address_of(array)
            for block, slot, offset in self.patches.get(number, ()):
                block[slot] = start + offset
        self.current = current
        self.status[0] = 0
        self.committed = False
        if isinstance(self.final, Run):
            self.final.forget()

    def generators(self) -> list[Any]:
        """The generators that the program draws from."""
        return [default_generator() if g is None else g for g in self.lowering.generators]

    def run_segment(self, segment: Any) -> None:
        if not isinstance(segment, Run):
            self.python_call(segment)
            return
        segment.run(self.threads)
        if self.status[0]:
            raise IndexError(
                "an index is out of range in a lookup inside the compiled program; nothing was "
                "written"
            )

    def has_written(self) -> bool:
        """Whether this run has begun to write to the outside."""
        ended = isinstance(self.final, Run) and self.final.started() and not self.status[0]
        return self.committed or ended

    def outputs(self) -> list[Any]:
        """The results; then what is written to the outside is there, and the run has ended."""
        if not self.committed:
            for number, place in self.copied:
                np.copyto(self.results[number], self.array(place))
        self.committed = True
        for var, storage in self.lowering.copies:
            np.copyto(storage.value, self.array(self.lowering.home(var)))
        for storage in self.lowering.written:
            storage.version += 1
        return self.results

    def array(self, place: Place) -> Any:
        """A place as an array."""
        buffer = place.buffer
        if buffer.home == "arena":
            base, start = self.arena_bytes, self.arena_address + buffer.offset
        elif buffer.home == "number":
            base = self.number_values
            start = address_of(base) + 8 * int(buffer.owner)
        else:
            inside = buffer.home in ("input", "output")
            base = self.current[buffer.number] if inside else buffer.owner.value
            start = address_of(base)
        return np.asarray(_Window(base, start + place.offset, place)).view(place.dtype.np)

    def python_call(self, instruction: Instruction) -> None:
        """Run the NumPy evaluation of an equation."""
        eqn = instruction.eqn
        assert eqn is not None
        try:
            self.evaluate(eqn, instruction)
        except Exception as error:
            error.add_note(f"in {eqn.op.name} of a compiled program: {describe(eqn.site)}")
            raise

    def evaluate(self, eqn: Equation, instruction: Instruction) -> None:
        given = [self.array(a) if isinstance(a, Place) else a for a in instruction.args]
        if hasattr(eqn.rule, "run"):
            result = eqn.rule.run(*given)
        else:
            found = eqn.apply(*[from_array(g) if isinstance(g, np.ndarray) else g for g in given])
            result = found._value if eqn.op.outputs == 1 else tuple(f._value for f in found)
        results = (result,) if eqn.op.outputs == 1 else result
        for place, value in zip(instruction.outs, results, strict=True):
            np.copyto(self.array(place), value)


def in_waves(instructions: Sequence[Instruction]) -> list[list[Instruction]]:
    """Instructions that may run at the same time, in their order; a Python call stands alone, and
    what writes to the outside waits until what may fail has ended."""
    waves: list[list[Instruction]] = []
    read: set[int] = set()
    written: set[int] = set()
    risky = False
    for instruction in instructions:
        reads = {b.number for b in instruction.reads}
        writes = {b.number for b in instruction.writes}
        clash = reads & written or writes & written or writes & read
        alone = instruction.kernel is None
        too_early = risky and any(b.home == "outside" for b in instruction.writes)
        if not waves or clash or alone or too_early or waves[-1][0].kernel is None:
            waves.append([])
            read, written, risky = set(), set(), False
        waves[-1].append(instruction)
        risky = risky or instruction.may_fail
        read |= reads
        written |= writes
    return waves


class _Window:
    """Memory of an array, seen with another shape."""

    def __init__(self, base: Any, start: int, place: Place) -> None:
        self.base = base
        self.__array_interface__ = {
            "shape": place.shape, "strides": place.strides, "data": (start, False), "version": 3,
            "typestr": f"|V{place.dtype.itemsize}",
        }  # fmt: skip
