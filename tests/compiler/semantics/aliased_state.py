"""Arguments, parameters, gradients, buffers and states of optimizers on one memory; the aliasing
changes between calls."""

from __future__ import annotations

import copy
import threading
from typing import Any

import numpy as np

from .registry import Seen, attempt, batch, case, layer, leaf, mlp, ramp, weights


def trainer(lib: Any, **options: Any) -> tuple[Any, Any]:
    model = mlp(lib)
    return model, lib.optim.SGD(model.parameters(), lr=0.1, **options)


def trained(model: Any, optimizer: Any, x: Any) -> Any:
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


# -- gradients ----------------------------------------------------------------------------------


@case
def the_gradient_is_an_argument(lib: Any, wrap: Any) -> Seen:
    model, optimizer = trainer(lib)

    def step(x, held):
        loss = model(x).sum()
        loss.backward()
        held.mul_(0.5)
        optimizer.step()
        return held.sum()

    step = wrap(step)
    other = lib.ones(4, 3)
    for n in range(7):
        held = model[0].weight.grad if n in (2, 3, 5) else other
        yield step(batch(lib, n), held)
        yield weights(model), other


@case
def a_tensor_and_its_gradient(lib: Any, wrap: Any) -> Seen:
    def step(x, g):
        g.add_(1)
        with lib.no_grad():
            x.sub_(0.1 * x.grad)
        return x.grad.sum(), g * 2

    step = wrap(step)
    for n in range(6):
        x = leaf(lib, 1.0, 2.0, float(n))
        x.grad = ramp(lib, 3)
        other = ramp(lib, 3, start=1.0)
        yield step(x, x.grad if n % 2 else other), x, x.grad, other


@case
def gradients_are_views_of_one_bucket(lib: Any, wrap: Any) -> Seen:
    model, optimizer = trainer(lib)
    flat = lib.zeros(sum(p.numel() for p in model.parameters()))
    at = 0
    for p in model.parameters():
        p.grad = flat[at : at + p.numel()].view(p.shape)
        at += p.numel()

    def step(x):
        flat.zero_()
        model(x).square().sum().backward()
        flat.div_(1.0 + flat.norm())
        optimizer.step()
        return flat.abs().max()

    step = wrap(step)
    for n in range(6):
        if n == 4:
            model[0].bias.grad = lib.zeros(4)
        yield step(batch(lib, n))
        yield weights(model), flat


@case
def the_bucket_is_an_argument(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0)
    flat, other = lib.zeros(4), lib.zeros(4)

    def step(x, bucket):
        (w * x).sum().backward()
        bucket.mul_(2)
        return bucket.sum(), w.grad * 1

    step = wrap(step)
    for n in range(7):
        w.grad = (flat if n != 5 else other)[1:3]
        yield step(ramp(lib, 2, start=float(n)), flat), flat, other, w.grad


@case
def two_parameters_with_one_gradient(lib: Any, wrap: Any) -> Seen:
    a, b = leaf(lib, 1.0, 2.0), leaf(lib, 3.0, 4.0)
    optimizer = lib.optim.SGD([a, b], lr=0.1)

    def step(x):
        (a * x).sum().backward()
        optimizer.step()
        return a.grad.sum() + b.grad.sum()

    step = wrap(step)
    for n in range(7):
        a.grad = lib.ones(2)
        b.grad = a.grad if n in (1, 2, 4) else lib.ones(2)
        yield step(ramp(lib, 2, start=float(n))), a, b, a.grad, b.grad


@case
def the_gradient_is_the_parameter_itself(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, -2.0, 3.0)

    def step(rate):
        with lib.no_grad():
            w.sub_(w.grad * rate)
            return w.grad.abs().sum()

    step = wrap(step)
    for n in range(6):
        w.grad = w.detach() if n % 3 == 1 else lib.ones(3)
        yield step(0.25), w, w.grad


