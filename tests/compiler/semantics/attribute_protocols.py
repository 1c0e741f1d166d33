"""Attributes read through Python's protocols: properties, slots, descriptors, special methods."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

from .attributes import Scale
from .registry import Seen, case, ramp


@case
def read_by_a_property(lib: Any, wrap: Any) -> Seen:
    class Step:
        def __init__(self):
            self._beta = 0.5

        @property
        def beta(self):
            return 1.0 - self._beta

        def run(self, x):
            return x * self.beta

    s = Step()
    step = wrap(s.run)
    for n in range(5):
        s._beta = 0.1 * n
        yield step(ramp(lib, 3))


@case
def read_by_a_cached_property(lib: Any, wrap: Any) -> Seen:
    class Step:
        def __init__(self):
            self.size = 2

        @functools.cached_property
        def table(self):
            return [float(k) for k in range(self.size)]

        def run(self, x):
            return x + sum(self.table)

    s = Step()
    step = wrap(s.run)
    for n in range(5):
        s.size = 2 + n
        if n in (2, 4):
            del s.table
        yield step(ramp(lib, 3))
        yield "table" in vars(s)


@case
def read_from_slots(lib: Any, wrap: Any) -> Seen:
    class Options:
        __slots__ = ("gain", "shift")

        def __init__(self):
            self.gain, self.shift = 1.0, 0

    o = Options()
    step = wrap(lambda x: x * o.gain + o.shift)
    for n in range(5):
        o.gain, o.shift = 0.5 * n, n
        yield step(ramp(lib, 3))


@case
def read_by_getattr_with_a_computed_name(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(scale_a=1.0, scale_b=2.0, which="a")
    step = wrap(lambda x: x * getattr(s, f"scale_{s.which}"))
    for n in range(6):
        s.which = "ab"[n % 2]
        s.scale_a += 1
        yield step(ramp(lib, 3))


@case
def read_by_dunder_getattr(lib: Any, wrap: Any) -> Seen:
    class Lookup:
        def __init__(self):
            self.__dict__["table"] = {"gain": 1.0}

        def __getattr__(self, name):
            return self.table[name]

    s = Lookup()
    step = wrap(lambda x: x * s.gain)
    for n in range(5):
        s.table["gain"] = 3.0 - n
        yield step(ramp(lib, 3))


@case
def read_by_a_descriptor(lib: Any, wrap: Any) -> Seen:
    class Doubled:
        def __get__(self, owner, kind=None):
            return owner.base * 2

    class Step:
        gain = Doubled()
        base = 1.0

        def run(self, x):
            return x * self.gain

    s = Step()
    step = wrap(s.run)
    for n in range(5):
        s.base = float(n)
        yield step(ramp(lib, 3))


@case
def read_from_vars(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(a=1.0)
    step = wrap(lambda x: x * vars(s)["a"] + s.__dict__["a"])
    for n in range(5):
        s.a = 2.0 * n
        yield step(ramp(lib, 3))


@case
def attribute_of_a_function(lib: Any, wrap: Any) -> Seen:
    def helper(x):
        return x * helper.gain

    helper.gain = 1.0
    step = wrap(lambda x: helper(x))
    for n in range(5):
        helper.gain = 1.0 - n
        yield step(ramp(lib, 3))


@case
def attribute_read_by_map(lib: Any, wrap: Any) -> Seen:
    s = Scale(1.0)

    def scaled(y):
        return y * s.value

    step = wrap(lambda x: list(map(scaled, x)))
    for n in range(4):
        s.value += n
        yield step(ramp(lib, 3))


@case
def attribute_read_by_a_sort_key(lib: Any, wrap: Any) -> Seen:
    items = [SimpleNamespace(rank=1, t=1.0), SimpleNamespace(rank=2, t=2.0)]
    step = wrap(lambda x: x * sorted(items, key=lambda item: item.rank)[0].t)
    for n in range(5):
        items[n % 2].rank -= 1 + n
        yield step(ramp(lib, 3))


@case
def attribute_read_by_an_operator_getter(lib: Any, wrap: Any) -> Seen:
    import operator

    s = SimpleNamespace(inner=SimpleNamespace(gain=1.0))
    get = operator.attrgetter("inner.gain")
    step = wrap(lambda x: x * get(s))
    for n in range(4):
        s.inner.gain = 1.0 + 2 * n
        yield step(ramp(lib, 3))


@case
def attribute_used_in_dunder_methods(lib: Any, wrap: Any) -> Seen:
    class Affine:
        def __init__(self):
            self.a, self.n = 1.0, 2

        def __call__(self, x):
            return x * self.a

        def __len__(self):
            return self.n

        def __getitem__(self, k):
            return self.a + k

        def __contains__(self, k):
            return k < self.n

        def __bool__(self):
            return self.n > 0

    f = Affine()

    def step(x):
        if not f:
            return x
        return f(x) * len(f) + f[1] + (1 if 3 in f else 0)

    step = wrap(step)
    for n in range(6):
        f.a, f.n = n + 0.5, n % 5
        yield step(ramp(lib, 3))


@case
def attribute_used_by_a_context_manager(lib: Any, wrap: Any) -> Seen:
    class Scope:
        depth = 0

        def __enter__(self):
            self.depth += 1
            return self

        def __exit__(self, *error):
            self.depth -= 1

    scope = Scope()

    def step(x):
        with scope as s:
            return x * s.depth

    step = wrap(step)
    for n in range(4):
        scope.depth = n
        yield step(ramp(lib, 3))
        yield scope.depth


@case
def attribute_of_an_object_behind_partial(lib: Any, wrap: Any) -> Seen:
    s = Scale(1.0)
    step = wrap(functools.partial(lambda option, x: x * option.value, s))
    for n in range(4):
        s.value = 4.0 - n
        yield step(ramp(lib, 3))
