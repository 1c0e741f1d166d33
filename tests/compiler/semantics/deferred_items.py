"""Numbers of the data that a step returns, stores, logs or prints, and computes with as Python
does."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np

from .registry import Seen, attempt, batch, case, layer, leaf, ramp, weights


@case
def the_loss_of_a_training_step(lib: Any, wrap: Any) -> Seen:
    model, losses = layer(lib), []
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        return loss.item(), {"loss": loss.item(), "twice": [2 * loss.item()]}

    step = wrap(step)
    for n in range(6):
        found = step(batch(lib, n))
        yield found, type(found[0]), losses, [type(v) for v in losses], weights(model)


@case
def an_item_read_before_a_write(lib: Any, wrap: Any) -> Seen:
    def step(x):
        before = x.sum().item()
        total = x[0]
        first = (total * 1).item()
        x.add_(1)
        return before, first, x.sum().item()

    step = wrap(step)
    for dtype in (lib.float32, lib.float64, lib.float32, lib.float64):
        yield step(ramp(lib, 3).to(dtype))


@case
def a_computed_tensor_written_after_its_item(lib: Any, wrap: Any) -> Seen:
    def step(x):
        y = x.double().sum()
        before = y.item()
        y.mul_(10)
        return before, y.item(), y

    step = wrap(step)
    for n in range(4):
        yield step(ramp(lib, 3, start=float(n)))


@case
def an_item_is_no_part_of_the_graph(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)

    def step(x):
        loss = (w * x).sum()
        scaled = loss * loss.item() + w.sum() * (w * w).sum().item()
        scaled.backward()
        return loss.item()

    step = wrap(step)
    for n in range(4):
        yield step(ramp(lib, 3, start=float(n))), w.grad


@case
def divisions_by_an_item_that_is_zero(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(last=1.0)

    def step(x):
        total = (x * 2).sum().item()
        s.last = total / 4
        return 1.0 / total, total**-1.0

    step = wrap(step)
    for n in (1.0, 2.0, 0.0, 3.0, 0.0):
        yield attempt(step, lib.full((2,), n)), s.last


@case
def powers_and_remainders_of_an_item(lib: Any, wrap: Any) -> Seen:
    def step(x):
        total = (x * 2).sum().item()
        return total**0.5, total % 3, total // 2, -total, abs(total), round(total, 1), int(total)

    step = wrap(step)
    for n in (1.0, -2.0, 3.5, 1e200, 4.0):
        yield attempt(step, lib.full((2,), n, dtype=lib.float64))


@case
def the_best_so_far(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(best=math.inf, last=0.0)

    def step(x):
        loss = x.square().mean()
        s.last = loss.item()
        if s.last < s.best:
            s.best = s.last
        return loss

    step = wrap(step)
    for n in (3, 2, 4, 1, 5):
        yield step(lib.full((3,), float(n))), s.best, s.last, type(s.best)


@case
def a_running_sum_of_items(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(total=0.0, count=0)

    def step(x):
        s.total += x.mean().item() * x.shape[0]
        s.count += x.shape[0]
        return x * 2

    step = wrap(step)
    for n in range(7):
        if n == 4:
            s.total = 100.0
        yield step(ramp(lib, 3, start=float(n))), s.total, s.count, type(s.total)


@case
def an_item_of_an_integer_and_of_a_flag(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: ((x > 0).sum().item(), (x > 0).all().item(), x.sum().item()))
    for n in range(5):
        found = step(ramp(lib, 3, start=0.2 * n - 0.5))
        yield found, [type(v) for v in found]


@case
def an_item_given_to_numpy(lib: Any, wrap: Any) -> Seen:
    def step(x):
        value = x.sum().item()
        array = np.array([value, 1.0])
        return float(array.sum()), str(array.dtype), np.float32(value), math.isnan(value)

    step = wrap(step)
    for n in range(4):
        yield step(ramp(lib, 3, start=float(n)))


@case
def float_of_a_tensor(lib: Any, wrap: Any) -> Seen:
    log = []

    def step(x):
        log.append(float(x.sum()))
        return float(x.mean()), float(x.max() * 2) + 1

    step = wrap(step)
    for n in range(6):
        yield step(ramp(lib, 3, start=float(n))), log, [type(v) for v in log]


@case
def an_item_as_a_key_and_in_a_text(lib: Any, wrap: Any) -> Seen:
    seen = {}

    def step(x):
        total = x.sum().item()
        seen[total] = f"{total:.2f}"
        return total

    step = wrap(step)
    for n in (1.0, 2.0, 1.0):
        yield step(lib.full((2,), n)), seen


@case
def items_printed_in_order(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(n=0)

    def step(x):
        s.n += 1
        print("start", s.n)
        loss = x.square().sum()
        print("loss", loss.item(), x)
        x.add_(1)
        print("after", x.sum().item(), [1, 2], sep=";")
        print("end")
        return loss

    step = wrap(step)
    for n in range(6):
        yield step(lib.full((3,), float(n)))


@case
def items_printed_before_a_read(lib: Any, wrap: Any) -> Seen:
    def step(x):
        print("first", x.sum().item())
        if x.sum() > 2:
            print("large", (x * 2).sum().item())
            return x
        print("small")
        return -x

    step = wrap(step)
    for n in (0.0, 1.0, 2.0, 0.5):
        yield step(lib.full((3,), n))


@case
def items_printed_before_an_exception(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(n=0)

    def step(x):
        s.n += 1
        print("first", x.sum().item())
        if s.n % 3 == 0:
            raise ValueError("third")
        print("second", x)
        return x

    step = wrap(step)
    for n in range(7):
        yield attempt(step, lib.full((2,), float(n)))


@case
def a_tensor_with_a_history_printed(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0)

    def step(x):
        print((w * x).sum().detach(), w.detach() * 2)
        return (w * x).sum()

    step = wrap(step)
    for n in range(4):
        yield step(lib.full((2,), float(n))).detach()
