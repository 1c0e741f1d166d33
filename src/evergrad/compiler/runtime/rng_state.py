"""RNG states of a running program, in memory that its kernels read and write.

A program loads the states when it begins, and stores them when it has ended and around each NumPy
call that uses random numbers. The default generator of the calling thread is resolved at every run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.compiler.codegen.rng import STATE_BUFFER_BYTES, STATE_BYTES, STATE_WORDS
from evergrad.compiler.kernels.random_rows import as_signed, source_of
from evergrad.core.rng.bit_generators import MersenneTwister, Philox
from evergrad.memory.cache_lines import isolated_zeros

if TYPE_CHECKING:
    from evergrad.core.tensor import Array


class RngStates:
    """The states of generators in one buffer."""

    def __init__(self, generators: Sequence[object]) -> None:
        self.generators: list[Any] = list(generators)
        self.memory: Array = isolated_zeros((len(self.generators), STATE_BUFFER_BYTES), np.uint8)

    def load(self) -> None:
        """Copy the generators' states to the buffer."""
        for generator, memory in zip(self.generators, self.memory, strict=True):
            source = source_of(generator)._source
            if isinstance(source, Philox):
                memory[:16].view(np.int64)[:] = as_signed(source.key), as_signed(source.offset)
            else:
                memory[:STATE_BYTES].view(np.uint32)[:] = source.memory[:STATE_WORDS]
                memory[STATE_BYTES : STATE_BYTES + 8].view(np.int64)[0] = source.memory[STATE_WORDS]

    def store(self) -> None:
        """Copy the states back to the generators."""
        for generator, memory in zip(self.generators, self.memory, strict=True):
            source = source_of(generator)._source
            if isinstance(source, Philox):
                source.offset = int(memory[8:16].view(np.uint64)[0])
            else:
                _store(source, memory)


def _store(twister: MersenneTwister, memory: Any) -> None:
    words = memory[:STATE_BYTES].view(np.uint32)
    position = int(memory[STATE_BYTES : STATE_BYTES + 8].view(np.int64)[0])
    assert 0 <= position <= STATE_WORDS
    twister.memory[:STATE_WORDS] = words
    twister.memory[STATE_WORDS] = position
