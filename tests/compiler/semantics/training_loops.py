"""Whole training loops as people write them: what changes between and inside of the steps."""

from __future__ import annotations

import copy
import math
import random
from collections import defaultdict, deque
from typing import Any

import numpy as np

from .registry import Seen, batch, case, layer, mlp, ramp, weights


def target(lib: Any, n: int) -> Any:
    return lib.cos(ramp(lib, 4, 2, start=0.3 * n, scale=0.7))


@case
def gradient_accumulation(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x, y, index, every):
        loss = (model(x) - y).square().mean() / every
        loss.backward()
        if (index + 1) % every == 0:
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach()

    step = wrap(step)
    for n in range(9):
        yield step(batch(lib, n), target(lib, n), n, 3), weights(model)


@case
def an_average_of_weights_with_warm_up(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    average = copy.deepcopy(model)
    optimizer = lib.optim.Adam(model.parameters(), lr=0.01)

    class Averager:
        count = 0

        def update(self):
            self.count += 1
            decay = min(0.99, (1 + self.count) / (10 + self.count))
            with lib.no_grad():
                for kept, now in zip(average.parameters(), model.parameters(), strict=True):
                    kept.mul_(decay).add_(now, alpha=1 - decay)

    averager = Averager()

    def step(x, y):
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        averager.update()
        return loss.detach()

    step = wrap(step)
    for n in range(6):
        yield step(batch(lib, n), target(lib, n)), weights(average), averager.count


@case
def two_players(lib: Any, wrap: Any) -> Seen:
    maker, judge = layer(lib, 3, 3), layer(lib, 3, 1)
    of_maker = lib.optim.Adam(maker.parameters(), lr=0.01, betas=(0.5, 0.9))
    of_judge = lib.optim.Adam(judge.parameters(), lr=0.02)
    loss_of = lib.nn.BCEWithLogitsLoss()

    def step(real, noise, turns):
        for _ in range(turns):
            of_judge.zero_grad()
            fake = maker(noise).detach()
            ones, zeros = lib.ones(4, 1), lib.zeros(4, 1)
            a = loss_of(judge(real), ones) + loss_of(judge(fake), zeros)
            a.backward()
            of_judge.step()
        of_maker.zero_grad()
        b = loss_of(judge(maker(noise)), lib.ones(4, 1))
        b.backward()
        of_maker.step()
        return a.detach(), b.detach()

    step = wrap(step)
    for n in range(6):
        yield step(batch(lib, n), batch(lib, n + 9), 1 + n % 2), weights(maker), weights(judge)


@case
def a_target_network(lib: Any, wrap: Any) -> Seen:
    online = mlp(lib)
    slow = copy.deepcopy(online)
    optimizer = lib.optim.SGD(online.parameters(), lr=0.05)
    state = {"updates": 0}

    def learn(x, reward, gamma):
        with lib.no_grad():
            best = slow(x).max(1).values
        chosen = online(x)[:, 0]
        loss = lib.nn.functional.smooth_l1_loss(chosen, reward + gamma * best)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        state["updates"] += 1
        if state["updates"] % 3 == 0:
            slow.load_state_dict(online.state_dict())
        return loss.detach()

    step = wrap(learn)
    for n in range(8):
        yield step(batch(lib, n), batch(lib, n)[:, 0], 0.9), weights(slow), dict(state)


@case
def a_hidden_state_that_is_carried(lib: Any, wrap: Any) -> Seen:
    lib.manual_seed(0)
    cell = lib.nn.GRUCell(3, 4)
    optimizer = lib.optim.SGD(cell.parameters(), lr=0.1)
    hidden = lib.zeros(4, 4)

    def step(x):
        nonlocal hidden
        hidden = cell(x, hidden.detach())
        loss = hidden.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = wrap(step)
    for n in range(6):
        if n == 4:
            hidden = lib.zeros(4, 4)
        yield step(batch(lib, n)), hidden.detach(), weights(cell)


@case
def teacher_forcing(lib: Any, wrap: Any) -> Seen:
    random.seed(5)
    model = layer(lib, 3, 3)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x, ratio):
        out, loss = x, 0.0
        for _ in range(3):
            made = model(out)
            loss = loss + (made - x).square().mean()
            out = x if random.random() < ratio else made
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = wrap(step)
    for n in range(6):
        yield step(batch(lib, n), 1.0 - 0.15 * n), weights(model), random.random()


