"""Differentiation inside and outside the step."""

from __future__ import annotations

from typing import Any

from .registry import Seen, attempt, batch, case, layer, leaf, mlp, ramp, weights


@case
def grad_with_a_manual_update(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)

    def step(x, lr):
        loss = model(x).square().mean()
        grads = lib.autograd.grad(loss, list(model.parameters()))
        with lib.no_grad():
            for p, g in zip(model.parameters(), grads, strict=True):
                p.sub_(lr * g)
        return loss.detach()

    step = wrap(step)
    for n in range(5):
        yield step(batch(lib, n), 0.1 * n), weights(model)


@case
def a_gradient_penalty(lib: Any, wrap: Any) -> Seen:
    critic = mlp(lib)

    def step(x):
        critic.zero_grad()
        x = x.clone().requires_grad_()
        (g,) = lib.autograd.grad(critic(x).sum(), x, create_graph=True)
        loss = (g.norm(dim=1) - 1).square().mean()
        loss.backward()
        return loss.detach()

    step = wrap(step)
    for n in range(4):
        yield step(batch(lib, n)), weights(critic)


@case
def second_derivatives(lib: Any, wrap: Any) -> Seen:
    def step(x):
        x = x.detach().requires_grad_()
        (g,) = lib.autograd.grad((x**3).sum(), x, create_graph=True)
        (h,) = lib.autograd.grad(g.sum(), x)
        return g.detach(), h

    step = wrap(step)
    for n in range(4):
        yield step(ramp(lib, 3, start=float(n)))


@case
def requires_grad_on_an_argument(lib: Any, wrap: Any) -> Seen:
    def step(x):
        x.requires_grad_()
        x.square().sum().backward()
        return x.grad

    step = wrap(step)
    for n in range(4):
        x = ramp(lib, 3, start=float(n))
        yield step(x), x.requires_grad, x.grad


@case
def an_argument_that_requires_grad(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: (x * 3).sum())
    for n in range(5):
        x = ramp(lib, 3, start=float(n)).requires_grad_(n % 2 == 0)
        y = step(x)
        if n % 2 == 0:
            y.backward()
        yield y, x.grad


