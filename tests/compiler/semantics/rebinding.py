"""Tensors rebound by the step: after each call they are real tensors with the new values."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from .registry import Seen, batch, case, layer, leaf, mlp, ramp


@case
def a_running_average(lib: Any, wrap: Any) -> Seen:
    class Meter:
        def __init__(self):
            self.avg = lib.zeros(3)

        def update(self, x):
            self.avg = 0.9 * self.avg + 0.1 * x
            return self.avg.norm()

    m = Meter()
    update = wrap(m.update)
    for n in range(5):
        yield update(ramp(lib, 3, start=float(n))), m.avg
    m.avg = lib.ones(3)
    yield update(ramp(lib, 3)), m.avg


@case
def an_average_that_begins_as_none(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(avg=None)

    def step(x):
        s.avg = x.clone() if s.avg is None else 0.5 * s.avg + 0.5 * x
        return s.avg.sum()

    step = wrap(step)
    for n in range(6):
        if n == 3:
            s.avg = None
        yield step(ramp(lib, 3, start=float(n))), s.avg


@case
def an_average_that_begins_as_a_number(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(avg=0.0)

    def step(x):
        s.avg = 0.9 * s.avg + 0.1 * x.sum()
        return s.avg * 2

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 3, start=float(n))), s.avg


@case
def recurrent_state(lib: Any, wrap: Any) -> Seen:
    cell = lib.nn.GRUCell(3, 4)
    s = SimpleNamespace(h=lib.zeros(2, 4))

    def step(x):
        s.h = cell(x, s.h).detach()
        return s.h.mean()

    step = wrap(step)
    for n in range(5):
        if n == 3:
            s.h = lib.zeros(2, 4)
        yield step(batch(lib, n, 2)), s.h


@case
def recurrent_state_of_a_tuple(lib: Any, wrap: Any) -> Seen:
    lstm = lib.nn.LSTM(3, 4)
    s = SimpleNamespace(state=None)

    def step(x):
        out, state = lstm(x, s.state)
        s.state = tuple(t.detach() for t in state)
        return out.sum()

    step = wrap(step)
    for n in range(4):
        yield step(batch(lib, n, 5)), s.state


@case
def an_ema_of_parameters(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    shadow = {k: v.clone() for k, v in model.state_dict().items()}

    def step(x):
        model.zero_grad()
        model(x).square().mean().backward()
        with lib.no_grad():
            for k, p in model.named_parameters():
                p.add_(p.grad, alpha=-0.1)
                shadow[k] = shadow[k] * 0.9 + p * 0.1

    step = wrap(step)
    for n in range(5):
        step(batch(lib, n))
        yield shadow


@case
def a_buffer_rebound_in_a_module(lib: Any, wrap: Any) -> Seen:
    class Net(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", lib.zeros(3))

        def forward(self, x):
            self.seen = self.seen + x.sum(0)
            return x - self.seen

    net = Net()
    run = wrap(net)
    for n in range(5):
        yield run(batch(lib, n)), net.seen, dict(net.state_dict())


@case
def the_last_output_kept(lib: Any, wrap: Any) -> Seen:
    class Net(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.last = layer(lib), None

        def forward(self, x):
            self.last = self.layer(x)
            return self.last.sum()

    net = Net()
    run = wrap(net)
    for n in range(4):
        run(batch(lib, n))
        yield net.last.detach(), net.last.requires_grad


@case
def the_kept_output_is_differentiated_outside(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    s = SimpleNamespace(loss=None)

    def step(x):
        s.loss = model(x).square().mean()

    step = wrap(step)
    for n in range(4):
        step(batch(lib, n))
        s.loss.backward()
        yield s.loss.detach(), model.weight.grad


@case
def a_target_network_replaced(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(w=ramp(lib, 3), target=lib.zeros(3), n=0)

    def step(x):
        s.w = s.w - 0.1 * (s.w * x - s.target)
        s.n += 1
        if s.n % 2 == 0:
            s.target = s.w.clone()
        return s.w.sum()

    step = wrap(step)
    for n in range(6):
        yield step(ramp(lib, 3, start=float(n))), s.w, s.target


@case
def a_global_norm_kept(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    s = SimpleNamespace(norm=None, history=[])

    def step(x):
        model.zero_grad()
        model(x).square().mean().backward()
        s.norm = lib.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        s.history = [*s.history[-1:], s.norm]

    step = wrap(step)
    for n in range(4):
        step(batch(lib, n))
        yield s.norm, s.history


@case
def a_parameter_attribute_rebound_by_data(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)

    def step(x):
        w.data = w.data * 0.5 + x
        return (w * 2).sum().detach()

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 3, start=float(n))), w


@case
def augmented_assignment_of_an_attribute(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(total=lib.zeros(3))
    first = s.total

    def step(x):
        s.total += x
        return s.total is first

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 3, start=float(n))), s.total, first


@case
def augmented_assignment_of_an_element(lib: Any, wrap: Any) -> Seen:
    parts = {"a": lib.zeros(3), "b": 0.0}

    def step(x):
        parts["a"] += x
        parts["b"] += x.sum()
        return parts["b"] * 2

    step = wrap(step)
    for n in range(4):
        yield step(ramp(lib, 3, start=float(n))), parts


@case
def a_cache_of_keys_that_grows(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(keys=None)

    def step(x):
        s.keys = x if s.keys is None else lib.cat([s.keys, x], 0)
        return lib.softmax(x @ s.keys.t(), -1)

    step = wrap(step)
    for n in range(5):
        yield step(batch(lib, n, 1)), s.keys


@case
def a_dtype_that_changes(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(total=lib.zeros(3, dtype=lib.int64))

    def step(x):
        s.total = s.total + x
        return s.total.sum()

    step = wrap(step)
    for n in range(5):
        x = lib.ones(3, dtype=lib.int64) if n < 2 else ramp(lib, 3)
        yield step(x), s.total


@case
def a_shape_that_changes(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(window=lib.zeros(2))

    def step(x):
        s.window = lib.cat([s.window[-3:], x])
        return s.window.mean()

    step = wrap(step)
    for n in range(6):
        yield step(lib.full((1,), float(n))), s.window


@case
def the_old_value_is_held_elsewhere(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(h=lib.zeros(3))
    kept = [s.h]

    def step(x):
        s.h = s.h + x
        return s.h.sum()

    step = wrap(step)
    for n in range(4):
        step(ramp(lib, 3, start=float(n)))
        kept.append(s.h)
        yield kept


@case
def two_names_for_the_new_tensor(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(a=lib.zeros(3), b=None)

    def step(x):
        s.a = s.a + x
        s.b = s.a
        return x

    step = wrap(step)
    for n in range(4):
        step(ramp(lib, 3, start=float(n)))
        s.b.add_(1)
        yield s.a, s.b, s.a is s.b


@case
def an_argument_stored(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(x=None)

    def step(x):
        s.x = x
        return x * 2

    step = wrap(step)
    for n in range(4):
        x = ramp(lib, 3, start=float(n))
        step(x)
        yield s.x is x
        x.zero_()
        yield s.x


@case
def a_view_stored(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(row=None)
    memory = ramp(lib, 3, 2)

    def step(n):
        memory.add_(1)
        s.row = memory[n]
        return memory.sum()

    step = wrap(step)
    for n in range(4):
        step(n % 3)
        s.row.fill_(-1.0)
        yield memory, s.row


@case
def rebound_after_a_failing_call(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(h=lib.zeros(3))

    def step(x):
        s.h = s.h + 1
        return s.h + x

    step = wrap(step)
    for n in range(5):
        try:
            yield step(ramp(lib, 3 if n != 2 else 4))
        except RuntimeError:
            yield "failed"
        yield s.h


@case
def a_nested_dictionary_rebuilt(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(stats={"mean": {"x": lib.zeros(3)}, "n": 0})

    def step(x):
        old = s.stats
        s.stats = {"mean": {"x": (old["mean"]["x"] * old["n"] + x) / (old["n"] + 1)}}
        s.stats["n"] = old["n"] + 1

    step = wrap(step)
    for n in range(5):
        step(ramp(lib, 3, start=float(n)))
        yield s.stats


@case
def power_iteration(lib: Any, wrap: Any) -> Seen:
    class Norm:
        def __init__(self):
            self.u = lib.ones(3) / 3**0.5

        def sigma(self, w):
            for _ in range(2):
                v = lib.nn.functional.normalize(w @ self.u, dim=0)
                self.u = lib.nn.functional.normalize(w.t() @ v, dim=0)
            return v @ w @ self.u

    norm = Norm()
    sigma = wrap(norm.sigma)
    for n in range(4):
        yield sigma(batch(lib, n)), norm.u


@case
def momentum_by_hand(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    velocity = [lib.zeros_like(p) for p in model.parameters()]

    def step(x):
        grads = lib.autograd.grad(model(x).square().mean(), list(model.parameters()))
        with lib.no_grad():
            for k, (p, g) in enumerate(zip(model.parameters(), grads, strict=True)):
                velocity[k] = 0.9 * velocity[k] + g
                p -= 0.1 * velocity[k]

    step = wrap(step)
    for n in range(5):
        step(batch(lib, n))
        yield velocity, list(model.parameters())