@case
def a_queue_of_keys(lib: Any, wrap: Any) -> Seen:
    model = layer(lib, 3, 2)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)
    queue = {"keys": ramp(lib, 8, 2), "at": 0}

    def step(x):
        found = lib.nn.functional.normalize(model(x), dim=1)
        logits = found @ queue["keys"].T / 0.2
        loss = lib.nn.functional.cross_entropy(logits, lib.zeros(4, dtype=lib.int64))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        at = queue["at"]
        with lib.no_grad():
            queue["keys"][at : at + 4] = found.detach()
        queue["at"] = (at + 4) % 8
        return loss.detach()

    step = wrap(step)
    for n in range(6):
        yield step(batch(lib, n)), queue, weights(model)


@case
def patience(lib: Any, wrap: Any) -> Seen:
    class Stopper:
        def __init__(self):
            self.best, self.bad, self.stopped = math.inf, 0, False

        def note(self, value):
            if value < self.best - 1e-3:
                self.best, self.bad = value, 0
            else:
                self.bad += 1
                self.stopped = self.bad >= 3

    model, stopper = mlp(lib), Stopper()
    optimizer = lib.optim.SGD(model.parameters(), lr=0.2)

    def step(x, y):
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        stopper.note(loss.item())
        return stopper.stopped

    step = wrap(step)
    for n in range(8):
        yield step(batch(lib, n % 2), target(lib, 0)), vars(stopper), weights(model)


@case
def layers_thawed_later(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    for p in model[0].parameters():
        p.requires_grad_(False)
    optimizer = lib.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)

    def step(x, y):
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = wrap(step)
    for n in range(7):
        if n == 3:
            for p in model[0].parameters():
                p.requires_grad_(True)
            optimizer.add_param_group({"params": list(model[0].parameters()), "lr": 0.01})
        yield step(batch(lib, n), target(lib, n)), weights(model), len(optimizer.param_groups)


