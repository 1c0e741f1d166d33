"""Nothing stays behind: reference counts alone free what a step made, for any number of steps."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

import evergrad as eg
from evergrad import memory
from evergrad.autograd import Function
from evergrad.autograd.graph import saved_tensors_hooks
from evergrad.core.op import clear_specializations
from evergrad.memory.ledger import LEDGER
from evergrad.utils.checkpoint import checkpoint

pytestmark = pytest.mark.usefixtures("collector_off")


def leaf(*shape: int) -> Any:
    return eg.randn(*shape).requires_grad_()


def cross_entropy(logits: Any, target: Any) -> Any:
    return (logits.logsumexp(1) - logits.gather(1, target[:, None])[:, 0]).mean()


# -- no cycles ------------------------------------------------------------------------------------


class Square(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * x * g


class Exp(Function):
    """Keeps its own result."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (y,) = ctx.saved_tensors
        return y * g


W = 5


def plain(w: Any) -> None:
    (w @ w).tanh().sum().backward()


def without_backward(w: Any) -> None:
    (w @ w).tanh().sum()


def retained_graph(w: Any) -> None:
    y = (w @ w).tanh().sum()
    y.backward(retain_graph=True)
    y.backward()


def recorded_backward(w: Any) -> None:
    w.exp().sum().backward(create_graph=True)
    w.grad = None


def recorded_backward_of_a_dying_leaf(w: Any) -> None:
    a = leaf(3)
    (a**3).sum().backward(create_graph=True)


def second_derivative(w: Any) -> None:
    (g,) = eg.autograd.grad((w @ w).tanh().sum(), w, create_graph=True)
    (g * g).sum().backward()


def custom_function(w: Any) -> None:
    Square.apply(w).sum().backward()
    Exp.apply(w).sum().backward()


def custom_function_without_backward(w: Any) -> None:
    Square.apply(w), Exp.apply(w), Exp.apply(w.detach())


def custom_function_recorded(w: Any) -> None:
    Exp.apply(w).sum().backward(create_graph=True)
    (g,) = eg.autograd.grad(Square.apply(w).sum(), w, create_graph=True)
    g.sum().backward()


def hooks(w: Any) -> None:
    y = w @ w
    y.register_hook(lambda g: g * 2)
    y.grad_fn.register_hook(lambda grads, outs: None)
    with w.register_hook(lambda g: g), w.register_post_accumulate_grad_hook(lambda t: None):
        y.sum().backward()


def retained_gradients(w: Any) -> None:
    y = w @ w
    y.retain_grad()
    (y * y).sum().backward()
    z = w @ w
    z.retain_grad()
    (z * z).sum().backward(create_graph=True)
    w.grad = None


def writes(w: Any) -> None:
    y = w @ w
    y += 1
    y[1:3] = w[:2]
    v = y.view(W * W)
    v.mul_(2)
    v[::2].add_(w.flatten()[::2])
    y.sum().backward()


def views(w: Any) -> None:
    y = w @ w
    v = y.t()[1:].expand(2, W - 1, W).permute(2, 0, 1).reshape(-1)
    y.add_(1)
    v.sum().backward()
    y.detach().view(-1).add_(1)


def failed_hook(w: Any) -> None:
    def fail(g: Any) -> None:
        raise ValueError("no")

    y = w.exp()
    y.register_hook(fail)
    with pytest.raises(ValueError, match="no"):
        (y * y).sum().backward()


def saved_value_hooks(w: Any) -> None:
    with saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        y = (w @ w).tanh().exp()
    y.sum().backward()
    with saved_tensors_hooks(lambda t: t, lambda t: t):
        (w @ w).tanh().exp()


def checkpointed(w: Any) -> None:
    for reentrant in (False, True):
        checkpoint(lambda a: (a @ a).tanh(), w, use_reentrant=reentrant).sum().backward()
    checkpoint(lambda a: (a @ a).tanh(), w, use_reentrant=False)


def function_transforms(w: Any) -> None:
    a = eg.randn(4)
    eg.func.grad(lambda x: (x**3).sum())(a)
    eg.func.hessian(lambda x: (x**3).sum())(a)
    eg.func.vmap(lambda x: (x * a).sin())(eg.randn(3, 4))
    eg.func.jvp(lambda x: x.exp(), (a,), (a,))
    eg.func.jacrev(lambda x: x.tanh())(a)


def failed_transform(w: Any) -> None:
    def reads_a_number(x: Any) -> Any:
        return float(x.sum())

    with pytest.raises(RuntimeError):
        eg.func.vmap(reads_a_number)(w)


