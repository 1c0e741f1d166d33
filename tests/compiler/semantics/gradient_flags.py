"""Steps that set, clear or read ``requires_grad``, and detach in place."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from .registry import Seen, attempt, batch, case, layer, leaf, mlp, ramp, weights


def cleared(lib: Any, *values: float) -> Any:
    """A tensor that has required a gradient before."""
    return leaf(lib, *values).requires_grad_(False)


@case
def set_on_an_argument(lib: Any, wrap: Any) -> Seen:
    def step(x):
        x.requires_grad_()
        return (x * x).sum().detach()

    step = wrap(step)
    for n in range(6):
        x = ramp(lib, 3, start=float(n)) if n % 2 else cleared(lib, 1.0, float(n))
        yield step(x), x.requires_grad, x.is_leaf


@case
def cleared_on_an_argument(lib: Any, wrap: Any) -> Seen:
    def step(x):
        x.requires_grad = False
        return (x * x).sum()

    step = wrap(step)
    for n in range(5):
        x = leaf(lib, 1.0, float(n))
        out = step(x)
        yield out, x.requires_grad


@case
def set_and_differentiated_outside(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)

    def step(x):
        return (x.requires_grad_(True) * w).square().sum()

    step = wrap(step)
    for n in range(5):
        x = ramp(lib, 3, start=float(n))
        step(x).backward()
        yield x.grad, w.grad, x.requires_grad


@case
def an_attack_on_the_input(lib: Any, wrap: Any) -> Seen:
    """FGSM: the sign of the gradient by the input."""
    model, epsilon = layer(lib), 0.1

    def step(x, y):
        x.requires_grad = True
        loss = lib.nn.functional.cross_entropy(model(x), y)
        model.zero_grad()
        loss.backward()
        return lib.clamp(x + epsilon * x.grad.data.sign(), 0, 1).detach()

    step = wrap(step)
    for n in range(5):
        if n == 3:
            epsilon = 0.5
        x = batch(lib, n)
        yield step(x, (lib.arange(4) + n) % 2), x.grad, x.requires_grad, weights(model)


@case
def toggled_on_a_captured_tensor(lib: Any, wrap: Any) -> Seen:
    w = ramp(lib, 3)

    def step(x):
        w.requires_grad_(not w.requires_grad)
        return (x * w).sum().detach()

    step = wrap(step)
    for n in range(7):
        yield step(ramp(lib, 3)), w.requires_grad
        if n == 4:
            w.requires_grad_(False)


@case
def set_on_a_captured_tensor_that_others_clear(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0)

    def step(x):
        w.requires_grad = True
        (w * x).sum().backward()

    step = wrap(step)
    for n in range(6):
        step(ramp(lib, 2))
        yield w.grad, w.requires_grad
        if n % 2:
            w.requires_grad = False


@case
def cleared_for_a_part_of_the_step(lib: Any, wrap: Any) -> Seen:
    """The critic is frozen while the generator is trained."""
    gen, critic = layer(lib, 3, 3), layer(lib, 3, 1)
    optimizer = lib.optim.SGD(gen.parameters(), lr=0.1)

    def set_requires_grad(nets, value):
        for net in nets:
            for p in net.parameters():
                p.requires_grad = value

    def step(x):
        set_requires_grad([critic], False)
        optimizer.zero_grad()
        (-critic(gen(x)).mean()).backward()
        optimizer.step()
        set_requires_grad([critic], True)
        critic.zero_grad()
        (critic(x).mean() - critic(gen(x).detach()).mean()).backward()

    step = wrap(step)
    for n in range(5):
        step(batch(lib, n))
        yield weights(gen), weights(critic), [p.requires_grad for p in critic.parameters()]


@case
def layers_unfrozen_by_the_count(lib: Any, wrap: Any) -> Seen:
    model, s = mlp(lib), SimpleNamespace(n=0)
    for p in model.parameters():
        p.requires_grad = False
    layers = [model[2], model[0]]

    def step(x):
        if s.n % 2 == 0 and s.n // 2 < len(layers):
            for p in layers[s.n // 2].parameters():
                p.requires_grad_(True)
        s.n += 1
        model.zero_grad()
        model(x).square().mean().backward()
        return [p.requires_grad for p in model.parameters()]

    step = wrap(step)
    for n in range(7):
        yield step(batch(lib, n)), weights(model)


@case
def set_on_a_member_of_a_container(lib: Any, wrap: Any) -> Seen:
    def step(given):
        x = given["x"][0].requires_grad_()
        (x * given["k"]).sum().backward()
        return x.grad * 2

    step = wrap(step)
    for n in range(5):
        x = ramp(lib, 3, start=float(n))
        yield step({"x": (x,), "k": 0.5 * n}), x.grad, x.requires_grad


@case
def detached_in_place(lib: Any, wrap: Any) -> Seen:
    def step(y):
        y.detach_()
        return (y * 2).sum()

    step = wrap(step)
    for n in range(5):
        w = leaf(lib, 1.0, float(n))
        y = w * 3
        out = step(y)
        yield out, y.requires_grad, y.is_leaf


@case
def set_on_one_tensor_under_two_names(lib: Any, wrap: Any) -> Seen:
    def step(x, y):
        x.requires_grad_(True)
        return y.requires_grad, (x * y).sum().detach()

    step = wrap(step)
    for n in range(5):
        x = ramp(lib, 3, start=float(n))
        yield step(x, x if n % 2 else ramp(lib, 3)), x.requires_grad


@case
def set_before_an_error(lib: Any, wrap: Any) -> Seen:
    def step(x, k):
        x.requires_grad_()
        if k > 2:
            raise ValueError("k")
        return (x * k).sum().detach()

    step = wrap(step)
    for k in (0, 1, 3, 2, 4):
        x = ramp(lib, 3)
        yield attempt(step, x, k), x.requires_grad


@case
def set_on_an_argument_that_is_returned(lib: Any, wrap: Any) -> Seen:
    def step(x):
        return x.requires_grad_(), x.detach(), x.view(-1)

    step = wrap(step)
    for n in range(4):
        x = ramp(lib, 2, 2, start=float(n))
        a, b, c = step(x)
        yield a is x, a, b, c, c.is_leaf


@case
def set_on_an_argument_and_decided(lib: Any, wrap: Any) -> Seen:
    def step(x):
        x.requires_grad_()
        loss = x.square().sum()
        if loss > 3:
            loss = loss * 0.5
        loss.backward()
        return loss.item()

    step = wrap(step)
    for n in (0.0, 1.0, 2.0, 0.5, 3.0):
        x = ramp(lib, 3, start=n)
        yield step(x), x.grad, x.requires_grad


@case
def read_of_a_tensor_that_is_not_used(lib: Any, wrap: Any) -> Seen:
    w, p = ramp(lib, 2), leaf(lib, 1.0, 2.0)
    kept = ramp(lib, 2)
    step = wrap(lambda x: (x * 2 if w.requires_grad else x * 3, kept.is_leaf))
    for n in range(7):
        w.requires_grad_(n % 3 == 1)
        if n == 4:
            kept.mul_(p)
        yield step(ramp(lib, 3))


@case
def set_to_what_it_is(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0)

    def step(x, k):
        w.requires_grad_(k != 2)
        return x * 2

    step = wrap(step)
    for k in (0, 1, 2, 3, 4, 2, 2, 0):
        yield step(ramp(lib, 3), k), w.requires_grad


@case
def read_of_parameters_that_are_frozen(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)

    def step(x):
        chosen = [p for p in model.parameters() if p.requires_grad]
        return x * len(chosen)

    step = wrap(step)
    for n in range(6):
        model[0].weight.requires_grad = n % 2 == 0
        model[2].requires_grad_(n < 4)
        yield step(ramp(lib, 3))


@case
def a_history_given_to_the_base_of_a_view(lib: Any, wrap: Any) -> Seen:
    base, p = ramp(lib, 2, 2).clone(), leaf(lib, 1.0, 2.0)
    row = base[0]
    step = wrap(lambda x: (row * x).sum())
    for n in range(6):
        if n in (2, 4):
            base.mul_(p)
        loss = step(ramp(lib, 2))
        yield loss, loss.requires_grad, row.requires_grad
        if loss.requires_grad:
            loss.backward(retain_graph=True)
            yield p.grad
