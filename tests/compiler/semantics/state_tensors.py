"""Tensors of the state that a step both reads as numbers and writes: pointers, counters, flags."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .registry import Seen, batch, case, layer, ramp, weights


@case
def the_pointer_of_a_queue(lib: Any, wrap: Any) -> Seen:
    class Queue(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("rows", lib.zeros(8, 3))
            self.register_buffer("pointer", lib.zeros(1, dtype=lib.long))

        def push(self, keys):
            at = int(self.pointer)
            self.rows[at : at + keys.shape[0]] = keys
            self.pointer[0] = (at + keys.shape[0]) % self.rows.shape[0]

    model, queue = layer(lib, 3, 3), Queue()
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        keys = model(x)
        loss = (keys @ queue.rows.clone().T).logsumexp(1).mean()
        loss.backward()
        optimizer.step()
        queue.push(keys.detach())
        return loss

    step = wrap(step)
    for n in range(7):
        yield step(batch(lib, n)), queue.rows, queue.pointer, weights(model)


@case
def a_pointer_that_others_move(lib: Any, wrap: Any) -> Seen:
    pointer, rows = lib.tensor(0), lib.zeros(4, 2)

    def step(x):
        rows[pointer.item() % 4] += x
        return rows.sum(1)

    step = wrap(step)
    for n in range(12):
        yield step(ramp(lib, 2, start=float(n)))
        if n % 5 == 2:
            pointer.fill_(n)
        else:
            pointer += 1


@case
def a_layer_that_initializes_itself(lib: Any, wrap: Any) -> Seen:
    class ActNorm(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = lib.nn.Parameter(lib.ones(3))
            self.shift = lib.nn.Parameter(lib.zeros(3))
            self.register_buffer("initialized", lib.tensor(0, dtype=lib.uint8))

        def forward(self, x):
            if self.initialized.item() == 0:
                self.shift.data.copy_(-x.mean(0))
                self.scale.data.copy_(1 / (x.std(0) + 1e-6))
                self.initialized.fill_(1)
            return self.scale * (x + self.shift)

    model = ActNorm()
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    step = wrap(step)
    for n in range(9):
        yield step(batch(lib, n)), model.initialized, weights(model)
        if n == 4:
            model.initialized.zero_()


@case
def a_flag_that_is_a_tensor(lib: Any, wrap: Any) -> Seen:
    flag, total = lib.tensor(False), lib.zeros(3)

    def step(x):
        if flag:
            total.add_(x)
        else:
            total.sub_(x)
        flag.logical_not_()
        return total.clone()

    step = wrap(step)
    for n in range(8):
        yield step(ramp(lib, 3, start=0.2 * n)), flag
        if n == 4:
            flag.fill_(True)


@case
def every_third_call(lib: Any, wrap: Any) -> Seen:
    count, slow, fast = lib.tensor(0), lib.zeros(2), lib.zeros(2)

    def step(x):
        fast.lerp_(x, 0.5)
        count.add_(0)
        if int(count) % 3 == 0:
            slow.copy_(0.5 * slow + 0.5 * fast)
        count.add_(1)
        return slow - fast

    step = wrap(step)
    for n in range(10):
        yield step(ramp(lib, 2, start=0.1 * n)), count, slow, fast


@case
def a_warm_up_in_a_buffer(lib: Any, wrap: Any) -> Seen:
    model, steps = layer(lib), lib.zeros((), dtype=lib.long)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        rate = 0.1 * min(1.0, (steps.item() + 1) / 5)
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps.add_(1)
        return loss, rate

    step = wrap(step)
    for n in range(9):
        yield step(batch(lib, n)), steps, weights(model)
        if n == 6:
            steps.zero_()


@case
def a_decay_by_the_number_of_updates(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    shadow = {k: v.clone() for k, v in model.state_dict().items()}
    updates = lib.tensor(0.0)

    def step(x):
        with lib.no_grad():
            for parameter in model.parameters():
                parameter.sub_(x.mean() * 0.1)
            updates.add_(1)
            decay = 0.9 * (1 - math.exp(-float(updates) / 4))
            for key, value in model.state_dict().items():
                shadow[key].mul_(decay).add_(value, alpha=1 - decay)
        return decay

    step = wrap(step)
    for n in range(7):
        yield step(batch(lib, n)), updates, list(shadow.values())


@case
def a_count_read_before_it_grows(lib: Any, wrap: Any) -> Seen:
    count = lib.tensor(1.5)

    def step(x):
        n = count.item()
        count.mul_(1.25)
        return x * n, x / count, n

    step = wrap(step)
    for n in range(7):
        yield step(ramp(lib, 3, start=0.3 * n)), count
        if n == 3:
            count.fill_(2.0)


@case
def loops_as_long_as_a_tensor_says(lib: Any, wrap: Any) -> Seen:
    rounds = lib.tensor(1)

    def step(x):
        for _ in range(int(rounds)):
            x = (x * 1.5).sin()
        rounds.copy_(rounds % 3 + 1)
        return x

    step = wrap(step)
    for n in range(10):
        yield step(ramp(lib, 3, start=0.1 * n)), rounds


@case
def entries_of_a_small_table(lib: Any, wrap: Any) -> Seen:
    table, uses = lib.tensor([0.5, 1.0, 2.0]), lib.zeros(3, dtype=lib.long)

    def step(x, key):
        weight = table[key].item()
        uses[key] += 1
        if uses[key].item() % 2 == 0:
            table[key] *= 0.5
        return x * weight

    step = wrap(step)
    for n in range(9):
        yield step(ramp(lib, 2, start=float(n)), n % 2), table, uses


@case
def lists_of_a_tensor_that_is_written(lib: Any, wrap: Any) -> Seen:
    window = lib.tensor([1.0, 2.0, 3.0])

    def step(x):
        first, *_, last = window.tolist()
        window.copy_(lib.cat([window[1:], x.sum().reshape(1)]))
        return x * first + last

    step = wrap(step)
    for n in range(7):
        yield step(ramp(lib, 2, start=0.1 * n)), window


@case
def draws_around_a_pointer(lib: Any, wrap: Any) -> Seen:
    pointer, rows = lib.zeros(1, dtype=lib.long), lib.zeros(3, 2)

    def step(x):
        noisy = x + lib.rand(2)
        at = int(pointer)
        rows[at] = noisy * lib.rand(1)
        pointer[0] = (at + 1) % 3
        return rows + lib.rand(1)

    step = wrap(step)
    for n in range(8):
        lib.manual_seed(n)
        yield step(ramp(lib, 2, start=float(n))).shape, pointer, (rows != 0).sum()


@case
def a_threshold_that_adapts(lib: Any, wrap: Any) -> Seen:
    limit, skipped = lib.tensor(0.5), lib.tensor(0)
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        if loss > limit:
            skipped.add_(1)
            limit.mul_(1.5)
            return None
        optimizer.step()
        limit.mul_(0.9)
        return loss

    step = wrap(step)
    for n in range(9):
        yield step(batch(lib, n)), limit, skipped, weights(model)


@case
def an_argument_that_is_read_and_written(lib: Any, wrap: Any) -> Seen:
    def step(x, state):
        n = int(state)
        y = x * n
        state += 2
        return y, int(state) - n

    step = wrap(step)
    state = lib.tensor(1)
    for n in range(7):
        yield step(ramp(lib, 2, start=0.3 * n), state), state
        if n == 3:
            state = lib.tensor(-4)


@case
def memory_that_numpy_moves(lib: Any, wrap: Any) -> Seen:
    memory = np.zeros(1, dtype=np.int64)
    pointer, rows = lib.from_numpy(memory), lib.zeros(3, 2)

    def step(x):
        rows[int(pointer)] = x
        pointer.copy_((pointer + 1) % 3)
        return rows.sum(0)

    step = wrap(step)
    for n in range(8):
        yield step(ramp(lib, 2, start=0.3 * n)), rows, memory
        if n == 4:
            memory[0] = 0
