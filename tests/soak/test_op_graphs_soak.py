"""20,000 random op graphs beside PyTorch, values and gradients; every fifth is compiled too."""

from __future__ import annotations

from types import ModuleType

import pytest

from compiler.op_graphs import check

CHUNK = 1_000


@pytest.mark.parametrize("start", range(1_000, 21_000, CHUNK))
def test_1_000_graphs_beside_pytorch(start: int, torch: ModuleType) -> None:
    compared = [check(seed, torch, seed % 5 == 0) for seed in range(start, start + CHUNK)]
    assert sum(compared) >= 0.99 * CHUNK
