"""Making sparse tensors of given parts, and the checks of these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import cast
from evergrad.core.dtypes import as_dtype
from evergrad.core.memory_format import layout as Layout
from evergrad.core.memory_format import sparse_bsc, sparse_bsr, sparse_csc, sparse_csr
from evergrad.core.tensor import Array, Tensor, detached, from_array
from evergrad.ops.rows.creation.constants import check_place
from evergrad.ops.surface.convert import as_tensor
from evergrad.sparse.compressed import (
    NAMES,
    CompressedTensor,
    is_blocked,
    is_by_row,
    raw_compressed,
)
from evergrad.sparse.coo import SparseTensor, raw_coo
from evergrad.sparse.invariants import (
    check_coalesced,
    check_compressed_order,
    check_compressed_range,
    check_not_negative,
    check_parts_of_compressed,
    check_range,
    checks_wanted,
)

if TYPE_CHECKING:
    from evergrad.core.types import DeviceLike, DtypeLike


def sparse_coo_tensor(
    indices: object = None, values: object = None, size: Any = None, *, dtype: DtypeLike = None,
    device: DeviceLike = None, pin_memory: bool = False, requires_grad: bool = False,
    check_invariants: bool | None = None, is_coalesced: bool | None = None,
) -> SparseTensor:  # fmt: skip
    """A sparse tensor with the given ``values`` at the given ``indices``.

    ``indices`` is ``[sparse dimensions, elements]``; dimensions of ``values`` behind the first are
    dense. Without ``size`` it is the smallest shape that holds them all.
    """
    check_place(device)
    if values is None:
        return _without_elements(indices if size is None else size, dtype, requires_grad)
    elements = _as_elements(values, dtype)
    places = _as_index(indices)
    _check_parts(places, elements)
    array = places.array()
    if size is None:
        size = (*_smallest_extents(array), *elements.shape[1:])
    shape = tuple(int(n) for n in size)
    if len(shape) != array.shape[0] + elements.ndim - 1:
        raise RuntimeError(
            f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(shape)}, "
            f"sparse_dim = {array.shape[0]}, dense_dim = {elements.ndim - 1}"
        )
    if elements._type.shape[1:] != shape[array.shape[0] :]:
        raise RuntimeError(
            f"values has incorrect size, expected {[array.shape[1], *shape[array.shape[0] :]]}, "
            f"got {list(elements.shape)}"
        )
    if check_invariants is not False:
        check_range(array, shape)
    if is_coalesced and checks_wanted(check_invariants):
        check_coalesced(array, shape)
    made = raw_coo(places, detached(elements), shape, bool(is_coalesced))
    return _finished(made, elements, requires_grad)  # type: ignore[no-any-return]


def _without_elements(size: Any, dtype: DtypeLike, requires_grad: bool) -> SparseTensor:
    if size is None:
        raise TypeError("sparse_coo_tensor() needs indices and values, or a size")
    shape = tuple(int(n) for n in size)
    kind = dtypes.get_default_dtype() if dtype is None else as_dtype(dtype)
    places = from_array(np.zeros((len(shape), 0), np.int64))
    made = raw_coo(places, from_array(np.zeros(0, kind.np)), shape, True)
    return made.requires_grad_(requires_grad)  # type: ignore[return-value]


def _as_elements(values: object, dtype: DtypeLike) -> Tensor:
    elements = as_tensor(values)
    return elements if dtype is None else cast(elements, as_dtype(dtype))


def _as_index(indices: object) -> Tensor:
    return detached(cast(as_tensor(indices), dtypes.int64))


def _check_parts(places: Tensor, elements: Tensor) -> None:
    if places.ndim != 2:
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(places.shape)}")
    if not elements.ndim or places.shape[1] != elements.shape[0]:
        count = elements.shape[0] if elements.ndim else 1
        raise RuntimeError(
            "indices and values must have same nnz, but got nnz from indices: "
            f"{places.shape[1]}, nnz from values: {count}"
        )


def _smallest_extents(places: Array) -> list[int]:
    if not places.shape[1]:
        return [0] * len(places)
    check_not_negative(places)
    return [int(row.max()) + 1 for row in places]


def _finished(made: SparseTensor | CompressedTensor, elements: Tensor, requires_grad: bool) -> Any:
    """With the history of its elements, or a leaf that asks for its gradient."""
    made = made.with_elements(elements)
    return made.requires_grad_() if requires_grad else made


# -- compressed ---------------------------------------------------------------------------------


def sparse_compressed_tensor(
    compressed_indices: object, plain_indices: object, values: object, size: Any = None, *,
    dtype: DtypeLike = None, layout: Layout | None = None, device: DeviceLike = None,
    pin_memory: bool = False, requires_grad: bool = False, check_invariants: bool | None = None,
) -> CompressedTensor:  # fmt: skip
    """A sparse matrix whose rows (``sparse_csr``, ``sparse_bsr``) or columns (``sparse_csc``,
    ``sparse_bsc``) are compressed: ``compressed_indices`` says where in ``plain_indices`` and
    ``values`` each of them begins. In the blocked layouts ``values`` are blocks ``[n, m, k]``.
    Dimensions before these are batches, dimensions behind them dense ones."""
    check_place(device)
    if layout is None or layout not in NAMES:
        raise RuntimeError(
            "sparse_compressed_tensor expected sparse compressed tensor layout but got "
            f"{'Strided' if layout is None else layout}"
        )
    elements = _as_elements(values, dtype)
    pointers, plain = (_as_pointers(part) for part in (compressed_indices, plain_indices))
    _check_ranks(pointers, plain, elements, layout)
    if size is None:
        size = _compressed_extents(pointers.array(), plain.array(), elements._type.shape, layout)
    shape = tuple(int(n) for n in size)
    if len(shape) < pointers.ndim + 1:
        raise RuntimeError(
            f"tensor dimensionality must be sum of batch, base, and dense dimensionalities (="
            f"{pointers.ndim - 1} + 2 + 0) but got {len(shape)}"
        )
    check_parts_of_compressed(
        pointers._type.shape, plain._type.shape, elements._type.shape, shape, layout
    )
    made = raw_compressed(pointers, plain, detached(elements), shape, layout)
    if check_invariants is not False:
        check_pattern(made, in_order=checks_wanted(check_invariants))
    return _finished(made, elements, requires_grad)  # type: ignore[no-any-return]


def check_pattern(made: CompressedTensor, *, in_order: bool = True) -> None:
    """What must hold of the indices of a compressed tensor: their ranges, and their order."""
    pointers, plain = made._pointers.array(), made._plain.array()
    (rows, columns), (m, k) = made.matrix_shape(), made.blocksize()
    grid = (*made.batch_shape(), rows // m, columns // k)
    check_compressed_range(pointers, plain, grid, made._layout)
    if in_order:
        check_compressed_order(pointers, plain, grid, made._layout)


def sparse_csr_tensor(
    crow_indices: object, col_indices: object, values: object, size: object = None, **options: Any
) -> CompressedTensor:
    """A sparse matrix stored row by row: row ``i`` has the ``values`` from ``crow_indices[i]`` to
    ``crow_indices[i + 1]``, in the columns ``col_indices``."""
    return sparse_compressed_tensor(
        crow_indices, col_indices, values, size, **{**options, "layout": sparse_csr}
    )


def sparse_csc_tensor(
    ccol_indices: object, row_indices: object, values: object, size: object = None, **options: Any
) -> CompressedTensor:
    """A sparse matrix stored column by column."""
    return sparse_compressed_tensor(
        ccol_indices, row_indices, values, size, **{**options, "layout": sparse_csc}
    )


def sparse_bsr_tensor(
    crow_indices: Any,
    col_indices: Any,
    values: Any,
    size: Any = None,
    **options: Any,
) -> CompressedTensor:
    """A sparse matrix of dense blocks ``values[i]``, stored row by row of blocks."""
    return sparse_compressed_tensor(
        crow_indices, col_indices, values, size, **{**options, "layout": sparse_bsr}
    )


def sparse_bsc_tensor(
    ccol_indices: object, row_indices: object, values: object, size: object = None, **options: Any
) -> CompressedTensor:
    """A sparse matrix of dense blocks ``values[i]``, stored column by column of blocks."""
    return sparse_compressed_tensor(
        ccol_indices, row_indices, values, size, **{**options, "layout": sparse_bsc}
    )


def _as_pointers(part: object) -> Tensor:
    """An index part in its own integer type: int32 stays so."""
    index = as_tensor(part)
    if index.dtype not in (dtypes.int32, dtypes.int64):
        index = cast(index, dtypes.int64)
    return detached(index)


def _check_ranks(pointers: Tensor, plain: Tensor, elements: Tensor, layout: Layout) -> None:
    compressed, flat = NAMES[layout]
    if pointers.dtype is not plain.dtype:
        raise RuntimeError(
            f"{compressed} and {flat} must have the same dtype, bot got {pointers.dtype.name} and "
            f"{plain.dtype.name}, respectively"
        )
    if not pointers.ndim or not pointers._type.shape[-1]:
        raise RuntimeError(f"{compressed} must have at least one element")
    if plain.ndim != pointers.ndim:
        raise RuntimeError(
            f"{compressed} and {flat} dimensionalities must be equal but got {pointers.ndim} and "
            f"{plain.ndim}, respectively"
        )
    batch, blocks = pointers.ndim - 1, 2 if is_blocked(layout) else 0
    if elements.ndim <= batch + blocks:
        raise RuntimeError(
            "values must have dimensionality > sum of batch and block dimensionalities (="
            f"{batch} + {blocks}) but got {elements.ndim}"
        )


def _compressed_extents(
    pointers: Array, plain: Array, elements: tuple[int, ...], layout: Layout
) -> tuple[int, ...]:
    """The smallest shape that holds the elements."""
    batch = pointers.ndim - 1
    major, minor = pointers.shape[-1] - 1, int(plain.max()) + 1 if plain.size else 0
    rows, columns = (major, minor) if is_by_row(layout) else (minor, major)
    dense = batch + 1
    if is_blocked(layout):
        rows, columns = rows * elements[dense], columns * elements[dense + 1]
        dense += 2
    return (*pointers.shape[:batch], rows, columns, *elements[dense:])
