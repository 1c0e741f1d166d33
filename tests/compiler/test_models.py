"""Whole models, compiled: the same training as eager, for long, in constant memory."""

from __future__ import annotations

import sys

import pytest

import evergrad as eg
from evergrad.memory.ledger import LEDGER
from fresh_process import in_fresh_process, resident

from .models import MODELS
from .plans import check_plan
from .steps import check, programs_of

models = pytest.mark.parametrize("name", MODELS)


@models
def test_training_is_that_of_eager_evaluation(name: str) -> None:
    """In float64, so that what differs is the order of sums alone."""
    eg.set_default_dtype(eg.float64)
    try:
        check(MODELS[name], 6, tolerance=1e-6, programs=2)
    finally:
        eg.set_default_dtype(eg.float32)


@models
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_memory_is_constant(name: str) -> None:
    in_fresh_process(check_that_memory_is_constant, name)


def check_that_memory_is_constant(name: str) -> None:
    training = MODELS[name]()
    step = eg.compile(training.step)
    for round in range(100):
        step(*training.arguments(round))
    for program in programs_of(step):
        check_plan(program)
    before, pages = (LEDGER.live, LEDGER.count), resident()
    for round in range(300):
        step(*training.arguments(round))
        assert (LEDGER.live, LEDGER.count) == before
    assert resident() - pages < 1 << 20
