"""Hooks on all modules, on what modules register and on all optimizers, registered and removed
between calls: their effects, and the state that they read."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from .registry import Seen, batch, case, mlp, weights


def hooked(lib: Any, wrap: Any, log: list[Any], register: Callable[[], Any]) -> Seen:
    """Steps without a hook, with it, and without it again."""
    model = mlp(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    step = wrap(step)
    for n in range(3):
        yield step(batch(lib, n)), list(log)
    handle = register()
    try:
        for n in range(4):
            yield step(batch(lib, n)), list(log), weights(model)
    finally:
        handle.remove()
    for n in range(3):
        yield step(batch(lib, n)), list(log), weights(model)


def modules(lib: Any) -> Any:
    return lib.nn.modules.module


def optimizers(lib: Any) -> Any:
    return importlib.import_module(f"{lib.__name__}.optim.optimizer")


@case
def after_each_forward(lib: Any, wrap: Any) -> Seen:
    log = []
    hook = lambda module, args, output: log.append(type(module).__name__)
    yield from hooked(lib, wrap, log, lambda: modules(lib).register_module_forward_hook(hook))


@case
def before_each_forward(lib: Any, wrap: Any) -> Seen:
    log = []
    hook = lambda module, args: log.append(type(module).__name__)
    yield from hooked(lib, wrap, log, lambda: modules(lib).register_module_forward_pre_hook(hook))


@case
def after_each_backward(lib: Any, wrap: Any) -> Seen:
    log = []
    hook = lambda module, before, after: log.append(type(module).__name__)
    yield from hooked(lib, wrap, log, lambda: modules(lib).register_module_full_backward_hook(hook))


@case
def before_each_backward(lib: Any, wrap: Any) -> Seen:
    log = []

    def hook(module, grads):
        log.append(type(module).__name__)

    register = lambda: modules(lib).register_module_full_backward_pre_hook(hook)
    yield from hooked(lib, wrap, log, register)


@case
def before_each_step_of_an_optimizer(lib: Any, wrap: Any) -> Seen:
    log = []
    hook = lambda optimizer, args, kwargs: log.append(optimizer.param_groups[0]["lr"])
    register = optimizers(lib).register_optimizer_step_pre_hook
    yield from hooked(lib, wrap, log, lambda: register(hook))


@case
def after_each_step_of_an_optimizer(lib: Any, wrap: Any) -> Seen:
    log = []
    hook = lambda optimizer, args, kwargs: log.append(len(optimizer.param_groups))
    register = optimizers(lib).register_optimizer_step_post_hook
    yield from hooked(lib, wrap, log, lambda: register(hook))


@case
def a_hook_that_replaces_results(lib: Any, wrap: Any) -> Seen:
    hook = lambda module, args, output: output * 0.9
    yield from hooked(lib, wrap, [], lambda: modules(lib).register_module_forward_hook(hook))


@case
def a_hook_that_stores_results(lib: Any, wrap: Any) -> Seen:
    kept = {}

    def hook(module, args, output):
        kept[type(module).__name__] = output.detach()

    register = lambda: modules(lib).register_module_forward_hook(hook)
    for seen in hooked(lib, wrap, [], register):
        yield seen, dict(kept)


@case
def a_hook_that_counts(lib: Any, wrap: Any) -> Seen:
    count = 0

    def hook(module, args, output):
        nonlocal count
        count += 1

    register = lambda: modules(lib).register_module_forward_hook(hook)
    for seen in hooked(lib, wrap, [], register):
        yield seen, count


@case
def a_hook_that_reads_what_others_set(lib: Any, wrap: Any) -> Seen:
    options = {"scale": 1.0}
    model = mlp(lib)
    hook = lambda module, args, output: output * options["scale"]
    handle = modules(lib).register_module_forward_hook(hook)
    try:
        step = wrap(lambda x: model(x).sum())
        for n in range(8):
            options["scale"] = [1.0, 1.0, 2.0, 2.0, 0.5, 0.5, 1.0, 3.0][n]
            yield step(batch(lib, n))
    finally:
        handle.remove()


@case
def what_modules_register(lib: Any, wrap: Any) -> Seen:
    log = []
    model = mlp(lib)

    def step(x):
        model.register_buffer("last", x.detach() * 1)
        return model(x).sum()

    step = wrap(step)
    hook = lambda module, name, buffer: log.append(name)
    for n in range(3):
        yield step(batch(lib, n)), model.last, list(log)
    handle = modules(lib).register_module_buffer_registration_hook(hook)
    try:
        for n in range(4):
            yield step(batch(lib, n)), model.last, list(log)
    finally:
        handle.remove()
    yield step(batch(lib, 9)), model.last, list(log)
