"""Steps that decide by the data, over enough calls that every branch is taken several times."""

from __future__ import annotations

import math
import random
from typing import Any

from .registry import Seen, attempt, batch, case, layer, mlp, ramp, weights

# Scales of the inputs: both branches of a test of the loss are taken, in several orders.
SCALES = (1.0, 3.0, 1.0, 1.0, 3.0, 3.0, 1.0, 3.0)


def inputs(lib: Any) -> Any:
    return [batch(lib, n) * scale for n, scale in enumerate(SCALES)]


def trained(lib: Any, wrap: Any, decide: Any, optimizer: str = "SGD") -> Seen:
    """Calls of ``decide(model, optimizer, x)``, with all parameters, gradients and state."""
    model = mlp(lib)
    chosen = getattr(lib.optim, optimizer)(model.parameters(), lr=0.05)
    step = wrap(lambda x: decide(model, chosen, x))
    for x in inputs(lib):
        yield attempt(step, x)
        yield weights(model)
        yield [list(s.values()) for s in chosen.state.values()]


def loss_of(model: Any, x: Any) -> Any:
    return model(x).square().mean()


@case
def an_early_return_before_the_update(lib: Any, wrap: Any) -> Seen:
    def decide(model, optimizer, x):
        optimizer.zero_grad()
        loss = loss_of(model, x)
        if loss.item() > 0.15:
            return loss.detach()
        loss.backward()
        optimizer.step()
        return loss.item()

    yield from trained(lib, wrap, decide)


@case
def an_early_return_after_the_update(lib: Any, wrap: Any) -> Seen:
    def decide(model, optimizer, x):
        optimizer.zero_grad()
        loss = loss_of(model, x)
        loss.backward()
        optimizer.step()
        if loss.item() > 0.15:
            return "large"
        return loss_of(model, x).detach()

    yield from trained(lib, wrap, decide, "Adam")


