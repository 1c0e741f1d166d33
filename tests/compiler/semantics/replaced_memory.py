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


def new_elements(use: Any) -> Any:
    """A case of a step that replaces the elements of a parameter by computed ones."""

    def run(lib: Any, wrap: Any) -> Seen:
        w = leaf(lib, 1.0, 2.0)
        step = wrap(lambda x: use(w, x))
        for n in range(5):
            if n == 3:
                w.data = lib.ones(2)
            yield step(ramp(lib, 2, start=float(n))), w

    return run


def doubled_and_back(w: Any, x: Any) -> Any:
    kept = w.data
    w.data = kept * 2
    doubled = w * x
    w.data = kept
    return doubled, w * x


def the_former_is_read(w: Any, x: Any) -> Any:
    kept = w.data
    w.data = kept * 2
    return kept * x, w * x


def the_former_of_a_dictionary(w: Any, x: Any) -> Any:
    saved = {"w": w.data}
    w.data = saved["w"] * 2
    doubled = w * x
    w.data = saved.pop("w")
    return doubled, w * x


def the_former_is_written(w: Any, x: Any) -> Any:
    kept = w.data
    w.data = kept * 2
    kept.add_(1)
    return kept * x, w * x


def a_part_of_the_former(w: Any, x: Any) -> Any:
    kept = w.data[:1]
    w.data = w.data * 2
    return kept * x[:1], w * x


def a_number_of_the_former(w: Any, x: Any) -> Any:
    kept = w.detach()
    w.data = w.data * 2
    return (kept * x).sum().item(), w * x


def twice_with_the_former_kept(w: Any, x: Any) -> Any:
    kept = w.data
    w.data = w.data * 2
    w.data = w.data + 1
    return kept + 0, w * x


def the_new_ones_are_written(w: Any, x: Any) -> Any:
    new = w.data * 2
    w.data = new
    new.add_(5)
    return new + 0, w * x


def the_parameter_is_written_after(w: Any, x: Any) -> Any:
    new = w.data * 2
    w.data = new
    w.detach().mul_(3)
    return new + 0, w * x


def the_new_ones_are_returned(w: Any, x: Any) -> Any:
    new = w.data * 0.5
    w.data = new
    return new, w * x


def a_copy_of_the_former(w: Any, x: Any) -> Any:
    kept = w.data
    w.data = kept * 2
    w.data = kept.clone()
    return w * x


for _use in (
    doubled_and_back, the_former_is_read, the_former_of_a_dictionary, the_former_is_written,
    a_part_of_the_former, a_number_of_the_former, twice_with_the_former_kept,
    the_new_ones_are_written, the_parameter_is_written_after, the_new_ones_are_returned,
    a_copy_of_the_former,
):  # fmt: skip
    _case = new_elements(_use)
    _case.__name__, _case.__module__ = _use.__name__, __name__
    case(_case)


@case
def what_is_returned_shares_memory(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0)

    def step(x):
        new = w.data * x
        w.data = new
        return new

    step = wrap(step)
    for n in range(5):
        new = step(ramp(lib, 2, start=1.0 + n))
        new.add_(10)
        yield new, w
