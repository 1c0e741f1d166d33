"""Exceptions of a step at every place in it, and what they leave for the next call."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

from .registry import Seen, attempt, batch, case, layer, leaf, ramp, weights


@case
def before_and_after_each_part_of_an_update(lib: Any, wrap: Any) -> Seen:
    model, where = layer(lib), {"at": ""}
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def check(name):
        if where["at"] == name:
            raise RuntimeError(f"user: {name}")

    def step(x):
        check("start")
        optimizer.zero_grad()
        check("zeroed")
        loss = model(x).square().mean()
        check("forward")
        loss.backward()
        check("backward")
        optimizer.step()
        check("updated")
        return loss.detach()

    step = wrap(step)
    names = ["", "forward", "", "backward", "updated", "", "start", "zeroed", ""]
    for n, where["at"] in enumerate(names):
        yield attempt(step, batch(lib, n)), weights(model)


@case
def in_a_hook_of_a_layer(lib: Any, wrap: Any) -> Seen:
    model, state = layer(lib), {"on": False, "calls": 0}

    def hook(module, args, out):
        state["calls"] += 1
        if state["on"]:
            raise KeyError("user: hook")

    model.register_forward_hook(hook)

    def step(x):
        return model(x).sum()

    step = wrap(step)
    for n in range(8):
        state["on"] = n in (2, 5, 6)
        yield attempt(step, batch(lib, n)), dict(state)


@case
def in_a_backward_hook(lib: Any, wrap: Any) -> Seen:
    a, b = leaf(lib, 1.0, 2.0, 3.0), leaf(lib, 3.0, 2.0, 1.0)
    state = {"on": False}

    def hook(grad):
        if state["on"]:
            raise ValueError("user: gradient")
        return grad * 2

    a.register_hook(hook)

    def step(x):
        loss = (x * a).tanh().sum() + (x * b).sum()
        loss.backward()
        return loss.detach()

    step = wrap(step)
    for n in range(7):
        state["on"] = n in (3, 4)
        found = attempt(step, batch(lib, n))
        yield found, None if state["on"] else (a.grad, b.grad)
        a.grad = b.grad = None


@case
def in_a_custom_function(lib: Any, wrap: Any) -> Seen:
    options = {"fail": ""}

    class Scaled(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            if options["fail"] == "forward":
                raise ArithmeticError("user: forward")
            return x * 3

        @staticmethod
        def backward(ctx, grad):
            if options["fail"] == "backward":
                raise ArithmeticError("user: backward")
            return grad * 3

    weight = leaf(lib, 1.0, 2.0, 3.0)

    def step(x):
        loss = Scaled.apply(x * weight).sum()
        loss.backward()
        return loss.detach()

    step = wrap(step)
    for n, options["fail"] in enumerate(["", "", "forward", "", "backward", "", ""]):
        yield attempt(step, batch(lib, n)), weight.grad


@case
def a_cleanup_that_restores(lib: Any, wrap: Any) -> Seen:
    state = {"depth": 0, "mode": "a"}

    @contextlib.contextmanager
    def mode(name):
        before, state["mode"] = state["mode"], name
        state["depth"] += 1
        try:
            yield
        finally:
            state["mode"] = before
            state["depth"] -= 1

    def step(x, fail):
        with mode("b"):
            y = x * len(state["mode"]) * state["depth"]
            with mode("c"):
                if fail:
                    raise LookupError("user: inside")
                return y + state["depth"]

    step = wrap(step)
    for n in range(8):
        if n == 5:
            state["depth"] = 3
        yield attempt(step, batch(lib, n), n % 3 == 2), dict(state)


@case
def partial_writes_before_it(lib: Any, wrap: Any) -> Seen:
    buffers = [lib.zeros(3) for _ in range(3)]
    limit = {"n": 3}

    def step(x):
        for k, buffer in enumerate(buffers):
            if k >= limit["n"]:
                raise IndexError("user: limit")
            buffer.add_(x[0] * (k + 1))
        return sum(buffers)

    step = wrap(step)
    for n in range(9):
        limit["n"] = [3, 3, 1, 3, 0, 3, 2, 2, 3][n]
        yield attempt(step, batch(lib, n)), buffers


@case
def a_shape_that_does_not_fit(lib: Any, wrap: Any) -> Seen:
    model, seen = layer(lib), []
    total = lib.zeros(2)

    def step(x):
        seen.append(tuple(x.shape))
        total.add_(1)
        y = model(x)
        total.add_(y.sum(0))
        return y

    step = wrap(step)
    for n in range(8):
        x = batch(lib, n, 4, 3 if n not in (2, 5) else 5)
        yield type(attempt(step, x)).__name__ if n in (2, 5) else step(x), list(seen), total


@case
def an_assertion_on_the_arguments(lib: Any, wrap: Any) -> Seen:
    def step(x, scale):
        assert scale > 0, f"user: scale is {scale}"
        assert x.dim() == 2
        return x * scale

    step = wrap(step)
    for n, scale in enumerate([1.0, 2.0, -1.0, 3.0, 0, 4, -0.0, 2.0]):
        yield attempt(step, batch(lib, n), scale), attempt(step, batch(lib, n)[0], scale)


@case
def chained_exceptions(lib: Any, wrap: Any) -> Seen:
    options = {"table": {"a": 1.0}}

    def step(x, name):
        try:
            scale = options["table"][name]
        except KeyError as error:
            raise RuntimeError("user: no such name") from error
        return x * scale

    step = wrap(step)
    for n in range(8):
        if n == 4:
            options["table"]["b"] = 2.0
        found = attempt(step, batch(lib, n), "ab"[n % 2])
        cause = None
        try:
            step(batch(lib, n), "c")
        except RuntimeError as error:
            cause = repr(error.__cause__)
        yield found, cause


@case
def an_iteration_that_stops(lib: Any, wrap: Any) -> Seen:
    source = iter([1.0, 2.0, 3.0, 4.0])

    def step(x):
        try:
            return x * next(source)
        except StopIteration:
            return None

    step = wrap(step)
    for n in range(7):
        yield step(batch(lib, n)), attempt(step, batch(lib, n)) if n == 2 else None


@case
def warnings_as_errors_by_the_caller(lib: Any, wrap: Any) -> Seen:
    options = {"warn": False, "calls": 0}

    def step(x):
        options["calls"] += 1
        if options["warn"]:
            warnings.warn("user: soon", UserWarning, stacklevel=1)
        return x * options["calls"]

    step = wrap(step)
    for n in range(8):
        options["warn"] = n in (2, 3, 6)
        with warnings.catch_warnings():
            if n in (3, 6):
                warnings.simplefilter("error")
            yield attempt(step, batch(lib, n)), options["calls"]


@case
def a_gradient_that_does_not_exist(lib: Any, wrap: Any) -> Seen:
    a, b = leaf(lib, 1.0, 2.0, 3.0), leaf(lib, 1.0, 1.0, 1.0)
    options = {"use_b": True}

    def step(x):
        y = (x * a).sum() + ((x * b).sum() if options["use_b"] else 0)
        return lib.autograd.grad(y, [a, b])

    step = wrap(step)
    for n in range(7):
        options["use_b"] = n not in (2, 5)
        yield attempt(step, batch(lib, n))


@case
def keyboard_interrupts_and_exits(lib: Any, wrap: Any) -> Seen:
    options = {"error": None}
    total = ramp(lib, 3)

    def step(x):
        total.add_(x[0])
        if options["error"] is not None:
            raise options["error"]
        return total * 2

    step = wrap(step)
    for n in range(8):
        options["error"] = {2: KeyboardInterrupt("user"), 5: SystemExit(3)}.get(n)
        try:
            found = step(batch(lib, n))
        except BaseException as error:
            found = repr(error)
        yield found, total
