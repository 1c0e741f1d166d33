"""Settings that code reads, modes around a call, attributes of functions, classes of tensors."""

from __future__ import annotations

import decimal
import sys
from types import ModuleType
from typing import Any

import numpy as np

from .registry import Seen, case, ramp


@case
def whether_algorithms_are_deterministic(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x * (2 if lib.are_deterministic_algorithms_enabled() else 1))
    try:
        for n in range(5):
            lib.use_deterministic_algorithms(n % 3 == 2)
            yield step(ramp(lib, 3))
    finally:
        lib.use_deterministic_algorithms(False)


@case
def the_precision_of_products(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: (x * 2, lib.get_float32_matmul_precision()))
    try:
        for n in range(5):
            lib.set_float32_matmul_precision("high" if n % 2 else "highest")
            yield step(ramp(lib, 3))
    finally:
        lib.set_float32_matmul_precision("highest")


@case
def a_setting_read_by_an_imported_function(lib: Any, wrap: Any) -> Seen:
    read = lib.get_deterministic_debug_mode
    step = wrap(lambda x: (x * 2, read()))
    try:
        for n in range(5):
            lib.use_deterministic_algorithms(n % 2 == 1)
            yield step(ramp(lib, 3))
    finally:
        lib.use_deterministic_algorithms(False)


@case
def the_element_type_of_autocast(lib: Any, wrap: Any) -> Seen:
    def step(x):
        return x * 2, str(lib.get_autocast_dtype("cpu")).rpartition(".")[2]

    step = wrap(step)
    before = lib.get_autocast_dtype("cpu")
    try:
        for n in range(5):
            lib.set_autocast_dtype("cpu", lib.float16 if n % 2 else lib.bfloat16)
            yield step(ramp(lib, 3))
    finally:
        lib.set_autocast_dtype("cpu", before)


@case
def the_number_of_threads(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x * lib.get_num_threads())
    before = lib.get_num_threads()
    try:
        for n in range(5):
            lib.set_num_threads(1 + n % 2)
            yield step(ramp(lib, 3))
    finally:
        lib.set_num_threads(before)


@case
def the_error_state_of_numpy(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x * (1.0 if np.geterr()["divide"] == "ignore" else 2.0))
    for n in range(5):
        with np.errstate(divide="ignore" if n % 2 else "warn"):
            yield step(ramp(lib, 3))


@case
def the_print_options_of_numpy(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x * np.get_printoptions()["precision"])
    for n in range(5):
        with np.printoptions(precision=3 + n):
            yield step(ramp(lib, 3))


@case
def the_context_of_decimals(lib: Any, wrap: Any) -> Seen:
    def step(x):
        return x * float(decimal.Decimal(1) / decimal.Decimal(3))

    step = wrap(step)
    for n in range(5):
        with decimal.localcontext() as context:
            context.prec = 2 + n
            yield step(ramp(lib, 3))


@case
def a_module_in_the_table_of_modules(lib: Any, wrap: Any) -> Seen:
    name = "module_of_a_case"
    sys.modules[name] = ModuleType(name)
    step = wrap(lambda x: x * sys.modules["module_of_a_case"].rate)
    try:
        for n in range(5):
            sys.modules[name].rate = n + 1.0
            yield step(ramp(lib, 3))
    finally:
        del sys.modules[name]


@case
def an_attribute_that_the_function_gets(lib: Any, wrap: Any) -> Seen:
    def step(x):
        step.count = getattr(step, "count", 0) + 1
        return x * step.count

    wrapped = wrap(step)
    for n in range(5):
        yield wrapped(ramp(lib, 3))
        yield step.count
        if n == 3:
            del step.count


@case
def an_attribute_that_a_helper_is_given_later(lib: Any, wrap: Any) -> Seen:
    def helper(x):
        return x * getattr(helper, "scale", 1.0)

    step = wrap(lambda x: helper(x))
    for n in range(6):
        if n == 2:
            helper.scale = 3.0
        if n == 4:
            del helper.scale
        yield step(ramp(lib, 3))


@case
def a_decorator_that_counts(lib: Any, wrap: Any) -> Seen:
    def counted(function):
        def inner(*args):
            inner.calls += 1
            return function(*args) * inner.calls

        inner.calls = 0
        return inner

    helper = counted(lambda x: x + 1)
    step = wrap(lambda x: helper(x))
    for n in range(5):
        if n == 3:
            helper.calls = 10
        yield step(ramp(lib, 3))
        yield helper.calls


