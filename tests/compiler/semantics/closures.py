"""Cells, defaults and globals of functions: read, rebound, mutated and written by the step."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from .registry import Seen, batch, case, layer, ramp

GAIN = 1.0
TABLE = {"gain": 1.0}


def with_global(x):
    return x * GAIN


@case
def a_number_rebound_outside(lib: Any, wrap: Any) -> Seen:
    gain = 1.0
    step = wrap(lambda x: x * gain)
    for n in range(5):
        gain = 2.0 * n
        yield step(ramp(lib, 3))


@case
def a_tensor_rebound_outside(lib: Any, wrap: Any) -> Seen:
    other = lib.ones(3)
    step = wrap(lambda x: x * other)
    for n in range(5):
        other = lib.full((3,), 2.0 * n)
        yield step(ramp(lib, 3))


@case
def a_function_rebound_outside(lib: Any, wrap: Any) -> Seen:
    act = lib.tanh
    step = wrap(lambda x: act(x))
    for other in (lib.tanh, lib.exp, lib.sin, lambda x: x + 1, lib.tanh):
        act = other
        yield step(ramp(lib, 3))


@case
def a_nonlocal_number(lib: Any, wrap: Any) -> Seen:
    count = 0

    def step(x):
        nonlocal count
        count += 1
        return x * count

    step = wrap(step)
    for n in range(6):
        if n == 3:
            count = 10
        yield step(ramp(lib, 3)), count


@case
def a_nonlocal_tensor(lib: Any, wrap: Any) -> Seen:
    mean = lib.zeros(3)

    def step(x):
        nonlocal mean
        mean = 0.9 * mean + 0.1 * x
        return mean.sum()

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 3, start=float(n))), mean
    mean = lib.ones(3)
    yield step(ramp(lib, 3)), mean


@case
def a_nonlocal_list(lib: Any, wrap: Any) -> Seen:
    seen = []

    def step(x):
        nonlocal seen
        seen = [*seen, float(len(seen))]
        return x + sum(seen)

    step = wrap(step)
    for _ in range(5):
        yield step(ramp(lib, 3)), seen


@case
def two_steps_share_a_cell(lib: Any, wrap: Any) -> Seen:
    level = 0.0

    def raise_it(by):
        nonlocal level
        level = level + by

    def use(x):
        return x + level

    raise_it, use = wrap(raise_it), wrap(use)
    for n in range(5):
        raise_it(float(n))
        yield use(ramp(lib, 3)), level


@case
def a_global_number(lib: Any, wrap: Any) -> Seen:
    global GAIN
    step = wrap(with_global)
    for n in range(5):
        GAIN = 1.0 + n
        yield step(ramp(lib, 3))
    GAIN = 1.0


@case
def a_global_read_by_a_helper(lib: Any, wrap: Any) -> Seen:
    global GAIN
    step = wrap(lambda x: sum(with_global(y) for y in x))
    for n in range(5):
        GAIN = 3.0 - n
        yield step(ramp(lib, 3))
    GAIN = 1.0


@case
def a_global_dictionary(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x * TABLE["gain"])
    for n in range(5):
        TABLE["gain"] = 1.0 - n
        yield step(ramp(lib, 3))
    TABLE["gain"] = 1.0


@case
def a_global_written_by_the_step(lib: Any, wrap: Any) -> Seen:
    def step(x):
        global GAIN
        GAIN = GAIN + 1
        return x * GAIN

    global GAIN
    GAIN = 1.0
    step = wrap(step)
    for n in range(5):
        if n == 3:
            GAIN = -5.0
        yield step(ramp(lib, 3)), GAIN
    GAIN = 1.0


@case
def a_global_read_through_globals(lib: Any, wrap: Any) -> Seen:
    global GAIN
    step = wrap(lambda x: x * globals()["GAIN"])
    for n in range(4):
        GAIN = 5.0 * n
        yield step(ramp(lib, 3))
    GAIN = 1.0


@case
def a_default_argument_replaced(lib: Any, wrap: Any) -> Seen:
    def helper(x, gain=1.0):
        return x * gain

    step = wrap(lambda x: helper(x))
    for n in range(5):
        helper.__defaults__ = (1.0 + n,)
        yield step(ramp(lib, 3))


@case
def a_keyword_default_replaced(lib: Any, wrap: Any) -> Seen:
    def helper(x, *, gain=1.0):
        return x * gain

    step = wrap(lambda x: helper(x))
    for n in range(5):
        helper.__kwdefaults__["gain"] = 1.0 + n
        yield step(ramp(lib, 3))


@case
def the_default_of_the_step_itself(lib: Any, wrap: Any) -> Seen:
    def step(x, gain=2.0):
        return x * gain

    compiled = wrap(step)
    for n in range(5):
        step.__defaults__ = (2.0 + n,)
        yield compiled(ramp(lib, 3))


@case
def a_mutable_default(lib: Any, wrap: Any) -> Seen:
    def step(x, seen=[]):  # noqa: B006
        seen.append(len(seen))
        return x * len(seen)

    step = wrap(step)
    for _ in range(5):
        yield step(ramp(lib, 3))


@case
def a_mutable_default_of_a_helper(lib: Any, wrap: Any) -> Seen:
    def helper(x, cache={}):  # noqa: B006
        cache["n"] = cache.get("n", 0) + 1
        return x + cache["n"]

    step = wrap(lambda x: helper(x) * 2)
    for _ in range(5):
        yield step(ramp(lib, 3))


@case
def a_cell_contents_set_from_outside(lib: Any, wrap: Any) -> Seen:
    gain = 1.0

    def step(x):
        return x * gain

    compiled = wrap(step)
    for n in range(4):
        step.__closure__[0].cell_contents = 1.0 + n
        yield compiled(ramp(lib, 3)), gain


@case
def an_array_that_was_closed_over(lib: Any, wrap: Any) -> Seen:
    table = np.array([1.0, 2.0, 3.0], dtype=np.float32)
    step = wrap(lambda x: x * lib.tensor(table))
    for n in range(5):
        table[n % 3] = 10.0 + n
        yield step(ramp(lib, 3))


@case
def an_element_of_an_array(lib: Any, wrap: Any) -> Seen:
    rates = np.array([0.1, 0.2, 0.3])
    step = wrap(lambda x: x * float(rates[1]))
    for _ in range(5):
        rates[1] += 1.0
        yield step(ramp(lib, 3))


@case
def an_array_that_decides(lib: Any, wrap: Any) -> Seen:
    flags = np.array([True, False])
    step = wrap(lambda x: x * 2 if flags.any() else x - 1)
    for n in range(5):
        flags[0] = n % 2 == 0
        yield step(ramp(lib, 3))


@case
def a_nested_container(lib: Any, wrap: Any) -> Seen:
    options = {"a": [{"b": (1.0, 2.0)}, 3.0]}
    step = wrap(lambda x: x * options["a"][0]["b"][1] + options["a"][1])
    for n in range(5):
        options["a"][0]["b"] = (0.0, 2.0 * n)
        options["a"][1] = -n
        yield step(ramp(lib, 3))


@case
def a_factory_of_steps(lib: Any, wrap: Any) -> Seen:
    def make(gain):
        def step(x):
            return x * gain

        return wrap(step)

    first, second = make(2.0), make(3.0)
    for n in range(4):
        yield first(ramp(lib, 3, start=float(n))), second(ramp(lib, 3, start=float(n)))


@case
def loop_variables_bound_late(lib: Any, wrap: Any) -> Seen:
    steps = [wrap(lambda x: x * k) for k in range(3)]  # noqa: B023
    for n in range(4):
        yield [step(ramp(lib, 3, start=float(n))) for step in steps]


@case
def a_partial_whose_keywords_change(lib: Any, wrap: Any) -> Seen:
    inner = functools.partial(lambda x, gain: x * gain, gain=1.0)
    step = wrap(lambda x: inner(x))
    for n in range(5):
        inner.keywords["gain"] = 1.0 + n
        yield step(ramp(lib, 3))


@case
def a_partial_as_the_step(lib: Any, wrap: Any) -> Seen:
    def add(x, gain, shift=0.0):
        return x * gain + shift

    inner = functools.partial(add, gain=2.0)
    step = wrap(inner)
    for n in range(5):
        yield step(ramp(lib, 3)), step(ramp(lib, 3), shift=float(n)), step(ramp(lib, 3), gain=n)


@case
def a_module_rebound_outside(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    step = wrap(lambda x: model(x))
    for n in range(5):
        if n % 2:
            model = layer(lib)
            with lib.no_grad():
                model.bias.fill_(float(n))
        yield step(batch(lib, 0))


@case
def a_closure_in_a_dispatch_table(lib: Any, wrap: Any) -> Seen:
    shift = 0.0
    table = {"add": lambda x: x + shift, "sub": lambda x: x - shift}
    step = wrap(lambda x, op: table[op](x))
    for n in range(6):
        shift += 1.0
        yield step(ramp(lib, 3), ["add", "sub"][n % 2])


@case
def lru_cached_helper(lib: Any, wrap: Any) -> Seen:
    calls = []

    @functools.cache
    def table(n):
        calls.append(n)
        return [float(k) for k in range(n)]

    step = wrap(lambda x, n: x + sum(table(n)))
    for n in (2, 3, 2, 3, 4):
        yield step(ramp(lib, 3), n), calls


@case
def unbound_until_the_third_call(lib: Any, wrap: Any) -> Seen:
    def step(x):
        try:
            return x * later
        except NameError:
            return x

    compiled = wrap(step)
    for n in range(5):
        if n == 2:
            later = 3.0
        if n == 4:
            later = 5.0
        yield compiled(ramp(lib, 3))
