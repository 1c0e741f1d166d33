"""Generators and other iterators that run code of the user's, resumed by the step."""

from __future__ import annotations

import itertools
import random
from types import SimpleNamespace
from typing import Any

import numpy as np

from .registry import Seen, attempt, batch, case, layer, mlp, ramp, weights


@case
def batches_in_dictionaries(lib: Any, wrap: Any) -> Seen:
    def loader():
        for n in itertools.count():
            yield {"x": batch(lib, n), "y": ramp(lib, 4) + n}

    source, model = loader(), layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step():
        item = next(source)
        optimizer.zero_grad()
        loss = (model(item["x"]).sum(-1) - item["y"]).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = wrap(step)
    for n in range(6):
        if n == 3:
            next(source)
        yield step(), weights(model)


@case
def an_endless_loader(lib: Any, wrap: Any) -> Seen:
    """The loader begins again when it is exhausted."""
    data = [batch(lib, n) for n in range(3)]

    def cycle(items):
        while True:
            yield from items

    source, model = cycle(data), mlp(lib)
    step = wrap(lambda: model(next(source)).sum())
    for n in range(7):
        if n == 4:
            data[0] = data[0] * 2
        yield step()


@case
def a_generator_that_reads_what_the_step_writes(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(level=1.0)

    def levels():
        while True:
            yield s.level * 2

    source = levels()

    def step(x):
        s.level = s.level + 1
        return x * next(source)

    step = wrap(step)
    for n in range(6):
        if n == 4:
            s.level = -3.0
        yield step(ramp(lib, 3)), s.level


@case
def a_generator_that_writes_what_the_step_reads(lib: Any, wrap: Any) -> Seen:
    level = 1.0

    def levels():
        nonlocal level
        while True:
            level += 1
            yield level

    source = levels()
    step = wrap(lambda x: x * level + next(source) + level)
    for _ in range(5):
        yield step(ramp(lib, 3)), level


@case
def a_buffer_that_the_generator_writes_again(lib: Any, wrap: Any) -> Seen:
    def batches():
        buffer = lib.zeros(3)
        for n in itertools.count():
            buffer.fill_(float(n))
            yield buffer

    source = batches()

    def step(x):
        first = next(source)
        y = first * 2 + x
        second = next(source)
        return y, first + second, first is second

    step = wrap(step)
    for n in range(6):
        yield step(ramp(lib, 3) * n)


@case
def a_generator_over_the_parameters_of_the_step(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)

    def norms():
        while True:
            yield model.weight.detach().square().sum()

    source = norms()

    def step(x):
        with lib.no_grad():
            model.weight.mul_(0.5)
        return model(x).sum() * next(source)

    step = wrap(step)
    for n in range(5):
        yield step(batch(lib, n)), model.weight


@case
def a_generator_that_draws(lib: Any, wrap: Any) -> Seen:
    def noise():
        while True:
            yield lib.rand(3), random.random(), float(np.random.rand())

    source = noise()

    def step(x):
        drawn, a, b = next(source)
        return x + drawn * a, lib.rand(2), random.random() * b

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 3) * n)


@case
def a_generator_that_draws_after_the_step(lib: Any, wrap: Any) -> Seen:
    def noise():
        while True:
            yield lib.rand(3)

    source = noise()
    step = wrap(lambda x: (x + lib.rand(3), next(source), lib.rand(1)))
    for n in range(5):
        yield step(ramp(lib, 3) * n)


@case
def a_generator_that_prints(lib: Any, wrap: Any) -> Seen:
    def talking():
        for n in itertools.count():
            print("before", n)
            yield float(n)
            print("after", n)

    source = talking()

    def step(x):
        print("step")
        return x * next(source)

    step = wrap(step)
    for _ in range(5):
        yield step(ramp(lib, 3))


@case
def a_generator_that_ends(lib: Any, wrap: Any) -> Seen:
    source = (float(n) for n in range(4))

    def step(x):
        value = next(source, None)
        return x * 2 if value is None else x * value

    step = wrap(step)
    for _ in range(7):
        yield step(ramp(lib, 3))


@case
def a_generator_that_raises(lib: Any, wrap: Any) -> Seen:
    def failing():
        for n in range(3):
            yield float(n)
        raise ValueError("user: no more")

    source = failing()
    step = wrap(lambda x: x * next(source))
    for _ in range(6):
        yield attempt(step, ramp(lib, 3))


@case
def the_rest_of_a_generator_is_consumed(lib: Any, wrap: Any) -> Seen:
    made = []

    def parts(n):
        made.append(n)
        for k in range(n):
            yield ramp(lib, 3) * k

    s = SimpleNamespace(source=parts(2))

    def step(x):
        return sum(s.source, x)

    step = wrap(step)
    for n in range(6):
        s.source = parts(2 + n // 3)
        yield step(ramp(lib, 3)), made


@case
def a_generator_function_of_the_step(lib: Any, wrap: Any) -> Seen:
    """Made, consumed and dropped by the step itself."""
    s = SimpleNamespace(calls=0)

    def scaled(x, count):
        for k in range(count):
            s.calls += 1
            yield x * k + s.calls

    def step(x):
        first, *rest = scaled(x, 3)
        return first + sum(rest), [y.mean() for y in scaled(x, 2)]

    step = wrap(step)
    for n in range(5):
        if n == 3:
            s.calls = 100
        yield step(ramp(lib, 3) * n), s.calls


@case
def zipped_and_enumerated_generators(lib: Any, wrap: Any) -> Seen:
    def values():
        value = 0.5
        while True:
            yield value
            value *= 1.5

    source = enumerate(zip(values(), itertools.cycle([1.0, -1.0])))

    def step(x):
        n, (value, sign) = next(source)
        return x * value * sign + n

    step = wrap(step)
    for n in range(6):
        if n == 3:
            next(source)
        yield step(ramp(lib, 3))


@case
def one_generator_under_two_names(lib: Any, wrap: Any) -> Seen:
    source = (float(n) for n in itertools.count())
    s = SimpleNamespace(a=source, b={"source": source})
    step = wrap(lambda x: x * next(s.a) + next(s.b["source"]))
    for n in range(5):
        if n == 3:
            s.a = (float(-k) for k in itertools.count())
        yield step(ramp(lib, 3))


@case
def a_generator_that_calls_the_step(lib: Any, wrap: Any) -> Seen:
    def step(x, depth):
        return x * 2 if depth == 0 else x + next(source)

    run = wrap(step)

    def values():
        while True:
            yield run(ramp(lib, 3), 0).sum()

    source = values()
    for n in range(5):
        yield run(ramp(lib, 3) * n, 1)