@case
def a_checkpoint_loaded_in_between(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    optimizer = lib.optim.AdamW(model.parameters(), lr=0.01)

    def step(x, y):
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = wrap(step)
    for n in range(8):
        if n == 2:
            kept = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
        if n == 5:
            model.load_state_dict(kept[0])
            optimizer.load_state_dict(kept[1])
        yield step(batch(lib, n), target(lib, n)), weights(model)


@case
def another_optimizer_from_some_step_on(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)

    class Trainer:
        def __init__(self):
            self.optimizer = lib.optim.Adam(model.parameters(), lr=0.01)

        def step(self, x, y):
            self.optimizer.zero_grad()
            loss = (model(x) - y).square().mean()
            loss.backward()
            self.optimizer.step()
            return loss.detach()

    trainer = Trainer()
    step = wrap(trainer.step)
    for n in range(7):
        if n == 4:
            trainer.optimizer = lib.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        yield step(batch(lib, n), target(lib, n)), weights(model)


@case
def mixed_pairs(lib: Any, wrap: Any) -> Seen:
    rng = np.random.default_rng(3)
    model = mlp(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        share = float(rng.beta(0.4, 0.4))
        order = lib.as_tensor(rng.permutation(4))
        mixed = share * x + (1 - share) * x[order]
        loss = share * (model(mixed) - y).square().mean()
        loss = loss + (1 - share) * (model(mixed) - y[order]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = wrap(step)
    for n in range(5):
        yield step(batch(lib, n), target(lib, n)), weights(model), rng.random()


@case
def meters_and_a_log(lib: Any, wrap: Any) -> Seen:
    log, recent = defaultdict(list), deque(maxlen=3)
    model = mlp(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x, y, epoch):
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        norm = lib.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        log["loss"].append(loss.detach())
        log["norm"].append(norm)
        log[f"epoch {epoch}"].append(epoch)
        recent.append(loss.detach())
        return {"loss": loss.detach(), "mean": sum(recent) / len(recent)}

    step = wrap(step)
    for n in range(7):
        yield step(batch(lib, n), target(lib, n), n // 3), dict(log), list(recent)


@case
def a_momentum_of_statistics_that_falls(lib: Any, wrap: Any) -> Seen:
    model = lib.nn.Sequential(layer(lib, 3, 4), lib.nn.BatchNorm1d(4), layer(lib, 4, 2))
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = wrap(step)
    for n in range(7):
        model[1].momentum = None if n == 5 else 0.5 * 0.7**n
        model[1].eps = 1e-5 * (n + 1)
        if n == 4:
            model.eval()
        yield step(batch(lib, n), target(lib, n)), weights(model)


@case
def dropout_that_grows(lib: Any, wrap: Any) -> Seen:
    lib.manual_seed(1)
    model = lib.nn.Sequential(layer(lib, 3, 4), lib.nn.Dropout(0.0), layer(lib, 4, 2))
    step = wrap(lambda x: model(x).sum(0))
    for n in range(7):
        model[1].p = 0.15 * n
        yield step(batch(lib, n)), lib.rand(1)


@case
def scales_that_follow_overflows(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)
    scale = {"value": 1024.0, "good": 0}

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        (loss * scale["value"]).backward()
        found = [p.grad.isfinite().all() for p in model.parameters()]
        if bool(lib.stack(found).all()):
            for p in model.parameters():
                p.grad.div_(scale["value"])
            optimizer.step()
            scale["good"] += 1
            if scale["good"] % 2 == 0:
                scale["value"] *= 2
        else:
            scale["value"] /= 2
        return loss.detach()

    step = wrap(step)
    for n in range(7):
        x = batch(lib, n)
        yield step(x * (float("inf") if n == 3 else 1)), dict(scale), weights(model)


@case
def a_loss_chosen_by_name(lib: Any, wrap: Any) -> Seen:
    functional = lib.nn.functional
    losses = {"l1": functional.l1_loss, "l2": functional.mse_loss, "huber": functional.huber_loss}
    model = mlp(lib)
    step = wrap(lambda x, y, name, power: losses[name](model(x), y) ** power)
    for n, name in enumerate(("l1", "l2", "l2", "huber", "l1", "l2")):
        if n == 4:
            losses["l1"] = functional.smooth_l1_loss
        yield step(batch(lib, n), target(lib, n), name, 1 + n % 2)


@case
def a_policy_with_entropy_bonus(lib: Any, wrap: Any) -> Seen:
    model = layer(lib, 3, 2)
    optimizer = lib.optim.Adam(model.parameters(), lr=0.05)
    baseline = 0.0

    def step(x, actions, rewards, bonus):
        nonlocal baseline
        policy = lib.distributions.Categorical(logits=model(x))
        advantage = rewards - baseline
        loss = -(policy.log_prob(actions) * advantage).mean() - bonus * policy.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        baseline = 0.9 * baseline + 0.1
        return loss.detach()

    step = wrap(step)
    for n in range(6):
        actions = lib.arange(4) % 2
        yield step(batch(lib, n), actions, batch(lib, n)[:, 1], 0.1 / (n + 1)), baseline


@case
def cycles_by_hand(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    class Schedule:
        def __init__(self):
            self.step_number = 0

        def __call__(self):
            self.step_number += 1
            part = self.step_number / 6
            rate = 0.1 * part * 2 if part <= 0.5 else 0.1 * (2 - 2 * part)
            for group in optimizer.param_groups:
                group["lr"] = max(rate, 1e-4)
                group["momentum"] = 0.95 - 0.1 * part

    schedule = Schedule()

    def step(x, y):
        optimizer.zero_grad(set_to_none=False)
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        schedule()
        return loss.detach()

    step = wrap(step)
    for n in range(8):
        yield step(batch(lib, n), target(lib, n)), weights(model), optimizer.param_groups[0]["lr"]


@case
def noise_that_is_annealed(lib: Any, wrap: Any) -> Seen:
    lib.manual_seed(7)
    model = layer(lib, 3, 3)
    optimizer = lib.optim.RMSprop(model.parameters(), lr=0.01)

    def step(x, index, total=8):
        sigma = 0.5 * (1 - index / total)
        noisy = x + sigma * lib.randn_like(x)
        loss = (model(noisy) - x).square().mean() / (sigma**2 + 0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach(), sigma

    step = wrap(step)
    for n in range(8):
        yield step(batch(lib, n), n), weights(model), lib.rand(1)


@case
def an_inner_loop_of_adaptation(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    outer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x, y, steps, rate):
        fast = [p.clone() for p in model.parameters()]
        for _ in range(steps):
            loss = (lib.nn.functional.linear(x, *fast) - y).square().mean()
            grads = lib.autograd.grad(loss, fast, create_graph=True)
            fast = [p - rate * g for p, g in zip(fast, grads, strict=True)]
        loss = (lib.nn.functional.linear(x, *fast) - y).abs().mean()
        outer.zero_grad()
        loss.backward()
        outer.step()
        return loss.detach()

    step = wrap(step)
    for n in range(6):
        yield step(batch(lib, n), target(lib, n), 1 + n % 2, 0.1 + 0.01 * n), weights(model)
