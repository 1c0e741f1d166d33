"""Values of the data read by Python: numbers, branches, loops, masks, counts of elements."""

from __future__ import annotations

import math
from typing import Any

from .registry import Seen, attempt, batch, case, layer, ramp, weights


@case
def the_loss_as_a_number(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    step = wrap(step)
    for n in range(5):
        yield step(batch(lib, n))
        yield weights(model)


@case
def an_item_that_flows_back(lib: Any, wrap: Any) -> Seen:
    def step(x):
        top = x.max().item()
        return x / top + top

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 3, start=1.0 + n))


@case
def an_item_in_python_arithmetic(lib: Any, wrap: Any) -> Seen:
    def step(x):
        n = int(x.sum().item())
        return x * (n % 3), math.sqrt(abs(n)), [n] * 2

    step = wrap(step)
    for n in range(5):
        yield step(lib.full((3,), float(n)))


@case
def skip_on_nan(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        if loss.isnan():
            return None
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = wrap(step)
    for n in range(5):
        x = batch(lib, n)
        if n in (1, 3):
            x[0, 0] = math.nan
        yield step(x)
        yield weights(model)


@case
def isfinite_in_python(lib: Any, wrap: Any) -> Seen:
    def step(x):
        loss = x.sum()
        if not math.isfinite(loss.item()):
            raise FloatingPointError("loss is not finite")
        return loss

    step = wrap(step)
    for n in range(5):
        yield attempt(step, lib.full((3,), math.inf if n == 2 else float(n)))


@case
def a_branch_on_a_comparison(lib: Any, wrap: Any) -> Seen:
    def step(x):
        if x.sum() > 0:
            return x * 2
        return x - 1

    step = wrap(step)
    for n in (1, -1, 2, -2, 1):
        yield step(lib.full((3,), float(n)))


@case
def nested_branches(lib: Any, wrap: Any) -> Seen:
    def step(x):
        y = x.mean()
        if y > 0:
            y = y * 2
            if y > 3:
                return y, "large"
            return y, "small"
        if y < -3:
            return -y, "very negative"
        return y, "negative"

    step = wrap(step)
    for n in (1, 2, -1, -4, 3, 1):
        yield step(lib.full((3,), float(n)))


@case
def a_boolean_expression(lib: Any, wrap: Any) -> Seen:
    def step(x):
        if x[0] > 0 and (x[1] > 0 or x[2] > 0):
            return x.sum()
        return -x.sum() if not x.any() else x.prod()

    step = wrap(step)
    for values in ([1, 1, 1], [1, 0, 0], [0, 1, 1], [0, 0, 0], [1, -1, 1]):
        yield step(lib.tensor([float(v) for v in values]))


@case
def a_while_loop(lib: Any, wrap: Any) -> Seen:
    def step(x):
        count = 0
        while x.norm() > 1:
            x = x / 2
            count += 1
        return x, count

    step = wrap(step)
    for n in (1, 5, 20, 0, 5):
        yield step(lib.full((3,), float(n)))


@case
def newton_until_converged(lib: Any, wrap: Any) -> Seen:
    def step(a):
        x = a.clone()
        k = 0
        while k < 20:
            k += 1
            new = 0.5 * (x + a / x)
            if (new - x).abs().max() < 1e-3:
                break
            x = new
        return x, k

    step = wrap(step)
    for n in range(4):
        yield step(lib.tensor([2.0 + n, 9.0]))


@case
def an_assertion_on_data(lib: Any, wrap: Any) -> Seen:
    def step(x):
        assert (x >= 0).all(), "negative input"
        return x.sqrt()

    step = wrap(step)
    for n in range(5):
        yield attempt(step, lib.full((3,), -1.0 if n in (1, 3) else float(n)))


@case
def float_and_int_of_tensors(lib: Any, wrap: Any) -> Seen:
    def step(x):
        return float(x.mean()) + int(x.max()), bool(x.min() > 0), x * 2

    step = wrap(step)
    for n in range(4):
        yield step(lib.full((3,), n - 1.5))


@case
def selected_by_a_mask(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x[x > 0])
    for n in range(5):
        yield step(ramp(lib, 6, start=-0.1 * n))


@case
def selected_and_reduced(lib: Any, wrap: Any) -> Seen:
    def step(x, y):
        mask = y != -1
        return (x[mask] * 2).sum(), mask.sum()

    step = wrap(step)
    for n in range(5):
        y = lib.arange(6) % (n + 1) - 1
        yield step(ramp(lib, 6), y)


@case
def a_mask_in_training(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)

    def step(x, keep):
        model.zero_grad()
        loss = model(x)[keep].square().sum()
        loss.backward()
        return loss.detach()

    step = wrap(step)
    for n in range(5):
        yield step(batch(lib, n), lib.arange(4) % (n + 1) == 0)
        yield weights(model)


@case
def nonzero(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: (x > 0).nonzero())
    for n in range(5):
        yield step(ramp(lib, 2, 3, start=-0.1 * n))


@case
def nonzero_as_an_index(lib: Any, wrap: Any) -> Seen:
    def step(x, flags):
        index = flags.nonzero().squeeze(1)
        x = x.clone()
        x[index] += 1
        return x, index.numel()

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 5), lib.arange(5) % (n + 1) == 0)


