"""Gradients, updates and modes that reach across a value read in the middle of the step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from .registry import Seen, attempt, batch, case, layer, leaf, mlp, ramp, weights


@case
def a_read_between_forward_and_backward(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        value = loss.item()
        (loss * (2.0 if value > 0.1 else 1.0)).backward()
        optimizer.step()
        return value

    step = wrap(step)
    for n in range(5):
        yield step(batch(lib, n)), weights(model)


@case
def a_read_in_the_middle_of_the_model(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)

    def step(x):
        model.zero_grad()
        h = model[1](model[0](x))
        if h.abs().max() > 0.9:
            h = h * 0.5
        model[2](h).square().mean().backward()

    step = wrap(step)
    for n in range(5):
        step(batch(lib, n) * (1 + n % 2 * 5))
        yield weights(model)


@case
def an_update_then_a_read_then_a_gradient(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)
    optimizer = lib.optim.SGD([w], lr=0.1)

    def step(x):
        (w - x).square().sum().backward()
        optimizer.step()
        scale = w.grad.sum().item()
        (g,) = lib.autograd.grad((w * w * x * scale).sum(), w)
        return g

    step = wrap(step)
    for n in range(4):
        yield step(ramp(lib, 3, start=float(n))), w


@case
def a_gradient_then_a_read_then_an_update(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)
    optimizer = lib.optim.Adam([w], lr=0.1)

    def step(x):
        (g,) = lib.autograd.grad((w * w * x * float(x.mean())).sum(), w)
        optimizer.zero_grad()
        ((w - g) ** 2).sum().backward()
        optimizer.step()
        return x.sum().item()

    step = wrap(step)
    for n in range(5):
        x = ramp(lib, 3, start=float(n))
        yield step(x.clone().requires_grad_() if n == 3 else x), w


@case
def two_updates_with_a_read_between(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x):
        values = []
        for _ in range(2):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            values.append(loss.item())
        return values

    step = wrap(step)
    for n in range(4):
        yield step(batch(lib, n)), weights(model)


@case
def a_backtracking_line_search(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 2.0, -1.5)

    def objective(v):
        return (v**2).sum() + (v[0] * v[1]) ** 2

    def step(rate):
        loss = objective(w)
        (g,) = lib.autograd.grad(loss, w)
        with lib.no_grad():
            while objective(w - rate * g) > loss - 0.1 * rate * (g * g).sum():
                rate = rate / 2
            w.sub_(rate * g)
        return rate

    step = wrap(step)
    for rate in (1.0, 4.0, 0.5, 1.0):
        yield step(rate), w


@case
def a_graph_over_two_segments_differentiated_outside(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)

    def step(x):
        h = w * x
        if h.sum() > 1:
            return h.square().sum()
        return h.exp().sum()

    step = wrap(step)
    for n in range(4):
        w.grad = None
        loss = step(ramp(lib, 3, start=n - 1.0))
        loss.backward()
        yield loss, w.grad


@case
def double_backward_across_a_read(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)

    def step(x):
        w.grad = None
        (g,) = lib.autograd.grad((w**3 * x).sum(), w, create_graph=True)
        size = g.norm().item()
        (g.square().sum() / size).backward()
        return size

    step = wrap(step)
    for n in range(4):
        yield step(ramp(lib, 3, start=1.0 + n)), w.grad


@case
def dropout_across_a_read(lib: Any, wrap: Any) -> Seen:
    model = lib.nn.Sequential(layer(lib, 3, 8), lib.nn.Dropout(0.5))

    def step(x):
        model.zero_grad()
        first = model(x)
        gain = first.sum().item()
        (model(x) * gain + first).sum().backward()

    step = wrap(step)
    for n in range(3):
        step(batch(lib, n))
        yield weights(model), lib.rand(1)


@case
def batch_norm_across_a_read(lib: Any, wrap: Any) -> Seen:
    norm = lib.nn.BatchNorm1d(3)

    def step(x):
        y = norm(x)
        if y.max() > 1.2:
            y = norm(y)
        return y.square().sum()

    step = wrap(step)
    for n in range(4):
        yield step(batch(lib, n)), weights(norm)


@case
def without_gradients_across_a_read(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)

    def step(x):
        with lib.no_grad():
            scale = (w * x).sum().item()
            frozen = w * scale
        y = w * frozen
        return y.sum(), frozen.requires_grad, lib.is_grad_enabled()

    step = wrap(step)
    for n in range(4):
        w.grad = None
        loss, *flags = step(ramp(lib, 3, start=float(n)))
        loss.backward()
        yield loss, flags, w.grad


@case
def autocast_across_a_read(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)

    def step(x):
        with lib.autocast("cpu", dtype=lib.bfloat16):
            a = model(x)
            positive = bool(a.float().sum() > 0)
            b = model(x * (1.0 if positive else -1.0))
        return a.dtype == b.dtype, model(x).dtype == lib.float32, b.float().mean()

    step = wrap(step)
    for n in range(3):
        yield step(batch(lib, n))


@case
def a_hook_across_a_read(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)
    log = []

    def step(x):
        w.grad = None
        h = w * x
        h.register_hook(lambda g: log.append(g.sum()))
        gain = h.max().item()
        (h * gain).sum().backward()

    step = wrap(step)
    for n in range(3):
        step(ramp(lib, 3, start=1.0 + n))
        yield log, w.grad


@case
def a_retained_gradient_across_a_read(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)

    def step(x):
        h = w * x
        h.retain_grad()
        (h * h.sum().item()).sum().backward()
        return h.grad

    step = wrap(step)
    for n in range(3):
        yield step(ramp(lib, 3, start=1.0 + n))


@case
def a_write_through_a_view_across_a_read(lib: Any, wrap: Any) -> Seen:
    state = ramp(lib, 2, 3)

    def step(x):
        row = state[0]
        row.add_(x)
        if row.sum().item() > 2:
            row.mul_(0.1)
        state.t()[0].sub_(1)
        return row + 0

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 3, start=0.5 * n)), state


@case
def an_exception_after_a_read(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)
    s = SimpleNamespace(calls=0)

    def step(x):
        s.calls += 1
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        if loss.item() > 0.1:
            raise OverflowError(f"call {s.calls}")
        return loss.detach()

    step = wrap(step)
    for n in range(5):
        yield attempt(step, batch(lib, n)), weights(model), s.calls


@case
def a_custom_function_that_reads(lib: Any, wrap: Any) -> Seen:
    class Capped(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.limit = x.max().item()
            return x.clamp(max=ctx.limit * 0.5)

        @staticmethod
        def backward(ctx, g):
            return g * ctx.limit

    w = leaf(lib, 1.0, 2.0, 3.0)
    step = wrap(lambda x: Capped.apply(w * x).sum().backward())
    for n in range(4):
        w.grad = None
        step(ramp(lib, 3, start=1.0 + n))
        yield w.grad


@case
def an_argument_changed_before_and_after_a_read(lib: Any, wrap: Any) -> Seen:
    def step(x, y):
        x.add_(1)
        total = y.sum().item()
        x.mul_(total)
        return y * 2

    step = wrap(step)
    for n in range(4):
        base = ramp(lib, 4, start=0.5 + n)
        yield step(base[:2], base[1:3] if n % 2 else base[2:]), base


@case
def clipped_only_if_large(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    optimizer = lib.optim.AdamW(model.parameters(), lr=0.05)
    s = SimpleNamespace(clipped=0)

    def step(x):
        optimizer.zero_grad()
        model(x).square().sum().backward()
        norm = lib.nn.utils.clip_grad_norm_(model.parameters(), 1e9)
        if norm > 1.0:
            s.clipped += 1
            for p in model.parameters():
                p.grad.div_(norm)
        optimizer.step()
        return float(norm)

    step = wrap(step)
    for n in range(5):
        yield step(batch(lib, n) * (n % 3)), weights(model), s.clipped


@case
def a_loop_of_trainings_until_small(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)
    optimizer = lib.optim.SGD([w], lr=0.2)

    def step(target):
        for k in range(6):
            optimizer.zero_grad()
            loss = (w - target).square().sum()
            if loss.item() < 0.3:
                return k
            loss.backward()
            optimizer.step()
        return -1

    step = wrap(step)
    for n in range(4):
        yield step(ramp(lib, 3, start=0.3 * n)), w, w.grad
