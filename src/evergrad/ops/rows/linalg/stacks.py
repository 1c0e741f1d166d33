"""Stacks of matrices, row-major as tensors have them and column-major as LAPACK takes them.

A column-major stack is an array ``c`` with ``c[i, column, row]``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from evergrad.memory import pool
from evergrad.ops.rows.linalg import lapack

Array = np.ndarray[Any, Any]


def flat(a: Array) -> Array:
    """A stack of matrices with one leading dimension."""
    return a.reshape(math.prod(a.shape[:-2]), *a.shape[-2:])


def copied(a: Array) -> Array:
    """A contiguous copy with one leading dimension, which LAPACK reads as the transposes."""
    return flat(pool.copy(a))


def to_columns(a: Array) -> Array:
    """The column-major copy of a stack."""
    return flat(pool.copy(np.swapaxes(a, -2, -1)))


def to_rows(columns: Array, shape: tuple[int, ...]) -> Array:
    """The row-major copy of a column-major stack, with all its leading dimensions."""
    return pool.copy(np.swapaxes(columns, -2, -1)).reshape(shape)


def zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    found = pool.empty(shape, dtype)
    found.fill(0)
    return found


def triangle(columns: Array, *, upper: bool, rows: int | None = None) -> Array:
    """One triangle of a column-major stack, of its first rows only if given; zeros elsewhere."""
    count, width, height = columns.shape
    kept = height if rows is None else rows
    found = zeros((count, width, kept), columns.dtype)
    if found.size:
        lapack.call(
            "lacpy", columns.dtype, count, uplo=b"U" if upper else b"L", m=kept, n=width,
            a=columns, lda=columns.strides[1] // columns.itemsize, b=found, ldb=kept,
        )  # fmt: skip
    return found
