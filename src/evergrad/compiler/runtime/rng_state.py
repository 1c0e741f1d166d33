"""RNG states of a running program, in memory that its kernels read and write.

A program loads the states when it begins, and stores them when it has ended and around each NumPy
call that uses random numbers. The default generator of the calling thread is resolved at every run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.compiler.codegen.rng import (
    SPARE_BYTES,
    STATE_BUFFER_BYTES,
    STATE_BYTES,
    STATE_WORDS,
)
from evergrad.compiler.kernels.random_rows import source_of
from evergrad.core.rng.bit_generators import MersenneTwister, Philox
from evergrad.memory.cache_lines import isolated_zeros

if TYPE_CHECKING:
    from evergrad.core.tensor import Array


class RngStates:
    """The states of generators in one buffer."""

    def __init__(self, generators: Sequence[object]) -> None:
        self.memory: Array = isolated_zeros((len(generators), STATE_BUFFER_BYTES), np.uint8)
        self.states: list[tuple[Any, _State]] = [
            (generator, _State(memory))
            for generator, memory in zip(generators, self.memory, strict=True)
        ]

    def load(self) -> None:
        """Copy the generators' states to the buffer."""
        for generator, state in self.states:
            state.load(source_of(generator)._source)

    def store(self) -> None:
        """Copy the states back to the generators."""
        for generator, state in self.states:
            state.store(source_of(generator)._source)


class _State:
    """The state of one generator, by its parts in memory."""

    def __init__(self, memory: Array) -> None:
        self.counter = memory[:16].view(np.uint64)
        # The words and the position as NumPy stores them; the high half of the position is 0.
        self.words = memory[: STATE_BYTES + 4].view(np.uint32)
        self.has_spare = memory[SPARE_BYTES : SPARE_BYTES + 8].view(np.int64)
        self.spare = memory[SPARE_BYTES + 8 : SPARE_BYTES + 16].view(np.float64)

    def load(self, source: MersenneTwister | Philox) -> None:
        if isinstance(source, Philox):
            self.counter[:] = source.key, source.offset
            return
        self.words[:] = source.memory
        self.has_spare[0] = source.spare is not None
        if source.spare is not None:
            self.spare[0] = source.spare

    def store(self, source: MersenneTwister | Philox) -> None:
        if isinstance(source, Philox):
            source.offset = int(self.counter[1])
            return
        assert self.words[STATE_WORDS] <= STATE_WORDS
        source.memory[:] = self.words
        source.spare = float(self.spare[0]) if self.has_spare[0] else None
