"""From one layout to another. Elements are moved by rows, so gradients follow."""

from __future__ import annotations

from typing import Any

import numpy as np

from evergrad.core.memory_format import layout as Layout
from evergrad.core.memory_format import sparse_coo, sparse_csc, sparse_csr, strided
from evergrad.core.tensor import Tensor, from_array
from evergrad.extension import provides
from evergrad.sparse.compressed import CompressedTensor, raw_compressed
from evergrad.sparse.coo import SparseTensor, coo, elements_at, raw_coo, taken
from evergrad.sparse.pattern import Patterned
from evergrad.sparse.places import expanded_pointers, keys_of, pointers_of


@provides("to_sparse")
def to_sparse(
    input: Tensor, sparse_dim: Any = None, *, layout: Layout | None = None,
    blocksize: Any = None, dense_dim: int | None = None,
) -> Tensor:  # fmt: skip
    """A tensor of any layout in a sparse one. Of a dense tensor what is not zero is stored; with
    ``sparse_dim`` only so many dimensions are indexed and an element is stored if any part of it
    is not zero."""
    if isinstance(sparse_dim, Layout):
        sparse_dim, layout = None, sparse_dim
    if layout is sparse_csr or layout is sparse_csc:
        _refuse_dense_dim(dense_dim)
        return to_compressed(input, layout)
    if layout not in (None, sparse_coo):
        raise NotImplementedError(
            f"to_sparse: evergrad has the layouts sparse_coo, sparse_csr and sparse_csc, not "
            f"{layout}"
        )
    if isinstance(input, Patterned):
        if sparse_dim not in (None, input.sparse_dim()):
            raise RuntimeError(
                "to_sparse: conversion from Sparse to Sparse with sparse_dim argument "
                "!=self.sparse_dim() is not supported"
            )
        return to_coordinates(input)
    return _dense_to_coordinates(input, input.ndim if sparse_dim is None else sparse_dim)


def _refuse_dense_dim(dense_dim: int | None) -> None:
    if dense_dim:
        raise NotImplementedError("compressed sparse tensors have no dense dimensions here")


def _dense_to_coordinates(input: Tensor, sparse_dim: int) -> SparseTensor:
    if not (0 < sparse_dim <= input.ndim or sparse_dim == input.ndim == 0):
        raise RuntimeError(
            f"to_sparse: sparse_dim must be in 1 to {input.ndim} for a tensor of {input.ndim} "
            f"dimensions, but got {sparse_dim}"
        )
    there = input.detach().array() != 0
    if sparse_dim < input.ndim:
        there = there.any(axis=tuple(range(sparse_dim, input.ndim)))
    places = np.stack(np.nonzero(there)) if sparse_dim else np.zeros((0, int(there)), np.int64)
    elements = elements_at(input, places.astype(np.int64, copy=False))
    return coo(places.astype(np.int64, copy=False), elements, input._type.shape, True)


@provides("coordinate_pattern")
def coordinate_pattern(input: CompressedTensor) -> SparseTensor:
    """A compressed matrix with its elements, in their order, in coordinate form; no history."""
    majors = expanded_pointers(input._pointers.array())
    both = [majors, input._plain.array()]
    if input._layout is sparse_csc:
        both.reverse()
    places = from_array(np.stack(both).astype(np.int64, copy=False))
    sorted_rows = input._layout is sparse_csr
    return raw_coo(places, input._elements.detach(), input._type.shape, sorted_rows)


def to_coordinates(input: Patterned) -> SparseTensor:
    """A sparse tensor in coordinate form, with its history."""
    if isinstance(input, SparseTensor):
        return input
    assert isinstance(input, CompressedTensor)
    found: SparseTensor = coordinate_pattern(input).with_elements(input.live_elements())
    return found


def to_compressed(input: Tensor, layout: Layout) -> CompressedTensor:
    """A matrix with its rows (``sparse_csr``) or columns (``sparse_csc``) compressed."""
    if isinstance(input, CompressedTensor) and input._layout is layout:
        return input
    if input.ndim != 2 or (isinstance(input, SparseTensor) and input.dense_dim()):
        raise NotImplementedError(
            f"only matrices without dense dimensions can be compressed here, not a tensor of "
            f"{list(input.shape)}"
        )
    coordinates = to_sparse(input)
    assert isinstance(coordinates, SparseTensor)
    return compress(coordinates.coalesce(), layout)


def compress(matrix: SparseTensor, layout: Layout) -> CompressedTensor:
    """A coalesced matrix in a compressed layout."""
    rows, columns = matrix._places
    elements = matrix.live_elements()
    major, minor, extent = rows, columns, matrix._type.shape[0]
    if layout is sparse_csc:
        order = np.argsort(keys_of(matrix._places[::-1], matrix._type.shape[::-1]))
        elements = taken(elements, order)
        major, minor, extent = columns[order], rows[order], matrix._type.shape[1]
    made = raw_compressed(
        from_array(pointers_of(major, extent)), from_array(minor.copy()), elements.detach(),
        matrix._type.shape, layout,
    )  # fmt: skip
    return made.with_elements(elements)  # type: ignore[no-any-return]


def to_layout(input: Patterned, layout: Any) -> Any:
    """A sparse tensor in the given layout."""
    if layout is strided:
        return input.to_dense()
    return to_coordinates(input) if layout is sparse_coo else to_compressed(input, layout)


@provides("sparse_mask")
def sparse_mask(input: Tensor, mask: Tensor) -> Any:
    """The elements of a tensor at the places that a sparse tensor has."""
    if not isinstance(mask, Patterned):
        raise NotImplementedError(
            "sparse_mask(): the mask must be a sparse tensor; make it one with mask.to_sparse()"
        )
    if input._type.shape != mask._type.shape:
        raise RuntimeError(
            f"sparse_mask(): operands have incompatible sizes; self has size {list(input.shape)} "
            f"but mask has size {list(mask.shape)}"
        )
    return mask.with_elements(mask.at_pattern(input))