@case
def a_gradient_that_is_a_data_tensor(lib: Any, wrap: Any) -> Seen:
    w, target = leaf(lib, 1.0, 2.0), lib.ones(2)
    optimizer = lib.optim.SGD([w], lr=0.5)

    def step(x):
        (w * x).sum().backward()
        optimizer.step()
        return target.sum()

    step = wrap(step)
    for n in range(6):
        w.grad = target if n in (2, 4) else None
        yield step(ramp(lib, 2, start=float(n))), target, w, w.grad


@case
def gradients_swapped_between_parameters(lib: Any, wrap: Any) -> Seen:
    a, b = leaf(lib, 1.0, 2.0), leaf(lib, 3.0, 4.0)

    def step(x):
        (a * x + b * b).sum().backward()
        return a.grad - b.grad

    step = wrap(step)
    for n in range(6):
        yield step(ramp(lib, 2, start=float(n))), a.grad, b.grad
        if n % 2:
            a.grad, b.grad = b.grad, a.grad


@case
def a_kept_gradient_is_seen_to_change(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0)

    def step(x):
        (w * x).sum().backward()
        return w.grad.sum()

    step = wrap(step)
    kept = None
    for n in range(7):
        yield step(ramp(lib, 2, start=float(n))), kept, w.grad is kept
        if n in (1, 4):
            kept = w.grad
        if n == 3:
            w.grad = None


@case
def out_into_a_gradient(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0)

    def step(x, out):
        lib.mul(x, 3.0, out=out)
        return w.grad * 2

    step = wrap(step)
    for n in range(6):
        w.grad = lib.zeros(2)
        out = w.grad if n in (1, 3, 4) else lib.zeros(2)
        yield step(ramp(lib, 2, start=float(n)), out), w.grad, out


@case
def a_hook_writes_to_a_shared_gradient(lib: Any, wrap: Any) -> Seen:
    w, seen = leaf(lib, 1.0, 2.0), lib.zeros(2)
    w.register_hook(lambda grad: seen.add_(grad) and None)

    def step(x):
        (w * x).sum().backward()
        return seen * 1

    step = wrap(step)
    for n in range(6):
        if n in (2, 4):
            w.grad = seen
        elif n == 3:
            w.grad = None
        yield attempt(step, ramp(lib, 2, start=float(n))), seen, w.grad


# -- parameters ---------------------------------------------------------------------------------


@case
def weights_tied_and_untied(lib: Any, wrap: Any) -> Seen:
    a, b = layer(lib, 3, 3), layer(lib, 3, 3)

    def step(x):
        loss = b(a(x).tanh()).square().sum()
        loss.backward()
        with lib.no_grad():
            for p in {id(p): p for p in (*a.parameters(), *b.parameters())}.values():
                p.sub_(p.grad, alpha=0.01)
                p.grad = None
        return loss.detach()

    step = wrap(step)
    own = b.weight
    for n in range(8):
        b.weight = a.weight if n in (2, 3, 6) else own
        yield step(batch(lib, n)), a.weight, b.weight


@case
def memory_of_parameters_tied_by_data(lib: Any, wrap: Any) -> Seen:
    a, b = layer(lib, 3, 3), layer(lib, 3, 3)
    optimizer = lib.optim.SGD([*a.parameters(), *b.parameters()], lr=0.05)

    def step(x):
        optimizer.zero_grad()
        loss = b(a(x)).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = wrap(step)
    for n in range(8):
        if n == 3:
            b.weight.data = a.weight.data
        elif n == 6:
            b.weight.data = a.weight.data.clone()
        yield step(batch(lib, n)), a.weight, b.weight


@case
def parameters_exchange_their_memory(lib: Any, wrap: Any) -> Seen:
    a, b = leaf(lib, 1.0, 2.0), leaf(lib, 3.0, 5.0)
    optimizer = lib.optim.SGD([a, b], lr=0.1)

    def step(x):
        optimizer.zero_grad()
        (a * x - b).square().sum().backward()
        optimizer.step()
        return a - b

    step = wrap(step)
    for n in range(6):
        yield step(ramp(lib, 2, start=float(n))), a, b
        if n % 2:
            a.data, b.data = b.data, a.data


