"""Structured arguments and results: dataclasses, tuples, dicts, namespaces, arrays, nesting."""

from __future__ import annotations

import argparse
import dataclasses
from collections import OrderedDict, defaultdict, namedtuple
from enum import Enum
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from .registry import Seen, batch, case, layer, leaf, ramp


@dataclasses.dataclass
class Batch:
    x: Any
    y: Any
    weight: float = 1.0


@dataclasses.dataclass(frozen=True)
class Options:
    gain: float = 1.0
    layers: int = 1
    name: str = "a"


@dataclasses.dataclass
class Nested:
    batch: Batch
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)


class Point(NamedTuple):
    x: Any
    y: Any
    tag: str = "p"


Pair = namedtuple("Pair", "first second")


class Mode(Enum):
    ADD = 1
    MUL = 2


def pair(lib, n):
    return ramp(lib, 3, start=float(n)), ramp(lib, 3, start=-1.0 * n)


@case
def a_dataclass_argument(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda b: (b.x - b.y).square().sum() * b.weight)
    for n in range(5):
        yield step(Batch(*pair(lib, n), weight=1.0 + n))


@case
def a_dataclass_changed_between_calls(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda b: b.x * b.y + b.weight)
    b = Batch(*pair(lib, 1))
    for n in range(5):
        b.weight = float(n)
        if n == 2:
            b.x = lib.ones(3)
        yield step(b)


@case
def a_dataclass_written_by_the_step(lib: Any, wrap: Any) -> Seen:
    def step(b):
        b.x = b.x * 2
        b.weight += 1
        return b.x.sum()

    step = wrap(step)
    b = Batch(*pair(lib, 1))
    for _ in range(4):
        yield step(b), b


@case
def a_dataclass_result(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, y: Batch(x * 2, x + y, weight=0.5))
    for n in range(4):
        found = step(*pair(lib, n))
        yield found, type(found) is Batch


@case
def a_dataclass_result_with_numbers(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, n: Nested(Batch(x * n, None, n), {"n": n, "s": str(n)}))
    for n in range(4):
        yield step(ramp(lib, 3), float(n))


@case
def a_nested_dataclass(lib: Any, wrap: Any) -> Seen:
    def step(n):
        return n.batch.x * n.extra.get("gain", 1.0) + n.batch.weight

    step = wrap(step)
    for n in range(5):
        yield step(Nested(Batch(*pair(lib, n)), {"gain": 2.0} if n % 2 else {}))


@case
def a_frozen_dataclass(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, o: x * o.gain if o.layers < 3 else x - o.gain)
    for n in range(5):
        yield step(ramp(lib, 3), Options(0.5 * n, n))


@case
def a_frozen_dataclass_closed_over(lib: Any, wrap: Any) -> Seen:
    o = Options()
    step = wrap(lambda x: x * o.gain + o.layers)
    for n in range(5):
        o = dataclasses.replace(o, gain=o.gain * 2, layers=n)
        yield step(ramp(lib, 3))


@case
def a_dataclass_replaced_inside(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda b, n: dataclasses.replace(b, x=b.x * n, weight=b.weight + n))
    for n in range(4):
        yield step(Batch(*pair(lib, n)), float(n))


@case
def a_named_tuple_argument(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda p: p.x + p[1] if p.tag == "p" else p.x)
    for n in range(5):
        yield step(Point(*pair(lib, n), tag="pq"[n % 2]))


@case
def a_named_tuple_result(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda p: p._replace(x=p.x * 2))
    for n in range(4):
        found = step(Point(*pair(lib, n)))
        yield found, type(found).__name__, found.x


@case
def a_collections_named_tuple(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda p: Pair(second=p.first, first=p.second * 2))
    for n in range(4):
        yield step(Pair(*pair(lib, n)))._asdict()


@case
def a_dictionary_argument(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda b: b["x"] * b["y"] if "y" in b else b["x"])
    for n in range(5):
        x, y = pair(lib, n)
        yield step({"x": x, "y": y} if n % 2 else {"x": x})


@case
def a_dictionary_in_another_order(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda b: (list(b), b["x"] - b["y"]))
    for n in range(4):
        x, y = pair(lib, n)
        yield step({"x": x, "y": y} if n % 2 else {"y": y, "x": x})


@case
def a_dictionary_result(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: {"loss": x.sum(), "n": x.numel(), "parts": [x * 2, {"inner": -x}]})
    for n in range(4):
        yield step(ramp(lib, 3, start=float(n)))


