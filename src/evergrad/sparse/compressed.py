"""Sparse matrices whose rows (CSR) or columns (CSC) are compressed.

Elements stand row by row; a vector of pointers says where each row begins. What is computed with
such a matrix is computed in coordinate form, on the same elements.
"""

from __future__ import annotations

from typing import Any

from evergrad.core.compound import CompoundType, no_form, without_array
from evergrad.core.memory_format import layout as Layout
from evergrad.core.memory_format import sparse_csc, sparse_csr
from evergrad.core.op import Op
from evergrad.core.shapes import Shape
from evergrad.core.tensor import Array, Tensor, detached
from evergrad.extension import ExtensionPoint
from evergrad.sparse.pattern import Patterned
from evergrad.sparse.text import sparse_text

_to_sparse: ExtensionPoint[..., Tensor] = ExtensionPoint("to_sparse")
_coordinate_pattern: ExtensionPoint[..., Patterned] = ExtensionPoint("coordinate_pattern")
_row: ExtensionPoint[[str], Any] = ExtensionPoint("compressed_row")

# The parts of each layout: where its rows (or columns) begin, and the index within them.
NAMES: dict[Any, tuple[str, str]] = {
    sparse_csr: ("crow_indices", "col_indices"),
    sparse_csc: ("ccol_indices", "row_indices"),
}


class CompressedTensor(Patterned):
    """A sparse matrix with compressed rows or columns."""

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
        return _coordinate_pattern(self).at_pattern(cotangent)

    def bind_row(self, op: Op, args: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        row = _row(op.name)
        if row is None:
            raise no_form(op.name, self)
        return row(op, args, attrs)

    def add_into(self, array: Array) -> None:
        self.detach().to_sparse_coo().add_into(array)

    # -- what it is -------------------------------------------------------------------------

    @property
    def layout(self) -> Layout:
        """``sparse_csr`` or ``sparse_csc``."""
        return self._layout

    @property
    def backend(self) -> str:  # type: ignore[override]
        return f"{self.layout_name}CPU"

    @property
    def layout_name(self) -> str:  # type: ignore[override]
        return "SparseCsr" if self._layout is sparse_csr else "SparseCsc"

    @property
    def is_sparse_csr(self) -> bool:
        return self._layout is sparse_csr

    def sparse_dim(self) -> int:
        """The number of indexed dimensions."""
        return 2

    def dense_dim(self) -> int:
        """The number of dimensions that an element has."""
        return 0

    def _nnz(self) -> int:
        return self._plain.numel()

    def stride(self, dim: int | None = None) -> Any:
        raise RuntimeError(f"Sparse {self.layout_name[6:].upper()} tensors do not have strides")

    def is_contiguous(self, memory_format: Any = None) -> bool:
        return False

    # -- parts ------------------------------------------------------------------------------

    def _part(self, name: str, wanted: Layout, part: Tensor) -> Tensor:
        if self._layout is not wanted:
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

    def to_dense(self, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
        """The same elements as one dense tensor."""
        return self.to_sparse_coo().to_dense(dtype)  # type: ignore[no-any-return]

    def to_sparse(self, *args: Any, **options: Any) -> Tensor:
        """In another sparse layout; in coordinate form if none is named."""
        return _to_sparse(self, *args, **options)

    # -- the rest ---------------------------------------------------------------------------

    def _text(self) -> str:
        compressed, plain = NAMES[self._layout]
        parts = {compressed: self._pointers, plain: self._plain, "values": self._elements}
        return sparse_text(self, parts, new_line=False)

    def __reduce_ex__(self, protocol: Any) -> Any:
        args = (self._pointers, self._plain, self._elements, self._type.shape)
        return _rebuilt, (*args, self._layout is sparse_csr, self.requires_grad)


def _rebuilt(
    pointers: Tensor, plain: Tensor, elements: Tensor, shape: Shape, by_row: bool,
    requires_grad: bool,
) -> Tensor:  # fmt: skip
    layout = sparse_csr if by_row else sparse_csc
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
