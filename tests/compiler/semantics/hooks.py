"""Hooks on modules, tensors and gradients: added, removed, stateful."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from .registry import Seen, batch, case, layer, leaf, mlp, ramp, weights


@case
def activations_collected(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    kept = {}
    for name, module in model.named_children():
        module.register_forward_hook(lambda m, i, o, name=name: kept.update({name: o.detach()}))
    step = wrap(lambda x: model(x).sum())
    for n in range(4):
        yield step(batch(lib, n))
        yield kept


@case
def activations_appended(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    kept = []
    model.register_forward_hook(lambda m, i, o: kept.append(o.detach().mean()))
    step = wrap(lambda x: model(x).sum())
    for n in range(4):
        step(batch(lib, n))
        yield kept


@case
def a_forward_hook_added_and_removed(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    step = wrap(lambda x: model(x))
    handle = None
    for n in range(6):
        if n in (1, 4):
            handle = model.register_forward_hook(lambda m, i, o: o * 10)
        if n == 3:
            handle.remove()
        yield step(batch(lib, 0))


@case
def a_pre_hook_changes_the_input(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    s = SimpleNamespace(shift=0.0)
    model.register_forward_pre_hook(lambda m, args: (args[0] + s.shift,))
    step = wrap(lambda x: model(x))
    for n in range(5):
        s.shift = float(n)
        yield step(batch(lib, 0))


@case
def a_hook_that_counts(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    s = SimpleNamespace(calls=0)

    def hook(module, args, out):
        s.calls += 1
        return out * s.calls

    model.register_forward_hook(hook)
    step = wrap(lambda x: model(x) + model(x))
    for n in range(4):
        yield step(batch(lib, n)), s.calls


@case
def a_tensor_hook_scales_the_gradient(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)
    s = SimpleNamespace(gain=1.0)
    w.register_hook(lambda g: g * s.gain)
    step = wrap(lambda x: (w * x).sum().backward())
    for n in range(5):
        s.gain = 1.0 + n
        w.grad = None
        step(ramp(lib, 3))
        yield w.grad


@case
def a_tensor_hook_added_and_removed(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)
    step = wrap(lambda x: (w * x).sum().backward())
    handle = None
    for n in range(6):
        if n in (1, 4):
            handle = w.register_hook(lambda g: -g)
        if n == 3:
            handle.remove()
        w.grad = None
        step(ramp(lib, 3))
        yield w.grad


@case
def a_hook_that_keeps_the_gradient(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)
    kept = []
    w.register_hook(lambda g: kept.append(g.clone()))
    step = wrap(lambda x: (w * x).square().sum().backward())
    for n in range(4):
        step(ramp(lib, 3, start=float(n)))
        yield kept


@case
def a_hook_on_an_intermediate(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)
    kept = {}

    def step(x):
        h = w * x
        h.register_hook(lambda g: kept.__setitem__("h", g))
        h.square().sum().backward()

    step = wrap(step)
    for n in range(4):
        step(ramp(lib, 3, start=float(n)))
        yield kept, w.grad


@case
def a_hook_inside_the_step_is_removed(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)

    def step(x):
        handle = w.register_hook(lambda g: g * 3)
        (w * x).sum().backward()
        handle.remove()

    step = wrap(step)
    for n in range(3):
        step(ramp(lib, 3, start=float(n)))
        yield w.grad
    (w * 1).sum().backward()
    yield w.grad


@case
def a_full_backward_hook(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    kept = []
    model.register_full_backward_hook(lambda m, gi, go: kept.append(go[0].sum()))
    step = wrap(lambda x: model(x).square().mean().backward())
    for n in range(4):
        step(batch(lib, n))
        yield kept, model.weight.grad


@case
def a_full_backward_hook_changes_the_gradient(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    s = SimpleNamespace(gain=1.0)
    model[2].register_full_backward_hook(lambda m, gi, go: (gi[0] * s.gain,))
    step = wrap(lambda x: model(x).square().mean().backward())
    for n in range(4):
        s.gain = float(n)
        model.zero_grad()
        step(batch(lib, n))
        yield weights(model)


@case
def clipping_by_hooks(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    limit = 0.1
    for p in model.parameters():
        p.register_hook(lambda g: g.clamp(-limit, limit))
    step = wrap(lambda x: model(x).square().sum().backward())
    for n in range(4):
        limit = 0.1 * (n + 1)
        model.zero_grad()
        step(batch(lib, n))
        yield weights(model)


@case
def a_post_accumulate_hook_updates(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)
    rate = 0.1

    def update(p):
        with lib.no_grad():
            p.add_(p.grad, alpha=-rate)
        p.grad = None

    w.register_post_accumulate_grad_hook(update)
    step = wrap(lambda x: (w * x).square().sum().backward())
    for n in range(5):
        rate = 0.01 * n
        step(ramp(lib, 3, start=float(n)))
        yield w, w.grad


@case
def a_hook_reads_the_module(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    model.gain = 1.0
    model.register_forward_hook(lambda m, i, o: o * m.gain)
    step = wrap(lambda x: model(x))
    for n in range(4):
        model.gain = 2.0 - n
        yield step(batch(lib, 0))


@case
def a_hook_that_is_a_bound_method(lib: Any, wrap: Any) -> Seen:
    class Watch:
        def __init__(self):
            self.total, self.on = lib.zeros(2), True

        def hook(self, module, args, out):
            if self.on:
                self.total = self.total + out.detach().sum(0)

    model, watch = layer(lib), Watch()
    model.register_forward_hook(watch.hook)
    step = wrap(lambda x: model(x).mean())
    for n in range(5):
        watch.on = n != 2
        yield step(batch(lib, n)), watch.total


@case
def optimizer_hooks(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)
    seen = []
    optimizer.register_step_pre_hook(lambda o, a, k: seen.append("pre"))
    handle = optimizer.register_step_post_hook(lambda o, a, k: seen.append("post"))

    def step(x):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    step = wrap(step)
    for n in range(4):
        if n == 2:
            handle.remove()
        step(batch(lib, n))
        yield seen, model.weight


@case
def hooks_with_keywords(lib: Any, wrap: Any) -> Seen:
    class Net(lib.nn.Module):
        def forward(self, x, gain=1.0):
            return x * gain

    net = Net()
    s = SimpleNamespace(extra=0.0)
    net.register_forward_pre_hook(
        lambda m, a, k: (a, {**k, "gain": k.get("gain", 1.0) + s.extra}), with_kwargs=True
    )
    step = wrap(lambda x, g: net(x, gain=g))
    for n in range(4):
        s.extra = 10.0 * n
        yield step(ramp(lib, 3), 2.0)


@case
def a_hook_in_a_training_step_that_prints(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    model.weight.register_hook(lambda g: print("gradient of", tuple(g.shape)))
    step = wrap(lambda x: model(x).sum().backward())
    for n in range(4):
        step(batch(lib, n))
        yield model.weight.grad


@case
def hook_order(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    order = []
    model.register_forward_pre_hook(lambda m, a: order.append("pre"))
    model.register_forward_hook(lambda m, a, o: order.append("post"))
    model.weight.register_hook(lambda g: order.append("weight"))

    def step(x):
        order.append("start")
        model(x).sum().backward()
        order.append("end")

    step = wrap(step)
    for n in range(3):
        step(batch(lib, n))
        yield order
        order.clear()


@case
def gradient_statistics(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    stats = {}
    for name, p in model.named_parameters():
        p.register_hook(lambda g, name=name: stats.update({name: (g.norm(), g.abs().max())}))
    step = wrap(lambda x: model(x).square().mean().backward())
    for n in range(4):
        step(batch(lib, n))
        yield stats


@case
def a_backward_hook_in_a_compiled_module(lib: Any, wrap: Any) -> Seen:
    """It is called by each backward pass, and never before."""
    seen = []
    model = lib.nn.Sequential(layer(lib, 3, 4), lib.nn.Tanh(), layer(lib, 4, 2))
    model[1].register_full_backward_hook(lambda m, given, out: seen.append(out[0].sum().item()))
    step = wrap(lambda x: model(x).square().mean())
    for n in range(5):
        loss = step(batch(lib, n))
        yield len(seen)
        loss.backward()
        yield list(seen), [p.grad.clone() for p in model.parameters()]


@case
def a_hook_on_a_value_that_is_differentiated_outside(lib: Any, wrap: Any) -> Seen:
    seen = []
    w = lib.ones(3, requires_grad=True)

    def step(x):
        y = w * x
        y.register_hook(lambda g: seen.append(g.sum()))
        return (y * y).sum()

    step = wrap(step)
    for n in range(5):
        loss = step(batch(lib, n)[0])
        yield len(seen)
        loss.backward()
        yield [s.detach() for s in seen], w.grad.clone()
