"""Stacks of matrices, row-major as tensors have them and column-major as LAPACK takes them.

A column-major stack is an array ``c`` with ``c[i, column, row]``.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from evergrad.core.types import Array
from evergrad.memory import pool
from evergrad.ops.rows.linalg import lapack

# Up to this order, and from so many matrices for each row on, a stack is computed together.
_TOGETHER, _MANY = 16, 4


def are_many_small(count: int, *shape: int) -> bool:
    """Whether one row or column of all matrices at a time takes less than LAPACK's calls."""
    return min(shape) > 0 and max(shape) <= _TOGETHER and count >= _MANY * max(shape)


def work_of(order: int, other: int, dtype: np.dtype[np.generic]) -> int:
    """Multiply-adds of a factorization or system, roughly."""
    return order * order * other * (4 if dtype.kind == "c" else 1)


def flat(a: Array) -> Array:
    """A stack of matrices with one leading dimension."""
    return a.reshape(math.prod(a.shape[:-2]), *a.shape[-2:])


def copied(a: Array) -> Array:
    """A contiguous copy with one leading dimension, which LAPACK reads as the transposes."""
    return flat(pool.copy(a))


def to_columns(a: Array) -> Array:
    """The column-major copy of a stack."""
    return _transposed(flat(a))


def to_rows(columns: Array, shape: tuple[int, ...]) -> Array:
    """The row-major copy of a column-major stack, with all its leading dimensions."""
    return _transposed(columns).reshape(shape)


# From so many elements on OpenBLAS transposes real matrices in less time than NumPy, above all
# where rows are a power of two apart: float32 of order 512 in 54 us instead of 600.
_WORTH_A_TRANSPOSE = 1 << 14


def _transposed(stack: Array) -> Array:
    """The contiguous copy of the transposes of a flat stack."""
    count, height, width = stack.shape
    known = stack.dtype.char in "fd" and stack.flags.c_contiguous
    if not known or height * width < _WORTH_A_TRANSPOSE:
        return pool.copy(np.swapaxes(stack, 1, 2))
    found = pool.empty((count, width, height), stack.dtype)
    lapack.call("omatcopy", stack.dtype, count, order=b"R", trans=b"T", rows=height, cols=width,
                alpha=np.ones(1, stack.dtype), a=stack, lda=width, b=found, ldb=height)  # fmt: skip
    return found


def zeros(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
    found = pool.empty(shape, dtype)
    found.fill(0)
    return found


def triangle(columns: Array, *, upper: bool, rows: int | None = None) -> Array:
    """One triangle of a column-major stack, of its first rows only if given; zeros elsewhere."""
    count, width, height = columns.shape
    kept = height if rows is None else rows
    found = zeros((count, width, kept), columns.dtype)
    _copy_triangle(columns[:, :, :kept], found, upper)
    return found


def clear_beside(rows: Array, *, upper: bool) -> None:
    """Zeros above, or below, the diagonals of a row-major stack of square matrices."""
    beside, order = (rows[:, :, 1:] if upper else rows[:, 1:]), rows.shape[1]
    zero = np.zeros(1, rows.dtype)
    # Of a column-major matrix it is the other triangle.
    lapack.call("laset", rows.dtype, len(rows), uplo=b"L" if upper else b"U", m=order - 1,
                n=order - 1, alpha=zero, beta=zero, a=beside, lda=order)  # fmt: skip


def _copy_triangle(columns: Array, to: Array, upper: bool) -> None:
    """Copy one triangle between column-major stacks of one shape."""
    count, width, height = columns.shape
    if columns.size:
        lda, ldb = (x.strides[1] // x.itemsize for x in (columns, to))
        lapack.call("lacpy", columns.dtype, count, uplo=b"U" if upper else b"L", m=height, n=width,
                    a=columns, lda=lda, b=to, ldb=ldb)  # fmt: skip


# Types of the sizes that LAPACK copies; from so many elements on it takes less time than NumPy.
_COPIED_AS: dict[int, np.dtype[np.generic]] = {
    4: np.dtype(np.float32),
    8: np.dtype(np.float64),
    16: np.dtype(np.complex128),
}
_WORTH_A_CALL = 8192


@lru_cache(64)
def _triangle(rows: int, width: int, offset: int, upper: bool) -> Array:
    """Which elements of a small matrix are in a triangle."""
    inside = np.tri(rows, width, offset - upper, dtype=bool)
    return ~inside if upper else inside


def cut_triangle(x: Array, offset: int, *, upper: bool) -> Array:
    """``np.triu`` or ``np.tril`` of a stack, without a mask of its size where there is a way."""
    rows, width = x.shape[-2:]
    word = _COPIED_AS.get(x.itemsize)
    if rows * width < _WORTH_A_CALL:
        zero = np.zeros((), x.dtype)
        return np.where(_triangle(rows, width, offset, upper), x, zero)
    if word is None or abs(offset) >= min(rows, width):
        return (np.triu if upper else np.tril)(x, offset)
    given = flat(np.ascontiguousarray(x)).view(word)
    found = zeros(given.shape, word)
    if (offset < 0) == upper:  # beside the triangle stands a rectangle
        beside = np.s_[:, :-offset] if upper else np.s_[:, :, :offset]
        found[beside] = given[beside]
    inner = np.s_[:, -min(offset, 0) :, max(offset, 0) :]
    _copy_triangle(given[inner], found[inner], not upper)  # row-major: the other one
    return found.view(x.dtype).reshape(x.shape)
