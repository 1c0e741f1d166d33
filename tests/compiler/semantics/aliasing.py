"""Arguments, parameters and gradients that share memory."""

from __future__ import annotations

from typing import Any

from .registry import Seen, attempt, batch, case, layer, leaf, ramp, weights


@case
def the_same_tensor_twice(lib: Any, wrap: Any) -> Seen:
    def step(a, b):
        a.add_(1)
        return b * 2

    step = wrap(step)
    for n in range(5):
        x, y = ramp(lib, 3, start=float(n)), ramp(lib, 3)
        yield step(x, x) if n % 2 else step(x, y)
        yield x, y


@case
def overlapping_slices(lib: Any, wrap: Any) -> Seen:
    def step(a, b):
        a.mul_(2)
        b.add_(a.sum())
        return a + 0

    step = wrap(step)
    for n in range(5):
        base = ramp(lib, 6, start=float(n))
        if n % 2:
            yield step(base[:4], base[2:])
        else:
            yield step(base[:3], base[3:])
        yield base


@case
def a_view_and_its_base(lib: Any, wrap: Any) -> Seen:
    def step(base, view):
        base.add_(1)
        return view.sum()

    step = wrap(step)
    for n in range(5):
        base, other = ramp(lib, 2, 3), ramp(lib, 3, 2)
        yield step(base, base.t() if n in (1, 3) else other)
        yield base, other


@case
def an_argument_that_is_the_parameter(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)

    def step(x):
        with lib.no_grad():
            w.add_(1)
        return x * 2

    step = wrap(step)
    for n in range(5):
        yield step(w.detach() if n % 2 else lib.ones(3))
        yield w


@case
def an_argument_that_views_a_parameter(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)

    def step(row, x):
        row.zero_()
        return model(x)

    step = wrap(step)
    for n in range(4):
        row = model.weight.detach()[n % 2] if n != 2 else lib.ones(3)
        with lib.no_grad():
            model.weight.add_(1)
        yield step(row, batch(lib, n))
        yield model.weight


@case
def an_argument_that_is_the_buffer(lib: Any, wrap: Any) -> Seen:
    total = lib.zeros(3)

    def step(x):
        total.add_(x)
        return x * 10

    step = wrap(step)
    for n in range(5):
        yield step(total if n in (2, 4) else lib.ones(3))
        yield total


@case
def the_written_argument_is_returned(lib: Any, wrap: Any) -> Seen:
    def step(x):
        return x.add_(1)

    step = wrap(step)
    for n in range(4):
        x = ramp(lib, 3, start=float(n))
        y = step(x)
        x.add_(10)
        yield y, x, y is x


@case
def an_argument_returned_as_it_is(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: (x, x * 2))
    for n in range(4):
        x = ramp(lib, 3, start=float(n))
        y, _ = step(x)
        yield y is x
        y.zero_()
        yield x


@case
def a_view_of_an_argument_returned(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x[1:])
    for n in range(4):
        x = ramp(lib, 4, start=float(n))
        y = step(x)
        y.fill_(9.0)
        yield x, y
        x.zero_()
        yield y


@case
def a_reshaped_argument_returned(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: (x.view(6), x.t(), x + 1))
    for n in range(4):
        x = ramp(lib, 2, 3, start=float(n))
        flat, turned, _ = step(x)
        flat[0] = 100.0
        turned[2, 1] = -100.0
        yield x, flat, turned


@case
def a_view_of_captured_state_returned(lib: Any, wrap: Any) -> Seen:
    state = lib.zeros(4)

    def step(n):
        state.add_(n)
        return state[:2]

    step = wrap(step)
    for n in range(4):
        view = step(float(n))
        view.mul_(2)
        yield view, state


@case
def a_parameter_returned(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0)

    def step(x):
        with lib.no_grad():
            w.add_(x)
        return w

    step = wrap(step)
    for n in range(4):
        found = step(ramp(lib, 2, start=float(n)))
        yield found is w, found


@case
def the_same_result_twice(lib: Any, wrap: Any) -> Seen:
    def step(x):
        y = x * 2
        return y, y, [y]

    step = wrap(step)
    for n in range(4):
        a, b, (c,) = step(ramp(lib, 3, start=float(n)))
        a.add_(1)
        yield a is b, b is c, a, b, c


@case
def results_of_two_calls_are_apart(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x * 2)
    kept = []
    for n in range(5):
        kept.append(step(ramp(lib, 3, start=float(n))))
        kept[0].add_(1)
        yield kept


@case
def a_result_fed_back(lib: Any, wrap: Any) -> Seen:
    def step(h, x):
        return lib.tanh(h + x)

    step = wrap(step)
    h = lib.zeros(3)
    for n in range(6):
        h = step(h, ramp(lib, 3, start=0.1 * n))
        yield h


