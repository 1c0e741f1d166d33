"""Differentiable collectives, data parallel training: one start of the job, many checks."""

from __future__ import annotations

import pytest

from .checks import names
from .launching import results

PROGRAMS = [
    (2, "differentiable"),
    (3, "differentiable"),
    (2, "ddp"),
    (4, "ddp"),
    (2, "models"),
    (4, "models_short"),
    (2, "sharding"),
    (4, "sharding"),
]
CHECKS = [(n, program, name) for n, program in PROGRAMS for name in names(program)]


@pytest.mark.parametrize(("ranks", "program", "check"), CHECKS, ids=lambda value: str(value))
def test_training(ranks: int, program: str, check: str) -> None:
    for rank, error in enumerate(results(ranks, program)[check]):
        assert not error, f"rank {rank}: {error}"
