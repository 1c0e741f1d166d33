"""Optimizers that step in several threads at once give, to the bit, what each gives alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from evergrad.testing.training import check_threads


@pytest.fixture(autouse=True)
def switching_often() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_optimizers_of_one_kind_share_no_scratch(compiled: bool) -> None:
    check_threads(compiled, steps=60)
