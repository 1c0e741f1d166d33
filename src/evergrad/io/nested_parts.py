"""Nested tensors in files: made of their parts, which are checked when all bytes have been read.

The jagged layout is written as PyTorch writes it, with the keywords of its constructor; the strided
one as its elements and shapes. Both of PyTorch's forms are read.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from evergrad.core.dtypes import int32, int64
from evergrad.core.shapes import contiguous_strides
from evergrad.core.tensor import Tensor
from evergrad.errors import FileFormatError
from evergrad.extension import ExtensionPoint
from evergrad.io import objects
from evergrad.nested.construct import check_offsets
from evergrad.nested.jagged import NestedTensor, raw_jagged
from evergrad.nested.strided import raw_strided

_ragged_value: ExtensionPoint[..., object] = ExtensionPoint("ragged_value")


def rebuild_jagged(keywords: dict[str, object]) -> Tensor:
    """The counterpart of PyTorch's function of this name in files."""
    return NestedMaker().jagged(keywords)


def keywords_of(tensor: NestedTensor) -> dict[str, object]:
    """The keywords of PyTorch's constructor for a tensor of the jagged layout."""
    # Without the attributes of offsets, which hold their extent.
    lengths = None if tensor._lengths is None else tensor._lengths.detach()
    return {
        "values": tensor._elements.detach(), "offsets": tensor._offsets.detach(),
        "lengths": lengths, "_ragged_idx": tensor._ragged_dim, "_metadata_cache": {},
        "requires_grad": tensor.requires_grad,
    }  # fmt: skip


class Ignored:
    """An object of PyTorch's compiler, among the attributes of what it has seen."""

    def set_state(self, state: object) -> None:
        """Nothing is kept."""


class NestedMaker:
    """Makes the nested tensors of one file."""

    def __init__(self) -> None:
        self._made: list[tuple[Tensor, Tensor | None, int]] = []

    def from_type(self, function: object, cls: object, args: Any, state: object) -> Tensor:
        """A tensor of a subclass, of which the jagged one is PyTorch's."""
        if function is not rebuild_jagged:
            return objects.from_type(function, cls, args, state)
        return self.jagged(*args)

    def jagged(self, keywords: object) -> Tensor:
        """A tensor of the jagged layout."""
        if type(keywords) is not dict:
            raise FileFormatError("a nested tensor has no parts: the file is corrupted.")
        parts: tuple[Any, ...] = tuple(map(keywords.get, ("values", "offsets", "lengths")))
        values, offsets, lengths = parts
        dim = keywords.get("_ragged_idx", 1)
        counts = (offsets,) if lengths is None else (offsets, lengths)
        objects.require_tensors(values, *counts)
        is_counted = all(x.ndim == 1 and x.dtype in (int32, int64) for x in counts)
        if not is_counted or not offsets.numel() or type(dim) is not int:
            raise FileFormatError("a nested tensor has no offsets: the file is corrupted.")
        if not 1 <= dim <= values.ndim or not (lengths is None or len(lengths) + 1 == len(offsets)):
            raise FileFormatError("the parts of a nested tensor do not go together.")
        self._made.append((offsets, lengths, values.shape[dim - 1]))
        made = raw_jagged(values.detach(), offsets, lengths, dim)
        return made.requires_grad_(keywords.get("requires_grad") is True)

    def verify(self) -> None:
        """Make sure that all offsets are within the values."""
        for offsets, lengths, extent in self._made:
            try:
                check_offsets(offsets, lengths, extent)
            except RuntimeError as error:
                raise FileFormatError(f"a nested tensor is wrong: {error}") from None


def ragged_tensor(elements: object) -> object:
    """A value of the variable-shape algebra."""
    objects.require_tensors(elements)
    return _ragged_value(elements)


def ragged_batch(elements: object, shapes: object, batch_shape: object) -> object:
    """A batch of such values."""
    objects.require_tensors(elements)
    if type(shapes) is not tuple or not all(type(s) is tuple for s in (batch_shape, *shapes)):
        raise FileFormatError("a ragged batch has no shapes: the file is corrupted.")
    if any(type(n) is not int for shape in (batch_shape, *shapes) for n in shape):
        raise FileFormatError("a ragged batch has wrong shapes: the file is corrupted.")
    try:
        return _ragged_value(elements, shapes, batch_shape)
    except ValueError as error:
        raise FileFormatError(f"a ragged batch is wrong: {error}") from None


def strided(elements: Any, shapes: object, requires_grad: object) -> Tensor:
    """A tensor of the strided layout, as it is written here."""
    objects.require_tensors(elements)
    if type(shapes) is not tuple or not all(type(s) is tuple for s in shapes):
        raise FileFormatError("a nested tensor has no shapes: the file is corrupted.")
    if any(type(n) is not int or n < 0 for shape in shapes for n in shape):
        raise FileFormatError("a nested tensor has wrong shapes: the file is corrupted.")
    count = sum(map(math.prod, shapes))
    if not shapes or len(set(map(len, shapes))) > 1 or tuple(elements.shape) != (count,):
        raise FileFormatError("the parts of a nested tensor do not go together.")
    return raw_strided(elements.detach(), shapes).requires_grad_(requires_grad is True)


def strided_of_torch(buffer: Any, sizes: Any, strides: Any, offsets: Any) -> Tensor:
    """A tensor of the strided layout, as PyTorch writes it: shapes, strides and offsets are
    tensors."""
    objects.require_tensors(buffer, sizes, strides, offsets)
    shapes = tuple(tuple(shape) for shape in np.atleast_2d(sizes.array()).tolist())
    begins = list(itertools.accumulate(map(math.prod, shapes), initial=0))[:-1]
    if offsets.tolist() != begins or any(
        list(contiguous_strides(shape)) != given
        for shape, given in zip(shapes, strides.tolist(), strict=True)
        if math.prod(shape)
    ):
        raise FileFormatError("only contiguous nested tensors are read; save x.contiguous().")
    return strided(buffer.detach(), shapes, buffer.requires_grad)
