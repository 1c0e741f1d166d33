"""``tensor.data = value`` in the step: what shares memory with what afterwards."""

from __future__ import annotations

from typing import Any

from .registry import Seen, batch, case, layer, leaf, mlp, ramp, weights


def stepped(lib: Any, wrap: Any, step: Any, *seen: Any, calls: int = 5) -> Seen:
    """Calls of a step, and what they leave behind."""
    step = wrap(step)
    for n in range(calls):
        yield step(ramp(lib, 3, start=0.5 * n)), list(seen)


@case
def the_former_elements_are_read(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)

    def step(x):
        old = w.data
        w.data = w.data * 0.5 + x
        return old * 1, (w * 2).detach()

    yield from stepped(lib, wrap, step, w)


@case
def the_value_is_written_through_the_tensor(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)

    def step(x):
        value = x * 2
        w.data = value
        with lib.no_grad():
            w.add_(1)
        return value * 1

    yield from stepped(lib, wrap, step, w)


@case
def the_value_is_returned(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)
    step = wrap(lambda x: setattr(w, "data", x.cos()) or w.data)
    for n in range(5):
        found = step(ramp(lib, 3, start=0.5 * n))
        w.detach().add_(1)
        yield found, w


@case
def the_tensor_is_written_through_the_value(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)

    def step(x):
        value = x * 2
        w.data = value
        value[:2].mul_(3)
        return (w * x).sum().detach()

    yield from stepped(lib, wrap, step, w)


@case(torch=False)  # where the saved tensor is the parameter, whatever its memory
def a_graph_has_saved_the_former_elements(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)

    def step(x):
        loss = (w * w * x).sum()
        w.data = w.data * 0.5
        loss.backward()
        grad, w.grad = w.grad, None
        return grad

    yield from stepped(lib, wrap, step, w)


@case
def set_back_and_updated(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)

    def step(x):
        old = w.data
        w.data = old + x
        found = (w * 2).sum().detach()
        w.data = old
        with lib.no_grad():
            w.mul_(0.9)
        return found, old * 1

    yield from stepped(lib, wrap, step, w)


@case
def a_view_of_the_former_elements_is_written(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)

    def step(x):
        old = w.data
        part = old[:2]
        w.data = x * 3
        part.add_(1)
        found = old * 1
        w.data = w.data + 1
        return found, part * 2

    yield from stepped(lib, wrap, step, w)


@case
def a_tensor_from_before_is_visited(lib: Any, wrap: Any) -> Seen:
    w, other = leaf(lib, 1.0, 2.0, 3.0), lib.tensor([9.0, 8.0, 7.0])

    def step(x):
        old = w.data
        w.data = other
        with lib.no_grad():
            w.add_(x)
        found = (w * x).sum().detach()
        w.data = old
        return found

    yield from stepped(lib, wrap, step, w, other)


@case
def the_former_elements_are_returned(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)

    def step(x):
        old = w.data
        w.data = old * x
        return old

    yield from stepped(lib, wrap, step, w)


@case(torch=False)  # where the saved tensor is the parameter, whatever its memory
def twice_in_one_step(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)

    def step(x):
        w.data = w.data + x
        loss = (w * w).sum()
        w.data = w.data * 2
        loss.backward()
        grad, w.grad = w.grad.clone(), None
        return grad, (w * 1).detach()

    yield from stepped(lib, wrap, step, w)


