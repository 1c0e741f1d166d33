"""Compiled functions in each other, in modules, in threads, in hooks and in themselves."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .registry import Seen, attempt, batch, case, layer, leaf, mlp, ramp, weights


@case
def compiled_inside_compiled(lib: Any, wrap: Any) -> Seen:
    gain = 1.0
    inner = wrap(lambda x: x * gain)
    outer = wrap(lambda x: inner(x) + inner(x * 2))
    for n in range(5):
        gain = 1.0 + n
        yield outer(ramp(lib, 3)), inner(ramp(lib, 3))


@case
def compiled_with_state_inside_compiled(lib: Any, wrap: Any) -> Seen:
    s = {"n": 0}

    def count(x):
        s["n"] += 1
        return x * s["n"]

    inner = wrap(count)
    outer = wrap(lambda x: inner(x) + inner(x))
    for _ in range(4):
        yield outer(ramp(lib, 3)), s["n"], inner(ramp(lib, 3))


@case
def a_compiled_module_in_an_eager_step(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    compiled = wrap(model)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)
    for n in range(5):
        optimizer.zero_grad()
        loss = compiled(batch(lib, n)).square().mean()
        loss.backward()
        optimizer.step()
        yield loss, weights(model)


@case
def a_compiled_module_in_a_compiled_step(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    compiled = wrap(model)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = compiled(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = wrap(step)
    for n in range(4):
        model.train(n % 2 == 0)
        yield step(batch(lib, n)), weights(model)


@case
def a_compiled_layer_in_a_module(lib: Any, wrap: Any) -> Seen:
    class Net(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = layer(lib, 3, 4), layer(lib, 4, 2)
            self.act = wrap(lambda x: lib.tanh(x) * 2)

        def forward(self, x):
            return self.second(self.act(self.first(x)))

    net = Net()
    for n in range(4):
        net.zero_grad()
        net(batch(lib, n)).square().mean().backward()
        yield weights(net)


@case
def a_compiled_method(lib: Any, wrap: Any) -> Seen:
    class Trainer:
        def __init__(self, gain):
            self.model, self.gain = layer(lib), gain

        @wrap
        def step(self, x):
            return self.model(x).sum() * self.gain

    a, b = Trainer(1.0), Trainer(2.0)
    for n in range(5):
        a.gain += 1
        yield a.step(batch(lib, n)), b.step(batch(lib, n))


@case
def a_compiled_forward(lib: Any, wrap: Any) -> Seen:
    class Net(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.calls = layer(lib), 0

        @wrap
        def forward(self, x):
            self.calls += 1
            return self.layer(x)

    net = Net()
    for n in range(4):
        yield net(batch(lib, n)), net.calls


@case
def a_compiled_static_method(lib: Any, wrap: Any) -> Seen:
    class Tools:
        @staticmethod
        @wrap
        def scaled(x, gain):
            return x * gain

    for n in range(4):
        yield Tools.scaled(ramp(lib, 3), float(n)), Tools().scaled(ramp(lib, 3), n)


@case
def a_recursive_step(lib: Any, wrap: Any) -> Seen:
    def step(x, depth):
        return x if depth == 0 else lib.tanh(compiled(x, depth - 1)) + depth

    compiled = wrap(step)
    for depth in (0, 2, 1, 3, 2):
        yield compiled(ramp(lib, 3), depth)


@case
def a_recursive_helper(lib: Any, wrap: Any) -> Seen:
    tree = {"v": 1.0, "children": [{"v": 2.0, "children": []}]}

    def total(node, x):
        return x * node["v"] + sum(total(child, x) for child in node["children"])

    step = wrap(lambda x: total(tree, x))
    for n in range(5):
        tree["children"].append({"v": float(n), "children": []})
        tree["children"][0]["v"] *= 2
        yield step(ramp(lib, 3))


@case
def compiled_called_by_a_hook(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)
    scaled = wrap(lambda g, k: g * k)
    calls = []

    def hook(g):
        calls.append(1)
        return scaled(g, float(len(calls)))

    w.register_hook(hook)
    step = wrap(lambda x: (w * x).sum().backward())
    for _ in range(4):
        w.grad = None
        step(ramp(lib, 3))
        yield w.grad, len(calls)


@case
def the_step_called_by_its_own_hook(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    depth = {"n": 0}

    def hook(module, args, out):
        if depth["n"] == 0:
            depth["n"] = 1
            out = out + step(args[0] * 2)
            depth["n"] = 0
        return out

    model.register_forward_hook(hook)
    step = wrap(lambda x: model(x).sum())
    for n in range(4):
        yield step(batch(lib, n)), depth["n"]


@case
def threads_call_one_step(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    step = wrap(lambda x, k: model(x).sum() * k)
    with ThreadPoolExecutor(3) as pool:
        for n in range(3):
            work = [pool.submit(step, batch(lib, k), float(k + n)) for k in range(4)]
            yield [future.result().detach() for future in work]


@case
def threads_with_their_own_models(lib: Any, wrap: Any) -> Seen:
    def train(k):
        model = layer(lib)
        optimizer = lib.optim.SGD(model.parameters(), lr=0.1 * (k + 1))

        def step(x):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()

        step = wrap(step)
        for n in range(3):
            step(batch(lib, n))
        return weights(model)

    with ThreadPoolExecutor(2) as pool:
        yield list(pool.map(train, range(2)))


@case
def a_thread_local(lib: Any, wrap: Any) -> Seen:
    local = threading.local()
    step = wrap(lambda x: x * getattr(local, "gain", 1.0))

    def run(gain):
        local.gain = gain
        return step(ramp(lib, 3))

    local.gain = 100.0
    yield step(ramp(lib, 3))
    with ThreadPoolExecutor(1) as pool:
        for n in range(3):
            yield pool.submit(run, float(n)).result(), step(ramp(lib, 3))


@case
def state_changed_by_another_thread(lib: Any, wrap: Any) -> Seen:
    s = {"gain": 1.0}
    step = wrap(lambda x: x * s["gain"])
    for n in range(4):
        thread = threading.Thread(target=s.__setitem__, args=("gain", float(n)))
        thread.start()
        thread.join()
        yield step(ramp(lib, 3))


@case
def compiled_passed_to_compiled(lib: Any, wrap: Any) -> Seen:
    f, g = wrap(lambda x: x + 1), wrap(lambda x: x * 2)
    step = wrap(lambda h, x: h(x) - 1)
    for n in range(4):
        yield step((f, g)[n % 2], ramp(lib, 3))


@case
def compiled_in_functional_transforms(lib: Any, wrap: Any) -> Seen:
    gain = 1.0
    f = wrap(lambda x: (x**2 * gain).sum())
    for n in range(3):
        gain = 1.0 + n
        x = ramp(lib, 3).requires_grad_()
        yield lib.autograd.grad(f(x), x), f(ramp(lib, 3))


@case
def compiled_in_a_checkpoint(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    block = wrap(lambda x: model(x))
    for n in range(3):
        model.zero_grad()
        out = lib.utils.checkpoint.checkpoint(block, batch(lib, n), use_reentrant=False)
        out.square().mean().backward()
        yield weights(model)


@case
def compiled_twice(lib: Any, wrap: Any) -> Seen:
    s = {"n": 0}

    def step(x):
        s["n"] += 1
        return x * s["n"]

    twice = wrap(wrap(step))
    for _ in range(4):
        yield twice(ramp(lib, 3)), s["n"]


@case
def one_function_compiled_by_two(lib: Any, wrap: Any) -> Seen:
    s = {"n": 0}

    def step(x):
        s["n"] += 1
        return x * s["n"]

    first, second = wrap(step), wrap(step)
    for _ in range(3):
        yield first(ramp(lib, 3)), second(ramp(lib, 3)), s["n"]


@case
def an_exception_through_two_levels(lib: Any, wrap: Any) -> Seen:
    def check(x):
        if x.sum() < 0:
            raise ValueError("negative")
        return x

    inner = wrap(check)
    outer = wrap(lambda x: inner(x) * 2)
    for n in range(4):
        yield attempt(outer, lib.full((2,), (-1.0) ** n))


@case
def generators_inside_compiled(lib: Any, wrap: Any) -> Seen:
    inner = wrap(lambda x: x + 1)

    def parts(x):
        for k in range(3):
            yield inner(x * k)

    step = wrap(lambda x: sum(parts(x)))
    for n in range(3):
        yield step(ramp(lib, 3, start=float(n)))


@case
def a_callable_object(lib: Any, wrap: Any) -> Seen:
    class Step:
        def __init__(self):
            self.n = 0

        def __call__(self, x):
            self.n += 1
            return x * self.n

    s = Step()
    step = wrap(s)
    for n in range(5):
        if n == 3:
            s.n = 50
        yield step(ramp(lib, 3)), s.n
