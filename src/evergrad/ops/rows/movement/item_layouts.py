"""Where the elements of lists of arrays stand whose shapes differ.

A layout is a tuple of shapes; the elements of all items are side by side in one dimension. A shape
of fewer dimensions has ones behind. Everything here is computed with NumPy from the shapes, and
kept for the layouts seen last.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from evergrad.core.shapes import Shape
from evergrad.core.tensor import Array

Layout = tuple[Shape, ...]

# A copied run costs as much as an indexed copy of so many elements.
_RUN = 64


def offsets(layout: Layout) -> list[int]:
    """Where each item begins, and where the last one ends."""
    return list(itertools.accumulate(map(math.prod, layout), initial=0))


@lru_cache(maxsize=64)
def places_within(inner: Layout, outer: Layout) -> Array:
    """For each element of items of smaller shapes, its place among those of larger ones."""
    begins = offsets(outer)[:-1]
    if all(len(s) == 1 for s in (*inner, *outer)):
        counts = [s[0] for s in inner]
        shift = np.array(begins, np.int64) - np.array(offsets(inner)[:-1], np.int64)
        return np.arange(sum(counts)) + np.repeat(shift, counts)
    found = [np.zeros(0, np.int64)]
    for begin, small, large in zip(begins, inner, outer, strict=True):
        rank = max(len(small), len(large))
        part, whole = (tuple(s) + (1,) * (rank - len(s)) for s in (small, large))
        grid = np.arange(math.prod(whole)).reshape(whole)
        found.append(begin + grid[tuple(slice(0, n) for n in part)].reshape(-1))
    return np.concatenate(found)


@lru_cache(maxsize=64)
def sources_within(inner: Layout, outer: Layout) -> Array:
    """For each element of items of larger shapes its place among the smaller ones, else -1."""
    at = places_within(inner, outer)
    found = np.full(offsets(outer)[-1], -1)
    found[at] = np.arange(len(at))
    return found


class Moves(NamedTuple):
    """How elements are copied: contiguous runs ``(inner, outer)``, or ``places`` for all."""

    size: int  # of the outer layout
    runs: list[tuple[slice, slice]] | None
    places: Array


@lru_cache(maxsize=64)
def moves(inner: Layout, outer: Layout) -> Moves:
    """The copies between two layouts."""
    at = places_within(inner, outer)
    size = offsets(outer)[-1]
    cuts = np.flatnonzero(np.diff(at) != 1) + 1
    if len(at) < _RUN * len(cuts):
        return Moves(size, None, at)
    bounds = [0, *cuts.tolist(), len(at)] if len(at) else []
    runs = [
        (slice(begin, end), slice(int(at[begin]), int(at[end - 1]) + 1))
        for begin, end in itertools.pairwise(bounds)
    ]
    return Moves(size, runs, at)


def meeting(a: Layout, b: Layout) -> Layout:
    """The indices that items of two layouts have in common, as shapes."""
    return tuple(
        tuple(min(n, m) for n, m in itertools.zip_longest(x, y, fillvalue=1))
        for x, y in zip(a, b, strict=True)
    )


@lru_cache(maxsize=64)
def shared_places(a: Layout, b: Layout) -> tuple[Array, Array]:
    """The places of the elements whose indices both layouts have, in each of the two."""
    both = meeting(a, b)
    return places_within(both, a), places_within(both, b)


@lru_cache(maxsize=64)
def pair_runs(a: Layout, b: Layout, out: Layout) -> Array:
    """The contiguous runs of which items in the shapes of ``out`` are made of those of two others.

    A row has the place in ``out``, those in ``a`` and ``b`` (-1 where it has no such index), and
    the number of elements.
    """
    if all(len(s) == 1 for s in (*a, *b, *out)):
        return _joined_runs(_vector_runs(a, b, out))
    size = offsets(out)[-1]
    sources = []
    for layout in (a, b):
        own, there = shared_places(layout, out)
        found = np.full(size, -1)
        found[there] = own
        sources.append(found)
    ones = np.ones(size, np.int64)
    return _joined_runs(np.stack([np.arange(size), *sources, ones], 1))


def _vector_runs(a: Layout, b: Layout, out: Layout) -> Array:
    """Of each vector the part of both operands, that of the longer one, and the rest."""
    n, m, whole = (np.array([s[0] for s in layout], np.int64) for layout in (a, b, out))
    a_at, b_at, at = (np.array(offsets(layout)[:-1], np.int64) for layout in (a, b, out))
    both = np.minimum(np.minimum(n, m), whole)
    one = np.minimum(np.maximum(n, m), whole)
    none = np.full_like(both, -1)
    rows = [
        (at, a_at, b_at, both),
        (at + both, np.where(n > m, a_at + both, -1), np.where(m > n, b_at + both, -1), one - both),
        (at + one, none, none, whole - one),
    ]
    return np.array(rows, np.int64).transpose(2, 0, 1).reshape(-1, 4)


def _joined_runs(runs: Array) -> Array:
    """The runs that are not empty; those that continue one another as one."""
    runs = runs[runs[:, 3] > 0]
    before, after = runs[:-1], runs[1:]
    continued = np.ones(max(len(runs) - 1, 0), bool)
    for side in (1, 2):
        follows = after[:, side] == before[:, side] + before[:, 3]
        continued &= np.where(before[:, side] < 0, after[:, side] < 0, follows)
    if not len(runs):
        return runs
    first = np.flatnonzero(np.concatenate([[True], ~continued]))
    joined = runs[first]
    joined[:, 3] = np.add.reduceat(runs[:, 3], first)
    return np.ascontiguousarray(joined)
