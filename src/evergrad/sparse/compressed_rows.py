"""What the rows of the op table mean for compressed sparse matrices.

Rows on single elements keep the pattern; all others are applied in coordinate form, and the result
is compressed again if it is a sparse matrix of the same kind.
"""

from __future__ import annotations

import numpy as np

from evergrad.core.bind import bind
from evergrad.core.memory_format import sparse_csr
from evergrad.core.op import TABLE, Op
from evergrad.core.shapes import Shape
from evergrad.core.tensor import Tensor
from evergrad.core.types import Args, Attrs
from evergrad.extension import provides
from evergrad.ops.rows.elementwise.basic import ADD, DIV, MUL, SUB
from evergrad.ops.rows.matmul import LINEAR, MATMUL
from evergrad.ops.rows.movement.slices import SLICE
from evergrad.ops.rows.movement.views import PERMUTE
from evergrad.ops.rows.reduce.sums import SUM
from evergrad.sparse.compressed import TRANSPOSED, CompressedTensor, is_blocked, raw_compressed
from evergrad.sparse.convert import to_compressed
from evergrad.sparse.coo import SparseTensor
from evergrad.sparse.gradients import summed_whole
from evergrad.sparse.pattern import Patterned
from evergrad.sparse.products import linear, product
from evergrad.sparse.rows import COO_ROWS, KEEPS_LINEAR, KEEPS_ZERO, Row, is_number

_THROUGH_COORDINATES = ("pow", "cat")


def _on_elements(op: Op, args: Args, attrs: dict[str, object]) -> object:
    matrix: CompressedTensor = args[0]
    return matrix.with_elements(bind(op, matrix.live_elements(), *args[1:], **attrs))


def _scaled(op: Op, args: Args, attrs: Attrs) -> object:
    """Times or by a number, a dense tensor, or another of the same pattern; else in coordinate
    form."""
    a, b = args
    if isinstance(a, CompressedTensor) and is_number(b):
        return a.with_elements(bind(op, a.live_elements(), b))
    if op is MUL and isinstance(b, CompressedTensor) and is_number(a):
        return b.with_elements(bind(op, a, b.live_elements()))
    if op is MUL and _same_pattern(a, b):
        return a.with_elements(bind(op, a.live_elements(), b.live_elements()))
    return _in_coordinates(op, args, attrs)


def _added(op: Op, args: Args, attrs: Attrs) -> object:
    a, b = args
    if _same_pattern(a, b):
        return a.with_elements(bind(op, a.live_elements(), b.live_elements()))
    if isinstance(a, CompressedTensor) and isinstance(b, Tensor) and not isinstance(b, Patterned):
        return COO_ROWS[ADD](ADD, (-b if op is SUB else b, a), attrs)
    if isinstance(a, Patterned):
        return _in_coordinates(op, args, attrs)
    return COO_ROWS[op](op, args, attrs)


def _same_pattern(a: object, b: object) -> bool:
    """Whether two tensors have their elements in the same places."""
    if not (isinstance(a, CompressedTensor) and isinstance(b, CompressedTensor)):
        return False
    same = (
        a._layout is b._layout
        and a._type.shape == b._type.shape
        and a._elements._type.shape == b._elements._type.shape
    )
    return same and all(
        x is y or np.array_equal(x.array(), y.array())
        for x, y in ((a._pointers, b._pointers), (a._plain, b._plain))
    )


def _in_coordinates(op: Op, args: tuple[object, ...], attrs: dict[str, object]) -> object:
    first = next(a for a in args if isinstance(a, CompressedTensor))
    found = COO_ROWS[op](op, tuple(_coordinates(a) for a in args), attrs)
    if isinstance(found, SparseTensor) and found.sparse_dim() == first.batch_dim() + 2:
        return to_compressed(found, first._layout, first.blocksize())
    return found


def _coordinates(value: object) -> object:
    return value.to_sparse_coo() if isinstance(value, CompressedTensor) else value


