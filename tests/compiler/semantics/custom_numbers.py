"""Numbers that vary, as arguments of custom functions: in their contexts, forward and backward."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np

from .registry import Seen, batch, case, layer, leaf, ramp, weights


def reversal(lib: Any) -> Any:
    class Reverse(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x, scale):
            ctx.scale = scale
            return x.view_as(x)

        @staticmethod
        def backward(ctx, grad):
            return grad.neg() * ctx.scale, None

    return Reverse.apply


def trained(lib: Any, wrap: Any, function: Any) -> Any:
    """A step of two layers with a function between them, and what it leaves."""
    first, second = layer(lib, 3, 4), layer(lib, 4, 2)
    parameters = [*first.parameters(), *second.parameters()]
    optimizer = lib.optim.SGD(parameters, lr=0.1)

    def step(x, *args):
        loss = second(function(first(x), *args)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return wrap(step), lambda: (weights(first), weights(second))


@case
def a_scale_by_the_progress(lib: Any, wrap: Any) -> Seen:
    reverse = reversal(lib)

    def function(x, n, count):
        p = float(n) / count
        return reverse(x, 2.0 / (1.0 + math.exp(-10 * p)) - 1)

    step, state = trained(lib, wrap, function)
    for n in range(7):
        yield step(batch(lib, n), n, 7), state()


@case
def a_scale_of_numpy(lib: Any, wrap: Any) -> Seen:
    reverse = reversal(lib)
    step, state = trained(lib, wrap, lambda x, p: reverse(x, 2.0 / (1.0 + np.exp(-10 * p)) - 1))
    for n in range(7):
        yield step(batch(lib, n), n / 7), state()


@case
def a_float_argument(lib: Any, wrap: Any) -> Seen:
    step, state = trained(lib, wrap, reversal(lib))
    for n in range(6):
        yield step(batch(lib, n), 0.3 * n), state()


@case
def an_int_argument(lib: Any, wrap: Any) -> Seen:
    step, state = trained(lib, wrap, reversal(lib))
    for n in range(6):
        yield step(batch(lib, n), n), state()


@case
def an_attribute_that_others_set(lib: Any, wrap: Any) -> Seen:
    reverse, options = reversal(lib), SimpleNamespace(scale=1.0)
    step, state = trained(lib, wrap, lambda x: reverse(x, options.scale))
    for n in range(7):
        options.scale = 0.2 * n
        yield step(batch(lib, n)), state()


@case
def a_counter_of_the_step(lib: Any, wrap: Any) -> Seen:
    reverse, counter = reversal(lib), SimpleNamespace(n=0)

    def function(x):
        counter.n += 1
        return reverse(x, 1.0 / counter.n)

    step, state = trained(lib, wrap, function)
    for n in range(7):
        yield step(batch(lib, n)), counter.n, state()
        if n == 4:
            counter.n = 0


@case
def a_threshold_beside_saved_tensors(lib: Any, wrap: Any) -> Seen:
    class Binarize(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x, threshold):
            ctx.save_for_backward(x)
            ctx.threshold = threshold
            return (x > threshold).to(x.dtype) * 2 - 1

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * (x.abs() <= 1 + ctx.threshold), None

    step, state = trained(lib, wrap, Binarize.apply)
    for n in range(7):
        yield step(batch(lib, n), 0.05 * n), state()


@case
def set_up_apart_from_forward(lib: Any, wrap: Any) -> Seen:
    class Power(lib.autograd.Function):
        @staticmethod
        def forward(x, exponent):
            return x.abs() ** exponent

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, ctx.exponent = inputs
            ctx.save_for_backward(x)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * ctx.exponent * x.abs() ** (ctx.exponent - 1) * x.sign(), None

    step, state = trained(lib, wrap, Power.apply)
    for n in range(7):
        yield step(batch(lib, n), 1.0 + 0.25 * n), state()


@case
def differentiated_after_the_call(lib: Any, wrap: Any) -> Seen:
    reverse, w = reversal(lib), leaf(lib, 1.0, -2.0)
    step = wrap(lambda x, scale: reverse(w * x, scale).sum())
    for n in range(7):
        w.grad = None
        loss = step(ramp(lib, 2, start=0.2 * n), 0.5 * n)
        loss.backward()
        yield loss, w.grad


@case
def used_in_forward_alone_and_differentiated_after_the_call(lib: Any, wrap: Any) -> Seen:
    class Scale(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x, scale):
            ctx.save_for_backward(x)
            return x * x * scale

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return 2 * x * grad, None

    w = leaf(lib, 1.0, -2.0)
    step = wrap(lambda x, scale: Scale.apply(w * x, scale).sum())
    for n in range(7):
        w.grad = None
        loss = step(ramp(lib, 2, start=0.2 * n), 0.5 * n)
        loss.backward()
        yield loss, w.grad


@case
def gradients_inside(lib: Any, wrap: Any) -> Seen:
    reverse, w = reversal(lib), leaf(lib, 1.0, -2.0)

    def step(x, scale):
        return lib.autograd.grad(reverse(w * x, scale).square().sum(), w)[0]

    step = wrap(step)
    for n in range(7):
        yield step(ramp(lib, 2, start=0.2 * n), 0.5 * n)


@case
def two_calls_with_numbers_of_each_other(lib: Any, wrap: Any) -> Seen:
    reverse = reversal(lib)

    def function(x, scale):
        return reverse(reverse(x, scale) * 2, scale * scale + 1)

    step, state = trained(lib, wrap, function)
    for n in range(7):
        yield step(batch(lib, n), 0.3 * n - 1), state()


@case
def contexts_that_the_user_keeps(lib: Any, wrap: Any) -> Seen:
    kept = []

    class Kept(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x, scale):
            ctx.scale = scale
            kept.append(ctx.scale)
            return x * scale

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.scale, None

    step, state = trained(lib, wrap, Kept.apply)
    for n in range(7):
        yield step(batch(lib, n), 0.3 * n - 1), list(kept), state()
