"""Collectives of two ranks and of four: one start of the job each, many checks."""

from __future__ import annotations

import pytest

from .checks import names
from .launching import results

CHECKS = [(n, name) for n in (2, 4) for name in names("collectives")]


@pytest.mark.parametrize(("ranks", "check"), CHECKS, ids=lambda value: str(value))
def test_collectives(ranks: int, check: str) -> None:
    for rank, error in enumerate(results(ranks, "collectives")[check]):
        assert not error, f"rank {rank}: {error}"
