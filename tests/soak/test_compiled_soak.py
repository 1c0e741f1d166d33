"""Compiled training for very long: live bytes to the byte, the process's memory without a slope."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest

import evergrad as eg
from compiler.models import MODELS
from compiler.shape_changes import train_with_changing_shapes
from evergrad.memory.ledger import LEDGER
from fresh_process import resident

STEPS = 100_000


pytestmark = pytest.mark.usefixtures("collector_off")


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("name", MODELS)
def test_100_000_steps(name: str) -> None:
    training = MODELS[name]()
    step = eg.compile(training.step)
    batches = [training.arguments(n) for n in range(16)]
    for batch in batches * 20:
        step(*batch)
    before = LEDGER.live, LEDGER.count
    pages = []
    for n in range(STEPS):
        loss = step(*batches[n % len(batches)])
        assert (LEDGER.live, LEDGER.count - 1) == (before[0] + loss.nbytes, before[1])
        if n % 1_000 == 0:
            assert math.isfinite(loss.item())
            pages.append(resident())
        del loss
    slope, _ = np.polyfit(np.arange(len(pages)), pages, 1)
    assert slope * len(pages) < 1 << 20, "the process grows"


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_100_000_steps_with_changing_shapes() -> None:
    train_with_changing_shapes(steps=2_000, shapes=12)
    before = resident()
    live = train_with_changing_shapes(steps=STEPS, shapes=12)
    assert len(set(live[1:])) == 1
    assert resident() - before < 8 << 20, "the process grows"
