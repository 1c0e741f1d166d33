"""The generator that draws when none is given: one for each thread, all from one seed.

A context (a thread, or an asyncio task together with the one that started it) gets its default
generator when it first asks for it, so threads draw without a lock and without disturbing each
other's streams. ``manual_seed`` starts the stream of the calling thread again and sets the seed
from which threads begin that have not drawn yet. Unseeded, a process begins somewhere new.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from evergrad.core.functionalize import refuse_while_functionalizing
from evergrad.core.rng import generator as base
from evergrad.core.tensor import CPU, Tensor, from_array


class Generator(base.Generator):
    """A stream of random numbers whose state travels as a uint8 tensor."""

    def __init__(self, device: object = "cpu", *, algorithm: str = "mt19937") -> None:
        super().__init__(device, algorithm=algorithm)
        self.device = CPU  # type: ignore[assignment]

    def get_state(self) -> Tensor:  # type: ignore[override]
        """The whole state as bytes, in a layout that ``set_state`` understands."""
        return from_array(super().get_state())

    def set_state(self, state: Any) -> Generator:
        """Continue from what ``get_state`` gave; the algorithm has to be the same."""
        if not isinstance(state, Tensor | np.ndarray):
            raise TypeError(f"expected a torch.ByteTensor, but got {type(state).__name__}")
        super().set_state(state.array() if isinstance(state, Tensor) else state)
        return self

    def clone_state(self) -> Generator:
        """A new generator at the same point of the same stream."""
        return Generator(self.device, algorithm=self.algorithm).set_state(self.get_state())

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.algorithm, super().get_state())


def _rebuild(algorithm: str, state: Any) -> Generator:
    return Generator(algorithm=algorithm).set_state(state)


def _unpredictable() -> int:
    return int.from_bytes(os.urandom(8))


_first_seed = _unpredictable()
_current: ContextVar[Generator | None] = ContextVar("evergrad_generator", default=None)


def default_generator() -> Generator:
    """The generator of the calling thread."""
    generator = _current.get()
    if generator is None:
        generator = Generator()
        generator.manual_seed(_first_seed)
        _current.set(generator)
    return generator


def manual_seed(seed: int) -> Generator:
    """Begin the stream of ``seed`` here, and in every thread that has not drawn yet."""
    global _first_seed
    refuse_while_functionalizing("manual_seed()")
    generator = default_generator()
    generator.manual_seed(seed)
    _first_seed = generator.initial_seed()
    return generator


def seed() -> int:
    """Begin somewhere unpredictable; returns the seed."""
    return manual_seed(_unpredictable()).initial_seed()


def initial_seed() -> int:
    """The seed of the calling thread's generator."""
    return default_generator().initial_seed()


def get_rng_state() -> Tensor:
    """The state of the calling thread's generator, as a uint8 tensor."""
    return default_generator().get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Continue the calling thread's generator from a state."""
    default_generator().set_state(new_state)


@contextmanager
def using_generator(generator: Generator) -> Iterator[Generator]:
    """Let this generator be the calling thread's default inside."""
    token = _current.set(generator)
    try:
        yield generator
    finally:
        _current.reset(token)


@contextmanager
def fork_rng(devices: Any = None, enabled: bool = True, **named: Any) -> Iterator[None]:
    """Draw freely inside; afterwards the calling thread's stream goes on as if nothing had been."""
    before = get_rng_state() if enabled else None
    try:
        yield
    finally:
        if before is not None:
            set_rng_state(before)
