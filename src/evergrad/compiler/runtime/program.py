"""A program: an executable (instructions in waves over planned buffers) bound to memory and machine
code."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.compiler.cache.executable import Executable, executable_of
from evergrad.compiler.codegen.rng import STATE_BUFFER_BYTES
from evergrad.compiler.native import jit
from evergrad.compiler.runtime.arena import Arena, SharedArena, private_arena
from evergrad.compiler.runtime.array_views import array_at, start_of
from evergrad.compiler.runtime.gc_pause import count_program
from evergrad.compiler.runtime.rng_state import RngStates
from evergrad.compiler.runtime.thread_pool import Run, length_of
from evergrad.compiler.schedule.buffers import Buffer, BufferView, address_of
from evergrad.compiler.schedule.instructions import Instruction
from evergrad.compiler.schedule.waves import task_order
from evergrad.core.errstate import QUIET, numpy_errors
from evergrad.core.rng.default_generator import default_generator
from evergrad.core.rng.generator import Generator
from evergrad.core.source_location import describe
from evergrad.core.tensor import from_array
from evergrad.core.trace import Equation, Graph
from evergrad.extension import ExtensionPoint
from evergrad.memory import pool
from evergrad.memory.cache_lines import isolated_zeros

if TYPE_CHECKING:
    from evergrad.compiler.schedule.lower import Lowering
    from evergrad.compiler.schedule.memory_plan import Plan
    from evergrad.core.tensor import Array
    from evergrad.core.types import Leaves

_drain_communication: ExtensionPoint[[], None] = ExtensionPoint("drain_communication")

# What an instruction takes as Python objects (its kernel, buffers and equations), measured.
_INSTRUCTION_BYTES = 6 << 10

# Programs with less work than this (elements and products) run serially.
_WORTH_THREADS = 1 << 20


class Program:
    """A lowered graph with its memory plan; allocates and compiles at its first run."""

    addresses: dict[str, int]

    # Outputs of at most so many bytes are computed in the program's own memory and copied out: that
    # is cheaper than patching new addresses into the argument blocks.
    small_bytes = 512

    def __init__(
        self, source: Lowering | Executable, when_bound: Callable[[Executable], None] | None = None,
        shared_arena: SharedArena | None = None,
    ) -> None:  # fmt: skip
        """``when_bound`` is called once, when the kernels have their machine code. Programs with a
        ``shared_arena`` must not run at the same time."""
        self.executable: Executable = (
            source if isinstance(source, Executable) else executable_of(source)
        )
        self.when_bound = when_bound
        self.shared_arena = shared_arena
        self.arena: Arena | None = None
        count_program()
        self.buffers: list[Buffer] = self.executable.buffers
        self.instructions: list[Instruction] = self.executable.instructions
        self.waves: list[list[Instruction]] = self.executable.waves
        self.plan: Plan = self.executable.plan
        called = [i.eqn for i in self.instructions if i.kernel is None]
        self.has_calls: bool = bool(called)
        self.communicates: bool = any(e is not None and e.op.communicates for e in called)
        self.status: Array = isolated_zeros((8,), np.int64)
        self.status_word: memoryview[int] = self.status.data[:1]
        self.bound: bool = False
        self.bound_bytes: int = 0
        self.unbind_arguments()
        # Arrays of the current run: arguments and results, by buffer and by output.
        self.current: dict[int, Any] = {}
        self.results: Any = []

    @property
    def lowering(self) -> Lowering:
        """The lowering of the program; one loaded from the disk cache has none."""
        assert self.executable.lowering is not None, (
            "its lowering was discarded, or it is from the disk"
        )
        return self.executable.lowering

    @property
    def graph(self) -> Graph:
        """The optimized graph."""
        return self.lowering.graph

    def discard_lowering(self) -> None:
        """Drop what only reports read: the lowering, its graph and the IR of kernels. What remains
        is as loaded from the disk cache."""
        if self.bound and self.executable.lowering is not None:
            self.executable.lowering = None
            for instruction in self.instructions:
                instruction.node = None
                if instruction.kernel is not None:
                    instruction.kernel = instruction.kernel.without_ir()

    @property
    def nbytes(self) -> int:
        """The bytes it holds besides the shared arena: native memory to the byte, Python objects
        as estimated from the instructions."""
        return self.bound_bytes + _INSTRUCTION_BYTES * len(self.instructions)

    # -- memory ---------------------------------------------------------------------------------

    def bind(self) -> None:
        """Allocate memory and compile; the program can run afterwards."""
        self.bind_arena(self.plan.peak)
        self.number_values: Array = isolated_zeros((max(self.executable.numbers, 1),), np.float64)
        self.number_words: Any = self.number_values.data
        self.rng_states: RngStates = RngStates(self.executable.streams)
        self.prepare_results()
        kernels = [i.kernel for i in self.instructions if i.kernel is not None]
        called = [k for kernel in kernels for k in kernel.calls.values()]
        addresses = self.addresses = jit.addresses([*kernels, *called])
        self.patches: dict[int, list[tuple[Any, int, int]]] = {}
        self.segments: Leaves = []
        words = sum([i.argument_count for i in self.instructions if i.kernel is not None])
        blocks = isolated_zeros((words,), np.int64)
        self.keep: list[Array] = [blocks]
        tasks: list[tuple[int, int, int]] = []
        ends: list[int] = []
        scratch = 64
        scratch_memory = None if self.arena is None else self.arena.scratch_memory
        work = sum(i.work for i in self.instructions)

        def close() -> None:
            nonlocal tasks, ends, scratch
            if tasks:
                run = Run(tasks, ends, scratch, self.status, length_of(work), scratch_memory)
                self.segments.append(run)
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
                block, blocks = np.split(blocks, [instruction.argument_count])
                self.argument_block(instruction, block)
                calls[number] = addresses[kernel.name], address_of(block)
            tasks += [(*calls[number], chunk) for number, chunk in task_order(wave)]
            ends.append(len(tasks))
        close()
        # The segment that writes captured tensors, after everything that may fail.
        self.final: object | None = self.segments[-1] if self.segments else None
        self.threads = 2 if work > _WORTH_THREADS else 1
        self.bound = True
        self.bound_bytes = self.native_bytes()
        if self.when_bound is not None:
            self.when_bound(self.executable)
            self.when_bound = None

    def bind_arena(self, size: int) -> None:
        """Allocate the arena for the life of the program. One that calls Python code of the user
        has its own: that code may call the function again."""
        shared = None if self.calls_user_code else self.shared_arena
        self.arena = private_arena(size) if shared is None else shared.arena_for(size)
        self.arena_address: int = self.arena.address
        self.arena_bytes: Any = self.arena.bytes

    def native_bytes(self) -> int:
        """The bytes of arrays that live as long as the program, without the shared arena."""
        runs = [segment for segment in self.segments if isinstance(segment, Run)]
        arrays = [*self.keep, *self.small_buffers.values()]
        nbytes = sum([run.nbytes for run in runs]) + sum([array.nbytes for array in arrays])
        is_own = self.arena is not None and not self.arena.is_shared
        own = self.plan.peak if is_own else 0
        return int(nbytes + own + self.executable.constant_bytes)

    @property
    def calls_user_code(self) -> bool:
        """Whether an equation is evaluated by other code than NumPy."""
        calls = [i.eqn for i in self.instructions if i.eqn is not None]
        return any(not hasattr(eqn.specialization, "run") for eqn in calls)

    def prepare_results(self) -> None:
        """Classify the outputs: computed in buffers of their own, in small buffers, or copied."""
        executable = self.executable
        written = range(executable.results, executable.results + len(executable.written))
        self.constants: list[Any | None] = [
            None if isinstance(o, BufferView) else o for o in executable.outputs
        ]
        self.argument_buffers: list[tuple[int, Any]] = [
            (b.number, b.owner) for b in self.buffers if b.kind == "input"
        ]
        self.argument_bytes: dict[int, int] = {
            b.number: b.nbytes for b in self.buffers if b.kind == "input"
        }
        # The arrays of captured tensors whose addresses kernels have: a tensor that another thread
        # gives other memory, by resize_() or set_(), leaves the former to the current run.
        self.captured_arrays: list[object] = []
        self.computed: list[tuple[int, BufferView]] = []
        self.copied: list[tuple[int, BufferView]] = []
        # Small output buffers of the program, by number; and what is copied out of them, and out of
        # the arena, after a run.
        self.small_buffers: dict[int, Array] = {}
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
        self.is_random: bool = bool(executable.generators)
        self.needs_arrays: bool = self.has_calls or self.copies_arguments()

    def copies_arguments(self) -> bool:
        """Whether arguments, or outputs of this run, are copied after it."""
        views = [p for _, p in self.copied] + [p for p, _ in self.executable.copies]
        return any(p.buffer.kind in ("input", "output") for p in views)

    def argument_block(self, instruction: Instruction, block: Array | None = None) -> Array:
        """The arguments of a kernel as words, in a given array or one of their own."""
        kernel = instruction.kernel
        assert kernel is not None
        if block is None:
            block = isolated_zeros((instruction.argument_count,), np.int64)
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
        self.captured_arrays.append(buffer.owner.value)
        return address_of(buffer.owner.value)

    @property
    def is_one_segment(self) -> bool:
        """Whether at most one native run computes everything; copies, also of arguments, and states
        of generators may precede and follow it."""
        is_single = len(self.segments) < 2 and not self.has_calls
        return is_single and all(o is None for o in self.constants)

    @property
    def is_single_run(self) -> bool:
        """Whether everything is computed by one native run, and no argument is copied."""
        return bool(self.segments) and self.is_one_segment and not self.needs_arrays

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
        deliver: Callable[[Leaves], Any] = lambda found: found,
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
        states = [(g, Generator.get_state(g)) for g in self.generators_to_restore()]
        token = numpy_errors.set(QUIET) if self.has_calls else None
        try:
            for segment in self.segments:
                self.run_segment(segment)
            return deliver(self.outputs())
        except BaseException:
            if self.communicates:
                _drain_communication()
            if self.has_written():
                deliver(self.outputs())
            else:
                for generator, state in states:
                    Generator.set_state(generator, state)
            raise
        finally:
            if token is not None:
                numpy_errors.reset(token)
            self.release_arrays()

    def prepare(self, arguments: Sequence[object], numbers: Iterable[float] | None) -> None:
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
        self.committed: bool = False
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
        if array.nbytes < self.argument_bytes[number]:
            raise RuntimeError(
                "an argument of a compiled function was resized by another thread while it was "
                "called; nothing was computed"
            )
        self.bound_arrays[number] = _no_array
        self.bind_address(number, array)
        self.bound_arrays[number] = weakref.ref(array)

    def bind_address(self, number: int, array: object) -> None:
        """Patch the address of a buffer of this run into the argument blocks."""
        patches = self.patches.get(number)
        if patches is not None:
            start = start_of(array)
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

    def memory_for(self, number: int, view: BufferView) -> Array:
        """An array for an output of this run."""
        return pool.empty(view.shape, view.dtype.np)

    def generators_to_restore(self) -> Leaves:
        """The generators whose states a run saves, since a NumPy call may fail after using one."""
        return self.generators() if self.has_calls else []

    def generators(self) -> list[object]:
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

    def outputs(self) -> Any:
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
            if _is_all_of(view, base):
                return base
            start = address_of(base)
        return array_at(base, start + view.offset, view)

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
        if eqn.op.communicates:  # receives in planned memory
            outs = tuple([self.array(view) for view in instruction.outs])
            eqn.op.eval(*given, out=outs if len(outs) > 1 else outs[0], **eqn.attrs)
            return
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


def _is_all_of(view: BufferView, array: Array) -> bool:
    """Whether a view is just this array."""
    return bool(
        view.offset == 0 and array.shape == view.shape and array.strides == view.strides
        and array.dtype == view.dtype.np
    )  # fmt: skip


def _no_array() -> None:
    """A dead reference: no array is bound, or not in all argument blocks."""
