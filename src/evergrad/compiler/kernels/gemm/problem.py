"""Products of matrices as kernels see them: extents, steps and batches.

Says which arrays are matrices as they lie; knows nothing of the kernels that multiply them.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

BATCH_DIMS = 3


class Matrix:
    """A matrix (or a stack of them) as BLAS wants it: transposed or not, and the leading extent."""

    __slots__ = ("leading", "transposed")

    def __init__(self, transposed: bool, leading: int) -> None:
        self.transposed = transposed
        self.leading = leading

    @property
    def steps(self) -> tuple[int, int]:
        """From row to row and from column to column, in elements."""
        return (1, self.leading) if self.transposed else (self.leading, 1)


def as_it_lies(layout: Any) -> Matrix | None:
    """The last two dimensions of an array for BLAS; ``None`` if they must be copied first."""
    rows, columns = layout.shape[-2:]
    size = layout.itemsize
    row_step, column_step = layout.strides[-2:]
    if rows == 1:
        row_step = max(columns * size, column_step if columns > 1 else 0, size)
    if columns == 1:
        column_step = size if rows == 1 or row_step != size else max(rows * size, size)
    if column_step == size and row_step % size == 0 and row_step >= columns * size:
        return Matrix(False, row_step // size)
    if row_step == size and column_step % size == 0 and column_step >= rows * size:
        return Matrix(True, column_step // size)
    return None


class Batch(NamedTuple):
    """Extents of a batch of three dimensions but the first, and its steps in bytes."""

    e1: int
    e2: int
    a0: int
    a1: int
    a2: int
    b0: int
    b1: int
    b2: int
    c_step: int


class Product:
    """``C = A B`` with shapes and strides in bytes; batches are broadcast."""

    def __init__(self, a: Any, b: Any, batch: tuple[int, ...]) -> None:
        self.m, self.k = a.shape[-2:]
        self.n = b.shape[-1]
        self.batch = batch
        self.a, self.b = as_it_lies(a), as_it_lies(b)
        self.a_steps = _batch_steps(a, batch)
        self.b_steps = _batch_steps(b, batch)

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
        c_step = self.m * self.n * itemsize
        return Batch._make((e1, e2, *pad, *self.a_steps, *pad, *self.b_steps, c_step))


def _batch_steps(array: Any, batch: tuple[int, ...]) -> list[int]:
    steps = [0] * len(batch)
    own = array.shape[:-2]
    for d, (extent, step) in enumerate(zip(own, array.strides, strict=False)):
        if extent != 1:
            steps[len(batch) - len(own) + d] = step
    return steps
