"""Compiled training for very long: live bytes to the byte, the process's memory without a slope."""

from __future__ import annotations

import math
import os
import sys

import numpy as np
import pytest

import evergrad as eg
from compiler.models import MODELS
from evergrad.memory.ledger import LEDGER

STEPS = 100_000


pytestmark = pytest.mark.usefixtures("collector_off")


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


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
