"""Iterators, generators and loaders consumed inside the step."""

from __future__ import annotations

import itertools
from typing import Any

from .registry import Seen, attempt, batch, case, layer, ramp


@case
def next_of_a_count(lib: Any, wrap: Any) -> Seen:
    ticks = itertools.count(1)
    step = wrap(lambda x: x * next(ticks))
    for _ in range(5):
        yield step(ramp(lib, 3))
    yield next(ticks)


@case
def next_of_a_cycle(lib: Any, wrap: Any) -> Seen:
    gains = itertools.cycle([1.0, 2.0, 3.0])
    step = wrap(lambda x: x * next(gains))
    for _ in range(5):
        yield step(ramp(lib, 3))


@case
def next_of_tensors(lib: Any, wrap: Any) -> Seen:
    source = iter([ramp(lib, 3, start=float(n)) for n in range(6)])
    step = wrap(lambda x: x + next(source))
    for _ in range(5):
        yield step(lib.ones(3))
    yield len(list(source))


@case
def next_of_a_generator(lib: Any, wrap: Any) -> Seen:
    def numbers():
        value = 1.0
        while True:
            yield value
            value *= 2

    source = numbers()
    step = wrap(lambda x: x * next(source))
    for _ in range(5):
        yield step(ramp(lib, 3))


@case
def a_generator_that_makes_tensors(lib: Any, wrap: Any) -> Seen:
    def batches():
        for n in itertools.count():
            yield batch(lib, n)

    source, model = batches(), layer(lib)
    step = wrap(lambda: model(next(source)).sum())
    for _ in range(4):
        yield step()


@case
def next_with_a_default(lib: Any, wrap: Any) -> Seen:
    source = iter([1.0, 2.0])
    step = wrap(lambda x: x * next(source, -1.0))
    for _ in range(5):
        yield step(ramp(lib, 3))


@case
def exhausted_iterator(lib: Any, wrap: Any) -> Seen:
    source = iter([1.0, 2.0])
    step = wrap(lambda x: x * next(source))
    for _ in range(4):
        yield attempt(step, ramp(lib, 3))


@case
def restarted_when_exhausted(lib: Any, wrap: Any) -> Seen:
    state = {"source": iter([1.0, 2.0]), "epochs": 0}

    def step(x):
        try:
            gain = next(state["source"])
        except StopIteration:
            state["source"] = iter([1.0, 2.0])
            state["epochs"] += 1
            gain = next(state["source"])
        return x * gain

    step = wrap(step)
    for _ in range(6):
        yield step(ramp(lib, 3)), state["epochs"]


@case
def an_iterator_given_as_argument(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, source: x * next(source))
    source = iter([1.0, 2.0, 3.0, 4.0, 5.0])
    for _ in range(4):
        yield step(ramp(lib, 3), source)
    yield list(source)


@case
def a_zip_consumed_partly(lib: Any, wrap: Any) -> Seen:
    pairs = zip([1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0], strict=True)

    def step(x):
        for a, b in pairs:
            return x * a + b
        return x

    step = wrap(step)
    for _ in range(6):
        yield step(ramp(lib, 3))


@case
def islice_of_a_shared_iterator(lib: Any, wrap: Any) -> Seen:
    source = iter(range(20))
    step = wrap(lambda x: x + sum(itertools.islice(source, 3)))
    for _ in range(5):
        yield step(ramp(lib, 3))
    yield next(source)


@case
def a_class_with_next(lib: Any, wrap: Any) -> Seen:
    class Halving:
        def __init__(self):
            self.value = 8.0

        def __iter__(self):
            return self

        def __next__(self):
            self.value /= 2
            return self.value

    source = Halving()
    step = wrap(lambda x: x * next(source))
    for n in range(5):
        if n == 3:
            source.value = 100.0
        yield step(ramp(lib, 3)), source.value


