"""Generators that the step makes, seeds, reads, copies and restores."""

from __future__ import annotations

import copy
from typing import Any

from .registry import Seen, case, ramp


def called(lib: Any, wrap: Any, step: Any, own: Any = None) -> Seen:
    """Four calls, seeds set anew after two of them, and what is drawn afterwards."""
    step = wrap(step)
    for n in range(4):
        if n == 2:
            lib.manual_seed(40)
            if own is not None:
                own.manual_seed(11)
        yield step(ramp(lib, 3) * (n + 1))
    yield lib.rand(2), None if own is None else lib.rand(2, generator=own)


@case
def seeded_in_the_step(lib: Any, wrap: Any) -> Seen:
    def step(x):
        lib.manual_seed(3)
        first = x * lib.rand(3)
        lib.manual_seed(4)
        return first, x + lib.randn(3)

    yield from called(lib, wrap, step)


@case
def its_own_generator_seeded(lib: Any, wrap: Any) -> Seen:
    source = lib.Generator()

    def step(x):
        before = lib.rand(3, generator=source)
        source.manual_seed(5)
        return before, x + lib.rand(3, generator=source)

    yield from called(lib, wrap, step, source)


@case
def a_generator_made_and_seeded(lib: Any, wrap: Any) -> Seen:
    def step(x):
        return x + lib.randn(3, generator=lib.Generator().manual_seed(7))

    yield from called(lib, wrap, step)


@case
def a_generator_made_and_not_seeded(lib: Any, wrap: Any) -> Seen:
    def step(x):
        source = lib.Generator()
        return x + lib.rand(3, generator=source), lib.rand(3, generator=source)

    yield from called(lib, wrap, step)


@case
def a_state_saved_and_restored(lib: Any, wrap: Any) -> Seen:
    def step(x):
        state = lib.get_rng_state()
        first = lib.rand(3)
        lib.set_rng_state(state)
        return x + first, lib.rand(3)

    yield from called(lib, wrap, step)


@case
def a_state_of_its_own_restored(lib: Any, wrap: Any) -> Seen:
    source = lib.Generator().manual_seed(2)

    def step(x):
        first = lib.rand(3, generator=source)
        state = source.get_state()
        second = lib.rand(3, generator=source)
        source.set_state(state)
        return x, first, second, lib.rand(3, generator=source)

    yield from called(lib, wrap, step, source)


@case
def a_fork(lib: Any, wrap: Any) -> Seen:
    def step(x):
        with lib.random.fork_rng(devices=[]):
            inside = lib.rand(3)
        return x + inside, lib.rand(3)

    yield from called(lib, wrap, step)


@case
def a_fork_that_seeds(lib: Any, wrap: Any) -> Seen:
    def step(x):
        before = lib.rand(3)
        with lib.random.fork_rng(devices=[]):
            lib.manual_seed(1)
            inside = lib.rand(3)
        return before, x + inside, lib.rand(3)

    yield from called(lib, wrap, step)


@case
def the_seed_is_read(lib: Any, wrap: Any) -> Seen:
    yield from called(lib, wrap, lambda x: (x + lib.rand(3), lib.initial_seed() % 1000))


@case
def the_seed_of_its_own_is_read(lib: Any, wrap: Any) -> Seen:
    source = lib.Generator().manual_seed(2)

    def step(x):
        return x + lib.rand(3, generator=source), source.initial_seed()

    yield from called(lib, wrap, step, source)


@case
def a_copy_of_a_generator(lib: Any, wrap: Any) -> Seen:
    source = lib.Generator().manual_seed(2)

    def step(x):
        first = lib.rand(3, generator=source)
        twin = source.clone_state()
        return x + first, lib.rand(2, generator=twin), lib.rand(2, generator=source)

    yield from called(lib, wrap, step, source)


@case
def the_default_generator_by_name(lib: Any, wrap: Any) -> Seen:
    def step(x):
        first = lib.rand(3)
        lib.default_generator.manual_seed(9)
        return x + first, lib.rand(3)

    yield from called(lib, wrap, step)


@case
def a_generator_kept_in_a_table(lib: Any, wrap: Any) -> Seen:
    sources = {n: lib.Generator().manual_seed(n) for n in range(2)}

    def step(x):
        for n, source in sources.items():
            x = x + lib.rand(3, generator=source.manual_seed(n + 3))
        return x

    yield from called(lib, wrap, step)


@case
def a_generator_replaced_between_calls(lib: Any, wrap: Any) -> Seen:
    held = {"source": lib.Generator().manual_seed(1)}
    step = wrap(lambda x: x + lib.rand(3, generator=held["source"]))
    for n in range(5):
        if n == 3:
            held["source"] = lib.Generator().manual_seed(8)
        yield step(ramp(lib, 3)), lib.rand(1, generator=copy.deepcopy(held["source"]))