@case
def parameters_are_views_of_a_flat_tensor(lib: Any, wrap: Any) -> Seen:
    model, optimizer = trainer(lib)
    flat = lib.cat([p.detach().reshape(-1) for p in model.parameters()])
    at = 0
    for p in model.parameters():
        p.data = flat[at : at + p.numel()].view(p.shape)
        at += p.numel()

    def step(x):
        loss = trained(model, optimizer, x)
        return loss, flat.norm()

    step = wrap(step)
    for n in range(7):
        yield step(batch(lib, n)), flat, weights(model)
        if n == 2:
            flat.mul_(0.9)
        elif n == 4:
            model[0].bias.data = lib.zeros(4)


@case
def the_flat_tensor_is_an_argument(lib: Any, wrap: Any) -> Seen:
    flat, apart = ramp(lib, 6).clone(), ramp(lib, 6).clone()
    w = lib.nn.Parameter(flat[:3])

    def step(x, held):
        loss = (w * x).square().sum()
        loss.backward()
        with lib.no_grad():
            held.mul_(0.5)
            w.sub_(w.grad)
        w.grad = None
        return loss.detach(), held.sum()

    step = wrap(step)
    for n in range(7):
        yield step(ramp(lib, 3, start=float(n)), flat if n in (1, 2, 4) else apart), flat, apart, w


@case
def an_average_that_is_the_model_at_first(lib: Any, wrap: Any) -> Seen:
    model, optimizer = trainer(lib)
    average = {name: p.detach() for name, p in model.named_parameters()}

    def step(x):
        loss = trained(model, optimizer, x)
        with lib.no_grad():
            for name, p in model.named_parameters():
                average[name].lerp_(p, 0.1)
        return loss

    step = wrap(step)
    for n in range(6):
        if n == 3:
            for name in average:
                average[name] = average[name].clone()
        yield step(batch(lib, n)), weights(model), average


@case
def a_copy_of_the_model_and_the_model(lib: Any, wrap: Any) -> Seen:
    model, optimizer = trainer(lib)
    other = copy.deepcopy(model)

    def step(x, teacher):
        with lib.no_grad():
            for p, q in zip(model.parameters(), teacher.parameters(), strict=True):
                q.copy_(0.5 * p + 0.5 * q)
        loss = trained(model, optimizer, x)
        return loss, teacher(x).sum()

    step = wrap(step)
    for n in range(6):
        yield step(batch(lib, n), model if n in (2, 4) else other), weights(model), weights(other)


@case
def two_norms_with_one_running_mean(lib: Any, wrap: Any) -> Seen:
    a, b = lib.nn.BatchNorm1d(3), lib.nn.BatchNorm1d(3)
    own = b.running_mean

    def step(x):
        return b(a(x)).sum(), a.running_mean * 1

    step = wrap(step)
    for n in range(7):
        b.running_mean = a.running_mean if n in (2, 3, 5) else own
        yield step(batch(lib, n)), a.running_mean, b.running_mean, own


@case
def the_running_mean_is_an_argument(lib: Any, wrap: Any) -> Seen:
    norm = lib.nn.BatchNorm1d(3)

    def step(x, held):
        y = norm(x)
        return y.sum(), held * 2

    step = wrap(step)
    for n in range(6):
        held = norm.running_mean if n % 2 else lib.ones(3)
        yield step(batch(lib, n), held), norm.running_mean


@case
def the_weight_is_the_input(lib: Any, wrap: Any) -> Seen:
    model = layer(lib, 3, 3)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        return trained(model, optimizer, x)

    step = wrap(step)
    for n in range(7):
        w = model.weight
        x = [batch(lib, n, 3), w.detach(), w.detach().t(), w.detach().clone(), w][n % 5]
        yield attempt(step, x), weights(model)


