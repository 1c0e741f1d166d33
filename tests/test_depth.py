"""Depth: long chains are built, differentiated and freed without recursion, collector off."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

import evergrad as eg
from evergrad import memory

pytestmark = pytest.mark.usefixtures("collector_off")


def chain(start: Any, step: Callable[[Any], Any], length: int) -> Any:
    value = start
    for _ in range(length):
        value = step(value)
    return value


STEPS: dict[str, Callable[[Any], Any]] = {
    "add": lambda y: y + 1.0,
    "tanh": lambda y: y.tanh(),
    "mul": lambda y: y * 1.0000001,
    "view": lambda y: y.view(2, 2).view(4),
    "in place": lambda y: y.mul_(1.0),
    "slice and join": lambda y: eg.cat([y[:2], y[2:]]),
}


@pytest.mark.parametrize("name", STEPS)
def test_chain_of_100_000(name: str) -> None:
    x = eg.full((4,), 0.5).requires_grad_()
    before = memory.stats()
    length = 20_000 if name == "slice and join" else 100_000
    y = chain(x * 1.0, STEPS[name], length)
    y.sum().backward()
    assert x.grad is not None and x.grad.shape == (4,)
    if name == "add":
        assert x.grad.tolist() == [1.0] * 4
    x.grad = None
    del y
    assert memory.stats()["live"] == before["live"]
    assert memory.stats()["count"] == before["count"]


@pytest.mark.parametrize("name", STEPS)
def test_chain_is_freed_also_without_backward(name: str) -> None:
    x = eg.ones(4).requires_grad_()
    before = memory.stats()["live"]
    y = chain(x * 1.0, STEPS[name], 30_000)
    del y
    assert memory.stats()["live"] == before


def test_chain_of_1_000_000_is_differentiated() -> None:
    x = eg.ones(2).requires_grad_()
    before = memory.stats()["live"]
    chain(x, STEPS["add"], 1_000_000).sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]
    assert memory.stats()["live"] == before + x.grad.nbytes


def test_second_derivative_of_a_chain() -> None:
    x = eg.full((2,), 0.1, dtype=eg.float64).requires_grad_()
    before = memory.stats()["live"]
    (first,) = eg.autograd.grad(chain(x, eg.sin, 20_000).sum(), x, create_graph=True)
    first.sum().backward()
    assert x.grad.isfinite().all()
    x.grad = None
    del first
    assert memory.stats()["live"] == before


def test_one_tensor_used_100_000_times() -> None:
    x = eg.ones(4).requires_grad_()
    total = x
    for _ in range(100_000):
        total = total + x
    total.sum().backward()
    assert x.grad.tolist() == [100_001.0] * 4


# CPython 3.13 deallocates any chain of objects by a recursion of up to 10,000 levels of C: 512 KB
# are too little for it. The others go 50 levels deep, or as deep as the stack allows.
SMALL_STACK = (2048 if sys.version_info[:2] == (3, 13) else 256) * 1024


def test_chain_in_a_thread_with_a_small_stack() -> None:
    """A recursion as deep as the graph would not fit here, not even in C."""
    results: list[list[float]] = []

    def work() -> None:
        x = eg.ones(2).requires_grad_()
        y = chain(x, STEPS["tanh"], 100_000)
        y.sum().backward()
        del y
        z = chain(x, STEPS["mul"], 100_000)
        del z
        results.append(x.grad.tolist())

    former = threading.stack_size(SMALL_STACK)
    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(former)
    assert len(results) == 1