@case
def where_with_one_argument(lib: Any, wrap: Any) -> Seen:
    def step(x):
        rows, columns = lib.where(x > 0)
        return x[rows, columns].sum(), len(rows)

    step = wrap(step)
    for n in range(4):
        yield step(ramp(lib, 2, 3, start=-0.1 * n))


@case
def unique(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: lib.unique(x, return_counts=True))
    for n in range(5):
        yield step(lib.arange(6) % (n + 1))


@case
def unique_then_loop(lib: Any, wrap: Any) -> Seen:
    def step(x, group):
        return [x[group == g].mean() for g in lib.unique(group)]

    step = wrap(step)
    for n in range(4):
        yield step(ramp(lib, 6), lib.arange(6) % (n + 1))


@case
def routing_to_experts(lib: Any, wrap: Any) -> Seen:
    experts = [layer(lib, 3, 3) for _ in range(3)]
    gate = layer(lib, 3, 3)

    def step(x):
        chosen = gate(x).argmax(-1)
        out = lib.zeros_like(x)
        for k, expert in enumerate(experts):
            rows = chosen == k
            if rows.any():
                out[rows] = expert(x[rows]) * (k + 1)
        return out

    step = wrap(step)
    for n in range(5):
        yield step(batch(lib, n, 5))


@case
def a_loop_over_an_item(lib: Any, wrap: Any) -> Seen:
    def step(x, n):
        for k in range(int(n)):
            x = x + k
        return x

    step = wrap(step)
    for n in (1, 3, 2, 0, 3):
        yield step(ramp(lib, 3), lib.tensor(n))


@case
def a_slice_by_an_item(lib: Any, wrap: Any) -> Seen:
    def step(x, lengths):
        return [x[k, : lengths[k].item()].sum() for k in range(2)]

    step = wrap(step)
    for n in range(4):
        yield step(ramp(lib, 2, 4), lib.tensor([n % 4 + 1, 4 - n % 4]))


@case
def a_shape_from_an_item(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda n, x: lib.zeros(int(n.max()) + 1).index_add(0, n, x))
    for n in range(4):
        yield step(lib.arange(3) % (n + 1), ramp(lib, 3))


@case
def argmax_as_a_python_index(lib: Any, wrap: Any) -> Seen:
    names = ["a", "b", "c"]
    step = wrap(lambda x: names[x.argmax()] + names[int(x.argmin())])
    for n in range(4):
        yield step(ramp(lib, 3) * (-1) ** n)


@case
def a_tensor_as_a_list_index(lib: Any, wrap: Any) -> Seen:
    acts = [lib.tanh, lib.exp, lib.sin]
    step = wrap(lambda x, k: acts[k](x))
    for n in (0, 1, 2, 1):
        yield step(ramp(lib, 3), lib.tensor(n))


@case
def tensors_compared_by_equal(lib: Any, wrap: Any) -> Seen:
    def step(x, y):
        return "same" if lib.equal(x, y) else (x - y).abs().max()

    step = wrap(step)
    for n in range(4):
        yield step(ramp(lib, 3), ramp(lib, 3, start=-0.3 + n % 2))


@case
def allclose_decides(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, y: x * 2 if lib.allclose(x, y) else y)
    for n in range(4):
        yield step(ramp(lib, 3), ramp(lib, 3, start=-0.3 + n % 2))


@case
def min_and_max_of_python(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda a, b: (max(a, b) * 2, min(a, b), sorted([a, b])[0]))
    for n in range(4):
        yield step(lib.tensor(1.5), lib.tensor(float(n)))


@case
def in_a_container_of_tensors(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, n: (3 in x, n in [1, 2], x.sum()))
    for n in range(4):
        yield step(lib.arange(n + 2), lib.tensor(n))


@case
def the_length_of_a_selection(lib: Any, wrap: Any) -> Seen:
    def step(x):
        kept = x[x > 0.05]
        return kept.mean() if len(kept) else "empty"

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 4, start=-0.1 * n))


@case
def clipping_decided_by_the_norm(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)

    def step(x):
        model.zero_grad()
        model(x).square().sum().backward()
        norm = math.sqrt(sum(p.grad.square().sum().item() for p in model.parameters()))
        if norm > 3.0:
            for p in model.parameters():
                p.grad.mul_(3.0 / norm)
        return norm

    step = wrap(step)
    for n in range(5):
        yield step(batch(lib, n) * (n % 3))
        yield weights(model)


@case
def a_match_statement(lib: Any, wrap: Any) -> Seen:
    def step(x, code):
        match code.item():
            case 0:
                return x
            case 1 | 2:
                return x * 2
            case other:
                return x + other

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 3), lib.tensor(n))


@case
def beam_of_python_numbers(lib: Any, wrap: Any) -> Seen:
    def step(logits):
        scores = lib.log_softmax(logits, -1).tolist()
        beam = sorted(((s, k) for k, s in enumerate(scores)), reverse=True)[:2]
        return [k for _, k in beam], logits[beam[0][1]]

    step = wrap(step)
    for n in range(4):
        yield step(batch(lib, n, 1, 5)[0])
