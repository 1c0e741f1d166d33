"""5,000 random Python steps, eager and compiled, over five calls each."""

from __future__ import annotations

import pytest

from compiler.semantics.test_random_steps import check

CHUNK = 250


@pytest.mark.parametrize("start", range(1_000, 6_000, CHUNK))
def test_250_random_steps(start: int) -> None:
    for seed in range(start, start + CHUNK):
        check(seed)
