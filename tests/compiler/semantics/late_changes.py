"""Changes that come late, after many equal calls have made the way short."""

from __future__ import annotations

import math
import random
from types import SimpleNamespace
from typing import Any

from .registry import Seen, attempt, batch, case, layer, leaf, mlp, ramp, weights

LATE = 11
CALLS = 14


@case
def an_attribute(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(gain=1.0)
    step = wrap(lambda x: x * s.gain)
    for n in range(CALLS):
        if n == LATE:
            s.gain = 5.0
        yield step(ramp(lib, 3, start=float(n)))


@case
def an_attribute_back_and_forth(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(flag=True)
    step = wrap(lambda x: x * 2 if s.flag else x - 1)
    for n in range(CALLS):
        s.flag = n not in (6, 7, 12)
        yield step(ramp(lib, 3, start=float(n)))


@case
def a_tensor_rebound(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(w=lib.ones(3))
    step = wrap(lambda x: x * s.w)
    for n in range(CALLS):
        if n == LATE:
            s.w = lib.full((3,), 7.0)
        yield step(ramp(lib, 3, start=float(n)))


@case
def a_gradient_set_to_none(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)
    step = wrap(lambda x: (w * x).sum().backward())
    for n in range(CALLS):
        if n in (9, LATE):
            w.grad = None
        step(ramp(lib, 3))
        yield w.grad


@case
def a_parameter_replaced(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    step = wrap(lambda x: model(x))
    for n in range(CALLS):
        if n == LATE:
            model.bias = lib.nn.Parameter(lib.full((2,), 9.0))
        yield step(batch(lib, n))


@case
def the_mode_of_the_model(lib: Any, wrap: Any) -> Seen:
    model = lib.nn.Sequential(layer(lib), lib.nn.BatchNorm1d(2))
    step = wrap(lambda x: model(x))
    for n in range(CALLS):
        model.train(n < 10)
        yield step(batch(lib, n)), list(model.buffers())


@case
def a_learning_rate(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    step = wrap(step)
    for n in range(CALLS):
        if n == LATE:
            optimizer.param_groups[0]["lr"] = 0.0
        step(batch(lib, n))
        yield model.weight


@case
def frozen_late(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    step = wrap(step)
    for n in range(CALLS):
        if n == LATE:
            model[0].requires_grad_(False)
        step(batch(lib, n))
        yield weights(model)


@case
def a_hook_added(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)
    step = wrap(lambda x: (w * x).sum().backward())
    for n in range(CALLS):
        if n == LATE:
            w.register_hook(lambda g: g * 100)
        w.grad = None
        step(ramp(lib, 3))
        yield w.grad


@case
def other_strides(lib: Any, wrap: Any) -> Seen:
    def step(x):
        y = x.reshape(-1)
        y.add_(1)
        return y.sum()

    step = wrap(step)
    for n in range(CALLS):
        x = ramp(lib, 2, 3) if n < LATE else ramp(lib, 3, 2).t()
        yield step(x), x


@case
def arguments_that_overlap(lib: Any, wrap: Any) -> Seen:
    def step(a, b):
        a.add_(1)
        return b * 2

    step = wrap(step)
    for n in range(CALLS):
        base = ramp(lib, 4, start=float(n))
        yield step(base[:2], base[1:3] if n == LATE else base[2:])
        yield base


@case
def the_parameter_as_an_argument(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)

    def step(x):
        with lib.no_grad():
            w.mul_(0.9)
        return x + 0

    step = wrap(step)
    for n in range(CALLS):
        yield step(w.detach() if n == LATE else lib.ones(3)), w


@case
def another_shape(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    step = wrap(lambda x: model(x).sum())
    for n in range(CALLS):
        yield step(batch(lib, n, 3 if n == LATE else 4))


@case
def another_dtype(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x * 2)
    for n in range(CALLS):
        yield step(lib.ones(3, dtype=lib.float64 if n in (8, LATE) else lib.float32))


@case
def another_type_of_argument(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, k: x * k)
    for n in range(CALLS):
        yield step(lib.arange(3), {8: 2.0, LATE: True}.get(n, n))


@case
def an_exception(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(n=0)

    def step(x):
        s.n += 1
        if s.n == LATE:
            raise ValueError("late")
        return x * s.n

    step = wrap(step)
    for _ in range(CALLS):
        yield attempt(step, ramp(lib, 3)), s.n


@case
def a_nan_in_the_data(lib: Any, wrap: Any) -> Seen:
    def step(x):
        loss = x.sum()
        return "skipped" if loss.isnan() else loss

    step = wrap(step)
    for n in range(CALLS):
        yield step(lib.full((2,), math.nan if n in (6, LATE) else float(n)))


@case
def a_counter_that_triggers(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(n=0, ema=lib.zeros(3))

    def step(x):
        s.n += 1
        if s.n % 5 == 0:
            s.ema = 0.5 * s.ema + 0.5 * x
        return s.ema.sum()

    step = wrap(step)
    for n in range(16):
        yield step(ramp(lib, 3, start=float(n))), s.n, s.ema


@case
def a_warm_up_that_ends(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)
    s = SimpleNamespace(n=0)

    def step(x):
        s.n += 1
        for group in optimizer.param_groups:
            group["lr"] = 0.1 * min(1.0, s.n / 8)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        return optimizer.param_groups[0]["lr"]

    step = wrap(step)
    for n in range(CALLS):
        yield step(batch(lib, n)), model.weight


@case
def a_rare_branch(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x.tanh() if random.random() < 0.15 else x * 2)
    for n in range(20):
        yield step(ramp(lib, 3, start=float(n)))


@case
def a_method_replaced(lib: Any, wrap: Any) -> Seen:
    class Step:
        def part(self, x):
            return x + 1

        def run(self, x):
            return self.part(x)

    run = wrap(Step().run)
    for n in range(CALLS):
        if n == LATE:
            Step.part = lambda self, x: x * 100
        yield run(ramp(lib, 3))


@case
def a_class_attribute_shadowed(lib: Any, wrap: Any) -> Seen:
    class Step:
        gain = 1.0

        def run(self, x):
            return x * self.gain

    s = Step()
    run = wrap(s.run)
    for n in range(CALLS):
        if n == LATE:
            s.gain = 4.0
        yield run(ramp(lib, 3))


@case
def a_memo_that_is_evicted(lib: Any, wrap: Any) -> Seen:
    memo = {}

    def step(x, key):
        if key not in memo:
            memo[key] = x * 2
        return memo[key] + x

    step = wrap(step)
    for n in range(CALLS):
        if n == LATE:
            memo.clear()
        yield step(ramp(lib, 3, start=float(n)), n % 2), sorted(memo)


@case
def grad_mode(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    step = wrap(lambda x: model(x).sum())
    for n in range(CALLS):
        with lib.set_grad_enabled(n not in (7, LATE)):
            yield step(batch(lib, n))


@case
def a_long_run_with_dropout(lib: Any, wrap: Any) -> Seen:
    model = lib.nn.Sequential(layer(lib, 3, 8), lib.nn.Dropout(0.5), layer(lib, 8, 2))
    optimizer = lib.optim.Adam(model.parameters(), lr=0.01)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = wrap(step)
    for n in range(36):
        yield step(batch(lib, n))
    yield weights(model)


@case
def prints_of_a_long_run(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(n=0)

    def step(x):
        s.n += 1
        if s.n % 6 == 0:
            print("step", s.n)
        return x * 2

    step = wrap(step)
    for n in range(20):
        yield step(ramp(lib, 3, start=float(n)))


@case
def revalidation_does_not_draw_twice(lib: Any, wrap: Any) -> Seen:
    log = []

    def step(x):
        log.append(random.randint(0, 100))
        return x * lib.rand(3) + random.random()

    step = wrap(step)
    for _ in range(20):
        yield step(lib.ones(3)), log[-1], len(log)
