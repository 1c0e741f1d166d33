"""Numbers that are others at every call, wherever they are: arguments, containers, objects."""

from __future__ import annotations

import math
from collections import OrderedDict, namedtuple
from dataclasses import dataclass, replace
from math import exp
from types import SimpleNamespace
from typing import Any

import numpy as np

from .registry import Seen, attempt, batch, case, layer, ramp, weights

Pair = namedtuple("Pair", "count rate")
LEVEL = 1


@dataclass
class Options:
    count: int
    rate: float


@dataclass(frozen=True)
class Frozen:
    count: int
    rate: float


@case
def an_int_in_arithmetic(lib: Any, wrap: Any) -> Seen:
    step = wrap(
        lambda x, n: x * n + (n - 3) / (n + 1) - n // 2 + n % 3 + (n << 1) + -n + abs(n - 4)
    )
    for n in range(8):
        yield step(ramp(lib, 3), n)


@case
def an_int_near_the_edge_of_float64(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, n: (x + n, n + 1))
    for n in (3, 2**40, 2**53 - 1, 2**53 + 1, -(2**60), 5):
        yield step(lib.arange(3), n)


@case
def an_int_of_any_size(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, n: (x * (n % 7), n * n))
    for n in (1, 2, 10**30, 3, -(10**25), 4):
        yield step(ramp(lib, 3), n)


@case
def an_int_that_chooses(lib: Any, wrap: Any) -> Seen:
    def step(x, n):
        if n % 3 == 0:
            return x * 2
        return x - n if n > 4 else x + n

    step = wrap(step)
    for n in range(9):
        yield step(ramp(lib, 3), n)


@case
def an_int_that_is_zero(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, n: x / n if n else x * 100)
    for n in (2, 1, 0, 3, 0, -1):
        yield step(ramp(lib, 3), n)


@case
def a_division_by_it(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, n: x * (6 / n))
    for n in (2, 1, 0, 3, 0, -1):
        yield attempt(step, ramp(lib, 3), n)


@case
def an_int_that_is_returned(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, n: {"n": n, "next": n + 1, "is_even": n % 2 == 0, "x": x + n, "t": (n,)})
    for n in range(6):
        found = step(ramp(lib, 3), n)
        yield found, [type(v).__name__ for v in found.values()], type(found["t"][0]).__name__


@case
def an_int_that_is_kept(lib: Any, wrap: Any) -> Seen:
    kept, last = [], {}

    def step(x, n):
        kept.append(n * 2)
        last["n"] = n
        return x * n

    step = wrap(step)
    for n in range(6):
        yield step(ramp(lib, 3), n), list(kept), dict(last), [type(k).__name__ for k in kept]


@case
def an_int_as_a_key(lib: Any, wrap: Any) -> Seen:
    table, seen = {0: 1.0, 1: 2.0, 2: 3.0}, set()

    def step(x, n):
        seen.add(n)
        return x * table.setdefault(n, 0.5)

    step = wrap(step)
    for n in (0, 1, 2, 5, 1, 7):
        yield step(ramp(lib, 3), n), dict(table), sorted(seen), [type(k).__name__ for k in table]


@case
def an_int_as_a_shape_and_a_factor(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, n, k: x[:n].sum(0) * k + lib.ones(k % 2 + 1).sum())
    for n, k in ((1, 2), (2, 3), (2, 4), (3, 4), (1, 5), (3, 6)):
        yield step(ramp(lib, 4, 3), n, k)


@case
def an_int_in_a_loop(lib: Any, wrap: Any) -> Seen:
    def step(x, n):
        for k in range(n):
            x = x * 0.5 + k
        return x / n

    step = wrap(step)
    for n in (1, 2, 3, 2, 4, 1):
        yield step(ramp(lib, 3), n)


@case
def an_int_with_an_int_tensor(lib: Any, wrap: Any) -> Seen:
    def step(x, n):
        return x + n, x * n, x // (n + 1), x % (n + 1), x == n, x & n, x.clamp(max=n), x / (n + 1)

    step = wrap(step)
    for n in range(5):
        yield step(lib.arange(6), n)


@case
def an_int_with_small_dtypes(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda a, b, n: (a + n, b * n, a.to(lib.int16) - n))
    for n in (1, 2, 3, 100, 5):
        yield step(lib.arange(4, dtype=lib.int8), lib.arange(4, dtype=lib.float64), n)


@case
def an_int_then_a_float_then_a_bool(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, n: (x * n, lib.arange(3) * n))
    for n in (1, 2, 2.0, 3.0, True, False, 4, np.float64(2), np.int64(2), 5):
        yield step(ramp(lib, 3), n)


