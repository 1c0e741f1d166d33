"""The default generator: one for each thread, all from one seed.

A thread gets its default generator at its first use, whatever context it runs in, so threads sample
without a lock and with independent streams. All asyncio tasks of a thread share its generator.
``manual_seed`` restarts the stream of the calling thread and sets the seed of threads that have not
sampled yet. The seed of a process that sets none is from the operating system.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

import numpy as np

from evergrad.core.device import CPU
from evergrad.core.functionalize import materialize_trace
from evergrad.core.rng import generator as base
from evergrad.core.rng.recorded_state import (
    record_restored,
    record_seed,
    recorded_seed,
    recorded_state,
)
from evergrad.core.rng.seeded_stream import DEFAULT_SEED, check_seed
from evergrad.core.state import using
from evergrad.core.tensor import Tensor, from_array
from evergrad.core.thread_variable import ThreadVariable
from evergrad.extension import provides

if TYPE_CHECKING:
    from evergrad.core.types import Args


class Generator(base.Generator):
    """A stream of random numbers whose state is a uint8 tensor.

    While a call is recorded its draws are equations, and so are seeding, saving and restoring
    (:mod:`.recorded_state`). Whatever else is done to a generator is Python's, at every call: the
    draws so far are computed first. The engine itself uses the methods of the base class.
    """

    def __init__(self, device: object = "cpu", *, algorithm: str = "mt19937") -> None:
        super().__init__(device, algorithm=algorithm)
        self.device = CPU  # type: ignore[assignment]
        # A program restarts the generator that its function has made, at every call.
        if not record_seed(self, DEFAULT_SEED, is_new=True):
            materialize_trace("a Generator was made")

    def manual_seed(self, seed: int) -> Self:
        """Restart the stream of ``seed``. Negative seeds count back from 2**64."""
        if not record_seed(self, check_seed(seed)):
            materialize_trace("manual_seed() was called")
            super().manual_seed(seed)
        return self

    def seed(self) -> int:
        """Take a fresh seed from the operating system and return it."""
        materialize_trace("seed() was called")
        with using(trace=None):
            return super().seed()

    def initial_seed(self) -> int:
        """The seed that the stream began with."""
        seed = recorded_seed(self)
        if seed is not None:
            return seed  # type: ignore[no-any-return]
        materialize_trace("initial_seed() was called")
        return super().initial_seed()

    def get_state(self) -> Tensor:  # type: ignore[override]
        """The whole state as bytes, in a format that ``set_state`` reads."""
        state = recorded_state(self)
        if state is not None:
            return state
        materialize_trace("get_state() was called")
        return from_array(super().get_state())

    def set_state(self, state: object) -> Generator:
        """Continue from a state of ``get_state``; the algorithm has to be the same."""
        if not isinstance(state, Tensor | np.ndarray):
            raise TypeError(f"expected a torch.ByteTensor, but got {type(state).__name__}")
        if not (isinstance(state, Tensor) and record_restored(self, state)):
            materialize_trace("set_state() was called")
            super().set_state(state.array() if isinstance(state, Tensor) else state)
        return self

    def clone_state(self) -> Generator:
        """A new generator at the same point of the same stream."""
        return Generator(self.device, algorithm=self.algorithm).set_state(self.get_state())

    def __reduce__(self) -> Args:
        return _rebuild, (self.algorithm, super().get_state())


def _rebuild(algorithm: str, state: object) -> Generator:
    return Generator(algorithm=algorithm).set_state(state)


def _system_seed() -> int:
    return int.from_bytes(os.urandom(8))


_first_seed = _system_seed()


class _Own(threading.local):
    """The generator that a thread has made at its first use."""

    generator: Generator | None = None


_own = _Own()
# The generator of `using_generator`, which another thread with a copy of the context must not use.
_chosen: ThreadVariable[Generator | None] = ThreadVariable("evergrad_generator", None)


@provides("default_generator")
def default_generator() -> Generator:
    """The generator of the calling thread."""
    generator = _chosen.get() or _own.generator
    if generator is None:
        with using(trace=None):  # no effect of the code that draws first
            generator = Generator()
            generator.manual_seed(_first_seed)
        _own.generator = generator
    return generator


def manual_seed(seed: int) -> Generator:
    """Restart the stream of ``seed`` here, and in every thread that has not sampled yet.

    Args:
        seed: an integer of 64 bits

    >>> _ = eg.manual_seed(0)
    >>> x = eg.rand(2)
    >>> _ = eg.manual_seed(0)
    >>> eg.equal(eg.rand(2), x)
    True
    """
    generator, seed = default_generator(), check_seed(seed)
    if not record_seed(generator, seed, new_threads=True):
        generator.manual_seed(seed)
        seed_new_threads(seed)
    return generator


@provides("seed_new_threads")
def seed_new_threads(seed: int) -> None:
    """Set the seed of threads that have not sampled yet."""
    global _first_seed
    _first_seed = seed


def seed() -> int:
    """Seed from the operating system; returns the seed.

    >>> eg.seed() == eg.initial_seed()
    True
    """
    materialize_trace("seed() was called")
    with using(trace=None):
        return manual_seed(_system_seed()).initial_seed()


def initial_seed() -> int:
    """The seed of the calling thread's generator.

    >>> _ = eg.manual_seed(7)
    >>> eg.initial_seed()
    7
    """
    return default_generator().initial_seed()


def get_rng_state() -> Tensor:
    """The state of the calling thread's generator, as a uint8 tensor.

    >>> state = eg.get_rng_state()
    >>> x = eg.rand(2)
    >>> eg.set_rng_state(state)
    >>> eg.equal(eg.rand(2), x)
    True
    """
    return default_generator().get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Continue the calling thread's generator from a state.

    Args:
        new_state: what :func:`get_rng_state` gave

    >>> state = eg.get_rng_state()
    >>> x = eg.rand(2)
    >>> eg.set_rng_state(state)
    >>> eg.equal(eg.rand(2), x)
    True
    """
    default_generator().set_state(new_state)


@contextmanager
def using_generator(generator: Generator) -> Iterator[Generator]:
    """Use this generator as the calling thread's default inside."""
    materialize_trace("using_generator() was called")
    token = _chosen.set(generator)
    try:
        yield generator
    finally:
        materialize_trace("using_generator() ended")
        _chosen.reset(token)


@contextmanager
def fork_rng(devices: object = None, enabled: bool = True, **named: object) -> Iterator[None]:
    """Restore the state of the calling thread's generator afterwards.

    Args:
        devices, named: accepted
        enabled: whether to restore at all; default ``True``

    >>> before = eg.get_rng_state()
    >>> with eg.random.fork_rng():
    ...     _ = eg.rand(3)
    >>> eg.equal(eg.get_rng_state(), before)
    True
    """
    before = get_rng_state() if enabled else None
    try:
        yield
    finally:
        if before is not None:
            set_rng_state(before)
