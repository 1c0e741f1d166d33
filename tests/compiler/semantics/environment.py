"""What the process has around the step: environment, modules' globals, modes, defaults."""

from __future__ import annotations

import contextvars
import math
import os
import sys
import types
from typing import Any

from .registry import Seen, batch, case, layer, leaf, mlp, ramp

LEVEL = contextvars.ContextVar("level", default=1.0)


@case
def an_environment_variable(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x * float(os.environ.get("SEMANTICS_GAIN", "1")))
    for n in range(5):
        if n:
            os.environ["SEMANTICS_GAIN"] = str(n)
        yield step(ramp(lib, 3))


@case
def an_environment_variable_by_getenv(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x * 2 if os.getenv("SEMANTICS_DEBUG") else x)
    for n in range(5):
        if n % 2:
            os.environ["SEMANTICS_DEBUG"] = "1"
        else:
            os.environ.pop("SEMANTICS_DEBUG", None)
        yield step(ramp(lib, 3))


@case
def membership_in_the_environment(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: -x if "SEMANTICS_FLIP" in os.environ else x)
    for n in range(4):
        os.environ.pop("SEMANTICS_FLIP", None)
        if n % 2:
            os.environ["SEMANTICS_FLIP"] = ""
        yield step(ramp(lib, 3))


@case
def an_environment_variable_written(lib: Any, wrap: Any) -> Seen:
    def step(x):
        n = int(os.environ.get("SEMANTICS_N", "0")) + 1
        os.environ["SEMANTICS_N"] = str(n)
        return x * n

    step = wrap(step)
    for _ in range(4):
        yield step(ramp(lib, 3)), os.environ["SEMANTICS_N"]


@case
def a_global_of_another_module(lib: Any, wrap: Any) -> Seen:
    config = types.ModuleType("semantics_config")
    config.gain = 1.0
    step = wrap(lambda x: x * config.gain)
    for n in range(5):
        config.gain = 2.0 * n
        yield step(ramp(lib, 3))


@case
def a_module_imported_in_the_step(lib: Any, wrap: Any) -> Seen:
    sys.modules["semantics_made"] = types.ModuleType("semantics_made")
    sys.modules["semantics_made"].gain = 1.0

    def step(x):
        import semantics_made

        return x * semantics_made.gain

    step = wrap(step)
    for n in range(5):
        if n == 3:
            sys.modules["semantics_made"] = types.ModuleType("semantics_made")
        sys.modules["semantics_made"].gain = 1.0 + n
        yield step(ramp(lib, 3))
    del sys.modules["semantics_made"]


@case
def a_function_of_another_module_replaced(lib: Any, wrap: Any) -> Seen:
    tools = types.ModuleType("semantics_tools")
    tools.act = lambda x: x + 1
    step = wrap(lambda x: tools.act(x))
    for n in range(4):
        if n == 2:
            tools.act = lib.exp
        yield step(ramp(lib, 3))


@case
def a_patched_function_of_the_library(lib: Any, wrap: Any) -> Seen:
    F = lib.nn.functional
    original = F.relu
    step = wrap(lambda x: F.relu(x))
    try:
        for n in range(5):
            F.relu = (lambda x: x * 100) if n in (1, 2) else original
            yield step(ramp(lib, 6))
    finally:
        F.relu = original


@case
def a_patched_constant(lib: Any, wrap: Any) -> Seen:
    kept = math.pi
    step = wrap(lambda x: x * math.pi)
    try:
        for n in range(4):
            math.pi = 3.0 + n
            yield step(ramp(lib, 3))
    finally:
        math.pi = kept


@case
def a_context_variable(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x * LEVEL.get())
    for n in range(5):
        token = LEVEL.set(float(n))
        yield step(ramp(lib, 3))
        if n % 2:
            LEVEL.reset(token)


@case
def a_context_variable_written(lib: Any, wrap: Any) -> Seen:
    def step(x):
        LEVEL.set(LEVEL.get() + 1)
        return x * LEVEL.get()

    step = wrap(step)
    token = LEVEL.set(0.0)
    for _ in range(4):
        yield step(ramp(lib, 3)), LEVEL.get()
    LEVEL.reset(token)


@case
def a_copied_context(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x * LEVEL.get())
    for n in range(4):
        context = contextvars.copy_context()
        context.run(LEVEL.set, 10.0 * n)
        yield context.run(step, ramp(lib, 3)), step(ramp(lib, 3))


