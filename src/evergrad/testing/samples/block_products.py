"""Samples of products with sparse matrices of dense blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from evergrad.core.bind import bind
from evergrad.ops.rows.block_products import BLOCK_PRODUCT, block_samples
from evergrad.testing.samples import Array, complex_normal, normal, sample

if TYPE_CHECKING:
    from evergrad.core.types import Kwargs


def _product(count: int) -> Callable[..., Array]:
    def reference(values: Array, dense: Array, rows: Array, columns: Array) -> Array:
        out = np.zeros((count, values.shape[1], dense.shape[2]), values.dtype)
        for block, row, column in zip(values, rows, columns, strict=True):
            out[row] += block @ dense[column]
        return out

    return reference


def _samples(a: Array, b: Array, rows: Array, columns: Array) -> Array:
    found = [a[row] @ b[column].T for row, column in zip(rows, columns, strict=True)]
    return np.array(found).reshape(len(rows), a.shape[1], b.shape[1])


def _enter(
    rows: list[int], columns: list[int], grid: tuple[int, int], block: tuple[int, int], width: int,
    label: str, values: Callable[..., Array] = normal,
) -> None:  # fmt: skip
    """A matrix of ``grid`` blocks, those at ``rows`` and ``columns`` stored."""
    places = np.array(rows, np.int64), np.array(columns, np.int64)
    (m, k), (high, wide) = block, grid
    blocks, dense = values(len(rows), m, k), values(wide, k, width, seed=2)
    left = values(high, m, width, seed=3)
    options: Kwargs = {"torch": False, "dtypes": ("float32",), "label": label}
    if values is complex_normal:
        options["dtypes"] = ()
    sample("block_product", lambda ns, *args: bind(BLOCK_PRODUCT, *args, count=high), blocks, dense,
           *places, reference=_product(high), **options)  # fmt: skip
    sample("block_samples", lambda ns, *args: block_samples(*args), left, dense, *places,
           reference=_samples, **options)  # fmt: skip


_enter([0, 1, 1], [2, 0, 2], (3, 3), (1, 1), 2, "numbers")
_enter([0, 1, 1], [2, 0, 2], (3, 3), (2, 3), 2, "blocks")
_enter([2, 0, 2, 0], [0, 1, 0, 0], (3, 2), (2, 1), 3, "unsorted-and-twice")
_enter([], [], (2, 3), (2, 2), 2, "none")
_enter([0], [0], (1, 1), (2, 2), 0, "no-columns")
_enter([0, 1], [1, 0], (2, 2), (1, 2), 2, "complex", complex_normal)
