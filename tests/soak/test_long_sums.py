"""Sums of up to 2^27 elements against exact ones."""

from __future__ import annotations

import gc
import math
from typing import Any

import numpy as np
import pytest

import evergrad as eg

ELEMENTS = 1 << 27


def exact_column_sums(x: Any) -> list[float]:
    """The exact sums of columns: of float32 in float64 by halves, then with ``math.fsum``."""
    rows = x.reshape(-1, 1 << 12, x.shape[-1])
    # 4096 float32 numbers of like size add up exactly enough in float64.
    partial = rows.astype(np.float64).sum(1) if rows.size <= 1 << 22 else np.concatenate(
        [block.astype(np.float64).sum(1) for block in np.array_split(rows, 64)]
    )  # fmt: skip
    return [math.fsum(column) for column in partial.T.tolist()]


@pytest.mark.parametrize("kind", ["constant", "random"])
@pytest.mark.parametrize("columns", [1, 2, 8, 512])
def test_column_sums(columns: int, kind: str) -> None:
    rows = ELEMENTS // columns
    rng = np.random.default_rng(0)
    x = (np.full((rows, columns), 0.1, np.float32) if kind == "constant"
         else rng.random((rows, columns), np.float32))  # fmt: skip
    expected = np.array(exact_column_sums(x))
    given = eg.from_numpy(x)
    compiled = eg.compile(lambda x: (x * 1.0).sum(0))
    for found in (given.sum(0), given.mean(0) * rows, compiled(given)):
        np.testing.assert_allclose(found.numpy(), expected, rtol=3e-6)
    total = math.fsum(expected)
    assert float(given.sum()) == pytest.approx(total, rel=3e-6)
    assert float(eg.compile(lambda x: (x * 1.0).sum())(given)) == pytest.approx(total, rel=3e-6)
    del given, x
    gc.collect()


def test_a_mean_of_many_ones() -> None:
    assert eg.ones(1 << 25, 2).mean(0).tolist() == [1.0, 1.0]