SITUATIONS: list[Callable[[Any], None]] = [
    plain, without_backward, retained_graph, recorded_backward, recorded_backward_of_a_dying_leaf,
    second_derivative, custom_function, custom_function_without_backward, custom_function_recorded,
    hooks, retained_gradients, writes, views, failed_hook, saved_value_hooks, checkpointed,
    function_transforms, failed_transform,
]  # fmt: skip


@pytest.mark.parametrize("situation", SITUATIONS)
def test_no_cycle_is_left(situation: Callable[[Any], None]) -> None:
    w = leaf(W, W)
    for _ in range(2):  # fills the caches of rules and plans
        situation(w)
    w.grad = None
    gc.collect()
    before = LEDGER.live, LEDGER.count
    for _ in range(3):
        situation(w)
    w.grad = None
    assert (LEDGER.live, LEDGER.count) == before
    assert not _ours(_unreachable())


def test_forgotten_rules_leave_no_cycle() -> None:
    """The caches are bounded by forgetting, which must not need the collector either."""
    w = leaf(W, W)
    for situation in (plain, second_derivative, writes, function_transforms):
        situation(w)
    gc.collect()
    clear_specializations()
    assert not _ours(_unreachable())
    plain(w)


def _unreachable() -> list[Any]:
    """What only the collector would free."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return list(gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


def _ours(things: list[Any]) -> list[str]:
    names = [f"{type(thing).__module__}.{type(thing).__name__}" for thing in things]
    return [name for name in names if name.startswith("evergrad")]


# -- flat over many steps -------------------------------------------------------------------------


class Momentum:
    """An optimizer with state, so that a step has everything a step has."""

    def __init__(self, parameters: list[Any]) -> None:
        self.parameters = parameters
        self.state = [eg.zeros_like(p) for p in parameters]

    def step(self) -> None:
        with eg.no_grad():
            for p, m in zip(self.parameters, self.state, strict=True):
                m.mul_(0.9).add_(p.grad)
                p.sub_(m * 0.01)
                p.grad = None


def test_training_is_flat_to_the_byte() -> None:
    parameters = [leaf(12, 16), leaf(16), leaf(16, 5)]
    optimizer = Momentum(parameters)
    w1, b1, w2 = parameters

    def step() -> float:
        x, target = eg.randn(10, 12), eg.randint(0, 5, (10,))
        hidden = (x @ w1 + b1).relu()
        loss = cross_entropy(hidden @ w2, target)
        loss.backward()
        optimizer.step()
        return float(loss.item())

    for _ in range(5):
        step()
    before = LEDGER.live, LEDGER.count, LEDGER.pooled
    objects = len(gc.get_objects())
    for _ in range(300):
        step()
        assert (LEDGER.live, LEDGER.count, LEDGER.pooled) == before
    assert abs(len(gc.get_objects()) - objects) < 50
    assert gc.collect() < 50


def test_rounds_of_reshape_slice_and_cross_entropy() -> None:
    x = leaf(4, 6)
    target = eg.tensor([0, 2, 1])

    def round() -> None:
        y = x.reshape(6, 4).t()[1:, :].reshape(3, 6)
        loss = cross_entropy(y[:, 1:5], target)
        loss.backward()

    round()
    before = LEDGER.live, LEDGER.count
    for _ in range(1_500):
        round()
    assert (LEDGER.live, LEDGER.count) == before


def test_recorded_backward_in_a_loop_does_not_grow() -> None:
    w = leaf(8, 8)
    x = eg.randn(3, 8)
    lives = set()
    for _ in range(200):
        loss = (x @ w).tanh().square().sum()
        loss.backward(create_graph=True)
        lives.add(LEDGER.live)
        w.grad = None
        del loss
        lives.add(-LEDGER.live)
    assert len(lives) == 2


def test_a_growing_sequence_of_shapes_returns_to_the_same_byte() -> None:
    w = leaf(3, 3)
    before = None
    for n in [1, 5, 2, 100, 7, 1000, 3] * 20:
        (eg.randn(n, 3) @ w).exp().mean().backward()
        w.grad = None
        before = before or (LEDGER.live, LEDGER.count)
        assert (LEDGER.live, LEDGER.count) == before


def test_large_buffers_do_not_multiply_in_the_pool() -> None:
    """Every step wants the same sizes, so the pool is full after the first."""
    memory.trim()
    w = leaf(300, 300)
    x = eg.randn(400, 300)

    def step() -> None:
        ((x @ w).tanh() @ w).square().mean().backward()
        w.grad = None

    for _ in range(3):
        step()
    pooled = LEDGER.pooled
    for _ in range(30):
        step()
        assert LEDGER.pooled == pooled
    assert pooled <= 16 * x.nbytes


def test_steady_agrees() -> None:
    w = leaf(6, 6)
    for _ in memory.steady(range(20), warmup=2):
        w.grad = None
        (w @ w).tanh().sum().backward()
