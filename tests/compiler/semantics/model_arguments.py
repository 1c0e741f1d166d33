"""Models, optimizers, generators and functions among the arguments, and what results share with
them."""

from __future__ import annotations

import copy
import functools
from types import SimpleNamespace
from typing import Any

from .registry import Seen, batch, case, layer, leaf, mlp, ramp, weights


@case
def a_model_as_an_argument(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda model, x: model(x).sum())
    a, b = layer(lib), layer(lib)
    with lib.no_grad():
        b.weight.mul_(2)
    for n in range(7):
        model = (a, b)[n % 2]
        if n == 4:
            a.register_forward_hook(lambda module, given, out: out * 2)
        if n == 5:
            b.bias = None
        model.zero_grad()
        step(model, batch(lib, n)).backward()
        yield weights(model)


@case
def a_model_and_its_optimizer_as_arguments(lib: Any, wrap: Any) -> Seen:
    def step(model, optimizer, x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = wrap(step)
    model = mlp(lib)
    sgd = lib.optim.SGD(model.parameters(), lr=0.1)
    adam = lib.optim.Adam(model.parameters(), lr=0.05)
    for n in range(8):
        if n == 5:
            sgd.param_groups[0]["lr"] = 0.01
        yield step(model, adam if n in (2, 3, 6) else sgd, batch(lib, n)), weights(model)


@case
def a_model_in_two_modes_as_an_argument(lib: Any, wrap: Any) -> Seen:
    model = lib.nn.Sequential(layer(lib, 3, 4), lib.nn.BatchNorm1d(4), layer(lib, 4, 2))
    step = wrap(lambda model, x: model(x).detach())
    for n in range(7):
        model.train(n % 3 != 2)
        yield step(model, batch(lib, n)), list(model.buffers())


@case
def parameters_as_arguments(lib: Any, wrap: Any) -> Seen:
    def step(params, x):
        loss = sum((p.sum() * x.sum()) for p in params)
        grads = lib.autograd.grad(loss, params)
        with lib.no_grad():
            for p, g in zip(params, grads, strict=True):
                p -= 0.1 * g
        return grads

    step = wrap(step)
    a, b = layer(lib), mlp(lib)
    for n in range(6):
        model = (a, b)[n % 2]
        yield step(list(model.parameters()), batch(lib, n)), weights(model)


@case
def a_generator_of_random_numbers_as_an_argument(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, source: x + lib.rand(3, generator=source))
    a, b = lib.Generator().manual_seed(1), lib.Generator().manual_seed(2)
    for n in range(7):
        if n == 4:
            a.manual_seed(9)
        yield step(ramp(lib, 3), (a, b)[n % 2])
    yield lib.rand(1, generator=a), lib.rand(1, generator=b), lib.rand(1)


@case
def functions_as_arguments(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(gain=2.0)
    calls: list[int] = []

    def made(n):
        def act(x):
            calls.append(n)
            return x * n * s.gain

        return act

    step = wrap(lambda f, x: f(x) + 1)
    kept = made(3)
    fs = (kept, kept, made(4), functools.partial(lib.mul, 2.0), kept, lib.tanh, made(5))
    for n, f in enumerate(fs):
        if n == 4:
            s.gain = -1.0
        yield step(f, ramp(lib, 3)), list(calls)


@case
def a_bound_method_as_an_argument(lib: Any, wrap: Any) -> Seen:
    class Scale:
        def __init__(self, gain):
            self.gain, self.n = gain, 0

        def apply(self, x):
            self.n += 1
            return x * self.gain

    step = wrap(lambda f, x: f(x))
    a, b = Scale(2.0), Scale(3.0)
    for n in range(8):
        if n == 5:
            a.gain = 7.0
        yield step((a, b)[n % 2].apply, ramp(lib, 3)), a.n, b.n


@case
def a_class_as_an_argument(lib: Any, wrap: Any) -> Seen:
    class One:
        gain = 2.0

        def __init__(self, x):
            self.x = x * self.gain

    class Two(One):
        gain = 3.0

    step = wrap(lambda kind, x: kind(x).x)
    for n in range(7):
        if n == 4:
            One.gain = 5.0
        yield step((One, Two)[n % 2], ramp(lib, 3))


@case
def a_result_that_is_a_view_of_a_parameter(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    step = wrap(lambda x: (model.weight[0], model.weight.detach().t(), x * 2, model.bias.data))
    for n in range(5):
        row, turned, _, bias = step(batch(lib, n))
        with lib.no_grad():
            model.weight.add_(1)
            bias.mul_(2)
        yield row, turned, bias, weights(model)


@case
def a_result_that_is_written_later(lib: Any, wrap: Any) -> Seen:
    kept = ramp(lib, 2, 3)
    step = wrap(lambda x: (kept, kept.view(-1), x.view(-1), x, x[0], (x * 2)[0]))
    for n in range(5):
        x = ramp(lib, 2, 3, start=float(n))
        a, b, c, d, e, f = step(x)
        b.add_(1)
        c.mul_(2)
        f.zero_()
        yield a, b, c, d, e, f, kept, x, d is x


@case
def results_that_share_memory(lib: Any, wrap: Any) -> Seen:
    def step(x):
        y = x * 2
        return y, y.view(-1), y.t(), y[0], y.detach(), y

    step = wrap(step)
    for n in range(5):
        parts = step(ramp(lib, 2, 3, start=float(n)))
        parts[1].add_(1)
        parts[3].mul_(2)
        yield list(parts), parts[0] is parts[5]


@case
def a_result_is_an_argument_of_the_next_call(lib: Any, wrap: Any) -> Seen:
    def step(h, x):
        h.mul_(0.5)
        return h + x, h

    step = wrap(step)
    h = ramp(lib, 3)
    for n in range(7):
        new, old = step(h, ramp(lib, 3, start=float(n)))
        yield new, old, old is h
        h = new if n % 3 else old


@case
def a_state_dictionary_as_an_argument(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)

    def step(state, x):
        out = lib.func.functional_call(model, state, (x,))
        return out.sum(), {name: value * 0.5 for name, value in state.items()}

    step = wrap(step)
    state = {k: v.detach().clone() for k, v in model.state_dict().items()}
    for n in range(5):
        out, state = step(state, batch(lib, n))
        yield out, state, model.weight


@case
def a_copied_model_as_an_argument(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    step = wrap(lambda m, x: m(x).sum())
    for n in range(6):
        other = copy.deepcopy(model)
        with lib.no_grad():
            other.weight.add_(n)
        step(other, batch(lib, n)).backward()
        yield other.weight.grad, model.weight.grad


@case
def a_leaf_and_its_views_as_arguments(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda w, v: (w.sum() * v).sum())
    for n in range(6):
        w = leaf(lib, 1.0, 2.0, 3.0)
        v = (w[:2], w.view(3), w.detach()[1:], w * 1, w, leaf(lib, 4.0))[n]
        step(w, v).backward()
        yield w.grad, v.is_leaf, v.requires_grad


@case
def one_tensor_given_twice(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda a, b, c: (a * b * 2 + c["x"]).sum())
    for n in range(6):
        w, other = leaf(lib, 1.0, 2.0), leaf(lib, 3.0, 4.0)
        y = w * 2
        given = ((w, w, w), (w, other, w), (y, y, other), (y, w, y), (other, other, y), (w, y, w))[
            n
        ]
        step(given[0], given[1], {"x": given[2]}).backward()
        yield w.grad, other.grad


@case
def one_parameter_as_argument_and_in_the_model(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    step = wrap(lambda w, x: (model(x).sum() * w.sum()) + (model.weight * w).sum())
    for n in range(6):
        model.zero_grad()
        w = model.weight if n % 2 else ramp(lib, 2, 3).requires_grad_()
        step(w, batch(lib, n)).backward()
        yield w.grad, weights(model)
