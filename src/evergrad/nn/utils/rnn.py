"""Sequences of different lengths: padding, packing, and back."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from evergrad.core import dtypes
from evergrad.core.tensor import Tensor, from_array
from evergrad.ops.rows.creation.constants import full
from evergrad.ops.rows.movement.joining import cat, stack
from evergrad.ops.rows.movement.views import reshape
from evergrad.ops.rows.reduce.sort import argsort


class _Packed(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(_Packed):
    """The steps of several sequences without padding, longest sequence first.

    ``data`` holds the first elements of all sequences, then the second ones, and so on;
    ``batch_sizes`` says how many sequences are still running at each step.

    >>> sequences = [eg.tensor([1.0, 2.0, 3.0]), eg.tensor([4.0])]
    >>> packed = nn.utils.rnn.pack_sequence(sequences)
    >>> packed.data, packed.batch_sizes
    (tensor([1., 4., 2., 3.]), tensor([2, 1, 1]))
    """

    __slots__ = ()

    def __new__(
        cls, data: Tensor, batch_sizes: Tensor | None = None, sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> PackedSequence:  # fmt: skip
        if batch_sizes is None:
            raise ValueError("PackedSequence needs batch_sizes")
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """Convert the data, as ``Tensor.to`` does."""
        return self._replace_data(self.data.to(*args, **kwargs))

    def _replace_data(self, data: Tensor) -> PackedSequence:
        return PackedSequence(data, self.batch_sizes, self.sorted_indices, self.unsorted_indices)

    def double(self) -> PackedSequence:
        """The data as float64."""
        return self.to(dtype=dtypes.float64)

    def float(self) -> PackedSequence:
        """The data as float32."""
        return self.to(dtype=dtypes.float32)

    def half(self) -> PackedSequence:
        """The data as float16."""
        return self.to(dtype=dtypes.float16)

    def long(self) -> PackedSequence:
        """The data as int64."""
        return self.to(dtype=dtypes.int64)

    def int(self) -> PackedSequence:
        """The data as int32."""
        return self.to(dtype=dtypes.int32)

    def short(self) -> PackedSequence:
        """The data as int16."""
        return self.to(dtype=dtypes.int16)

    def char(self) -> PackedSequence:
        """The data as int8."""
        return self.to(dtype=dtypes.int8)

    def byte(self) -> PackedSequence:
        """The data as uint8."""
        return self.to(dtype=dtypes.uint8)

    def is_pinned(self) -> bool:
        """Never: memory is not pinned."""
        return False

    def pin_memory(self) -> PackedSequence:
        """The same: there is no device to copy to."""
        return self

    def cpu(self) -> PackedSequence:
        """The same: everything is on the CPU."""
        return self

    @property
    def is_cuda(self) -> bool:
        """Whether it is on a GPU: never."""
        return False


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The order that undoes an order.

    Args:
        permutation: the order, or ``None``

    >>> nn.utils.rnn.invert_permutation(eg.tensor([2, 0, 1]))
    tensor([1, 2, 0])
    """
    if permutation is None:
        return None
    return argsort(permutation)


def _int_tensor(values: Iterable[int]) -> Tensor:
    return from_array(np.fromiter(values, np.int64))


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Leave the padding out of a batch of padded sequences.

    Args:
        input: (T, B, *), or (B, T, *) with ``batch_first``
        lengths: the length of each sequence
        batch_first: default ``False``
        enforce_sorted: whether sequences must stand longest first; default ``True``

    >>> padded = eg.tensor([[1.0, 2.0, 3.0], [4.0, 0.0, 0.0]])
    >>> nn.utils.rnn.pack_padded_sequence(padded, [3, 1], batch_first=True).data
    tensor([1., 4., 2., 3.])
    """
    counts = [int(n) for n in (lengths.tolist() if isinstance(lengths, Tensor) else lengths)]
    if batch_first:
        input = input.transpose(0, 1)
    if len(counts) != input.shape[1]:
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(counts)} "
            f"(batch_size={input.shape[1]})"
        )
    if not counts or min(counts) <= 0:
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' "
            "that is <= 0"
        )
    if max(counts) > input.shape[0]:
        raise RuntimeError(
            f"Length of every sample has to be at most that of the padded batch, "
            f"{input.shape[0]}, but found {max(counts)} in 'lengths'"
        )
    sorted_indices = None
    if enforce_sorted:
        if any(a < b for a, b in itertools.pairwise(counts)):
            raise RuntimeError(
                "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. "
                "You can pass `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence "
                "to sidestep this requirement"
            )
    else:
        order = sorted(range(len(counts)), key=lambda i: -counts[i])
        sorted_indices = _int_tensor(order)
        input = input.index_select(1, sorted_indices)
        counts = [counts[i] for i in order]
    steps = counts[0]
    sizes = [sum(n > t for n in counts) for t in range(steps)]
    batch = input.shape[1]
    places = _int_tensor(t * batch + i for t, size in enumerate(sizes) for i in range(size))
    flat = reshape(input, (input.shape[0] * batch, *input.shape[2:]))
    return PackedSequence(flat.index_select(0, places), _int_tensor(sizes), sorted_indices)


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Put the padding back; gives the padded batch and the lengths.

    Args:
        sequence: the packed sequences
        batch_first: whether the batch is the first dimension; default ``False``
        padding_value: default 0.0
        total_length: pad to this length; default that of the longest

    >>> sequences = [eg.tensor([1.0, 2.0, 3.0]), eg.tensor([4.0])]
    >>> packed = nn.utils.rnn.pack_sequence(sequences)
    >>> nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
    (tensor([[1., 2., 3.],
            [4., 0., 0.]]), tensor([3, 1]))
    """
    sizes = [int(n) for n in sequence.batch_sizes.tolist()]
    longest = len(sizes)
    if total_length is not None:
        if total_length < longest:
            raise ValueError(
                "Expected total_length to be at least the length of the longest sequence in "
                f"input, but got total_length={total_length} and max sequence length being "
                f"{longest}"
            )
        longest = total_length
    batch, rest = sizes[0], sequence.data.shape[1:]
    places = _int_tensor(t * batch + i for t, size in enumerate(sizes) for i in range(size))
    blank = full((longest * batch, *rest), padding_value, dtype=sequence.data.dtype)
    padded = reshape(blank.index_copy(0, places, sequence.data), (longest, batch, *rest))
    lengths = _int_tensor(sum(size > i for size in sizes) for i in range(batch))
    if sequence.unsorted_indices is not None:
        padded = padded.index_select(1, sequence.unsorted_indices)
        lengths = lengths.index_select(0, sequence.unsorted_indices)
    return (padded.transpose(0, 1) if batch_first else padded), lengths