@case
def after_an_update_in_place(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    masks = [(p > 0).float() for p in model.parameters()]

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        for p, mask in zip(model.parameters(), masks, strict=True):
            p.data = p.data * mask
        return loss.detach()

    step = wrap(step)
    for n in range(6):
        yield step(batch(lib, n)), weights(model)
        if n == 3:
            masks[0] = 1 - masks[0]


@case
def sharpness_aware_minimization(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    base = lib.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    state: dict[str, Any] = {}

    def step(x):
        loss = model(x).square().mean()
        loss.backward()
        norm = lib.stack([p.grad.norm() for p in model.parameters()]).norm()
        for name, p in model.named_parameters():
            state[name] = p.data
            p.data = p.data + 0.05 * p.grad / (norm + 1e-12)
        base.zero_grad()
        model(x).square().mean().backward()
        for name, p in model.named_parameters():
            p.data = state[name]
        state.clear()
        base.step()
        base.zero_grad()
        return loss.detach()

    step = wrap(step)
    for n in range(6):
        yield step(batch(lib, n)), weights(model)


@case
def a_codebook_of_moving_averages(lib: Any, wrap: Any) -> Seen:
    book = lib.nn.Embedding(4, 3)
    counts, sums = lib.ones(4), lib.zeros(4, 3)
    with lib.no_grad():
        book.weight.copy_(ramp(lib, 4, 3))
    state = {"counts": counts, "sums": sums}

    def step(x):
        found = (x[:, None] - book.weight.detach()).square().sum(-1).argmin(1)
        chosen = lib.nn.functional.one_hot(found, 4).float()
        state["counts"].data = state["counts"].data * 0.9 + chosen.sum(0) * 0.1
        state["sums"].data = state["sums"].data * 0.9 + 0.1 * chosen.t() @ x
        book.weight.data = state["sums"] / (state["counts"][:, None] + 1e-5)
        return found, book.weight[found].detach()

    step = wrap(step)
    for n in range(5):
        yield step(batch(lib, n)), weights(book), counts, sums


@case
def clipped_weights(lib: Any, wrap: Any) -> Seen:
    critic = layer(lib)
    optimizer = lib.optim.RMSprop(critic.parameters(), lr=0.01)

    def step(x):
        optimizer.zero_grad()
        loss = critic(x).mean()
        loss.backward()
        optimizer.step()
        for p in critic.parameters():
            p.data = p.data.clamp(-0.3, 0.3)
        return loss.detach()

    step = wrap(step)
    for n in range(6):
        yield step(batch(lib, n)), weights(critic)
        if n == 2:
            critic.bias.data = lib.tensor([0.25, -0.25])


@case
def a_handle_of_the_call(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)

    def step(x):
        handle = w.detach()
        first = handle * 1
        handle.data = x * 2
        second = handle * 1
        handle.data = w.data
        handle.mul_(0.5)
        return first, second, handle * 1

    yield from stepped(lib, wrap, step, w)


@case
def a_target_network(lib: Any, wrap: Any) -> Seen:
    online, target = layer(lib), layer(lib)
    optimizer = lib.optim.SGD(online.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = (online(x) - target(x).detach() - 1).square().mean()
        loss.backward()
        optimizer.step()
        for a, b in zip(online.parameters(), target.parameters(), strict=True):
            b.data = b.data * 0.9 + a.data * 0.1
        return loss.detach()

    step = wrap(step)
    for n in range(6):
        yield step(batch(lib, n)), weights(online), weights(target)
        if n == 3:
            target.load_state_dict(online.state_dict())


@case
def parts_of_a_flat_vector(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)

    def step(x):
        flat = lib.nn.utils.parameters_to_vector(model.parameters())
        lib.nn.utils.vector_to_parameters(flat.detach() * 0.9, model.parameters())
        with lib.no_grad():
            model.bias.add_(1)
        return model(x).detach(), flat.detach()

    step = wrap(step)
    for n in range(5):
        yield step(batch(lib, n)), weights(model)


@case
def transposed(lib: Any, wrap: Any) -> Seen:
    w = lib.nn.Parameter(ramp(lib, 3, 3))

    def step(x):
        w.data = w.data.t() * 0.5
        found = w.data
        w.data = w.data.t()
        return (w @ x).detach(), found * 1

    yield from stepped(lib, wrap, step, w)


@case
def a_parameter_made_of_the_former_memory(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)

    def step(x):
        kept = lib.nn.Parameter(w.data, requires_grad=False)
        w.data = w.data * x
        kept.add_(1)
        return kept * 2, (w * 2).detach()

    yield from stepped(lib, wrap, step, w)


@case
def only_in_some_steps(lib: Any, wrap: Any) -> Seen:
    w, counter = leaf(lib, 1.0, 2.0, 3.0), {"n": 0}

    def step(x):
        counter["n"] += 1
        if counter["n"] % 2 == 0:
            w.data = w.data + x
        return (w * x).sum().detach()

    yield from stepped(lib, wrap, step, w, calls=8)
