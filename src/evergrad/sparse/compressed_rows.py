"""What the rows of the op table mean for compressed sparse matrices.

Rows on single elements keep the pattern; all others are done in coordinate form, and the result is
compressed again if it is a sparse matrix.
"""

from __future__ import annotations

from typing import Any

from evergrad.core.bind import bind
from evergrad.core.memory_format import sparse_csc, sparse_csr
from evergrad.core.op import Op
from evergrad.core.tensor import Tensor
from evergrad.extension import provides
from evergrad.sparse.compressed import CompressedTensor, raw_compressed
from evergrad.sparse.convert import to_compressed
from evergrad.sparse.coo import SparseTensor
from evergrad.sparse.gradients import MultiplySparse
from evergrad.sparse.products import check_matrices
from evergrad.sparse.rows import COO_ROWS, KEEPS_ZERO, LINEAR, Row, is_number

_THROUGH_COORDINATES = ("add", "sub", "pow", "slice", "cat")


def _on_elements(op: Op, args: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
    matrix: CompressedTensor = args[0]
    return matrix.with_elements(bind(op, matrix.live_elements(), *args[1:], **attrs))


def _scaled(op: Op, args: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
    """Times or by a number, else in coordinate form."""
    a, b = args
    if isinstance(a, CompressedTensor) and is_number(b):
        return a.with_elements(bind(op, a.live_elements(), b))
    if op.name == "mul" and isinstance(b, CompressedTensor) and is_number(a):
        return b.with_elements(bind(op, a, b.live_elements()))
    return _in_coordinates(op, args, attrs)


def _in_coordinates(op: Op, args: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
    layout = next(a for a in args if isinstance(a, CompressedTensor))._layout
    found = COO_ROWS[op.name](op, tuple(_coordinates(a) for a in args), attrs)
    if isinstance(found, SparseTensor) and found.ndim == 2:
        return to_compressed(found, layout)
    return found


def _coordinates(value: Any) -> Any:
    return value.to_sparse_coo() if isinstance(value, CompressedTensor) else value


def _product(op: Op, args: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
    """A compressed leaf gets the whole dense gradient of a product with a dense matrix."""
    for i, factor in enumerate(args):
        other = args[1 - i]
        if isinstance(factor, CompressedTensor) and factor.is_sparse_leaf():
            if isinstance(other, CompressedTensor | SparseTensor):
                break
            check_matrices(*args)
            return MultiplySparse.apply(factor, other, i == 0)
    return _in_coordinates(op, args, attrs)


def _transposed(op: Op, args: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
    """Compressed rows are the transpose's compressed columns."""
    matrix: CompressedTensor = args[0]
    if attrs["order"] == (0, 1):
        return matrix
    layout = sparse_csc if matrix._layout is sparse_csr else sparse_csr
    shape = matrix._type.shape[::-1]
    elements = matrix.live_elements()
    made = raw_compressed(matrix._pointers, matrix._plain, elements.detach(), shape, layout)
    return made.with_elements(elements)


def _fold(op: Op, args: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
    matrix: CompressedTensor = args[0]
    if len(attrs["dims"]) == 2 and not attrs["keepdim"]:
        total: Tensor = matrix.live_elements().sum()
        return total
    if not attrs["keepdim"]:
        raise RuntimeError("reduction operations on CSR tensors with keepdim=False is unsupported")
    return _in_coordinates(op, args, attrs)


COMPRESSED_ROWS: dict[str, Row] = {
    **dict.fromkeys((*LINEAR, *KEEPS_ZERO), _on_elements),
    **dict.fromkeys(_THROUGH_COORDINATES, _in_coordinates),
    "mul": _scaled,
    "div": _scaled,
    "matmul": _product,
    "permute": _transposed,
    "sum": _fold,
}
provides("compressed_row")(COMPRESSED_ROWS.get)