@case
def an_object_in_an_array(lib: Any, wrap: Any) -> Seen:
    class Part:
        scale = 1.0

    part = Part()
    parts = np.empty(2, dtype=object)
    parts[:] = part, [2.0]
    step = wrap(lambda x: x * parts[0].scale + parts[1][0])
    for n in range(5):
        part.scale = n + 1.0
        parts[1][0] = 2.0 * n
        yield step(ramp(lib, 3))


@case
def gradients_under_anomaly_detection(lib: Any, wrap: Any) -> Seen:
    weight = lib.zeros(2, requires_grad=True)

    def step(x):
        weight.grad = None
        (weight.sqrt() * 0 * x).sum().backward()
        return weight.grad

    step = wrap(step)
    for n in range(5):
        try:
            with lib.autograd.set_detect_anomaly(n in (2, 3)):
                yield step(ramp(lib, 2)).isnan()
        except RuntimeError as error:
            yield "nan values" in str(error)


@case
def hooks_on_saved_tensors_around_a_call(lib: Any, wrap: Any) -> Seen:
    weight = (ramp(lib, 3) + 1).requires_grad_()
    packed = []

    def pack(tensor):
        packed.append(1)
        return tensor * 2

    def step(x):
        weight.grad = None
        (weight * weight * x).sum().backward()
        return weight.grad.clone()

    step = wrap(step)
    for n in range(5):
        if n in (2, 3):
            with lib.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
                yield step(ramp(lib, 3)), len(packed)
        else:
            yield step(ramp(lib, 3)), len(packed)


@case
def a_subclass_of_tensor(lib: Any, wrap: Any) -> Seen:
    class Named(lib.Tensor):
        pass

    held = (ramp(lib, 3) + 1).as_subclass(Named)
    step = wrap(lambda x: x * 2)
    of_held = wrap(lambda x: [x * held, (held,)])
    made = wrap(lambda x: (x + 1).as_subclass(Named))
    for n in range(5):
        x = ramp(lib, 3)
        result = step(x.as_subclass(Named) if n in (2, 3) else x)
        yield type(result).__name__, result.as_subclass(lib.Tensor)
        first, (second,) = of_held(x)
        yield type(first).__name__, type(second).__name__, type(made(x)).__name__


@case
def settings_that_the_step_writes(lib: Any, wrap: Any) -> Seen:
    def step(x):
        lib.use_deterministic_algorithms(not lib.are_deterministic_algorithms_enabled())
        return x * 2

    step = wrap(step)
    for _ in range(4):
        yield step(ramp(lib, 3)), lib.are_deterministic_algorithms_enabled()


@case
def a_setting_of_numpy_that_the_step_writes(lib: Any, wrap: Any) -> Seen:
    def step(x):
        now = np.geterr()["divide"]
        np.seterr(divide="ignore" if now == "warn" else "warn")
        return x * 2

    step = wrap(step)
    with np.errstate(divide="warn"):
        for _ in range(4):
            yield step(ramp(lib, 3)), np.geterr()["divide"]


@case
def the_context_of_decimals_that_the_step_writes(lib: Any, wrap: Any) -> Seen:
    def step(x):
        decimal.getcontext().prec += 1
        return x * float(decimal.Decimal(1) / 3)

    step = wrap(step)
    with decimal.localcontext() as context:
        context.prec = 3
        for _ in range(4):
            yield step(ramp(lib, 3)), decimal.getcontext().prec


@case
def the_element_type_of_autocast_that_the_step_writes(lib: Any, wrap: Any) -> Seen:
    count = [0]

    def step(x):
        count[0] += 1
        lib.set_autocast_dtype("cpu", lib.float16 if count[0] % 2 else lib.bfloat16)
        return x * 2

    step = wrap(step)
    for _ in range(4):
        yield step(ramp(lib, 3)), str(lib.get_autocast_dtype("cpu")).rpartition(".")[2]


@case
def an_attribute_that_a_tensor_gets(lib: Any, wrap: Any) -> Seen:
    held = ramp(lib, 3)

    def step(x):
        held.count = getattr(held, "count", 0) + 1
        return x * held.count

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 3)), held.count
        if n == 3:
            del held.count


@case
def an_attribute_that_a_tensor_is_given(lib: Any, wrap: Any) -> Seen:
    held = ramp(lib, 3)
    step = wrap(lambda x: x * held if hasattr(held, "is_special") else x)
    for n in range(5):
        if n == 2:
            held.is_special = True
        if n == 4:
            del held.is_special
        yield step(ramp(lib, 3))
