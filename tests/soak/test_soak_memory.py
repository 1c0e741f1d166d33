"""The long versions of the memory tests: more steps, deeper graphs, the process's own memory."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad import config, memory
from evergrad.memory import pool
from evergrad.memory.ledger import LEDGER
from fresh_process import resident

MIB = 1 << 20

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


pytestmark = pytest.mark.usefixtures("collector_off")


def live() -> tuple[int, int]:
    return LEDGER.live, LEDGER.count


def leaf(*shape: int) -> Any:
    return eg.randn(*shape).requires_grad_()


def cross_entropy(logits: Any, target: Any) -> Any:
    return (logits.logsumexp(1) - logits.gather(1, target[:, None])[:, 0]).mean()


# -- flat -----------------------------------------------------------------------------------------


class Classifier:
    """Two layers with momentum; ``width`` decides whether the pool takes part."""

    def __init__(self, width: int, batch: int) -> None:
        self.batch = batch
        self.parameters = [leaf(20, width), leaf(width), leaf(width, 5)]
        self.momentum = [eg.zeros_like(p) for p in self.parameters]

    def step(self) -> float:
        w, b, v = self.parameters
        x, target = eg.randn(self.batch, 20), eg.randint(0, 5, (self.batch,))
        loss = cross_entropy((x @ w + b).tanh() @ v, target)
        loss.backward()
        with eg.no_grad():
            for p, m in zip(self.parameters, self.momentum, strict=True):
                m.mul_(0.9).add_(p.grad)
                p.sub_(0.01 * m)
                p.grad = None
        return float(loss.item())


@linux
@pytest.mark.parametrize(("width", "batch", "steps"), [(16, 8, 50_000), (600, 128, 3_000)])
def test_training_is_flat(width: int, batch: int, steps: int) -> None:
    """Live bytes to the byte, the process's memory within a MiB."""
    model = Classifier(width, batch)
    for _ in range(200):
        model.step()
    before, pages = (*live(), LEDGER.pooled), resident()
    for _ in range(steps):
        model.step()
        assert (*live(), LEDGER.pooled) == before
    assert resident() - pages < MIB


def test_10_000_rounds_of_reshape_slice_and_cross_entropy() -> None:
    x = leaf(4, 6)
    target = eg.tensor([0, 2, 1])

    def round() -> None:
        y = x.reshape(6, 4).t()[1:, :].reshape(3, 6)
        cross_entropy(y[:, 1:5], target).backward()

    round()
    before = live()
    for _ in range(10_000):
        round()
    assert live() == before


@linux
def test_recorded_backward_does_not_grow() -> None:
    w = leaf(8, 8)
    x = eg.randn(3, 8)

    def round() -> None:
        (x @ w).tanh().square().sum().backward(create_graph=True)
        eg.autograd.grad(w.grad.square().sum(), w)
        w.grad = None

    for _ in range(100):
        round()
    before, pages = live(), resident()
    for _ in range(5_000):
        round()
        assert live() == before
    assert resident() - pages < MIB


@linux
def test_ever_new_shapes_do_not_fill_memory() -> None:
    """Caches of rules and types are bounded."""
    w = leaf(3, 3)

    def round(n: int) -> None:
        (eg.ones(n, 3) @ w).exp().mean().backward()
        w.grad = None

    for n in range(1, 6_000):
        round(n)
    before, pages = live(), resident()
    for n in range(6_000, 30_000):
        round(n % 20_000 + 1)
    assert live() == before
    assert resident() - pages < 64 * MIB


def test_steady_over_thousands_of_steps() -> None:
    model = Classifier(16, 8)
    for _ in memory.steady(range(3_000), warmup=2):
        model.step()


# -- depth ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "step", [lambda y: y + 1.0, lambda y: y.tanh(), lambda y: y.view(2, 1).view(2)]
)
@pytest.mark.parametrize("differentiate", [True, False])
def test_chain_of_1_000_000(step: Callable[[Any], Any], differentiate: bool) -> None:
    x = leaf(2)
    before = live()
    y = x * 1.0
    for _ in range(1_000_000):
        y = step(y)
    if differentiate:
        y.sum().backward()
        assert x.grad is not None
        x.grad = None
    del y
    assert live() == before


def test_second_derivative_of_a_chain_of_200_000() -> None:
    x = eg.full((2,), 0.1).requires_grad_()
    before = live()
    y = x
    for _ in range(200_000):
        y = y.sin()
    (first,) = eg.autograd.grad(y.sum(), x, create_graph=True)
    first.sum().backward()
    x.grad = None
    del y, first
    assert live() == before


# -- the pool and threads -------------------------------------------------------------------------


@linux
def test_the_pool_stays_within_its_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever sizes come: pooled bytes never exceed the cap, and pages really go back."""
    memory.trim()
    monkeypatch.setattr(config, "POOL_CAP_BYTES", 32 * MIB)
    pages = resident()
    rng = np.random.default_rng(0)
    held: list[Any] = []
    for round in range(20_000):
        scale = 1 << (round // 2_000 % 5)  # what is wanted changes over time
        array = pool.empty((int(rng.integers(30_000, 60_000)) * scale,), np.dtype(np.float32))
        array[::1024] = 1
        held.append(array)
        if len(held) > 6:
            held.pop(int(rng.integers(6)))
        assert LEDGER.pooled <= 32 * MIB
    assert sum(size * len(free) for size, free in pool._free.items()) == LEDGER.pooled
    held.clear()
    del array
    memory.trim()
    assert LEDGER.pooled == 0
    assert resident() - pages < 4 * MIB


def test_many_threads_for_long() -> None:
    def train(seed: int) -> list[Any]:
        rng = np.random.default_rng(seed)
        w = eg.tensor(rng.standard_normal((20, 12))).requires_grad_()
        v = eg.tensor(rng.standard_normal((12, 3))).requires_grad_()
        for _ in range(400):
            x = eg.tensor(rng.standard_normal((6, 20)))
            ((x @ w).tanh() @ v).log_softmax(1)[:, 0].sum().backward()
            with eg.no_grad():
                for p in (w, v):
                    p -= 0.01 * p.grad
                    p.grad = None
        return [w.detach().numpy().copy(), v.detach().numpy().copy()]

    before = live()
    alone = [train(seed) for seed in range(12)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for _ in range(3):
            with ThreadPoolExecutor(12) as threads:
                together = list(threads.map(train, range(12)))
            for a, b in zip(alone, together, strict=True):
                for ours, theirs in zip(a, b, strict=True):
                    np.testing.assert_array_equal(ours, theirs)
    finally:
        sys.setswitchinterval(interval)
    assert threading.active_count() == 1
    assert live() == before
