"""Making sparse tensors of given parts, and the checks of these."""

from __future__ import annotations

from typing import Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import cast
from evergrad.core.dtypes import as_dtype
from evergrad.core.memory_format import layout as Layout
from evergrad.core.memory_format import sparse_csc, sparse_csr
from evergrad.core.tensor import Array, Tensor, detached, from_array
from evergrad.ops.rows.creation.constants import check_place
from evergrad.ops.surface.convert import as_tensor
from evergrad.sparse.compressed import NAMES, CompressedTensor, raw_compressed
from evergrad.sparse.coo import SparseTensor, raw_coo
from evergrad.sparse.invariants import (
    check_compressed,
    check_coo,
    check_not_negative,
    checks_wanted,
)


def sparse_coo_tensor(
    indices: Any = None, values: Any = None, size: Any = None, *, dtype: Any = None,
    device: Any = None, pin_memory: bool = False, requires_grad: bool = False,
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
    if checks_wanted(check_invariants):
        check_coo(array, shape, bool(is_coalesced))
    made = raw_coo(places, detached(elements), shape, bool(is_coalesced))
    return _finished(made, elements, requires_grad)  # type: ignore[no-any-return]


def _without_elements(size: Any, dtype: Any, requires_grad: bool) -> SparseTensor:
    if size is None:
        raise TypeError("sparse_coo_tensor() needs indices and values, or a size")
    shape = tuple(int(n) for n in size)
    kind = dtypes.get_default_dtype() if dtype is None else as_dtype(dtype)
    places = from_array(np.zeros((len(shape), 0), np.int64))
    made = raw_coo(places, from_array(np.zeros(0, kind.np)), shape, True)
    return made.requires_grad_(requires_grad)  # type: ignore[return-value]


def _as_elements(values: Any, dtype: Any) -> Tensor:
    elements = as_tensor(values)
    return elements if dtype is None else cast(elements, as_dtype(dtype))


def _as_index(indices: Any) -> Tensor:
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


def _finished(made: Any, elements: Tensor, requires_grad: bool) -> Any:
    """With the history of its elements, or a leaf that asks for its gradient."""
    made = made.with_elements(elements)
    return made.requires_grad_() if requires_grad else made


# -- compressed ---------------------------------------------------------------------------------


def sparse_compressed_tensor(
    compressed_indices: Any, plain_indices: Any, values: Any, size: Any = None, *,
    dtype: Any = None, layout: Layout | None = None, device: Any = None, pin_memory: bool = False,
    requires_grad: bool = False, check_invariants: bool | None = None,
) -> CompressedTensor:  # fmt: skip
    """A sparse matrix whose rows (``sparse_csr``) or columns (``sparse_csc``) are compressed:
    ``compressed_indices`` says where in ``plain_indices`` and ``values`` each of them begins."""
    check_place(device)
    if layout is None or layout not in NAMES:
        raise NotImplementedError(
            f"sparse_compressed_tensor: expected layout=evergrad.sparse_csr or sparse_csc, got "
            f"{layout}; blocked layouts are not supported"
        )
    elements = _as_elements(values, dtype)
    pointers, plain = (_as_pointers(part) for part in (compressed_indices, plain_indices))
    _check_flat(pointers, plain, elements, layout)
    if size is None:
        size = _compressed_extents(pointers.array(), plain.array(), layout)
    shape = tuple(int(n) for n in size)
    if len(shape) != 2:
        raise NotImplementedError(
            f"compressed sparse tensors have two dimensions here, not {len(shape)}: use "
            "sparse_coo_tensor for batches and dense dimensions"
        )
    if checks_wanted(check_invariants):
        check_compressed(pointers.array(), plain.array(), shape, layout)
    made = raw_compressed(pointers, plain, detached(elements), shape, layout)
    return _finished(made, elements, requires_grad)  # type: ignore[no-any-return]


def sparse_csr_tensor(
    crow_indices: Any, col_indices: Any, values: Any, size: Any = None, **options: Any
) -> CompressedTensor:
    """A sparse matrix stored row by row: row ``i`` has the ``values`` from ``crow_indices[i]`` to
    ``crow_indices[i + 1]``, in the columns ``col_indices``."""
    return sparse_compressed_tensor(
        crow_indices, col_indices, values, size, **{**options, "layout": sparse_csr}
    )


def sparse_csc_tensor(
    ccol_indices: Any, row_indices: Any, values: Any, size: Any = None, **options: Any
) -> CompressedTensor:
    """A sparse matrix stored column by column."""
    return sparse_compressed_tensor(
        ccol_indices, row_indices, values, size, **{**options, "layout": sparse_csc}
    )


def _as_pointers(part: Any) -> Tensor:
    """An index part in its own integer type: int32 stays so."""
    index = as_tensor(part)
    if index.dtype not in (dtypes.int32, dtypes.int64):
        index = cast(index, dtypes.int64)
    return detached(index)


def _check_flat(pointers: Tensor, plain: Tensor, elements: Tensor, layout: Layout) -> None:
    compressed, flat = NAMES[layout]
    if pointers.dtype is not plain.dtype:
        raise RuntimeError(
            f"{compressed} and {flat} must have the same dtype, bot got {pointers.dtype.name} and "
            f"{plain.dtype.name}, respectively"
        )
    for name, part in ((compressed, pointers), (flat, plain), ("values", elements)):
        if part.ndim != 1:
            raise NotImplementedError(
                f"{name} must have one dimension, not {part.ndim}: compressed sparse tensors have "
                "neither batches nor dense dimensions here; use sparse_coo_tensor"
            )
    if not pointers.numel():
        raise RuntimeError(f"{compressed} must have at least one element")
    if plain.numel() != elements.numel():
        raise RuntimeError(
            f"number of elements in {flat} and values must agree, got {plain.numel()} and "
            f"{elements.numel()}"
        )


def _compressed_extents(pointers: Array, plain: Array, layout: Layout) -> tuple[int, int]:
    major, minor = len(pointers) - 1, int(plain.max()) + 1 if plain.size else 0
    return (major, minor) if layout is sparse_csr else (minor, major)