@case
def rows_of_the_weight_are_the_input(lib: Any, wrap: Any) -> Seen:
    table = lib.nn.Embedding(5, 3)
    with lib.no_grad():
        table.weight.copy_(ramp(lib, 5, 3))

    def step(rows, numbers):
        loss = (table(numbers) * rows).sum()
        loss.backward()
        with lib.no_grad():
            table.weight.sub_(table.weight.grad)
        table.weight.grad = None
        return loss.detach(), rows + 0

    step = wrap(step)
    for n in range(6):
        rows = table.weight.detach()[n % 3 : n % 3 + 2] if n % 2 else lib.ones(2, 3)
        yield step(rows, lib.tensor([n % 5, 1])), table.weight


@case
def memory_of_a_parameter_set_anew(lib: Any, wrap: Any) -> Seen:
    w, held = leaf(lib, 1.0, 2.0), lib.tensor([5.0, 6.0])

    def step(x):
        with lib.no_grad():
            w.add_(x)
        return w * 2, held * 1

    step = wrap(step)
    for n in range(7):
        if n in (2, 5):
            w.data = held
        elif n == 3:
            w.data = lib.ones(2)
        yield step(lib.ones(2)), w, held


@case
def a_parameter_set_to_memory_of_an_argument(lib: Any, wrap: Any) -> Seen:
    w = lib.nn.Parameter(lib.ones(3))

    def step(x):
        with lib.no_grad():
            w.mul_(2)
        return x + 1

    step = wrap(step)
    for n in range(6):
        x = ramp(lib, 3, start=float(n)).clone()
        if n in (1, 2, 4):
            w.data = x
        yield step(x), x, w


# -- optimizers ---------------------------------------------------------------------------------


@case
def the_momentum_is_an_argument(lib: Any, wrap: Any) -> Seen:
    model, optimizer = trainer(lib, momentum=0.9)

    def step(x, held):
        loss = trained(model, optimizer, x)
        held.mul_(0.5)
        return loss, held.sum()

    step = wrap(step)
    other = lib.ones(4)
    for n in range(7):
        state = optimizer.state.get(model[0].bias, {})
        held = state.get("momentum_buffer", other) if n in (2, 3, 5) else other
        yield step(batch(lib, n), held), weights(model), other
        yield optimizer.state[model[0].bias]["momentum_buffer"]


@case
def two_parameters_with_one_momentum(lib: Any, wrap: Any) -> Seen:
    a, b = leaf(lib, 1.0, 2.0), leaf(lib, 3.0, 4.0)
    optimizer = lib.optim.SGD([a, b], lr=0.1, momentum=0.9)

    def step(x):
        optimizer.zero_grad()
        ((a + b) * x).sum().backward()
        optimizer.step()
        return a + b

    step = wrap(step)
    for n in range(8):
        if n in (3, 6):
            held = optimizer.state[a]["momentum_buffer"]
            optimizer.state[b]["momentum_buffer"] = held if n == 3 else held.clone()
        yield step(ramp(lib, 2, start=float(n)))
        yield a, b, [optimizer.state[p]["momentum_buffer"] for p in (a, b)]


@case
def moments_of_adam_are_the_gradient(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0)
    optimizer = lib.optim.Adam([w], lr=0.1)

    def step(x):
        (w * x).sum().backward()
        optimizer.step()
        return w.grad * 1

    step = wrap(step)
    for n in range(7):
        if n in (2, 4):
            w.grad = optimizer.state[w]["exp_avg"]
        elif n in (3, 6):
            w.grad = None
        yield step(ramp(lib, 2, start=float(n))), w, optimizer.state[w]["exp_avg"]


@case
def the_momentum_is_a_row_of_a_table(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)
    optimizer = lib.optim.SGD([w], lr=0.1, momentum=0.5)
    table = lib.zeros(2, 3)

    def step(x):
        optimizer.zero_grad()
        (w * x).sum().backward()
        optimizer.step()
        return table.sum()

    step = wrap(step)
    for n in range(7):
        if n in (2, 5):
            optimizer.state[w]["momentum_buffer"] = table[n % 2]
        yield step(ramp(lib, 3, start=float(n))), table, w


