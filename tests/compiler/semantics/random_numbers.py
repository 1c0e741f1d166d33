"""Python's, NumPy's and the library's random numbers drawn inside the step."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from .registry import Seen, batch, case, layer, mlp, ramp, weights


@case
def python_uniform(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x * random.random())
    for _ in range(5):
        yield step(ramp(lib, 3))


@case
def python_branch(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x * 2 if random.random() < 0.5 else x - 1)
    for _ in range(6):
        yield step(ramp(lib, 3))


@case
def python_choice(lib: Any, wrap: Any) -> Seen:
    acts = [lib.tanh, lib.exp, lib.sin]
    step = wrap(lambda x: random.choice(acts)(x))
    for _ in range(6):
        yield step(ramp(lib, 3))


@case
def python_randint_as_an_index(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x[random.randint(0, 2)])
    for _ in range(6):
        yield step(ramp(lib, 3))


@case
def python_shuffle(lib: Any, wrap: Any) -> Seen:
    order = list(range(4))

    def step(x):
        random.shuffle(order)
        return x[order]

    step = wrap(step)
    for _ in range(5):
        yield step(ramp(lib, 4)), order


@case
def python_sample_of_layers(lib: Any, wrap: Any) -> Seen:
    layers = [layer(lib, 3, 3) for _ in range(3)]

    def step(x):
        for chosen in random.sample(layers, 2):
            x = lib.tanh(chosen(x)) + random.gauss(0.0, 1.0)
        return x

    step = wrap(step)
    for _ in range(4):
        yield step(ramp(lib, 2, 3))


@case
def a_random_object_of_its_own(lib: Any, wrap: Any) -> Seen:
    source = random.Random(7)
    step = wrap(lambda x: x * source.uniform(1, 2))
    for _ in range(5):
        yield step(ramp(lib, 3))
    yield source.getstate()[1][-1]


@case
def python_seed_inside(lib: Any, wrap: Any) -> Seen:
    def step(x, n):
        random.seed(n)
        return x * random.random()

    step = wrap(step)
    for n in (1, 2, 1, 3):
        yield step(ramp(lib, 3), n)


@case
def seeded_outside_between_calls(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x * random.random())
    for n in (1, 1, 2, 1):
        random.seed(n)
        yield step(ramp(lib, 3))


@case
def numpy_uniform(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x * float(np.random.rand()))
    for _ in range(5):
        yield step(ramp(lib, 3))


@case
def numpy_normal_as_noise(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x + lib.tensor(np.random.randn(3).astype(np.float32)))
    for _ in range(5):
        yield step(ramp(lib, 3))


@case
def numpy_permutation(lib: Any, wrap: Any) -> Seen:
    def step(x):
        order = np.random.permutation(4)
        return x[lib.from_numpy(order)]

    step = wrap(step)
    for _ in range(5):
        yield step(ramp(lib, 4))


@case
def numpy_generator_of_its_own(lib: Any, wrap: Any) -> Seen:
    source = np.random.default_rng(3)
    step = wrap(lambda x: x + float(source.normal()))
    for _ in range(5):
        yield step(ramp(lib, 3))
    yield source.random()


@case
def numpy_choice_decides(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x * 3 if np.random.choice([0, 1]) else -x)
    for _ in range(6):
        yield step(ramp(lib, 3))


@case
def numpy_seeded_in_the_step(lib: Any, wrap: Any) -> Seen:
    def step(x):
        np.random.seed(5)
        return x * np.random.uniform(0, 1, 3).astype(np.float32).sum().item()

    step = wrap(step)
    for _ in range(4):
        yield step(ramp(lib, 3))


@case
def library_normal(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x + lib.randn(3))
    for _ in range(5):
        yield step(ramp(lib, 3))


@case
def library_dropout(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: lib.nn.functional.dropout(x, 0.5))
    for _ in range(5):
        yield step(lib.ones(8))


@case
def library_dropout_in_training(lib: Any, wrap: Any) -> Seen:
    model = lib.nn.Sequential(layer(lib, 3, 8), lib.nn.Dropout(0.5), layer(lib, 8, 2))
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    step = wrap(step)
    for n in range(5):
        step(batch(lib, n))
        yield weights(model)
        if n == 2:
            lib.manual_seed(5)


@case
def library_seeded_between_calls(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x * lib.rand(3))
    for n in (1, 1, 2, 1, 1):
        lib.manual_seed(n)
        yield step(lib.ones(3))
        yield lib.rand(2)


@case
def library_state_saved_and_loaded(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x * lib.rand(3))
    kept = lib.get_rng_state()
    for n in range(5):
        if n in (2, 4):
            lib.set_rng_state(kept)
        yield step(lib.ones(3))


@case
def a_generator_given(lib: Any, wrap: Any) -> Seen:
    source = lib.Generator().manual_seed(11)
    step = wrap(lambda x: x + lib.randn(3, generator=source))
    for n in range(5):
        if n == 3:
            source.manual_seed(11)
        yield step(ramp(lib, 3))
    yield lib.rand(1, generator=source)


@case
def integers_and_permutations(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: (x[lib.randperm(4)], lib.randint(0, 10, (3,))))
    for _ in range(5):
        yield step(ramp(lib, 4))


@case
def bernoulli_of_an_argument(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda p: lib.bernoulli(p))
    for n in range(5):
        yield step(lib.full((6,), 0.2 * n))


@case
def in_place_noise(lib: Any, wrap: Any) -> Seen:
    state = lib.zeros(4)

    def step():
        state.add_(lib.empty(4).uniform_(-1, 1))
        return state.sum()

    step = wrap(step)
    for _ in range(5):
        yield step(), state


@case
def drawn_only_in_one_branch(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, noisy: x + lib.randn(3) if noisy else x * 1)
    for n in range(6):
        yield step(ramp(lib, 3), n % 2 == 0)


@case
def eager_and_compiled_draws_interleaved(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x + lib.rand(3))
    for _ in range(4):
        yield step(ramp(lib, 3)), lib.rand(3), random.random()


@case
def mixup_with_numpy_beta(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)

    def step(x, y):
        lam = np.random.beta(1.0, 1.0)
        order = lib.randperm(x.shape[0])
        mixed = lam * x + (1 - lam) * x[order]
        loss = lam * (model(mixed) - y).square().mean()
        loss.backward()
        return loss.detach()

    step = wrap(step)
    for n in range(4):
        yield step(batch(lib, n), batch(lib, n, 4, 2))


@case
def stochastic_depth(lib: Any, wrap: Any) -> Seen:
    layers = [layer(lib, 3, 3) for _ in range(3)]

    def step(x):
        for k, module in enumerate(layers):
            if random.random() < 0.3 * (k + 1):
                continue
            x = x + module(x)
        return x

    step = wrap(step)
    for n in range(6):
        yield step(batch(lib, n))


@case
def scheduled_sampling(lib: Any, wrap: Any) -> Seen:
    w = layer(lib, 3, 3)

    def step(x, h):
        for row in x:
            h = w(row if random.random() > 0.5 else h)
        return h

    step = wrap(step)
    for n in range(4):
        yield step(batch(lib, n), lib.zeros(3))


@case
def multinomial_as_the_next_token(lib: Any, wrap: Any) -> Seen:
    table = lib.softmax(ramp(lib, 4, 4), -1)
    step = wrap(lambda tokens: lib.multinomial(table[tokens], 1).squeeze(1))
    tokens = lib.zeros(3, dtype=lib.int64)
    for _ in range(4):
        tokens = step(tokens)
        yield tokens


@case
def drawn_by_a_helper_library(lib: Any, wrap: Any) -> Seen:
    import secrets  # noqa: F401 - imported as a user would
    import string

    step = wrap(lambda x: (x * 2, "".join(random.choices(string.ascii_lowercase, k=3))))
    for _ in range(4):
        yield step(ramp(lib, 3))
