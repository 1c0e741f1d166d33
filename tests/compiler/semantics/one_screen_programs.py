"""Whole programs of one screen, as users write them."""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import enum
import math
import random
from typing import Any, NamedTuple

import numpy as np

from .registry import Seen, batch, case, layer, leaf, mlp, ramp, weights


@case
def an_adversarial_pair_with_labels_made_inside(lib: Any, wrap: Any) -> Seen:
    maker, judge = layer(lib, 2, 3), layer(lib, 3, 1)
    opt_m = lib.optim.Adam(maker.parameters(), lr=0.02, betas=(0.5, 0.999))
    opt_j = lib.optim.Adam(judge.parameters(), lr=0.02, betas=(0.5, 0.999))
    criterion = lib.nn.BCEWithLogitsLoss()
    history: dict[str, list[float]] = {"j": [], "m": []}

    def step(real):
        ones, zeros = lib.ones(real.size(0), 1), lib.zeros(real.size(0), 1)
        fake = maker(lib.randn(real.size(0), 2))
        opt_j.zero_grad()
        loss_j = criterion(judge(real), ones) + criterion(judge(fake.detach()), zeros)
        loss_j.backward()
        opt_j.step()
        opt_m.zero_grad()
        loss_m = criterion(judge(fake), ones)
        loss_m.backward()
        opt_m.step()
        history["j"].append(loss_j.item())
        history["m"].append(loss_m.item())

    step = wrap(step)
    for n in range(8):
        if n == 4:
            opt_j.param_groups[0]["betas"] = (0.9, 0.99)
        step(batch(lib, n, 4 if n != 6 else 2))
        yield len(history["j"]), weights(maker)[0][0][0].shape if n < 0 else n
    yield all(math.isfinite(v) for v in history["m"])


class Transition(NamedTuple):
    state: Any
    action: int
    reward: float
    done: bool


@case
def a_replay_buffer_sampled_by_python(lib: Any, wrap: Any) -> Seen:
    net = layer(lib, 3, 2)
    target = copy.deepcopy(net)
    optimizer = lib.optim.SGD(net.parameters(), lr=0.1)
    memory: Any = collections.deque(maxlen=6)

    class Agent:
        steps, gamma = 0, 0.9

        def observe(self, state):
            memory.append(Transition(state, self.steps % 2, float(self.steps % 3), False))
            self.steps += 1

        def learn(self):
            if len(memory) < 3:
                return None
            sample = random.sample(list(memory), 3)
            states = lib.stack([t.state for t in sample])
            actions = lib.tensor([[t.action] for t in sample])
            rewards = lib.tensor([t.reward for t in sample])
            q = net(states).gather(1, actions)[:, 0]
            with lib.no_grad():
                goal = rewards + self.gamma * target(states).max(1).values
            loss = lib.nn.functional.smooth_l1_loss(q, goal)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if self.steps % 4 == 0:
                target.load_state_dict(net.state_dict())
            return loss.detach()

    agent = Agent()

    def step(x):
        agent.observe(x)
        return agent.learn()

    step = wrap(step)
    for n in range(11):
        if n == 8:
            Agent.gamma = 0.5
        yield step(batch(lib, n)[0]), weights(net), weights(target), agent.steps, len(memory)


@case
def a_tabular_agent(lib: Any, wrap: Any) -> Seen:
    table = collections.defaultdict(lambda: lib.zeros(2))

    def step(state, action, reward, following):
        best = table[following].max()
        table[state][action] += 0.5 * (reward + 0.9 * best - table[state][action])
        return table[state].clone()

    step = wrap(step)
    for n in range(9):
        yield step(n % 3, n % 2, float(n), (n + 1) % 3), sorted(table)