@case
def a_state_loaded_into_shared_memory(lib: Any, wrap: Any) -> Seen:
    model, optimizer = trainer(lib, momentum=0.9)
    step = wrap(lambda x: trained(model, optimizer, x))
    saved = None
    for n in range(7):
        yield step(batch(lib, n)), weights(model)
        if n == 2:
            saved = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(model.state_dict())
        elif n == 4:
            optimizer.load_state_dict(saved[0])
            model.load_state_dict(saved[1], assign=True)
            optimizer.param_groups[0]["params"] = list(model.parameters())
            yield saved[1]


@case
def two_optimizers_of_one_parameter(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    one = lib.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    two = lib.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)

    def step(x, optimizer):
        return trained(model, optimizer, x)

    step = wrap(step)
    for n in range(8):
        yield step(batch(lib, n), one if n % 2 else two), weights(model)
        if n == 4:
            one.state, two.state = two.state, one.state


# -- results and Python state -------------------------------------------------------------------


@case
def results_are_arguments_of_the_next_call(lib: Any, wrap: Any) -> Seen:
    def step(a, b):
        a.add_(1)
        return b * 2, a.view(3, 1), b

    step = wrap(step)
    a, b = ramp(lib, 3).clone(), ramp(lib, 3, start=1.0).clone()
    for n in range(8):
        doubled, column, same = step(a, b)
        yield doubled, column, same is b, a, b
        a, b = [(same, doubled), (column.view(3), a), (a, a[:]), (doubled, b)][n % 4]


@case
def an_argument_stored_and_given_again(lib: Any, wrap: Any) -> Seen:
    class Cell:
        last = None

    cell = Cell()
    cell.last = lib.zeros(3)

    def step(x):
        y = x + cell.last
        cell.last = x
        return y

    step = wrap(step)
    x = ramp(lib, 3).clone()
    for n in range(7):
        x = x if n in (2, 3, 5) else ramp(lib, 3, start=float(n)).clone()
        yield step(x), cell.last is x
        x.add_(1)
        yield cell.last


@case
def a_stored_view_of_an_argument(lib: Any, wrap: Any) -> Seen:
    class Cell:
        pass

    cell = Cell()
    cell.last = lib.zeros(2)

    def step(x):
        y = x.sum() + cell.last.sum()
        cell.last = x[1:]
        return y

    step = wrap(step)
    x = ramp(lib, 3).clone()
    for n in range(7):
        yield step(x if n % 3 else ramp(lib, 3, start=float(n)).clone())
        x.mul_(2)
        cell.last.add_(1)
        yield cell.last, x


@case
def the_state_is_the_argument(lib: Any, wrap: Any) -> Seen:
    class Cell:
        pass

    cell = Cell()
    cell.h = lib.zeros(3)

    def step(x):
        cell.h = cell.h * 0.5 + x
        x.zero_()
        return cell.h.sum()

    step = wrap(step)
    for n in range(7):
        x = cell.h if n in (2, 3, 5) else ramp(lib, 3, start=float(n)).clone()
        yield step(x), x, cell.h


@case
def the_state_is_a_view_of_the_argument(lib: Any, wrap: Any) -> Seen:
    class Cell:
        pass

    cell, base = Cell(), ramp(lib, 6).clone()
    cell.h = base[:3]

    def step(x):
        x.add_(1)
        cell.h = cell.h + x[:3]
        return cell.h * 1

    step = wrap(step)
    for n in range(7):
        if n in (3, 5):
            cell.h = base[n - 3 : n]
        yield step(base), base, cell.h


@case
def a_list_of_views_of_one_tensor(lib: Any, wrap: Any) -> Seen:
    base = ramp(lib, 8).clone()
    parts = [base[:4], base[2:6], base[4:]]

    def step(x):
        for part in parts:
            part.add_(x[: part.shape[0]])
        return parts[1].sum()

    step = wrap(step)
    for n in range(7):
        if n == 3:
            parts[1] = lib.zeros(4)
        elif n == 5:
            parts[1] = parts[0]
        yield step(lib.ones(4)), base, parts


