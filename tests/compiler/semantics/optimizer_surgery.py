"""Optimizers and schedulers that are edited, exchanged, copied and restored between two calls."""

from __future__ import annotations

import copy
import math
from typing import Any

from .registry import Seen, batch, case, layer, leaf, mlp, ramp, weights


def trainer(lib: Any, model: Any, optimizer: Any, scheduler: Any = None) -> Any:
    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        return loss.detach()

    return step


def case_of_scheduler(name: str, make: Any, inside: bool) -> None:
    def scheduled(lib: Any, wrap: Any) -> Seen:
        model = layer(lib)
        optimizer = lib.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        scheduler = make(lib.optim.lr_scheduler, optimizer)
        step = wrap(trainer(lib, model, optimizer, scheduler if inside else None))
        for n in range(9):
            if n == 5:
                optimizer.param_groups[0]["lr"] = 0.05
            loss = step(batch(lib, n))
            if not inside:
                scheduler.step()
            yield loss, weights(model), optimizer.param_groups[0]["lr"], scheduler.get_last_lr()

    scheduled.__name__ = f"{name}_{'inside' if inside else 'outside'}"
    scheduled.__module__ = __name__
    case(scheduled)


SCHEDULERS: dict[str, Any] = {
    "exponential": lambda s, o: s.ExponentialLR(o, 0.9),
    "multi_step": lambda s, o: s.MultiStepLR(o, [2, 4], 0.5),
    "constant": lambda s, o: s.ConstantLR(o, 0.5, 3),
    "polynomial": lambda s, o: s.PolynomialLR(o, 6, 2.0),
    "warm_restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 3),
    "cyclic": lambda s, o: s.CyclicLR(o, 0.01, 0.1, 2, cycle_momentum=True),
    "multiplicative": lambda s, o: s.MultiplicativeLR(o, lambda n: 0.9 if n % 2 else 1.0),
    "sequential": lambda s, o: s.SequentialLR(
        o, [s.LinearLR(o, 0.1, 1.0, 3), s.CosineAnnealingLR(o, 5)], [3]
    ),
    "chained": lambda s, o: s.ChainedScheduler([s.ConstantLR(o, 0.5, 2), s.ExponentialLR(o, 0.9)]),
    "a_closure_of_math": lambda s, o: s.LambdaLR(o, lambda n: 0.5 * (1 + math.cos(n / 9))),
}
for _name, _make in SCHEDULERS.items():
    for _inside in (True, False):
        case_of_scheduler(_name, _make, _inside)


