"""Attributes of objects read inside the step, however the read is spelled."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

from .registry import Seen, batch, case, layer, ramp


class Scale:
    def __init__(self, value):
        self.value = value


@case
def read_directly(lib: Any, wrap: Any) -> Seen:
    class Step:
        scale = 1.0

        def run(self, x):
            return x * self.scale

    s = Step()
    step = wrap(s.run)
    for n in range(5):
        s.scale = 1.0 + n
        yield step(ramp(lib, 3))


@case
def read_in_an_inner_function(lib: Any, wrap: Any) -> Seen:
    class Step:
        def __init__(self):
            self.scale = 1.0

        def run(self, x):
            def inner(y):
                return y * self.scale

            return inner(x) + inner(x * 2)

    s = Step()
    step = wrap(s.run)
    for n in range(5):
        s.scale = 1.0 + n
        yield step(ramp(lib, 3))


@case
def read_in_a_list_comprehension(lib: Any, wrap: Any) -> Seen:
    class Step:
        def __init__(self):
            self.powers = 2

        def run(self, x):
            return sum([x**k * self.powers for k in range(self.powers)])

    s = Step()
    step = wrap(s.run)
    for n in range(5):
        s.powers = 1 + n % 3
        yield step(ramp(lib, 3))


@case
def read_in_a_generator_expression(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(shift=0.0)
    step = wrap(lambda x: sum(x[k] + s.shift for k in range(3)))
    for n in range(5):
        s.shift = n * 10.0
        yield step(ramp(lib, 3))


@case
def read_in_a_dict_comprehension(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(names=["a", "b"], gain=1.0)
    step = wrap(lambda x: dict.fromkeys(s.names, x * s.gain))
    for n in range(5):
        s.gain += 1.0
        if n == 2:
            s.names = ["c"]
        yield step(ramp(lib, 3))


@case
def read_in_a_decorated_method(lib: Any, wrap: Any) -> Seen:
    def doubled(method):
        @functools.wraps(method)
        def call(self, *args):
            return method(self, *args) * self.factor

        return call

    class Step:
        factor = 2.0

        @doubled
        def run(self, x):
            return x + self.factor

    s = Step()
    step = wrap(s.run)
    for n in range(5):
        s.factor = 1.5 * n
        yield step(ramp(lib, 3))


@case
def read_through_super(lib: Any, wrap: Any) -> Seen:
    class Base:
        def run(self, x):
            return x * self.gain

    class Step(Base):
        def __init__(self):
            self.gain, self.offset = 1.0, 0.0

        def run(self, x):
            return super().run(x) + self.offset

    s = Step()
    step = wrap(s.run)
    for n in range(5):
        s.gain, s.offset = n + 1.0, -n
        yield step(ramp(lib, 3))


@case
def read_in_a_classmethod(lib: Any, wrap: Any) -> Seen:
    class Step:
        gain = 1.0

        @classmethod
        def scaled(cls, x):
            return x * cls.gain

        def run(self, x):
            return self.scaled(x) + 1

    step = wrap(Step().run)
    for n in range(5):
        Step.gain = 1.0 + n
        yield step(ramp(lib, 3))


@case
def read_in_a_staticmethod_through_the_class(lib: Any, wrap: Any) -> Seen:
    class Step:
        offset = 0

        @staticmethod
        def moved(x):
            return x + Step.offset

    step = wrap(Step.moved)
    for n in range(5):
        Step.offset = n
        yield step(ramp(lib, 3))


@case
def read_in_a_callback(lib: Any, wrap: Any) -> Seen:
    class Trainer:
        def __init__(self):
            self.callbacks, self.level = [], 0.0

        def run(self, x):
            for callback in self.callbacks:
                x = callback(self, x)
            return x

    t = Trainer()
    t.callbacks.append(lambda owner, x: x + owner.level)
    step = wrap(t.run)
    for n in range(6):
        t.level += 1.0
        if n == 3:
            t.callbacks.append(lambda owner, x: x * owner.level)
        yield step(ramp(lib, 3))


@case
def object_among_positional_arguments(lib: Any, wrap: Any) -> Seen:
    def step(*args):
        x, option = args
        return x * option.value

    step = wrap(step)
    s = Scale(1.0)
    for n in range(5):
        s.value = 1.0 + n
        yield step(ramp(lib, 3), s)
    yield step(ramp(lib, 3), Scale(-1.0))


@case
def object_among_keyword_arguments(lib: Any, wrap: Any) -> Seen:
    def step(x, **options):
        return x * options["scale"].value + options.get("shift", 0)

    step = wrap(step)
    s = Scale(1.0)
    for n in range(5):
        s.value = 1.0 + n
        yield step(ramp(lib, 3), scale=s) if n % 2 else step(ramp(lib, 3), scale=s, shift=n)


@case
def object_in_a_container_argument(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, held: x * held["inner"][0].value)
    s = Scale(1.0)
    held = {"inner": [s]}
    for n in range(6):
        s.value = 1.0 + n
        if n == 4:
            held["inner"][0] = Scale(-3.0)
        yield step(ramp(lib, 3), held)


@case
def object_handed_to_a_helper(lib: Any, wrap: Any) -> Seen:
    s = Scale(1.0)

    def helper(x, option):
        return deeper(x, option) + 1

    def deeper(x, option):
        return x * option.value

    step = wrap(lambda x: helper(x, s))
    for n in range(5):
        s.value = 2.0**n
        yield step(ramp(lib, 3))


@case
def chain_of_objects(lib: Any, wrap: Any) -> Seen:
    root = SimpleNamespace(a=SimpleNamespace(b=SimpleNamespace(c=1.0)))
    step = wrap(lambda x: x * root.a.b.c)
    for n in range(6):
        if n == 2:
            root.a.b = SimpleNamespace(c=7.0)
        elif n == 4:
            root.a = SimpleNamespace(b=SimpleNamespace(c=-1.0))
        else:
            root.a.b.c = 1.0 + n
        yield step(ramp(lib, 3))


@case
def attribute_that_appears_and_vanishes(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace()
    step = wrap(lambda x: x * s.gain if hasattr(s, "gain") else x)
    for n in range(6):
        if n % 2:
            s.gain = 1.0 + n
        elif n:
            del s.gain
        yield step(ramp(lib, 3))


@case
def configuration_of_a_layer(lib: Any, wrap: Any) -> Seen:
    pool = lib.nn.LeakyReLU(0.1)
    step = wrap(lambda x: pool(x))
    for n in range(4):
        pool.negative_slope = 0.1 * (n + 1)
        yield step(ramp(lib, 6))


@case
def flag_of_the_trainer(lib: Any, wrap: Any) -> Seen:
    class Trainer:
        def __init__(self):
            self.model = layer(lib)
            self.frozen = False

        def step(self, x):
            out = self.model(x).sum()
            if not self.frozen:
                out.backward()
            return out.detach()

    t = Trainer()
    step = wrap(t.step)
    for n in range(6):
        t.frozen = n in (1, 2, 5)
        yield step(batch(lib, n)), t.model.weight.grad