@case
def dictionaries_of_other_kinds(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda d: type(d)((k, v * 2) for k, v in d.items()))
    for n in range(4):
        d = OrderedDict(b=ramp(lib, 2, start=float(n)), a=lib.ones(2))
        found = step(d if n % 2 else dict(d))
        yield found, type(found).__name__


@case
def a_default_dictionary_argument(lib: Any, wrap: Any) -> Seen:
    def step(d, x):
        d["new"].append(x * 2)
        return len(d["new"])

    step = wrap(step)
    d = defaultdict(list)
    for n in range(4):
        yield step(d, ramp(lib, 2, start=float(n))), dict(d)


@case
def a_namespace_argument(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, o: x * o.gain - o.shift)
    for n in range(5):
        yield step(ramp(lib, 3), argparse.Namespace(gain=1.0 + n, shift=n))


@case
def a_namespace_closed_over(lib: Any, wrap: Any) -> Seen:
    args = argparse.Namespace(lr=0.1, depth=1)

    def step(x):
        for _ in range(args.depth):
            x = x - args.lr * x
        return x

    step = wrap(step)
    for n in range(5):
        args.lr *= 0.5
        args.depth = n
        yield step(ramp(lib, 3))


@case
def a_namespace_result(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: SimpleNamespace(a=x * 2, b=[x], c="text"))
    for n in range(4):
        yield step(ramp(lib, 3, start=float(n)))


@case
def an_array_argument(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, a: x * lib.from_numpy(a) + float(a[0]))
    for n in range(4):
        yield step(ramp(lib, 3), np.arange(3, dtype=np.float32) + n)


@case
def an_array_that_decides(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, a: x[a.astype(np.int64)] if a.sum() > 3 else x * 2)
    for n in range(4):
        yield step(ramp(lib, 4), np.array([0.0, 1.0, float(n)]))


@case
def arrays_in_results(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, a: {"a": a * 2, "x": x + float(a.sum())})
    for n in range(4):
        yield step(ramp(lib, 3), np.arange(3) + n)


@case
def tuples_of_varying_length(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda *parts: sum(part.sum() for part in parts) * len(parts))
    for n in (1, 2, 3, 2, 1):
        yield step(*[ramp(lib, 3, start=float(k)) for k in range(n)])


@case
def deep_nesting(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda t: {"out": ([t["a"][0][1]["b"] * 2], (t["a"][1],)), "n": t["n"] + 1})
    for n in range(4):
        x, y = pair(lib, n)
        yield step({"a": ((0, {"b": x}), y), "n": n})


@case
def empty_structures(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, parts: (x * 2, [], {}, (), None) if not parts else (x, parts))
    for n in range(4):
        yield step(ramp(lib, 3), [] if n % 2 else [1])


@case
def an_enum_argument(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, mode: x + 2 if mode is Mode.ADD else x * mode.value)
    for n in range(4):
        yield step(ramp(lib, 3), Mode.ADD if n % 2 else Mode.MUL)


@case
def a_plain_object_argument(lib: Any, wrap: Any) -> Seen:
    class Config:
        def __init__(self, gain):
            self.gain, self.inner = gain, {"shift": gain * 2}

    step = wrap(lambda x, c: x * c.gain + c.inner["shift"])
    c = Config(1.0)
    for n in range(6):
        c.inner["shift"] = float(n)
        yield step(ramp(lib, 3), c if n % 3 else Config(float(n)))


@case
def a_module_argument(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda model, x: model(x).sum())
    a, b = layer(lib), layer(lib)
    for n in range(5):
        with lib.no_grad():
            a.weight.mul_(1.1)
            b.bias.fill_(float(n))
        yield step(a if n % 2 else b, batch(lib, n))


@case
def an_optimizer_argument(lib: Any, wrap: Any) -> Seen:
    def step(model, optimizer, x):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    step = wrap(step)
    models = [layer(lib), layer(lib)]
    optimizers = [lib.optim.SGD(models[0].parameters(), lr=0.1), None]
    optimizers[1] = lib.optim.Adam(models[1].parameters(), lr=0.01)
    for n in range(6):
        step(models[n % 2], optimizers[n % 2], batch(lib, n))
        yield [m.weight for m in models]


@case
def a_function_argument(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda f, x: f(x) * 2)
    for n in range(5):
        yield step([lib.tanh, lib.exp, lambda y: y + n][n % 3], ramp(lib, 3))  # noqa: B023


