"""Set-up of the models' tests: default types put back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import evergrad as eg


@pytest.fixture
def float64() -> Iterator[None]:
    """Models are made in float64, so that what differs is the order of sums alone."""
    eg.set_default_dtype(eg.float64)
    yield
    eg.set_default_dtype(eg.float32)