@case
def a_result_written_by_the_caller(lib: Any, wrap: Any) -> Seen:
    scale = lib.ones(3)
    step = wrap(lambda x: (x + scale, scale))
    for _n in range(4):
        y, s = step(ramp(lib, 3))
        s.mul_(2)
        yield y, scale


@case
def a_constant_made_in_the_step(lib: Any, wrap: Any) -> Seen:
    def step(x):
        ones = lib.ones(3)
        return x + ones, ones

    step = wrap(step)
    for _n in range(4):
        y, ones = step(ramp(lib, 3))
        ones.fill_(100.0)
        yield y, ones


@case
def an_expanded_argument(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, y: (x * y).sum(0))
    for n in range(4):
        x = ramp(lib, 1, 3, start=float(n)).expand(4, 3)
        yield step(x, lib.ones(4, 3)), step(x.contiguous(), lib.ones(4, 3))


@case
def copy_from_an_overlapping_slice(lib: Any, wrap: Any) -> Seen:
    def step(a, b):
        a.copy_(b)
        return a.sum()

    step = wrap(step)
    for n in range(4):
        base = ramp(lib, 6, start=float(n))
        yield step(base[:3], base[3:] if n % 2 else lib.ones(3))
        yield base


@case
def tied_weights(lib: Any, wrap: Any) -> Seen:
    a, b = layer(lib, 3, 3), layer(lib, 3, 3)
    b.weight = a.weight

    def step(x):
        b(a(x)).square().mean().backward()
        with lib.no_grad():
            for p in {id(p): p for m in (a, b) for p in m.parameters()}.values():
                p.sub_(p.grad, alpha=0.1)
                p.grad = None

    step = wrap(step)
    for n in range(5):
        if n == 3:
            b.weight = lib.nn.Parameter(ramp(lib, 3, 3))
        step(batch(lib, n))
        yield a.weight, b.weight, b.bias


@case
def weights_tied_between_calls_by_data(lib: Any, wrap: Any) -> Seen:
    a, b = leaf(lib, 1.0, 2.0), leaf(lib, 3.0, 4.0)

    def step(x):
        with lib.no_grad():
            a.add_(x)
        return b * 2

    step = wrap(step)
    for n in range(5):
        if n == 2:
            b.data = a.data
        if n == 4:
            b.data = lib.zeros(2)
        yield step(lib.ones(2)), a, b


