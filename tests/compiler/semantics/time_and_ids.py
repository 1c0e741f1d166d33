"""Time, identities, types and lengths that the step reads."""

from __future__ import annotations

import itertools
import time
import uuid
from types import SimpleNamespace
from typing import Any

from .registry import Seen, batch, case, layer, ramp


@case
def the_time_advances(lib: Any, wrap: Any) -> Seen:
    stamps = []

    def step(x):
        stamps.append(time.perf_counter())
        return x * 2

    step = wrap(step)
    for _ in range(4):
        time.sleep(0.001)
        yield step(ramp(lib, 3))
    yield [b > a for a, b in itertools.pairwise(stamps)]


@case
def a_duration_is_measured(lib: Any, wrap: Any) -> Seen:
    def step(x):
        start = time.perf_counter()
        y = x.exp()
        return y, time.perf_counter() - start >= 0

    step = wrap(step)
    for _ in range(4):
        yield step(ramp(lib, 3))


@case
def a_clock_replaced(lib: Any, wrap: Any) -> Seen:
    clock = SimpleNamespace(now=lambda: 1.0)
    step = wrap(lambda x: x * clock.now())
    for n in range(4):
        clock.now = lambda n=n: 10.0 * n
        yield step(ramp(lib, 3))


@case
def a_deadline(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(deadline=time.monotonic() + 3600)
    step = wrap(lambda x: x if time.monotonic() < s.deadline else -x)
    for n in range(4):
        if n == 2:
            s.deadline = time.monotonic() - 1
        yield step(ramp(lib, 3))


@case
def stamps_differ_at_each_call(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: (x, time.time_ns()))
    stamps = []
    for _ in range(4):
        stamps.append(step(ramp(lib, 3))[1])
        time.sleep(0.001)
    yield len(set(stamps)), type(stamps[0]).__name__


@case
def unique_names_differ_at_each_call(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: (x, str(uuid.uuid4())))
    yield len({step(ramp(lib, 3))[1] for _ in range(4)})


@case
def id_of_an_argument_as_a_key(lib: Any, wrap: Any) -> Seen:
    known = {}

    def step(x):
        known[id(x)] = known.get(id(x), 0) + 1
        return x * known[id(x)]

    step = wrap(step)
    a, b = lib.ones(3), lib.ones(3)
    for x in (a, a, b, a, b):
        yield step(x)


@case
def id_of_a_parameter_as_a_key(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    scales = {id(model.weight): 2.0}
    step = wrap(lambda: sum(p.sum() * scales.get(id(p), 1.0) for p in model.parameters()))
    for n in range(4):
        scales[id(model.weight)] = 1.0 + n
        if n == 3:
            model.weight = lib.nn.Parameter(ramp(lib, 2, 3))
        yield step()


@case
def a_tensor_as_a_key(lib: Any, wrap: Any) -> Seen:
    w = lib.ones(3)
    table = {w: 1.0}
    step = wrap(lambda x: x * table[w])
    for n in range(4):
        table[w] = 2.0 * n
        yield step(ramp(lib, 3))


@case
def the_type_of_an_argument(lib: Any, wrap: Any) -> Seen:
    def step(x, v):
        if isinstance(v, lib.Tensor):
            return x * v
        if isinstance(v, (list, tuple)):
            return x * len(v)
        return x + v

    step = wrap(step)
    for v in (2.0, lib.tensor(3.0), [1, 2], (1,), 5, lib.tensor(1.0)):
        yield step(ramp(lib, 3), v)


@case
def the_name_of_a_type(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, v: (x * len(type(v).__name__), type(v) is int))
    for v in (1, 2.0, "a", None, True, 1):
        yield step(ramp(lib, 3), v)


@case
def hasattr_and_getattr_with_defaults(lib: Any, wrap: Any) -> Seen:
    class Options:
        pass

    o = Options()
    step = wrap(lambda x: x * getattr(o, "gain", 1.0) + (5 if hasattr(o, "shift") else 0))
    for n in range(5):
        if n == 1:
            o.gain = 2.0
        if n == 2:
            o.shift = None
        if n == 3:
            del o.gain
        if n == 4:
            Options.gain = 9.0
        yield step(ramp(lib, 3))


@case
def callable_and_len(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(f=1.0, items=[])

    def step(x):
        x = s.f(x) if callable(s.f) else x * s.f
        return x + len(s.items)

    step = wrap(step)
    for n in range(5):
        s.items.append(n)
        s.f = lib.tanh if n in (1, 4) else float(n)
        yield step(ramp(lib, 3))


@case
def the_truth_of_a_container(lib: Any, wrap: Any) -> Seen:
    hooks = []
    step = wrap(lambda x: hooks[-1](x) if hooks else x)
    for n in range(5):
        if n == 2:
            hooks.append(lib.exp)
        if n == 4:
            hooks.clear()
        yield step(ramp(lib, 3))


@case
def attributes_listed(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(w_a=1.0)
    step = wrap(lambda x: sum(x * v for k, v in vars(s).items() if k.startswith("w_")))
    for n in range(4):
        setattr(s, f"w_{n}", float(n))
        s.other = 100.0
        yield step(ramp(lib, 3))


@case
def names_listed_by_dir(lib: Any, wrap: Any) -> Seen:
    class Plugins:
        def run_a(self, x):
            return x + 1

    p = Plugins()

    def step(x):
        for name in dir(p):
            if name.startswith("run_"):
                x = getattr(p, name)(x)
        return x

    step = wrap(step)
    for n in range(4):
        if n == 2:
            Plugins.run_b = lambda self, x: x * 10
        yield step(ramp(lib, 3))


@case
def is_none_of_a_slot(lib: Any, wrap: Any) -> Seen:
    cache = [None]

    def step(x):
        if cache[0] is None:
            cache[0] = lib.arange(3, dtype=lib.float32)
        return x + cache[0]

    step = wrap(step)
    for n in range(5):
        if n == 3:
            cache[0] = lib.ones(3)
        if n == 4:
            cache[0] = None
        yield step(ramp(lib, 3)), cache


@case
def the_result_is_a_new_tensor(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x + 0)
    x = ramp(lib, 3)
    kept = [step(x) for _ in range(4)]
    yield len({id(t) for t in kept}), len({t.data_ptr() for t in kept}), kept[0] is x


@case
def tensors_die_when_released(lib: Any, wrap: Any) -> Seen:
    import weakref

    dead = []
    step = wrap(lambda x: x * 2)
    for n in range(3):
        x = ramp(lib, 3, start=float(n))
        weakref.finalize(x, dead.append, n)
        y = step(x)
        del x
        yield dead, y


@case
def the_device_and_the_version(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: (str(x.device), x.dtype == lib.float32, x * 2))
    for n in range(3):
        yield step(batch(lib, n))


@case
def a_budget_that_runs_out(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(left=2)

    def step(x):
        if s.left == 0:
            return "done"
        s.left -= 1
        return x * s.left

    step = wrap(step)
    for n in range(5):
        if n == 3:
            s.left = 1
        yield step(ramp(lib, 3)), s.left