@case
def a_nan_skips_the_update(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    optimizer = lib.optim.Adam(model.parameters(), lr=0.01)

    def step(x):
        optimizer.zero_grad()
        loss = loss_of(model, x)
        loss.backward()
        if loss.isnan().item():
            optimizer.zero_grad()
            return None
        optimizer.step()
        return loss.detach()

    step = wrap(step)
    for n in range(8):
        x = batch(lib, n)
        if n % 3 == 1:
            x[1, 1] = math.nan
        yield step(x)
        yield weights(model)


@case
def gradients_that_are_not_finite_skip_the_update(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x, scale):
        optimizer.zero_grad()
        loss = loss_of(model, x)
        (loss * scale).backward()
        finite = all(lib.isfinite(p.grad).all() for p in model.parameters())
        if finite:
            for p in model.parameters():
                p.grad.div_(scale)
            optimizer.step()
        return finite

    step = wrap(step)
    for n in range(8):
        yield step(batch(lib, n), 1e38 * 10 if n % 3 == 2 else 1024.0)
        yield weights(model)


@case
def a_scaler_of_the_users(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    class Scaler:
        def __init__(self):
            self.scale, self.good = 1024.0, 0

        def update(self, finite):
            if not finite:
                self.scale, self.good = self.scale / 2, 0
            else:
                self.good += 1
                if self.good == 2:
                    self.scale, self.good = self.scale * 2, 0

    scaler = Scaler()

    def step(x):
        optimizer.zero_grad()
        loss = loss_of(model, x)
        (loss * scaler.scale).backward()
        norm = sum(p.grad.square().sum() for p in model.parameters())
        finite = bool(lib.isfinite(norm))
        if finite:
            for p in model.parameters():
                p.grad /= scaler.scale
            optimizer.step()
        scaler.update(finite)
        return loss.detach()

    step = wrap(step)
    for n in range(10):
        x = batch(lib, n)
        if n in (2, 5, 8):
            x[0, 0] = math.inf
        yield step(x), scaler.scale, scaler.good
        yield weights(model)


@case
def the_norm_of_the_gradients_decides_on_clipping(lib: Any, wrap: Any) -> Seen:
    def decide(model, optimizer, x):
        optimizer.zero_grad()
        loss = loss_of(model, x)
        loss.backward()
        norm = math.sqrt(sum(p.grad.square().sum().item() for p in model.parameters()))
        if norm > 0.5:
            for p in model.parameters():
                p.grad.mul_(0.5 / norm)
        optimizer.step()
        return norm

    yield from trained(lib, wrap, decide)


@case
def a_clipped_norm_is_compared(lib: Any, wrap: Any) -> Seen:
    def decide(model, optimizer, x):
        optimizer.zero_grad()
        loss = loss_of(model, x)
        loss.backward()
        norm = lib.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if norm > 0.5:
            return "skipped"
        optimizer.step()
        return norm

    yield from trained(lib, wrap, decide)


@case
def an_assertion_on_finite_values(lib: Any, wrap: Any) -> Seen:
    def step(x):
        y = (x * 2).log()
        assert lib.isfinite(y).all(), "not finite"
        return y.sum()

    step = wrap(step)
    for n in range(7):
        yield attempt(step, ramp(lib, 3, start=-0.05 if n % 3 == 1 else 0.5 + n))


@case
def an_exception_on_a_data_condition(lib: Any, wrap: Any) -> Seen:
    def decide(model, optimizer, x):
        optimizer.zero_grad()
        loss = loss_of(model, x)
        loss.backward()
        if loss.item() > 0.15:
            raise ValueError("the loss is too large")
        optimizer.step()
        return loss.detach()

    yield from trained(lib, wrap, decide)


@case
def an_exception_that_is_caught(lib: Any, wrap: Any) -> Seen:
    def check(x):
        if x.max() > 1.5:
            raise OverflowError
        return x.sum()

    def step(x):
        try:
            return check(x * 2)
        except OverflowError:
            return check(x / 4)

    step = wrap(step)
    for x in inputs(lib):
        yield attempt(step, x)


@case
def a_while_loop_with_a_data_dependent_count(lib: Any, wrap: Any) -> Seen:
    def step(x):
        n = 0
        while x.norm().item() > 1:
            x = x / 2
            n += 1
        return x, n

    step = wrap(step)
    for scale in (1, 4, 1, 2, 4, 2, 8, 8, 1, 4):
        yield step(ramp(lib, 4, start=0.5) * scale)


@case
def newton_until_it_converges(lib: Any, wrap: Any) -> Seen:
    def step(a):
        x = a.clone()
        for _ in range(20):
            new = (x + a / x) / 2
            if (new - x).abs().max() < 1e-3:
                return new
            x = new
        return x

    step = wrap(step)
    for a in (2.0, 9.0, 2.5, 10.0, 2.0, 80.0, 9.0):
        yield step(lib.tensor([a, 1.0]))


@case
def a_break_out_of_a_training_loop(lib: Any, wrap: Any) -> Seen:
    def decide(model, optimizer, x):
        losses = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = loss_of(model, x)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if losses[-1] < 0.12:
                break
        return losses

    yield from trained(lib, wrap, decide)


@case
def a_for_loop_with_continue(lib: Any, wrap: Any) -> Seen:
    def step(x):
        total = lib.zeros(3)
        for row in x:
            if row.sum() < 0:
                continue
            total += row
        return total

    step = wrap(step)
    for n in (0, 1, 0, 1, 0, 1, 2, 2):
        yield step(batch(lib, n, rows=3))


@case
def nested_ifs(lib: Any, wrap: Any) -> Seen:
    def step(x):
        if x.sum() > 0:
            if x.max() > 1:
                return x / x.max()
            return x * 2
        elif x.min().item() < -1:
            return x - x.min().item()
        return -x

    step = wrap(step)
    for scale, sign in ((1, 1), (3, 1), (1, -1), (3, -1)) * 2:
        yield step(ramp(lib, 3, start=0.2) * scale * sign)


@case
def the_best_so_far_in_self(lib: Any, wrap: Any) -> Seen:
    class Trainer:
        def __init__(self):
            self.model, self.best, self.kept = layer(lib), math.inf, lib.zeros(2, 3)

        def step(self, x):
            loss = self.model(x).square().mean().item()
            if loss < self.best:
                self.best = loss
                self.kept = self.model.weight.detach().clone()
            return loss

    trainer = Trainer()
    step = wrap(trainer.step)
    for scale in (5.0, 4.0, 6.0, 3.0, 2.0, 7.0, 1.0, 1.5):
        yield step(batch(lib, 0) * scale), trainer.best, trainer.kept


@case
def the_maximum_of_an_item_and_the_best(lib: Any, wrap: Any) -> Seen:
    state = {"best": 0.0, "worst": 0.0}

    def step(x):
        score = x.mean().item()
        state["best"] = max(score, state["best"])
        state["worst"] = min(state["worst"], score)
        return score

    step = wrap(step)
    for n in range(9):
        yield step(batch(lib, n)), dict(state)


@case
def patience(lib: Any, wrap: Any) -> Seen:
    class Stopper:
        def __init__(self):
            self.best, self.bad, self.stopped = math.inf, 0, False

    stopper, model = Stopper(), mlp(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.05)

    def step(x):
        optimizer.zero_grad()
        loss = loss_of(model, x)
        loss.backward()
        optimizer.step()
        if loss.item() < stopper.best:
            stopper.best, stopper.bad = loss.item(), 0
        else:
            stopper.bad += 1
            if stopper.bad >= 2:
                stopper.stopped = True
        return loss.detach()

    step = wrap(step)
    for scale in (3.0, 2.0, 4.0, 1.0, 3.0, 3.0, 0.5, 0.4):
        yield step(batch(lib, 1) * scale), vars(stopper)
        yield weights(model)


@case
def a_learning_rate_by_the_loss(lib: Any, wrap: Any) -> Seen:
    def decide(model, optimizer, x):
        optimizer.zero_grad()
        loss = loss_of(model, x)
        loss.backward()
        for group in optimizer.param_groups:
            group["lr"] = 0.1 if loss.item() > 0.15 else 0.01
        optimizer.step()
        return loss.detach()

    yield from trained(lib, wrap, decide)


@case
def an_argmax_as_a_list_index(lib: Any, wrap: Any) -> Seen:
    names = ["cat", "dog", "fish"]
    step = wrap(lambda x: names[x.argmax().item()])
    for n in (0, 1, 2, 0, 1, 2, 0):
        yield step(lib.roll(ramp(lib, 3), n))


@case
def an_argmax_that_chooses_a_layer(lib: Any, wrap: Any) -> Seen:
    experts = lib.nn.ModuleList([layer(lib), layer(lib), layer(lib)])

    def step(x, gate):
        chosen = int(gate.argmax())
        out = experts[chosen](x).sum()
        out.backward()
        return out.detach(), chosen

    step = wrap(step)
    for n in (0, 1, 2, 0, 1, 2, 0, 2):
        yield step(batch(lib, n), lib.roll(ramp(lib, 3), n))
        yield weights(experts)


@case
def a_count_as_a_divisor(lib: Any, wrap: Any) -> Seen:
    def step(x):
        mask = x > 0
        n = int(mask.sum())
        return (x * mask).sum() / n if n else lib.zeros(())

    step = wrap(step)
    for n in (0, 1, 2, 0, 1, 2, 3, 0):
        yield step(batch(lib, n, 2, 2) - (9 if n == 2 else 0))


@case
def a_print_where_the_loss_is_large(lib: Any, wrap: Any) -> Seen:
    def decide(model, optimizer, x):
        optimizer.zero_grad()
        loss = loss_of(model, x)
        loss.backward()
        optimizer.step()
        if loss.item() > 0.15:
            print("large")
        return loss.detach()

    yield from trained(lib, wrap, decide)


@case
def a_print_of_the_value_at_every_third_call(lib: Any, wrap: Any) -> Seen:
    class Log:
        calls = 0

    log = Log()

    def step(x):
        log.calls += 1
        y = x.sum()
        if log.calls % 3 == 0 and y > -100:
            print("sum", y.item() > 0)
        return y

    step = wrap(step)
    for n in range(9):
        yield step(batch(lib, n)), log.calls


@case
def a_list_of_a_small_tensor(lib: Any, wrap: Any) -> Seen:
    def step(x):
        a, b = x.sum(0).tolist()
        if a > b:
            return x[:, 0], [a, b]
        return x[:, 1], [b, a]

    step = wrap(step)
    for n in range(7):
        yield step(batch(lib, n, 3, 2))


@case
def integers_of_a_list(lib: Any, wrap: Any) -> Seen:
    def step(x, lengths):
        return [part.sum() for part in lib.split(x, lengths.tolist())]

    step = wrap(step)
    for sizes in ((1, 2), (2, 1), (1, 2), (2, 1), (3, 0), (1, 2)):
        yield step(ramp(lib, 3), lib.tensor(sizes))


@case
def a_flag_in_a_tensor_argument(lib: Any, wrap: Any) -> Seen:
    def step(x, flag):
        return x * 2 if flag else x + 1

    step = wrap(step)
    for n in range(8):
        yield step(ramp(lib, 3) + n, lib.tensor(n % 3 == 0))


@case
def a_flag_in_a_buffer_that_the_step_sets(lib: Any, wrap: Any) -> Seen:
    class Once(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("ready", lib.tensor(False))
            self.register_buffer("scale", lib.ones(()))

        def forward(self, x):
            if not self.ready:
                self.scale.copy_(x.abs().max())
                self.ready.fill_(True)
            return x / self.scale

    once = Once()
    step = wrap(once)
    for n in range(6):
        if n == 4:
            once.ready.fill_(False)
        yield step(batch(lib, n)), once.scale, once.ready


@case
def dropout_before_a_decision(lib: Any, wrap: Any) -> Seen:
    def step(x):
        h = lib.nn.functional.dropout(x, 0.5, True)
        if h.sum() > 0.5:
            return h * 2
        return lib.nn.functional.dropout(h, 0.25, True)

    step = wrap(step)
    for n in range(9):
        yield step(batch(lib, n))


@case
def noise_on_both_sides_of_a_decision(lib: Any, wrap: Any) -> Seen:
    def step(x):
        x = x + lib.randn(4, 3)
        lib.rand(2)
        if x.mean().item() > 0:
            x = x + lib.rand(4, 3)
        return x, lib.randn(2)

    step = wrap(step)
    for n in range(9):
        yield step(batch(lib, n) * 0.1)
        yield lib.rand(1)


@case
def random_and_data_conditions(lib: Any, wrap: Any) -> Seen:
    def step(x):
        if random.random() < 0.5:
            x = x * 2
        if x.sum() > 0:
            return x + random.random()
        return x - random.randint(1, 3)

    step = wrap(step)
    for n in range(12):
        yield step(batch(lib, n))


@case
def a_draw_on_one_side_only(lib: Any, wrap: Any) -> Seen:
    def step(x):
        if x.sum() > 0:
            return x * random.uniform(1, 2)
        return x

    step = wrap(step)
    for n in range(10):
        yield step(batch(lib, n)), random.random()


@case
def batch_norm_and_a_decision(lib: Any, wrap: Any) -> Seen:
    model = lib.nn.Sequential(layer(lib), lib.nn.BatchNorm1d(2))
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        out = model(x)
        loss = (out - 1).square().mean()
        if loss.item() > 1.9:
            return loss.detach()
        loss.backward()
        optimizer.step()
        return out.detach()

    step = wrap(step)
    for x in inputs(lib):
        yield step(x)
        yield weights(model)


@case
def views_and_writes_around_a_decision(lib: Any, wrap: Any) -> Seen:
    state = lib.zeros(2, 3)

    def step(x):
        row = state[0]
        row += x
        if state.sum() > 2:
            state.mul_(0.25)
            state[1].copy_(x)
        return row * 1

    step = wrap(step)
    for n in range(9):
        yield step(ramp(lib, 3, start=0.3 * (n % 3))), state


@case
def an_argument_written_before_a_decision(lib: Any, wrap: Any) -> Seen:
    def step(x):
        x.mul_(2)
        if x.sum() > 1:
            x.sub_(1)
            return x
        return x + 0

    step = wrap(step)
    for n in range(8):
        x = ramp(lib, 3, start=0.4 * (n % 3))
        yield step(x), x, x._version > 0


@case
def a_decision_in_an_inner_function(lib: Any, wrap: Any) -> Seen:
    count = 0

    def step(x):
        def grow(v):
            nonlocal count
            if v.sum() > 0:
                count += 1
                return v * 2
            return v

        return grow(x) + grow(-x)

    step = wrap(step)
    for n in range(8):
        yield step(batch(lib, n)), count


@case
def a_decision_in_a_generator(lib: Any, wrap: Any) -> Seen:
    def positive(rows):
        for row in rows:
            if row.sum() > 0:
                yield row

    def step(x):
        return sum((row for row in positive(x)), start=lib.zeros(3))

    step = wrap(step)
    for n in (0, 1, 0, 1, 0, 1):
        yield step(batch(lib, n, rows=2))


@case
def a_decision_in_a_comprehension(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: [float(v) for v in x if v > 0])
    for n in (0, 1, 2, 0, 1, 2, 0):
        yield step(ramp(lib, 3, start=0.15 - 0.2 * n))


@case
def a_decision_in_a_forward_differentiated_outside(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)

    def forward(x):
        h = model(x)
        if h.mean() > 0.3:
            return h.square().mean()
        return h.abs().sum()

    forward = wrap(forward)
    for x in inputs(lib):
        x.requires_grad_()
        out = forward(x)
        out.backward()
        yield out, x.grad
        yield weights(model)
        model.zero_grad()


@case
def a_module_with_a_decision(lib: Any, wrap: Any) -> Seen:
    class Gate(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = layer(lib), layer(lib)

        def forward(self, x):
            if x.norm() > 4:
                return self.a(x)
            return self.b(x) * 2

    gate = Gate()
    optimizer = lib.optim.SGD(gate.parameters(), lr=0.1)
    compiled = wrap(gate)
    for x in inputs(lib):
        optimizer.zero_grad()
        loss = compiled(x).square().mean()
        loss.backward()
        optimizer.step()
        yield loss
        yield weights(gate)


@case
def accumulated_gradients_and_a_decision(lib: Any, wrap: Any) -> Seen:
    def decide(model, optimizer, x):
        loss = loss_of(model, x)
        loss.backward()
        if loss.item() > 0.15:
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
        return loss.detach()

    yield from trained(lib, wrap, decide)


@case
def a_threshold_among_the_arguments(lib: Any, wrap: Any) -> Seen:
    def step(x, limit, scale=1.0):
        if x.abs().max().item() > limit:
            return x * scale
        return x - limit

    step = wrap(step)
    for n in range(9):
        yield step(batch(lib, n), 0.5 + 0.1 * n, scale=1.0 + n)
        yield step(batch(lib, n), 2.0, scale=0.5 * n)


@case
def a_changed_attribute_between_decisions(lib: Any, wrap: Any) -> Seen:
    class Config:
        limit, mode = 0.0, "double"

    config = Config()

    def step(x):
        if x.sum() > config.limit:
            return x * 2 if config.mode == "double" else x / 2
        return x

    step = wrap(step)
    for n in range(10):
        config.limit = 0.2 * (n % 3)
        config.mode = "double" if n < 6 else "half"
        yield step(batch(lib, n))


@case
def tensors_appended_on_one_side(lib: Any, wrap: Any) -> Seen:
    kept: list[Any] = []

    def step(x):
        y = x.sum()
        if y > 0:
            kept.append(y * 2)
        return y

    step = wrap(step)
    for n in range(10):
        yield step(batch(lib, n)), kept


@case
def a_state_rebound_on_one_side(lib: Any, wrap: Any) -> Seen:
    class Average:
        value = lib.zeros(3)

    average = Average()

    def step(x):
        if x.sum() > 0:
            average.value = 0.5 * average.value + x
        return average.value.sum()

    step = wrap(step)
    for n in range(9):
        yield step(batch(lib, n, 1, 3)[0]), average.value


@case
def the_result_is_the_decision(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: ((x.sum() > 0).item() and bool(x[0] > 0)) or x.max().item() > 0.9)
    for n in range(9):
        yield step(batch(lib, n)[0])


@case
def a_number_that_flows_back_through_math(lib: Any, wrap: Any) -> Seen:
    def step(x):
        scale = math.exp(-x.abs().max().item()) + math.sqrt(x.square().sum().item())
        return x * scale, round(scale, 3), math.isfinite(scale)

    step = wrap(step)
    for n in range(7):
        yield step(batch(lib, n))


@case
def equality_and_closeness_of_tensors(lib: Any, wrap: Any) -> Seen:
    before = lib.zeros(3)

    def step(x):
        if lib.equal(x, before):
            return "equal"
        if lib.allclose(x, before, atol=0.5):
            return x * 1
        before.copy_(x)
        return x * 2

    step = wrap(step)
    for value in (0.0, 0.1, 0.3, 2.0, 2.0, 2.1, 0.0, 0.0):
        yield step(lib.full((3,), value)), before


@case
def a_matching_of_integers(lib: Any, wrap: Any) -> Seen:
    def step(x):
        match (x > 0).sum().item():
            case 0:
                return "none"
            case 1 | 2:
                return x * 2
            case n:
                return x + n

    step = wrap(step)
    for n in (0, 1, 2, 3, 0, 1, 2, 3):
        yield step(ramp(lib, 3, start=-0.25 + 0.1 * n))


@case
def a_decision_under_no_grad_and_autocast(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)

    def step(x):
        with lib.no_grad():
            small = model(x).abs().max() < 0.7
        out = model(x)
        return out.sum() if small else out.detach().mean()

    step = wrap(step)
    for x in inputs(lib):
        yield step(x)


@case
def a_tensor_stored_by_a_decision_keeps_its_graph(lib: Any, wrap: Any) -> Seen:
    w = lib.ones(3, requires_grad=True)

    def step(x):
        y = (w * x).sum()
        if y.item() > 0:
            y.backward()
            return w.grad.clone()
        return y

    step = wrap(step)
    for n in range(8):
        found = step(batch(lib, n)[0])
        yield found, found.requires_grad, w.grad


@case
def noise_before_a_decision_on_what_is_differentiated_outside(lib: Any, wrap: Any) -> Seen:
    w = lib.ones(3, requires_grad=True)

    def step(x):
        y = ((x + lib.rand(3)) * w).tanh()
        y = lib.nn.functional.dropout(y, 0.25, True)
        if y.abs().sum() > 1:
            return y
        return y * lib.rand(3)

    step = wrap(step)
    for n in range(8):
        found = step(ramp(lib, 3, start=0.2 * (n % 4)))
        found.sum().backward()
        yield found, w.grad
