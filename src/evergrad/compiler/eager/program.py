"""A program that holds an arena only while it runs.

A compiled step keeps its arena, since it runs again at once. Eager mode has many small programs, of
which one runs at a time: each takes its arena from the pool and returns it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from ctypes import addressof, c_char
from typing import TYPE_CHECKING, Any, Literal

from evergrad.compiler.runtime.arena import arena_memory
from evergrad.compiler.runtime.array_views import start_of
from evergrad.compiler.runtime.program import Program
from evergrad.compiler.schedule.buffers import address_of
from evergrad.compiler.schedule.instructions import Instruction
from evergrad.compiler.schedule.lower import Lowering
from evergrad.memory import pool
from evergrad.memory.ledger import LEDGER, LEDGER_MIN_BYTES

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction, Array, Leaves


# A program keeps an arena of at most so many bytes: allocating one for each run takes longer than
# what such a program computes.
_KEPT_ARENA_BYTES = 1 << 16


class EagerProgram(Program):
    """A program whose arena lasts for one run."""

    small_bytes = -1  # none: results are allocated by each run

    def __init__(self, lowering: Lowering, strided: frozenset[int] = frozenset()) -> None:
        super().__init__(lowering)
        # The arguments of which a prepared call is given arrays that are not contiguous.
        self.strided = strided
        # Argument words with addresses in the arena: (words, slot, offset).
        self.arena_slots: list[tuple[object, int, int]] = []
        # The prepared call, which does not reference the program; False if there is none.
        self.prepared: Callable[[Sequence[object]], list[object]] | Literal[False] | None = None

    def call(self, arrays: Sequence[object]) -> Leaves:
        """Run on arrays; the results are in memory of their own."""
        if self.prepared is None:
            self.prepared = self.prepared_call()
        if self.prepared is False:
            return self.run(arrays, ())  # type: ignore[no-any-return]
        return self.prepared(arrays)

    def prepared_call(self) -> Callable[[Sequence[object]], list[object]] | Literal[False]:
        """A run with everything known beforehand but the addresses of arguments and results; false
        for programs that need more."""
        if not self.bound:
            self.bind()
        size = self.plan.peak
        if not self.is_native:
            return False
        (segment,) = self.segments
        run = segment.run_serial
        if self.threads > 1:
            run = functools.partial(segment.run, self.threads)
        call = _prepared(run, self.argument_patches(), self.strided, self.result_patches())
        if size > _KEPT_ARENA_BYTES:
            return _with_arena(call, size, self.arena_slots)
        if size:
            self.place_arena(size)
        return call

    def argument_patches(self) -> list[tuple[int, memoryview, int, int]]:
        """The argument words with addresses of arguments: (argument, words, slot, offset)."""
        return [
            (owner, words, slot, offset)
            for number, owner in self.argument_buffers
            for words, slot, offset in self.patches.get(number, ())
        ]

    def result_patches(self) -> list[tuple[Callable[[], object], list[tuple[object, int, int]]]]:
        """For each result: what allocates it, and the argument words with its address."""
        return [
            (pool.allocator(view.shape, view.dtype.np), self.patches.get(view.buffer.number, []))
            for _, view in sorted(self.computed, key=lambda item: item[0])
        ]

    def bind_arena(self, size: int) -> None:
        """No arena is kept: each run allocates its own."""
        self.arena_address: int = 0

    def argument_block(self, instruction: Instruction, block: Any = None) -> Array:
        block = super().argument_block(instruction, block)
        for slot, view in enumerate(instruction.pointers):
            if view is not None and view.buffer.kind == "arena":
                offset = view.buffer.offset + view.offset
                self.arena_slots.append((block.data, slot, offset))
        result: Array = block
        return result

    def run(
        self,
        arguments: Sequence[object],
        numbers: Iterable[float] | None,
        deliver: Callable[[Leaves], object] = lambda found: found,
    ) -> Any:
        if not self.bound:
            self.bind()
        size = self.plan.peak
        if not size:
            return super().run(arguments, numbers, deliver)
        self.place_arena(size)
        try:
            return super().run(arguments, numbers, deliver)
        finally:
            self.arena_bytes = None

    def place_arena(self, size: int) -> None:
        """Allocate the arena and patch its addresses into the argument blocks."""
        self.arena_bytes, self.arena_address = _placed(size, self.arena_slots)


def _placed(size: int, slots: list[tuple[Any, int, int]]) -> tuple[Array, int]:
    """The memory of an arena, with its address, which is patched into argument blocks."""
    memory = arena_memory(size)
    if size >= LEDGER_MIN_BYTES:
        LEDGER.transient(size)
    start = start_of(memory)
    start += -start % 64
    for words, slot, offset in slots:
        words[slot] = start + offset
    return memory, start


def _with_arena(
    call: Callable[[Sequence[object]], list[object]],
    size: int,
    slots: list[tuple[object, int, int]],
) -> Callable[[Sequence[Any]], Leaves]:
    """A prepared call that takes its arena from the pool, for one run."""

    def run(arrays: Sequence[Array]) -> Leaves:
        memory = _placed(size, slots)  # noqa: F841 - alive until the run is over
        return call(arrays)

    return run


def _prepared(
    run: Callable[[], int],
    arguments: list[tuple[int, Any, int, int]],
    strided: frozenset[int],
    results: list[tuple[Callable[[], Any], list[tuple[Any, int, int]]]],
) -> Callable[[Sequence[Any]], Leaves]:
    from_buffer: AnyFunction = c_char.from_buffer
    apart = [patch for patch in arguments if patch[0] in strided]
    arguments = [patch for patch in arguments if patch[0] not in strided]

    def call(arrays: Sequence[Array]) -> Leaves:
        found = []
        for allocate, patches in results:
            result = allocate()
            found.append(result)
            start = start_of(result)
            for words, slot, offset in patches:
                words[slot] = start + offset
        try:
            for number, words, slot, offset in arguments:
                words[slot] = addressof(from_buffer(arrays[number])) + offset
        except (TypeError, ValueError):  # empty or read-only
            for number, words, slot, offset in arguments:
                words[slot] = start_of(arrays[number]) + offset
        for number, words, slot, offset in apart:
            words[slot] = address_of(arrays[number]) + offset
        if run():
            raise IndexError("an index is out of range in a lookup; nothing was written")
        return found

    return call
