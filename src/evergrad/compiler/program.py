"""A graph as native code with a planned memory, ready to run.

:class:`Program` puts the parts together: units become instructions over buffers, instructions are
put into waves, buffers into the arena, kernels into machine code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from evergrad.compiler import conv, gemm, llvm, row_sums  # noqa: F401 - enter their lowerings
from evergrad.compiler.kernel import Instruction, Place, address_of
from evergrad.compiler.lowering import Lowering
from evergrad.compiler.plan import Buffer, Plan
from evergrad.compiler.team import Run
from evergrad.core import dtypes
from evergrad.core.quiet import QUIET, numpy_errors
from evergrad.core.shapes import tensor_type
from evergrad.core.tensor import fresh, from_array
from evergrad.core.trace import Var
from evergrad.memory import pool

# Programs with less work than this (elements and products) run on the calling thread alone.
_WORTH_THREADS = 1 << 17


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
        size = max(self.plan.peak, 64)
        memory = pool.empty((size + 64,), np.dtype(np.uint8))
        shift = -address_of(memory) % 64
        self.arena = fresh(memory, tensor_type((size + 64,), dtypes.uint8))
        self.arena_address = address_of(memory) + shift
        self.arena_bytes = memory[shift : shift + size]
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
                self.segments.append(self.python_call(wave[0]))
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
        work = sum(i.work for i in self.instructions)
        self.threads = 2 if work > _WORTH_THREADS else 1
        self.bound = True

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

    def run(self, arguments: Sequence[Any], numbers: Iterable[float]) -> list[Any]:
        """Run on arrays; gives the arrays of the outputs that are not written in place."""
        if not self.bound:
            self.bind()
        for number, value in enumerate(numbers):
            self.number_values[number] = value
        current: dict[int, Any] = {}
        for buffer in self.buffers:
            if buffer.home == "input":
                current[buffer.number] = arguments[buffer.owner]
            elif buffer.home == "output":
                var = self.graph.outputs[buffer.owner]
                current[buffer.number] = pool.empty(var.type.shape, var.type.dtype.np)
        for number, array in current.items():
            start = address_of(array)
            for block, slot, offset in self.patches.get(number, ()):
                block[slot] = start + offset
        self.current = current
        self.status[0] = 0
        token = numpy_errors.set(QUIET)
        try:
            for segment in self.segments:
                if isinstance(segment, Run):
                    segment.run(self.threads)
                    if self.status[0]:
                        raise IndexError(
                            "an index is out of range in a lookup inside the compiled program; "
                            "nothing was written"
                        )
                else:
                    segment()
            return self.outputs()
        finally:
            numpy_errors.reset(token)
            self.current = {}

    def outputs(self) -> list[Any]:
        for var, storage in self.lowering.copies:
            np.copyto(storage.value, self.array(self.lowering.home(var)))
        for storage in self.lowering.written:
            storage.version += 1
        found: list[Any] = []
        for number, var in enumerate(self.graph.outputs):
            is_write = 0 <= number - self.lowering.results < len(self.lowering.written)
            if is_write or not isinstance(var, Var):
                found.append(None if is_write else var)
                continue
            place = self.lowering.home(var)
            array = self.array(place)
            if place.buffer.home != "output" or place.buffer.owner != number:
                array = pool.copy(array)
            found.append(array)
        return found

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

    def python_call(self, instruction: Instruction) -> Callable[[], None]:
        eqn = instruction.eqn
        assert eqn is not None

        def call() -> None:
            given = [self.array(a) if isinstance(a, Place) else a for a in instruction.args]
            if hasattr(eqn.rule, "run"):
                result = eqn.rule.run(*given)
            else:
                found = eqn.apply(
                    *[from_array(g) if isinstance(g, np.ndarray) else g for g in given]
                )
                result = found._value if eqn.op.outputs == 1 else tuple(f._value for f in found)
            results = (result,) if eqn.op.outputs == 1 else result
            for place, value in zip(instruction.outs, results, strict=True):
                np.copyto(self.array(place), value)

        return call


def in_waves(instructions: Sequence[Instruction]) -> list[list[Instruction]]:
    """Instructions that may run at the same time, in their order; a Python call stands alone."""
    waves: list[list[Instruction]] = []
    read: set[int] = set()
    written: set[int] = set()
    for instruction in instructions:
        reads = {b.number for b in instruction.reads}
        writes = {b.number for b in instruction.writes}
        clash = reads & written or writes & written or writes & read
        alone = instruction.kernel is None
        if not waves or clash or alone or waves[-1][0].kernel is None:
            waves.append([])
            read, written = set(), set()
        waves[-1].append(instruction)
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
