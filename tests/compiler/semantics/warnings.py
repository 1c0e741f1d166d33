"""Warnings of the user in the step: as often, with the same text, under the same filters."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

from .registry import Seen, attempt, batch, case, layer, leaf, ramp


@case
def a_warning_at_each_call(lib: Any, wrap: Any) -> Seen:
    def step(x):
        warnings.warn("user: each call", stacklevel=1)
        return x * 2

    step = wrap(step)
    for _ in range(4):
        yield step(ramp(lib, 3))


@case
def a_warning_at_one_call(lib: Any, wrap: Any) -> Seen:
    def step(x, n):
        if n == 2:
            warnings.warn(f"user: n is {n}", stacklevel=1)
        return x * n

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 3), n)


@case
def a_warning_that_names_the_count(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(n=0)

    def step(x):
        s.n += 1
        warnings.warn(f"user: call {s.n}", stacklevel=1)
        return x

    step = wrap(step)
    for _ in range(4):
        yield step(ramp(lib, 3))


@case
def a_warning_that_names_a_value(lib: Any, wrap: Any) -> Seen:
    def step(x):
        warnings.warn(f"user: sum {x.sum().item():.1f}", stacklevel=1)
        return x * 2

    step = wrap(step)
    for n in range(4):
        yield step(lib.full((2,), float(n)))


@case
def a_warning_on_the_data(lib: Any, wrap: Any) -> Seen:
    def step(x):
        if (x < 0).any():
            warnings.warn("user: negative input", stacklevel=1)
        return x.abs()

    step = wrap(step)
    for n in (1, -1, 2, -2):
        yield step(lib.full((2,), float(n)))


@case
def a_warning_from_a_helper(lib: Any, wrap: Any) -> Seen:
    def helper(x):
        warnings.warn("user: helper", DeprecationWarning, stacklevel=2)
        return x + 1

    step = wrap(lambda x: helper(x) * 2)
    for _ in range(3):
        yield step(ramp(lib, 3))


@case
def warnings_turned_into_errors(lib: Any, wrap: Any) -> Seen:
    def step(x):
        warnings.warn("user: stop", UserWarning, stacklevel=1)
        return x * 2

    step = wrap(step)
    for n in range(4):
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            if n % 2:
                warnings.filterwarnings("error", message="user: stop")
            yield attempt(step, ramp(lib, 3))


@case
def warnings_caught_in_the_step(lib: Any, wrap: Any) -> Seen:
    def step(x):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.warn("user: inside", stacklevel=1)
        return x * len(caught)

    step = wrap(step)
    for _ in range(4):
        yield step(ramp(lib, 3))


@case
def warnings_ignored_in_the_step(lib: Any, wrap: Any) -> Seen:
    def step(x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.warn("user: not seen", stacklevel=1)
        return x + 1

    step = wrap(step)
    for _ in range(4):
        yield step(ramp(lib, 3))


@case
def a_warning_of_a_class_of_its_own(lib: Any, wrap: Any) -> Seen:
    class Slow(RuntimeWarning):
        pass

    def step(x, n):
        if n % 2:
            warnings.warn("user: slow", Slow, stacklevel=1)
        return x * n

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 3), n)


@case
def warned_once_by_a_flag(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(warned=False)

    def step(x):
        if not s.warned:
            warnings.warn("user: once", stacklevel=1)
            s.warned = True
        return x * 2

    step = wrap(step)
    for n in range(5):
        if n == 3:
            s.warned = False
        yield step(ramp(lib, 3)), s.warned


@case
def a_warning_in_a_hook(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)

    def hook(g):
        warnings.warn("user: backward", stacklevel=1)
        return g

    w.register_hook(hook)
    step = wrap(lambda x: (w * x).sum().backward())
    for _ in range(3):
        step(ramp(lib, 3))
        yield w.grad


@case
def a_warning_in_forward(lib: Any, wrap: Any) -> Seen:
    class Net(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer(lib)

        def forward(self, x):
            if not self.training:
                warnings.warn("user: evaluation", stacklevel=1)
            return self.layer(x)

    net = Net()
    step = wrap(net)
    for n in range(4):
        net.train(n % 2 == 0)
        yield step(batch(lib, n))


@case
def a_deprecated_function(lib: Any, wrap: Any) -> Seen:
    import functools

    def deprecated(function):
        @functools.wraps(function)
        def call(*args):
            warnings.warn(f"user: {function.__name__} is deprecated", stacklevel=2)
            return function(*args)

        return call

    @deprecated
    def scaled(x, gain):
        return x * gain

    step = wrap(lambda x, gain: scaled(x, gain))
    for n in range(3):
        yield step(ramp(lib, 3), float(n))


@case
def showwarning_replaced(lib: Any, wrap: Any) -> Seen:
    shown = []

    def step(x):
        warnings.warn("user: shown", stacklevel=1)
        return x

    step = wrap(step)
    for n in range(4):
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            if n % 2:
                warnings.showwarning = lambda message, *rest: shown.append(str(message))
            yield step(ramp(lib, 3)), shown


@case
def before_and_after_an_exception(lib: Any, wrap: Any) -> Seen:
    def step(x, fail):
        warnings.warn("user: start", stacklevel=1)
        if fail:
            raise ValueError("failed")
        warnings.warn("user: end", stacklevel=1)
        return x

    step = wrap(step)
    for n in range(4):
        yield attempt(step, ramp(lib, 3), n % 2 == 1)
