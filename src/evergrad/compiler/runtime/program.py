"""A program: an executable (instructions in waves over planned buffers) bound to memory and machine
code."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from ctypes import addressof, c_char
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.compiler.cache.executable import Executable, executable_of
from evergrad.compiler.codegen.rng import STATE_BUFFER_BYTES
from evergrad.compiler.native import jit
from evergrad.compiler.runtime.rng_state import RngStates
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

# Programs with less work than this (elements and products) run serially.
_WORTH_THREADS = 1 << 20


class Program:
    """A lowered graph with its memory plan; allocates and compiles at its first run."""

    # Outputs of at most so many bytes are computed in the program's own memory and copied out: that
    # is cheaper than patching new addresses into the argument blocks.
    small_bytes = 512

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
        self.unbind_arguments()
        # Arrays of the current run: arguments and results, by buffer and by output.
        self.current: dict[int, Any] = {}
        self.results: list[Any] = []

    @property
    def lowering(self) -> Lowering:
        """The lowering of the program; one loaded from the disk cache has none."""
        assert self.executable.lowering is not None, "a program from the disk has no lowering"
        return self.executable.lowering

    @property
    def graph(self) -> Graph:
        """The optimized graph."""
        return self.lowering.graph

    # -- memory ---------------------------------------------------------------------------------

    def bind(self) -> None:
        """Allocate memory and compile; the program can run afterwards."""
        self.bind_arena(self.plan.peak)
        self.number_values = isolated_zeros((max(self.executable.numbers, 1),), np.float64)
        self.number_words: Any = self.number_values.data
        self.rng_states = RngStates(self.executable.streams)
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
        # The segment that writes captured tensors, after everything that may fail.
        self.final = self.segments[-1] if self.segments else None
        self.threads = 2 if work > _WORTH_THREADS else 1
        self.bound = True
        if self.when_bound is not None:
            self.when_bound(self.executable)
            self.when_bound = None

    def bind_arena(self, size: int) -> None:
        """Allocate the arena for the life of the program."""
        memory = self.allocate_arena(size + 64)
        shift = -address_of(memory) % 64
        self.arena_address = address_of(memory) + shift
        self.arena_bytes = memory[shift : shift + size]
        # Counted in the ledger with the bytes of the plan.
        self.arena = fresh(self.arena_bytes, tensor_type((size,), dtypes.uint8))

    def allocate_arena(self, size: int) -> Any:
        try:
            return pool.empty((size,), np.dtype(np.uint8))
        except MemoryError:
            raise MemoryError(
                f"out of memory: the compiled program needs an arena of {size:,} bytes for its "
                "intermediate values; nothing was written.\n"
                "  fix: a smaller batch. explain() lists the live buffers at the peak."
            ) from None

    def prepare_results(self) -> None:
        """Classify the outputs: computed in buffers of their own, in small buffers, or copied."""
        executable = self.executable
        written = range(executable.results, executable.results + len(executable.written))
        self.constants = [None if isinstance(o, BufferView) else o for o in executable.outputs]
        self.argument_buffers = [(b.number, b.owner) for b in self.buffers if b.kind == "input"]
        self.computed: list[tuple[int, BufferView]] = []
        self.copied: list[tuple[int, BufferView]] = []
        # Small output buffers of the program, by number; and what is copied out of them, and out of
        # the arena, after a run.
        self.small_buffers: dict[int, Any] = {}
        self.small_outputs: list[tuple[int, Any]] = []
        for number, view in enumerate(executable.outputs):
            if not isinstance(view, BufferView) or number in written:
                continue
            buffer = view.buffer
            own = buffer.kind == "output" and buffer.owner == number
            if own and buffer.nbytes <= self.small_bytes:
                self.small_buffers[buffer.number] = isolated_zeros(view.shape, view.dtype.np)
                self.small_outputs.append((number, self.small_buffers[buffer.number]))
            elif own:
                self.computed.append((number, view))
            elif view.nbytes <= self.small_bytes and buffer.kind not in ("input", "output"):
                self.small_outputs.append((number, self.array(view)))
            else:
                self.copied.append((number, view))
        self.is_random = bool(executable.generators)
        self.needs_arrays = self.has_calls or self.copies_arguments()

    def copies_arguments(self) -> bool:
        """Whether arguments, or outputs of this run, are copied after it."""
        views = [p for _, p in self.copied] + [p for p, _ in self.executable.copies]
        return any(p.buffer.kind in ("input", "output") for p in views)

    def argument_block(self, instruction: Instruction) -> Any:
        kernel = instruction.kernel
        assert kernel is not None
        block = isolated_zeros((len(instruction.pointers) + len(kernel.numbers),), np.int64)
        self.keep.append(block)
        for slot, view in enumerate(instruction.pointers):
            if view is None:
                block[slot] = address_of(self.status)
                continue
            buffer = view.buffer
            if buffer.kind in ("input", "output") and buffer.number not in self.small_buffers:
                words = block.data
                self.patches.setdefault(buffer.number, []).append((words, slot, view.offset))
            else:
                block[slot] = self.fixed_address(buffer) + view.offset
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
            return address_of(self.rng_states.memory) + STATE_BUFFER_BYTES * int(buffer.owner)
        if buffer.kind == "output":
            return address_of(self.small_buffers[buffer.number])
        return address_of(buffer.owner.value)

    @property
    def is_single_run(self) -> bool:
        """Whether everything is computed by one native run."""
        first, *others = self.segments or [None]
        is_single = isinstance(first, Run) and not others
        return is_single and not self.needs_arrays and all(o is None for o in self.constants)

    @property
    def is_native(self) -> bool:
        """Whether a run is a single native run that only needs argument addresses before it and
        copies of small outputs after it."""
        return self.is_single_run and not (self.is_random or self.copied)

    @property
    def can_fail(self) -> bool:
        """Whether a kernel may set the status word, as lookups do."""
        return any(view is None for i in self.instructions for view in i.pointers)

    # -- running --------------------------------------------------------------------------------

    def run(
        self,
        arguments: Sequence[Any],
        numbers: Iterable[float] | None,
        deliver: Callable[[list[Any]], Any] = lambda found: found,
    ) -> Any:
        """Run on arrays and numbers (``None``: those of the last run); passes ``deliver`` the
        arrays of the outputs that are not written in place.

        A run that fails or is interrupted leaves captured tensors and RNG states unchanged. Once
        captured tensors have been written, the run is completed, with ``deliver``, before an
        interrupt propagates.
        """
        if not self.bound:
            self.bind()
        self.prepare(arguments, numbers)
        # Kernels use copies of the RNG states, which are stored after a successful run.
        states = [(generator, generator.get_state()) for generator in self.generators_to_restore()]
        token = numpy_errors.set(QUIET) if self.has_calls else None
        try:
            for segment in self.segments:
                self.run_segment(segment)
            return deliver(self.outputs())
        except BaseException:
            if self.has_written():
                deliver(self.outputs())
            else:
                for generator, state in states:
                    generator.set_state(state)
            raise
        finally:
            if token is not None:
                numpy_errors.reset(token)
            self.release_arrays()

    def prepare(self, arguments: Sequence[Any], numbers: Iterable[float] | None) -> None:
        """Allocate outputs and patch addresses into the argument blocks."""
        if numbers is not None:
            self.set_numbers(numbers)
        if self.executable.streams:
            self.rng_states.load()
        results = self.results = list(self.constants)
        for number, view in self.copied:
            results[number] = self.memory_for(number, view)
        for number, view in self.computed:
            results[number] = array = self.memory_for(number, view)
            self.bind_address(view.buffer.number, array)
        self.bind_arguments(arguments)
        if self.needs_arrays:
            self.set_arrays(arguments)
        self.committed = False
        if self.final.__class__ is Run:
            self.final.reset()

    def set_numbers(self, numbers: Iterable[float]) -> None:
        """Set the runtime numbers of this run and of those that pass none."""
        words = self.number_words
        for number, value in enumerate(numbers):
            words[number] = value

    def unbind_arguments(self) -> None:
        """Have all argument addresses patched at the next run."""
        # Weak references to the arrays whose addresses are patched in, by argument buffer.
        self.bound_arrays: dict[int, Any] = {}

    def bind_arguments(self, arguments: Sequence[Any]) -> None:
        """Patch the addresses of arguments that are other arrays than in the last run."""
        bound_arrays = self.bound_arrays
        for number, owner in self.argument_buffers:
            array = arguments[owner]
            if bound_arrays.get(number, _no_array)() is not array:
                self.bind_argument(number, array)

    def bind_argument(self, number: int, array: Any) -> None:
        """Patch the address of an argument, recorded only once all kernels have it."""
        self.bound_arrays[number] = _no_array
        self.bind_address(number, array)
        self.bound_arrays[number] = weakref.ref(array)

    def bind_address(self, number: int, array: Any) -> None:
        """Patch the address of a buffer of this run into the argument blocks."""
        patches = self.patches.get(number)
        if patches is not None:
            start = _start_of(array)
            for words, slot, offset in patches:
                words[slot] = start + offset

    def set_arrays(self, arguments: Sequence[Any]) -> None:
        """Set the arrays of arguments and results of this run."""
        self.current = {number: arguments[owner] for number, owner in self.argument_buffers}
        self.current.update(self.small_buffers)
        for number, view in self.computed:
            self.current[view.buffer.number] = self.results[number]

    def release_arrays(self) -> None:
        """Release the arrays of a run."""
        self.results = []
        if self.needs_arrays:
            self.current = {}

    def memory_for(self, number: int, view: BufferView) -> Any:
        """An array for an output of this run."""
        return pool.empty(view.shape, view.dtype.np)

    def generators_to_restore(self) -> list[Any]:
        """The generators whose states a run saves, since a NumPy call may fail after using one."""
        return self.generators() if self.has_calls else []

    def generators(self) -> list[Any]:
        """The generators that the program uses."""
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
        """Whether this run has begun to write captured tensors."""
        return self.committed or (isinstance(self.final, Run) and self.final.has_succeeded())

    def outputs(self) -> list[Any]:
        """Complete the run: copy outputs, RNG states and writes; returns the outputs."""
        if not self.committed:
            for number, view in self.copied:
                np.copyto(self.results[number], self.array(view))
            for number, small in self.small_outputs:
                self.results[number] = small.copy()
            if self.executable.streams:
                self.rng_states.store()
        self.committed = True
        for view, storage in self.executable.copies:
            np.copyto(storage.value, self.array(view))
        for storage in self.executable.written:
            storage.version += 1
        return self.results

    def array(self, view: BufferView) -> Any:
        """A buffer view as an array."""
        buffer = view.buffer
        if buffer.kind == "arena":
            base, start = self.arena_bytes, self.arena_address + buffer.offset
        elif buffer.kind == "number":
            base = self.number_values
            start = address_of(base) + 8 * int(buffer.owner)
        else:
            inside = buffer.kind in ("input", "output")
            base = self.current[buffer.number] if inside else buffer.owner.value
            start = address_of(base)
        return np.asarray(_Window(base, start + view.offset, view)).view(view.dtype.np)

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
            self.rng_states.store()
        if hasattr(eqn.specialization, "run"):
            result = eqn.specialization.run(*given)
        else:
            found = eqn.apply(*[from_array(g) if isinstance(g, np.ndarray) else g for g in given])
            result = found._value if eqn.op.outputs == 1 else tuple(f._value for f in found)
        if eqn.op.random:
            self.rng_states.load()
        results = (result,) if eqn.op.outputs == 1 else result
        for view, value in zip(instruction.outs, results, strict=True):
            np.copyto(self.array(view), value)


def _no_array() -> None:
    """A dead reference: no array is bound, or not in all argument blocks."""


def _start_of(array: Any) -> int:
    """The address of an array, by the cheapest way that works."""
    try:
        return addressof(c_char.from_buffer(array))
    except (TypeError, ValueError):  # empty or read-only
        return address_of(array)


class _Window:
    """Memory of an array with another shape and strides."""

    def __init__(self, base: Any, start: int, view: BufferView) -> None:
        self.base = base
        self.__array_interface__ = {
            "shape": view.shape, "strides": view.strides, "data": (start, False), "version": 3,
            "typestr": f"|V{view.dtype.itemsize}",
        }  # fmt: skip
