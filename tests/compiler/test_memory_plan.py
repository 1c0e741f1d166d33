"""The bytes that a plan tells beforehand are those that the ledger counts afterwards."""

from __future__ import annotations

import gc
from typing import Any

import pytest

import evergrad
from evergrad import nn, optim
from evergrad.errors import MemoryLimitError
from evergrad.memory.ledger import LEDGER
from evergrad.nn import functional as F

from .models import peak_of_perceptrons


def make_step(depth: int = 2, memory_limit: int | None = None) -> tuple[Any, Any, Any]:
    evergrad.manual_seed(3)
    hidden = [layer for _ in range(depth) for layer in (nn.Linear(64, 64), nn.GELU())]
    model = nn.Sequential(nn.Linear(16, 64), *hidden, nn.Linear(64, 4))
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    @evergrad.compile(memory_limit=memory_limit)
    def step(x: Any, y: Any) -> Any:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step, evergrad.randn(256, 16), evergrad.randint(0, 4, (256,))


def test_the_ledger_counts_the_planned_bytes() -> None:
    step, x, y = make_step()
    planned = step.plan(x, y).peak
    assert planned > 256 * 64 * 4
    gc.collect()  # programs of other tests
    before = LEDGER.live
    loss = step(x, y)
    assert LEDGER.live - before == planned + loss.nbytes
    for _ in range(3):
        loss = step(x, y)
        assert LEDGER.live - before == planned + loss.nbytes


def test_nothing_is_taken_before_the_first_call() -> None:
    step, x, y = make_step()
    step.plan(x, y)
    before = LEDGER.live
    assert step.plan(x, y).peak > 0
    assert LEDGER.live == before


def test_a_program_fits_into_the_limit_by_computing_values_again() -> None:
    free, x, y = make_step(depth=10)
    limit = free.plan(x, y).peak * 3 // 4
    step, x, y = make_step(depth=10, memory_limit=limit)
    assert step.plan(x, y).peak <= limit
    losses = [step(x, y).item() for _ in range(5)]
    assert losses == pytest.approx([free(x, y).item() for _ in range(5)], rel=1e-6)


def test_a_limit_that_cannot_be_kept_is_told_before_the_first_step() -> None:
    step, x, y = make_step(memory_limit=1000)
    parameters = LEDGER.live
    with pytest.raises(MemoryLimitError, match="too few"):
        step(x, y)
    assert LEDGER.live == parameters


def test_a_block_keeps_its_input_and_what_its_curve_is_made_of() -> None:
    """The norm and the curve of a block are computed again."""
    small, large = (peak_of_perceptrons(count, 8192, 32, optim.SGD) for count in (6, 10))
    assert (large - small) / 4 < 1 + 4 + 0.2
