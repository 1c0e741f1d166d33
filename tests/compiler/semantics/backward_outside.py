"""Backward passes through what a compiled call has returned: several of them, with graphs of their
own, with hooks, after writes, to some of the inputs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from .registry import Seen, attempt, batch, case, layer, leaf, mlp, ramp, weights


@case
def backward_twice_with_the_graph_kept(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)
    step = wrap(lambda x: (w * w * x).sum())
    for n in range(5):
        loss = step(ramp(lib, 3, start=float(n)))
        loss.backward(retain_graph=True)
        loss.backward()
        yield w.grad, attempt(loss.backward)


@case
def second_derivatives(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)
    step = wrap(lambda x: (w**3 * x.exp()).sum())
    for n in range(5):
        x = ramp(lib, 3, start=0.1 * n).requires_grad_()
        gw, gx = lib.autograd.grad(step(x), (w, x), create_graph=True)
        (gw.sum() + (gx * gw).sum()).backward()
        yield gw, gx, w.grad, x.grad
        w.grad = None


@case
def a_hook_on_a_result(lib: Any, wrap: Any) -> Seen:
    w, seen = leaf(lib, 1.0, 2.0, 3.0), []
    step = wrap(lambda x: (w * x, (w * w * x).sum()))
    for n in range(5):
        y, loss = step(ramp(lib, 3, start=float(n)))
        y.register_hook(lambda g: g * 2)
        loss.register_hook(lambda g: seen.append(g.item()))
        y.retain_grad()
        (y.sum() * 3 + loss).backward()
        yield w.grad, y.grad, list(seen)


@case
def a_result_written_before_backward(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)
    step = wrap(lambda x: ((w * x).exp(), w * x))
    for n in range(5):
        a, b = step(ramp(lib, 3, start=float(n)))
        b.mul_(2).add_(1)
        (a * b).sum().backward()
        yield w.grad, b


@case
def an_argument_written_before_backward(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)
    step = wrap(lambda x: (w * x).sum())
    for n in range(5):
        x = ramp(lib, 3, start=float(n))
        loss = step(x)
        if n == 3:
            x.add_(1)
        yield type(attempt(loss.backward)).__name__, w.grad


@case
def a_parameter_written_before_backward(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)
    step = wrap(lambda x: (w * w * x).sum())
    for n in range(5):
        loss = step(ramp(lib, 3, start=float(n)))
        if n == 3:
            with lib.no_grad():
                w.add_(1)
        yield type(attempt(loss.backward)).__name__, w.grad


@case
def backward_to_some_of_the_inputs(lib: Any, wrap: Any) -> Seen:
    a, b = leaf(lib, 1.0, 2.0), leaf(lib, 3.0, 4.0)
    step = wrap(lambda x: (a * x + b * x * x).sum())
    for n in range(5):
        x = ramp(lib, 2, start=float(n)).requires_grad_()
        loss = step(x)
        loss.backward(inputs=[(a,), (b,), (x,), (a, x)][n % 4])
        yield a.grad, b.grad, x.grad


@case
def some_results_alone(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)

    def step(x):
        y = w * x
        return y.sum(), y.detach().max(), (y * y).sum(), x.argmax(), y.prod()

    step = wrap(step)
    for n in range(5):
        found = step(ramp(lib, 3, start=0.5 + n))
        found[(0, 2, 4, 2, 0)[n]].backward()
        yield w.grad, [t.requires_grad for t in found]


@case
def two_calls_before_one_backward(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    step = wrap(lambda x: model(x).square().mean())
    for n in range(5):
        model.zero_grad()
        (step(batch(lib, n)) * 2 + step(batch(lib, n + 1))).backward()
        yield weights(model)


@case
def a_call_on_the_result_of_another(lib: Any, wrap: Any) -> Seen:
    first, second = layer(lib, 3, 3), layer(lib, 3, 2)
    encode, decode = wrap(lambda x: first(x).tanh()), wrap(lambda h: second(h).square().sum())
    for n in range(5):
        h = encode(batch(lib, n))
        h.retain_grad()
        decode(h).backward()
        yield weights(first), weights(second), h.grad


@case
def no_grad_now_and_then(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)
    step = wrap(lambda x: (w * x).sum())
    for n in range(6):
        with lib.set_grad_enabled(n % 3 != 1):
            loss = step(ramp(lib, 3))
        if loss.requires_grad:
            loss.backward()
        yield loss, w.grad


@case
def a_custom_function_inside(lib: Any, wrap: Any) -> Seen:
    class Scale(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x, gain):
            ctx.save_for_backward(x)
            ctx.gain = gain
            return x * gain

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            s.backwards += 1
            return grad * ctx.gain * x.sign(), None

    s, w = SimpleNamespace(backwards=0, gain=2.0), leaf(lib, 1.0, -2.0, 3.0)
    step = wrap(lambda x: Scale.apply(w * x, s.gain).sum())
    for n in range(6):
        if n == 3:
            s.gain = -1.0
        step(ramp(lib, 3, start=float(n))).backward()
        yield w.grad, s.backwards


@case
def gradients_added_to_those_there(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0)
    step = wrap(lambda x: (w * x).sum())
    for n in range(6):
        if n in (2, 4):
            w.grad = ramp(lib, 2, start=float(n))
        kept = w.grad
        step(ramp(lib, 2, start=float(n))).backward()
        yield w.grad, kept is w.grad


@case
def hooks_on_the_leaves(lib: Any, wrap: Any) -> Seen:
    w, seen = leaf(lib, 1.0, 2.0), []
    w.register_hook(lambda g: seen.append(g.sum().item()))
    handle = w.register_hook(lambda g: g * 2)
    step = wrap(lambda x, v: (w * x).sum() + (v * v).sum())
    for n in range(6):
        v = ramp(lib, 2).requires_grad_()
        if n % 2:
            v.register_hook(lambda g: g.clamp(-0.1, 0.1))
        if n == 4:
            handle.remove()
        w.grad = None
        step(ramp(lib, 2, start=float(n)), v).backward()
        yield w.grad, v.grad, list(seen)


@case
def hooks_after_accumulation(lib: Any, wrap: Any) -> Seen:
    model, steps = layer(lib), []
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(lambda p: steps.append(p.grad.sum().item()))
    step = wrap(lambda x: model(x).square().mean())
    for n in range(5):
        model.zero_grad()
        step(batch(lib, n)).backward()
        yield weights(model), sorted(steps)


@case
def a_hook_on_the_argument_that_was_computed(lib: Any, wrap: Any) -> Seen:
    w, seen = leaf(lib, 1.0, 2.0), []
    step = wrap(lambda h: (h * h).sum())
    for n in range(5):
        h = w * (1.0 + n)
        h.register_hook(lambda g: seen.append(g.sum().item()) or g * 3)
        if n % 2:
            h.retain_grad()
        step(h).backward()
        yield w.grad, list(seen), h.grad if n % 2 else None


@case
def vectors_as_cotangents(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0)
    step = wrap(lambda x: (w * x, w[None] * x[:, None]))
    for n in range(5):
        a, b = step(ramp(lib, 2, start=1.0 + n))
        lib.autograd.backward([a, b], [ramp(lib, 2), ramp(lib, 2, 2)])
        yield w.grad
