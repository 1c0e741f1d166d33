"""Tensors from before the call that show other memory in parts of it, and their own at its end."""

from __future__ import annotations

import contextlib
from typing import Any

from .registry import Seen, attempt, batch, case, layer, leaf, ramp, weights


@case
def read_before_during_and_after(lib: Any, wrap: Any) -> Seen:
    w, other = leaf(lib, 1.0, 2.0), lib.tensor([5.0, 6.0])

    def step(x):
        a, kept = w * x, w.data
        w.data = other
        b = w * x
        w.data = kept
        return a, b, w * x

    step = wrap(step)
    for n in range(5):
        if n == 3:
            other.mul_(2)
        yield step(ramp(lib, 2, start=float(n))), w, other


@case
def read_only_meanwhile(lib: Any, wrap: Any) -> Seen:
    w, other, box = leaf(lib, 1.0, 2.0), lib.tensor([5.0, 6.0]), {}

    def step(x):
        box["w"], w.data = w.data, other
        result = w * x
        w.data = box.pop("w")
        return result

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 2, start=float(n))), w, len(box)


@case
def averages_for_an_evaluation(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    averages = [p.detach().clone() + 1 for p in model.parameters()]

    @contextlib.contextmanager
    def swapped():
        saved = [p.data for p in model.parameters()]
        for p, average in zip(model.parameters(), averages, strict=True):
            p.data = average
        try:
            yield
        finally:
            for p, before in zip(model.parameters(), saved, strict=True):
                p.data = before

    def step(x):
        a = model(x)
        with swapped():
            b = model(x)
        return a, b, model(x)

    step = wrap(step)
    for n in range(5):
        if n == 2:
            averages[0].zero_()
        yield step(batch(lib, n)), weights(model)


@case
def averages_that_fail(lib: Any, wrap: Any) -> Seen:
    w, other = leaf(lib, 1.0, 2.0), lib.tensor([5.0, 6.0])

    def step(x):
        kept, w.data = w.data, other
        try:
            return (w * x).reshape(x.shape[0], 2)
        finally:
            w.data = kept

    step = wrap(step)
    for n in range(5):
        yield attempt(step, ramp(lib, 1 + n % 2, 2)), w
        yield attempt(step, ramp(lib, 3, 1)), w


@case
def the_gradient_of_other_elements(lib: Any, wrap: Any) -> Seen:
    w, other = leaf(lib, 1.0, 2.0), lib.tensor([5.0, 6.0])

    def step(x):
        kept, w.data = w.data, other
        loss = (w * w * x).sum()
        w.grad = None
        loss.backward()
        w.data = kept
        return w.grad.clone()

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 2, start=float(n))), w


@case
def two_that_are_exchanged(lib: Any, wrap: Any) -> Seen:
    a, b = ramp(lib, 3), ramp(lib, 3, start=9.0)

    def step(x):
        first = a * x - b
        a.data, b.data = b.data, a.data
        return first, a * x - b

    step = wrap(step)
    for _ in range(5):
        yield step(ramp(lib, 3)), a, b


@case
def set_to_another_and_back(lib: Any, wrap: Any) -> Seen:
    t, other = lib.tensor([1.0, 2.0]), lib.tensor([5.0, 6.0])

    def step(x):
        a, kept = t * x, t.detach()
        t.set_(other)
        b = t * x
        t.set_(kept)
        return a, b, t * x

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 2, start=float(n))), t


@case
def the_other_is_written(lib: Any, wrap: Any) -> Seen:
    w, other = leaf(lib, 1.0, 2.0), lib.tensor([5.0, 6.0])

    def step(x):
        kept, w.data = w.data, other
        with lib.no_grad():
            w.add_(1)
            kept.mul_(2)
        a = w * x
        w.data = kept
        return a, w * x

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 2, start=float(n))), w, other


@case
def several_of_one_tensor(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0)
    others = [lib.tensor([float(n), n + 1.0]) for n in range(3)]

    def step(x):
        kept, total = w.data, 0
        for other in others:
            w.data = other
            total = total + w * x
        w.data = kept
        return total

    step = wrap(step)
    for n in range(5):
        if n == 3:
            others.append(lib.ones(2))
        yield step(ramp(lib, 2, start=float(n))), w


@case
def a_row_of_a_table(lib: Any, wrap: Any) -> Seen:
    table, w = ramp(lib, 3, 2), leaf(lib, 1.0, 2.0)

    def step(x, k):
        a, kept = w * x, w.data
        w.data = table[k]
        b = w * x
        w.data = kept
        return a, b

    step = wrap(step)
    for n in range(6):
        yield step(ramp(lib, 2, start=float(n)), n % 3), w, table


@case
def transposed_in_place_and_back(lib: Any, wrap: Any) -> Seen:
    t = ramp(lib, 2, 3)

    def step(x):
        a = t.sum(0)
        t.t_()
        b = t.sum(0)
        t.t_()
        return a, b, t.sum(0) + x.sum()

    step = wrap(step)
    for n in range(5):
        yield step(batch(lib, n)), t, t.stride()
