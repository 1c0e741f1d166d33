"""Hooks that the step itself registers and removes: the tables of hooks do not exist before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from .registry import Seen, batch, case, layer, leaf, mlp, ramp, weights


@case
def on_a_layer_at_every_call(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)

    def step(x):
        model.register_forward_hook(lambda module, args, result: result + 1)
        return model(x)

    step = wrap(step)
    for n in range(5):
        yield step(batch(lib, n)), len(model._forward_hooks)


@case
def on_a_layer_at_the_first_call(lib: Any, wrap: Any) -> Seen:
    model, s = layer(lib), SimpleNamespace(done=False)

    def step(x):
        if not s.done:
            model.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
            s.done = True
        return model(x)

    step = wrap(step)
    for n in range(6):
        if n == 3:
            s.done = False
        yield step(batch(lib, n)), len(model._forward_pre_hooks)


@case
def on_a_layer_after_its_call(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)

    def step(x):
        result = model(x)
        if len(model._forward_hooks) < 2:
            model.register_forward_hook(lambda module, args, result: result * 2)
        return result

    step = wrap(step)
    for n in range(6):
        yield step(batch(lib, n))


@case
def on_a_submodule_and_removed(lib: Any, wrap: Any) -> Seen:
    model, found = mlp(lib), {}

    def step(x, name):
        handle = model[0].register_forward_hook(
            lambda module, args, result: found.__setitem__(name, result.detach())
        )
        try:
            return model(x)
        finally:
            handle.remove()

    step = wrap(step)
    for n in range(6):
        yield step(batch(lib, n), "ab"[n % 2]), dict(found), len(model[0]._forward_hooks)


@case
def on_all_modules(lib: Any, wrap: Any) -> Seen:
    model, handles = layer(lib), []
    register = lib.nn.modules.module.register_module_forward_hook

    def step(x):
        if len(handles) < 3:
            handles.append(register(lambda module, args, result: result + 1))
        return model(x)

    step = wrap(step)
    try:
        for n in range(6):
            yield step(batch(lib, n))
    finally:
        for handle in handles:
            handle.remove()


@case
def on_gradients_of_a_layer(lib: Any, wrap: Any) -> Seen:
    model, seen = mlp(lib), []

    def step(x):
        if not model[0]._backward_hooks:
            model[0].register_full_backward_hook(lambda *given: seen.append(len(given)))
        model.zero_grad()
        model(x).sum().backward()
        return len(seen)

    step = wrap(step)
    for n in range(5):
        yield step(batch(lib, n)), seen, weights(model)


@case
def on_a_parameter_at_every_call(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0)

    def step(x):
        w.register_hook(lambda g: g * 2)
        w.grad = None
        (w * x).sum().backward()
        return w.grad.clone()

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 2, start=float(n)))


@case
def after_the_gradient_of_a_parameter(lib: Any, wrap: Any) -> Seen:
    w, s = leaf(lib, 1.0, 2.0), SimpleNamespace(handle=None)

    def triple(p):
        p.grad.mul_(3)

    def step(x):
        if s.handle is None:
            s.handle = w.register_post_accumulate_grad_hook(triple)
        w.grad = None
        (w * x).sum().backward()
        return w.grad.clone()

    step = wrap(step)
    for n in range(6):
        if n == 4:
            s.handle.remove()
        yield step(ramp(lib, 2, start=float(n)))


@case
def on_an_optimizer(lib: Any, wrap: Any) -> Seen:
    w, log = leaf(lib, 1.0, 2.0), []
    optimizer = lib.optim.SGD([w], lr=0.1)

    def step(x):
        optimizer.register_step_post_hook(lambda *given: log.append(len(log)))
        optimizer.zero_grad()
        (w * x).sum().backward()
        optimizer.step()

    step = wrap(step)
    for n in range(4):
        step(ramp(lib, 2, start=float(n)))
        yield w, log


@case
def that_removes_itself(lib: Any, wrap: Any) -> Seen:
    model, box = layer(lib), {}

    def once(module, args, result):
        box["handle"].remove()
        return result * 10

    box["handle"] = model.register_forward_hook(once)
    step = wrap(lambda x: model(x))
    for n in range(6):
        if n == 3:
            box["handle"] = model.register_forward_hook(once)
        yield step(batch(lib, n)), len(model._forward_hooks)


@case
def on_the_saved_state_of_a_layer(lib: Any, wrap: Any) -> Seen:
    model, log = layer(lib), []

    def step(x):
        if not log:
            model.register_state_dict_pre_hook(lambda *given: log.append(len(given)))
        return model.state_dict()["weight"].sum() * x

    step = wrap(step)
    for _ in range(5):
        yield step(ramp(lib, 2)), len(log)
