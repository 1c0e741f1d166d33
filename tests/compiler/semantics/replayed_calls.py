"""Impure calls that programs repeat: draws, iterators, clocks, output; with guards between them,
state that changes, exceptions, and other users of the same stream."""

from __future__ import annotations

import io
import itertools
import random
import sys
import threading
import time
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np

from .registry import Seen, attempt, batch, case, layer, mlp, ramp, weights


@case
def a_draw_below_a_float_argument(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, p: x * 2 if random.random() < p else x - 1)
    for n in range(12):
        yield step(ramp(lib, 3), 0.1 * (n % 5))
    yield random.random()


@case
def a_draw_below_an_attribute(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(p=0.3)
    step = wrap(lambda x: x * 2 if random.random() < s.p else x - 1)
    for n in range(12):
        s.p = 0.3 if n % 4 else 0.9
        yield step(ramp(lib, 3))


@case
def as_many_draws_as_chance_wants(lib: Any, wrap: Any) -> Seen:
    def step(x):
        count = 0
        while random.random() < 0.6:
            x, count = x * 2, count + 1
        return x, count, random.random()

    step = wrap(step)
    for _ in range(20):
        yield step(ramp(lib, 3))


@case
def a_draw_that_decides_whether_to_draw(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(n=0, last=0.0)

    def step(x):
        s.n += 1
        if s.n % 2 and random.random() < 0.5:
            s.last = random.gauss(0.0, float(len("ab")))
        return x * s.last + s.n

    step = wrap(step)
    for n in range(14):
        if n == 9:
            random.seed(3)
        yield step(ramp(lib, 3)), s.n, s.last, random.getstate()[1][-1]


@case
def an_argument_of_a_draw_is_a_counter(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(n=0)

    def step(x):
        s.n += 1
        return x * random.uniform(0, s.n) + random.randint(0, s.n)

    step = wrap(step)
    for _ in range(6):
        yield step(ramp(lib, 3))


@case
def draws_stored_appended_and_returned(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(last=0.5, log=[])

    def step(x):
        s.last = random.random()
        s.log.append(random.randrange(100))
        return {"y": x * s.last, "draw": random.random(), "twice": 2 * s.last}

    step = wrap(step)
    for _ in range(6):
        yield step(ramp(lib, 3)), s.last, s.log, type(s.last), [type(v) for v in s.log]


@case
def two_functions_on_one_stream(lib: Any, wrap: Any) -> Seen:
    noise = random.Random(5)
    a = wrap(lambda x: x * noise.random())
    b = wrap(lambda x: x + noise.gauss(0, 1) * noise.random())
    for n in range(6):
        yield (a if n % 3 else b)(ramp(lib, 3)), noise.random()


@case
def an_exception_after_a_draw(lib: Any, wrap: Any) -> Seen:
    def step(x):
        gain = random.random()
        if gain < 0.4:
            raise ValueError("small")
        return x * gain * random.random()

    step = wrap(step)
    for _ in range(12):
        yield attempt(step, ramp(lib, 3))
    yield random.random()


@case
def a_draw_that_raises(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(top=3)

    def step(x):
        random.random()
        return x * random.randrange(s.top)

    step = wrap(step)
    for n in range(8):
        s.top = 0 if n in (3, 5) else 3
        yield attempt(step, ramp(lib, 3)), random.random()


@case
def a_lookup_that_fails_after_a_draw(lib: Any, wrap: Any) -> Seen:
    table = ramp(lib, 4)

    def step(i):
        gain = random.random()
        return table[i] * gain

    step = wrap(step)
    for n in (0, 1, 9, 2, 9, 3):
        yield attempt(step, lib.tensor([n])), random.random()


@case
def a_function_stored_by_the_step(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(draw=None, of=random.Random(2))

    def step(x):
        s.draw = random.random
        s.other = s.of.random
        return x * s.draw() * s.other()

    step = wrap(step)
    for _ in range(5):
        yield step(ramp(lib, 3)), type(s.draw).__name__, s.draw is random.random
        yield s.draw(), s.other(), type(s.other).__name__


@case
def a_function_returned_by_the_step(lib: Any, wrap: Any) -> Seen:
    source = itertools.count(5)
    step = wrap(lambda x: (x * random.random(), random.random, source))
    for _ in range(4):
        y, draw, count = step(ramp(lib, 3))
        yield y, draw is random.random, count is source, type(count).__name__


@case
def an_alias_of_a_draw(lib: Any, wrap: Any) -> Seen:
    from random import gauss as normal

    uniform = random.uniform
    step = wrap(lambda x: x * normal(0, 1) + uniform(1, 2))
    for n in range(6):
        if n == 3:
            uniform = lambda low, high: 7.0
        yield step(ramp(lib, 3))


@case
def draws_in_a_tuple_of_functions(lib: Any, wrap: Any) -> Seen:
    draws = (random.random, random.gauss)
    step = wrap(lambda x: x * draws[0]() + draws[1](0, 1))
    for _ in range(5):
        yield step(ramp(lib, 3))


@case
def a_local_source(lib: Any, wrap: Any) -> Seen:
    def step(x, n):
        source, other = random.Random(n), np.random.default_rng(n)
        return x * source.random() + float(other.normal()), random.random()

    step = wrap(step)
    for n in (1, 2, 1, 2, 3):
        yield step(ramp(lib, 3), n)


@case
def sources_that_the_system_seeds(lib: Any, wrap: Any) -> Seen:
    from numpy.random import RandomState

    steps = [
        wrap(lambda x: x * random.Random().random()),
        wrap(lambda x: x * float(np.random.default_rng().random())),
        wrap(lambda x: x * RandomState().rand()),
        wrap(lambda x: x * float(np.random.Generator(np.random.PCG64()).random())),
    ]
    for step in steps:
        yield len({float(step(lib.ones(1))[0]) for _ in range(4)})


@case
def a_state_saved_and_set_back(lib: Any, wrap: Any) -> Seen:
    def step(x):
        state = random.getstate()
        first = random.random()
        random.setstate(state)
        return x * first, random.random()

    step = wrap(step)
    for _ in range(5):
        yield step(ramp(lib, 3))


@case
def seeded_and_drawn(lib: Any, wrap: Any) -> Seen:
    def step(x):
        random.seed(7)
        return x * random.random()

    step = wrap(step)
    for n in range(6):
        if n == 3:
            random.seed(1)
        yield step(ramp(lib, 3))
        if n % 2:
            yield random.random()


@case
def a_size_that_is_drawn(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: lib.zeros(random.randint(1, 3)) + x)
    for _ in range(10):
        yield step(lib.ones(1))


@case
def a_draw_in_a_hook_and_in_a_layer(lib: Any, wrap: Any) -> Seen:
    class Noisy(lib.nn.Module):
        def forward(self, x):
            return x * (1 + random.random()) if self.training else x

    model = lib.nn.Sequential(layer(lib), Noisy())
    model[0].register_forward_hook(lambda m, i, o: o + random.random())
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = wrap(step)
    for n in range(7):
        model.train(n != 4)
        yield step(batch(lib, n)), weights(model)


@case
def numpy_scalars_of_many_kinds(lib: Any, wrap: Any) -> Seen:
    source = np.random.default_rng(3)

    def step(x):
        return x * np.random.normal() + source.normal() + np.random.randint(3), source.integers(5)

    step = wrap(step)
    for _ in range(5):
        yield step(ramp(lib, 3))
    yield source.random(), np.random.rand()


@case
def an_iterator_of_lists_that_are_changed(lib: Any, wrap: Any) -> Seen:
    lists = [[float(n)] for n in range(6)]
    source = iter(lists)

    def step(x):
        held = next(source)
        held.append(1.0)
        return x * sum(held)

    step = wrap(step)
    for _ in range(5):
        yield step(ramp(lib, 3)), lists


@case
def an_iterator_of_tensors_of_other_shapes(lib: Any, wrap: Any) -> Seen:
    source = itertools.cycle([ramp(lib, 3), ramp(lib, 4), ramp(lib, 3).double()])
    step = wrap(lambda gain: next(source) * gain)
    for n in range(8):
        yield step(float(n))


@case
def an_iterator_of_parameters(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    source = itertools.cycle(list(model.parameters()))

    def step(x):
        p = next(source)
        loss = (p * x).sum()
        loss.backward()
        with lib.no_grad():
            p -= 0.1 * p.grad
        return loss.detach()

    step = wrap(step)
    for n in range(8):
        yield step(lib.full((), float(n))), weights(model)


@case
def an_iterated_tensor_that_is_written(lib: Any, wrap: Any) -> Seen:
    rows = [ramp(lib, 3, start=float(n)) for n in range(2)]
    source = itertools.cycle(rows)
    total = lib.zeros(3)

    def step(x):
        row = next(source)
        total.add_(row)
        row.mul_(2)
        return row + x, total.sum()

    step = wrap(step)
    for n in range(6):
        if n == 3:
            rows[1].zero_()
        yield step(lib.ones(3)), rows, total


@case
def the_same_tensor_iterated_and_closed_over(lib: Any, wrap: Any) -> Seen:
    rows = [ramp(lib, 3, start=float(n)) for n in range(3)]
    w, source = rows[1], itertools.cycle(rows)

    def step():
        row = next(source)
        row.add_(1)
        return row * w

    step = wrap(step)
    for _ in range(7):
        yield step(), w


@case
def a_list_appended_to_while_it_is_iterated(lib: Any, wrap: Any) -> Seen:
    items = [1.0]
    source = iter(items)

    def step(x, n):
        items.append(n)
        return x * next(source)

    step = wrap(step)
    for n in range(6):
        yield step(ramp(lib, 3), float(n)), items


@case
def strings_and_flags_iterated(lib: Any, wrap: Any) -> Seen:
    source = itertools.cycle([("add", True), ("mul", False), ("add", False)])

    def step(x):
        name, negate = next(source)
        y = getattr(lib, name)(x, 2.0)
        return -y if negate else y

    step = wrap(step)
    for _ in range(8):
        yield step(ramp(lib, 3))


@case
def an_iterator_read_by_others(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(source=itertools.count())
    step = wrap(lambda x: x * next(s.source))
    for n in range(8):
        if n == 5:
            s.source = itertools.count(100, 10)
        yield step(ramp(lib, 3)), next(s.source)


@case
def an_iterator_taken_apart(lib: Any, wrap: Any) -> Seen:
    source = iter(range(30))

    def step(x):
        a, b = next(source), next(source)
        rest = list(itertools.islice(source, 2))
        return x * a + b, rest, max(a, b), divmod(b, 3)

    step = wrap(step)
    for _ in range(6):
        yield step(ramp(lib, 3))


@case
def an_iterator_copied(lib: Any, wrap: Any) -> Seen:
    import copy

    source = iter([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])

    def step(x):
        peeked = next(copy.copy(source))
        return x * peeked + next(source)

    step = wrap(step)
    for _ in range(4):
        yield step(ramp(lib, 3))


@case
def printed_numbers_of_many_kinds(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(n=0)

    def step(x, gain):
        s.n += 1
        print("call", s.n, s.n / 2, s.n % 2 == 0, None, sep="|", end=".\n")
        print([1, 2], ("a", 3.0), gain)
        return x * gain

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 3), 0.5 * n)


@case
def printed_random_numbers(lib: Any, wrap: Any) -> Seen:
    def step(x):
        draw = random.random()
        print(draw, random.randint(1, 9))
        return x * draw

    step = wrap(step)
    for _ in range(5):
        yield step(ramp(lib, 3))


@case
def printed_before_an_exception(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(n=0)

    def step(x):
        s.n += 1
        print("start")
        if s.n % 3 == 0:
            raise ValueError("third")
        print("end")
        return x

    step = wrap(step)
    for _ in range(8):
        yield attempt(step, ramp(lib, 3)), s.n


@case
def printed_to_an_object_that_reads_the_state(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(n=0, seen=[])

    class Tee(io.StringIO):
        def write(self, text):
            s.seen.append((text, s.n))
            return super().write(text)

    def step(x):
        s.n += 1
        print("one")
        s.n += 1
        return x * s.n

    step = wrap(step)
    for n in range(6):
        kept, sys.stdout = sys.stdout, Tee() if n > 2 else sys.stdout
        try:
            yield step(ramp(lib, 3)), s.n
        finally:
            sys.stdout = kept
    yield s.seen


@case
def printed_to_a_closed_stream(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(n=0)

    def step(x):
        s.n += 1
        print("one")
        s.n += 10
        return x

    step = wrap(step)
    for n in range(5):
        kept, closed = sys.stdout, io.StringIO()
        closed.close()
        sys.stdout = closed if n == 3 else sys.stdout
        try:
            found = attempt(step, ramp(lib, 3))
        finally:
            sys.stdout = kept
        yield found, s.n


@case
def print_shadowed_by_a_parameter(lib: Any, wrap: Any) -> Seen:
    seen = []

    def step(x, print=print):
        print("here")
        return x + 1

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 3)) if n % 2 else step(ramp(lib, 3), seen.append), seen


@case
def warned_under_changing_filters(lib: Any, wrap: Any) -> Seen:
    def step(x):
        warnings.warn("user: here", UserWarning, stacklevel=1)
        return x * 2

    step = wrap(step)
    for action in ("always", "ignore", "always", "error", "default", "always", "once"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.filterwarnings(action, message="user: here")
            found = attempt(step, ramp(lib, 3))
        yield found, [(str(w.message), w.lineno > 0, w.filename[-17:]) for w in caught
                      if str(w.message).startswith("user")]  # fmt: skip


@case
def warnings_at_three_levels(lib: Any, wrap: Any) -> Seen:
    def inner(x, level):
        warnings.warn("user: inner", stacklevel=level)
        return x

    def step(x, level):
        return inner(inner(x, level), 1) * 2

    step = wrap(step)
    for n in range(6):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = step(ramp(lib, 3), 1 + n % 2)
        yield found, [w.lineno for w in caught if str(w.message).startswith("user")]


@case
def filters_changed_by_the_step(lib: Any, wrap: Any) -> Seen:
    def step(x):
        warnings.simplefilter("ignore")
        return x * 2

    step = wrap(step)
    for _ in range(4):
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            found = step(ramp(lib, 3))
            yield found, warnings.filters[0][0]


@case
def clocks_before_the_operations(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(last=time.monotonic(), late=0)

    def step(x):
        now = time.monotonic()
        s.late = 1 if now - s.last > 3600 else 0
        s.last = now
        return x * (1 + s.late), time.time() > 1e9

    step = wrap(step)
    for n in range(7):
        if n == 4:
            s.last -= 7200
        yield step(ramp(lib, 3)), s.late


@case
def a_clock_that_is_patched(lib: Any, wrap: Any) -> Seen:
    def step(x):
        return x * (time.perf_counter() < 0)

    step = wrap(step)
    kept = time.perf_counter
    for n in range(5):
        time.perf_counter = (lambda: -1.0) if n % 2 else kept
        try:
            yield step(ramp(lib, 3))
        finally:
            time.perf_counter = kept


@case
def threads_that_draw_and_count(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(source=itertools.count(), total=0)

    def step(x):
        return x + next(s.source), random.random()

    step, found = wrap(step), []

    def work():
        for _ in range(25):
            y, draw = step(lib.zeros(1))
            found.append((int(y[0]), 0 <= draw < 1))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    yield sorted(found), next(s.source)


@case
def threads_with_functions_of_their_own(lib: Any, wrap: Any) -> Seen:
    lines = io.StringIO()

    def worker(k):
        def step(x):
            print("worker", k)
            return x * (random.random() >= 0)

        compiled = wrap(step)
        for _ in range(10):
            compiled(lib.ones(2))

    kept, sys.stdout = sys.stdout, lines
    try:
        threads = [threading.Thread(target=worker, args=(k,)) for k in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.stdout = kept
    yield sorted(lines.getvalue().replace("\n", " ").split()), random.random()


@case
def a_compiled_function_inside_another(lib: Any, wrap: Any) -> Seen:
    inner = wrap(lambda x: x * random.random())
    outer = wrap(lambda x: inner(x) + inner(x) * random.random())
    for n in range(6):
        yield (outer if n % 2 else inner)(ramp(lib, 3)), random.random()
