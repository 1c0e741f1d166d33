"""Containers that a step appends to: whole where it never reads them, and as Python does where it
reads, returns or keeps them."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any, ClassVar

from .registry import Seen, attempt, batch, case, layer, leaf, ramp


@case
def a_log_that_is_only_filled(lib: Any, wrap: Any) -> Seen:
    log = []

    def step(x):
        log.append(x.sum())
        log.append(3.0)
        return x * 2

    step = wrap(step)
    for n in range(7):
        if n == 4:
            log.clear()
        yield step(ramp(lib, 3, start=float(n))), log


@case
def a_log_replaced_by_the_caller(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(log=[])

    def step(x):
        s.log.append(x.mean())
        return x

    step = wrap(step)
    for n in range(7):
        if n == 4:
            s.log = []
        yield step(ramp(lib, 3, start=float(n))), s.log


@case
def losses_of_a_training_step(lib: Any, wrap: Any) -> Seen:
    model, history = layer(lib), {"loss": [], "norm": []}
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        history["loss"].append(loss.detach())
        history["norm"].append(model.weight.grad.norm())

    step = wrap(step)
    for n in range(6):
        step(batch(lib, n))
        yield history, model.weight


@case
def losses_that_require_grad(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)
    losses = []

    def step(x):
        losses.append((w * x).sum())

    step = wrap(step)
    for n in range(5):
        step(ramp(lib, 3, start=float(n)))
    sum(losses).backward()
    yield [loss.detach() for loss in losses], w.grad


@case
def the_last_entry_is_read(lib: Any, wrap: Any) -> Seen:
    log = [lib.zeros(3)]

    def step(x):
        log.append(log[-1] + x)
        return log[-1].sum()

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 3, start=float(n))), log


@case
def the_length_decides(lib: Any, wrap: Any) -> Seen:
    log = []

    def step(x):
        log.append(1)
        return x if len(log) % 2 else -x

    step = wrap(step)
    for _ in range(6):
        yield step(ramp(lib, 3)), log


@case
def emptiness_decides_before_appending(lib: Any, wrap: Any) -> Seen:
    log = []

    def step(x):
        y = x * 2 if log else x
        log.append(y.sum())
        return y

    step = wrap(step)
    for n in range(6):
        if n == 3:
            log.clear()
        yield step(ramp(lib, 3)), log


@case
def read_at_some_calls(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(log=[], n=0)

    def step(x):
        s.n += 1
        s.log.append(x.sum())
        if s.n % 3 == 0:
            return lib.stack(s.log).mean()
        return x.sum()

    step = wrap(step)
    for n in range(10):
        yield step(ramp(lib, 3, start=float(n))), s.log, s.n


@case
def one_list_under_two_names(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(a=[])
    s.b = s.a

    def step(x):
        s.a.append(x.sum())
        return x * len(s.b)

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 3, start=float(n))), s.a, s.a is s.b


@case
def a_list_returned_after_appending(lib: Any, wrap: Any) -> Seen:
    log = []

    def step(x):
        log.append(x.sum())
        return log

    step = wrap(step)
    for n in range(5):
        found = step(ramp(lib, 3, start=float(n)))
        yield found is log, type(found), log


@case
def a_list_kept_elsewhere(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(log=[], box=None)

    def step(x):
        s.log.append(x.sum())
        s.box = {"log": s.log}
        return x

    step = wrap(step)
    for n in range(5):
        step(ramp(lib, 3, start=float(n)))
        yield s.box["log"] is s.log, type(s.box["log"]), s.log


@case
def iterated_and_sorted(lib: Any, wrap: Any) -> Seen:
    log = [3, 1]

    def step(x):
        log.append(2)
        return x * sum(log), sorted(log), [v for v in log if v > 1], isinstance(log, list)

    step = wrap(step)
    for _ in range(5):
        yield step(ramp(lib, 3)), log


@case
def extended_in_place(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(log=[])

    def step(x):
        s.log += [x.sum()]
        s.log.extend([1, 2])
        return x

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 3, start=float(n))), s.log, type(s.log)


@case
def a_window_of_the_last_three(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(window=deque(maxlen=3))

    def step(x):
        s.window.append(x.sum())
        return x

    step = wrap(step)
    for n in range(8):
        yield step(ramp(lib, 3, start=float(n))), list(s.window), s.window.maxlen


@case
def a_set_of_names(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(seen={"a"})

    def step(x, name):
        s.seen.add(name)
        return x * 2

    step = wrap(step)
    for n in range(8):
        yield step(ramp(lib, 3), "abc"[n % 3]), s.seen


@case
def an_exception_after_appending(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(log=[], n=0)

    def step(x):
        s.n += 1
        s.log.append(s.n)
        if s.n % 3 == 0:
            raise ValueError("third")
        return x * s.n

    step = wrap(step)
    for _ in range(8):
        yield attempt(step, ramp(lib, 3)), s.log, [type(v) for v in s.log], type(s.log)


@case
def a_list_of_a_class(lib: Any, wrap: Any) -> Seen:
    class Trainer:
        log: ClassVar[list[Any]] = []

        def step(self, x):
            Trainer.log.append(x.sum())
            return x

    step = wrap(Trainer().step)
    for n in range(5):
        yield step(ramp(lib, 3, start=float(n))), Trainer.log


@case
def records_appended(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(log=[], n=0)

    def step(x):
        s.n += 1
        s.log.append({"n": s.n, "loss": x.sum(), "parts": (x.min(), x.max())})
        return x

    step = wrap(step)
    for n in range(6):
        yield step(ramp(lib, 3, start=float(n))), s.log


@case
def a_slot_and_a_log_of_it(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(h=lib.zeros(3), log=[])

    def step(x):
        s.h = s.h * 0.5 + x
        s.log.append(s.h)
        return s.h.sum()

    step = wrap(step)
    for n in range(6):
        yield step(ramp(lib, 3, start=float(n))), s.log, s.log[-1] is s.h


@case
def appended_by_hooks(lib: Any, wrap: Any) -> Seen:
    model, kept = layer(lib), []
    model.register_forward_hook(lambda module, args, output: kept.append(output.detach()))
    step = wrap(lambda x: model(x).sum().detach())
    for n in range(5):
        yield step(batch(lib, n)), kept


@case
def appended_by_a_nested_step(lib: Any, wrap: Any) -> Seen:
    log = []

    def inner(x):
        log.append(x.sum())
        return x + 1

    inner = wrap(inner)
    outer = wrap(lambda x: inner(inner(x)))
    for n in range(5):
        yield outer(ramp(lib, 3)), inner(ramp(lib, 3, start=float(n))), log


@case
def an_argument_appended(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(log=[])

    def step(x):
        s.log.append(x)
        s.log.append(x[1:])
        return x * 2

    step = wrap(step)
    for n in range(5):
        x = ramp(lib, 3, start=float(n))
        step(x)
        x.zero_()
        yield s.log, s.log[-2] is x
