"""Python numbers that the step itself changes."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

from .registry import Seen, batch, case, layer, ramp, weights


@case
def an_attribute_counted(lib: Any, wrap: Any) -> Seen:
    class Trainer:
        step = 0

        def run(self, x):
            self.step += 1
            return x * self.step

    t = Trainer()
    run = wrap(t.run)
    for n in range(6):
        if n == 4:
            t.step = 100
        yield run(ramp(lib, 3)), t.step


@case
def an_attribute_counted_and_not_used(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(calls=0)

    def step(x):
        s.calls += 1
        return x * 2

    step = wrap(step)
    for _ in range(5):
        yield step(ramp(lib, 3)), s.calls


@case
def a_dictionary_entry_counted(lib: Any, wrap: Any) -> Seen:
    d = {"n": 0}

    def step(x):
        d["n"] += 1
        return x / d["n"]

    step = wrap(step)
    for _ in range(5):
        yield step(ramp(lib, 3)), d


@case
def a_list_element_counted(lib: Any, wrap: Any) -> Seen:
    counts = [0, 0]

    def step(x, k):
        counts[k] += 1
        return x + counts[k]

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 3), n % 2), counts


@case
def every_third_call(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(n=0)
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        s.n += 1
        model(x).square().mean().backward()
        if s.n % 3 == 0:
            optimizer.step()
            optimizer.zero_grad()

    step = wrap(step)
    for n in range(7):
        step(batch(lib, n))
        yield weights(model), s.n


@case
def bias_correction_by_hand(lib: Any, wrap: Any) -> Seen:
    state = {"t": 0, "m": lib.zeros(3)}

    def step(g):
        state["t"] += 1
        state["m"].mul_(0.9).add_(g, alpha=0.1)
        return state["m"] / (1 - 0.9 ** state["t"])

    step = wrap(step)
    for n in range(6):
        yield step(ramp(lib, 3, start=float(n)))


@case
def cosine_of_the_count(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(n=0, total=5)

    def step(x):
        rate = 0.5 * (1 + math.cos(math.pi * s.n / s.total))
        s.n += 1
        return x * rate

    step = wrap(step)
    for _ in range(6):
        yield step(ramp(lib, 3))


@case
def a_float_that_decays(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(epsilon=1.0)

    def step(x):
        s.epsilon *= 0.9
        s.epsilon = max(s.epsilon, 0.7)
        return x * s.epsilon

    step = wrap(step)
    for _ in range(6):
        yield step(ramp(lib, 3)), s.epsilon


@case
def a_flag_set_at_the_first_call(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(ready=False)

    def step(x):
        if not s.ready:
            s.ready = True
            return x * 100
        return x

    step = wrap(step)
    for n in range(5):
        if n == 3:
            s.ready = False
        yield step(ramp(lib, 3)), s.ready


@case
def a_string_built_up(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(log="")

    def step(x):
        s.log = s.log + "ab"[len(s.log) % 2]
        return x * len(s.log)

    step = wrap(step)
    for _ in range(5):
        yield step(ramp(lib, 3)), s.log


@case
def a_counter_in_a_class(lib: Any, wrap: Any) -> Seen:
    class Step:
        calls = 0

        def run(self, x):
            type(self).calls += 1
            return x + Step.calls

    run = wrap(Step().run)
    for _ in range(5):
        yield run(ramp(lib, 3)), Step.calls


@case
def a_counter_in_a_module(lib: Any, wrap: Any) -> Seen:
    class Net(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.n = layer(lib), 0

        def forward(self, x):
            self.n += 1
            return self.layer(x) * self.n

    net = Net()
    run = wrap(net)
    for n in range(5):
        yield run(batch(lib, n)), net.n


@case
def a_tensor_counter(lib: Any, wrap: Any) -> Seen:
    count = lib.zeros((), dtype=lib.int64)

    def step(x):
        count.add_(1)
        return x * count

    step = wrap(step)
    for n in range(5):
        if n == 3:
            count.fill_(10)
        yield step(ramp(lib, 3)), count


@case
def a_counter_by_setattr(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(n=0)

    def step(x):
        setattr(s, "n", getattr(s, "n") + 2)  # noqa: B009, B010
        return x * s.n

    step = wrap(step)
    for _ in range(5):
        yield step(ramp(lib, 3)), s.n


@case
def a_counter_in_slots(lib: Any, wrap: Any) -> Seen:
    class Meter:
        __slots__ = ("count", "sum")

        def __init__(self):
            self.sum, self.count = 0.0, 0

        def update(self, value):
            self.sum += value
            self.count += 1
            return self.sum / self.count

    meter = Meter()
    step = wrap(lambda x, v: x * meter.update(v))
    for n in range(5):
        yield step(ramp(lib, 3), float(n)), meter.sum, meter.count


@case
def a_counter_behind_a_property(lib: Any, wrap: Any) -> Seen:
    class Step:
        def __init__(self):
            self._n = 0

        @property
        def n(self):
            self._n += 1
            return self._n

        def run(self, x):
            return x * self.n + self.n

    s = Step()
    run = wrap(s.run)
    for _ in range(5):
        yield run(ramp(lib, 3)), s._n


@case
def a_counter_in_another_object(lib: Any, wrap: Any) -> Seen:
    class Clock:
        def __init__(self):
            self.now = 0

        def tick(self):
            self.now += 1
            return self

    clocks = {"a": Clock(), "b": Clock()}
    step = wrap(lambda x, key: x * clocks[key].tick().now)
    for key in "aabab":
        yield step(ramp(lib, 3), key), clocks["a"].now, clocks["b"].now


@case
def patience_of_early_stopping(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(best=math.inf, bad=0)

    def step(x):
        loss = x.square().sum().item()
        if loss < s.best:
            s.best, s.bad = loss, 0
        else:
            s.bad += 1
        return s.bad >= 2

    step = wrap(step)
    for n in (3, 2, 1, 2, 3, 0):
        yield step(ramp(lib, 3, start=float(n))), s.best, s.bad


@case
def a_counter_of_one_of_two_instances(lib: Any, wrap: Any) -> Seen:
    class Step:
        def __init__(self, gain):
            self.n, self.gain = 0, gain

        @wrap
        def run(self, x):
            self.n += 1
            return x * self.n * self.gain

    a, b = Step(1.0), Step(10.0)
    for s in (a, b, a, a, b):
        yield s.run(ramp(lib, 3)), a.n, b.n


@case
def swapped_buffers(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(front=lib.zeros(3), back=lib.ones(3), swaps=0)

    def step(x):
        s.front, s.back = s.back, s.front
        s.swaps += 1
        s.front.add_(x)
        return s.front.sum()

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 3, start=float(n))), s.front, s.back, s.swaps


@case
def an_int_that_becomes_large(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(n=2**62)

    def step(x):
        s.n = s.n * 2 + 1
        return x + float(s.n % 7)

    step = wrap(step)
    for _ in range(4):
        yield step(ramp(lib, 3)), s.n


@case
def a_ring_buffer_position(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(at=0)
    memory = lib.zeros(3, 2)

    def step(x):
        memory[s.at] = x
        s.at = (s.at + 1) % 3
        return memory.sum()

    step = wrap(step)
    for n in range(5):
        yield step(lib.full((2,), float(n))), memory, s.at
