"""Exceptions inside the step: at which call, of which type, and what state is left."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

from .registry import Seen, attempt, batch, case, layer, leaf, ramp, weights


@case
def a_bad_shape_at_the_third_call(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, y: x + y)
    for n in range(5):
        yield attempt(step, ramp(lib, 3), ramp(lib, 4 if n == 2 else 3))


@case
def a_bad_matrix_product(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    step = wrap(lambda x: model(x))
    for n in range(4):
        yield attempt(step, batch(lib, n, 4, 5 if n % 2 else 3))


@case
def an_exception_of_the_user(lib: Any, wrap: Any) -> Seen:
    class StopError(Exception):
        pass

    def step(x, n):
        if n == 2:
            raise StopError("at two")
        return x * n

    step = wrap(step)
    for n in range(5):
        yield attempt(step, ramp(lib, 3), n)


@case
def state_before_the_exception_stays(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(calls=0, log=[])

    def step(x, fail):
        s.calls += 1
        s.log.append("start")
        if fail:
            raise ValueError("failed")
        s.log.append("end")
        return x * s.calls

    step = wrap(step)
    for n in range(5):
        yield attempt(step, ramp(lib, 3), n % 2 == 1), s.calls, s.log


@case
def an_exception_on_the_value(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(total=0.0)

    def step(x):
        s.total = s.total + 1
        if x.sum() < 0:
            raise ValueError(f"negative sum at {s.total}")
        return x * s.total

    step = wrap(step)
    for n in range(5):
        yield attempt(step, lib.full((3,), -1.0 if n in (1, 3) else 1.0)), s.total


@case
def writes_to_tensors_before_the_exception(lib: Any, wrap: Any) -> Seen:
    state = lib.zeros(3)

    def step(x, fail):
        if fail:
            raise RuntimeError("stop")
        state.add_(x)
        return state.sum()

    step = wrap(step)
    for n in range(5):
        yield attempt(step, ramp(lib, 3), n == 2), state


@case
def try_and_except_in_the_step(lib: Any, wrap: Any) -> Seen:
    table = {"a": 1.0}

    def step(x, key):
        try:
            return x * table[key]
        except KeyError as error:
            return x, str(error)

    step = wrap(step)
    for n, key in enumerate("abaab"):
        table["a"] = 1.0 + n
        yield step(ramp(lib, 3), key)


@case
def try_around_an_operation(lib: Any, wrap: Any) -> Seen:
    def step(x, y):
        try:
            return x + y
        except RuntimeError:
            return x

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 3), ramp(lib, 3 + n % 2))


@case
def finally_always_runs(lib: Any, wrap: Any) -> Seen:
    log = []

    def step(x, n):
        try:
            if n == 2:
                raise ValueError("two")
            return x * n
        finally:
            log.append(n)

    step = wrap(step)
    for n in range(5):
        yield attempt(step, ramp(lib, 3), n), log


@case
def else_of_a_try(lib: Any, wrap: Any) -> Seen:
    def step(x, text):
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        else:
            value += 100
        return x * value

    step = wrap(step)
    for text in ("1", "a", "2", "b", "1"):
        yield step(ramp(lib, 3), text)


@case
def raised_from_a_helper_and_caught(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(broken=False)

    def helper(x):
        if s.broken:
            raise OSError("broken")
        return x * 2

    def step(x):
        try:
            return helper(x)
        except OSError:
            return -x

    step = wrap(step)
    for n in range(5):
        s.broken = n in (1, 2, 4)
        yield step(ramp(lib, 3))


@case
def raised_again_as_another(lib: Any, wrap: Any) -> Seen:
    def step(x, d):
        try:
            return x / d["n"]
        except KeyError as error:
            raise ValueError("no n") from error

    step = wrap(step)
    for n in range(4):
        yield attempt(step, ramp(lib, 3), {"n": 2.0} if n % 2 == 0 else {})


@case
def suppressed(lib: Any, wrap: Any) -> Seen:
    seen = []

    def step(x, k):
        with contextlib.suppress(IndexError):
            seen.append([10.0, 20.0][k])
        return x + len(seen)

    step = wrap(step)
    for k in (0, 3, 1, 5, 0):
        yield step(ramp(lib, 3), k), seen


@case
def a_context_manager_that_cleans_up(lib: Any, wrap: Any) -> Seen:
    log = []

    @contextlib.contextmanager
    def scope(name):
        log.append(f"in {name}")
        try:
            yield name
        finally:
            log.append(f"out {name}")

    def step(x, n):
        with scope(f"s{n}"):
            if n == 1:
                raise ValueError("one")
            return x + n

    step = wrap(step)
    for n in (0, 1, 2, 1):
        yield attempt(step, ramp(lib, 3), n), log


@case
def an_index_out_of_range(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, k: x[k])
    for k in (0, 5, 2, -4, 1):
        yield attempt(step, ramp(lib, 3), k)


@case
def a_lookup_out_of_range(lib: Any, wrap: Any) -> Seen:
    table = ramp(lib, 4, 2)
    step = wrap(lambda index: table[index])
    for n in (1, 3, 9, 2):
        yield attempt(step, lib.tensor([0, n]))


@case
def an_embedding_out_of_range(lib: Any, wrap: Any) -> Seen:
    table = lib.nn.Embedding(4, 2)
    step = wrap(lambda index: table(index).sum().detach())
    for n in (1, 9, 2, -1, 3):
        yield attempt(step, lib.tensor([0, n]))


@case
def a_target_out_of_range(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    step = wrap(lambda x, y: lib.nn.functional.cross_entropy(model(x), y))
    for n in (0, 1, 7, 1):
        yield attempt(step, batch(lib, n, 2), lib.tensor([0, n]))


@case
def assertion_on_a_shape(lib: Any, wrap: Any) -> Seen:
    def step(x):
        assert x.shape[0] == 3, f"need three, not {x.shape[0]}"
        return x * 2

    step = wrap(step)
    for n in (3, 4, 3, 2):
        yield attempt(step, lib.ones(n))


@case
def a_wrong_number_of_arguments(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, y=1.0: x * y)
    yield step(ramp(lib, 3)), step(ramp(lib, 3), 2.0)
    for call in (lambda: step(), lambda: step(ramp(lib, 3), 1.0, 2.0), lambda: step(z=1)):
        found = attempt(call)
        yield found.type


@case
def an_attribute_that_is_missing(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(gain=1.0)
    step = wrap(lambda x: x * s.gain)
    for n in range(4):
        if n == 2:
            del s.gain
        if n == 3:
            s.gain = 7.0
        yield attempt(step, ramp(lib, 3))


@case
def backward_without_a_graph(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)
    step = wrap(lambda x: (w * x).sum().backward())
    for n in range(4):
        w.requires_grad_(n != 2)
        yield attempt(step, ramp(lib, 3)), w.grad


@case
def an_in_place_write_to_a_leaf(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)
    step = wrap(lambda x: w.add_(x).sum())
    for n in range(4):
        w.requires_grad_(n % 2 == 0)
        yield attempt(step, ramp(lib, 3)), w


@case
def a_failing_step_leaves_the_model(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        if loss.item() > 0.08:
            raise OverflowError("diverged")
        optimizer.step()
        return loss.item()

    step = wrap(step)
    for n in range(5):
        yield attempt(step, batch(lib, n)), weights(model)


@case
def a_division_by_zero_of_python(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(n=1)
    step = wrap(lambda x: x * (1 / s.n))
    for n in (1, 2, 0, 4):
        s.n = n
        yield attempt(step, ramp(lib, 3))


@case
def stop_iteration_from_a_for_loop(lib: Any, wrap: Any) -> Seen:
    def step(x, items):
        for item in items:
            if item < 0:
                break
            x = x + item
        else:
            return x, "all"
        return x, item

    step = wrap(step)
    for items in ([1, 2], [1, -1, 2], [], [3]):
        yield step(ramp(lib, 3), items)


@case
def exceptions_as_values(lib: Any, wrap: Any) -> Seen:
    failures = []

    def step(x, n):
        try:
            if n % 2:
                raise KeyError(n)
        except KeyError as error:
            failures.append(error)
            return x - len(failures)
        return x

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 3), n), [str(f) for f in failures]
