"""Reads that no program can repeat as they are: identifiers, clocks, frames, memory, the system."""

from __future__ import annotations

import collections
import contextvars
import gc
import itertools
import os
import secrets
import sys
import threading
import time
import uuid
import weakref
from typing import Any

import numpy as np

from .registry import Seen, attempt, batch, case, layer, leaf, weights


@case
def unique_identifiers_as_keys(lib: Any, wrap: Any) -> Seen:
    table: dict[str, Any] = {}

    def step(x):
        table[uuid.uuid4().hex] = x.shape[0]
        return x * len(table)

    step = wrap(step)
    for n in range(6):
        yield step(batch(lib, n)), len(table), sorted(table.values())


@case
def bytes_of_the_system(lib: Any, wrap: Any) -> Seen:
    seen: set[bytes] = set()

    def step(x):
        seen.add(os.urandom(8))
        seen.add(secrets.token_bytes(8))
        return x * len(seen)

    step = wrap(step)
    for n in range(6):
        yield step(batch(lib, n)), len(seen)


@case
def a_counter_of_itertools(lib: Any, wrap: Any) -> Seen:
    numbers, names = itertools.count(3, 2), itertools.cycle("ab")

    def step(x):
        n, name = next(numbers), next(names)
        return x * n if name == "a" else x - n

    step = wrap(step)
    for n in range(8):
        if n == 5:
            next(numbers)
        yield step(batch(lib, n))


@case
def references_counted(lib: Any, wrap: Any) -> Seen:
    held = [object()]
    step = wrap(lambda x: x * (sys.getrefcount(held[0]) > 4))
    more = []
    for n in range(6):
        if n in (3, 4):
            more += [held[0]] * 4 if n == 3 else []
        yield step(batch(lib, n)), len(more)


@case
def the_collector_inside(lib: Any, wrap: Any) -> Seen:
    class Node:
        pass

    dead: list[Any] = []

    def step(x):
        node = Node()
        node.me = node
        dead.append(weakref.ref(node))
        del node
        gc.collect()
        return x * sum(r() is None for r in dead)

    step = wrap(step)
    for n in range(5):
        yield step(batch(lib, n))


@case
def variables_of_the_context(lib: Any, wrap: Any) -> Seen:
    scale = contextvars.ContextVar("scale", default=1.0)

    def step(x):
        token = scale.set(scale.get() + 1)
        y = x * scale.get()
        if x.shape[0] == 4:
            scale.reset(token)
        return y

    step = wrap(step)
    for n in range(8):
        if n == 3:
            scale.set(5.0)
        yield step(batch(lib, n, 3 + n % 2)), scale.get()