@case
def a_dictionary_with_one_tensor_twice(lib: Any, wrap: Any) -> Seen:
    def step(batch):
        batch["x"].add_(1)
        return batch["y"] * 2

    step = wrap(step)
    for n in range(7):
        x, y = ramp(lib, 3, start=float(n)).clone(), ramp(lib, 3).clone()
        y = [y, x, x[:], x.view(3, 1).view(3), y[:], x.detach(), y][n]
        yield step({"x": x, "y": y}), x, y


@case
def a_list_with_overlapping_members(lib: Any, wrap: Any) -> Seen:
    def step(parts):
        for n, part in enumerate(parts):
            part.mul_(n + 1.0)
        return sum(part.sum() for part in parts)

    step = wrap(step)
    for n in range(7):
        base, other = ramp(lib, 6, start=float(n)).clone(), lib.ones(3)
        parts = [base[:3], other, base[3:]] if n % 2 else [base[:3], base[1:4], base[3:]]
        yield step(parts), base, other


@case
def a_captured_view_of_the_argument(lib: Any, wrap: Any) -> Seen:
    base, other = ramp(lib, 6).clone(), ramp(lib, 6).clone()
    part = base[1:4]

    def step(x):
        x.add_(1)
        return part * 2

    step = wrap(step)
    for n in range(7):
        yield step(base if n in (1, 2, 4) else other), base, other


@case
def a_captured_transpose_of_the_argument(lib: Any, wrap: Any) -> Seen:
    base, other = ramp(lib, 2, 3).clone(), ramp(lib, 2, 3).clone()
    turned = base.t()

    def step(x, y):
        turned.mul_(2)
        return x @ y

    step = wrap(step)
    for n in range(7):
        yield step(base if n in (1, 3, 4) else other, turned if n % 2 else other.t()), base, other


@case
def an_argument_over_the_rows_that_are_written(lib: Any, wrap: Any) -> Seen:
    memory = lib.zeros(4, 3)

    def step(row, n):
        memory[n] = row * 2
        return memory.sum(0), row * 1

    step = wrap(step)
    for n in range(8):
        row = memory[(n + 1) % 4] if n in (2, 4, 5) else ramp(lib, 3, start=float(n))
        yield step(row, n % 4), memory


@case
def an_alias_made_inside_and_written(lib: Any, wrap: Any) -> Seen:
    def step(x, y):
        a, b = x.detach(), x.data
        a.add_(1)
        b.mul_(y)
        return x.sum(), a * 1

    step = wrap(step)
    for n in range(6):
        x = ramp(lib, 3, start=float(n)).clone().requires_grad_(n % 3 == 1)
        yield step(x, x.detach() if n % 2 else ramp(lib, 3)), x


@case
def memory_read_as_another_type(lib: Any, wrap: Any) -> Seen:
    def step(x, bits):
        bits.bitwise_and_(0x7FFFFFFF)
        return x * 2

    step = wrap(step)
    for n in range(6):
        x, y = ramp(lib, 4, start=float(-n)).clone(), ramp(lib, 4, start=-1.0).clone()
        yield step(x, (x if n in (1, 2, 4) else y).view(lib.int32)), x, y


@case
def another_type_inside(lib: Any, wrap: Any) -> Seen:
    def step(x):
        x.view(lib.int32).bitwise_xor_(-0x80000000)
        return x.abs().sum(), x[1:]

    step = wrap(step)
    for n in range(5):
        base = ramp(lib, 8, start=float(n)).clone()
        yield step(base[:4] if n % 2 else base[4:]), base


@case
def bytes_of_an_argument(lib: Any, wrap: Any) -> Seen:
    def step(x, raw):
        raw[:4] = 0
        return x.sum()

    step = wrap(step)
    for n in range(6):
        x, y = ramp(lib, 3, start=float(n)).clone(), ramp(lib, 3).clone()
        yield step(x, (x if n % 2 else y).view(lib.uint8)), x, y


