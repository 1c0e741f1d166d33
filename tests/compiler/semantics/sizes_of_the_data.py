"""Shapes that depend on the data: elements under a mask, places, distinct elements, counts. The
same size comes with other elements, other sizes with the same path."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from .registry import Seen, attempt, batch, case, layer, leaf, ramp, weights


def mask_of(lib: Any, n: int, extent: int = 6) -> Any:
    """Two or three elements, at other places in each call."""
    return (lib.arange(extent) + n) % 3 == 0


@case
def other_places_of_the_same_count(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, mask: x[mask] * 2)
    for n in range(8):
        yield step(ramp(lib, 6, start=float(n)), mask_of(lib, n))


@case
def masks_that_are_empty_or_full(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, low: (x[x > low].sum(), x[x > low]))
    for n in range(9):
        yield step(ramp(lib, 6), (-9.0, 9.0, 0.0)[n % 3])


@case
def a_mask_of_the_first_dimension(lib: Any, wrap: Any) -> Seen:
    def step(x, keep):
        chosen = x[keep]
        return chosen.mean(0) if len(chosen) else x[0], chosen.shape[0]

    step = wrap(step)
    for n in range(9):
        keep = lib.tensor([n % 2 == 0, n % 3 == 0, False, n % 4 == 1])
        yield step(batch(lib, n), keep)


@case
def a_mask_of_the_last_dimension(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, keep: x[:, keep])
    for n in range(6):
        yield step(batch(lib, n), lib.tensor([n % 2 == 0, True, False]))


@case
def gradients_through_a_selection(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x, keep):
        optimizer.zero_grad()
        loss = model(x)[keep].square().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = wrap(step)
    for n in range(8):
        keep = (lib.arange(4) + n) % 2 == 0
        yield step(batch(lib, n), keep), weights(model)


@case
def a_selection_that_is_differentiated_outside(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, mask: x[mask] * 3)
    for n in range(6):
        x = leaf(lib, 1.0, 2.0, 3.0, 4.0, 5.0, float(n))
        step(x, mask_of(lib, n)).sum().backward()
        yield x.grad


@case
def a_mask_written_between_two_reads(lib: Any, wrap: Any) -> Seen:
    def step(x, mask):
        first = x[mask].sum()
        mask[0] = ~mask[0]
        return first, x[mask]

    step = wrap(step)
    for n in range(8):
        mask = mask_of(lib, n)
        yield step(ramp(lib, 6, start=float(n)), mask), mask


@case
def places_as_rows_and_as_a_tuple(lib: Any, wrap: Any) -> Seen:
    def step(x):
        flags = x > 0
        rows, columns = flags.nonzero(as_tuple=True)
        return flags.nonzero(), rows * 10 + columns, x[rows, columns]

    step = wrap(step)
    for n in range(8):
        yield step(batch(lib, n % 3))


@case
def places_of_numbers(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: (x.nonzero(), lib.argwhere(x), lib.where(x)))
    for n in range(8):
        x = ramp(lib, 4) * mask_of(lib, n, 4)
        if n == 5:
            x[1] = float("nan")
        yield step(x if n % 2 else x.reshape(2, 2))


@case
def a_number_without_dimensions(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: (x[x > 0], (x > 0).nonzero()))
    for n in range(6):
        yield step(lib.tensor(float(n % 2)))


@case
def distinct_with_places_and_counts(lib: Any, wrap: Any) -> Seen:
    def step(x):
        values, inverse, counts = lib.unique(x, return_inverse=True, return_counts=True)
        return values, inverse, counts, values[inverse]

    step = wrap(step)
    for n in range(9):
        yield step((lib.arange(8).reshape(2, 4) * 7 + n) % (2 + n % 3))


@case
def distinct_floats_and_flags(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: (lib.unique(x), lib.unique(x > 0)))
    for n in range(6):
        x = ramp(lib, 6, start=-0.2)
        x[n] = float("nan") if n == 3 else 0.0
        yield step(x)


@case
def elements_under_a_broadcast_mask(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, mask: lib.masked_select(x, mask))
    for n in range(6):
        yield step(batch(lib, n), lib.tensor([n % 2 == 0, True, n % 3 == 0]))


@case
def counts_of_numbers(lib: Any, wrap: Any) -> Seen:
    def step(x, w):
        return lib.bincount(x), lib.bincount(x, weights=w), lib.bincount(x).argmax().item()

    step = wrap(step)
    for n in range(8):
        yield step(lib.arange(6) % (2 + n % 3), ramp(lib, 6, start=float(n)))


@case
def classes_found_in_the_labels(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda y: lib.nn.functional.one_hot(y).float().mean(0))
    for n in range(8):
        y = (lib.arange(5) + n) % (2 + n % 2)
        if n == 6:
            y[0] = -1
        yield attempt(step, y)


@case
def rows_repeated_by_counts(lib: Any, wrap: Any) -> Seen:
    step = wrap(
        lambda x, counts: (x.repeat_interleave(counts, 0), counts.repeat_interleave(counts))
    )
    for n in range(8):
        counts = lib.tensor([n % 2, 2, 1, n % 3])
        yield step(batch(lib, n), counts)


@case
def negative_counts(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, counts: x.repeat_interleave(counts, 0))
    for n in range(7):
        counts = lib.tensor([1, 2, 1, 2 if n % 3 else 0])
        if n == 4:
            counts[0] = -1
        yield attempt(step, batch(lib, n), counts)


@case
def many_sizes(lib: Any, wrap: Any) -> Seen:
    """More than programs are made for."""
    s = SimpleNamespace(total=lib.zeros(()), calls=0)

    def step(x):
        s.calls += 1
        chosen = x[x > 0]
        s.total = s.total + chosen.sum()
        if s.total > 50:
            s.total = s.total * 0
        return chosen

    step = wrap(step)
    for n in range(30):
        yield step(ramp(lib, 24, start=-0.1 * (n * 7 % 24) - 0.05)), s.total, s.calls


@case
def random_numbers_around_a_selection(lib: Any, wrap: Any) -> Seen:
    def step(x):
        noise = lib.rand(6)
        chosen = x[noise > 0.4]
        return chosen + lib.rand(chosen.shape[0]), noise

    step = wrap(step)
    lib.manual_seed(3)
    for n in range(10):
        yield step(ramp(lib, 6, start=float(n))), lib.rand(1)


@case
def a_selection_is_stored_and_read_by_the_next_call(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(kept=ramp(lib, 2))

    def step(x, mask):
        out = x.sum() + s.kept.sum()
        s.kept = x[mask]
        return out

    step = wrap(step)
    for n in range(12):
        mask = (lib.arange(6) + n) % (2 if n % 4 else 3) == 0
        yield step(ramp(lib, 6, start=float(n)), mask), s.kept


@case
def a_mask_over_a_transposed_argument(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: (x[x > 0], (x > 0).nonzero()))
    for n in range(6):
        x = batch(lib, n % 2)
        yield step(x.t() if n % 3 else x)


@case
def a_byte_mask(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, mask: x[mask.bool()] + mask.sum())
    for n in range(6):
        yield step(ramp(lib, 6), mask_of(lib, n).to(lib.uint8))
