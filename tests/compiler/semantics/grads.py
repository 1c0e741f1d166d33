"""Gradients as state: ``.grad`` read, written, accumulated, shared, and ``param_groups``."""

from __future__ import annotations

from typing import Any

from .registry import Seen, batch, case, layer, leaf, mlp, ramp, weights


@case
def read_and_scale(lib: Any, wrap: Any) -> Seen:
    p = leaf(lib, 1.0, 2.0, 3.0)
    step = wrap(lambda x: x * p.grad)
    for n in range(5):
        p.grad = ramp(lib, 3, start=float(n))
        yield step(ramp(lib, 3))


@case
def present_or_absent(lib: Any, wrap: Any) -> Seen:
    p = leaf(lib, 1.0, 2.0)

    def step(x):
        if p.grad is None:
            return x
        return x + p.grad

    step = wrap(step)
    for n in range(5):
        p.grad = None if n % 2 else ramp(lib, 2, start=float(n))
        yield step(ramp(lib, 2))


@case
def accumulated_by_the_step(lib: Any, wrap: Any) -> Seen:
    p = leaf(lib, 1.0, -2.0, 0.5)
    step = wrap(lambda x: (p * x).sum().backward())
    for n in range(5):
        step(ramp(lib, 3, start=float(n)))
        yield p.grad
        if n == 2:
            p.grad = None


