"""State that is changed between two calls past the usual assignment."""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import functools
import math
import operator
import sys
import types
from collections import ChainMap, OrderedDict
from dataclasses import dataclass
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np

from .registry import Seen, attempt, batch, case, layer, leaf, mlp, ramp, weights

SCALE = 2.0


def scaled_by_global(x: Any) -> Any:
    return x * SCALE


@case
def a_parameter_put_into_the_table_of_a_layer(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    step = wrap(lambda x: model(x).sum())
    for n in range(6):
        if n in (2, 4):
            model._parameters["weight"] = lib.nn.Parameter(ramp(lib, 2, 3, scale=0.1 * n))
        yield step(batch(lib, n)), model.weight


@case
def a_buffer_put_into_the_table_of_a_layer(lib: Any, wrap: Any) -> Seen:
    norm = lib.nn.BatchNorm1d(3)
    norm.eval()
    step = wrap(lambda x: norm(x))
    for n in range(6):
        if n == 2:
            norm._buffers["running_mean"] = ramp(lib, 3)
        if n == 4:
            norm._buffers["running_var"].fill_(4.0)
        yield step(batch(lib, n))


@case
def a_layer_put_into_the_table_of_its_parent(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    step = wrap(lambda x: model(x))
    for n in range(6):
        if n == 2:
            model._modules["1"] = lib.nn.ReLU()
        if n == 4:
            model._modules["3"] = lib.nn.Sigmoid()
        yield step(batch(lib, n))


@case
def an_attribute_of_a_layer_by_its_dictionary(lib: Any, wrap: Any) -> Seen:
    class Scaled(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.factor, self.kind = 2.0, "plain"

        def forward(self, x):
            return x * self.factor if self.kind == "plain" else x + self.factor

    model = Scaled()
    step = wrap(lambda x: model(x))
    for n in range(8):
        if n == 2:
            model.__dict__["factor"] = 3.0
        if n == 4:
            vars(model).update(kind="other")
        if n == 6:
            object.__setattr__(model, "factor", 5.0)
        yield step(batch(lib, n))


@case
def a_hook_put_into_the_table_of_a_layer(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    step = wrap(lambda x: model(x))
    for n in range(6):
        if n == 2:
            model._forward_hooks[99] = lambda module, args, out: out * 2
        if n == 4:
            model._forward_hooks.clear()
        if n == 5:
            model._forward_pre_hooks = OrderedDict({7: lambda module, args: (args[0] + 1,)})
        yield step(batch(lib, n)), len(model._forward_hooks), list(model._forward_pre_hooks)


@case
def the_flag_of_training_set_as_an_attribute(lib: Any, wrap: Any) -> Seen:
    norm, drop = lib.nn.BatchNorm1d(3), lib.nn.Dropout(0.5)
    step = wrap(lambda x: drop(norm(x)))
    for n in range(7):
        if n in (2, 5):
            norm.training = not norm.training
        if n == 3:
            drop.training = False
        yield step(batch(lib, n)), norm.running_mean


@case
def a_builtin_replaced(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x * divmod(7.0, 2.0)[1] + divmod(9.0, 4.0)[0])
    former = builtins.divmod
    try:
        for n in range(6):
            if n == 2:
                builtins.divmod = lambda a, b: (a, b)
            if n == 4:
                builtins.divmod = former
            yield step(batch(lib, n))
    finally:
        builtins.divmod = former


@case
def a_builtin_shadowed_by_a_new_global(lib: Any, wrap: Any) -> Seen:
    space = {"lib": lib}
    exec("def step(x):\n    return x * abs(-2.0)\n", space)
    step = wrap(space["step"])
    for n in range(6):
        if n == 2:
            space["abs"] = lambda value: value
        if n == 4:
            del space["abs"]
        yield step(batch(lib, n))


@case
def a_constant_of_a_library_replaced(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x * math.pi + np.e)
    former = math.pi
    try:
        for n in range(6):
            if n == 2:
                math.pi = 3.0
            if n == 4:
                math.pi = former
            yield step(batch(lib, n))
    finally:
        math.pi = former


@case
def a_global_written_by_exec(lib: Any, wrap: Any) -> Seen:
    space = {"lib": lib, "scale": 2.0}
    exec("def helper(x):\n    return x * scale\ndef step(x):\n    return helper(x) + 1\n", space)
    step = wrap(space["step"])
    for n in range(7):
        if n == 2:
            exec("scale = 3.0", space)
        if n == 4:
            exec("def helper(x):\n    return x - scale\n", space)
        if n == 6:
            space.update(scale=0.5)
        yield step(batch(lib, n))


@case
def a_name_that_a_class_body_once_read(lib: Any, wrap: Any) -> Seen:
    class Options:
        rate = SCALE
        table = {"rate": rate}  # noqa: RUF012

    step = wrap(lambda x: x * Options.rate + Options.table["rate"])
    for n in range(6):
        if n == 2:
            setattr(Options, "rate", 5.0)  # noqa: B010
        if n == 4:
            Options.table["rate"] = 7.0
        yield step(batch(lib, n))


@case
def a_method_deleted_from_a_subclass(lib: Any, wrap: Any) -> Seen:
    class Base:
        def scale(self, x):
            return x * 2

    class Sub(Base):
        def scale(self, x):
            return x * 3

    thing = Sub()
    step = wrap(lambda x: thing.scale(x))
    for n in range(8):
        if n == 2:
            del Sub.scale
        if n == 4:
            Base.scale = lambda self, x: x * 4
        if n == 6:
            thing.scale = lambda x: x * 5
        yield step(batch(lib, n))


@case
def entries_by_operators_and_slices(lib: Any, wrap: Any) -> Seen:
    options, factors = {"a": 1.0, "b": 2.0}, [1.0, 2.0, 3.0]
    step = wrap(lambda x: x * options["a"] + factors[-1] - len(factors) * options["b"])
    for n in range(8):
        if n == 1:
            operator.setitem(options, "a", 4.0)
        if n == 3:
            factors[1:] = [9.0, 8.0, 7.0]
        if n == 5:
            dict.__setitem__(options, "b", 0.5)
        if n == 6:
            factors.reverse()
        yield step(batch(lib, n))


@case
def an_ordered_dictionary_of_layers_reordered(lib: Any, wrap: Any) -> Seen:
    table = OrderedDict(a=lib.tanh, b=lib.exp, c=lib.neg)

    def step(x):
        for function in table.values():
            x = function(x)
        return x

    step = wrap(step)
    for n in range(6):
        if n == 2:
            table.move_to_end("a")
        if n == 4:
            table["a"] = table.pop("b")
        yield step(batch(lib, n))


@case
def a_plain_dictionary_reordered(lib: Any, wrap: Any) -> Seen:
    table = {"a": 2.0, "b": 3.0}

    def step(x):
        for name, value in table.items():
            x = x * value if name == "a" else x + value
        return x

    step = wrap(step)
    for n in range(6):
        if n in (2, 4):
            first = next(iter(table))
            table[first] = table.pop(first)
        yield step(batch(lib, n))


@case
def a_proxy_over_a_dictionary_that_changes(lib: Any, wrap: Any) -> Seen:
    base = {"scale": 1.0}
    seen, chain = MappingProxyType(base), ChainMap({}, base)
    step = wrap(lambda x: x * seen["scale"] + chain["scale"])
    for n in range(7):
        if n == 2:
            base["scale"] = 2.0
        if n == 4:
            chain.maps[0]["scale"] = 5.0
        if n == 5:
            chain.maps.pop(0)
        yield step(batch(lib, n))


@case
def memory_written_through_ctypes(lib: Any, wrap: Any) -> Seen:
    array = np.arange(6, dtype=np.float32)
    weight = lib.from_numpy(array)
    step = wrap(lambda x: x * weight[:3])
    for n in range(6):
        if n in (2, 4):
            ctypes.memset(array.ctypes.data, 0, 4 * (n - 1))
        yield step(batch(lib, n))


@case
def memory_written_through_a_memoryview(lib: Any, wrap: Any) -> Seen:
    array = np.arange(3, dtype=np.float32)
    weight, view = lib.from_numpy(array), memoryview(array)
    step = wrap(lambda x: x * weight)
    for n in range(6):
        if n in (2, 3):
            view[n - 2] = 10.0 * n
        yield step(batch(lib, n))


@case
def a_parameter_written_through_its_exported_array(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    array = model.weight.detach().numpy()

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = wrap(step)
    for n in range(7):
        if n in (2, 5):
            array[:] = 0.1 * n
        yield step(batch(lib, n)), weights(model), array.copy()


@case
def momentum_written_through_an_exported_array(lib: Any, wrap: Any) -> Seen:
    p = leaf(lib, 1.0, 2.0, 3.0)
    optimizer = lib.optim.SGD([p], lr=0.1, momentum=0.9)

    def step(x):
        optimizer.zero_grad()
        (x * p).square().mean().backward()
        optimizer.step()

    step = wrap(step)
    for n in range(7):
        step(batch(lib, n))
        if n == 3:
            optimizer.state[p]["momentum_buffer"].numpy()[:] = 0
        if n == 5:
            optimizer.state[p]["momentum_buffer"] = lib.ones(3)
        yield p, p.grad, optimizer.state[p]["momentum_buffer"]


@case
def the_type_of_a_layer_exchanged(lib: Any, wrap: Any) -> Seen:
    class Doubled(lib.nn.Linear):
        def forward(self, x):
            return super().forward(x) * 2

    model = layer(lib)
    former = type(model)
    step = wrap(lambda x: model(x))
    for n in range(6):
        if n == 2:
            model.__class__ = Doubled
        if n == 4:
            model.__class__ = former
        yield step(batch(lib, n))


@case
def a_new_method_of_tensors(lib: Any, wrap: Any) -> Seen:
    try:
        lib.Tensor.doubled = lambda self: self * 2
        step = wrap(lambda x: x.doubled())
        for n in range(6):
            if n == 2:
                lib.Tensor.doubled = lambda self: self * 3
            if n == 4:
                del lib.Tensor.doubled
                yield attempt(step, batch(lib, n))
                lib.Tensor.doubled = lambda self: self + 1
            yield step(batch(lib, n))
    finally:
        del lib.Tensor.doubled


@case
def a_module_made_at_run_time(lib: Any, wrap: Any) -> Seen:
    config = types.ModuleType("config_of_the_case")
    config.scale, config.deep = 2.0, SimpleNamespace(shift=1.0)
    sys.modules["config_of_the_case"] = config

    def step(x):
        import config_of_the_case as c

        return x * c.scale + c.deep.shift

    step = wrap(step)
    try:
        for n in range(8):
            if n == 2:
                config.scale = 3.0
            if n == 4:
                config.deep.shift = 2.0
            if n == 6:
                other = types.ModuleType("config_of_the_case")
                other.scale, other.deep = 9.0, SimpleNamespace(shift=-1.0)
                sys.modules["config_of_the_case"] = other
            yield step(batch(lib, n))
    finally:
        del sys.modules["config_of_the_case"]


@case
def the_wrapped_function_of_a_decorator(lib: Any, wrap: Any) -> Seen:
    def decorated(function):
        @functools.wraps(function)
        def inner(*args):
            return inner.__wrapped__(*args)

        return inner

    @decorated
    def scale(x):
        return x * 2

    step = wrap(lambda x: scale(x))
    for n in range(6):
        if n == 2:
            scale.__wrapped__ = lambda x: x * 3
        if n == 4:
            scale.__dict__["__wrapped__"] = lambda x: x + 1
        yield step(batch(lib, n))


@case
def a_dataclass_changed_past_its_freezing(lib: Any, wrap: Any) -> Seen:
    @dataclass(frozen=True, slots=True)
    class Options:
        rate: float
        name: str

    options = Options(2.0, "a")
    step = wrap(lambda x: x * options.rate + len(options.name))
    for n in range(7):
        if n in (2, 4):
            object.__setattr__(options, "rate", 3.0 * n)
        if n == 5:
            object.__setattr__(options, "name", "long")
        yield step(batch(lib, n))


@case
def the_exit_of_a_stack_changed(lib: Any, wrap: Any) -> Seen:
    log, factor = [], {"f": 2.0}

    @contextlib.contextmanager
    def scaled():
        log.append("in")
        try:
            yield factor["f"]
        finally:
            log.append("out")

    def step(x):
        with contextlib.ExitStack() as stack:
            f = stack.enter_context(scaled())
            stack.callback(log.append, "callback")
            return x * f

    step = wrap(step)
    for n in range(6):
        if n in (2, 4):
            factor["f"] = float(n)
        yield step(batch(lib, n)), list(log)
