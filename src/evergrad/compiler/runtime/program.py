"""A graph as native code with a planned memory, ready to run.

:class:`Program` binds an executable (instructions in waves over planned buffers) to memory and
machine code.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from ctypes import addressof, c_char
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.compiler.cache.executable import Executable, executable_of
from evergrad.compiler.codegen.rng import STATE_BUFFER_BYTES
from evergrad.compiler.native import jit
from evergrad.compiler.runtime.rng_state import Streams
from evergrad.compiler.runtime.thread_pool import Run, length_of
from evergrad.compiler.schedule.buffers import Buffer, BufferView, address_of
from evergrad.compiler.schedule.instructions import Instruction
from evergrad.compiler.schedule.waves import task_order
from evergrad.core import dtypes
from evergrad.core.errstate import QUIET, numpy_errors
from evergrad.core.rng.default_generator import default_generator
from evergrad.core.shapes import tensor_type
from evergrad.core.source_location import describe
from evergrad.core.tensor import fresh, from_array
from evergrad.core.trace import Equation, Graph
from evergrad.memory import pool
from evergrad.memory.cache_lines import isolated_zeros

if TYPE_CHECKING:
    from evergrad.compiler.schedule.lower import Lowering

# Programs with less work than this (elements and products) run on the calling thread alone.
_WORTH_THREADS = 1 << 20


class Program:
    """A lowered graph with its plan; takes memory and compiles when it first runs."""

    # Results of at most so many bytes are computed in memory of the program and copied out of it:
    # that is cheaper than telling the kernels of new memory.
    small = 512

    def __init__(
        self, source: Lowering | Executable, when_bound: Callable[[Executable], None] | None = None
    ) -> None:
        """``when_bound`` is called once, when the kernels have their machine code."""
        self.executable = source if isinstance(source, Executable) else executable_of(source)
        self.when_bound = when_bound
        self.buffers = self.executable.buffers
        self.instructions = self.executable.instructions
        self.waves = self.executable.waves
        self.plan = self.executable.plan
        self.has_calls = any(i.kernel is None for i in self.instructions)
        self.status = isolated_zeros((8,), np.int64)
        self.status_word = self.status.data[:1]
        self.bound = False
        self.forget_arguments()
        # Of the run that is going on: the arrays of arguments and results, by buffer and by output.
        self.current: dict[int, Any] = {}
        self.results: list[Any] = []

    @property
    def lowering(self) -> Lowering:
        """What the program was made of; only one that was not read from the disk can tell."""
        assert self.executable.lowering is not None, "a program from the disk has no lowering"
        return self.executable.lowering

    @property
    def graph(self) -> Graph:
        """The simplified graph."""
        return self.lowering.graph

    # -- memory ---------------------------------------------------------------------------------

    def bind(self) -> None:
        """Take memory and compile; the program can run afterwards."""
        self.hold_arena(self.plan.peak)
        self.number_values = isolated_zeros((max(self.executable.numbers, 1),), np.float64)
        self.number_words: Any = self.number_values.data
        self.streams = Streams(self.executable.streams)
        self.prepare_results()
        kernels = [i.kernel for i in self.instructions if i.kernel is not None]
        called = [k for kernel in kernels for k in kernel.calls.values()]
        addresses = self.addresses = jit.addresses([*kernels, *called])
        self.patches: dict[int, list[tuple[Any, int, int]]] = {}
        self.segments: list[Any] = []
        self.keep: list[Any] = []
        tasks: list[tuple[int, int, int]] = []
        ends: list[int] = []
        scratch = 64
        work = sum(i.work for i in self.instructions)

        def close() -> None:
            nonlocal tasks, ends, scratch
            if tasks:
                self.segments.append(Run(tasks, ends, scratch, self.status, length_of(work)))
            tasks, ends, scratch = [], [], 64

        for wave in self.waves:
            if wave[0].kernel is None:
                close()
                self.segments.append(wave[0])
                continue
            calls: dict[int, tuple[int, int]] = {}
            for number, instruction in enumerate(wave):
                kernel = instruction.kernel
                assert kernel is not None
                scratch = max(scratch, kernel.scratch)
                block = self.argument_block(instruction)
                calls[number] = addresses[kernel.name], address_of(block)
            tasks += [(*calls[number], chunk) for number, chunk in task_order(wave)]
            ends.append(len(tasks))
        close()
        # What writes to the outside, after everything that may fail.
        self.final = self.segments[-1] if self.segments else None
        self.threads = 2 if work > _WORTH_THREADS else 1
        self.bound = True
        if self.when_bound is not None:
            self.when_bound(self.executable)
            self.when_bound = None

    def hold_arena(self, size: int) -> None:
        """Take the memory of the values between kernels, for as long as there is the program."""
        memory = self.take_arena(size + 64)
        shift = -address_of(memory) % 64
        self.arena_address = address_of(memory) + shift
        self.arena_bytes = memory[shift : shift + size]
        # Enters the ledger with the bytes of the plan.
        self.arena = fresh(self.arena_bytes, tensor_type((size,), dtypes.uint8))

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
        they lie."""
        executable = self.executable
        written = range(executable.results, executable.results + len(executable.written))
        self.constants = [None if isinstance(o, BufferView) else o for o in executable.outputs]
        self.given = [(b.number, b.owner) for b in self.buffers if b.kind == "input"]
        self.computed: list[tuple[int, BufferView]] = []
        self.copied: list[tuple[int, BufferView]] = []
        # Memory of the program for small results, by their buffers; what is copied out of it, and
        # out of the arena, when a run has ended.
        self.boxes: dict[int, Any] = {}
        self.boxed: list[tuple[int, Any]] = []
        for number, place in enumerate(executable.outputs):
            if not isinstance(place, BufferView) or number in written:
                continue
            buffer = place.buffer
            own = buffer.kind == "output" and buffer.owner == number
            if own and buffer.nbytes <= self.small:
                self.boxes[buffer.number] = isolated_zeros(place.shape, place.dtype.np)
                self.boxed.append((number, self.boxes[buffer.number]))
            elif own:
                self.computed.append((number, place))
            elif place.nbytes <= self.small and buffer.kind not in ("input", "output"):
                self.boxed.append((number, self.array(place)))
            else:
                self.copied.append((number, place))
        self.is_random = bool(executable.generators)
        self.is_looked_at = self.has_calls or self.copies_arguments()

    def copies_arguments(self) -> bool:
        """Whether arguments, or results of this run, are copied when it has ended."""
        places = [p for _, p in self.copied] + [p for p, _ in self.executable.copies]
        return any(p.buffer.kind in ("input", "output") for p in places)

    def argument_block(self, instruction: Instruction) -> Any:
        kernel = instruction.kernel
        assert kernel is not None
        block = isolated_zeros((len(instruction.pointers) + len(kernel.numbers),), np.int64)
        self.keep.append(block)
        for slot, place in enumerate(instruction.pointers):
            if place is None:
                block[slot] = address_of(self.status)
                continue
            buffer = place.buffer
            if buffer.kind in ("input", "output") and buffer.number not in self.boxes:
                words = block.data
                self.patches.setdefault(buffer.number, []).append((words, slot, place.offset))
            else:
                block[slot] = self.fixed_address(buffer) + place.offset
        block[len(instruction.pointers) :] = kernel.numbers
        for number, called in kernel.calls.items():
            block[len(instruction.pointers) + number] = self.addresses[called.name]
        return block

    def fixed_address(self, buffer: Buffer) -> int:
        if buffer.kind == "arena":
            return self.arena_address + buffer.offset
        if buffer.kind == "number":
            return address_of(self.number_values) + 8 * int(buffer.owner)
        if buffer.kind == "rng_state":
            return address_of(self.streams.memory) + STATE_BUFFER_BYTES * int(buffer.owner)
        if buffer.kind == "output":
            return address_of(self.boxes[buffer.number])
        return address_of(buffer.owner.value)

    @property
    def is_one_run(self) -> bool:
        """Whether all is computed by one native run."""
        first, *others = self.segments or [None]
        alone = isinstance(first, Run) and not others
        return alone and not self.is_looked_at and all(o is None for o in self.constants)

    @property
    def is_native(self) -> bool:
        """Whether a run is one native run with nothing to do around it but to tell the kernels of
        arguments, and to copy what they have left in memory of the program."""
        return self.is_one_run and not (self.is_random or self.copied)

    @property
    def can_fail(self) -> bool:
        """Whether a kernel may tell of a failure, as lookups do."""
        return any(place is None for i in self.instructions for place in i.pointers)

    # -- running --------------------------------------------------------------------------------

    def run(
        self,
        arguments: Sequence[Any],
        numbers: Iterable[float] | None,
        deliver: Callable[[list[Any]], Any] = lambda found: found,
    ) -> Any:
        """Run on arrays and numbers (``None``: those of the last run); gives ``deliver`` the arrays
        of the outputs that are not written in place.

        What fails or is interrupted leaves everything outside as it was. Once the outside has been
        written, the run is brought to its end, with ``deliver``, before an interrupt goes on.
        """
        if not self.bound:
            self.bind()
        self.prepare(arguments, numbers)
        # Kernels draw from copies of the states, which are given back when all has gone well.
        streams = [(generator, generator.get_state()) for generator in self.set_aside()]
        token = numpy_errors.set(QUIET) if self.has_calls else None
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
            if token is not None:
                numpy_errors.reset(token)
            self.forget_arrays()

    def prepare(self, arguments: Sequence[Any], numbers: Iterable[float] | None) -> None:
        """Take what memory is still needed and tell the kernels where their arguments lie."""
        if numbers is not None:
            self.set_numbers(numbers)
        if self.executable.streams:
            self.streams.take()
        results = self.results = list(self.constants)
        for number, place in self.copied:
            results[number] = self.memory_for(number, place)
        for number, place in self.computed:
            results[number] = array = self.memory_for(number, place)
            self.tell(place.buffer.number, array)
        self.tell_arguments(arguments)
        if self.is_looked_at:
            self.look_at_arrays(arguments)
        self.committed = False
        if self.final.__class__ is Run:
            self.final.forget()

    def set_numbers(self, numbers: Iterable[float]) -> None:
        """Write down the numbers of this run and of those that bring none."""
        words = self.number_words
        for number, value in enumerate(numbers):
            words[number] = value

    def forget_arguments(self) -> None:
        """Tell the kernels of all arguments anew, whatever they were told last."""
        # Gives the array that the kernels were last told of, for each argument.
        self.told: dict[int, Any] = {}

    def tell_arguments(self, arguments: Sequence[Any]) -> None:
        """Write the addresses of the arguments that are other arrays than in the last run."""
        told = self.told
        for number, owner in self.given:
            array = arguments[owner]
            if told.get(number, _no_array)() is not array:
                self.tell_argument(number, array)

    def tell_argument(self, number: int, array: Any) -> None:
        """Tell the kernels of an argument, and remember it when all of them know."""
        self.told[number] = _no_array
        self.tell(number, array)
        self.told[number] = weakref.ref(array)

    def tell(self, number: int, array: Any) -> None:
        """Tell the kernels where a buffer of this run lies."""
        patches = self.patches.get(number)
        if patches is not None:
            start = _start_of(array)
            for words, slot, offset in patches:
                words[slot] = start + offset

    def look_at_arrays(self, arguments: Sequence[Any]) -> None:
        """Have the arguments and results of this run at hand as arrays."""
        self.current = {number: arguments[owner] for number, owner in self.given}
        self.current.update(self.boxes)
        for number, place in self.computed:
            self.current[place.buffer.number] = self.results[number]

    def forget_arrays(self) -> None:
        """Let go of the arrays of a run."""
        self.results = []
        if self.is_looked_at:
            self.current = {}

    def memory_for(self, number: int, place: BufferView) -> Any:
        """An array for a result of this run."""
        return pool.empty(place.shape, place.dtype.np)

    def set_aside(self) -> list[Any]:
        """The generators whose states a run keeps, since a NumPy call may fail that drew."""
        return self.generators() if self.has_calls else []

    def generators(self) -> list[Any]:
        """The generators that the program draws from."""
        return [default_generator() if g is None else g for g in self.executable.generators]

    def run_segment(self, segment: Any) -> None:
        if not isinstance(segment, Run):
            self.python_call(segment)
            return
        if segment.run(self.threads):
            raise IndexError(
                "an index is out of range in a lookup inside the compiled program; nothing was "
                "written"
            )

    def has_written(self) -> bool:
        """Whether this run has begun to write to the outside."""
        return self.committed or (isinstance(self.final, Run) and self.final.has_succeeded())

    def outputs(self) -> list[Any]:
        """The results; then what is written to the outside is there, and the run has ended."""
        if not self.committed:
            for number, place in self.copied:
                np.copyto(self.results[number], self.array(place))
            for number, box in self.boxed:
                self.results[number] = box.copy()
            if self.executable.streams:
                self.streams.give_back()
        self.committed = True
        for place, storage in self.executable.copies:
            np.copyto(storage.value, self.array(place))
        for storage in self.executable.written:
            storage.version += 1
        return self.results

    def array(self, place: BufferView) -> Any:
        """A place as an array."""
        buffer = place.buffer
        if buffer.kind == "arena":
            base, start = self.arena_bytes, self.arena_address + buffer.offset
        elif buffer.kind == "number":
            base = self.number_values
            start = address_of(base) + 8 * int(buffer.owner)
        else:
            inside = buffer.kind in ("input", "output")
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
            error.add_note(f"in {eqn.op.name} of a compiled program: {describe(eqn.location)}")
            raise

    def evaluate(self, eqn: Equation, instruction: Instruction) -> None:
        given = [self.array(a) if isinstance(a, BufferView) else a for a in instruction.args]
        if eqn.op.random:
            self.streams.give_back()
        if hasattr(eqn.specialization, "run"):
            result = eqn.specialization.run(*given)
        else:
            found = eqn.apply(*[from_array(g) if isinstance(g, np.ndarray) else g for g in given])
            result = found._value if eqn.op.outputs == 1 else tuple(f._value for f in found)
        if eqn.op.random:
            self.streams.take()
        results = (result,) if eqn.op.outputs == 1 else result
        for place, value in zip(instruction.outs, results, strict=True):
            np.copyto(self.array(place), value)


def _no_array() -> None:
    """What kernels were told of that have not been told of anything, or not all of them."""


def _start_of(array: Any) -> int:
    """The address of an array, in the cheapest way that works for it."""
    try:
        return addressof(c_char.from_buffer(array))
    except (TypeError, ValueError):  # no elements, or not to be written
        return address_of(array)


class _Window:
    """Memory of an array, seen with another shape."""

    def __init__(self, base: Any, start: int, place: BufferView) -> None:
        self.base = base
        self.__array_interface__ = {
            "shape": place.shape, "strides": place.strides, "data": (start, False), "version": 3,
            "typestr": f"|V{place.dtype.itemsize}",
        }  # fmt: skip
