"""Random op graphs beside PyTorch; 20,000 of them are in tests/soak."""

from __future__ import annotations

from types import ModuleType

import pytest

from .op_graphs import check


@pytest.mark.parametrize("start", range(0, 200, 50))
def test_graphs_beside_pytorch(start: int, torch: ModuleType) -> None:
    compared = [check(seed, torch, seed % 10 == 0) for seed in range(start, start + 50)]
    assert sum(compared) >= 49