@case
def numbers_of_numpy(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, a, b: (x * a + b, a + b, a * 2, lib.arange(3) * b))
    for n in range(6):
        found = step(ramp(lib, 3), np.float32(0.1 * n), np.int64(n))
        yield found, [type(f).__name__ for f in found[1:3]]


@case
def a_numpy_float_in_functions(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, t: x * np.exp(-t) + np.sin(t) * math.cos(t) + np.maximum(t, 0.2))
    for n in range(6):
        yield step(ramp(lib, 3), np.float64(0.3 * n))


@case
def a_numpy_float_that_overflows(lib: Any, wrap: Any) -> Seen:
    def step(x, t):
        with np.errstate(all="ignore"):
            return x * 0 + float(t * t), 1 / t

    step = wrap(step)
    for t in (1.0, 2.0, 1e200, 0.0, 3.0):
        yield step(ramp(lib, 3), np.float64(t))


@case
def a_numpy_float_with_attributes(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, t: (x * t.item() + t.real, t.dtype.name, t.shape))
    for n in range(5):
        yield step(ramp(lib, 3), np.float64(0.3 * n))


@case
def in_a_dictionary(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, options: x * options["count"] - options["deep"]["rate"])
    for n in range(6):
        options = {"count": n, "deep": {"rate": 0.1 * n}}
        yield step(ramp(lib, 3), options), options, type(options["count"]).__name__


@case
def in_a_dictionary_that_is_changed(lib: Any, wrap: Any) -> Seen:
    def step(x, options):
        options["count"] += 1
        return x * options["count"]

    step = wrap(step)
    for n in range(6):
        options = {"count": n}
        yield step(ramp(lib, 3), options), options, type(options["count"]).__name__


@case
def in_one_dictionary_for_all_calls(lib: Any, wrap: Any) -> Seen:
    options = {"count": 0, "rate": 0.5}
    step = wrap(lambda x, options: x * options["count"] + options["rate"])
    for n in range(6):
        options["count"], options["rate"] = n, 0.1 * n
        yield step(ramp(lib, 3), options), dict(options)


@case
def in_a_list(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, numbers: x * numbers[0] + sum(numbers) + max(numbers))
    for n in range(6):
        numbers = [n, n + 1, 0.5 * n]
        yield step(ramp(lib, 3), numbers), numbers, [type(k).__name__ for k in numbers]


@case
def in_a_list_that_is_sorted(lib: Any, wrap: Any) -> Seen:
    def step(x, numbers):
        numbers.sort()
        return x * numbers[0] - numbers[-1]

    step = wrap(step)
    for n in range(6):
        numbers = [5 - n, n, 3]
        yield step(ramp(lib, 3), numbers), numbers


@case
def in_tuples(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, pair, named: x * pair[0] + pair[1][0] - named.count * named.rate)
    for n in range(6):
        yield step(ramp(lib, 3), (n, (0.5 * n, 1)), Pair(n + 1, 0.1 * n))


@case
def in_dataclasses(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, a, b: x * a.count - a.rate + b.count * b.rate)
    for n in range(6):
        a, b = Options(n, 0.1 * n), replace(Frozen(1, 2.0), count=n)
        yield step(ramp(lib, 3), a, b), a, b, type(a.count).__name__, type(b.count).__name__


@case
def in_a_namespace_that_is_kept(lib: Any, wrap: Any) -> Seen:
    space = SimpleNamespace(count=0, rate=1.0)
    step = wrap(lambda x, space: x * space.count + space.rate)
    for n in range(6):
        space.count, space.rate = n * 2, 1.0 / (n + 1)
        yield step(ramp(lib, 3), space), vars(space)


@case
def in_an_ordered_dictionary(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, options: x * options["n"] + len(options))
    for n in range(5):
        options = OrderedDict(n=n, m=2)
        yield step(ramp(lib, 3), options), options


@case
def containers_that_are_returned(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, pair, options: (x * pair[0], pair, options))
    for n in range(5):
        pair, options = (n, 2), {"n": n}
        found = step(ramp(lib, 3), pair, options)
        yield found, found[2] is options


@case
def as_variable_arguments(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, *numbers, **named: x * sum(numbers) - named["k"] * len(numbers))
    for n in range(6):
        yield step(ramp(lib, 3), n, n + 1, k=n)


