"""The states of random generators while a program runs, where its kernels find them.

A program takes the states over when it begins, and gives them back when it has ended and around
each NumPy call that draws. A generator that belongs to the calling thread is asked for anew by
every run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from evergrad.compiler.codegen.rng import STATE_BUFFER_BYTES, STATE_BYTES, STATE_WORDS
from evergrad.compiler.kernels.random_rows import as_signed, source_of
from evergrad.core.rng.bit_generators import MersenneTwister, Philox
from evergrad.memory.cache_lines import isolated_zeros


class Streams:
    """The states of generators in one piece of memory."""

    def __init__(self, generators: Sequence[Any]) -> None:
        self.generators = list(generators)
        self.memory = isolated_zeros((len(self.generators), STATE_BUFFER_BYTES), np.uint8)

    def take(self) -> None:
        """Copy the states in."""
        for generator, memory in zip(self.generators, self.memory, strict=True):
            source = source_of(generator)._source
            if isinstance(source, Philox):
                memory[:16].view(np.int64)[:] = as_signed(source.key), as_signed(source.offset)
            else:
                memory[:STATE_BYTES].view(np.uint32)[:] = source.memory[:STATE_WORDS]
                memory[STATE_BYTES : STATE_BYTES + 8].view(np.int64)[0] = source.memory[STATE_WORDS]

    def give_back(self) -> None:
        """Let the generators go on from where the program has come to."""
        for generator, memory in zip(self.generators, self.memory, strict=True):
            source = source_of(generator)._source
            if isinstance(source, Philox):
                source.offset = int(memory[8:16].view(np.uint64)[0])
            else:
                _give_back(source, memory)


def _give_back(twister: MersenneTwister, memory: Any) -> None:
    words = memory[:STATE_BYTES].view(np.uint32)
    place = int(memory[STATE_BYTES : STATE_BYTES + 8].view(np.int64)[0])
    assert 0 <= place <= STATE_WORDS
    twister.memory[:STATE_WORDS] = words
    twister.memory[STATE_WORDS] = place