@case
def another_context_for_each_call(lib: Any, wrap: Any) -> Seen:
    scale = contextvars.ContextVar("scale2", default=1.0)
    step = wrap(lambda x: x * scale.get())
    for n in range(6):
        context = contextvars.copy_context()
        context.run(scale.set, float(n // 2))
        yield context.run(step, batch(lib, n)), step(batch(lib, n))


@case
def an_environment_that_decides(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x * float(os.environ.get("CASE_SCALE", "1")))
    for n in range(8):
        if n in (2, 4):
            os.environ["CASE_SCALE"] = str(n)
        if n == 6:
            os.environ.pop("CASE_SCALE")
        yield step(batch(lib, n))


@case
def a_profile_by_the_clock(lib: Any, wrap: Any) -> Seen:
    class Timer:
        def __init__(self):
            self.times = collections.defaultdict(list)

        def __call__(self, name):
            self.name = name
            return self

        def __enter__(self):
            self.start = time.perf_counter()

        def __exit__(self, *_):
            self.times[self.name].append(time.perf_counter() - self.start)

    timer, model = Timer(), layer(lib)

    def step(x):
        with timer("forward"):
            y = model(x)
        with timer("loss"):
            return y.square().sum()

    step = wrap(step)
    for n in range(6):
        found = step(batch(lib, n))
        times = timer.times
        yield found, {k: len(v) for k, v in times.items()}, all(t >= 0 for t in times["loss"])


@case
def the_thread_that_calls(lib: Any, wrap: Any) -> Seen:
    names: list[str] = []

    def step(x):
        names.append(threading.current_thread().name)
        return x * len(threading.current_thread().name)

    step = wrap(step)
    for n in range(6):
        found: list[Any] = []
        name = f"worker-{'x' * (n // 2)}"
        thread = threading.Thread(target=lambda: found.append(step(batch(lib, n))), name=name)  # noqa: B023
        thread.start()
        thread.join()
        yield found, step(batch(lib, n)), list(names)


@case
def a_lock_around_a_counter(lib: Any, wrap: Any) -> Seen:
    class Shared:
        def __init__(self):
            self.lock, self.count = threading.Lock(), 0

        def next(self):
            with self.lock:
                self.count += 1
                return self.count

    shared = Shared()
    step = wrap(lambda x: x * shared.next())
    for n in range(7):
        if n == 4:
            shared.count = 0
        yield step(batch(lib, n)), shared.count, shared.lock.locked()


@case
def locals_and_names_in_scope(lib: Any, wrap: Any) -> Seen:
    options = {"b": 2.0}

    def step(x):
        a = 1.0
        if "b" in options:
            b = options["b"]
        return x * sum(v for k, v in sorted(locals().items()) if k in ("a", "b"))

    step = wrap(step)
    for n in range(7):
        if n == 2:
            options["b"] = 5.0
        if n == 4:
            del options["b"]
        yield step(batch(lib, n))


@case
def the_identity_of_a_temporary(lib: Any, wrap: Any) -> Seen:
    seen: dict[int, int] = {}

    def step(x):
        key = id(x) % 1
        seen[key] = seen.get(key, 0) + 1
        return x * seen[key]

    step = wrap(step)
    for n in range(6):
        yield step(batch(lib, n)), dict(seen)


@case
def a_recursion_limit_and_an_error(lib: Any, wrap: Any) -> Seen:
    state = {"depth": 3}

    def down(x, n):
        return x if n == 0 else down(x + 1, n - 1)

    def step(x):
        if state["depth"] > 50:
            raise RecursionError("user: too deep")
        return down(x, state["depth"])

    step = wrap(step)
    for n in range(7):
        state["depth"] = [3, 3, 60, 4, 4, 60, 3][n]
        yield attempt(step, batch(lib, n))


@case
def arrays_drawn_by_numpy(lib: Any, wrap: Any) -> Seen:
    source = np.random.default_rng(3)

    def step(x):
        noise = source.normal(size=(4, 3)).astype(np.float32)
        return x + lib.from_numpy(noise)

    step = wrap(step)
    for n in range(6):
        if n == 4:
            source.normal()
        yield step(batch(lib, n)), source.bit_generator.state["state"]["state"]


@case
def a_table_of_seen_inputs_by_value(lib: Any, wrap: Any) -> Seen:
    table: dict[tuple[float, ...], Any] = {}
    weight = leaf(lib, 1.0, 2.0, 3.0)

    def step(x):
        key = tuple(x[0].tolist())
        if key not in table:
            table[key] = (x * weight).sum().detach()
        return table[key] + 1

    step = wrap(step)
    for n in range(8):
        if n == 5:
            table.clear()
        yield step(batch(lib, n % 3)), len(table)


@case
def a_model_that_trains_until_patience_ends(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.2)
    state = {"best": float("inf"), "bad": 0, "stop": False}

    def step(x):
        if state["stop"]:
            return None
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        value = loss.item()
        if value < state["best"] - 1e-2:
            state["best"], state["bad"] = value, 0
        else:
            state["bad"] += 1
            state["stop"] = state["bad"] >= 3
        return loss.detach()

    step = wrap(step)
    for n in range(12):
        yield step(batch(lib, n % 2)), dict(state), weights(model)