def _product(
    op: Op, args: tuple[object, ...], attrs: dict[str, object]
) -> Tensor | SparseTensor | CompressedTensor:
    """The product of two sparse matrices has compressed rows, unless one is in blocks or in
    coordinate form: then it is as the compressed one."""
    found = product(op, args, attrs)
    if not isinstance(found, SparseTensor):
        return found
    compressed = [a._layout for a in args if isinstance(a, CompressedTensor)]
    layout = compressed[0]
    if found.ndim > 2 or is_blocked(layout):
        return found
    return to_compressed(found, sparse_csr if len(compressed) == 2 else layout)


def _transposed(op: Op, args: Args, attrs: Attrs) -> object:
    """Compressed rows are the transpose's compressed columns."""
    matrix: CompressedTensor = args[0]
    order, batch = tuple(attrs["order"]), matrix.batch_dim()
    if order == tuple(range(matrix.ndim)):
        return matrix
    swapped = (*range(batch), batch + 1, batch, *range(batch + 2, matrix.ndim))
    if order != swapped:
        raise RuntimeError(
            "transpose(): can only transpose dimensions of the same type (Batch, Sparse, Dense), "
            f"and here the two of the matrix, not to the order {list(order)}"
        )
    shape = tuple(matrix._type.shape[d] for d in order)
    elements = matrix.live_elements()
    if is_blocked(matrix._layout):
        elements = elements.transpose(batch + 1, batch + 2)
    layout = TRANSPOSED[matrix._layout]
    made = raw_compressed(matrix._pointers, matrix._plain, elements.detach(), shape, layout)
    return made.with_elements(elements)


def _reduced(op: Op, args: Args, attrs: Attrs) -> object:
    matrix: CompressedTensor = args[0]
    if len(attrs["dims"]) == matrix.ndim and not attrs["keepdim"]:
        if matrix.is_sparse_leaf():
            return summed_whole(matrix)
        total: Tensor = matrix.live_elements().sum()
        return total
    if not attrs["keepdim"]:
        raise RuntimeError("reduction operations on CSR tensors with keepdim=False is unsupported")
    return _in_coordinates(op, args, attrs)


def _selected(op: Op, args: Args, attrs: Attrs) -> object:
    """Numbers of matrices of the batch keep the layout; parts of a matrix are in coordinate
    form."""
    matrix: CompressedTensor = args[0]
    slices: tuple[object, ...] = attrs["slices"]
    leading = slices[: matrix.batch_dim()]
    numbers = tuple(part for part in leading if isinstance(part, int))
    if numbers != leading[: len(numbers)] or not numbers:
        return COO_ROWS[op](op, (matrix.to_sparse_coo(),), attrs)
    chosen = _chosen(matrix, numbers, matrix._type.shape[len(numbers) :])
    rest = slices[len(numbers) :]
    if all(part == (0, n, 1) for part, n in zip(rest, chosen._type.shape, strict=False)):
        return chosen
    return _selected(op, (chosen,), {**attrs, "slices": rest})


def _chosen(matrix: CompressedTensor, numbers: tuple[int, ...], shape: Shape) -> CompressedTensor:
    elements = matrix.live_elements()[numbers]
    pointers, plain = (part[numbers] for part in (matrix._pointers, matrix._plain))
    made = raw_compressed(pointers, plain, elements.detach(), shape, matrix._layout)
    return made.with_elements(elements)  # type: ignore[no-any-return]


COMPRESSED_ROWS: dict[Op, Row] = {
    **{TABLE[name]: _on_elements for name in (*KEEPS_LINEAR, *KEEPS_ZERO)},
    **{TABLE[name]: _in_coordinates for name in _THROUGH_COORDINATES},
    ADD: _added,
    SUB: _added,
    MUL: _scaled,
    DIV: _scaled,
    LINEAR: linear,
    MATMUL: _product,
    PERMUTE: _transposed,
    SLICE: _selected,
    SUM: _reduced,
}
provides("compressed_row")(COMPRESSED_ROWS.get)
