"""Compiled steps on tables: rows that were looked up are updated, the others are not touched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import evergrad as eg
import evergrad.nn.functional as F

OPTIMIZERS: dict[str, Any] = {
    "SGD": lambda p: eg.optim.SGD(p, lr=0.1),
    "SGD maximize": lambda p: eg.optim.SGD(p, lr=0.1, maximize=True),
    "Adagrad": lambda p: eg.optim.Adagrad(p, lr=0.1, lr_decay=0.1),
    "SparseAdam": lambda p: eg.optim.SparseAdam(p, lr=0.1),
    "SparseAdam maximize": lambda p: eg.optim.SparseAdam(p, lr=0.1, maximize=True),
}
LOOKUPS: dict[str, Any] = {
    "embedding": lambda w, i: F.embedding(i, w, sparse=True),
    "padding": lambda w, i: F.embedding(i, w, padding_idx=3, sparse=True),
    "twice": lambda w, i: F.embedding(i, w, sparse=True) * F.embedding(i + 1, w, sparse=True),
    "bag": lambda w, i: F.embedding_bag(i, w, mode="sum", sparse=True),
    "mean bag": lambda w, i: F.embedding_bag(i, w, sparse=True),
}


def trained(name: str, lookup: str, compiled: bool, *, first: bool, clip: bool) -> Any:
    eg.manual_seed(0)
    weight = eg.nn.Parameter(eg.randn(200, 5))
    optimizer = OPTIMIZERS[name]([weight])

    def step(index: Any) -> Any:
        if first:
            optimizer.zero_grad()
        loss = ((LOOKUPS[lookup](weight, index) + 1) ** 2).sum()
        loss.backward()
        if clip:
            eg.nn.utils.clip_grad_norm_([weight], 1.0)
        optimizer.step()
        if not first:
            optimizer.zero_grad()
        return loss.detach()

    run = eg.compile(step) if compiled else step
    losses = []
    for number in range(4):  # rows repeat, and differ from call to call
        index = np.random.default_rng(number).integers(0, 60, (5, 3))
        losses.append(run(eg.tensor(index)).item())
    return np.array(losses), weight.detach().numpy()


# A sparse gradient that is left behind (zero_grad() first) stays sparse: Python runs such steps.
@pytest.mark.filterwarnings("ignore:.*is not one compiled program")
@pytest.mark.parametrize("lookup", LOOKUPS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_as_eager(name: str, lookup: str) -> None:
    for options in ({"first": True, "clip": False}, {"first": False, "clip": True}):
        eager, compiled = (trained(name, lookup, c, **options) for c in (False, True))
        for found, expected in zip(compiled, eager, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["SGD", "Adagrad", "SparseAdam"])
def test_memory_follows_the_rows(name: str) -> None:
    """1,000 rows of a table of 1,000,000 x 64, which has 256 MB: no program memory of its size."""
    weight = eg.nn.Parameter(eg.zeros(1_000_000, 64))
    optimizer = OPTIMIZERS[name]([weight])

    def step(index: Any) -> Any:
        loss = ((F.embedding(index, weight, sparse=True) + 1) ** 2).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    compiled, index = eg.compile(step), eg.arange(1000) * 999
    compiled(index)
    assert compiled.plan(index).peak < 12 * 1000 * 64 * 4
    assert weight[999].abs().sum() > 0 and weight[1].abs().sum() == 0


@pytest.mark.parametrize("name", ["SGD", "Adagrad"])
def test_a_decay_set_later_reaches_every_row(name: str) -> None:
    found = []
    for compiled in (False, True):
        weight = eg.nn.Parameter(eg.ones(100, 3))
        optimizer = OPTIMIZERS[name]([weight])

        def step(index: Any, weight: Any = weight, optimizer: Any = optimizer) -> None:
            F.embedding(index, weight).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        run = eg.compile(step) if compiled else step
        run(eg.tensor([1, 2, 1]))
        optimizer.param_groups[0]["weight_decay"] = 0.5
        run(eg.tensor([1, 2, 1]))
        found.append(weight.detach().numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)
    assert (found[1][50] < 1).all()


def test_eager_and_compiled_steps_may_alternate() -> None:
    """SparseAdam counts its steps in either."""
    weights = [eg.nn.Parameter(eg.ones(100, 3)) for _ in range(2)]
    optimizers = [eg.optim.SparseAdam([w], lr=0.1) for w in weights]

    def step(weight: Any, optimizer: Any, index: Any) -> None:
        F.embedding(index, weight, sparse=True).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    compiled = eg.compile(lambda index: step(weights[1], optimizers[1], index))
    for number in range(6):
        index = eg.tensor([number, 2, number, 7])
        step(weights[0], optimizers[0], index)
        if number % 3 == 1:
            step(weights[1], optimizers[1], index)
        else:
            compiled(index)
    assert eg.allclose(weights[0], weights[1], rtol=1e-5, atol=1e-6)
