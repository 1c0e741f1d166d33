"""Rows of a table looked up by number, one by one or in bags: functions over the rows of
:mod:`evergrad.ops.rows.indexing.functions`."""

from __future__ import annotations

import math

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import cast
from evergrad.core.inplace import assign
from evergrad.core.state import using
from evergrad.core.tensor import Tensor, from_array
from evergrad.core.tracing import is_known
from evergrad.core.types import Array
from evergrad.ops.rows.check import require
from evergrad.ops.rows.creation.constants import arange, zeros
from evergrad.ops.rows.elementwise.basic import where
from evergrad.ops.rows.elementwise.clamp import clamp
from evergrad.ops.rows.indexing.functions import embedding as _embedding
from evergrad.ops.rows.indexing.functions import index_add, index_copy, index_reduce, index_select
from evergrad.ops.rows.movement.slices import narrow, select
from evergrad.ops.rows.movement.views import reshape, unsqueeze
from evergrad.ops.rows.reduce.counting import searchsorted
from evergrad.ops.rows.reduce.variance import norm


def embedding(
    input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None,
    norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Tensor:  # fmt: skip
    """Rows of ``weight``. Rows longer than ``max_norm`` are first shortened to it, in place."""
    if weight.ndim != 2:
        raise RuntimeError("'weight' must be 2-D")
    place = _padding_row(padding_idx, weight._type.shape[0])
    if max_norm is not None:
        _shorten(weight, input, max_norm, norm_type)
    return _embedding(weight, input, place, scale_grad_by_freq, sparse)


def _padding_row(padding_idx: int | None, rows: int) -> int:
    """The row without a gradient counted from the front, -1 for none."""
    if padding_idx is None:
        return -1
    if not -rows <= padding_idx < rows:
        raise AssertionError("Padding_idx must be within num_embeddings")
    return padding_idx % rows


def _shorten(weight: Tensor, input: Tensor, max_norm: float, norm_type: float) -> None:
    """Scale the rows that are looked up to at most ``max_norm``, outside any history."""
    with using(grad=False):
        rows = cast(reshape(input, -1), dtypes.int64)
        if is_known(input):  # each row once, as repeated ones give the same
            rows = from_array(np.unique(input.array()).astype(np.int64))
        found = index_select(weight, 0, rows)
        lengths = norm(found, norm_type, 1, True)
        scale = where(lengths > max_norm, max_norm / (lengths + 1e-7), 1)
        assign(weight, index_copy(weight, 0, rows, found * scale))


def embedding_bag(
    input: Tensor, weight: Tensor, offsets: Tensor | None = None, max_norm: float | None = None,
    norm_type: float = 2, scale_grad_by_freq: bool = False, mode: str = "mean",
    sparse: bool = False, per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False, padding_idx: int | None = None,
) -> Tensor:  # fmt: skip
    """The sum, mean or maximum of the rows of each bag. Bags are the rows of a 2-D ``input``, or
    begin at ``offsets`` of a 1-D one; the row ``padding_idx`` does not count.

    >>> table = eg.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> F.embedding_bag(eg.tensor([[0, 1]]), table, mode="sum")
    tensor([[4., 6.]])
    """
    _check_bags(input, weight, offsets, mode, per_sample_weights, scale_grad_by_freq)
    if mode == "max" and sparse:
        raise ValueError("max mode does not support sparse weights")
    if max_norm is not None:
        _shorten(weight, input, max_norm, norm_type)
    place = _padding_row(padding_idx, weight._type.shape[0])
    if not (is_known(input) and (offsets is None or is_known(offsets))):
        into, count = _traced_bag_numbers(input, offsets, include_last_offset)
        numbers = reshape(input, -1)
        rows = _embedding(weight, numbers, -1, scale_grad_by_freq, sparse)
        if per_sample_weights is not None:
            rows = rows * reshape(per_sample_weights, (-1, 1))
        return _masked_bags(rows, into, numbers != place, count, mode)
    bags, count = _bag_numbers(input, offsets, include_last_offset)
    numbers = reshape(input, -1)
    values = numbers.array()
    _check_rows(values, weight._type.shape[0])
    counted = np.flatnonzero(values != place)
    numbers = index_select(numbers, 0, from_array(counted))
    bags = bags[counted]
    rows = _embedding(weight, numbers, -1, scale_grad_by_freq, sparse)
    if per_sample_weights is not None:
        own = index_select(reshape(per_sample_weights, -1), 0, from_array(counted))
        rows = rows * reshape(own, (len(counted), 1))
    return _folded_bags(rows, bags, count, mode)


def _folded_bags(rows: Tensor, bags: Array, count: int, mode: str) -> Tensor:
    empty = zeros((count, rows._type.shape[1]), dtype=rows.dtype)
    into = from_array(bags)
    if mode == "max":
        return index_reduce(empty, 0, into, rows, "amax", include_self=False)
    result = index_add(empty, 0, into, rows)
    if mode == "sum":
        return result
    sizes = np.maximum(np.bincount(bags, minlength=count), 1).astype(rows.dtype.np)
    return result / from_array(sizes.reshape(count, 1))


def _masked_bags(rows: Tensor, into: Tensor, counts: Tensor, count: int, mode: str) -> Tensor:
    """The same of all rows, where only some count: how many do is not known inside a trace."""
    there = unsqueeze(counts, 1)
    empty = zeros((count, rows._type.shape[1]), dtype=rows.dtype)
    sizes = index_add(zeros((count,), dtype=rows.dtype), 0, into, cast(counts, rows.dtype))
    if mode == "max":
        held = where(there, rows, -math.inf)
        found = index_reduce(empty, 0, into, held, "amax", include_self=False)
        return where(unsqueeze(sizes == 0, 1), 0, found)
    result = index_add(empty, 0, into, where(there, rows, 0))
    return result if mode == "sum" else result / unsqueeze(clamp(sizes, min=1), 1)


def _traced_bag_numbers(
    input: Tensor, offsets: Tensor | None, include_last_offset: bool
) -> tuple[Tensor, int]:
    """``_bag_numbers`` of offsets that cannot be read."""
    length = input._type.numel
    if offsets is None:
        count, length = input._type.shape
        return from_array(np.repeat(np.arange(count), length)), count
    if offsets._type.numel:
        _require_offsets(offsets, length)
    begins = narrow(offsets, 0, 0, offsets._type.numel - 1) if include_last_offset else offsets
    places = arange(length, dtype=begins.dtype)
    return searchsorted(begins, places, right=True) - 1, begins._type.numel


def _require_offsets(begins: Tensor, length: int) -> None:
    first, last = select(begins, 0, 0), select(begins, 0, begins._type.numel - 1)
    require(
        first == 0, RuntimeError,
        lambda: "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start "
        f"from position 0. However, got {first}",
    )  # fmt: skip
    require(
        last <= length, RuntimeError,
        lambda: f"offsets[-1] can not be greater than input's length {length} but got offsets[-1] "
        f"of {last}",
    )  # fmt: skip
    before = narrow(begins, 0, 0, begins._type.numel - 1)
    require(
        narrow(begins, 0, 1, begins._type.numel - 1) >= before, RuntimeError,
        lambda: "offsets have to be in ascending order: a bag begins where one ends",
    )  # fmt: skip


def _bag_numbers(
    input: Tensor, offsets: Tensor | None, include_last_offset: bool
) -> tuple[Array, int]:
    """For every element the number of its bag, and how many bags there are."""
    if offsets is None:
        count, length = input._type.shape
        return np.repeat(np.arange(count), length), count
    begins = offsets.array()
    _check_offsets(begins, input._type.numel)
    if include_last_offset:
        begins = begins[:-1]
    places = np.arange(input._type.numel)
    return np.searchsorted(begins, places, side="right") - 1, len(begins)


def _check_rows(numbers: Array, rows: int) -> None:
    outside = np.flatnonzero((numbers < 0) | (numbers >= rows))
    if len(outside):
        raise RuntimeError(
            f"Index {outside[0]} of input takes value {numbers[outside[0]]} which is not in the "
            f"valid range [0, {rows})"
        )


def _check_offsets(begins: Array, length: int) -> None:
    if not len(begins):
        return
    if begins[0] != 0:
        raise RuntimeError(
            f"offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start "
            f"from position 0. However, got {begins[0]}"
        )
    if begins[-1] > length:
        raise RuntimeError(
            f"offsets[-1] can not be greater than input's length {length} but got offsets[-1] of "
            f"{begins[-1]}"
        )
    if np.any(begins[1:] < begins[:-1]):
        raise RuntimeError("offsets have to be in ascending order: a bag begins where one ends")


def _check_bags(
    input: Tensor, weight: Tensor, offsets: Tensor | None, mode: str,
    per_sample_weights: Tensor | None, scale_grad_by_freq: bool,
) -> None:  # fmt: skip
    if per_sample_weights is not None and per_sample_weights._type.shape != input._type.shape:
        raise ValueError(
            f"embedding_bag: If per_sample_weights ({per_sample_weights.shape}) is not None, then "
            f"it must have the same shape as the input ({input.shape})"
        )
    if weight.ndim != 2:
        raise ValueError(f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.ndim}")
    if input.ndim not in (1, 2):
        raise ValueError(
            f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.ndim}"
        )
    if (input.ndim == 1) != (offsets is not None) or (offsets is not None and offsets.ndim != 1):
        raise ValueError(
            "offsets has to be a 1D Tensor for a 1D input, and None for a 2D input, which is "
            "treated as a mini-batch of fixed length sequences"
        )
    if mode not in ("sum", "mean", "max"):
        raise ValueError("mode has to be one of sum, mean or max")
    if mode == "max" and scale_grad_by_freq:
        raise ValueError("max mode does not support scaling the gradient by the frequency")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(
            "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported "
            f"for mode='sum' (got mode='{mode}')."
        )
