"""Views that are returned or stored, of arguments on one memory that differ in whether they require
grad."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from .registry import Seen, attempt, case, leaf, ramp


def flags(*tensors: Any) -> list[Any]:
    return [(t, t.requires_grad, t.is_leaf) for t in tensors]


def rows(lib: Any, n: int) -> Any:
    return ramp(lib, 4, 3, start=-0.5 + 0.3 * n)


@case
def a_slice_of_the_first_of_two_equal_rows(lib: Any, wrap: Any) -> Seen:
    def step(a, b):
        t = a.requires_grad_() * 1
        return a[1:], t + b

    step = wrap(step)
    for n in range(5):
        base = rows(lib, n)
        a, b = (base[0], base[0]) if n in (2, 3) else (base[0], base[1])
        yield flags(*step(a, b), a, b)


@case
def a_slice_of_the_second_of_two_equal_rows(lib: Any, wrap: Any) -> Seen:
    def step(a, b):
        b.requires_grad_()
        return a[1:], b[1:]

    step = wrap(step)
    for n in range(5):
        base = rows(lib, n)
        a, b = (base[0], base[0])
        yield flags(*step(a, b), a, b)


@case
def one_handle_given_twice(lib: Any, wrap: Any) -> Seen:
    def step(a, b):
        a.requires_grad_()
        return b[1:], (a * b).sum()

    step = wrap(step)
    for n in range(5):
        base = rows(lib, n)
        a = base[0]
        view, total = step(a, a if n != 3 else base[0])
        total.backward()
        yield flags(view, a), a.grad


@case
def differentiated_through_the_view(lib: Any, wrap: Any) -> Seen:
    def step(a, b):
        a.requires_grad_()
        return a[1:]

    step = wrap(step)
    for n in range(6):
        base = rows(lib, n)
        a, b = base[0], base[0]
        out = step(a, b)
        (out * out).sum().backward()
        yield flags(out, a, b), a.grad, b.grad


@case
def a_view_that_is_stored(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(kept=ramp(lib, 2))

    def step(a, b):
        a.requires_grad_()
        s.kept = a[1:]
        return (s.kept * 2).sum().detach()

    step = wrap(step)
    for n in range(6):
        base = rows(lib, n)
        a, b = base[n % 2], base[0]
        yield step(a, b), flags(s.kept, a, b)


@case
def views_in_a_dictionary(lib: Any, wrap: Any) -> Seen:
    def step(a, b):
        b.requires_grad_()
        return {"a": a[:2], "b": b[:2], "turned": b.flip(0)}

    step = wrap(step)
    for n in range(5):
        base = rows(lib, n)
        a, b = base[0], base[0]
        found = step(a, b)
        yield list(found), flags(*found.values(), a, b)


@case
def a_leaf_and_what_is_detached_from_it(lib: Any, wrap: Any) -> Seen:
    def step(x, d):
        return x[1:], d[1:]

    step = wrap(step)
    for n in range(6):
        x = leaf(lib, 1.0, 2.0, float(n))
        d = x.detach()
        first, second = step(x, d) if n % 2 else step(d, x)
        yield flags(first, second)


@case
def a_parameter_and_its_memory_as_an_argument(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)

    def step(x):
        return w[1:], x[1:], (w * x).sum()

    step = wrap(step)
    for n in range(6):
        x = w.detach() if n % 3 else ramp(lib, 3, start=float(n))
        first, second, total = step(x)
        (first.sum() + total).backward()
        yield flags(first, second), w.grad


@case
def a_parameter_that_is_returned_beside_its_memory(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)

    def step(x):
        return w, x * 2

    step = wrap(step)
    for _n in range(5):
        found, other = step(w.detach())
        yield flags(found, other), found is w


@case
def a_view_of_the_whole_beside_a_row(lib: Any, wrap: Any) -> Seen:
    def step(base, row):
        row.requires_grad_()
        return base[0], row[:2], base.sum()

    step = wrap(step)
    for n in range(5):
        base = rows(lib, n)
        row = base[0]
        yield flags(*step(base, row), base, row)


@case
def a_row_is_returned_whose_twin_requires_grad(lib: Any, wrap: Any) -> Seen:
    def step(a, b):
        a.requires_grad_()
        return b.view(3), a.view(3), b

    step = wrap(step)
    for n in range(5):
        base = rows(lib, n)
        a, b = base[1], base[1]
        first, second, same = step(a, b)
        yield flags(first, second), same is b


@case
def a_view_of_a_view_through_two_handles(lib: Any, wrap: Any) -> Seen:
    def step(a, b):
        b.requires_grad_()
        return a.reshape(2, 2)[0], b.reshape(2, 2)[1]

    step = wrap(step)
    for n in range(5):
        base = ramp(lib, 8, start=float(n))
        a, b = base[:4], base[:4]
        yield flags(*step(a, b), a, b)


@case
def a_view_without_recording(lib: Any, wrap: Any) -> Seen:
    def step(a, b):
        a.requires_grad_()
        with lib.no_grad():
            first = a[1:]
        return first, a.detach()[1:], a[1:]

    step = wrap(step)
    for n in range(5):
        base = rows(lib, n)
        a, b = base[0], base[0]
        yield flags(*step(a, b), a, b)


@case
def a_view_that_is_written_outside(lib: Any, wrap: Any) -> Seen:
    """A view of a leaf must not be written in place; one of its twin may."""

    def step(a, b):
        a.requires_grad_()
        return a[1:], b[1:]

    step = wrap(step)
    for n in range(5):
        base = rows(lib, n)
        a, b = base[0], base[0]
        first, second = step(a, b)
        yield attempt(first.add_, 1.0), attempt(second.add_, 1.0)
        yield base, flags(a, b)


@case
def the_history_of_the_base_of_two_rows(lib: Any, wrap: Any) -> Seen:
    def step(a, b):
        return a[1:], b[:2] * 2

    step = wrap(step)
    for n in range(5):
        w = leaf(lib, 1.0, 2.0, float(n))
        base = (w * 2).reshape(1, 3)
        first, second = step(base[0], base[0].detach()) if n % 2 else step(base[0], base[0])
        (first.sum() + second.sum()).backward()
        yield flags(first, second), w.grad


@case
def a_cleared_twin(lib: Any, wrap: Any) -> Seen:
    def step(a, b):
        a.requires_grad_(False)
        return a[1:], b[1:]

    step = wrap(step)
    for n in range(5):
        a = leaf(lib, 1.0, 2.0, float(n))
        b = a.detach().requires_grad_()
        yield flags(*step(a, b), a, b)


@case
def views_of_before_and_after_the_flag_is_set(lib: Any, wrap: Any) -> Seen:
    def step(a, b):
        first = b[1:]
        a.requires_grad_()
        return first, b[1:], a[:1]

    step = wrap(step)
    for n in range(5):
        a = ramp(lib, 3, start=float(n))
        yield flags(*step(a, a.detach()), a)


@case(torch=False)
def a_view_of_before_the_flag_of_its_own_base(lib: Any, wrap: Any) -> Seen:
    """In PyTorch the first view says that it requires grad, and has no history."""

    def step(a, b):
        first = a[1:]
        a.requires_grad_()
        return first, a[1:]

    step = wrap(step)
    for n in range(5):
        a = leaf(lib, 1.0, 2.0, float(n)).detach()
        yield flags(*step(a, ramp(lib, 3)), a)


@case
def a_view_without_recording_is_written_outside(lib: Any, wrap: Any) -> Seen:
    def step(a, b):
        a.requires_grad_()
        with lib.no_grad():
            return a[1:], b[1:]

    step = wrap(step)
    for n in range(5):
        a = ramp(lib, 3, start=float(n)).clone()
        b = a.detach()
        first, second = step(a, b)
        yield attempt(first.add_, 1.0), attempt(second.mul_, 2.0), a


@case
def three_handles_on_one_row(lib: Any, wrap: Any) -> Seen:
    def step(a, b, c):
        b.requires_grad_()
        return [t[:2] for t in (a, b, c)]

    step = wrap(step)
    for n in range(6):
        base = rows(lib, n)
        given = [base[0], base[0], base[n % 2]]
        yield flags(*step(*given), *given)
