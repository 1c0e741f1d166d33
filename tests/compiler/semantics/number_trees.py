"""Tuples, lists and dictionaries of numbers that a step replaces, and schedules inside."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from .registry import Seen, attempt, batch, case, layer, ramp, weights


@case
def a_pair_in_an_attribute(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(pair=(1.0, 2))

    def step(x):
        a, b = s.pair
        s.pair = (a * 0.5, b + 1)
        return x * a + b

    step = wrap(step)
    for n in range(7):
        if n == 4:
            s.pair = (9.0, 0)
        yield step(ramp(lib, 3)), s.pair, [type(v) for v in s.pair]


@case
def a_list_replaced_and_one_changed(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(rates=[0.1, 0.2])
    first = s.rates

    def step(x, in_place):
        if in_place:
            s.rates[0] += 1
        else:
            s.rates = [rate * 2 for rate in s.rates]
        return x * s.rates[0]

    step = wrap(step)
    for n in range(9):
        yield step(ramp(lib, 3), n % 3 == 2), s.rates, first, s.rates is first


@case
def the_old_list_changed_and_replaced(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(rates=[1.0, 2.0])
    kept = []

    def step(x):
        old = s.rates
        s.rates = [v + 1 for v in old]
        if x.shape[0] == 4:
            old.append(-1.0)
        return x * sum(old)

    step = wrap(step)
    for n in range(7):
        kept.append(s.rates)
        yield step(ramp(lib, 3 + n % 2)), s.rates, kept


@case
def numbers_and_tensors_together(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(state={"mean": lib.zeros(3), "n": 0, "decay": [0.9]})

    def step(x):
        old = s.state
        n = old["n"] + 1
        s.state = {"mean": old["mean"] + (x - old["mean"]) / n, "n": n, "decay": [0.9**n]}
        return s.state["mean"] * s.state["decay"][0]

    step = wrap(step)
    for n in range(7):
        if n == 4:
            s.state = {"mean": lib.ones(3), "n": 10, "decay": [0.5]}
        yield step(ramp(lib, 3, start=float(n))), s.state


@case
def a_number_that_changes_its_type(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(pair=(1, 2))

    def step(x):
        a, b = s.pair
        s.pair = (a + 1, b / 2 if a % 3 == 0 else int(b) + 1)
        return x * a + b

    step = wrap(step)
    for _ in range(8):
        yield step(ramp(lib, 3)), s.pair, [type(v) for v in s.pair]


@case
def a_list_under_two_names(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(a=[1.0])
    s.b = s.a

    def step(x):
        s.a = [s.a[0] + 1]
        return x * s.a[0] + s.b[0]

    step = wrap(step)
    for n in range(6):
        if n == 3:
            s.b[0] = 50.0
        yield step(ramp(lib, 3)), s.a, s.b


@case
def an_exception_before_the_list_is_replaced(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(log=[0, 0.0])

    def step(x):
        n, total = s.log
        if n % 3 == 2:
            s.log = [n + 1, -1.0]
            raise ValueError("third")
        s.log = [n + 1, total + 0.5]
        return x * total

    step = wrap(step)
    for _ in range(8):
        yield attempt(step, ramp(lib, 3)), s.log, [type(v) for v in s.log]


@case
def a_list_returned_and_stored(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(rates=[1.0])

    def step(x):
        s.rates = [s.rates[0] * 0.5]
        return x * s.rates[0], s.rates

    step = wrap(step)
    for _ in range(5):
        y, rates = step(ramp(lib, 3))
        yield y, rates, rates is s.rates


@case
def one_list_twice_in_a_result(lib: Any, wrap: Any) -> Seen:
    def step(x):
        parts = [x * 2]
        return {"a": parts, "b": parts}

    step = wrap(step)
    for _ in range(4):
        found = step(ramp(lib, 3))
        found["a"].append(1)
        yield found, found["a"] is found["b"]


@case
def a_list_of_another_length(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(rates=[1.0, 2.0])

    def step(x):
        s.rates = [rate + 1 for rate in s.rates]
        return x * sum(s.rates)

    step = wrap(step)
    for n in range(8):
        if n in (3, 5):
            s.rates = [1.0] * n
        yield step(ramp(lib, 3)), s.rates


def trained(lib: Any, wrap: Any, optimizer_of: Any, schedule_of: Any) -> Seen:
    """A training step with a schedule inside, which the caller steps and loads too."""
    model = layer(lib)
    optimizer = optimizer_of(model)
    scheduler = schedule_of(optimizer)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss.detach()

    step, state = wrap(step), None
    for n in range(12):
        if n == 4:
            scheduler.step()
        if n == 6:
            state = dict(scheduler.state_dict())
        if n == 8:
            optimizer.param_groups[0]["lr"] = 0.3
        if n == 10:
            scheduler.load_state_dict(state)
        yield step(batch(lib, n)), weights(model)
        options = [(g["lr"], g.get("momentum"), g.get("betas")) for g in optimizer.param_groups]
        yield options, scheduler.get_last_lr(), scheduler.last_epoch


def sgd(lib: Any) -> Any:
    return lambda model: lib.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


@case
def cosine(lib: Any, wrap: Any) -> Seen:
    schedules = lib.optim.lr_scheduler
    yield from trained(lib, wrap, sgd(lib), lambda o: schedules.CosineAnnealingLR(o, T_max=7))


@case
def one_cycle_of_rates_and_momentum(lib: Any, wrap: Any) -> Seen:
    schedules = lib.optim.lr_scheduler
    yield from trained(
        lib, wrap, lambda model: lib.optim.AdamW(model.parameters(), lr=0.1),
        lambda o: schedules.OneCycleLR(o, max_lr=0.2, total_steps=20),
    )  # fmt: skip


@case
def exponential_for_two_groups(lib: Any, wrap: Any) -> Seen:
    schedules = lib.optim.lr_scheduler
    yield from trained(
        lib, wrap,
        lambda model: lib.optim.SGD(
            [{"params": [model.weight]}, {"params": [model.bias], "lr": 0.01}], lr=0.1
        ),
        lambda o: schedules.ExponentialLR(o, 0.9),
    )  # fmt: skip


@case
def milestones(lib: Any, wrap: Any) -> Seen:
    schedules = lib.optim.lr_scheduler
    yield from trained(lib, wrap, sgd(lib), lambda o: schedules.MultiStepLR(o, [3, 5, 5, 9], 0.5))


@case
def a_function_of_the_step(lib: Any, wrap: Any) -> Seen:
    schedules = lib.optim.lr_scheduler
    yield from trained(lib, wrap, sgd(lib), lambda o: schedules.LambdaLR(o, lambda n: 1 / (n + 1)))


@case
def a_warm_up_and_a_decay(lib: Any, wrap: Any) -> Seen:
    schedules = lib.optim.lr_scheduler

    def made(o):
        parts = [schedules.LinearLR(o, total_iters=4), schedules.PolynomialLR(o, 9, power=2.0)]
        return schedules.SequentialLR(o, parts, milestones=[4])

    yield from trained(lib, wrap, sgd(lib), made)
