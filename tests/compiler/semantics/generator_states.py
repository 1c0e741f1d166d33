"""States of generators that the step saves, seeds and restores between its draws."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from .registry import Seen, attempt, case, leaf, ramp


def called(lib: Any, wrap: Any, step: Any, own: Any, between: Any = None, calls: int = 5) -> Seen:
    """Calls, with what the streams give after each of them."""
    step = wrap(step)
    for n in range(calls):
        if between is not None:
            between(n)
        yield attempt(step, ramp(lib, 3) * (n + 1))
        yield lib.rand(2), lib.initial_seed() % 1000, lib.rand(1, generator=own)


@case
def the_default_generator_under_two_names(lib: Any, wrap: Any) -> Seen:
    def step(x):
        a, b = lib.rand(3), lib.rand(3, generator=lib.default_generator)
        lib.manual_seed(4)
        return x + a * b, lib.rand(2, generator=lib.default_generator), lib.rand(2)

    yield from called(lib, wrap, step, lib.Generator())


@case(torch=False)  # whose threads share one generator
def the_default_generator_of_another_thread(lib: Any, wrap: Any) -> Seen:
    own = lib.Generator()
    step = wrap(lambda x: (x + lib.rand(2), lib.rand(2, generator=own), lib.rand(2)))
    found: list[Any] = []

    def run() -> None:
        found.append(step(lib.zeros(2))[1])

    for _ in range(3):
        yield step(lib.zeros(2))
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        yield found.pop()


@case
def a_state_kept_between_calls(lib: Any, wrap: Any) -> Seen:
    own, s = lib.Generator().manual_seed(5), SimpleNamespace(state=None)
    s.state = own.get_state()

    def step(x):
        own.set_state(s.state)
        drawn = lib.rand(3, generator=own)
        s.state = own.get_state()
        return x * drawn

    yield from called(lib, wrap, step, own)


@case
def a_state_written_after_it_was_saved(lib: Any, wrap: Any) -> Seen:
    own = lib.Generator().manual_seed(5)

    def step(x):
        state = own.get_state()
        copy = state.clone()
        first = lib.rand(3, generator=own)
        state.fill_(0)
        own.set_state(copy)
        return x + first, lib.rand(3, generator=own), state.sum()

    yield from called(lib, wrap, step, own)


@case
def a_state_of_the_wrong_size(lib: Any, wrap: Any) -> Seen:
    own = lib.Generator().manual_seed(5)

    def step(x):
        first = lib.rand(3, generator=own)
        own.set_state(lib.zeros(3, dtype=lib.uint8))
        return x + first

    yield from called(lib, wrap, step, own)


@case
def a_seed_that_follows_a_counter(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(n=0)

    def step(x):
        s.n += 1
        lib.manual_seed(s.n % 2)
        return x + lib.rand(3)

    yield from called(lib, wrap, step, lib.Generator(), calls=8)


@case
def a_seed_that_others_set_decides(lib: Any, wrap: Any) -> Seen:
    own = lib.Generator()

    def step(x):
        if own.initial_seed() % 2:
            return x * (own.initial_seed() % 100), own.initial_seed()
        return x + lib.initial_seed() % 100

    def between(n: int) -> None:
        own.manual_seed(n % 3)
        lib.manual_seed(n)

    yield from called(lib, wrap, step, own, between, calls=9)


@case
def noise_under_a_fork_with_gradients(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 0.5, -1.0, 2.0)

    def step(x):
        with lib.random.fork_rng(devices=[]):
            lib.manual_seed(7)
            noise = lib.randn(3)
        loss = (w * x * noise * lib.rand(3)).sum()
        loss.backward()
        return loss.detach()

    step = wrap(step)
    for n in range(5):
        if n == 3:
            w.grad = None
        yield step(ramp(lib, 3) + n), w.grad, lib.rand(1)


@case
def draws_of_every_kind_between_states(lib: Any, wrap: Any) -> Seen:
    def step(x):
        state = lib.get_rng_state()
        first = lib.randperm(5), lib.poisson(x.abs()), lib.nn.functional.dropout(x, 0.5)
        lib.set_rng_state(state)
        return first, lib.multinomial(x.abs() + 0.1, 2), lib.bernoulli(x.abs() * 0.1)

    yield from called(lib, wrap, step, lib.Generator())


@case
def a_generator_of_the_call_that_is_kept(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(source=None)

    def step(x):
        s.source = lib.Generator().manual_seed(3)
        return x + lib.rand(3, generator=s.source)

    step = wrap(step)
    sources = []
    for n in range(4):
        yield step(ramp(lib, 3) * n)
        sources.append(s.source)
        yield lib.rand(2, generator=s.source), len({id(source) for source in sources})


@case
def a_worker_seed_derived_from_the_state(lib: Any, wrap: Any) -> Seen:
    """As data loaders seed their workers: a generator seeded from another one's stream."""
    own = lib.Generator().manual_seed(1)

    def step(x):
        worker = lib.Generator()
        worker.set_state(own.get_state())
        first = lib.rand(3, generator=worker)
        return x + first, lib.rand(3, generator=own), lib.rand(2, generator=worker)

    yield from called(lib, wrap, step, own)
