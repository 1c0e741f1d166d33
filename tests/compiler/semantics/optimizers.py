"""Optimizers, schedulers and scalers in the step, and their state changed between calls."""

from __future__ import annotations

import copy
from typing import Any

from .registry import Seen, batch, case, layer, mlp, ramp, weights


def training(lib, model, optimizer, before=None):
    def step(x):
        if before is not None:
            before()
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def state_of(optimizer):
    return [dict(optimizer.state[p]) for g in optimizer.param_groups for p in g["params"]]


@case
def a_rate_set_before_each_step(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)
    step = wrap(training(lib, model, optimizer))
    for n in range(6):
        for group in optimizer.param_groups:
            group["lr"] = 0.1 / (n + 1)
        yield step(batch(lib, n)), weights(model)


@case
def a_rate_set_inside_the_step(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x, lr):
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    step = wrap(step)
    for n in range(5):
        step(batch(lib, n), 0.05 * n)
        yield weights(model), optimizer.param_groups[0]["lr"]


@case
def a_rate_decayed_inside_the_step(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def decay():
        optimizer.param_groups[0]["lr"] *= 0.5

    step = wrap(training(lib, model, optimizer, decay))
    for n in range(5):
        if n == 3:
            optimizer.param_groups[0]["lr"] = 1.0
        yield step(batch(lib, n)), model.weight, optimizer.param_groups[0]["lr"]


@case
def a_tensor_as_the_rate(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)
    rate = lib.tensor(0.1)

    def step(x):
        model.zero_grad()
        model(x).square().mean().backward()
        with lib.no_grad():
            for p in optimizer.param_groups[0]["params"]:
                p.sub_(rate * p.grad)

    step = wrap(step)
    for n in range(4):
        rate.mul_(0.5)
        step(batch(lib, n))
        yield weights(model)


@case
def adam_with_changing_options(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.Adam(model.parameters(), lr=0.01)
    step = wrap(training(lib, model, optimizer))
    for n in range(6):
        group = optimizer.param_groups[0]
        group["betas"] = (0.5 + 0.05 * n, 0.99)
        group["weight_decay"] = 0.1 * (n % 2)
        group["eps"] = 1e-8 * (n + 1)
        yield step(batch(lib, n)), weights(model), state_of(optimizer)


@case
def momentum_turned_on_and_off(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)
    step = wrap(training(lib, model, optimizer))
    for n in range(6):
        optimizer.param_groups[0]["momentum"] = 0.9 if n in (2, 3, 4) else 0.0
        optimizer.param_groups[0]["nesterov"] = n == 4
        yield step(batch(lib, n)), weights(model)


@case
def maximize_switched(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)
    step = wrap(training(lib, model, optimizer))
    for n in range(5):
        optimizer.param_groups[0]["maximize"] = n % 2 == 1
        yield step(batch(lib, n)), weights(model)


@case
def two_optimizers(lib: Any, wrap: Any) -> Seen:
    body, head = layer(lib, 3, 3), layer(lib, 3, 2)
    first = lib.optim.SGD(body.parameters(), lr=0.1)
    second = lib.optim.Adam(head.parameters(), lr=0.01)

    def step(x, both):
        first.zero_grad()
        second.zero_grad()
        head(lib.tanh(body(x))).square().mean().backward()
        first.step()
        if both:
            second.step()

    step = wrap(step)
    for n in range(5):
        step(batch(lib, n), n % 2 == 0)
        yield weights(body), weights(head)


@case
def a_list_of_optimizers(lib: Any, wrap: Any) -> Seen:
    models = [layer(lib) for _ in range(3)]
    optimizers = [lib.optim.SGD(m.parameters(), lr=0.1 * (k + 1)) for k, m in enumerate(models)]

    def step(x):
        for model, optimizer in zip(models, optimizers, strict=True):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()

    step = wrap(step)
    for n in range(4):
        if n == 2:
            models.append(layer(lib))
            optimizers.append(lib.optim.SGD(models[-1].parameters(), lr=1.0))
        step(batch(lib, n))
        yield [m.weight for m in models]


@case
def a_generator_and_a_critic(lib: Any, wrap: Any) -> Seen:
    g, d = layer(lib, 2, 3), layer(lib, 3, 1)
    g_opt = lib.optim.Adam(g.parameters(), lr=0.01)
    d_opt = lib.optim.Adam(d.parameters(), lr=0.02)

    def step(real, noise):
        d_opt.zero_grad()
        fake = g(noise)
        (d(fake.detach()).mean() - d(real).mean()).backward()
        d_opt.step()
        g_opt.zero_grad()
        (-d(fake).mean()).backward()
        g_opt.step()

    step = wrap(step)
    for n in range(4):
        step(batch(lib, n), batch(lib, n + 1, 4, 2))
        yield weights(g), weights(d)


@case
def lbfgs_with_its_closure(lib: Any, wrap: Any) -> Seen:
    w = lib.tensor([1.5, -1.0], requires_grad=True)
    optimizer = lib.optim.LBFGS([w], lr=0.5, max_iter=3)

    def step(target):
        def closure():
            optimizer.zero_grad()
            loss = (w - target).square().sum() + (w[0] * w[1]) ** 2
            loss.backward()
            return loss

        return optimizer.step(closure).detach()

    step = wrap(step)
    for n in range(3):
        yield step(ramp(lib, 2, start=0.1 * n)), w


@case
def sgd_with_a_closure(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        def closure():
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            return loss

        return optimizer.step(closure).detach()

    step = wrap(step)
    for n in range(4):
        yield step(batch(lib, n)), weights(model)


@case
def sparse_adam(lib: Any, wrap: Any) -> Seen:
    table = lib.nn.Embedding(6, 2, sparse=True)
    with lib.no_grad():
        table.weight.copy_(ramp(lib, 6, 2))
    optimizer = lib.optim.SparseAdam(list(table.parameters()), lr=0.1)

    def step(index):
        optimizer.zero_grad()
        loss = table(index).square().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = wrap(step)
    for n in range(4):
        yield step(lib.tensor([n, (2 * n) % 6, 0])), table.weight


@case
def foreach_and_plain(lib: Any, wrap: Any) -> Seen:
    found = []
    for foreach in (False, True):
        model = layer(lib)
        optimizer = lib.optim.Adam(model.parameters(), lr=0.05, foreach=foreach)
        step = wrap(training(lib, model, optimizer))
        for n in range(3):
            step(batch(lib, n))
        found.append(weights(model))
    yield found


@case
def fused_option(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.AdamW(model.parameters(), lr=0.05, fused=True)
    step = wrap(training(lib, model, optimizer))
    for n in range(4):
        optimizer.param_groups[0]["lr"] = 0.05 / (n + 1)
        yield step(batch(lib, n)), weights(model)


@case
def amsgrad_and_weight_decay(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    optimizer = lib.optim.AdamW(model.parameters(), lr=0.05, amsgrad=True, weight_decay=0.1)
    step = wrap(training(lib, model, optimizer))
    for n in range(4):
        yield step(batch(lib, n)), weights(model), state_of(optimizer)


@case
def a_group_added_between_calls(lib: Any, wrap: Any) -> Seen:
    a, b = layer(lib, 3, 3), layer(lib, 3, 2)
    optimizer = lib.optim.SGD(a.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        b.zero_grad()
        b(a(x)).square().mean().backward()
        optimizer.step()

    step = wrap(step)
    for n in range(5):
        if n == 2:
            optimizer.add_param_group({"params": b.parameters(), "lr": 0.5})
        if n == 4:
            optimizer.param_groups[1]["lr"] = 0.05
        step(batch(lib, n))
        yield weights(a), weights(b)


@case
def state_loaded_between_calls(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.Adam(model.parameters(), lr=0.05)
    step = wrap(training(lib, model, optimizer))
    kept = None
    for n in range(6):
        if n == 2:
            kept = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
        if n == 4:
            model.load_state_dict(kept[0])
            optimizer.load_state_dict(kept[1])
        yield step(batch(lib, n)), weights(model), state_of(optimizer)


@case
def state_cleared_between_calls(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    step = wrap(training(lib, model, optimizer))
    for n in range(5):
        if n == 3:
            optimizer.state.clear()
        yield step(batch(lib, n)), weights(model)


@case
def the_optimizer_replaced(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    box = {"opt": lib.optim.SGD(model.parameters(), lr=0.1)}

    def step(x):
        box["opt"].zero_grad()
        model(x).square().mean().backward()
        box["opt"].step()

    step = wrap(step)
    for n in range(5):
        if n == 2:
            box["opt"] = lib.optim.Adam(model.parameters(), lr=0.1)
        step(batch(lib, n))
        yield weights(model)


@case
def a_parameter_without_a_gradient_at_first(lib: Any, wrap: Any) -> Seen:
    a, b = layer(lib), layer(lib)
    optimizer = lib.optim.Adam([*a.parameters(), *b.parameters()], lr=0.1)

    def step(x, use):
        optimizer.zero_grad()
        (a(x) + (b(x) if use else 0)).square().mean().backward()
        optimizer.step()

    step = wrap(step)
    for n in range(6):
        step(batch(lib, n), n in (2, 3, 5))
        yield weights(a), weights(b), [len(s) for s in state_of(optimizer)]


@case
def zero_grad_last_and_to_zero(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        return loss.detach()

    step = wrap(step)
    for n in range(4):
        yield step(batch(lib, n)), weights(model)


@case
def clipping_by_value_and_norm(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x, by_value):
        optimizer.zero_grad()
        model(x).square().sum().backward()
        if by_value:
            lib.nn.utils.clip_grad_value_(model.parameters(), 0.1)
        else:
            norm = lib.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return None if by_value else norm

    step = wrap(step)
    for n in range(5):
        yield step(batch(lib, n), n % 2 == 0), weights(model)


@case
def other_optimizers(lib: Any, wrap: Any) -> Seen:
    names = ("RMSprop", "Adagrad", "NAdam", "Adamax", "RAdam", "ASGD", "Rprop", "Adadelta")
    for name in names:
        model = layer(lib)
        optimizer = getattr(lib.optim, name)(model.parameters(), lr=0.05)
        step = wrap(training(lib, model, optimizer))
        for n in range(3):
            optimizer.param_groups[0]["lr"] = 0.05 / (n + 1)
            step(batch(lib, n))
        yield name, weights(model)


@case
def an_optimizer_written_by_the_user(lib: Any, wrap: Any) -> Seen:
    class Signs(lib.optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})

        @lib.no_grad()
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    state = self.state[p]
                    state["n"] = state.get("n", 0) + 1
                    p.sub_(p.grad.sign(), alpha=group["lr"] / state["n"])

    model = layer(lib)
    optimizer = Signs(model.parameters(), 0.1)
    step = wrap(training(lib, model, optimizer))
    for n in range(4):
        yield step(batch(lib, n)), weights(model), state_of(optimizer)