@case
def backward_outside_on_a_result(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    step = wrap(lambda x: model(x).square().mean())
    for n in range(5):
        model.zero_grad()
        loss = step(batch(lib, n))
        (loss * (n + 1)).backward()
        yield loss, weights(model)


@case
def one_of_two_results_differentiated(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)
    step = wrap(lambda x: ((w * x).sum(), (w * w).sum()))
    for n in range(4):
        w.grad = None
        step(ramp(lib, 3, start=1.0))[n % 2].backward()
        yield w.grad


@case
def a_fast_sign_attack(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)

    def step(x, eps):
        x = x.detach().clone().requires_grad_(True)
        loss = model(x).square().sum()
        loss.backward()
        return (x + eps * x.grad.sign()).detach()

    step = wrap(step)
    for n in range(4):
        yield step(batch(lib, n), 0.1 * n), model.weight.grad


@case
def backward_twice_raises(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)

    def step(x):
        loss = (w * w * x).sum()
        loss.backward()
        loss.backward()

    step = wrap(step)
    for _ in range(3):
        yield attempt(step, ramp(lib, 3)), w.grad


@case
def backward_twice_outside_raises(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)
    step = wrap(lambda x: (w * w * x).sum())
    for _ in range(3):
        loss = step(ramp(lib, 3))
        loss.backward()
        yield attempt(loss.backward), w.grad


@case
def backward_with_the_graph_retained(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)

    def step(x):
        loss = (w * w * x).sum()
        loss.backward(retain_graph=True)
        loss.backward()

    step = wrap(step)
    for n in range(3):
        step(ramp(lib, 3, start=float(n)))
        yield w.grad


@case
def double_backward_outside(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: (x**3).sum())
    for n in range(3):
        x = ramp(lib, 3, start=1.0 + n).requires_grad_()
        (g,) = lib.autograd.grad(step(x), x, create_graph=True)
        (h,) = lib.autograd.grad(g.sum(), x)
        yield g.detach(), h


@case
def a_retained_gradient(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)

    def step(x):
        h = w * x
        h.retain_grad()
        h.square().sum().backward()
        return h.grad

    step = wrap(step)
    for n in range(4):
        yield step(ramp(lib, 3, start=float(n)))


@case
def a_detached_branch(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)

    def step(x, stop):
        w.grad = None
        h = w * x
        (h * (h.detach() if stop else h)).sum().backward()

    step = wrap(step)
    for n in range(4):
        step(ramp(lib, 3), n % 2 == 0)
        yield w.grad


@case
def a_section_without_gradients(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)

    def step(x):
        w.grad = None
        with lib.no_grad():
            scale = (w * x).abs().max()
        ((w * x) / scale).sum().backward()
        return scale

    step = wrap(step)
    for n in range(4):
        yield step(ramp(lib, 3, start=1.0 + n)), w.grad


@case
def jacobian(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: lib.autograd.functional.jacobian(lambda v: v.square() * v.sum(), x))
    for n in range(3):
        yield step(ramp(lib, 3, start=float(n)))


@case
def functional_grad(lib: Any, wrap: Any) -> Seen:
    gain = 1.0
    step = wrap(lambda x: lib.func.grad(lambda v: (v**2 * gain).sum())(x))
    for n in range(4):
        gain = 1.0 + n
        yield step(ramp(lib, 3))


@case
def functional_vmap(lib: Any, wrap: Any) -> Seen:
    shift = 0.0
    step = wrap(lambda x: lib.func.vmap(lambda row: row.sum() * row + shift)(x))
    for n in range(4):
        shift = float(n)
        yield step(batch(lib, n))


@case
def per_sample_gradients(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)

    def loss(params, x):
        return lib.func.functional_call(model, params, (x.unsqueeze(0),)).square().sum()

    def step(x):
        params = {k: v.detach() for k, v in model.named_parameters()}
        return lib.func.vmap(lib.func.grad(loss), in_dims=(None, 0))(params, x)

    step = wrap(step)
    for n in range(3):
        with lib.no_grad():
            model.weight.mul_(1.5)
        yield step(batch(lib, n))


@case
def a_functional_call(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    step = wrap(lambda params, x: lib.func.functional_call(model, params, (x,)))
    for n in range(4):
        params = {"weight": ramp(lib, 2, 3, start=float(n))}
        if n % 2:
            params["bias"] = lib.ones(2)
        yield step(params, batch(lib, n)).detach()


@case
def value_and_grad(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda w, x: lib.func.grad_and_value(lambda v: (v * x).sum() ** 2)(w))
    for n in range(4):
        yield step(ramp(lib, 3), ramp(lib, 3, start=float(n)))


@case
def a_custom_function(lib: Any, wrap: Any) -> Seen:
    class Scaled(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x, gain):
            ctx.gain = gain
            ctx.save_for_backward(x)
            return x * gain

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * ctx.gain * x, None

    w = leaf(lib, 1.0, 2.0, 3.0)
    step = wrap(lambda x, gain: Scaled.apply(w * x, gain).sum().backward())
    for n in range(4):
        w.grad = None
        step(ramp(lib, 3), 1.0 + n)
        yield w.grad


GAIN = 1.0


@case
def a_custom_function_that_reads_a_global(lib: Any, wrap: Any) -> Seen:
    global GAIN

    class Reversed(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, g):
            return -GAIN * g

    w = leaf(lib, 1.0, 2.0, 3.0)
    step = wrap(lambda x: Reversed.apply(w * x).sum().backward())
    for n in range(4):
        GAIN = 1.0 + n
        w.grad = None
        step(ramp(lib, 3))
        yield w.grad


@case
def a_custom_function_that_counts(lib: Any, wrap: Any) -> Seen:
    class Counted(lib.autograd.Function):
        calls = []  # noqa: RUF012

        @staticmethod
        def forward(ctx, x):
            Counted.calls.append("forward")
            return x * 2

        @staticmethod
        def backward(ctx, g):
            Counted.calls.append("backward")
            return g * len(Counted.calls)

    w = leaf(lib, 1.0, 2.0, 3.0)
    step = wrap(lambda x: Counted.apply(w * x).sum().backward())
    for _ in range(3):
        step(ramp(lib, 3))
        yield w.grad, Counted.calls


@case
def straight_through(lib: Any, wrap: Any) -> Seen:
    class Round(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.round()

        @staticmethod
        def backward(ctx, g):
            return g

    w = leaf(lib, 1.2, 2.7, 3.1)
    step = wrap(lambda x: (Round.apply(w) * x).sum().backward())
    for n in range(3):
        step(ramp(lib, 3, start=float(n)))
        with lib.no_grad():
            w.add_(0.3)
        yield w.grad


@case
def checkpointed(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    checkpoint = lib.utils.checkpoint.checkpoint

    def step(x):
        model.zero_grad()
        loss = checkpoint(model, x, use_reentrant=False).square().mean()
        loss.backward()
        return loss.detach()

    step = wrap(step)
    for n in range(4):
        yield step(batch(lib, n)), weights(model)


@case
def checkpointed_dropout(lib: Any, wrap: Any) -> Seen:
    model = lib.nn.Sequential(layer(lib, 3, 8), lib.nn.Dropout(0.5), layer(lib, 8, 2))
    checkpoint = lib.utils.checkpoint.checkpoint
    step = wrap(lambda x: checkpoint(model, x, use_reentrant=False).sum().backward())
    for n in range(3):
        model.zero_grad()
        step(batch(lib, n))
        yield weights(model)


@case
def unused_parameters(lib: Any, wrap: Any) -> Seen:
    a, b = leaf(lib, 1.0, 2.0), leaf(lib, 3.0, 4.0)

    def step(x, which):
        return lib.autograd.grad(((a if which else b) * x).sum(), [a, b], allow_unused=True)

    step = wrap(step)
    for n in range(4):
        yield step(ramp(lib, 2), n % 2 == 0)


@case
def maml_inner_loop(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, -1.0, 0.5)

    def step(x, rate):
        w.grad = None
        fast = w
        for _ in range(2):
            (g,) = lib.autograd.grad((fast * x).sum() ** 2, fast, create_graph=True)
            fast = fast - rate * g
        loss = (fast * x).sum() ** 2
        loss.backward()
        return loss.detach()

    step = wrap(step)
    for n in range(3):
        yield step(ramp(lib, 3, start=1.0), 0.1 * n), w.grad


@case
def gradients_given_to_backward(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)
    step = wrap(lambda x, g: (w * x).backward(g))
    for n in range(4):
        step(ramp(lib, 3), ramp(lib, 3, start=float(n)))
        yield w.grad


@case
def backward_into_chosen_inputs(lib: Any, wrap: Any) -> Seen:
    a, b = leaf(lib, 1.0, 2.0), leaf(lib, 3.0, 4.0)
    step = wrap(lambda x, which: (a * b * x).sum().backward(inputs=[(a, b)[which]]))
    for n in range(4):
        step(ramp(lib, 2, start=1.0), n % 2)
        yield a.grad, b.grad


@case
def results_that_do_not_require_grad(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)
    step = wrap(lambda x: (w * x, (w * x).detach(), w.argmax(), x * 2))
    for n in range(3):
        yield [t.requires_grad for t in step(ramp(lib, 3, start=float(n)))]


@case
def set_to_none_or_zero(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)

    def step(x, none):
        model.zero_grad(set_to_none=none)
        before = [p.grad is None for p in model.parameters()]
        model(x).sum().backward()
        return before

    step = wrap(step)
    for n in range(5):
        yield step(batch(lib, n), n % 2 == 0), weights(model)


@case
def forward_mode(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, t: lib.func.jvp(lambda v: v.sin() * v.sum(), (x,), (t,)))
    for n in range(3):
        yield step(ramp(lib, 3), ramp(lib, 3, start=float(n)))
