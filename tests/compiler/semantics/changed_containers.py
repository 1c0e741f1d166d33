"""Lists, deques and sets that a step both reads and changes, and functions of changing numbers."""

from __future__ import annotations

import math
import threading
from collections import deque
from types import SimpleNamespace
from typing import Any

from .registry import Seen, attempt, batch, case, layer, ramp, weights


@case
def a_queue_worked_off(lib: Any, wrap: Any) -> Seen:
    queue = [float(n) for n in range(12)]
    step = wrap(lambda x: x * queue.pop(0) + queue.pop())
    for n in range(7):
        if n == 4:
            queue.insert(0, 100.0)
        yield attempt(step, ramp(lib, 3)), queue


@case
def a_deque_filled_and_emptied(lib: Any, wrap: Any) -> Seen:
    waiting = deque([lib.zeros(3), lib.ones(3)])

    def step(x):
        first = waiting.popleft()
        waiting.append(first + x)
        return first * 2

    step = wrap(step)
    for n in range(7):
        yield step(ramp(lib, 3, start=float(n))), list(waiting), type(waiting)


@case
def a_queue_that_runs_empty(lib: Any, wrap: Any) -> Seen:
    queue = [1.0, 2.0, 3.0]

    def step(x):
        if queue:
            return x * queue.pop()
        return -x

    step = wrap(step)
    for n in range(8):
        if n == 6:
            queue += [7.0, 8.0]
        yield step(ramp(lib, 3)), queue


@case
def a_pop_of_an_empty_list(lib: Any, wrap: Any) -> Seen:
    queue = [1.0, 2.0, 3.0]
    step = wrap(lambda x: x * queue.pop())
    for n in range(6):
        if n == 5:
            queue.append(4.0)
        yield attempt(step, ramp(lib, 3)), queue