# -- memory given anew --------------------------------------------------------------------------


@case
def resized_between_calls(lib: Any, wrap: Any) -> Seen:
    x = lib.tensor([1.0, 2.0, 3.0, 4.0])

    def step(y):
        x.add_(y)
        return x.sum()

    step = wrap(step)
    for n in range(7):
        yield step(1.0), x
        if n in (1, 4):
            x.resize_(2)
        elif n == 3:
            x.resize_(4)
            x.fill_(1.0)


@case
def an_argument_resized_between_calls(lib: Any, wrap: Any) -> Seen:
    x = lib.tensor([1.0, 2.0, 3.0, 4.0])

    def step(a, b):
        a.mul_(2)
        return b.sum()

    step = wrap(step)
    for n in range(6):
        yield step(x, x), x
        x.resize_(2 if n % 2 else 4)
        x.fill_(float(n))


@case
def set_to_the_memory_of_another(lib: Any, wrap: Any) -> Seen:
    a, b = lib.tensor([1.0, 2.0]), lib.tensor([3.0, 4.0])

    def step(x, y):
        x.add_(1)
        return y * 2

    step = wrap(step)
    for n in range(7):
        if n == 2:
            a.set_(b)
        elif n == 5:
            a.set_(lib.ones(2))
        yield step(a, b), a, b


@case
def a_captured_tensor_set_to_an_argument(lib: Any, wrap: Any) -> Seen:
    held = lib.zeros(2)

    def step(x):
        held.add_(x)
        return x * 1, held * 1

    step = wrap(step)
    for n in range(7):
        x = ramp(lib, 2, start=float(n)).clone()
        if n in (2, 4):
            held.set_(x)
        elif n == 3:
            held.set_(lib.zeros(2))
        yield step(x), x, held


@case
def data_exchanged_inside(lib: Any, wrap: Any) -> Seen:
    a, b = layer(lib), layer(lib)
    with lib.no_grad():
        b.weight.mul_(-1)

    def step(x):
        a.weight.data, b.weight.data = b.weight.data, a.weight.data
        return a(x) - b(x)

    step = wrap(step)
    for n in range(5):
        yield attempt(step, batch(lib, n)), a.weight, b.weight


@case
def data_of_an_argument_exchanged_inside(lib: Any, wrap: Any) -> Seen:
    def step(x, y):
        x.data = y
        x.add_(1)
        return x.sum()

    step = wrap(step)
    for n in range(5):
        x, y = ramp(lib, 3, start=float(n)).clone(), lib.ones(3)
        yield attempt(step, x, x[:] if n == 3 else y), x, y
        x.mul_(3)
        yield x, y


@case
def transposed_in_place_between_calls(lib: Any, wrap: Any) -> Seen:
    x = ramp(lib, 3, 3).clone()

    def step(a, b):
        a[0] = 5.0
        return b.sum(0)

    step = wrap(step)
    for n in range(6):
        yield step(x, x.t() if n % 2 else x), x
        if n in (1, 3):
            x.t_()
        x.add_(ramp(lib, 3, 3))


# -- NumPy --------------------------------------------------------------------------------------


@case
def the_array_of_a_parameter(lib: Any, wrap: Any) -> Seen:
    model, optimizer = trainer(lib)
    step = wrap(lambda x: trained(model, optimizer, x))
    array = None
    for n in range(7):
        if n == 2:
            array = model[0].weight.detach().numpy()
        if array is not None:
            array[0] += 0.5
        yield step(batch(lib, n)), weights(model), array


@case
def a_batch_in_one_buffer(lib: Any, wrap: Any) -> Seen:
    buffer = np.zeros((4, 3), np.float32)
    x = lib.from_numpy(buffer)
    model, optimizer = trainer(lib)
    step = wrap(lambda x: (trained(model, optimizer, x), x[0]))
    for n in range(6):
        buffer[:] = batch(lib, n).numpy()
        loss, row = step(x)
        buffer[0] = -1.0
        yield loss, row, weights(model)