@case
def groups_edited_by_hand(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    groups = [{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 0.01}]
    optimizer = lib.optim.SGD(groups, lr=0.1)
    step = wrap(trainer(lib, model, optimizer))
    for n in range(10):
        if n == 2:
            optimizer.param_groups[0].update(lr=0.05, momentum=0.9)
        if n == 4:
            optimizer.param_groups.reverse()
        if n == 5:
            held = optimizer.param_groups[0]["params"].pop()
        if n == 7:
            optimizer.param_groups[1]["params"].append(held)
        if n == 8:
            del optimizer.param_groups[0]
        yield step(batch(lib, n)), weights(model)


@case
def the_state_edited_by_hand(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.Adam(model.parameters(), lr=0.1)
    step = wrap(trainer(lib, model, optimizer))
    for n in range(9):
        if n == 2:
            optimizer.state[model.weight]["exp_avg"].mul_(0.1)
        if n == 4:
            optimizer.state[model.weight]["step"] = lib.tensor(1.0)
        if n == 5:
            optimizer.state[model.bias]["exp_avg_sq"] = lib.ones(2)
        if n == 6:
            del optimizer.state[model.bias]
        if n == 7:
            optimizer.state.clear()
        yield step(batch(lib, n)), weights(model)


@case
def the_class_of_the_optimizer_exchanged(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    holder = {"o": lib.optim.SGD(model.parameters(), lr=0.1)}

    def step(x):
        holder["o"].zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        holder["o"].step()
        return loss.detach()

    step = wrap(step)
    for n in range(8):
        if n == 2:
            holder["o"] = lib.optim.RMSprop(model.parameters(), lr=0.01)
        if n == 4:
            holder["o"] = lib.optim.Adagrad(model.parameters(), lr=0.1)
        if n == 6:
            holder["o"] = lib.optim.NAdam(model.parameters(), lr=0.01)
        yield step(batch(lib, n)), weights(model)


@case
def hooks_of_the_optimizer_come_and_go(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)
    log: list[str] = []
    step = wrap(trainer(lib, model, optimizer))

    def halve(opt, args, kwargs):
        log.append("pre")
        for group in opt.param_groups:
            for p in group["params"]:
                p.grad.mul_(0.5)

    handle = None
    for n in range(8):
        if n == 2:
            handle = optimizer.register_step_pre_hook(halve)
        if n == 4:
            after = optimizer.register_step_post_hook(lambda *args: log.append("post"))
        if n == 5:
            handle.remove()
        if n == 7:
            after.remove()
        yield step(batch(lib, n)), weights(model), list(log)


@case
def a_scheduler_restored_to_an_earlier_epoch(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)
    scheduler = lib.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    step = wrap(trainer(lib, model, optimizer, scheduler))
    for n in range(10):
        if n == 4:
            kept = copy.deepcopy((scheduler.state_dict(), optimizer.state_dict()))
        if n == 7:
            scheduler.load_state_dict(kept[0])
            optimizer.load_state_dict(kept[1])
        yield step(batch(lib, n)), weights(model), scheduler.get_last_lr()


@case
def plateau_by_a_number_of_the_step(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)
    scheduler = lib.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1, factor=0.5)
    step = wrap(trainer(lib, model, optimizer))
    for n in range(10):
        loss = step(batch(lib, n % 2) * (1 + n / 5))
        scheduler.step(loss)
        yield loss, weights(model), optimizer.param_groups[0]["lr"], scheduler.num_bad_epochs


@case
def a_scaler_whose_scale_is_set(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)
    scaler = lib.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        lib.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    step = wrap(step)
    for n in range(9):
        if n == 4:
            scaler.update(2.0)
        if n == 6:
            scaler.set_growth_factor(4.0)
        x = batch(lib, n)
        yield step(x if n != 3 else x * float("inf")), weights(model), scaler.get_scale()


@case
def a_rate_that_is_a_tensor_written_in_place(lib: Any, wrap: Any) -> Seen:
    model, rate = layer(lib), lib.tensor(0.1)
    optimizer = lib.optim.Adam(model.parameters(), lr=rate)
    step = wrap(trainer(lib, model, optimizer))
    for n in range(8):
        if n in (2, 4):
            rate.mul_(0.5)
        if n == 6:
            optimizer.param_groups[0]["lr"] = lib.tensor(0.2)
        yield step(batch(lib, n)), weights(model)


@case
def two_optimizers_of_overlapping_groups(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    first = lib.optim.SGD(model.parameters(), lr=0.1)
    second = lib.optim.AdamW(model[2].parameters(), lr=0.01)
    phase = {"second": False}

    def step(x):
        for o in (first, second):
            o.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        first.step()
        if phase["second"]:
            second.step()
        return loss.detach()

    step = wrap(step)
    for n in range(8):
        phase["second"] = n % 3 == 2
        yield step(batch(lib, n)), weights(model), len(second.state)


@case
def lookahead_of_the_users(lib: Any, wrap: Any) -> Seen:
    class Lookahead(lib.optim.Optimizer):
        def __init__(self, base, k=2, alpha=0.5):
            self.base, self.k, self.alpha, self.calls = base, k, alpha, 0
            super().__init__(base.param_groups[0]["params"], {})
            self.slow = [p.detach().clone() for p in self.base.param_groups[0]["params"]]

        @lib.no_grad()
        def step(self, closure=None):
            self.base.step()
            self.calls += 1
            if self.calls % self.k == 0:
                for s, p in zip(self.slow, self.base.param_groups[0]["params"], strict=True):
                    s.add_(p - s, alpha=self.alpha)
                    p.copy_(s)

    model = layer(lib)
    optimizer = Lookahead(lib.optim.SGD(model.parameters(), lr=0.1))
    step = wrap(trainer(lib, model, optimizer))
    for n in range(9):
        if n == 4:
            optimizer.k = 3
        if n == 6:
            optimizer.alpha = 1.0
        yield step(batch(lib, n)), weights(model), optimizer.slow, optimizer.calls


@case
def an_optimizer_over_a_generator_of_views(lib: Any, wrap: Any) -> Seen:
    flat = ramp(lib, 9)
    parts = [lib.nn.Parameter(flat[:6].view(2, 3)), lib.nn.Parameter(flat[6:8])]
    optimizer = lib.optim.SGD((p for p in parts), lr=0.1, nesterov=True, momentum=0.9)

    def step(x):
        optimizer.zero_grad()
        loss = lib.nn.functional.linear(x, *parts).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = wrap(step)
    for n in range(7):
        if n in (2, 4):
            flat.mul_(0.5)
        yield step(batch(lib, n)), parts, flat


@case
def options_of_adam_switched(lib: Any, wrap: Any) -> Seen:
    p = leaf(lib, 1.0, 2.0, 3.0)
    optimizer = lib.optim.AdamW([p], lr=0.1, amsgrad=False)
    group = optimizer.param_groups[0]

    def step(x):
        optimizer.zero_grad()
        (x * p).square().mean().backward()
        optimizer.step()

    step = wrap(step)
    changes = {2: {"maximize": True}, 4: {"betas": (0.5, 0.5)}, 5: {"eps": 0.1},
               7: {"weight_decay": 0.0, "maximize": False}}  # fmt: skip
    for n in range(9):
        group.update(changes.get(n, {}))
        step(batch(lib, n))
        yield p, p.grad, optimizer.state[p]["exp_avg"]
