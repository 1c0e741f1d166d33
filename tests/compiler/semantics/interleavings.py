"""Compiled functions that share state, call each other, and run under modes that change."""

from __future__ import annotations

import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .registry import Seen, attempt, batch, case, layer, leaf, weights


@case
def training_and_evaluation_of_one_model(lib: Any, wrap: Any) -> Seen:
    model = lib.nn.Sequential(layer(lib, 3, 4), lib.nn.BatchNorm1d(4), layer(lib, 4, 2))
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)
    best = {"loss": None, "state": None}

    def train(x):
        model.train()
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    def evaluate(x):
        model.eval()
        with lib.no_grad():
            return model(x).square().mean()

    train, evaluate = wrap(train), wrap(evaluate)
    for n in range(8):
        yield train(batch(lib, n)), model.training
        found = evaluate(batch(lib, 0))
        yield found, model.training, weights(model)
        if best["loss"] is None or found.item() < best["loss"]:
            best = {"loss": found.item(), "state": copy.deepcopy(model.state_dict())}
        if n == 5:
            model.load_state_dict(best["state"])


@case
def a_forward_and_an_update_apart(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    forward = wrap(lambda x: model(x).square().mean())

    def update():
        optimizer.step()
        optimizer.zero_grad()

    update = wrap(update)
    for n in range(8):
        loss = forward(batch(lib, n))
        if n == 4:
            (forward(batch(lib, 9)) * 0.5).backward()
        loss.backward()
        if n != 5:
            update()
        yield loss.detach(), weights(model)


@case
def two_steps_that_append_to_one_log(lib: Any, wrap: Any) -> Seen:
    log: list[Any] = []

    def one(x):
        log.append(x.sum())
        return x * len(log)

    def two(x):
        while len(log) > 2:
            log.pop(0)
        return sum(log) + x

    one, two = wrap(one), wrap(two)
    for n in range(9):
        yield (one if n % 3 else two)(batch(lib, n)), list(log)


@case
def a_function_under_modes_that_alternate(lib: Any, wrap: Any) -> Seen:
    weight = leaf(lib, 1.0, 2.0, 3.0)
    step = wrap(lambda x: x * weight)
    for n in range(12):
        if n % 4 == 1:
            with lib.no_grad():
                found = step(batch(lib, n))
        elif n % 4 == 2:
            with lib.inference_mode():
                found = step(batch(lib, n))
        elif n % 4 == 3:
            lib.set_grad_enabled(False)
            found = step(batch(lib, n))
            lib.set_grad_enabled(True)
        else:
            found = step(batch(lib, n))
            found.sum().backward()
        yield found, found.requires_grad, weight.grad


@case
def precision_that_alternates(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    step = wrap(lambda x: model(x))
    for n in range(8):
        with lib.autocast("cpu", dtype=lib.bfloat16, enabled=n % 3 == 1):
            found = step(batch(lib, n))
            with lib.autocast("cpu", enabled=False):
                inside = step(batch(lib, n))
        yield found, inside


@case
def compiled_calls_compiled_that_writes(lib: Any, wrap: Any) -> Seen:
    state = lib.zeros(3)
    seen: dict[str, int] = {"inner": 0}

    def inner(x):
        state.add_(x.mean(0))
        seen["inner"] += 1
        return state * seen["inner"]

    inner = wrap(inner)

    def outer(x):
        return inner(x) + inner(x * 2) + state

    outer = wrap(outer)
    for n in range(9):
        found = inner(batch(lib, n)) if n in (3, 4) else outer(batch(lib, n))
        yield found, state, dict(seen)


@case
def compiled_replaced_by_its_original(lib: Any, wrap: Any) -> Seen:
    class Task:
        scale = 2.0

        def loss(self, x):
            return (x * self.scale).sum()

        def step(self, x):
            return self.loss(x) + 1

    task = Task()
    original = Task.loss
    Task.step, Task.loss = wrap(Task.step), wrap(Task.loss)
    for n in range(9):
        if n == 2:
            Task.loss = original
        if n == 4:
            task.scale = 5.0
        if n == 5:
            Task.loss = wrap(lambda self, x: -original(self, x))
        if n == 7:
            task.loss = lambda x: x.mean()
        yield task.step(batch(lib, n)), task.loss(batch(lib, n))


@case
def steps_in_a_pool_of_threads(lib: Any, wrap: Any) -> Seen:
    models = [layer(lib) for _ in range(3)]
    for k, model in enumerate(models):
        with lib.no_grad():
            model.weight.mul_(k + 1)

    def step(model, x):
        loss = model(x).square().mean()
        grads = lib.autograd.grad(loss, list(model.parameters()))
        with lib.no_grad():
            for p, g in zip(model.parameters(), grads, strict=True):
                p.sub_(g, alpha=0.1)
        return loss.detach()

    step = wrap(step)
    for n in range(5):
        with ThreadPoolExecutor(3) as pool:
            found = list(pool.map(lambda m: step(m, batch(lib, n)), models))  # noqa: B023
        yield found, [weights(m) for m in models]


@case
def a_counter_of_one_thread_at_a_time(lib: Any, wrap: Any) -> Seen:
    local, shared = threading.local(), {"calls": 0}

    def step(x):
        local.calls = getattr(local, "calls", 0) + 1
        shared["calls"] += 1
        return x * local.calls + shared["calls"]

    step = wrap(step)
    found: list[Any] = []
    for n in range(8):
        if n % 3 == 2:
            thread = threading.Thread(target=lambda: found.append(step(batch(lib, n))))  # noqa: B023
            thread.start()
            thread.join()
        else:
            found.append(step(batch(lib, n)))
        yield found[-1], dict(shared), local.calls


@case
def a_model_copied_and_pickled_between_calls(lib: Any, wrap: Any) -> Seen:
    class Net(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.log, self.scale = layer(lib), [], 1.0

        def forward(self, x):
            self.log.append(len(self.log))
            return self.layer(x) * self.scale

    def step(net, x):
        loss = net(x).square().mean()
        loss.backward()
        with lib.no_grad():
            for p in net.parameters():
                p.sub_(p.grad * 0.1)
                p.grad.zero_()
        return loss.detach()

    step = wrap(step)
    nets = [Net()]
    for n in range(9):
        if n == 3:
            nets.append(copy.deepcopy(nets[0]))
        if n == 5:
            held = pickle.loads(
                pickle.dumps({k: v.numpy() for k, v in nets[1].state_dict().items()})
            )
            nets[0].load_state_dict({k: lib.from_numpy(v) for k, v in held.items()})
        if n == 6:
            nets[1].scale = 2.0
        net = nets[n % len(nets)]
        yield step(net, batch(lib, n)), weights(net), list(net.log)


@case
def functions_that_exchange_their_tensors(lib: Any, wrap: Any) -> Seen:
    box: dict[str, Any] = {"a": lib.ones(3), "b": lib.zeros(3)}

    def rotate(x):
        box["a"], box["b"] = box["b"] + x.mean(0), box["a"]
        return box["a"] - box["b"]

    def write(x):
        box["a"].mul_(2)
        box["b"][0] = x[0, 0]
        return box["a"] + box["b"]

    rotate, write = wrap(rotate), wrap(write)
    for n in range(10):
        held = dict(box)
        yield (write if n % 3 == 1 else rotate)(batch(lib, n)), dict(box), held


@case
def eager_and_compiled_calls_of_one_step(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.Adam(model.parameters(), lr=0.05)
    log = {"n": 0, "last": None}

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        log["n"] += 1
        log["last"] = loss.detach()
        return loss.detach()

    compiled = wrap(step)
    for n in range(9):
        yield (step if n % 3 == 2 else compiled)(batch(lib, n)), weights(model), dict(log)


@case
def an_inner_function_that_fails_at_times(lib: Any, wrap: Any) -> Seen:
    state = {"tries": 0, "failures": 0, "total": lib.zeros(3)}

    def inner(x):
        state["tries"] += 1
        state["total"] += x.mean(0)
        if state["tries"] % 3 == 0:
            raise ValueError("user: every third")
        return x * state["tries"]

    inner = wrap(inner)

    def outer(x):
        try:
            return inner(x)
        except ValueError:
            state["failures"] += 1
            return -x
        finally:
            state["tries"] += 10

    outer = wrap(outer)
    for n in range(9):
        yield outer(batch(lib, n)), attempt(inner, batch(lib, n)), dict(state)


@case
def gradients_across_two_compiled_functions(lib: Any, wrap: Any) -> Seen:
    first, second = layer(lib, 3, 3), layer(lib, 3, 2)
    encode, decode = wrap(lambda x: first(x).tanh()), wrap(lambda h: second(h).square().mean())
    optimizer = lib.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
    for n in range(8):
        if n == 3:
            first.requires_grad_(False)
        if n == 5:
            first.requires_grad_(True)
        h = encode(batch(lib, n))
        loss = decode(h if n != 6 else h.detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.detach(), weights(first), weights(second)


@case
def a_result_kept_while_the_step_goes_on(lib: Any, wrap: Any) -> Seen:
    weight = leaf(lib, 1.0, 2.0, 3.0)

    def step(x):
        y = x * weight
        with lib.no_grad():
            weight.add_(0.1)
        return y, y.detach(), weight.detach()

    step = wrap(step)
    kept: list[Any] = []
    for n in range(7):
        kept.append(step(batch(lib, n)))
        if n == 4:
            kept[1][1].zero_()
            with lib.no_grad():
                kept[3][2].mul_(2)
        yield [k[1:] for k in kept], weight
        yield attempt(lambda: kept[-1][0].sum().backward()), weight.grad