@case
def the_length_in_arithmetic(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(log=[])

    def step(x):
        s.log.append(x.sum())
        return x / len(s.log) + len(s.log) ** 2

    step = wrap(step)
    for n in range(8):
        if n == 5:
            s.log.clear()
        yield step(ramp(lib, 3, start=float(n))), s.log


@case
def the_length_under_another_name(lib: Any, wrap: Any) -> Seen:
    log, size = [], len

    def step(x):
        log.append(1)
        return x * size(log) + sum(map(len, [log, "ab"]))

    step = wrap(step)
    for _ in range(5):
        yield step(ramp(lib, 3)), log


@case
def len_replaced_by_a_global(lib: Any, wrap: Any) -> Seen:
    log = []

    def step(x):
        log.append(1)
        return x * len(log)

    step = wrap(step)
    for n in range(6):
        if n == 3:
            globals()["len"] = lambda value: 100
        yield step(ramp(lib, 3))
    del globals()["len"]
    yield step(ramp(lib, 3)), "len" in globals(), "float" in globals()


@case
def the_entry_before_the_last(lib: Any, wrap: Any) -> Seen:
    log = [lib.zeros(3), lib.ones(3)]

    def step(x):
        log.append(log[-1] + log[-2] * x)
        return log[0] + log[-1] - log[-3]

    step = wrap(step)
    for n in range(7):
        if n == 4:
            log[-1] = lib.full((3,), 5.0)
        yield step(ramp(lib, 3, start=0.1 * n)), log


@case
def an_entry_written_in_place(lib: Any, wrap: Any) -> Seen:
    log = [lib.zeros(3)]

    def step(x):
        log[-1].add_(x)
        log.append(log[-1] * 2)
        return log[-1].sum()

    step = wrap(step)
    for n in range(6):
        yield step(ramp(lib, 3, start=float(n))), log


@case
def an_entry_that_is_reached_otherwise(lib: Any, wrap: Any) -> Seen:
    first = lib.zeros(3)
    log = [first]

    def step(x):
        log.append(log[-1] + x)
        first.add_(1)
        return log[0] * 2 + first

    step = wrap(step)
    for n in range(6):
        yield step(ramp(lib, 3, start=float(n))), log, first


@case
def a_window_averaged(lib: Any, wrap: Any) -> Seen:
    window = deque(maxlen=3)

    def step(x):
        window.append(x.mean())
        return sum(window) / len(window), max(window)

    step = wrap(step)
    for n in range(10):
        if n == 7:
            window.clear()
        yield step(ramp(lib, 3, start=float(n))), list(window)


@case
def a_window_of_numbers_sorted(lib: Any, wrap: Any) -> Seen:
    window = deque([3.0, 1.0, 2.0], maxlen=3)

    def step(x, n):
        window.append(n)
        return x * sorted(window)[1]

    step = wrap(step)
    for n in (4.0, 2.5, 9.0, 1.0, 3.0, 8.0, 2.0, 7.0):
        yield step(ramp(lib, 3), n), list(window), [type(v) for v in window]


@case
def a_list_of_fixed_length_shifted(lib: Any, wrap: Any) -> Seen:
    states = [lib.zeros(2), lib.ones(2), lib.full((2,), 2.0)]

    def step(x):
        states.insert(0, states.pop() + x)
        states.reverse()
        return lib.stack(states).sum(0)

    step = wrap(step)
    for n in range(7):
        if n == 4:
            states[0] = lib.full((2,), -1.0)
        yield step(ramp(lib, 2, start=float(n))), states


@case
def an_exception_between_a_pop_and_an_append(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(queue=[1.0, 2.0, 3.0], n=0)

    def step(x):
        s.n += 1
        value = s.queue.pop(0)
        if s.n % 3 == 0:
            raise ValueError("third")
        s.queue.append(value + 1)
        return x * value

    step = wrap(step)
    for _ in range(9):
        yield attempt(step, ramp(lib, 3)), s.queue, s.n, [type(v) for v in s.queue]


@case
def two_functions_on_one_queue(lib: Any, wrap: Any) -> Seen:
    queue = [0.0]

    def produce(x):
        queue.append(queue[-1] + 1)
        return x * len(queue)

    def consume(x):
        return x * queue.pop(0) if len(queue) > 2 else x

    produce, consume = wrap(produce), wrap(consume)
    for n in range(12):
        yield (consume if n % 3 == 2 else produce)(ramp(lib, 3)), queue


@case
def a_queue_shared_by_threads(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(queue=[float(n) for n in range(60)])
    step, found = wrap(lambda x: x + s.queue.pop()), []

    def work():
        for _ in range(15):
            found.append(float(step(lib.zeros(1))[0]))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    yield sorted(found), s.queue


@case
def membership_in_a_growing_set(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(seen=set())

    def step(x, name):
        is_new = name not in s.seen
        s.seen.add(name)
        return x * 2 if is_new else -x

    step = wrap(step)
    for n, name in enumerate("abacbdaabd"):
        if n == 7:
            s.seen.discard("a")
        yield step(ramp(lib, 3), name), s.seen


@case
def a_list_extended_by_itself(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(log=[1])

    def step(x):
        s.log += [2, 3]
        s.log.extend(v for v in (4,))
        s.log.append(len(s.log))
        return x * s.log[-1]

    step = wrap(step)
    for _ in range(6):
        yield step(ramp(lib, 3)), s.log


@case
def a_container_compared_and_shown(lib: Any, wrap: Any) -> Seen:
    log = [1, 2]

    def step(x):
        log.append(3)
        return x * (log == [1, 2, 3]), str(log), log[1:], log + [0], isinstance(log, list)

    step = wrap(step)
    for n in range(5):
        if n == 3:
            del log[2:]
        yield step(ramp(lib, 3)), log


@case
def functions_of_a_counter(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(n=0, rate=0.0)

    def step(x):
        s.n += 1
        s.rate = math.cos(s.n / 3) * math.sqrt(s.n) + math.pow(s.n, 0.5)
        return x * s.rate + float(s.n) + int(s.rate) + round(s.rate, 1), math.floor(s.rate)

    step = wrap(step)
    for n in range(7):
        if n == 4:
            s.n = 50
        yield step(ramp(lib, 3)), s.rate, s.n, type(s.rate)


@case
def a_function_that_leaves_its_domain(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(n=3)

    def step(x):
        s.n -= 1
        try:
            gain = math.log(s.n)
        except ValueError:
            gain = -1.0
        return x * gain

    step = wrap(step)
    for _ in range(7):
        yield step(ramp(lib, 3)), s.n


@case
def functions_that_are_patched(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(n=0)

    def step(x):
        s.n += 1
        return x * math.sin(s.n)

    step, kept = wrap(step), math.sin
    for n in range(6):
        math.sin = (lambda v: 10.0 * v) if n in (3, 4) else kept
        try:
            yield step(ramp(lib, 3))
        finally:
            math.sin = kept
    yield math.sin is kept, type(math.cos).__name__


@case
def types_used_as_functions_and_as_types(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(n=0)

    def step(x):
        s.n += 1
        gain = float(s.n)
        return x.to(lib.float64) * gain, isinstance(gain, float), isinstance(s.n, (int, str))

    step = wrap(step)
    for _ in range(5):
        yield step(ramp(lib, 3))


@case
def a_warm_up_by_a_function(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.AdamW(model.parameters(), lr=0.1)
    s = SimpleNamespace(n=0)

    def rate(n):
        return 0.1 * min(1.0, (n + 1) / 3) * 0.5 * (1 + math.cos(math.pi * n / 9))

    def step(x):
        for group in optimizer.param_groups:
            group["lr"] = rate(s.n)
        s.n += 1
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = wrap(step)
    for n in range(8):
        yield step(batch(lib, n)), weights(model), optimizer.param_groups[0]["lr"]
