"""Options of layers, losses and optimizers that are set anew before each call: they are inputs of
one program where the operation allows it, and errors are those of eager code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .registry import Seen, attempt, batch, case, layer, mlp, ramp, weights

RISING = (0.5, 0.3, 0.1, 0.7, 0.7, 0.25, 0.9)


def called(
    lib: Any, wrap: Any, module: Any, name: str, values: Any = RISING, shape: Any = (4, 3)
) -> Seen:
    """A training step through a layer, with an option of it set before each call."""
    weight = ramp(lib, shape[-1], start=0.4).requires_grad_()
    scale = lib.cos(ramp(lib, *shape, scale=1.7))

    def step(x):
        weight.grad = None
        y = (module(x * weight) * scale * weight).sum()
        y.backward()
        return y.detach()

    step = wrap(step)
    for n, value in enumerate(values):
        setattr(module, name, value)
        yield attempt(step, ramp(lib, *shape, start=0.1 * n)), weight.grad, list(module.buffers())


@case
def the_probability_of_dropout(lib: Any, wrap: Any) -> Seen:
    yield from called(lib, wrap, lib.nn.Dropout(0.5), "p")


@case
def no_dropout_and_nothing_else(lib: Any, wrap: Any) -> Seen:
    yield from called(lib, wrap, lib.nn.Dropout(0.5), "p", (0.5, 0.25, 0.0, 1.0, 0.3, 0.0, 0.6))


@case
def a_probability_out_of_range(lib: Any, wrap: Any) -> Seen:
    yield from called(lib, wrap, lib.nn.Dropout(0.5), "p", (0.5, 0.25, 0.3, 1.5, 0.4, -0.1, 0.6))


@case
def dropout_of_channels(lib: Any, wrap: Any) -> Seen:
    yield from called(lib, wrap, lib.nn.Dropout1d(0.5), "p", shape=(2, 4, 3))


@case
def dropout_that_keeps_the_variance(lib: Any, wrap: Any) -> Seen:
    yield from called(lib, wrap, lib.nn.AlphaDropout(0.5), "p")


@case
def the_momentum_of_a_batch_norm(lib: Any, wrap: Any) -> Seen:
    yield from called(lib, wrap, lib.nn.BatchNorm1d(3), "momentum")


@case
def the_epsilon_of_a_batch_norm(lib: Any, wrap: Any) -> Seen:
    yield from called(lib, wrap, lib.nn.BatchNorm1d(3), "eps")


@case
def the_epsilon_of_a_layer_norm(lib: Any, wrap: Any) -> Seen:
    yield from called(lib, wrap, lib.nn.LayerNorm(3), "eps")


@case
def the_slope_of_an_activation(lib: Any, wrap: Any) -> Seen:
    yield from called(lib, wrap, lib.nn.LeakyReLU(0.1), "negative_slope")


@case
def the_scale_of_an_activation(lib: Any, wrap: Any) -> Seen:
    yield from called(lib, wrap, lib.nn.ELU(0.1), "alpha")


@case
def the_sharpness_of_an_activation(lib: Any, wrap: Any) -> Seen:
    yield from called(lib, wrap, lib.nn.Softplus(0.5), "beta")


@case
def the_bound_of_an_activation(lib: Any, wrap: Any) -> Seen:
    yield from called(lib, wrap, lib.nn.Hardtanh(-0.2, 0.5), "max_val")


@case
def an_option_deep_in_a_model(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    model.append(lib.nn.Dropout(0.5))
    model.append(lib.nn.LeakyReLU(0.2))

    def step(x):
        model.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss.detach()

    step = wrap(step)
    for n, value in enumerate(RISING):
        model[3].p = value / 2
        model[4].negative_slope = value
        if n == 4:
            model.eval()
        yield step(batch(lib, n)), weights(model)


@case
def an_option_that_becomes_an_integer(lib: Any, wrap: Any) -> Seen:
    values = (0.5, 0.3, 1, 0.1, 0, 0.2)
    yield from called(lib, wrap, lib.nn.LeakyReLU(0.1), "negative_slope", values)


@case
def an_option_that_the_step_sets(lib: Any, wrap: Any) -> Seen:
    dropout, linear = lib.nn.Dropout(0.5), layer(lib)

    def step(x):
        dropout.p = dropout.p * 0.9
        return dropout(linear(x)).detach()

    step = wrap(step)
    for n in range(6):
        if n == 4:
            dropout.p = 0.8
        yield step(batch(lib, n)), dropout.p


@case
def the_smoothing_of_labels(lib: Any, wrap: Any) -> Seen:
    loss, linear = lib.nn.CrossEntropyLoss(label_smoothing=0.1), layer(lib)

    def step(x):
        linear.zero_grad()
        found = loss(linear(x), lib.tensor([0, 1, 1, 0]))
        found.backward()
        return found.detach()

    step = wrap(step)
    for n, value in enumerate((*RISING, 0.0, 1.0)):
        loss.label_smoothing = value
        yield attempt(step, batch(lib, n)), weights(linear)


def bounded(lib: Any, wrap: Any, function: Callable[[Any, Any], Any]) -> Seen:
    """A function of a tensor and a number of an object that is set before each call."""

    class Options:
        value = 0.5

    step = wrap(lambda x: function(x, Options.value))
    for n, value in enumerate(RISING):
        Options.value = value
        yield step(batch(lib, n))


@case
def the_bounds_of_a_clamp(lib: Any, wrap: Any) -> Seen:
    yield from bounded(lib, wrap, lambda x, c: x.clamp(-c, c * 0.5))


@case
def the_margin_of_a_loss(lib: Any, wrap: Any) -> Seen:
    yield from bounded(lib, wrap, lambda x, c: lib.nn.functional.huber_loss(x, x * 0, delta=c))


@case
def the_greatest_norm_of_gradients(lib: Any, wrap: Any) -> Seen:
    linear = layer(lib)

    class Options:
        most = 0.5

    def step(x):
        linear.zero_grad()
        linear(x).square().sum().backward()
        return lib.nn.utils.clip_grad_norm_(linear.parameters(), Options.most)

    step = wrap(step)
    for n, value in enumerate(RISING):
        Options.most = value
        yield step(batch(lib, n)), weights(linear)