@case
def parameters_in_one_flat_buffer(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    flat = lib.cat([p.detach().reshape(-1) for p in model.parameters()])
    model.weight.data = flat[:6].view(2, 3)
    model.bias.data = flat[6:]

    def step(x):
        model.zero_grad()
        model(x).square().mean().backward()
        with lib.no_grad():
            flat.sub_(lib.cat([p.grad.reshape(-1) for p in model.parameters()]), alpha=0.1)

    step = wrap(step)
    for n in range(4):
        step(batch(lib, n))
        yield flat, weights(model)


@case
def a_list_with_the_same_tensor(lib: Any, wrap: Any) -> Seen:
    def step(tensors):
        for t in tensors:
            t.mul_(2)
        return sum(t.sum() for t in tensors)

    step = wrap(step)
    x, y = ramp(lib, 3), ramp(lib, 3, start=1.0)
    for n in range(5):
        yield step([x, y] if n % 2 else [x, x])
        yield x, y


@case
def detach_shares(lib: Any, wrap: Any) -> Seen:
    def step(x):
        y = x.detach()
        y.mul_(2)
        return x + y

    step = wrap(step)
    for n in range(4):
        x = ramp(lib, 3, start=float(n))
        yield step(x), x


@case
def diagonal_written(lib: Any, wrap: Any) -> Seen:
    def step(m, d):
        m.diagonal().add_(d)
        return m.sum()

    step = wrap(step)
    for n in range(4):
        m = ramp(lib, 3, 3, start=float(n))
        yield step(m, m[0] if n % 2 else lib.ones(3))
        yield m


@case
def chunks_of_one_tensor(lib: Any, wrap: Any) -> Seen:
    def step(a, b, c):
        b.copy_(a + c)
        return a.sum() + b.sum()

    step = wrap(step)
    for n in range(4):
        base = ramp(lib, 6, start=float(n))
        parts = base.chunk(3) if n % 2 else base.unfold(0, 4, 1)
        yield step(*parts)
        yield base


@case
def a_gradient_and_a_parameter_swapped_in(lib: Any, wrap: Any) -> Seen:
    p = leaf(lib, 1.0, 2.0)
    p.grad = lib.ones(2)

    def step(a, b):
        a.add_(b)
        return p.grad.sum() + p.sum()

    step = wrap(step)
    for n in range(6):
        with lib.no_grad():
            a = p.grad if n % 2 else p.detach()
            b = p.detach() if n % 3 == 1 else lib.ones(2)
            yield step(a, b)
        yield p, p.grad


@case
def one_tensor_for_two_arguments_and_then_two(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda a, b: a * 2 + b)
    for n in range(6):
        a, b = ramp(lib, 3, start=float(n)), ramp(lib, 3, start=10.0 + n)
        yield step(a, a) if n % 3 < 2 else step(a, b)
        yield step(a, b)


@case
def whether_two_arguments_are_one(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, y: x * 10 if x is y else x + y)
    x, y = ramp(lib, 3), ramp(lib, 3, start=2.0)
    for n in range(8):
        yield step(x, x if n in (4, 6) else y)


@case
def two_views_that_become_one(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, y: x - 2 * y)
    whole = ramp(lib, 8)
    for n in range(8):
        start = 0 if n % 4 == 3 else 4
        yield step(whole[:4], whole[start : start + 4])


@case
def one_view_that_becomes_two(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, y: x - 2 * y)
    whole = ramp(lib, 8)
    for n in range(8):
        start = 0 if n < 4 else 4
        yield step(whole[:4], whole[start : start + 4])


@case
def an_overwritten_argument_that_becomes_two(lib: Any, wrap: Any) -> Seen:
    def step(x, y):
        x.add_(1)
        return x * y

    step = wrap(step)
    for n in range(7):
        x, y = ramp(lib, 3), ramp(lib, 3, start=2.0)
        yield step(x, x if n == 5 else y), x, y


@case
def a_gradient_kept_and_overwritten(lib: Any, wrap: Any) -> Seen:
    w = lib.ones(3).requires_grad_()

    def step(x):
        if w.grad is not None:
            w.grad.zero_()
        (w * x).sum().backward()
        return w.grad.sum()

    step = wrap(step)
    for n in range(7):
        kept = w.grad
        yield step(ramp(lib, 3, start=float(n))), kept, w.grad
        if n == 4:
            w.grad = lib.ones(3)


@case
def the_gradient_of_an_argument_replaced(lib: Any, wrap: Any) -> Seen:
    def step(x, y):
        x.grad = None
        (x * y).sum().backward()
        return x.grad * 2

    step = wrap(step)
    x = ramp(lib, 3).requires_grad_()
    for n in range(7):
        kept = x.grad
        yield step(x, ramp(lib, 3, start=float(n))), x.grad, kept
        if n == 3:
            x = ramp(lib, 3, start=1.0).requires_grad_()


@case
def the_gradient_of_an_argument_accumulated(lib: Any, wrap: Any) -> Seen:
    def step(x, y):
        (x * y).sum().backward()
        return x.grad * 2

    step = wrap(step)
    x = ramp(lib, 3).requires_grad_()
    for n in range(6):
        yield step(x, ramp(lib, 3, start=float(n))), x.grad


@case
def an_argument_made_another_view(lib: Any, wrap: Any) -> Seen:
    def step(x, change):
        change(x)
        return x.sum(0) + 1

    step = wrap(step)
    changes = (
        lambda x: x.t_(),
        lambda x: x.transpose_(0, 1).add_(1),
        lambda x: x.unsqueeze_(0),
        lambda x: x.unsqueeze_(1).mul_(2),
        lambda x: x.squeeze_(),
        lambda x: x.as_strided_((2, 2), (1, 2)),
        lambda x: x.swapaxes_(0, 1),
        lambda x: x.swapdims_(1, 0),
        lambda x: x.mul_(3).t_(),
    )
    for change in changes:
        for n in range(3):
            x = ramp(lib, 3, 2, start=float(n))
            yield step(x, change)
            yield x, tuple(x.shape), x.stride()


@case
def a_captured_tensor_made_another_view(lib: Any, wrap: Any) -> Seen:
    kept = ramp(lib, 3, 2)

    def step(x):
        kept.t_()
        return kept.sum(0).sum() + x

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 2, start=float(n)))
        yield kept, tuple(kept.shape), kept.stride()


@case
def a_parameter_frozen_that_an_argument_aliases(lib: Any, wrap: Any) -> Seen:
    w = ramp(lib, 3, start=0.5).requires_grad_()

    def step(a, b):
        lib.autograd.grad((w * w * b).sum(), w)
        return a * 0.5, b + 0.1

    step = wrap(step)
    for n in range(6):
        w.requires_grad_(n != 3)
        yield attempt(step, w.detach(), ramp(lib, 3) * n)
