"""Effects of programs: places that a step gives other values, changed by the caller in between."""

from __future__ import annotations

import functools
import math
import threading
import weakref
from types import SimpleNamespace
from typing import Any

from .registry import Seen, attempt, batch, case, layer, leaf, ramp


@case
def a_slot_given_another_shape(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(h=lib.zeros(3))

    def step(x):
        s.h = s.h * 0.5 + x
        return s.h.sum()

    step = wrap(step)
    for n in range(10):
        if n == 3:
            s.h = lib.zeros(1)
        if n == 6:
            s.h = lib.zeros(2, 3)
        yield step(ramp(lib, 3, start=float(n))), s.h


@case
def a_slot_given_another_dtype_and_layout(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(h=lib.zeros(3))

    def step(x):
        s.h = s.h + x
        return s.h * 2

    step = wrap(step)
    values = {3: lib.zeros(3, dtype=lib.float64), 5: ramp(lib, 6)[::2], 7: lib.tensor(1.0)}
    for n in range(9):
        s.h = values.get(n, s.h)
        yield step(ramp(lib, 3, start=float(n))), s.h


@case
def a_slot_written_in_place_between_calls(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(h=lib.zeros(3))

    def step(x):
        s.h = s.h + x
        return s.h.sum()

    step = wrap(step)
    for n in range(6):
        s.h.mul_(2).add_(n)
        yield step(ramp(lib, 3)), s.h


@case
def a_slot_deleted_and_set_again(lib: Any, wrap: Any) -> Seen:
    class Meter:
        def __init__(self):
            self.avg = lib.zeros(3)

    m = Meter()

    def step(x):
        m.avg = m.avg + x
        return m.avg.mean()

    step = wrap(step)
    for n in range(8):
        if n == 4:
            del m.avg
        if n == 5:
            m.avg = lib.ones(3)
        yield attempt(step, ramp(lib, 3)), getattr(m, "avg", None)


@case
def one_tensor_in_two_slots(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(a=lib.zeros(3), b=lib.ones(3))

    def step(x):
        s.a, s.b = s.b, s.a + x
        return s.a.sum() - s.b.sum()

    step = wrap(step)
    for n in range(9):
        if n == 4:
            s.b = s.a
        if n == 7:
            s.a = s.b[:]
        yield step(ramp(lib, 3, start=float(n))), s.a, s.b, s.a is s.b


@case
def a_view_of_a_slot_elsewhere(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(h=lib.zeros(3), part=None)

    def step(x):
        s.h = s.h + x
        return s.h.sum() if s.part is None else s.part.sum()

    step = wrap(step)
    for n in range(8):
        if n == 4:
            s.part = s.h[1:]
            s.part.fill_(5.0)
        yield step(ramp(lib, 3)), s.h, s.part


@case
def the_slot_passed_as_an_argument(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(h=lib.zeros(3))

    def step(x):
        x.add_(1)
        s.h = s.h + x
        return s.h.sum()

    step = wrap(step)
    for n in range(7):
        yield step(s.h if n in (3, 5) else ramp(lib, 3)), s.h


@case
def a_slot_that_requires_grad(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)
    s = SimpleNamespace(h=lib.zeros(3))

    def step(x):
        s.h = (s.h * w + x).tanh()
        return s.h.sum()

    step = wrap(step)
    for n in range(8):
        loss = step(ramp(lib, 3))
        if n % 3 == 2:
            loss.backward()
            s.h = s.h.detach()
        yield loss.detach(), s.h, w.grad


@case
def kept_without_gradients(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    s = SimpleNamespace(last=None)

    def step(x):
        with lib.no_grad():
            s.last = model(x)
        return model(x).sum()

    step = wrap(step)
    for n in range(5):
        loss = step(batch(lib, n))
        loss.backward()
        yield s.last, model.weight.grad


@case
def activations_kept_by_a_hook(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    kept = {"out": None}

    def hook(module, args, output):
        kept["out"] = output.detach()

    model.register_forward_hook(hook)
    step = wrap(lambda x: model(x).square().mean().detach())
    for n in range(6):
        yield step(batch(lib, n)), kept


@case
def a_weak_reference_to_the_former_tensor(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(h=lib.zeros(3))

    def step(x):
        s.h = s.h + x
        return s.h * 1

    step = wrap(step)
    for _ in range(5):
        former = weakref.ref(s.h)
        step(ramp(lib, 3))
        yield s.h
    del former


@case
def nothing_stored_by_a_failing_call(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(h=lib.zeros(3), n=0)

    def step(x):
        h = s.h + x
        s.n += 1
        s.h = h
        return h

    step = wrap(step)
    for n in range(7):
        yield attempt(step, ramp(lib, 4 if n == 4 else 3)), s.h, s.n


@case
def state_in_a_class_of_slots(lib: Any, wrap: Any) -> Seen:
    class Cell:
        __slots__ = ("h", "n")

        def __init__(self):
            self.h, self.n = lib.zeros(3), 0

    cell = Cell()

    def step(x):
        cell.h = cell.h * 0.5 + x
        cell.n += 2
        return cell.h * cell.n

    step = wrap(step)
    for n in range(6):
        yield step(ramp(lib, 3, start=float(n))), cell.h, cell.n


@case
def state_in_a_class_attribute(lib: Any, wrap: Any) -> Seen:
    class Shared:
        total = lib.zeros(3)
        count = 0

    def step(x):
        Shared.total = Shared.total + x
        Shared.count += 1
        return Shared.total / Shared.count

    step = wrap(step)
    for n in range(6):
        yield step(ramp(lib, 3, start=float(n))), Shared.total, Shared.count


@case
def a_property_with_a_setter(lib: Any, wrap: Any) -> Seen:
    class Meter:
        def __init__(self):
            self._value, self.sets = lib.zeros(3), 0

        @property
        def value(self):
            return self._value

        @value.setter
        def value(self, value):
            self.sets += 1
            self._value = value

    m = Meter()

    def step(x):
        m.value = m.value + x
        return m.value.sum()

    step = wrap(step)
    for n in range(6):
        yield step(ramp(lib, 3, start=float(n))), m.value, m.sets


@case
def a_list_rebuilt(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(window=[lib.zeros(3), lib.ones(3)])

    def step(x):
        s.window = [s.window[1], x * 2]
        return s.window[0] + s.window[1]

    step = wrap(step)
    for n in range(8):
        if n == 4:
            s.window.append(lib.ones(3))
        if n == 6:
            s.window = (lib.ones(3), lib.zeros(3))
        yield step(ramp(lib, 3, start=float(n))), s.window


@case
def a_slot_read_under_two_names(lib: Any, wrap: Any) -> Seen:
    h = lib.zeros(3)
    s, t = SimpleNamespace(h=h), SimpleNamespace(h=h)

    def step(x):
        s.h = s.h + x
        return s.h.sum() + t.h.sum()

    step = wrap(step)
    for n in range(6):
        if n == 3:
            t.h = s.h
        yield step(ramp(lib, 3)), s.h, t.h


@case
def a_counter_of_many_kinds(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(n=0)

    def step(x):
        s.n += 1
        times = s.n if abs(s.n) < 2**60 else 3  # tensors take 64-bit integers
        return x * times, isinstance(s.n, int), isinstance(s.n, bool)

    step = wrap(step)
    values = {3: 2**60, 5: True, 7: 1.5, 9: -0.0, 11: math.nan, 13: math.inf, 15: 2}
    for n in range(18):
        s.n = values.get(n, s.n)
        yield step(ramp(lib, 3)), s.n, type(s.n)


@case
def a_count_in_integer_tensors(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(n=1)

    def step(x):
        s.n += 1
        return x * s.n, x + s.n, x // s.n, x % s.n, s.n - x, x / s.n, x > s.n

    step = wrap(step)
    for n in range(5):
        yield step(lib.arange(4) + n), s.n


@case
def a_division_that_fails_once(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(n=3)

    def step(x):
        s.n -= 1
        try:
            return x * (1 / s.n)
        except ZeroDivisionError:
            return x * 100

    step = wrap(step)
    for _ in range(6):
        yield step(ramp(lib, 3)), s.n


@case
def numbers_that_depend_on_each_other(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(a=1, b=1, lr=0.5)

    def step(x):
        s.a, s.b = s.b, s.a + s.b
        s.lr = max(s.lr * 0.7, 0.1)
        return x * s.lr, s.a, {"b": s.b, "parity": s.b % 2}

    step = wrap(step)
    for n in range(9):
        if n == 5:
            s.a = 100
        yield step(ramp(lib, 3)), s.a, s.b, s.lr


@case
def a_position_that_wraps_around(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(at=0)

    def step(x):
        s.at = (s.at + 1) % 3
        return x[s.at], x[: s.at], x.roll(s.at)

    step = wrap(step)
    for _ in range(11):
        yield step(ramp(lib, 3)), s.at


@case
def a_flag_that_toggles(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(on=False, mode="a")

    def step(x):
        s.on = not s.on
        s.mode = {"a": "b", "b": "c", "c": "a"}[s.mode]
        return x if s.on else -x

    step = wrap(step)
    for n in range(14):
        if n == 9:
            s.mode = "c"
        yield step(ramp(lib, 3)), s.on, s.mode


@case
def a_loop_as_long_as_the_count(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(n=0)

    def step(x):
        s.n += 1
        i = 0
        while i < s.n:
            x = x + 1
            i += 1
        return x

    step = wrap(step)
    for _ in range(14):
        yield step(ramp(lib, 3)), s.n


@case
def a_count_kept_elsewhere(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(n=0, before=None, log=[])

    def step(x):
        s.before = s.n
        s.n += 1
        if s.n > 4:
            s.log = [*s.log, s.n]
        return x * s.n

    step = wrap(step)
    for _ in range(8):
        yield step(ramp(lib, 3)), s.before, s.n, s.log, type(s.before)


@case
def an_exception_every_third_count(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(n=0)

    def step(x):
        s.n += 1
        if s.n % 3 == 0:
            raise ValueError(f"call {s.n}")
        return x + s.n

    step = wrap(step)
    for _ in range(9):
        yield attempt(step, ramp(lib, 3)), s.n, type(s.n)


@case
def a_count_shared_by_two_steps(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(n=0)

    def up(x):
        s.n += 1
        return x + s.n

    def read(x):
        return x * s.n

    up, read = wrap(up), wrap(read)
    for n in range(7):
        yield up(ramp(lib, 3)), read(ramp(lib, 3)), s.n
        if n == 4:
            s.n = 0


@case
def a_count_in_a_nested_step(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(n=0, h=lib.zeros(3))

    def inner(x):
        s.n += 1
        s.h = s.h + x * s.n
        return s.h

    inner = wrap(inner)
    outer = wrap(lambda x: inner(x) * 2 + inner(x))
    for n in range(6):
        yield outer(ramp(lib, 3)), inner(ramp(lib, 3, start=float(n))), s.n, s.h


@case
def two_threads(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(n=0, total=lib.zeros(3))
    lock = threading.Lock()

    def step(x):
        s.n += 1
        s.total = s.total + x
        return s.total

    step = wrap(step)

    def work():
        for _ in range(20):
            with lock:
                step(lib.ones(3))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    yield s.n, s.total


@case
def a_partial_with_state(lib: Any, wrap: Any) -> Seen:
    state = {"h": lib.zeros(3), "n": 0, None: 1}

    def update(held, x):
        held["h"] = held["h"] + x
        held["n"] += 1
        held[None] *= 2
        return held["h"] / held["n"] + held[None]

    step = wrap(functools.partial(update, state))
    for n in range(6):
        if n == 4:
            state["n"] = 10
        yield step(ramp(lib, 3)), state


@case
def a_module_with_a_counter_and_a_buffer(lib: Any, wrap: Any) -> Seen:
    class Net(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.n = layer(lib), 0
            self.register_buffer("mean", lib.zeros(2))

        def forward(self, x):
            y = self.layer(x)
            self.n += 1
            if self.training:
                self.mean = 0.9 * self.mean + 0.1 * y.mean(0).detach()
            return (y - self.mean) * self.n

    net = Net()
    step = wrap(lambda x: net(x).square().mean())
    for n in range(9):
        if n == 4:
            net.eval()
        if n == 6:
            net.train()
            net.n = 0
        loss = step(batch(lib, n))
        loss.backward()
        yield loss.detach(), net.mean, net.n, net.layer.weight.grad


@case
def a_rate_that_decays_in_the_optimizer(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x):
        group = optimizer.param_groups[0]
        group["lr"] *= 0.9
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        group["momentum"] = group["momentum"] * 0.99

    step = wrap(step)
    for n in range(7):
        if n == 4:
            optimizer.param_groups[0]["lr"] = 0.2
        step(batch(lib, n))
        yield model.weight, optimizer.param_groups[0]["lr"]
