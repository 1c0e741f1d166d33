"""A program that holds an arena only while it runs.

A compiled step keeps its arena, since it runs again at once. Eager mode has many small programs, of
which one runs at a time: each takes its arena from the pool and returns it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from evergrad.compiler.runtime.arena import arena_memory
from evergrad.compiler.runtime.array_views import start_of
from evergrad.compiler.runtime.program import Program
from evergrad.compiler.schedule.buffers import address_of
from evergrad.compiler.schedule.instructions import Instruction
from evergrad.compiler.schedule.lower import Lowering
from evergrad.memory import pool
from evergrad.memory.ledger import LEDGER, LEDGER_MIN_BYTES

# A program keeps an arena of at most so many bytes: allocating one for each run takes longer than
# what such a program computes.
_KEPT_ARENA_BYTES = 1 << 16


class EagerProgram(Program):
    """A program whose arena lasts for one run."""

    small_bytes = -1  # none: results are allocated by each run

    def __init__(self, lowering: Lowering) -> None:
        super().__init__(lowering)
        # Argument words with addresses in the arena: (words, slot, offset).
        self.arena_slots: list[tuple[Any, int, int]] = []
        # The prepared call, which does not reference the program; False if there is none.
        self.prepared: Callable[[Sequence[Any]], list[Any]] | Literal[False] | None = None

    def call(self, arrays: Sequence[object]) -> list[Any]:
        """Run on arrays; the results are in memory of their own."""
        if self.prepared is None:
            self.prepared = self.prepared_call()
        if self.prepared is False:
            return self.run(arrays, ())  # type: ignore[no-any-return]
        return self.prepared(arrays)

    def prepared_call(self) -> Callable[[Sequence[Any]], list[Any]] | Literal[False]:
        """A run with everything known beforehand but the addresses of arguments and results; false
        for programs that need more."""
        if not self.bound:
            self.bind()
        size = self.plan.peak
        if not self.is_native or self.threads > 1 or size > _KEPT_ARENA_BYTES:
            return False
        if size:
            self.place_arena(size)
        (segment,) = self.segments
        return _prepared(segment.run_serial, self.argument_patches(), self.result_patches())

    def argument_patches(self) -> list[tuple[int, Any, int, int]]:
        """The argument words with addresses of arguments: (argument, words, slot, offset)."""
        return [
            (owner, words, slot, offset)
            for number, owner in self.argument_buffers
            for words, slot, offset in self.patches.get(number, ())
        ]

    def result_patches(self) -> list[tuple[Callable[[], Any], list[tuple[Any, int, int]]]]:
        """For each result: what allocates it, and the argument words with its address."""
        return [
            (pool.allocator(view.shape, view.dtype.np), self.patches.get(view.buffer.number, []))
            for _, view in sorted(self.computed, key=lambda item: item[0])
        ]

    def bind_arena(self, size: int) -> None:
        """No arena is kept: each run allocates its own."""
        self.arena_address: int = 0

    def argument_block(self, instruction: Instruction, block: Any = None) -> Any:
        block = super().argument_block(instruction, block)
        for slot, view in enumerate(instruction.pointers):
            if view is not None and view.buffer.kind == "arena":
                offset = view.buffer.offset + view.offset
                self.arena_slots.append((block.data, slot, offset))
        return block

    def run(
        self,
        arguments: Sequence[object],
        numbers: Iterable[float] | None,
        deliver: Callable[[list[Any]], object] = lambda found: found,
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
        memory = arena_memory(size)
        if size >= LEDGER_MIN_BYTES:
            LEDGER.transient(size)
        start = address_of(memory)
        self.arena_address = start + -start % 64
        self.arena_bytes = memory
        for words, slot, offset in self.arena_slots:
            words[slot] = self.arena_address + offset


def _prepared(
    run: Callable[[], int],
    arguments: list[tuple[int, Any, int, int]],
    results: list[tuple[Callable[[], Any], list[tuple[Any, int, int]]]],
) -> Callable[[Sequence[Any]], list[Any]]:
    def call(arrays: Sequence[Any]) -> list[Any]:
        found = []
        for allocate, patches in results:
            result = allocate()
            found.append(result)
            start = start_of(result)
            for words, slot, offset in patches:
                words[slot] = start + offset
        for number, words, slot, offset in arguments:
            words[slot] = start_of(arrays[number]) + offset
        if run():
            raise IndexError("an index is out of range in a lookup; nothing was written")
        return found

    return call
