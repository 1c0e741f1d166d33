"""Sparse matrices whose rows (CSR, BSR) or columns (CSC, BSC) are compressed.

Elements are stored row by row; a vector of pointers says where each row begins. In the blocked
layouts an element is a dense block. Batches of matrices have the same number of elements each::

    pointers  [*batch, rows + 1]     rows of blocks (columns where these are compressed)
    plain     [*batch, n]            the column of each element
    elements  [*batch, n, *block, *dense]

Rows of the op table that do not keep the pattern are applied in coordinate form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core.compound import CompoundType, no_form, without_array
from evergrad.core.dtypes import dtype
from evergrad.core.memory_format import layout as Layout
from evergrad.core.memory_format import sparse_bsc, sparse_bsr, sparse_csc, sparse_csr
from evergrad.core.op import Op
from evergrad.core.shapes import Shape
from evergrad.core.tensor import Array, Tensor, detached, from_array
from evergrad.extension import ExtensionPoint
from evergrad.sparse.pattern import Patterned, converted
from evergrad.sparse.text import sparse_text

if TYPE_CHECKING:
    from evergrad.core.types import DtypeLike, MemoryFormatLike

_to_sparse: ExtensionPoint[..., Tensor] = ExtensionPoint("to_sparse")
_coordinate_pattern: ExtensionPoint[..., Patterned] = ExtensionPoint("coordinate_pattern")
_row: ExtensionPoint[[Op], Any] = ExtensionPoint("compressed_row")

# The parts of each layout: where its rows (or columns) begin, and the index within them.
_BY_ROW, _BY_COLUMN = ("crow_indices", "col_indices"), ("ccol_indices", "row_indices")
NAMES: dict[Layout, tuple[str, str]] = {
    sparse_csr: _BY_ROW,
    sparse_csc: _BY_COLUMN,
    sparse_bsr: _BY_ROW,
    sparse_bsc: _BY_COLUMN,
}
TRANSPOSED = {
    sparse_csr: sparse_csc,
    sparse_csc: sparse_csr,
    sparse_bsr: sparse_bsc,
    sparse_bsc: sparse_bsr,
}


def is_by_row(layout: Layout) -> bool:
    """Whether rows are compressed, not columns."""
    return NAMES[layout] is _BY_ROW


def is_blocked(layout: Layout) -> bool:
    """Whether elements are dense blocks."""
    return layout is sparse_bsr or layout is sparse_bsc


def layout_word(layout: Layout) -> str:
    """A layout as error messages name it: ``SparseCsr``."""
    return "Sparse" + layout.name[7:].capitalize()


class CompressedTensor(Patterned):
    """A sparse matrix with compressed rows or columns, of numbers or blocks, or a batch of them."""

    __slots__ = ("_elements", "_layout", "_plain", "_pointers")

    _pointers: Tensor
    _plain: Tensor
    _layout: Layout

    # -- pattern ----------------------------------------------------------------------------

    def rebuilt(self, elements: Tensor) -> CompressedTensor:
        return raw_compressed(self._pointers, self._plain, elements, self._type.shape, self._layout)

    def parts(self) -> tuple[Tensor, ...]:
        return self._pointers, self._plain, self._elements

    def at_pattern(self, cotangent: Tensor) -> Tensor:
        if isinstance(cotangent, CompressedTensor) and cotangent._plain is self._plain:
            return cotangent.live_elements()
        found = _coordinate_pattern(self).at_pattern(cotangent)
        return found.reshape(self._elements.shape)

    def bind_row(self, op: Op, args: tuple[object, ...], attrs: dict[str, object]) -> Any:
        row = _row(op)
        if row is None:
            raise no_form(op.name, self)
        return row(op, args, attrs)

    def add_into(self, array: Array) -> None:
        self.detach().to_sparse_coo().add_into(array)

    # -- what it is -------------------------------------------------------------------------

    @property
    def layout(self) -> Layout:
        """``sparse_csr``, ``sparse_csc``, ``sparse_bsr`` or ``sparse_bsc``."""
        return self._layout

    @property
    def backend(self) -> str:  # type: ignore[override]
        return f"{self.layout_name}CPU"

    @property
    def layout_name(self) -> str:  # type: ignore[override]
        return layout_word(self._layout)

    @property
    def is_sparse_csr(self) -> bool:
        return self._layout is sparse_csr

    def sparse_dim(self) -> int:
        """The number of indexed dimensions."""
        return 2

    def dense_dim(self) -> int:
        """The number of dimensions that an element has, its block aside."""
        return self.ndim - self.batch_dim() - 2

    def batch_dim(self) -> int:
        """The number of dimensions before those of the matrix."""
        return self._pointers.ndim - 1

    def batch_shape(self) -> Shape:
        """The extents before those of the matrix."""
        return self._type.shape[: self.batch_dim()]

    def matrix_shape(self) -> tuple[int, int]:
        """Rows and columns of each matrix."""
        batch = self.batch_dim()
        return self._type.shape[batch], self._type.shape[batch + 1]

    def blocksize(self) -> tuple[int, int]:
        """Rows and columns of a block, 1 x 1 where elements are numbers."""
        if not is_blocked(self._layout):
            return 1, 1
        first = self._pointers.ndim
        return self._elements._type.shape[first], self._elements._type.shape[first + 1]

    def blocks(self) -> Tensor:
        """All blocks of all matrices, ``[blocks, *block, *dense]``, with their history."""
        count = self._plain._type.numel
        dense = self._type.shape[self.batch_dim() + 2 :]
        return self.live_elements().reshape(count, *self.blocksize(), *dense)

    def _nnz(self) -> int:
        return self._plain._type.shape[-1]

    def stride(self, dim: int | None = None) -> Any:
        raise RuntimeError(f"Sparse {self.layout_name[6:].upper()} tensors do not have strides")

    def is_contiguous(self, memory_format: MemoryFormatLike = None) -> bool:
        return False

    # -- parts ------------------------------------------------------------------------------

    def _part(self, name: str, wanted: Layout, part: Tensor) -> Tensor:
        if is_by_row(self._layout) is not is_by_row(wanted):
            raise RuntimeError(
                f"{name} expected sparse {'row' if wanted is sparse_csr else 'column'} compressed "
                f"tensor layout but got {self.layout_name}"
            )
        return detached(part)

    def crow_indices(self) -> Tensor:
        """Where each row begins, and where the last ends."""
        return self._part("crow_indices", sparse_csr, self._pointers)

    def col_indices(self) -> Tensor:
        """The column of each element."""
        return self._part("col_indices", sparse_csr, self._plain)

    def ccol_indices(self) -> Tensor:
        """Where each column begins, and where the last ends."""
        return self._part("ccol_indices", sparse_csc, self._pointers)

    def row_indices(self) -> Tensor:
        """The row of each element."""
        return self._part("row_indices", sparse_csc, self._plain)

    def values(self) -> Tensor:
        """The elements."""
        return self.live_elements()

    # -- other layouts ----------------------------------------------------------------------

    def to_dense(self, dtype: DtypeLike = None, *, masked_grad: bool | None = None) -> Tensor:
        """The same elements as one dense tensor."""
        return self.to_sparse_coo().to_dense(dtype)

    def to_sparse(self, *args: object, **options: object) -> Tensor:
        """In another sparse layout; in coordinate form if none is named."""
        return _to_sparse(self, *args, **options)

    def filled(self, value: object, dtype: dtype) -> Tensor:
        if value != 0:
            raise no_form("full_like", self)
        first = self._pointers.ndim - 1
        elements = self._elements._type.shape
        pointers = np.zeros(self._pointers._type.shape, self._pointers.dtype.np)
        plain = np.zeros((*elements[:first], 0), self._plain.dtype.np)
        blocks = np.zeros((*elements[:first], 0, *elements[first + 1 :]), dtype.np)
        pattern = from_array(pointers), from_array(plain)
        return raw_compressed(*pattern, from_array(blocks), self._type.shape, self._layout)

    # -- in place ---------------------------------------------------------------------------

    def zero_(self) -> CompressedTensor:
        """Forget all elements."""
        self.take_over(self.filled(0, self.dtype))
        return self

    def fill_(self, value: Any) -> CompressedTensor:
        """Set the elements that are stored."""
        made = self.with_elements(self.live_elements().clone().fill_(value))
        self.take_over(made)
        return self

    def copy_(self, other: Tensor, non_blocking: bool = False) -> CompressedTensor:  # type: ignore[override]
        """Take the elements of another matrix of the same layout."""
        if not isinstance(other, CompressedTensor) or other._layout is not self._layout:
            raise RuntimeError(
                "copy of sparse compressed tensors having different layouts is not supported. self "
                f"layout is {self.layout} and src layout is {other.layout}"
            )
        if other._type.shape != self._type.shape or other._nnz() != self._nnz():
            raise RuntimeError(
                "copy_: only sparse compressed tensors with the same shape and number of specified "
                "elements are supported."
            )
        self.take_over(converted(other, self.dtype).clone())
        return self

    # -- the rest ---------------------------------------------------------------------------

    def _text(self) -> str:
        compressed, plain = NAMES[self._layout]
        parts = {compressed: self._pointers, plain: self._plain, "values": self._elements}
        return sparse_text(self, parts, new_line=False)

    def __reduce_ex__(
        self, protocol: object
    ) -> tuple[
        Callable[[Tensor, Tensor, Tensor, tuple[int, ...], str, bool], Tensor],
        tuple[Tensor, Tensor, Tensor, tuple[int, ...], str, bool],
    ]:
        args = (self._pointers, self._plain, self._elements, self._type.shape)
        return _rebuilt, (*args, self._layout.name, self.requires_grad)


def _rebuilt(
    pointers: Tensor, plain: Tensor, elements: Tensor, shape: Shape, name: str, requires_grad: bool
) -> Tensor:
    layout = next(known for known in NAMES if known.name == name)
    made = raw_compressed(pointers, plain, elements, shape, layout)
    return made.requires_grad_(requires_grad)


def raw_compressed(
    pointers: Tensor, plain: Tensor, elements: Tensor, shape: Shape, layout: Layout
) -> CompressedTensor:
    """A compressed matrix of these parts, without history. Nothing is checked."""
    made: CompressedTensor = without_array(
        CompressedTensor, CompoundType(tuple(shape), elements.dtype)
    )
    made._pointers = pointers
    made._plain = plain
    made._elements = elements
    made._layout = layout
    return made