@case
def the_default_dtype(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: (lib.ones(3) * x, lib.tensor([1.5])))
    for n in range(5):
        lib.set_default_dtype(lib.float64 if n % 2 else lib.float32)
        yield step(lib.arange(3))


@case
def the_default_dtype_set_inside(lib: Any, wrap: Any) -> Seen:
    def step(x, wide):
        lib.set_default_dtype(lib.float64 if wide else lib.float32)
        return lib.zeros(3) + x

    step = wrap(step)
    for n in range(4):
        yield step(lib.arange(3), n % 2 == 0), str(lib.zeros(1).dtype).rpartition(".")[2]


@case
def grad_mode_around_the_call(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)
    step = wrap(lambda x: (x * w).sum())
    for n in range(6):
        with lib.set_grad_enabled(n % 2 == 0):
            yield step(ramp(lib, 3)).requires_grad
        yield step(ramp(lib, 3))


@case
def grad_mode_read_by_the_step(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x * 2 if lib.is_grad_enabled() else x - 1)
    for n in range(5):
        with lib.set_grad_enabled(n % 2 == 0):
            yield step(ramp(lib, 3))


@case
def grad_mode_left_changed(lib: Any, wrap: Any) -> Seen:
    def step(x, on):
        lib.set_grad_enabled(on)
        return x * 2

    step = wrap(step)
    for n in range(4):
        step(ramp(lib, 3), n % 2 == 0)
        yield lib.is_grad_enabled()
    lib.set_grad_enabled(True)


@case
def inference_mode_around(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    step = wrap(model)
    for n in range(5):
        with lib.inference_mode(n % 2 == 1):
            out = step(batch(lib, n))
        yield out.requires_grad, out.detach() if n % 2 == 0 else out + 0


@case
def autocast_around(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    step = wrap(model)
    for n in range(5):
        with lib.autocast("cpu", dtype=lib.bfloat16, enabled=n % 2 == 1):
            yield step(batch(lib, n))


@case
def autocast_inside(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)

    def step(x, low):
        with lib.autocast("cpu", dtype=lib.bfloat16, enabled=low):
            out = model(x)
        return out.float().mean()

    step = wrap(step)
    for n in range(4):
        yield step(batch(lib, n), n % 2 == 1)


@case
def the_number_of_threads(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: (x * lib.get_num_threads(), x.sum()))
    for n in (1, 2, 1, 2):
        lib.set_num_threads(n)
        yield step(ramp(lib, 3))


@case
def anomaly_mode(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)
    step = wrap(lambda x: (w * x).sum().backward())
    for n in range(4):
        with lib.autograd.set_detect_anomaly(n % 2 == 1):
            step(ramp(lib, 3))
        yield w.grad


@case
def an_argument_of_the_command_line(lib: Any, wrap: Any) -> Seen:
    kept = list(sys.argv)
    step = wrap(lambda x: x * len(sys.argv))
    try:
        for n in range(4):
            sys.argv = ["program"] * (n + 1)
            yield step(ramp(lib, 3))
    finally:
        sys.argv = kept


@case
def the_working_directory(lib: Any, wrap: Any) -> Seen:
    import tempfile

    kept = os.getcwd()
    step = wrap(lambda x: x * (2 if os.path.exists("flag") else 1))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for n in range(4):
                if n == 2:
                    open("flag", "w").close()
                yield step(ramp(lib, 3))
        finally:
            os.chdir(kept)


@case
def a_name_in_builtins(lib: Any, wrap: Any) -> Seen:
    import builtins

    step = wrap(lambda x: x * semantics_level)  # noqa: F821
    try:
        for n in range(4):
            builtins.semantics_level = 1.0 + n
            yield step(ramp(lib, 3))
    finally:
        del builtins.semantics_level


@case
def a_training_flag_in_a_settings_module(lib: Any, wrap: Any) -> Seen:
    settings = types.SimpleNamespace(DEBUG=False, hooks={"after": []})
    model = mlp(lib)

    def step(x):
        out = model(x)
        for hook in settings.hooks["after"]:
            out = hook(out)
        return out if not settings.DEBUG else (out, "debug")

    step = wrap(step)
    for n in range(5):
        settings.DEBUG = n == 1
        if n == 3:
            settings.hooks["after"].append(lambda out: out * 2)
        yield step(batch(lib, n))
