"""A program that holds an arena only while it runs.

A compiled step keeps its arena, since it runs again at once. Eager mode has many small programs, of
which one runs at a time: each takes its arena from the pool and returns it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from evergrad.compiler.runtime.program import Program
from evergrad.compiler.schedule.buffers import address_of
from evergrad.compiler.schedule.instructions import Instruction
from evergrad.compiler.schedule.lower import Lowering
from evergrad.memory.ledger import LEDGER, LEDGER_MIN_BYTES


class EagerProgram(Program):
    """A program whose arena lasts for one run."""

    small_bytes = -1  # none: results are allocated by each run

    def __init__(self, lowering: Lowering) -> None:
        super().__init__(lowering)
        # Argument words with addresses in the arena: (words, slot, offset).
        self.arena_slots: list[tuple[Any, int, int]] = []

    def bind_arena(self, size: int) -> None:
        """No arena is kept: each run allocates its own."""
        self.arena_address = 0

    def argument_block(self, instruction: Instruction) -> Any:
        block = super().argument_block(instruction)
        for slot, view in enumerate(instruction.pointers):
            if view is not None and view.buffer.kind == "arena":
                offset = view.buffer.offset + view.offset
                self.arena_slots.append((block.data, slot, offset))
        return block

    def run(
        self,
        arguments: Sequence[Any],
        numbers: Iterable[float] | None,
        deliver: Callable[[list[Any]], Any] = lambda found: found,
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
        memory = self.allocate_arena(size + 64)
        if size >= LEDGER_MIN_BYTES:
            LEDGER.transient(size)
        start = address_of(memory)
        self.arena_address = start + -start % 64
        self.arena_bytes = memory
        for words, slot, offset in self.arena_slots:
            words[slot] = self.arena_address + offset
