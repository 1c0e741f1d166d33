"""Numbers taken from computed tensors: returned, stored, added up, or read by Python."""

from __future__ import annotations

import json
import math
from collections import deque
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from .registry import Seen, attempt, batch, case, layer, mlp, ramp, weights


@case
def returned(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x.square().sum().item())
    for n in range(5):
        found = step(batch(lib, n))
        yield found, type(found).__name__


@case
def a_training_step_that_returns_one(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    optimizer = lib.optim.Adam(model.parameters(), lr=0.01)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    step = wrap(step)
    for n in range(5):
        yield step(batch(lib, n)), weights(model)


@case
def several_in_containers(lib: Any, wrap: Any) -> Seen:
    def step(x):
        hits = (x > 0).sum()
        return {"loss": x.mean().item(), "hits": hits.item(), "pair": (x.max().item(), [2.5])}

    step = wrap(step)
    for n in range(5):
        found = step(batch(lib, n))
        yield found, [type(v).__name__ for v in found.values()]


@case
def integers_of_any_size(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, k: ((x * k).sum().item(), x.to(lib.uint8).max().item()))
    for k in (1, 2**30, 2**53 + 1, -(2**60) + 7):
        yield step(lib.arange(3), lib.tensor(k))


@case
def of_other_dtypes(lib: Any, wrap: Any) -> Seen:
    def step(x):
        half, small, wide = x.to(lib.bfloat16).sum(), x.to(lib.float16)[0, 0], x.double().sum()
        return half.item(), wide.item(), (x > 0).any().item(), small.item()

    step = wrap(step)
    for n in range(4):
        found = step(batch(lib, n))
        yield found, [type(v).__name__ for v in found]


@case
def stored_in_an_attribute(lib: Any, wrap: Any) -> Seen:
    owner = SimpleNamespace(last=0.0, count=0)

    def step(x):
        owner.last = x.sum().item()
        owner.count = (x > 0).sum().item()
        return x * 2

    step = wrap(step)
    for n in range(6):
        yield step(batch(lib, n)), owner.last, owner.count, type(owner.last).__name__


@case
def appended_to_lists(lib: Any, wrap: Any) -> Seen:
    losses, recent, table = [], deque(maxlen=2), {"a": []}

    def step(x):
        losses.append(x.sum().item())
        recent.append(x.mean().item())
        table["a"].append((x.min().item(), 1))
        return x + 1

    step = wrap(step)
    for n in range(6):
        yield step(batch(lib, n)), list(losses), list(recent), dict(table)
        yield [type(v).__name__ for v in losses]


@case
def a_running_sum(lib: Any, wrap: Any) -> Seen:
    total, count = 0.0, 0

    def step(x):
        nonlocal total, count
        total += x.square().sum().item() * x.shape[0]
        count += x.shape[0]
        return x.mean()

    step = wrap(step)
    for n in range(7):
        yield step(batch(lib, n)), total, count, type(total).__name__


@case
def a_meter(lib: Any, wrap: Any) -> Seen:
    class Meter:
        def __init__(self):
            self.value = self.average = self.total = 0.0
            self.count = 0

        def update(self, value, n=1):
            self.value = value
            self.total += value * n
            self.count += n
            self.average = self.total / self.count

    meter, model = Meter(), layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        meter.update(loss.item(), x.shape[0])
        return loss.detach()

    step = wrap(step)
    for n in range(7):
        yield step(batch(lib, n)), vars(meter), [type(v).__name__ for v in vars(meter).values()]


@case
def an_exponential_average(lib: Any, wrap: Any) -> Seen:
    state = {"mean": None}

    def step(x):
        loss = x.square().mean().item()
        state["mean"] = loss if state["mean"] is None else 0.9 * state["mean"] + 0.1 * loss
        return x * 2

    step = wrap(step)
    for n in range(7):
        yield step(batch(lib, n)), state["mean"]


@case
def before_a_write(lib: Any, wrap: Any) -> Seen:
    def step(x):
        total = x.double().sum()
        before = total.item()
        total.add_(1)
        count = (x > 0).sum()
        was = count.item()
        count.mul_(10)
        return before, total.item(), was, count.item(), total

    step = wrap(step)
    for n in range(5):
        yield step(batch(lib, n))


@case
def in_a_condition(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x * 2 if x.sum().item() > 0 else x - 1)
    for n in range(6):
        yield step(batch(lib, n))


@case
def the_best_so_far(lib: Any, wrap: Any) -> Seen:
    best = {"value": math.inf}

    def step(x):
        loss = x.mean().item()
        best["value"] = min(best["value"], loss)
        return loss

    step = wrap(step)
    for n in range(6):
        yield step(batch(lib, n)), best["value"]


@case
def divided_by(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, n: (x.sum().item() / n, n / (x[0].sum().item() + 1)))
    for n in (1, 2, 0, 3.0, 0.0, -1):
        x = ramp(lib, 2, 2) * 0 - 0.5 if n == 3.0 else ramp(lib, 2, 2)
        yield attempt(step, x, n)


@case
def other_arithmetic(lib: Any, wrap: Any) -> Seen:
    def step(x):
        a, b, k = x.sum().item(), x.mean().item(), (x > 0).sum().item()
        return (a + b, a - 1, 2 * a, a * b, -a, abs(a), a // 0.3, a % 0.7, a**2, 2**b, round(a, 2),
                k + 1, k // 2, k * a, divmod(k, 2), a == a, a < b, int(a), float(k))  # fmt: skip

    step = wrap(step)
    for n in range(4):
        found = step(batch(lib, n))
        yield found, [type(v).__name__ for v in found]


@case
def beside_tensors(lib: Any, wrap: Any) -> Seen:
    def step(x):
        scale, count = x.abs().max().item(), (x > 0).sum().item()
        return x / scale, scale * x, x + count, lib.full((2,), scale), lib.tensor([scale, 1.0])

    step = wrap(step)
    for n in range(4):
        yield step(batch(lib, n))


@case
def a_gradient_does_not_pass(lib: Any, wrap: Any) -> Seen:
    w = lib.ones(3, requires_grad=True)

    def step(x):
        loss = (w * x).sum()
        return loss * loss.item()

    step = wrap(step)
    for n in range(4):
        step(ramp(lib, 3, start=0.1 * n)).backward()
        yield w.grad.clone()


@case
def written_as_text(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: (f"{x.sum().item():.3f}", str(x.mean().item())[:5]))
    for n in range(4):
        yield step(batch(lib, n))


@case
def in_other_libraries(lib: Any, wrap: Any) -> Seen:
    def step(x):
        a = x.abs().sum().item()
        return json.dumps({"a": round(a, 3)}), np.sqrt(a) > 1, math.floor(a), np.array([a]).shape

    step = wrap(step)
    for n in range(4):
        yield step(batch(lib, n))


@case
def with_isinstance_and_type(lib: Any, wrap: Any) -> Seen:
    def step(x):
        a, k = x.sum().item(), (x > 0).sum().item()
        return isinstance(a, float), isinstance(k, int), isinstance(a, int), a.is_integer(), a * 2

    step = wrap(step)
    other = wrap(lambda x: type(x.sum().item()) is float)
    for n in range(4):
        yield step(batch(lib, n)), other(batch(lib, n))


@case
def in_a_record(lib: Any, wrap: Any) -> Seen:
    @dataclass
    class Found:
        loss: float
        out: Any

    step = wrap(lambda x: Found(x.sum().item(), x * 2))
    for n in range(4):
        yield step(batch(lib, n))


@case
def an_exception_after_it(lib: Any, wrap: Any) -> Seen:
    kept = []

    def step(x, fails):
        kept.append(x.sum().item())
        if fails:
            raise ValueError("as asked")
        return x.mean().item()

    step = wrap(step)
    for n in range(6):
        yield attempt(step, batch(lib, n), n == 4), list(kept), [type(k).__name__ for k in kept]


@case
def nothing_finite(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: (x.sum().item(), (x / 0).max().item(), (x - x / 0).min().item()))
    for n in range(4):
        yield repr(step(batch(lib, n))[1:])


@case
def of_arguments_and_constants(lib: Any, wrap: Any) -> Seen:
    scale = lib.tensor(2.0)
    step = wrap(lambda x, k: (x * scale.item(), k.item(), x * k.item()))
    for n in range(5):
        if n == 3:
            scale.fill_(5.0)
        yield step(batch(lib, n), lib.tensor(0.5 * n))