def pad_sequence(
    sequences: Any, batch_first: bool = False, padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:  # fmt: skip
    """Sequences of different lengths as one tensor.

    Args:
        sequences: tensors (T_i, *)
        batch_first: (B, T, *) in place of (T, B, *); default ``False``
        padding_value: default 0.0
        padding_side: ``"right"`` (default) or ``"left"``

    >>> sequences = [eg.tensor([1.0, 2.0, 3.0]), eg.tensor([4.0])]
    >>> nn.utils.rnn.pad_sequence(sequences, batch_first=True)
    tensor([[1., 2., 3.],
            [4., 0., 0.]])
    """
    parts = list(sequences)
    if not parts:
        raise RuntimeError("pad_sequence: received an empty list of sequences")
    if any(not isinstance(p, Tensor) or not p.ndim for p in parts):
        raise RuntimeError("pad_sequence: expected Tensors of at least one dimension, the steps")
    if padding_side not in ("left", "right"):
        raise RuntimeError(
            f"Expected padding_side to be one of left or right, but got {padding_side}."
        )
    longest = max(p.shape[0] for p in parts)
    padded = []
    for part in parts:
        missing = longest - part.shape[0]
        if missing:
            blank = full((missing, *part.shape[1:]), padding_value, dtype=part.dtype)
            part = cat([part, blank] if padding_side == "right" else [blank, part])
        padded.append(part)
    return stack(padded, 0 if batch_first else 1)


def unpad_sequence(
    padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False
) -> list[Tensor]:
    """The sequences of a padded batch, each with its own length.

    Args:
        padded_sequences: (T, B, *), or (B, T, *) with ``batch_first``
        lengths: the length of each
        batch_first: default ``False``

    >>> padded, lengths = eg.tensor([[1, 2], [3, 0]]), eg.tensor([2, 1])
    >>> nn.utils.rnn.unpad_sequence(padded, lengths, batch_first=True)
    [tensor([1, 2]), tensor([3])]
    """
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    return [
        row[: int(length)] for row, length in zip(padded_sequences, lengths.tolist(), strict=True)
    ]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack sequences of different lengths.

    Args:
        sequences: tensors (T_i, *)
        enforce_sorted: whether they must stand longest first; default ``True``

    >>> sequences = [eg.tensor([1.0, 2.0, 3.0]), eg.tensor([4.0])]
    >>> nn.utils.rnn.pack_sequence(sequences).data
    tensor([1., 4., 2., 3.])
    """
    lengths = [s.shape[0] for s in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences of a packed one, each with its own length.

    Args:
        packed_sequences: what :func:`pack_sequence` gave

    >>> sequences = [eg.tensor([1.0, 2.0, 3.0]), eg.tensor([4.0])]
    >>> nn.utils.rnn.unpack_sequence(nn.utils.rnn.pack_sequence(sequences))
    [tensor([1., 2., 3.]), tensor([4.])]
    """
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)


__all__ = [
    "PackedSequence", "invert_permutation", "pack_padded_sequence", "pack_sequence",
    "pad_packed_sequence", "pad_sequence", "unpack_sequence", "unpad_sequence",
]  # fmt: skip
