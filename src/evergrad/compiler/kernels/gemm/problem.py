"""Matrix products as problems: extents, strides and batches, independent of kernels."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from evergrad.core.tensor import Array

BATCH_DIMS = 3


class Matrix:
    """The layout of a matrix (or a stack of them) for BLAS: transposed or not, and the leading
    extent."""

    __slots__ = ("leading", "transposed")

    def __init__(self, transposed: bool, leading: int) -> None:
        self.transposed: bool = transposed
        self.leading: int = leading

    @property
    def strides(self) -> tuple[int, int]:
        """The strides of rows and of columns, in elements."""
        return (1, self.leading) if self.transposed else (self.leading, 1)


def as_matrix(layout: Array) -> Matrix | None:
    """The last two dimensions of an array for BLAS; ``None`` if they must be copied first."""
    rows, columns = layout.shape[-2:]
    size = layout.itemsize
    row_stride, column_stride = layout.strides[-2:]
    if rows == 1:
        row_stride = max(columns * size, column_stride if columns > 1 else 0, size)
    if columns == 1:
        column_stride = size if rows == 1 or row_stride != size else max(rows * size, size)
    if column_stride == size and row_stride % size == 0 and row_stride >= columns * size:
        return Matrix(False, row_stride // size)
    if row_stride == size and column_stride % size == 0 and column_stride >= rows * size:
        return Matrix(True, column_stride // size)
    return None


class Batch(NamedTuple):
    """Extents of a batch of three dimensions but the first, and its strides in bytes."""

    e1: int
    e2: int
    a0: int
    a1: int
    a2: int
    b0: int
    b1: int
    b2: int
    c_stride: int


class Product:
    """``C = A B`` with shapes and strides in bytes; batches are broadcast."""

    b: Matrix | None
    a: Matrix | None
    k: Any
    m: Any

    def __init__(self, a: Array, b: Array, batch: tuple[int, ...]) -> None:
        self.m, self.k = a.shape[-2:]
        self.n: Any = b.shape[-1]
        self.batch = batch
        self.a, self.b = as_matrix(a), as_matrix(b)
        self.a_strides: list[int] = _batch_strides(a, batch)
        self.b_strides: list[int] = _batch_strides(b, batch)

    @property
    def items(self) -> int:
        return prod(self.batch)

    @property
    def work(self) -> int:
        """The multiplications of one product of the batch."""
        return int(self.m * self.n * self.k)

    def batch_numbers(self, itemsize: int) -> Batch:
        missing = BATCH_DIMS - len(self.batch)
        _, e1, e2 = [1] * missing + list(self.batch)
        pad = [0] * missing
        c_stride = self.m * self.n * itemsize
        return Batch._make((e1, e2, *pad, *self.a_strides, *pad, *self.b_strides, c_stride))


def _batch_strides(array: Array, batch: tuple[int, ...]) -> list[int]:
    strides = [0] * len(batch)
    own = array.shape[:-2]
    for d, (extent, stride) in enumerate(zip(own, array.strides, strict=False)):
        if extent != 1:
            strides[len(batch) - len(own) + d] = stride
    return strides