@case
def an_attribute_set_before_each_call(lib: Any, wrap: Any) -> Seen:
    owner = SimpleNamespace(count=0, rate=1.0)

    class Holder:
        __slots__ = ("level",)

    holder = Holder()
    step = wrap(lambda x: x * owner.count + owner.rate - holder.level)
    for n in range(7):
        owner.count, owner.rate, holder.level = n, 0.5**n, n % 3
        yield step(ramp(lib, 3)), vars(owner), holder.level, type(owner.count).__name__


@case
def an_attribute_as_a_shape(lib: Any, wrap: Any) -> Seen:
    owner = SimpleNamespace(rows=1)
    step = wrap(lambda x: x[: owner.rows].sum(0) / owner.rows)
    for n in (1, 2, 3, 1, 2, 3, 4, 1):
        owner.rows = n
        yield step(ramp(lib, 4, 3)), owner.rows


@case
def an_attribute_of_the_model(lib: Any, wrap: Any) -> Seen:
    class Net(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = layer(lib)
            self.temperature, self.depth = 1.0, 1

        def forward(self, x):
            return self.inner(x) / self.temperature + self.depth

    net = Net()
    step = wrap(lambda x: net(x).sum(0))
    for n in range(6):
        net.temperature, net.depth = 1.0 + n, n
        yield step(batch(lib, n)), net.temperature, net.depth


@case
def a_global_set_before_each_call(lib: Any, wrap: Any) -> Seen:
    global LEVEL
    step = wrap(lambda x: x * LEVEL if LEVEL < 5 else x - LEVEL)
    for n in range(7):
        LEVEL = n + 1
        yield step(ramp(lib, 3)), LEVEL
    LEVEL = 1


@case
def a_variable_set_before_each_call(lib: Any, wrap: Any) -> Seen:
    level = 0
    step = wrap(lambda x: x * level)
    for n in range(6):
        level = n
        yield step(ramp(lib, 3)), level


@case
def entries_set_before_each_call(lib: Any, wrap: Any) -> Seen:
    options, numbers = {"rate": 0.1, "kind": "a"}, [1, 2, 3]
    step = wrap(lambda x: x * options["rate"] + numbers[1] * (2 if options["kind"] == "a" else 3))
    for n in range(7):
        options["rate"], numbers[1] = 0.1 * n, n
        if n == 4:
            options["kind"] = "b"
        if n == 5:
            numbers.append(7)
        yield step(ramp(lib, 3)), dict(options), list(numbers)


@case
def a_number_that_is_read_and_changed_by_others(lib: Any, wrap: Any) -> Seen:
    owner = SimpleNamespace(count=0)

    def step(x):
        owner.count += 1
        return x * owner.count

    step = wrap(step)
    for n in range(8):
        if n % 3 == 2:
            owner.count = 10 * n
        yield step(ramp(lib, 3)), owner.count


@case
def a_number_that_becomes_something_else(lib: Any, wrap: Any) -> Seen:
    owner = SimpleNamespace(gain=1)
    step = wrap(lambda x: x * owner.gain)
    for gain in (1, 2, 3, 0.5, True, lib.tensor(2.0), 4, np.float32(0.25), 5):
        owner.gain = gain
        yield step(ramp(lib, 3))


@case
def a_number_that_hides_that_of_the_class(lib: Any, wrap: Any) -> Seen:
    class Base:
        gain = 1

    class Step(Base):
        pass

    owner = Step()
    step = wrap(lambda x: x * owner.gain)
    for n in range(8):
        Base.gain = n + 1
        if n == 3:
            Step.gain = -1
        if n == 5:
            owner.gain = 50
        if n == 6:
            del owner.gain, Step.gain
        yield step(ramp(lib, 3))


@case
def a_class_attribute_that_is_added_below(lib: Any, wrap: Any) -> Seen:
    class Base:
        gain = 2.0

    class Step(Base):
        def run(self, x):
            return x * self.gain

    step = wrap(Step().run)
    for n in range(5):
        if n == 3:
            Step.gain = -1.0
        yield step(ramp(lib, 3))


@case
def an_object_with_conversions(lib: Any, wrap: Any) -> Seen:
    class Number:
        def __init__(self):
            self.value = 1

        def __len__(self):
            return self.value

        def __float__(self):
            return self.value * 1.0

        def __hash__(self):
            return self.value

    number = Number()
    step = wrap(lambda x: x * float(number) + len(number) + len({number: 1}))
    for n in range(6):
        number.value = n + 1
        yield step(ramp(lib, 3)), type(number.value).__name__


@case
def numbers_in_the_schedule_of_a_rate(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x, n, total):
        rate = 0.05 * (1 + math.cos(math.pi * n / total)) if n > 2 else 0.1 * (n + 1) / 3
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = wrap(step)
    for n in range(8):
        yield step(batch(lib, n), n, 8), weights(model), optimizer.param_groups[0]["lr"]


@case
def annealed_weights_of_losses(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.Adam(model.parameters(), lr=0.01)

    def step(x, epoch, *, beta):
        optimizer.zero_grad()
        out = model(x)
        weight = min(1.0, epoch / 4) * beta
        loss = out.square().mean() + weight * out.abs().mean()
        if epoch >= 3:
            loss = loss + model.weight.square().sum() * 10.0**-epoch
        loss.backward()
        optimizer.step()
        return loss.detach(), weight

    step = wrap(step)
    for n in range(8):
        yield step(batch(lib, n), n, beta=0.5 + n), weights(model)


@case
def a_number_given_to_other_threads_of_code(lib: Any, wrap: Any) -> Seen:
    def inner(x, n):
        values = [n * k for k in range(3)]
        table = {k: v + n for k, v in enumerate(values)}
        return x * sum(values) + max(table.values()) - min(values, key=lambda v: -v)

    step = wrap(lambda x, n: inner(x, n) + inner(x, n + 1))
    for n in range(6):
        yield step(ramp(lib, 3), n)


@case
def text_with_a_number(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, n: (x * n, f"{n:03d}", str(n), repr(n), [n] * 2, n.bit_length()))
    for n in range(5):
        yield step(ramp(lib, 3), n)


@case
def random_numbers_with_a_changing_probability(lib: Any, wrap: Any) -> Seen:
    lib.manual_seed(3)
    step = wrap(lambda x, p: lib.nn.functional.dropout(x, p) * 2)
    for n in range(6):
        yield step(ramp(lib, 30), 0.1 * n), lib.rand(2)


@case
def a_gradient_by_what_it_scales(lib: Any, wrap: Any) -> Seen:
    w = lib.ones(3, requires_grad=True)

    def step(x, n):
        loss = (w * x * n).sum() / max(n, 1)
        return loss, lib.autograd.grad(loss, w)[0]

    step = wrap(step)
    for n in range(6):
        loss, grad = step(ramp(lib, 3), n)
        yield loss.detach(), grad


@case
def functions_of_math(lib: Any, wrap: Any) -> Seen:
    def step(x, n, t):
        level = math.floor(t * 3) + math.ceil(t) + round(t) + round(t, 1) + math.trunc(t + 0.5)
        curve = math.sqrt(n) * exp(-t) + math.log(n + 1, 2) + math.hypot(n, t) + math.pow(t, 2)
        if math.isfinite(t) and not math.isnan(n):
            x = x + level
        return x * curve, level, curve, math.cos(0.5)

    step = wrap(step)
    for n in range(7):
        found = step(ramp(lib, 3), n, 0.37 * n)
        yield found, [type(f).__name__ for f in found[1:]], math.cos.__name__, exp(0.5)


@case
def functions_of_math_that_raise(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, n: x * math.sqrt(n) + math.log(n + 1))
    for n in (1, 2, -1, 3, -4, 0):
        yield attempt(step, ramp(lib, 3), n)


@case
def functions_of_math_replaced(lib: Any, wrap: Any) -> Seen:
    owner = SimpleNamespace(n=1, f=math.sin)
    step = wrap(lambda x: x * owner.f(owner.n) + math.fabs(owner.n))
    for n in range(6):
        owner.n = n - 3
        if n == 3:
            owner.f = math.cos
        yield step(ramp(lib, 3)), owner.f.__name__


@case
def a_warm_up_by_a_counter(lib: Any, wrap: Any) -> Seen:
    class Trainer:
        def __init__(self):
            self.count, self.rate = 0, 0.0
            self.weight = lib.ones(3)

        def step(self, x):
            self.count += 1
            share = min(1.0, self.count / 4)
            self.rate = 0.1 * share * 0.5 * (1 + math.cos(math.pi * self.count / 10))
            self.weight.sub_(x * self.rate)
            return self.weight.sum()

    trainer = Trainer()
    step = wrap(trainer.step)
    for _ in range(8):
        yield step(ramp(lib, 3)), trainer.count, trainer.rate, trainer.weight


@case
def a_function_stored_by_the_step(lib: Any, wrap: Any) -> Seen:
    kept = {}

    def step(x, n):
        kept["f"] = math.cos
        return x * math.cos(n)

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 3), n), kept["f"] is math.cos
