"""Modules whose mode, parameters, buffers, children or hooks change between calls."""

from __future__ import annotations

import functools
from typing import Any

from .registry import Seen, batch, case, layer, mlp, ramp, weights


@case
def train_and_eval(lib: Any, wrap: Any) -> Seen:
    model = lib.nn.Sequential(layer(lib), lib.nn.Dropout(0.5))
    step = wrap(lambda x: model(x))
    for n in range(6):
        model.train(n % 2 == 0)
        yield step(batch(lib, n))


@case
def batch_norm(lib: Any, wrap: Any) -> Seen:
    norm = lib.nn.BatchNorm1d(3)
    step = wrap(lambda x: norm(x))
    for n in range(6):
        norm.train(n % 3 != 2)
        yield step(batch(lib, n)), weights(norm)


@case
def batch_norm_momentum_changed(lib: Any, wrap: Any) -> Seen:
    norm = lib.nn.BatchNorm1d(3)
    step = wrap(lambda x: norm(x).sum())
    for n in range(5):
        norm.momentum = None if n == 3 else 0.1 * (n + 1)
        norm.eps = 1e-5 * (n + 1)
        step(batch(lib, n))
        yield weights(norm)


@case
def batch_norm_reset_between_calls(lib: Any, wrap: Any) -> Seen:
    norm = lib.nn.BatchNorm1d(3)
    step = wrap(lambda x: norm(x))
    for n in range(5):
        if n == 3:
            norm.reset_running_stats()
        yield step(batch(lib, n)), weights(norm)


@case
def frozen_and_thawed(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)

    def step(x):
        model.zero_grad()
        loss = model(x).square().mean()
        if loss.requires_grad:
            loss.backward()
        return loss.detach()

    step = wrap(step)
    for n in range(6):
        model[0].requires_grad_(n % 2 == 0)
        model[2].requires_grad_(n != 3)
        yield step(batch(lib, n)), weights(model)


