"""Results and arguments with a history, beside gradients that the function itself computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .registry import Seen, attempt, case, leaf, ramp


def observed(lib: Any, wrap: Any, step: Callable[..., Any]) -> Seen:
    """Calls of ``step(y, v)`` with an argument that was computed, each followed by a backward pass
    from its result, where that is possible."""
    w, v = lib.ones(3, requires_grad=True), lib.full((3,), 2.0, requires_grad=True)
    compiled = wrap(step)
    for n in range(5):
        y = w * (n + 1) + ramp(lib, 3)
        found = compiled(y, v)
        yield found.detach(), found.requires_grad, found.is_leaf
        if found.requires_grad:
            yield attempt(lambda found=found: found.sum().backward())
        yield [None if t.grad is None else t.grad.clone() for t in (w, v)]
        if n == 3:
            w.grad = v.grad = None


@case
def the_argument_is_differentiated(lib: Any, wrap: Any) -> Seen:
    def step(y, v):
        (y * v).sum().backward()
        return y.sum().detach()

    yield from observed(lib, wrap, step)


@case
def the_argument_is_returned_scaled(lib: Any, wrap: Any) -> Seen:
    def step(y, v):
        (y.detach() * v).sum().backward()
        return y * 3

    yield from observed(lib, wrap, step)


@case
def a_new_graph_is_returned(lib: Any, wrap: Any) -> Seen:
    def step(y, v):
        (y.detach() * v).sum().backward()
        return (v * y.detach()).sum()

    yield from observed(lib, wrap, step)


@case
def a_freed_graph_is_returned(lib: Any, wrap: Any) -> Seen:
    def step(y, v):
        loss = (y.detach() * v * v).sum()
        loss.backward()
        return loss

    yield from observed(lib, wrap, step)


@case
def a_graph_that_saves_nothing_is_returned(lib: Any, wrap: Any) -> Seen:
    def step(y, v):
        loss = (y.detach() + v).sum()
        loss.backward()
        return loss

    yield from observed(lib, wrap, step)


@case
def a_retained_graph_is_returned(lib: Any, wrap: Any) -> Seen:
    def step(y, v):
        loss = (y.detach() * v * v).sum()
        loss.backward(retain_graph=True)
        return loss

    yield from observed(lib, wrap, step)


@case
def a_second_derivative_then_the_argument(lib: Any, wrap: Any) -> Seen:
    def step(y, v):
        (grad,) = lib.autograd.grad((y.detach() * v * v).sum(), v, create_graph=True)
        (grad * y.detach()).sum().backward()
        return y + 1

    yield from observed(lib, wrap, step)


@case
def a_gradient_by_the_argument(lib: Any, wrap: Any) -> Seen:
    yield from observed(lib, wrap, lambda y, v: lib.autograd.grad((y * v).sum(), y)[0] * y)


@case
def a_gradient_by_the_argument_with_a_graph(lib: Any, wrap: Any) -> Seen:
    def step(y, v):
        (grad,) = lib.autograd.grad((y * y * v).sum(), y, create_graph=True)
        return grad.square()

    yield from observed(lib, wrap, step)


@case
def a_gradient_by_a_leaf_behind_the_argument(lib: Any, wrap: Any) -> Seen:
    def step(y, v):
        (grad,) = lib.autograd.grad((y * v).sum(), v, retain_graph=True)
        return grad * v

    yield from observed(lib, wrap, step)


@case
def a_custom_function_that_is_differentiated(lib: Any, wrap: Any) -> Seen:
    class Square(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            return 2 * grad * ctx.saved_tensors[0]

    def step(y, v):
        out = Square.apply(v)
        out.sum().backward()
        return out

    yield from observed(lib, wrap, step)


@case
def the_state_that_is_carried(lib: Any, wrap: Any) -> Seen:
    """Each call detaches what the one before has left, which has a freed history."""
    w = lib.ones(3, requires_grad=True)
    state = {"h": lib.zeros(3)}

    def step(x):
        state["h"] = (state["h"].detach() * 0.5 + x * w).tanh()
        state["h"].sum().backward()
        return state["h"].detach().sum()

    step = wrap(step)
    for n in range(6):
        yield step(ramp(lib, 3, start=0.1 * n)), state["h"].detach(), w.grad.clone()
        yield attempt(lambda: state["h"].sum().backward()), state["h"].requires_grad


@case
def the_state_that_is_carried_with_its_history(lib: Any, wrap: Any) -> Seen:
    w = lib.ones(3, requires_grad=True)
    state = {"h": lib.zeros(3)}

    def step(x):
        state["h"] = (state["h"] * 0.5 + x * w).tanh()
        return state["h"].detach().sum()

    step = wrap(step)
    for n in range(6):
        yield step(ramp(lib, 3, start=0.1 * n))
        if n % 2:
            state["h"].sum().backward()
            state["h"] = state["h"].detach()
            yield w.grad.clone()


@case
def gradients_by_values_of_before(lib: Any, wrap: Any) -> Seen:
    """The targets are an argument and a tensor that was closed over; hooks on them are called."""
    seen: list[Any] = []
    w = leaf(lib, 1.0, 2.0)

    def step(y, v):
        grads = lib.autograd.grad((y * h * v).sum(), (y, h), allow_unused=True)
        return grads[0] + 1, grads[1]

    step = wrap(step)
    for n in range(6):
        h = w * (2.0 + n % 2)
        y = w * 3.0
        if n in (2, 5):
            y.register_hook(lambda g: seen.append(g.sum()))
        yield step(y, ramp(lib, 2)), [s.detach() for s in seen]
        (y.sum() + h.sum()).backward()
        yield w.grad
