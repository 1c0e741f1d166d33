"""Operations that fail by their data, and functions that handle the exception."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

from .registry import Seen, attempt, batch, case, layer, ramp, weights


def table(lib: Any) -> Any:
    """An embedding of three rows with fixed weights."""
    made = lib.nn.Embedding(3, 2)
    with lib.no_grad():
        made.weight.copy_(ramp(lib, 3, 2))
    return made


INDICES = [1, 2, 0, 5, 1, 0, 7, 2, 2]
FAILS_FIRST = [6, 5, 1, 1, 2, 7, 0]


@case
def caught_by_type(lib: Any, wrap: Any) -> Seen:
    e = table(lib)

    def step(i):
        try:
            return e(i).sum()
        except IndexError:
            return lib.zeros(())

    step = wrap(step)
    for n in INDICES:
        yield step(lib.tensor([n]))


@case
def caught_bare(lib: Any, wrap: Any) -> Seen:
    e = table(lib)

    def step(i):
        try:
            return e(i).sum()
        except:  # noqa: E722
            return lib.zeros(())

    step = wrap(step)
    for n in INDICES:
        yield step(lib.tensor([n]))


@case
def suppressed(lib: Any, wrap: Any) -> Seen:
    e = table(lib)
    s = SimpleNamespace(n=0)

    def step(i):
        r = None
        with contextlib.suppress(IndexError):
            s.n += 1
            r = e(i).sum()
            s.n += 10
        return r

    step = wrap(step)
    for n in INDICES:
        yield step(lib.tensor([n])), s.n


@case
def own_context_manager(lib: Any, wrap: Any) -> Seen:
    e = table(lib)

    class C:
        errors = 0

        def __enter__(self):
            return self

        def __exit__(self, kind, value, trace):
            C.errors += kind is not None
            return kind is IndexError

    def step(i):
        with C():
            return e(i).sum()
        return lib.ones(()) * 7

    step = wrap(step)
    for n in INDICES:
        yield step(lib.tensor([n])), C.errors


@case
def counted_and_raised(lib: Any, wrap: Any) -> Seen:
    e = table(lib)
    s = SimpleNamespace(bad=0)

    def step(i):
        try:
            return e(i).sum()
        except IndexError:
            s.bad += 1
            raise

    step = wrap(step)
    for n in INDICES:
        yield type(attempt(step, lib.tensor([n]))).__name__, s.bad


@case
def in_a_helper_with_training(lib: Any, wrap: Any) -> Seen:
    e = table(lib)
    opt = lib.optim.SGD(e.parameters(), lr=0.1)

    def look(i):
        try:
            return e(i)
        except IndexError:
            return e(i.clamp(max=2))

    def step(i):
        opt.zero_grad()
        loss = look(i).square().sum()
        loss.backward()
        opt.step()
        return loss.detach()

    step = wrap(step)
    for n in INDICES:
        yield step(lib.tensor([n])), weights(e)


@case
def path_before(lib: Any, wrap: Any) -> Seen:
    e = table(lib)

    def step(i, x):
        try:
            y = e(i).sum() * x.sum()
            if y > 0:
                return y * 2
            return y
        except IndexError:
            return lib.zeros(())

    step = wrap(step)
    for k, n in enumerate(INDICES * 2):
        yield step(lib.tensor([n]), ramp(lib, 2, start=float(k % 3) - 1))


@case
def noise_before(lib: Any, wrap: Any) -> Seen:
    e = table(lib)

    def step(i):
        z = lib.rand(2)
        try:
            return e(i) + z
        except IndexError:
            return z

    step = wrap(step)
    for n in INDICES:
        yield step(lib.tensor([n])), lib.rand(1)


@case
def gather_and_cross_entropy(lib: Any, wrap: Any) -> Seen:
    m = layer(lib)

    def step(x, t):
        try:
            return lib.nn.functional.cross_entropy(m(x), t)
        except (IndexError, RuntimeError):
            return m(x).sum()

    step = wrap(step)
    for n in (0, 1, 1, 2, 0, 3):
        yield step(batch(lib, n), lib.tensor([0, 1, n, 0]))


@case
def cholesky_falls_back(lib: Any, wrap: Any) -> Seen:
    def step(a):
        try:
            return lib.linalg.cholesky(a)
        except RuntimeError:
            return lib.linalg.cholesky(a + 10 * lib.eye(2))

    step = wrap(step)
    for n in (1.0, 1.0, 2.0, -1.0, 3.0, -2.0):
        yield step(lib.eye(2) * n)


@case
def solve_singular(lib: Any, wrap: Any) -> Seen:
    def step(a, b):
        try:
            return lib.linalg.solve(a, b)
        except RuntimeError:
            return b

    step = wrap(step)
    for n in (1.0, 1.0, 2.0, 0.0, 3.0, 0.0):
        yield step(lib.eye(2) * n, lib.ones(2))


@case
def inv_singular(lib: Any, wrap: Any) -> Seen:
    def step(a):
        try:
            return lib.linalg.inv(a)
        except RuntimeError:
            return lib.linalg.pinv(a)

    step = wrap(step)
    for n in (1.0, 1.0, 2.0, 0.0, 3.0, 0.0):
        yield step(lib.eye(2) * n)


@case
def distribution_validation(lib: Any, wrap: Any) -> Seen:
    def step(s):
        try:
            return lib.distributions.Normal(lib.zeros(2), s).log_prob(lib.ones(2))
        except ValueError:
            return lib.zeros(2)

    step = wrap(step)
    for n in (1.0, 1.0, 2.0, -1.0, 3.0):
        yield step(lib.ones(2) * n)


@case
def int_division(lib: Any, wrap: Any) -> Seen:
    def step(a, b):
        try:
            return a // b
        except RuntimeError:
            return a

    step = wrap(step)
    for n in (1, 1, 2, 0, 3):
        yield step(lib.tensor([4, 6]), lib.tensor([2, n]))


@case
def loop_retry_with_smaller(lib: Any, wrap: Any) -> Seen:
    e = table(lib)

    def step(i):
        for k in range(4):
            try:
                return e(i - k).sum() + k
            except IndexError:
                continue
        return None

    step = wrap(step)
    for n in (1, 1, 2, 4, 5, 9, 0):
        yield step(lib.tensor([n]))


@case
def multinomial_bad(lib: Any, wrap: Any) -> Seen:
    def step(p):
        try:
            return lib.multinomial(p, 1)
        except RuntimeError:
            return lib.zeros(1, dtype=lib.int64) - 1

    step = wrap(step)
    for n in (1.0, 1.0, -1.0, 1.0, -3.0):
        yield step(lib.tensor([0.0, n]))


@case
def at_the_first_call(lib: Any, wrap: Any) -> Seen:
    e = table(lib)

    def step(i):
        try:
            return e(i).sum()
        except IndexError:
            return lib.zeros(())

    step = wrap(step)
    for n in FAILS_FIRST:
        yield step(lib.tensor([n]))


@case
def noise_at_the_first_call(lib: Any, wrap: Any) -> Seen:
    e = table(lib)

    def step(i):
        z = lib.rand(2)
        try:
            return e(i).sum() + z
        except IndexError:
            return z - 1

    step = wrap(step)
    for n in FAILS_FIRST:
        yield step(lib.tensor([n])), lib.rand(1)