@case
def columns_of_an_array(lib: Any, wrap: Any) -> Seen:
    def step(a, b):
        a.add_(b)
        return a.sum(), b * 2

    step = wrap(step)
    for n in range(7):
        array = (np.arange(12, dtype=np.float32) + n).reshape(3, 4)
        a = lib.from_numpy(array[:, n % 3])
        b = lib.from_numpy(array[:, 1]) if n % 2 else lib.from_numpy(array[:, 3].copy())
        yield step(a, b), array


@case
def a_transposed_array(lib: Any, wrap: Any) -> Seen:
    def step(a, b):
        a.copy_(b @ b)
        return a.t()

    step = wrap(step)
    for n in range(6):
        array = (np.arange(9, dtype=np.float32) + n).reshape(3, 3)
        b = lib.from_numpy(array.T if n % 2 else array.T.copy())
        yield step(lib.from_numpy(array), b), array


@case
def an_array_read_backwards(lib: Any, wrap: Any) -> Seen:
    def step(a, b):
        a.add_(1)
        return b * 2

    step = wrap(step)
    for n in range(6):
        array = np.arange(4, dtype=np.float32) + n
        b = lib.from_numpy(array[::-1].copy() if n % 2 else array)
        yield step(lib.from_numpy(array), b), array, attempt(lib.from_numpy, array[::-1])


@case
def an_array_that_gets_a_tensor_later(lib: Any, wrap: Any) -> Seen:
    array = np.ones(3, np.float32)
    held = lib.zeros(3)

    def step(x):
        held.add_(x)
        x.mul_(2)
        return held.sum()

    step = wrap(step)
    for n in range(7):
        if n == 3:
            held = lib.from_numpy(array)
        yield step(lib.from_numpy(array)), array, held


@case
def arrays_of_results(lib: Any, wrap: Any) -> Seen:
    def step(x, y):
        x.add_(1)
        return x + y, y

    step = wrap(step)
    x, y = ramp(lib, 3).clone(), lib.ones(3)
    for _ in range(6):
        found, same = step(x, y)
        array = found.numpy()
        array += 10
        yield found, same is y, x, y
        x, y = lib.from_numpy(array), found


# -- threads ------------------------------------------------------------------------------------


def in_thread(function: Any, *args: Any) -> Any:
    """A call by another thread, which ends before this returns."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(attempt(function, *args)))
    thread.start()
    thread.join()
    return found[0]


@case
def aliased_in_another_thread(lib: Any, wrap: Any) -> Seen:
    def step(a, b):
        a.add_(1)
        return b * 2

    step = wrap(step)
    for n in range(8):
        x, y = ramp(lib, 3, start=float(n)).clone(), ramp(lib, 3).clone()
        yield in_thread(step, x, x if n in (1, 5) else y), step(x, x[:] if n in (3, 5) else y), x, y


@case
def memory_exchanged_by_another_thread(lib: Any, wrap: Any) -> Seen:
    a, b = leaf(lib, 1.0, 2.0), leaf(lib, 3.0, 4.0)

    def step(x):
        with lib.no_grad():
            a.add_(x)
        return a * b

    def exchange():
        a.data = b.data if a.data_ptr() != b.data_ptr() else lib.ones(2)

    step = wrap(step)
    for n in range(7):
        if n in (2, 4, 5):
            in_thread(exchange)
        yield step(ramp(lib, 2, start=float(n))), a, b


@case
def gradients_given_by_another_thread(lib: Any, wrap: Any) -> Seen:
    model, optimizer = trainer(lib)
    shared = lib.ones(4)

    def step(x):
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        return loss.detach(), shared * 1

    def give(grad):
        model[0].bias.grad = grad

    step = wrap(step)
    for n in range(7):
        optimizer.zero_grad()
        if n in (2, 3, 5):
            in_thread(give, shared)
        yield step(batch(lib, n)), weights(model), shared
