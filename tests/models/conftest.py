"""Set-up of the models' tests: kernels kept beside their other files, default types put back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import evergrad as eg
from evergrad import config


@pytest.fixture(scope="session", autouse=True)
def kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Object code of the tests is not left in the user's cache."""
    before = config.KERNEL_CACHE
    config.KERNEL_CACHE = str(tmp_path_factory.mktemp("kernels"))
    yield
    config.KERNEL_CACHE = before


@pytest.fixture
def float64() -> Iterator[None]:
    """Models are made in float64, so that what differs is the order of sums alone."""
    eg.set_default_dtype(eg.float64)
    yield
    eg.set_default_dtype(eg.float32)
