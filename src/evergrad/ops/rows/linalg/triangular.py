"""Triangular systems on stacks of matrices.

Plain arrays; knows no tensor. Real systems are solved by a native loop, in halves where they are
large, so that most of the work is a product. OpenBLAS solves complex ones, those with one right
side and small ones; of many small matrices one row of all is computed at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from evergrad import config
from evergrad.core import openblas
from evergrad.core.types import Array
from evergrad.extension import ExtensionPoint
from evergrad.memory import pool
from evergrad.ops.rows.linalg import lapack
from evergrad.ops.rows.linalg.stacks import are_many_small, flat, work_of

_triangular_solver: ExtensionPoint[..., Any] = ExtensionPoint("triangular_solver")

# From this order on a single right side is solved by trsv, in a third of the time of trsm at 300.
# Below they take the same, and trsm, which packs, rounds alike for both layouts of the matrix.
_VECTOR_ORDER = 64
# From so many multiply-adds on the native loop is used, up to this order without a product: float32
# of order 300 with as many right sides in 350 us instead of 870, float64 in 720 instead of 2050.
_WORTH_A_LOOP = 1 << 14
_LOOP_ORDER = 160


def substitute(
    a: Array, b: Array, *, upper: bool, unit: bool = False, adjoint: bool = False
) -> Array:
    """Solve ``a x = b``, or with the ``adjoint`` of ``a``; only one triangle of ``a`` is read."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    x = pool.empty(batch + b.shape[-2:], b.dtype)
    x[...] = b
    if math.prod(a.shape[:-2]) > 1 and a.shape[:-2] != batch:
        a = np.broadcast_to(a, batch + a.shape[-2:])
    if x.size:
        _substitute(a, flat(x), upper, unit, adjoint)
    return x


def _substitute(a: Array, x: Array, upper: bool, unit: bool, adjoint: bool) -> None:
    """Replace the right sides of a flat stack by the solutions."""
    count, order, width = x.shape
    if are_many_small(count, order):
        _substitute_together(flat(a), x, upper, unit, adjoint)
        return
    is_vector = width == 1 and order >= _VECTOR_ORDER
    loop = None if is_vector else _native_loop(order * order * width, x.dtype)
    a, transposed = in_place(a, may_be_transposed=loop is not None or not adjoint)
    if loop is not None:
        if adjoint:
            a, upper = np.swapaxes(a, 1, 2), not upper
        if transposed:
            a = np.swapaxes(a, 1, 2)
        with openblas.threads_for(work_of(order, width, x.dtype)):
            _solve_in_halves(loop, a, x, upper, unit)
        return
    triangle: dict[str, object] = {
        "uplo": b"L" if upper != transposed else b"U", "diag": b"U" if unit else b"N",
        "n": order, "a": a, "lda": a.strides[1] // a.itemsize,
    }  # fmt: skip
    if is_vector:  # a^T stands in memory; OpenBLAS: R is its conjugate
        trans = b"R" if adjoint else b"N" if transposed else b"T"
        lapack.call("trsv", x.dtype, count, trans=trans, x=x, incx=1, **triangle)
        return
    # Row-major a x = b is column-major x^T a^T = b^T.
    trans = b"C" if adjoint else b"T" if transposed else b"N"
    with openblas.threads_for(work_of(order, width, x.dtype)):
        lapack.call("trsm", x.dtype, count, side=b"R", trans=trans, m=width,
                    alpha=np.ones(1, x.dtype), b=x, ldb=width, **triangle)  # fmt: skip


def in_place(a: Array, may_be_transposed: bool) -> tuple[Array, bool]:
    """A flat stack of row-major matrices in the memory of ``a``, and whether they are its
    transposes; a copy where rows and columns have other strides."""
    whole = flat(a)
    for transposed in (False, True)[: 1 + may_be_transposed]:
        found = np.swapaxes(whole, 1, 2) if transposed else whole
        _, row, element = found.strides
        if element == a.itemsize and row % element == 0 and row >= element * found.shape[2]:
            return found, transposed
    return np.ascontiguousarray(whole), False


# -- by a native loop ---------------------------------------------------------------------------


def _native_loop(work: int, dtype: np.dtype[np.generic]) -> Callable[..., None] | None:
    """The loop for so many multiply-adds of an element type, or ``None``."""
    if work < _WORTH_A_LOOP or dtype.char not in "fd" or not config.EAGER_KERNELS:
        return None
    found: Callable[..., None] | None = _triangular_solver(dtype.itemsize)
    return found


def _solve_in_halves(
    loop: Callable[..., None], a: Array, x: Array, upper: bool, unit: bool
) -> None:
    """Replace right sides by solutions; the rows or the columns of ``a`` are contiguous."""
    order = x.shape[1]
    if order <= _LOOP_ORDER:
        _solve_by_loop(loop, a, x, upper, unit)
        return
    half = order // 2
    first, rest = slice(half), slice(half, None)
    if upper:
        first, rest = rest, first
    _solve_in_halves(loop, a[:, first, first], x[:, first], upper, unit)
    _subtract_product(a[:, rest, first], x[:, first], x[:, rest])
    _solve_in_halves(loop, a[:, rest, rest], x[:, rest], upper, unit)


def _subtract_product(a: Array, x: Array, y: Array) -> None:
    """``y -= a x`` on stacks, of row-major ``x`` and ``y``: column-major ``y^T -= x^T a^T``."""
    one = np.ones(1, x.dtype)
    itemsize = x.itemsize
    by_columns = a.strides[2] != itemsize
    lapack.call("gemm", x.dtype, len(x), transa=b"N", transb=b"T" if by_columns else b"N",
                m=x.shape[2], n=y.shape[1], k=x.shape[1], alpha=-one, a=x,
                lda=x.strides[1] // itemsize, b=a, ldb=a.strides[1 + by_columns] // itemsize,
                beta=one, c=y, ldc=y.strides[1] // itemsize)  # fmt: skip


def _solve_by_loop(loop: Callable[..., None], a: Array, x: Array, upper: bool, unit: bool) -> None:
    if upper:  # from the last row and column to the first it is a lower triangle
        a, x = a[:, ::-1, ::-1], x[:, ::-1]
    numbers = (*_strides(a), *_strides(x)[:2])
    loop(_address(a), _address(x), *x.shape, *numbers, int(unit))


def _strides(stack: Array) -> tuple[int, ...]:
    """The strides in elements; one matrix serves the whole stack."""
    matrix, *others = (stride // stack.itemsize for stride in stack.strides)
    return (matrix if len(stack) > 1 else 0, *others)


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


# -- of many small matrices ---------------------------------------------------------------------


def _substitute_together(a: Array, x: Array, upper: bool, unit: bool, adjoint: bool) -> None:
    """One row of all matrices at a time."""
    if adjoint:
        a, upper = np.conj(np.swapaxes(a, 1, 2)), not upper
    order = x.shape[1]
    for i in reversed(range(order)) if upper else range(order):
        known = slice(i + 1, order) if upper else slice(0, i)
        if known.stop > known.start:
            x[:, i] -= (a[:, i, known, None] * x[:, known]).sum(1)
        if not unit:
            x[:, i] /= a[:, i, i, None]
