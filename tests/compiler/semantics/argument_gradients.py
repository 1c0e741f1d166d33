"""Gradients and data of arguments: returned, replaced, shared with other tensors, retained."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from .registry import Seen, attempt, case, layer, leaf, ramp


def called(lib: Any, wrap: Any, step: Any, calls: int = 5) -> Seen:
    """Call with another leaf and another tensor each time."""
    step = wrap(step)
    for n in range(calls):
        x, g = leaf(lib, 1.0 + n, 2.0), ramp(lib, 2, start=0.5 * n)
        found = attempt(step, x, g)
        yield found, x, x.grad, g, g.requires_grad
        if isinstance(found, tuple):
            yield [part is x.grad for part in found], [part is g for part in found]
        if x.grad is not None:
            x.grad.add_(1)
        yield g, x.grad


@case
def the_gradient_is_returned(lib: Any, wrap: Any) -> Seen:
    def step(x, g):
        (x * x * g).sum().backward()
        return x.grad, x.grad[1:], x.grad.view(2, 1)

    yield from called(lib, wrap, step)


@case
def the_gradient_is_stored(lib: Any, wrap: Any) -> Seen:
    s, log = SimpleNamespace(last=None), []

    def step(x, g):
        (x * x * g).sum().backward()
        s.last = x.grad
        log.append(x.grad)

    for seen in called(lib, wrap, step):
        yield seen, s.last, log


@case
def a_gradient_that_existed_is_returned(lib: Any, wrap: Any) -> Seen:
    def step(x, g):
        (x * x * g).sum().backward()
        return x.grad, x.grad * 2

    step = wrap(step)
    for n in range(6):
        x = leaf(lib, 1.0 + n, 2.0)
        if n >= 2:
            x.grad = ramp(lib, 2, start=10.0 * n)
        yield step(x, ramp(lib, 2)), x.grad


@case
def an_argument_becomes_the_gradient(lib: Any, wrap: Any) -> Seen:
    def step(x, g):
        x.grad = g
        return x.grad, x * 2

    yield from called(lib, wrap, step)


@case
def a_captured_tensor_becomes_the_gradient(lib: Any, wrap: Any) -> Seen:
    kept = ramp(lib, 2, start=3.0)

    def step(x, g):
        x.grad = kept
        kept.add_(g)
        return x.grad

    for seen in called(lib, wrap, step):
        yield seen, kept


@case
def an_argument_becomes_the_gradient_of_a_parameter(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 5.0, 6.0)

    def step(x, g):
        w.grad = g
        return (w * x).sum().detach()

    for seen in called(lib, wrap, step):
        yield seen, w.grad
        w.grad.mul_(2)
        yield w.grad


@case
def a_result_becomes_the_gradient(lib: Any, wrap: Any) -> Seen:
    def step(x, g):
        y = g * 2
        x.grad = y
        y.add_(1)
        return y, x.grad

    yield from called(lib, wrap, step)


@case
def the_gradient_is_dropped(lib: Any, wrap: Any) -> Seen:
    def step(x, g):
        (x * g).sum().backward()
        held = x.grad
        x.grad = None
        return held

    yield from called(lib, wrap, step)


@case
def a_gradient_is_swapped_between_arguments(lib: Any, wrap: Any) -> Seen:
    def step(a, b):
        (a * b).sum().backward()
        a.grad, b.grad = b.grad, a.grad
        return a.grad

    step = wrap(step)
    for n in range(5):
        a, b = leaf(lib, 1.0, float(n)), leaf(lib, 3.0, 4.0 + n)
        yield step(a, b), a.grad, b.grad


@case
def a_retained_gradient_is_returned(lib: Any, wrap: Any) -> Seen:
    def step(x, g):
        y = x * g
        y.retain_grad()
        y.square().sum().backward()
        return y.grad, x.grad, y

    yield from called(lib, wrap, step)


@case
def a_gradient_retained_on_an_argument(lib: Any, wrap: Any) -> Seen:
    def step(y):
        y.retain_grad()
        return y.square().sum()

    step = wrap(step)
    for n in range(4):
        w = leaf(lib, 1.0, 2.0 + n)
        y = w * 3
        step(y).backward()
        yield y.retains_grad, y.grad, w.grad


@case
def the_data_of_an_argument_is_replaced(lib: Any, wrap: Any) -> Seen:
    def step(x, g):
        x.data = g * 2
        return x * 1

    yield from called(lib, wrap, step)


@case
def the_data_of_an_argument_is_that_of_another(lib: Any, wrap: Any) -> Seen:
    def step(x, g):
        x.data = g
        return (x * 1).detach()

    step = wrap(step)
    for n in range(5):
        x, g = leaf(lib, 1.0 + n, 2.0), ramp(lib, 2, start=0.5 * n)
        yield step(x, g), x
        g.add_(1)
        yield x, g


@case
def the_data_of_a_parameter_is_that_of_an_argument(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 5.0, 6.0)

    def step(x, g):
        w.data = g
        return (w * x).sum().detach()

    step = wrap(step)
    for n in range(5):
        x, g = leaf(lib, 1.0 + n, 2.0), ramp(lib, 2, start=0.5 * n)
        yield step(x, g), w
        g.add_(1)
        yield w, g


@case
def the_data_of_a_parameter_that_is_backed_up(lib: Any, wrap: Any) -> Seen:
    w, backup = leaf(lib, 5.0, 6.0), {}

    def step(x, n):
        if n % 3 == 0:
            backup["w"] = w.data
        w.data = w.data * 0.5 + x
        if n % 3 == 2:
            w.data = backup["w"]
        return (w * x).sum().detach()

    step = wrap(step)
    for n in range(7):
        yield step(ramp(lib, 2), n), w, backup["w"]


@case
def the_data_of_a_parameter_with_a_view(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 5.0, 6.0)
    views = [w.data, w.detach()[:1]]

    def step(x):
        w.data = w.data * 0.5 + x
        return (w * x).sum().detach(), views[0] * 1

    step = wrap(step)
    for n in range(6):
        yield step(ramp(lib, 2)), w, views
        if n == 3:
            views[0] = w.data


@case
def a_buffer_becomes_the_gradient(lib: Any, wrap: Any) -> Seen:
    w, buffer = leaf(lib, 5.0, 6.0), lib.zeros(2)
    optimizer = lib.optim.SGD([w], lr=0.1)

    def step(x):
        (grad,) = lib.autograd.grad((w * w * x).sum(), w)
        buffer.mul_(0.5).add_(grad)
        w.grad = buffer
        optimizer.step()

    step = wrap(step)
    for n in range(7):
        if n in (3, 5):
            w.grad = ramp(lib, 2)
        step(ramp(lib, 2, start=0.1 * n))
        yield w, w.grad is buffer, buffer


@case
def gradients_of_parameters_are_swapped(lib: Any, wrap: Any) -> Seen:
    a, b = leaf(lib, 1.0, 2.0), leaf(lib, 3.0, 4.0)

    def step(x):
        a.grad, b.grad = b.grad, a.grad
        return x * 2

    step = wrap(step)
    for n in range(6):
        a.grad, b.grad = ramp(lib, 2, start=float(n)), ramp(lib, 2, start=-float(n))
        yield step(ramp(lib, 2)), a.grad, b.grad


@case
def one_tensor_becomes_two_gradients(lib: Any, wrap: Any) -> Seen:
    a, b = leaf(lib, 1.0, 2.0), leaf(lib, 3.0, 4.0)

    def step(x):
        a.grad = b.grad = x * 2

    step = wrap(step)
    for n in range(5):
        step(ramp(lib, 2, start=float(n)))
        a.grad.add_(1)
        yield a.grad, b.grad, a.grad is b.grad


@case
def a_gradient_is_set_to_itself(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 5.0, 6.0)

    def step(x):
        w.grad = w.grad
        return x * 2

    step = wrap(step)
    for n in range(6):
        w.grad = ramp(lib, 2, start=float(n))
        yield step(ramp(lib, 2)), w.grad


@case
def parts_of_one_buffer_become_gradients(lib: Any, wrap: Any) -> Seen:
    a, b = leaf(lib, 1.0, 2.0), leaf(lib, 3.0, 4.0)

    def step(x):
        flat = lib.cat([a.detach() * x, b.detach() * x])
        a.grad, b.grad = flat[:2], flat[2:]
        return flat

    step = wrap(step)
    for n in range(5):
        flat = step(ramp(lib, 2, start=float(n)))
        flat.mul_(2)
        yield flat, a.grad, b.grad


@case
def an_argument_that_retains_its_gradient(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda y: (y.square().sum(), y.retains_grad))
    for n in range(4):
        w = leaf(lib, 1.0, 2.0 + n)
        y = w * 3
        if n % 2:
            y.retain_grad()
        loss, retains = step(y)
        loss.backward()
        yield retains, w.grad, y.grad if n % 2 else None


@case
def a_leaf_made_inside_is_returned(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 5.0, 6.0)

    def step(x):
        y = (x * 2).requires_grad_()
        z = (w.detach() + 1).requires_grad_()
        return y, z, (w * x).sum()

    step = wrap(step)
    for n in range(4):
        y, z, loss = step(ramp(lib, 2, start=float(n)))
        (y * z).sum().backward()
        loss.backward()
        yield y, z, y.grad, z.grad, y.is_leaf, w.grad


@case
def what_a_leaf_made_inside_leads_to(lib: Any, wrap: Any) -> Seen:
    def step(x):
        y = x.detach().requires_grad_()
        return y, (y * y).sum()

    step = wrap(step)
    for n in range(4):
        y, loss = step(ramp(lib, 2, start=float(n)))
        loss.backward()
        yield y, y.grad, loss


@case
def a_leaf_made_inside_is_stored(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(y=leaf(lib, 1.0, 1.0))

    def step(x):
        s.y = (x + 1).detach().requires_grad_()
        return x * 2

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 2, start=float(n))), s.y, s.y.is_leaf


@case
def a_detached_leaf_of_the_argument(lib: Any, wrap: Any) -> Seen:
    model = layer(lib, 2, 2)

    def step(x, g):
        y = x.detach().requires_grad_()
        model(y).square().sum().backward()
        return y.grad, y, y.is_leaf

    yield from called(lib, wrap, step)


@case
def an_argument_is_stored_and_returned(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(x=None, pair=None)

    def step(x, g):
        s.x, s.pair = x, (g, x)
        return x, g, x.detach()

    for seen in called(lib, wrap, step):
        yield seen, s.x, s.pair, s.pair[1] is s.x


@case
def gradients_by_a_part_of_the_argument(lib: Any, wrap: Any) -> Seen:
    def step(x, g):
        part = x[:1]
        (grad,) = lib.autograd.grad((part * g[0]).sum(), part)
        return grad, part

    yield from called(lib, wrap, step)