@case
def policy_gradients_with_discounts(lib: Any, wrap: Any) -> Seen:
    policy = layer(lib)
    optimizer = lib.optim.Adam(policy.parameters(), lr=0.05)
    log = {"baseline": 0.0, "episodes": 0}

    def finish(states, actions, rewards):
        returns, total = [], 0.0
        for reward in reversed(rewards):
            total = reward + 0.9 * total
            returns.insert(0, total)
        mean = sum(returns) / len(returns)
        log["baseline"] = 0.5 * log["baseline"] + 0.5 * mean
        log["episodes"] += 1
        distribution = lib.distributions.Categorical(logits=policy(states))
        advantage = lib.tensor(returns) - log["baseline"]
        loss = -(distribution.log_prob(actions) * advantage).mean()
        loss = loss - 0.01 * distribution.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    finish = wrap(finish)
    for n in range(8):
        rewards = [float((n + k) % 3) for k in range(4)]
        found = finish(batch(lib, n), lib.tensor([0, 1, 1, 0]), rewards)
        yield found, dict(log), weights(policy)


@case
def a_trainer_with_callbacks_that_change_the_list(lib: Any, wrap: Any) -> Seen:
    class Callback:
        def on_step(self, trainer, loss):
            pass

    class Once(Callback):
        def __init__(self):
            self.fired = 0

        def on_step(self, trainer, loss):
            self.fired += 1
            if self.fired == 3:
                trainer.callbacks.remove(self)

    class Decay(Callback):
        def on_step(self, trainer, loss):
            for group in trainer.optimizer.param_groups:
                group["lr"] *= trainer.decay

    class Trainer:
        decay = 0.9

        def __init__(self, model):
            self.model, self.once = model, Once()
            self.optimizer = lib.optim.SGD(model.parameters(), lr=0.2)
            self.callbacks = [self.once, Decay()]

        def fit(self, x):
            self.optimizer.zero_grad()
            loss = self.model(x).square().mean()
            loss.backward()
            self.optimizer.step()
            for callback in list(self.callbacks):
                callback.on_step(self, loss)
            return loss.detach()

    trainer = Trainer(layer(lib))
    step = wrap(trainer.fit)
    for n in range(9):
        if n == 6:
            trainer.callbacks.append(Decay())
        if n == 7:
            Trainer.decay = 0.5
        rate = trainer.optimizer.param_groups[0]["lr"]
        yield step(batch(lib, n)), rate, trainer.once.fired, len(trainer.callbacks)


@case
def an_event_system_by_names(lib: Any, wrap: Any) -> Seen:
    class Events(enum.Enum):
        STARTED = 1
        DONE = 2

    class Engine:
        def __init__(self):
            self.handlers = collections.defaultdict(list)
            self.state = collections.Counter()

        def on(self, event, every=1):
            def register(function):
                self.handlers[event].append((function, every))
                return function

            return register

        def fire(self, event, value):
            self.state[event.name] += 1
            for function, every in self.handlers[event]:
                if self.state[event.name] % every == 0:
                    value = function(value)
            return value

        def run(self, x):
            x = self.fire(Events.STARTED, x)
            return self.fire(Events.DONE, x * 2)

    engine = Engine()
    engine.on(Events.DONE, every=2)(lambda v: v + 100)
    step = wrap(engine.run)
    for n in range(9):
        if n == 3:
            engine.on(Events.STARTED)(lambda v: -v)
        if n == 6:
            engine.handlers[Events.DONE].clear()
        yield step(batch(lib, n)), dict(engine.state)


@case
def an_average_meter_registry_with_slots(lib: Any, wrap: Any) -> Seen:
    class Meter:
        __slots__ = ("count", "total")

        def __init__(self):
            self.count, self.total = 0, 0.0

        def __iadd__(self, value):
            self.total += value
            self.count += 1
            return self

        @property
        def mean(self):
            return self.total / max(self.count, 1)

    meters = {"loss": Meter(), "norm": Meter()}
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        norm = lib.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        meters["loss"] += loss.item()
        meters["norm"] += float(norm)
        return loss.detach()

    step = wrap(step)
    for n in range(8):
        if n == 5:
            meters["loss"] = Meter()
        yield step(batch(lib, n)), [(m.count, m.mean) for m in meters.values()]


