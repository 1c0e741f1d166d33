"""NumPy arrays of computed tensors that a step returns, and others that it looks at."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from .registry import Seen, attempt, batch, case, leaf, mlp, ramp


def as_array(tensor: Any) -> Any:
    return tensor.numpy()


def called(lib: Any, wrap: Any, step: Any, calls: int = 5) -> Seen:
    step = wrap(step)
    for n in range(calls):
        found = step(batch(lib, n))
        yield found
        for array in found if isinstance(found, (tuple, list)) else ():
            if isinstance(array, np.ndarray):
                array[...] = 7.0  # the memory of no other call
    yield step(batch(lib, 1))


@case
def predictions(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)

    def predict(x):
        with lib.no_grad():
            return model(x).numpy()

    yield from called(lib, wrap, predict)


@case
def detached(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    yield from called(lib, wrap, lambda x: model(x).detach().cpu().numpy())


@case
def in_a_variable(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)

    def predict(x):
        found = model(x).softmax(-1).detach().numpy()
        return found

    yield from called(lib, wrap, predict)


@case
def several(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)

    def predict(x):
        out = model(x).detach()
        return out.numpy(), out.argmax(-1).numpy(), out * 2

    yield from called(lib, wrap, predict)


@case
def by_name(lib: Any, wrap: Any) -> Seen:
    def step(x):
        y = x.sin()
        return {"y": y.numpy(), "same": y, "top": [x.amax(1).numpy(), 3]}

    yield from called(lib, wrap, step)


@case
def memory_with_a_result(lib: Any, wrap: Any) -> Seen:
    def step(x):
        y = x * 2
        return y, y.numpy(), y[:2]

    step = wrap(step)
    for n in range(4):
        y, array, part = step(batch(lib, n))
        array[0] = 5.0
        yield y, array, part


@case
def parts_of_a_result(lib: Any, wrap: Any) -> Seen:
    yield from called(lib, wrap, lambda x: ((x * 2)[1:].numpy(), (x + 1).t().numpy()))


@case
def after_an_update(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)
    optimizer = lib.optim.SGD([w], lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = (x * w).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach().numpy()

    step = wrap(step)
    for n in range(5):
        yield step(batch(lib, n)), w


@case
def that_requires_grad(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)
    step = wrap(lambda x: (x * w).numpy())
    for n in range(3):
        yield attempt(step, batch(lib, n)).base


@case
def looked_at(lib: Any, wrap: Any) -> Seen:
    def step(x):
        found = (x * 2).numpy()
        return found, found.shape, float(found.sum())

    yield from called(lib, wrap, step)


@case
def copied_and_sorted(lib: Any, wrap: Any) -> Seen:
    yield from called(lib, wrap, lambda x: np.sort((x * 2).numpy(), 1).copy())


@case
def sorted_by_c(lib: Any, wrap: Any) -> Seen:
    yield from called(lib, wrap, lambda x: sorted(map(as_array, [x.amax(), x.amin()])))


@case
def of_a_helper(lib: Any, wrap: Any) -> Seen:
    def helper(x):
        return (x * 3).numpy()

    def step(x):
        found = helper(x)
        return found + 1

    yield from called(lib, wrap, step)


@case
def of_the_step_called_by_itself(lib: Any, wrap: Any) -> Seen:
    def step(x, depth=0):
        return x.numpy() if depth else step(x * 2, 1) + 1

    compiled = wrap(step)
    for n in range(4):
        yield compiled(batch(lib, n))


@case
def through_a_partial_function(lib: Any, wrap: Any) -> Seen:
    def step(scale, x):
        return (x * scale).numpy()

    yield from called(lib, wrap, functools.partial(step, 2.0))


@case
def of_a_written_argument(lib: Any, wrap: Any) -> Seen:
    def step(x):
        x.mul_(2)
        return x.numpy(), (x + 1).numpy()

    step = wrap(step)
    for n in range(4):
        x = batch(lib, n)
        found = step(x)
        found[0][0] = 9.0
        yield x, found


@case
def of_a_parameter_of_before(lib: Any, wrap: Any) -> Seen:
    w = lib.tensor([1.0, 2.0, 3.0])

    def step(x):
        w.add_(x.sum(0))
        return w.numpy()

    step = wrap(step)
    for n in range(4):
        found = step(batch(lib, n))
        yield found, w
        w.mul_(0.5)
        yield found


@case
def in_one_branch(lib: Any, wrap: Any) -> Seen:
    def step(x, is_array):
        if is_array:
            return (x * 2).numpy()
        return ramp(lib, 3) + x

    step = wrap(step)
    for n in range(6):
        yield step(batch(lib, n), n % 2 == 0)


@case
def in_a_variable_of_a_block(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)

    def predict(x):
        with lib.no_grad():
            found = model(x).numpy()
        return found

    yield from called(lib, wrap, predict)


@case
def seen_where_an_exception_is_handled(lib: Any, wrap: Any) -> Seen:
    def step(x):
        found = (x * 2).numpy()
        try:
            part = x[7]
        except IndexError:
            return float(found.sum())
        return found, part

    yield from called(lib, wrap, step)


@case
def seen_by_a_closure(lib: Any, wrap: Any) -> Seen:
    def step(x):
        found = (x * 2).numpy()
        total = (lambda: float(found.sum()))()
        return found, total

    yield from called(lib, wrap, step)


@case
def seen_among_the_variables(lib: Any, wrap: Any) -> Seen:
    def step(x):
        found = (x * 2).numpy()
        total = float(locals()["found"].sum())
        return found, total

    yield from called(lib, wrap, step)
