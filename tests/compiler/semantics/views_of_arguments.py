"""Arguments that are parts of a larger tensor, written and read through several views."""

from __future__ import annotations

import threading
from typing import Any

from .registry import Seen, attempt, batch, case, layer, ramp, weights


@case
def a_row_of_a_cache(lib: Any, wrap: Any) -> Seen:
    cache = lib.zeros(4, 3)

    def step(row, x):
        row.copy_(x)
        return row.sum()

    step = wrap(step)
    for n in range(8):
        yield step(cache[n % 4], ramp(lib, 3, start=float(n))), cache


@case
def another_offset_at_each_call(lib: Any, wrap: Any) -> Seen:
    base = ramp(lib, 12)

    def step(a, b):
        a.add_(b.clone())
        b.mul_(a.sum())
        return a - b

    step = wrap(step)
    for n in range(10):
        yield step(base[n % 3 : n % 3 + 4], base[2 : 2 + 4]), base


@case
def two_bases_swapped(lib: Any, wrap: Any) -> Seen:
    first, second = ramp(lib, 6), ramp(lib, 6, start=5.0)

    def step(a, b):
        a.copy_(b)
        b.zero_()
        return a.sum()

    step = wrap(step)
    for n in range(6):
        a, b = (first, second) if n % 2 else (second, first)
        yield step(a[1:4], b[2:5]), first, second
        first.add_(1)


@case
def the_base_is_closed_over(lib: Any, wrap: Any) -> Seen:
    base, other = ramp(lib, 6), ramp(lib, 6)

    def step(part):
        part.add_(1)
        return base * 2

    step = wrap(step)
    for n in range(6):
        yield step((other if n % 3 == 2 else base)[2:5]), base, other


@case
def a_base_of_another_size(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x.mul_(2).sum())
    for n in range(8):
        base = ramp(lib, 5 + n % 3)
        yield step(base[1:4]), base


@case
def a_base_of_another_layout(lib: Any, wrap: Any) -> Seen:
    def step(x):
        x[0].add_(1)
        return x.sum(0)

    step = wrap(step)
    for n in range(8):
        base = ramp(lib, 4, 3) if n % 2 else ramp(lib, 3, 4).t()
        yield step(base[1:3]), base


@case
def a_part_returned_after_a_write(lib: Any, wrap: Any) -> Seen:
    def step(x):
        x.add_(1)
        return x, x[1:], x.view(-1)

    step = wrap(step)
    for n in range(5):
        base = ramp(lib, 3, 2, start=float(n))
        part = base[1:]
        found = step(part)
        found[1].zero_()
        found[2].add_(10)
        yield base, found, found[0] is part


@case
def a_part_stored_after_a_write(lib: Any, wrap: Any) -> Seen:
    kept = {"last": lib.zeros(3)}

    def step(x):
        x.add_(1)
        kept["last"] = x
        return x * 2

    step = wrap(step)
    for n in range(5):
        base = ramp(lib, 6, start=float(n))
        yield step(base[3:]), kept, base
        base.zero_()
        yield kept


@case
def a_part_that_requires_grad(lib: Any, wrap: Any) -> Seen:
    w = ramp(lib, 6).requires_grad_()

    def step(x, y):
        y.add_(1)
        return (x * y).sum()

    step = wrap(step)
    for n in range(5):
        base = ramp(lib, 6, start=float(n))
        loss = step(w[:3], base[3:])
        loss.backward()
        yield loss.detach(), w.grad, base


@case
def gradients_through_a_written_part(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)

    def step(x, scratch):
        scratch.copy_(x)
        loss = model(scratch * 2).square().mean()
        loss.backward()
        return loss.detach()

    step = wrap(step)
    memory = lib.zeros(8, 3)
    for n in range(5):
        yield step(batch(lib, n), memory[n % 2 : n % 2 + 4]), weights(model), memory


@case
def a_failing_lookup_after_a_write(lib: Any, wrap: Any) -> Seen:
    table = ramp(lib, 4)

    def step(part, i):
        found = table[i]
        part.add_(found)
        return part.sum()

    step = wrap(step)
    base = lib.zeros(6)
    for n in (0, 1, 9, 2, 9, 3):
        yield attempt(step, base[2:3], lib.tensor([n])), base


@case
def columns_and_rows_of_one_matrix(lib: Any, wrap: Any) -> Seen:
    matrix = ramp(lib, 3, 3)

    def step(row, column, all):
        row.mul_(2)
        column.add_(row.sum())
        all.sub_(1)
        return row + column

    step = wrap(step)
    for n in range(6):
        yield step(matrix[n % 2], matrix[:, 1], matrix), matrix


@case
def a_part_under_inference(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x.mul_(2).sum())
    base = ramp(lib, 6)
    for n in range(6):
        with lib.no_grad() if n % 2 else lib.enable_grad():
            yield step(base[1:4]), base


@case
def parts_written_by_threads(lib: Any, wrap: Any) -> Seen:
    memory = lib.zeros(3, 4)
    step = wrap(lambda row: row.add_(1).sum())

    def work(row):
        for _ in range(10):
            step(row)

    rows = [lib.zeros(2, 4) for _ in range(3)]
    threads = [threading.Thread(target=work, args=(row[1],)) for row in rows]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    yield rows, memory


@case
def a_leaf_written_without_a_graph(lib: Any, wrap: Any) -> Seen:
    def step(a, b):
        with lib.no_grad():
            a.view(-1)[0] = 0.5
        return b + 0.1

    step = wrap(step)
    for n in range(6):
        a = ramp(lib, 3) * n
        yield step(a.requires_grad_() if n % 2 else a, ramp(lib, 3)), a
