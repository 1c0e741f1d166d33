"""Memory shared between tensors and NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from .registry import Seen, batch, case, layer, mlp, ramp, weights


def numbers(count, start=0.0):
    return np.arange(count, dtype=np.float32) + np.float32(start)


@case
def two_tensors_of_one_array(lib: Any, wrap: Any) -> Seen:
    def step(a, b):
        a.add_(1)
        return b * 2

    step = wrap(step)
    for n in range(5):
        array, other = numbers(3, n), numbers(3)
        b = lib.from_numpy(array if n % 2 else other)
        yield step(lib.from_numpy(array), b)
        yield array, other


@case
def overlapping_slices_of_an_array(lib: Any, wrap: Any) -> Seen:
    def step(a, b):
        a.mul_(2)
        return a.sum() + b.sum()

    step = wrap(step)
    for n in range(5):
        array = numbers(6, n)
        second = array[2:5] if n % 2 else array[3:]
        yield step(lib.from_numpy(array[:3]), lib.from_numpy(second))
        yield array


@case
def a_captured_tensor_over_an_array(lib: Any, wrap: Any) -> Seen:
    array = numbers(3)
    held = lib.from_numpy(array)
    step = wrap(lambda x: x * held)
    for n in range(5):
        array[:] = n
        yield step(ramp(lib, 3))


@case
def state_over_an_array_written_by_the_step(lib: Any, wrap: Any) -> Seen:
    array = np.zeros(3, np.float32)
    held = lib.from_numpy(array)

    def step(x):
        held.add_(x)
        return held.sum()

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 3, start=float(n)))
        yield array
        array += 1


@case
def an_argument_over_the_captured_array(lib: Any, wrap: Any) -> Seen:
    array = numbers(4)
    held = lib.from_numpy(array)

    def step(x):
        held.add_(1)
        return x * 2

    step = wrap(step)
    for n in range(5):
        yield step(lib.from_numpy(array) if n % 2 else lib.ones(4))
        yield array


@case
def a_result_seen_through_numpy(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x * 2)
    views = []
    for n in range(5):
        views.append(step(ramp(lib, 3, start=float(n))).numpy())
        views[0] += 1
        yield views


@case
def an_argument_seen_through_numpy(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x.add_(1).sum())
    x = ramp(lib, 3)
    view = x.numpy()
    for n in range(5):
        yield step(x), view
        view[0] = 100.0 * n


@case
def parameters_seen_through_numpy(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    view = model.weight.detach().numpy()
    step = wrap(lambda x: model(x))
    for n in range(5):
        view[0, 0] = float(n)
        yield step(lib.ones(2, 3))


@case
def numpy_of_an_argument_inside(lib: Any, wrap: Any) -> Seen:
    def step(x):
        return x * float(x.numpy().max())

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 3, start=float(n)))


@case
def numpy_of_a_result_inside(lib: Any, wrap: Any) -> Seen:
    def step(x):
        y = x * 2
        return np.sort(y.numpy())[::-1].copy(), y + 1

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 3, start=float(n)))


@case
def a_numpy_function_of_a_tensor(lib: Any, wrap: Any) -> Seen:
    def step(x):
        return float(np.percentile(x.detach().numpy(), 50)) * x

    step = wrap(step)
    for n in range(4):
        yield step(ramp(lib, 5, start=float(n)))


@case
def an_array_written_inside(lib: Any, wrap: Any) -> Seen:
    log = np.zeros(6, np.float32)
    at = [0]

    def step(x):
        log[at[0]] = at[0] * 1.5
        at[0] += 1
        return x + float(log.sum())

    step = wrap(step)
    for _ in range(5):
        yield step(ramp(lib, 3)), log


@case
def values_written_into_an_array(lib: Any, wrap: Any) -> Seen:
    log = np.zeros((5, 3), np.float32)

    def step(x, n):
        y = x.square()
        log[n] = y.numpy()
        return y.sum()

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 3, start=float(n)), n), log


@case
def from_numpy_inside(lib: Any, wrap: Any) -> Seen:
    array = numbers(3)

    def step(x):
        t = lib.from_numpy(array)
        t.add_(x)
        return t.sum()

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 3)), array
        array[1] = n


@case
def as_tensor_shares_and_tensor_copies(lib: Any, wrap: Any) -> Seen:
    array = numbers(3)

    def step():
        a, b = lib.as_tensor(array), lib.tensor(array)
        a.add_(1)
        b.add_(1)
        return a.sum(), b.sum()

    step = wrap(step)
    for _n in range(5):
        yield step(), array


@case
def an_array_as_argument(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda a: lib.from_numpy(a) * 2)
    for n in range(5):
        yield step(numbers(3, n))


@case
def an_array_argument_written_through(lib: Any, wrap: Any) -> Seen:
    def step(a):
        lib.from_numpy(a).mul_(2)
        a[0] = -1
        return float(a.sum())

    step = wrap(step)
    for n in range(5):
        a = numbers(3, n)
        yield step(a), a


@case
def an_array_argument_and_a_tensor_of_it(lib: Any, wrap: Any) -> Seen:
    def step(a, t):
        t.add_(1)
        return float(a[0]), lib.tensor(a)

    step = wrap(step)
    for n in range(5):
        a = numbers(3, n)
        yield step(a, lib.from_numpy(a if n % 2 else numbers(3)))


@case
def a_strided_array(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda t: t.add_(1).sum())
    base = np.zeros((3, 4), np.float32)
    for n in range(4):
        yield step(lib.from_numpy(base[:, n])), step(lib.from_numpy(base[::2].T)), base


@case
def an_array_result(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: (x * 2).numpy())
    kept = []
    for n in range(4):
        kept.append(step(ramp(lib, 3, start=float(n))))
        yield kept


@case
def tolist_inside(lib: Any, wrap: Any) -> Seen:
    def step(x):
        values = (x * 2).tolist()
        return sum(values), x + values[0]

    step = wrap(step)
    for n in range(4):
        yield step(ramp(lib, 3, start=float(n)))


@case
def numpy_scalars_computed_from_an_array(lib: Any, wrap: Any) -> Seen:
    history = np.zeros(3)
    step = wrap(lambda x: x * history.mean() + history.max())
    for n in range(5):
        history[n % 3] = n
        yield step(ramp(lib, 3))


@case
def a_memory_view_of_the_state(lib: Any, wrap: Any) -> Seen:
    state = lib.zeros(4)
    raw = memoryview(state.numpy())
    step = wrap(lambda x: state.add_(x).clone())
    for n in range(4):
        raw[n] = 10.0
        yield step(lib.ones(4)), list(raw)


@case
def an_array_replaced(lib: Any, wrap: Any) -> Seen:
    box = {"array": numbers(3)}
    step = wrap(lambda x: x + lib.from_numpy(box["array"]))
    for n in range(5):
        if n % 2:
            box["array"] = numbers(3, 10.0 * n)
        yield step(ramp(lib, 3))


@case
def training_with_weights_seen_through_numpy(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)
    views = [p.detach().numpy() for p in model.parameters()]

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = wrap(step)
    for n in range(4):
        yield step(batch(lib, n)), views, weights(model)
        views[0][0, 0] += 0.1


@case
def training_with_a_read_and_weights_seen_through_numpy(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    optimizer = lib.optim.Adam(model.parameters(), lr=0.1)
    views = []

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        value = loss.item()
        (loss * (2.0 if value > 0.1 else 1.0)).backward()
        optimizer.step()
        return value

    step = wrap(step)
    for n in range(5):
        if n == 2:
            views = [p.detach().numpy() for p in model.parameters()]
        yield step(batch(lib, n)), views, weights(model)


@case
def gradients_seen_through_numpy(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    step = wrap(lambda x: model(x).square().mean().backward())
    seen = []
    for n in range(4):
        step(batch(lib, n))
        seen.append(model.weight.grad.numpy())
        yield seen, model.weight.grad
        if n == 1:
            model.zero_grad()


@case
def an_array_written_before_its_tensor_is_used(lib: Any, wrap: Any) -> Seen:
    array = numbers(3, 1.0)
    shared = lib.from_numpy(array)

    def step(x):
        y = x * 2
        array[0] = array[0] * 0.5
        return (x + y).sum().item()

    step = wrap(step)
    for n in range(6):
        yield step(shared if n in (3, 5) else ramp(lib, 3, start=float(n))), array