@case
def a_child_replaced(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    step = wrap(lambda x: model(x))
    for n in range(5):
        if n == 2:
            model[1] = lib.nn.ReLU()
        if n == 4:
            model[2] = layer(lib, 4, 3)
        yield step(batch(lib, n))


@case
def a_child_appended(lib: Any, wrap: Any) -> Seen:
    model = lib.nn.Sequential(layer(lib, 3, 3))
    step = wrap(model)
    for n in range(4):
        yield step(batch(lib, n))
        model.append(layer(lib, 3, 3))


@case
def a_module_list_that_grows(lib: Any, wrap: Any) -> Seen:
    class Net(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = lib.nn.ModuleList([layer(lib, 3, 3)])

        def forward(self, x):
            for module in self.layers:
                x = x + module(x)
            return x

    net = Net()
    step = wrap(net)
    for n in range(4):
        yield step(batch(lib, n))
        net.layers.append(layer(lib, 3, 3))


@case
def a_parameter_replaced(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    step = wrap(lambda x: model(x).sum().backward())
    for n in range(5):
        if n % 2:
            model.weight = lib.nn.Parameter(ramp(lib, 2, 3, start=float(n)))
        step(batch(lib, n))
        yield weights(model)


@case
def a_parameter_dictionary(lib: Any, wrap: Any) -> Seen:
    table = lib.nn.ParameterDict({"a": lib.nn.Parameter(lib.ones(3))})
    step = wrap(lambda x: sum((p * x).sum() for p in table.values()))
    for n in range(4):
        yield step(ramp(lib, 3))
        table[f"p{n}"] = lib.nn.Parameter(lib.full((3,), float(n)))


@case
def data_replaced(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    step = wrap(lambda x: model(x))
    for n in range(4):
        model.weight.data = ramp(lib, 2, 3, start=float(n))
        yield step(batch(lib, 0))


@case
def weights_loaded(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    step = wrap(lambda x: model(x))
    for n in range(4):
        state = {k: v + n for k, v in model.state_dict().items()}
        model.load_state_dict(state, assign=n == 2)
        yield step(batch(lib, 0))


@case
def initialised_again(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    step = wrap(model)
    for n in range(4):
        lib.nn.init.constant_(model.weight, 0.1 * n)
        lib.nn.init.uniform_(model.bias)
        yield step(batch(lib, n))


@case
def a_buffer_replaced(lib: Any, wrap: Any) -> Seen:
    class Net(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", lib.ones(3))

        def forward(self, x):
            return x * self.scale

    net = Net()
    step = wrap(net)
    for n in range(5):
        if n % 2:
            net.scale = lib.full((3,), float(n))
        else:
            net.scale.add_(1)
        yield step(batch(lib, 0))


@case
def a_buffer_that_is_none_at_first(lib: Any, wrap: Any) -> Seen:
    class Net(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", None)

        def forward(self, x):
            return x if self.mean is None else x - self.mean

    net = Net()
    step = wrap(net)
    for n in range(5):
        net.mean = batch(lib, n).mean(0) if n in (1, 2, 4) else None
        yield step(batch(lib, 0))


@case
def a_lazy_module(lib: Any, wrap: Any) -> Seen:
    model = lib.nn.LazyLinear(2)
    step = wrap(lambda x: model(x).shape)
    for n in range(3):
        yield tuple(step(batch(lib, n)))
        yield type(model).__name__


@case
def weight_norm(lib: Any, wrap: Any) -> Seen:
    model = lib.nn.utils.parametrizations.weight_norm(layer(lib))
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    step = wrap(step)
    for n in range(4):
        step(batch(lib, n))
        yield weights(model), model.weight.detach()


@case
def spectral_norm(lib: Any, wrap: Any) -> Seen:
    model = lib.nn.utils.parametrizations.spectral_norm(layer(lib))
    step = wrap(lambda x: model(x).sum())
    for n in range(5):
        model.train(n != 2)
        yield step(batch(lib, n)), list(model.buffers())


@case
def a_parametrization_added_and_removed(lib: Any, wrap: Any) -> Seen:
    class Double(lib.nn.Module):
        def forward(self, w):
            return w * 2

    model = layer(lib)
    tools = lib.nn.utils.parametrize
    step = wrap(lambda x: model(x).detach())
    for n in range(5):
        if n == 1:
            tools.register_parametrization(model, "weight", Double())
        if n == 3:
            tools.remove_parametrizations(model, "weight")
        yield step(batch(lib, 0))


@case
def super_in_forward(lib: Any, wrap: Any) -> Seen:
    class Shifted(lib.nn.Linear):
        shift = 0.0

        def forward(self, x):
            return super().forward(x) + self.shift

    model = Shifted(3, 2)
    step = wrap(model)
    for n in range(4):
        model.shift = float(n)
        yield step(batch(lib, 0)).detach()


@case
def a_property_of_a_module(lib: Any, wrap: Any) -> Seen:
    class Net(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.raw = lib.nn.Parameter(lib.zeros(3))

        @property
        def scale(self):
            return lib.nn.functional.softplus(self.raw)

        def forward(self, x):
            return x * self.scale

    net = Net()
    step = wrap(lambda x: net(x).sum().backward())
    for n in range(4):
        step(batch(lib, n))
        with lib.no_grad():
            net.raw.sub_(net.raw.grad)
        yield net.raw


@case
def a_method_of_the_module_called_by_name(lib: Any, wrap: Any) -> Seen:
    class Net(lib.nn.Module):
        kind = "double"

        def double(self, x):
            return x * 2

        def negate(self, x):
            return -x

        def forward(self, x):
            return getattr(self, self.kind)(x)

    net = Net()
    step = wrap(net)
    for n in range(4):
        net.kind = ["double", "negate"][n % 2]
        yield step(ramp(lib, 3))


@case
def lambdas_in_a_list(lib: Any, wrap: Any) -> Seen:
    acts = [lambda x: x + 1, lambda x: x * 2]
    step = wrap(lambda x: functools.reduce(lambda v, f: f(v), acts, x))
    for n in range(5):
        if n == 2:
            acts.reverse()
        if n == 4:
            acts[0] = lib.tanh
        yield step(ramp(lib, 3))


@case
def a_decorated_forward(lib: Any, wrap: Any) -> Seen:
    calls = []

    def counted(method):
        @functools.wraps(method)
        def call(self, *args):
            calls.append(type(self).__name__)
            return method(self, *args) * len(calls)

        return call

    class Net(lib.nn.Module):
        @counted
        def forward(self, x):
            return x + 1

    step = wrap(Net())
    for n in range(4):
        yield step(ramp(lib, 3, start=float(n))), calls


@case
def no_grad_as_a_decorator(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)

    @lib.no_grad()
    def evaluate(x):
        return model(x)

    step = wrap(lambda x: evaluate(x) + model(x))
    for n in range(3):
        out = step(batch(lib, n))
        yield out, evaluate(batch(lib, n)).requires_grad


@case
def a_forward_replaced_on_the_instance(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    step = wrap(lambda x: model(x))
    original = model.forward
    for n in range(5):
        if n == 2:
            model.forward = lambda x: original(x) * 10
        if n == 4:
            del model.forward
        yield step(batch(lib, 0))


@case
def parameters_iterated(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    step = wrap(
        lambda: sum(p.square().sum() for n, p in model.named_parameters() if "bias" not in n)
    )
    for n in range(4):
        with lib.no_grad():
            model[0].weight.add_(0.1)
        if n == 2:
            model.append(layer(lib, 2, 2))
        yield step()


@case
def a_module_moved_to_float64(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    step = wrap(lambda x: model(x))
    for n in range(4):
        model.to(lib.float64 if n % 2 else lib.float32)
        yield step(batch(lib, n).to(model.weight.dtype))


@case
def a_cached_encoder_output(lib: Any, wrap: Any) -> Seen:
    class Net(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.cache = layer(lib, 3, 3), {}

        def forward(self, x, key):
            if key not in self.cache:
                self.cache[key] = self.encoder(x).detach()
            return x + self.cache[key]

    net = Net()
    step = wrap(net)
    for n in range(5):
        yield step(batch(lib, n), "ab"[n % 2]), net.cache


@case
def a_module_called_with_keywords(lib: Any, wrap: Any) -> Seen:
    class Net(lib.nn.Module):
        def forward(self, x, *, mask=None, scale=1.0):
            x = x * scale
            return x if mask is None else x.masked_fill(mask, 0.0)

    step = wrap(Net())
    x = ramp(lib, 4)
    yield step(x), step(x, scale=2.0), step(x, mask=x > 0), step(x, scale=3.0, mask=x < 0)
    yield step(x, scale=4.0), step(x)


@case
def attributes_of_a_wrapped_module(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    compiled = wrap(model)
    for n in range(4):
        compiled.train(n % 2 == 0)
        compiled.zero_grad()
        compiled(batch(lib, n)).sum().backward()
        yield model.training, weights(model), len(list(compiled.parameters()))


@case
def embedding_and_attention(lib: Any, wrap: Any) -> Seen:
    table = lib.nn.Embedding(5, 4)
    attention = lib.nn.MultiheadAttention(4, 2, batch_first=True)

    def step(tokens):
        x = table(tokens)
        return attention(x, x, x, need_weights=False)[0].sum()

    step = wrap(step)
    for n in range(4):
        attention.train(n % 2 == 0)
        yield step(lib.arange(6).reshape(2, 3) % (n + 1))
