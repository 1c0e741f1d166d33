"""From one layout to another. Elements are moved by rows, so gradients follow."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from evergrad.core.memory_format import layout as Layout
from evergrad.core.memory_format import sparse_coo, strided
from evergrad.core.shapes import Shape
from evergrad.core.tensor import Array, Tensor, from_array
from evergrad.extension import provides
from evergrad.sparse.compressed import (
    NAMES,
    CompressedTensor,
    is_blocked,
    is_by_row,
    layout_word,
    raw_compressed,
)
from evergrad.sparse.coo import SparseTensor, coo, elements_at, raw_coo, summed_at, taken
from evergrad.sparse.pattern import Patterned
from evergrad.sparse.places import block_places, keys_of, places_of


@provides("to_sparse")
def to_sparse(
    input: Tensor, sparse_dim: Any = None, *, layout: Layout | None = None,
    blocksize: object = None, dense_dim: int | None = None,
) -> Tensor:  # fmt: skip
    """A tensor of any layout in a sparse one. Of a dense tensor what is not zero is stored; with
    ``sparse_dim`` only so many dimensions are indexed and an element is stored if any part of it
    is not zero."""
    if isinstance(sparse_dim, Layout):
        sparse_dim, layout = None, sparse_dim
    if layout in NAMES:
        assert layout is not None
        return to_compressed(input, layout, _block(input, layout, blocksize), dense_dim or 0)
    if layout not in (None, sparse_coo):
        raise NotImplementedError(f"to_sparse: {layout} is not a sparse layout")
    if isinstance(input, Patterned):
        if sparse_dim not in (None, input.sparse_dim()):
            raise RuntimeError(
                "to_sparse: conversion from Sparse to Sparse with sparse_dim argument "
                "!=self.sparse_dim() is not supported"
            )
        return to_coordinates(input)
    return _dense_to_coordinates(input, input.ndim if sparse_dim is None else sparse_dim)


def _block(input: Tensor, layout: Layout, blocksize: Any) -> tuple[int, int]:
    """Rows and columns of a block: as asked, or those that the input has."""
    source = layout_word(input.layout) if input.layout is not strided else "Strided"
    if not is_blocked(layout):
        if blocksize is not None:
            raise RuntimeError(
                f"to_sparse: conversion from {source} to {layout_word(layout)} with blocksize "
                "argument given is not supported"
            )
        return 1, 1
    if blocksize is None:
        if isinstance(input, CompressedTensor) and is_blocked(input._layout):
            return input.blocksize()
        raise RuntimeError(
            f"to_sparse: conversion from {source} to {layout_word(layout)} without blocksize "
            "argument given is not supported"
        )
    sizes = (blocksize, blocksize) if isinstance(blocksize, int) else tuple(blocksize)
    if len(sizes) != 2 or min(sizes) < 1:
        raise RuntimeError(f"to_sparse: blocksize needs to be two positive numbers, not {sizes}")
    return int(sizes[0]), int(sizes[1])


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
    """A compressed tensor with its elements, in their order, in coordinate form; no history."""
    by_row = is_by_row(input._layout)
    batch, row, column = block_places(input._pointers.array(), input._plain.array(), by_row)
    m, k = input.blocksize()
    rows = np.broadcast_to((row * m)[:, None, None] + np.arange(m)[:, None], (len(row), m, k))
    columns = np.broadcast_to((column * k)[:, None, None] + np.arange(k), rows.shape)
    leading = places_of(np.repeat(batch, m * k), input.batch_shape())
    places = np.concatenate([leading, rows.reshape(1, -1), columns.reshape(1, -1)])
    elements = input._elements.detach().reshape(places.shape[1], *input.shape[len(places) :])
    sorted_rows = by_row and not is_blocked(input._layout)
    return raw_coo(from_array(places), elements, input._type.shape, sorted_rows)


def to_coordinates(input: Patterned) -> SparseTensor:
    """A sparse tensor in coordinate form, with its history."""
    if isinstance(input, SparseTensor):
        return input
    assert isinstance(input, CompressedTensor)
    pattern = coordinate_pattern(input)
    found: SparseTensor = pattern.with_elements(
        input.live_elements().reshape(pattern._elements.shape)
    )
    return found


def to_compressed(
    input: Tensor, layout: Layout, block: tuple[int, int] = (1, 1), dense_dim: int = 0
) -> CompressedTensor:
    """Matrices with rows or columns of blocks compressed; dimensions before them are batches."""
    if isinstance(input, CompressedTensor):
        if input._layout is layout and input.blocksize() == block:
            return input
        dense_dim = input.dense_dim()
    elif isinstance(input, SparseTensor):
        dense_dim = input.dense_dim()
    batch = input.ndim - 2 - dense_dim
    if batch < 0:
        raise RuntimeError(
            f"to_sparse: a {layout_word(layout)} tensor has two dimensions at least, besides "
            f"{dense_dim} dense ones; got {list(input.shape)}"
        )
    for extent, part in zip(input._type.shape[batch : batch + 2], block, strict=True):
        if extent % part:
            sizes = ",".join(map(str, input._type.shape[batch : batch + 2]))
            raise RuntimeError(
                f"to_sparse: tensor sparse size ({sizes}) must be divisible by given blocksize "
                f"({block[0]},{block[1]})"
            )
    if isinstance(input, Patterned):
        return compress(to_coordinates(input).coalesce(), layout, block)
    return _dense_to_compressed(input, layout, block, batch)


def _dense_to_compressed(
    input: Tensor, layout: Layout, block: tuple[int, int], batch: int
) -> CompressedTensor:
    """The blocks of a dense tensor that are not all zero."""
    shape, (m, k) = input._type.shape, block
    rows, columns = shape[batch] // m, shape[batch + 1] // k
    parts = input.reshape(*shape[:batch], rows, m, columns, k, *shape[batch + 2 :])
    parts = parts.transpose(batch + 1, batch + 2)  # [*batch, rows, columns, m, k, *dense]
    there = (parts.detach().array() != 0).any(axis=tuple(range(batch + 2, parts.ndim)))
    places = np.stack(np.nonzero(there)).astype(np.int64, copy=False)
    if not is_by_row(layout):
        swapped = [*range(batch), batch + 1, batch]
        extents = [there.shape[d] for d in swapped]
        places = places[:, np.argsort(keys_of(places[swapped], extents), kind="stable")]
    return _from_blocks(places, elements_at(parts, places), shape, layout, (rows, columns), block)


def _from_blocks(
    places: Array, blocks: Tensor, shape: Shape, layout: Layout, grid: tuple[int, int],
    block: tuple[int, int],
) -> CompressedTensor:  # fmt: skip
    """A compressed tensor of blocks ``[n, m, k, *dense]`` at sorted places of a grid."""
    batches = shape[: len(places) - 2]
    number = keys_of(places[:-2], batches)
    count = math.prod(batches)
    each = places.shape[1] // max(count, 1)
    if (np.bincount(number, minlength=count) != each).any():
        raise RuntimeError("Expect the same number of specified elements per batch.")
    major, minor = places[-2:] if is_by_row(layout) else places[:-3:-1]
    extent = grid[0] if is_by_row(layout) else grid[1]
    pointers = np.zeros((count, extent + 1), np.int64)
    np.add.at(pointers, (number, major + 1), 1)
    pointers = np.cumsum(pointers, axis=1).reshape(*batches, extent + 1)
    kept = block if is_blocked(layout) else ()
    elements = blocks.reshape(*batches, each, *kept, *blocks.shape[3:])
    made = raw_compressed(
        from_array(pointers), from_array(minor.reshape(*batches, each).copy()), elements.detach(),
        shape, layout,
    )  # fmt: skip
    return made.with_elements(elements)  # type: ignore[no-any-return]


def compress(
    matrix: SparseTensor, layout: Layout, block: tuple[int, int] = (1, 1)
) -> CompressedTensor:
    """Coalesced matrices in a compressed layout; a block is stored if an element of it is."""
    shape, (m, k) = matrix._type.shape, block
    *leading, rows, columns = matrix._places
    batches = matrix.sparse_shape()[:-2]
    grid = matrix.sparse_shape()[-2] // m, matrix.sparse_shape()[-1] // k
    at = [*leading, rows // m, columns // k]
    extents = [*batches, *grid]
    if not is_by_row(layout):
        at[-2:], extents[-2:] = at[:-3:-1], extents[:-3:-1]
    keys, target = np.unique(keys_of(np.stack(at), extents), return_inverse=True)
    position = (target.reshape(-1) * m + rows % m) * k + columns % k
    elements = matrix.live_elements()
    if (m, k) == (1, 1):
        elements = taken(elements, np.argsort(position, kind="stable"))
    else:
        elements = summed_at(elements, position, len(keys) * m * k)
    places = places_of(keys, extents)
    if not is_by_row(layout):
        places[-2:] = places[:-3:-1].copy()
    blocks = elements.reshape(len(keys), m, k, *matrix.dense_shape())
    return _from_blocks(places, blocks, shape, layout, (grid[0], grid[1]), block)


def to_layout(input: Patterned, layout: Any) -> Tensor | SparseTensor | CompressedTensor:
    """A sparse tensor in the given layout."""
    if layout is strided:
        return input.to_dense()
    if layout is sparse_coo:
        return to_coordinates(input)
    return to_compressed(input, layout, _block(input, layout, None))


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