@case
def a_generator_sent_into(lib: Any, wrap: Any) -> Seen:
    def averager():
        total, count = 0.0, 0
        value = yield 0.0
        while True:
            total, count = total + value, count + 1
            value = yield total / count

    average = averager()
    next(average)
    step = wrap(lambda x, n: x * average.send(n))
    for n in range(5):
        yield step(ramp(lib, 3), float(n * n))


@case
def a_loader_iterated_in_the_step(lib: Any, wrap: Any) -> Seen:
    data = lib.utils.data.TensorDataset(ramp(lib, 6, 3))
    loader = lib.utils.data.DataLoader(data, batch_size=2)
    model = layer(lib)

    def step(gain):
        total = 0.0
        for (x,) in loader:
            total = total + model(x).sum() * gain
        return total

    step = wrap(step)
    for n in range(4):
        yield step(float(n))


@case
def a_shuffling_loader_in_the_step(lib: Any, wrap: Any) -> Seen:
    data = lib.utils.data.TensorDataset(ramp(lib, 6, 3))
    loader = lib.utils.data.DataLoader(data, batch_size=3, shuffle=True)

    def step(x):
        for (rows,) in loader:
            x = x * 2 + rows.sum(0)
        return x

    step = wrap(step)
    for _ in range(4):
        yield step(lib.zeros(3))


@case
def next_of_a_loader_iterator(lib: Any, wrap: Any) -> Seen:
    data = lib.utils.data.TensorDataset(ramp(lib, 8, 3))
    source = iter(lib.utils.data.DataLoader(data, batch_size=2))
    step = wrap(lambda gain: next(source)[0] * gain)
    for n in range(4):
        yield step(float(n))


@case
def enumerate_kept_outside(lib: Any, wrap: Any) -> Seen:
    source = enumerate([5.0, 6.0, 7.0, 8.0])

    def step(x):
        index, gain = next(source)
        return x * gain + index

    step = wrap(step)
    for _ in range(4):
        yield step(ramp(lib, 3))


@case
def a_map_kept_outside(lib: Any, wrap: Any) -> Seen:
    shift = 0.0
    source = map(lambda v: v + shift, itertools.count())  # noqa: C417
    step = wrap(lambda x: x * next(source))
    for n in range(5):
        shift = 10.0 * n
        yield step(ramp(lib, 3))


@case
def an_iterator_over_a_growing_list(lib: Any, wrap: Any) -> Seen:
    items = [1.0, 2.0]
    source = iter(items)
    step = wrap(lambda x: x * next(source))
    for n in range(5):
        items.append(10.0 + n)
        yield step(ramp(lib, 3))


@case
def a_generator_method(lib: Any, wrap: Any) -> Seen:
    class Data:
        start = 0.0

        def parts(self):
            for k in range(3):
                yield self.start + k

    data = Data()
    step = wrap(lambda x: sum(x * part for part in data.parts()))
    for n in range(5):
        data.start = 2.0 * n
        yield step(ramp(lib, 3))


@case
def a_generator_function_as_the_step(lib: Any, wrap: Any) -> Seen:
    gain = 1.0

    def step(x):
        for k in range(3):
            yield x * gain + k

    step = wrap(step)
    for n in range(4):
        gain = 1.0 + n
        yield list(step(ramp(lib, 3)))


@case
def a_permuted_sampler(lib: Any, wrap: Any) -> Seen:
    class Sampler:
        def __init__(self):
            self.epoch = 0

        def __iter__(self):
            source = lib.Generator().manual_seed(self.epoch)
            self.epoch += 1
            return iter(lib.randperm(4, generator=source).tolist())

    sampler = Sampler()
    step = wrap(lambda x: x[list(sampler)])
    for _ in range(4):
        yield step(ramp(lib, 4)), sampler.epoch


@case
def reversed_and_tee(lib: Any, wrap: Any) -> Seen:
    first, second = itertools.tee(itertools.count(3))
    step = wrap(lambda x: x * next(first))
    for _ in range(4):
        yield step(ramp(lib, 3))
    yield next(second), next(first)