@case
def a_parameter_in_a_structure(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda b: (b["w"] * b["x"]).sum().backward())
    w = leaf(lib, 1.0, 2.0, 3.0)
    for n in range(4):
        step({"w": w, "x": ramp(lib, 3, start=float(n))})
        yield w.grad


@case
def a_mapping_proxy(lib: Any, wrap: Any) -> Seen:
    base = {"gain": 1.0}
    step = wrap(lambda x, options: x * options["gain"])
    for n in range(4):
        base["gain"] = 1.0 + n
        yield step(ramp(lib, 3), MappingProxyType(base))


@case
def a_dataclass_with_methods(lib: Any, wrap: Any) -> Seen:
    @dataclasses.dataclass
    class State:
        h: Any
        n: int = 0

        def advance(self, x):
            return State(lib.tanh(self.h + x), self.n + 1)

    step = wrap(lambda s, x: s.advance(x))
    s = State(lib.zeros(3))
    for n in range(5):
        s = step(s, ramp(lib, 3, start=0.1 * n))
        yield s


@case
def a_range_and_a_set(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, r, s: sum(x * k for k in r) + len(s) * (1 if 2 in s else -1))
    for n in range(4):
        yield step(ramp(lib, 3), range(n), {n, n + 1})


@dataclasses.dataclass(slots=True)
class Slotted:
    x: Any
    gain: float = 1.0


@dataclasses.dataclass
class Linked:
    x: Any
    next: Any = None


@case
def a_slotted_dataclass_argument(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda b: b.x * b.gain)
    for n in range(6):
        yield step(Slotted(pair(lib, n)[0], gain=1.0 + n // 3))


@case
def a_dataclass_that_references_itself(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda b: b.x * (2 if b.next is b else 3))
    for n in range(5):
        b = Linked(pair(lib, n)[0])
        b.next = b if n % 2 else None
        yield step(b)


@case
def a_dataclass_with_a_method_that_changes(lib: Any, wrap: Any) -> Seen:
    @dataclasses.dataclass
    class Scaled:
        x: Any

        def scaled(self):
            return self.x * 2

    step = wrap(lambda b: b.scaled().sum())
    for n in range(6):
        if n == 3:
            Scaled.scaled = lambda self: self.x * 3
        yield step(Scaled(pair(lib, n)[0]))


@case
def a_dataclass_that_gets_another_field(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda b: b.x * getattr(b, "extra", 1.0))
    for n in range(6):
        b = Batch(*pair(lib, n))
        if n >= 3:
            b.extra = float(n)
        yield step(b)


@case
def a_dataclass_result_of_frozen_fields(lib: Any, wrap: Any) -> Seen:
    @dataclasses.dataclass(frozen=True)
    class Out:
        loss: Any
        rows: int

    step = wrap(lambda x: Out(x.sum(), len(x)))
    for n in range(5):
        out = step(batch(lib, n))
        yield out.loss, out.rows, type(out).__name__


@case
def a_dataclass_returned_as_it_was_given(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda b: b)
    for n in range(4):
        b = Batch(*pair(lib, n))
        yield step(b) is b


@case
def an_argument_that_is_also_closed_over(lib: Any, wrap: Any) -> Seen:
    options = {"gain": 2.0}
    step = wrap(lambda x, given: x * options["gain"] * given["gain"])
    for n in range(7):
        if n == 4:
            options["gain"] = 3.0
        yield step(pair(lib, n)[0], options if n < 4 else {"gain": 2.0})


@case
def a_dataclass_that_is_also_closed_over(lib: Any, wrap: Any) -> Seen:
    b = Batch(*pair(lib, 1))
    step = wrap(lambda x, given: x * b.weight * given.weight)
    for n in range(7):
        if n == 4:
            b.weight = 3.0
        yield step(pair(lib, n)[0], b if n < 4 else Batch(b.x, b.y))


@case
def the_sign_of_zero_in_a_dictionary(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, given: x / given["by"])
    for n in range(6):
        yield step(lib.ones(3), {"by": 0.0 if n < 3 else -0.0})


@case
def the_sign_of_a_numpy_zero(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, by: x / float(by))
    for n in range(6):
        yield step(lib.ones(3), np.float64(0.0 if n < 3 else -0.0))


@case
def keyword_arguments_in_another_order(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda **given: sum(v.sum() * (1 + n) for n, v in enumerate(given.values())))
    for n in range(6):
        x, y = pair(lib, n)
        yield step(x=x, y=y) if n % 2 else step(y=x, x=y)
