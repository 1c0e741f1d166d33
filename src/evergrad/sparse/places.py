"""Where elements stand, as plain integer arrays: numbering, sorting, looking up, merging.

A place is a column of a ``[sparse dimensions, elements]`` array. Its key is its number when the
places of the shape are counted through in row-major order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evergrad.core.types import Array


def keys_of(places: Array, extents: Sequence[int]) -> Array:
    """The number of each place."""
    keys = np.zeros(places.shape[1], np.int64)
    for row, extent in zip(places, extents, strict=True):
        keys *= extent
        keys += row
    return keys


def places_of(keys: Array, extents: Sequence[int]) -> Array:
    """The places with these numbers."""
    if not len(extents):
        return np.zeros((0, len(keys)), np.int64)
    return np.stack(np.unravel_index(keys, tuple(extents))).astype(np.int64, copy=False)


def is_increasing(keys: Array) -> bool:
    return bool((keys[1:] > keys[:-1]).all())


def look_up(keys: Array, known: Array) -> tuple[Array, Array]:
    """For each key its position among the sorted known ones, and whether it is there."""
    if not len(known):
        return np.zeros(len(keys), np.int64), np.zeros(len(keys), bool)
    position = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    return position, known[position] == keys


def block_places(pointers: Array, plain: Array, by_row: bool) -> tuple[Array, Array, Array]:
    """The batch, row and column of each element of ``[*batch, rows + 1]`` pointers and
    ``[*batch, n]`` columns; rows and columns change places where columns are compressed."""
    majors, count = max(pointers.shape[-1] - 1, 0), plain.shape[-1]
    counts = np.diff(pointers, axis=-1).reshape(-1)
    if (counts < 0).any() or counts.sum() != plain.size:
        raise IndexError(
            f"pointers lead through {int(counts.sum())} elements, but {plain.size} are stored"
        )
    flat = np.repeat(np.arange(len(counts)), counts)
    batch = flat // max(majors, 1)
    if (batch != np.repeat(np.arange(plain.size // max(count, 1)), count)).any():
        raise IndexError(f"pointers of each matrix of a batch must lead through {count} elements")
    major, minor = flat - batch * majors, plain.reshape(-1).astype(np.int64, copy=False)
    return (batch, major, minor) if by_row else (batch, minor, major)


def merged(a: Array, b: Array) -> tuple[Array, Array, Array]:
    """Two lists of keys as one: the keys, and for both lists where each entry has gone.

    The smaller of the two heads is taken, equal heads become one entry. This is also how lists that
    are not sorted are merged, so that sums of uncoalesced tensors have PyTorch's order.
    """
    if len(a) == len(b) and (a == b).all():
        same = np.arange(len(a))
        return a, same, same
    if is_increasing(a) and is_increasing(b):
        keys = np.union1d(a, b)
        return keys, np.searchsorted(keys, a), np.searchsorted(keys, b)
    return _merged_by_heads(a.tolist(), b.tolist())


def _merged_by_heads(a: list[int], b: list[int]) -> tuple[Array, Array, Array]:
    keys: list[int] = []
    to_a, to_b = [0] * len(a), [0] * len(b)
    i = j = 0
    while i < len(a) and j < len(b):
        x, y = a[i], b[j]
        if x <= y:
            to_a[i] = len(keys)
            i += 1
        if y <= x:
            to_b[j] = len(keys)
            j += 1
        keys.append(min(x, y))
    to_a[i:] = range(len(keys), len(keys) + len(a) - i)
    to_b[j:] = range(len(keys), len(keys) + len(b) - j)
    keys += a[i:] + b[j:]
    return np.array(keys, np.int64), np.array(to_a, np.int64), np.array(to_b, np.int64)


def pairs_at(keys: Array, known: Array) -> tuple[Array, Array]:
    """All pairs of positions with equal keys; ``known`` is sorted and may repeat."""
    begin = np.searchsorted(known, keys, "left")
    counts = np.searchsorted(known, keys, "right") - begin
    left = np.repeat(np.arange(len(keys)), counts)
    within = np.arange(len(left)) - np.repeat(np.cumsum(counts) - counts, counts)
    return left, begin[left] + within