@case
def zeroed_between_calls(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    step = wrap(lambda x: model(x).square().sum().backward())
    for n in range(6):
        if n == 2:
            model.zero_grad()
        if n == 3:
            for p in model.parameters():
                p.grad = lib.ones_like(p)
        if n == 4:
            model.zero_grad(set_to_none=False)
        step(batch(lib, n))
        yield weights(model)


@case
def a_gradient_scaled_in_the_step(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)

    def step(x, factor):
        model(x).sum().backward()
        for p in model.parameters():
            p.grad.mul_(factor)
        return model.weight.grad.norm()

    step = wrap(step)
    for n in range(5):
        yield step(batch(lib, n), 0.5 + n)
        yield weights(model)


@case
def a_gradient_replaced_in_the_step(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)

    def step(x):
        model(x).square().mean().backward()
        for p in model.parameters():
            p.grad = p.grad.clamp(-0.1, 0.1)

    step = wrap(step)
    for n in range(5):
        step(batch(lib, n))
        yield weights(model)


@case
def a_gradient_that_is_also_an_argument(lib: Any, wrap: Any) -> Seen:
    p = leaf(lib, 1.0, 2.0, 3.0)
    p.grad = lib.zeros(3)

    def step(g):
        (p * 2).sum().backward()
        return g + 0

    step = wrap(step)
    for _ in range(4):
        yield step(p.grad)
        yield p.grad
    yield step(lib.zeros(3))
    yield p.grad


@case
def an_argument_written_that_is_a_gradient(lib: Any, wrap: Any) -> Seen:
    p = leaf(lib, 1.0, 2.0, 3.0)

    def step(g, x):
        g.add_(x)
        return p.grad * 2

    step = wrap(step)
    p.grad = lib.zeros(3)
    for n in range(5):
        other = lib.ones(3)
        yield step(p.grad if n % 2 == 0 else other, ramp(lib, 3))
        yield p.grad, other


@case
def a_gradient_read_through_getattr(lib: Any, wrap: Any) -> Seen:
    p = leaf(lib, 1.0, 2.0)
    step = wrap(lambda x: x * getattr(p, "grad"))  # noqa: B009
    for n in range(4):
        p.grad = ramp(lib, 2, start=2.0 * n)
        yield step(lib.ones(2))


@case
def gradients_listed_by_a_helper(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)

    def norms(parameters):
        return [q.grad.norm() for q in parameters if q.grad is not None]

    step = wrap(lambda: lib.stack(norms(model.parameters())).sum())
    for n in range(5):
        model.weight.grad = ramp(lib, 2, 3, start=float(n))
        model.bias.grad = None if n == 3 else ramp(lib, 2, start=float(n))
        yield step()


@case
def gradient_of_an_argument(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda p, x: p * x if p.grad is None else p * x + p.grad)
    for n in range(5):
        p = leaf(lib, 1.0, 2.0)
        if n in (1, 2, 4):
            p.grad = ramp(lib, 2, start=float(n))
        yield step(p, ramp(lib, 2))


@case
def the_learning_rate_read_by_the_user(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        rate = optimizer.param_groups[0]["lr"]
        return model(x).sum() * rate

    step = wrap(step)
    for n in range(5):
        optimizer.param_groups[0]["lr"] = 0.1 * (n + 1)
        yield step(batch(lib, 1))


@case
def a_manual_update_with_the_group_options(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)

    def step(x):
        model.zero_grad()
        model(x).square().mean().backward()
        with lib.no_grad():
            for group in optimizer.param_groups:
                for p in group["params"]:
                    p.sub_(p.grad, alpha=group["lr"] * (1 - group["momentum"]))

    step = wrap(step)
    for n in range(5):
        for group in optimizer.param_groups:
            group["lr"] *= 0.7
            group["momentum"] = 0.1 * n
        step(batch(lib, n))
        yield weights(model)


@case
def returned_rate_after_a_step(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.Adam(model.parameters(), lr=0.01)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach(), optimizer.param_groups[0]["lr"]

    step = wrap(step)
    for n in range(5):
        optimizer.param_groups[0]["lr"] = 0.01 / (n + 1)
        yield step(batch(lib, n))


@case
def warm_up_by_a_condition_on_the_rate(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.0)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        if optimizer.param_groups[0]["lr"] > 0.05:
            optimizer.step()
        return loss.detach()

    step = wrap(step)
    for n in range(6):
        optimizer.param_groups[0]["lr"] = 0.02 * n
        yield step(batch(lib, n))
        yield model.weight


@case
def set_to_none_decides_the_next_branch(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)

    def step(x):
        fresh = all(p.grad is None for p in model.parameters())
        model(x).sum().backward()
        return "fresh" if fresh else "added"

    step = wrap(step)
    for n in range(6):
        if n in (2, 4):
            model.zero_grad(set_to_none=True)
        yield step(batch(lib, n))
        yield [p.grad for p in model.parameters()]


@case
def accumulation_over_micro_batches(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x, last):
        loss = model(x).square().mean() / 2
        loss.backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach()

    step = wrap(step)
    for n in range(6):
        yield step(batch(lib, n), n % 2 == 1)
        yield weights(model)


@case
def a_shared_gradient_tensor(lib: Any, wrap: Any) -> Seen:
    a, b = leaf(lib, 1.0, 2.0), leaf(lib, 3.0, 4.0)
    shared = lib.zeros(2)
    a.grad = b.grad = shared

    def step(x):
        (a * x).sum().backward()
        return b.grad + 0

    step = wrap(step)
    for n in range(4):
        yield step(ramp(lib, 2, start=1.0 + n))
        yield a.grad, b.grad, shared


@case
def a_gradient_that_views_a_flat_buffer(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    flat = lib.zeros(8)
    model.weight.grad = flat[:6].view(2, 3)
    model.bias.grad = flat[6:]

    def step(x):
        flat.zero_()
        model(x).square().sum().backward()
        return flat.norm()

    step = wrap(step)
    for n in range(4):
        yield step(batch(lib, n))
        yield flat


@case
def gradient_handed_over_to_another_parameter(lib: Any, wrap: Any) -> Seen:
    a, b = leaf(lib, 1.0, 2.0), leaf(lib, 3.0, 4.0)

    def step(x):
        (a * x).sum().backward()
        b.grad, a.grad = a.grad, None

    step = wrap(step)
    for n in range(4):
        step(ramp(lib, 2, start=float(n)))
        yield a.grad, b.grad


@case
def requires_grad_asked_by_the_step(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0)

    def step(x):
        y = (w * x).sum()
        if w.requires_grad:
            y.backward()
            return y.detach()
        return -y

    step = wrap(step)
    for n in range(6):
        w.requires_grad_(n % 3 != 1)
        yield step(ramp(lib, 2, start=float(n)))
        yield w.grad


@case
def del_grad_in_the_step(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0)

    def step(x):
        (w * x).sum().backward()
        kept = w.grad
        del w.grad
        return kept

    step = wrap(step)
    for n in range(4):
        yield step(ramp(lib, 2, start=float(n)))
        yield w.grad


@case
def zero_grad_alone(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)
    clear, forget = wrap(lambda: optimizer.zero_grad()), wrap(lambda: model.zero_grad())
    for n in range(6):
        if n % 2:
            model(batch(lib, n)).sum().backward()
        (clear if n < 4 else forget)()
        yield weights(model)