@case
def masked_language_modelling(lib: Any, wrap: Any) -> Seen:
    table = lib.nn.Embedding(7, 4)
    with lib.no_grad():
        table.weight.copy_(ramp(lib, 7, 4))
    head = layer(lib, 4, 7)
    optimizer = lib.optim.AdamW([*table.parameters(), *head.parameters()], lr=0.05)
    source = random.Random(5)

    def step(tokens):
        inputs, targets = tokens.clone(), tokens.clone()
        mask = lib.tensor([[source.random() < 0.5 for _ in range(5)] for _ in range(2)])
        mask[:, 0] = True
        targets[~mask] = -100
        inputs[mask] = 6
        logits = head(table(inputs))
        loss = lib.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = wrap(step)
    for n in range(7):
        yield step((lib.arange(10).view(2, 5) + n) % 6), source.random(), weights(head)


@case
def contrastive_with_a_queue_and_a_pointer(lib: Any, wrap: Any) -> Seen:
    class Contrast(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k = layer(lib), layer(lib)
            self.register_buffer("queue", ramp(lib, 2, 6))
            self.register_buffer("pointer", lib.zeros(1, dtype=lib.long))
            self.m = 0.9

        def forward(self, x):
            with lib.no_grad():
                for a, b in zip(self.q.parameters(), self.k.parameters(), strict=True):
                    b.data = b.data * self.m + a.data * (1.0 - self.m)
                keys = lib.nn.functional.normalize(self.k(x), dim=1)
            queries = lib.nn.functional.normalize(self.q(x), dim=1)
            negative = queries @ self.queue.clone().detach()
            positive = (queries * keys).sum(1, keepdim=True)
            logits = lib.cat([positive, negative], 1) / 0.5
            at = int(self.pointer)
            self.queue[:, at : at + 2] = keys.T
            self.pointer[0] = (at + 2) % 6
            target = lib.zeros(len(x), dtype=lib.long)
            return lib.nn.functional.cross_entropy(logits, target)

    model = Contrast()
    optimizer = lib.optim.SGD(model.q.parameters(), lr=0.1)

    def step(x):
        loss = model(x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = wrap(step)
    for n in range(9):
        if n == 5:
            model.m = 0.5
        yield step(batch(lib, n, 2)), model.queue, model.pointer, weights(model.k)


@case
def a_recurrent_cell_with_truncated_history(lib: Any, wrap: Any) -> Seen:
    cell, head = lib.nn.GRUCell(3, 3), layer(lib)
    with lib.no_grad():
        for p in cell.parameters():
            p.copy_(ramp(lib, *p.shape, scale=0.03))
    parameters = [*cell.parameters(), *head.parameters()]
    optimizer = lib.optim.RMSprop(parameters, lr=0.01)
    state: dict[str, Any] = {"h": None, "k": 0}

    def step(x):
        h = lib.zeros(x.shape[0], 3) if state["h"] is None else state["h"]
        loss = 0
        for row in range(2):
            h = cell(x + row, h)
            loss = loss + head(h).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        state["k"] += 1
        state["h"] = h.detach() if state["k"] % 4 else None
        return loss.detach()

    step = wrap(step)
    for n in range(10):
        yield step(batch(lib, n)), state["k"], state["h"], weights(head)


@case
def teacher_and_student_with_a_temperature(lib: Any, wrap: Any) -> Seen:
    teacher, student = mlp(lib).eval().requires_grad_(False), layer(lib)
    optimizer = lib.optim.SGD(student.parameters(), lr=0.2)

    @dataclasses.dataclass
    class Options:
        temperature: float = 2.0
        alpha: float = 0.5
        hard: bool = False

    options = Options()

    def step(x, y):
        with lib.no_grad():
            soft = (teacher(x) / options.temperature).softmax(-1)
        logits = student(x)
        log = (logits / options.temperature).log_softmax(-1)
        loss = lib.nn.functional.kl_div(log, soft, reduction="batchmean")
        loss = loss * options.temperature**2 * options.alpha
        if options.hard:
            loss = loss + (1 - options.alpha) * lib.nn.functional.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = wrap(step)
    for n in range(9):
        if n == 2:
            options.temperature = 4.0
        if n == 4:
            options.hard = True
        if n == 6:
            options = Options(1.0, 0.9, True)
        yield step(batch(lib, n), lib.tensor([0, 1, 0, 1])), weights(student)


@case
def gradient_noise_and_a_schedule_in_numpy(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)
    rates = np.linspace(0.1, 0.01, 8)
    state = {"n": 0}

    def step(x):
        for group in optimizer.param_groups:
            group["lr"] = rates[state["n"] % len(rates)]
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        for p in model.parameters():
            p.grad.add_(0.01 / (1 + state["n"]))
        optimizer.step()
        state["n"] += 1
        return loss.detach()

    step = wrap(step)
    for n in range(10):
        if n == 6:
            rates[:] = 0.5
        yield step(batch(lib, n)), weights(model), float(optimizer.param_groups[0]["lr"])


@case
def sharpness_aware_steps(lib: Any, wrap: Any) -> Seen:
    model, rho = layer(lib), {"rho": 0.05}
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    kept: dict[Any, Any] = {}

    def step(x):
        model(x).square().mean().backward()
        with lib.no_grad():
            norm = lib.stack([p.grad.norm() for p in model.parameters()]).norm() + 1e-12
            for p in model.parameters():
                kept[p] = p.clone()
                p.add_(p.grad * rho["rho"] / norm)
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        with lib.no_grad():
            for p in model.parameters():
                p.copy_(kept[p])
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    step = wrap(step)
    for n in range(8):
        if n == 4:
            rho["rho"] = 0.5
        yield step(batch(lib, n)), weights(model), list(kept.values())


@case
def a_variational_step_with_annealing(lib: Any, wrap: Any) -> Seen:
    encoder, decoder = layer(lib, 3, 4), layer(lib, 2, 3)
    optimizer = lib.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=0.01)
    Normal = lib.distributions.Normal
    state = {"beta": 0.0}

    def step(x):
        mean, log = encoder(x).chunk(2, -1)
        q = Normal(mean, log.exp())
        z = q.rsample()
        kl = lib.distributions.kl_divergence(q, Normal(0.0, 1.0)).sum(-1).mean()
        loss = (decoder(z) - x).square().sum(-1).mean() + state["beta"] * kl
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        state["beta"] = min(1.0, state["beta"] + 0.25)
        return loss.detach() * 0

    step = wrap(step)
    for n in range(8):
        yield step(batch(lib, n)), dict(state)


@case
def a_context_that_swaps_the_weights(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    shadow = [p.detach().clone() * 0.5 for p in model.parameters()]

    @contextlib.contextmanager
    def swapped():
        held = [p.data.clone() for p in model.parameters()]
        for p, s in zip(model.parameters(), shadow, strict=True):
            p.data.copy_(s)
        try:
            yield
        finally:
            for p, h in zip(model.parameters(), held, strict=True):
                p.data.copy_(h)

    def evaluate(x):
        with swapped(), lib.no_grad():
            inside = model(x).sum()
        return inside, model(x).sum().detach()

    evaluate = wrap(evaluate)
    for n in range(7):
        if n == 2:
            shadow[0].mul_(3)
        if n == 4:
            shadow[1] = lib.ones(2)
        yield evaluate(batch(lib, n)), weights(model)


@case
def parameters_in_slots_with_operators(lib: Any, wrap: Any) -> Seen:
    class Affine:
        __slots__ = ("scale", "shift")

        def __init__(self, scale, shift):
            self.scale, self.shift = scale, shift

        def __matmul__(self, other):
            return Affine(self.scale * other.scale, self.scale * other.shift + self.shift)

        def __call__(self, x):
            return x * self.scale + self.shift

    parts = [Affine(leaf(lib, 1.0, 2.0, 3.0), leaf(lib, 0.1, 0.2, 0.3)) for _ in range(2)]

    def step(x):
        total = (parts[0] @ parts[1])(x).square().mean()
        total.backward()
        with lib.no_grad():
            for part in parts:
                for p in (part.scale, part.shift):
                    p -= 0.1 * p.grad
                    p.grad = None
        return total.detach()

    step = wrap(step)
    for n in range(7):
        if n == 3:
            parts[0].shift = leaf(lib, 1.0, 1.0, 1.0)
        if n == 5:
            parts.reverse()
        yield step(batch(lib, n)), [(p.scale, p.shift) for p in parts]
