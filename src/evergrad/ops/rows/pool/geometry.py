"""Sliding windows over the last dimensions of an array: their geometry, and views of them.

What convolution, pooling and unfolding share. Owns no row and knows no tensor: a
:class:`Windows` is an attribute of rows and helps to evaluate them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from evergrad.memory import pool

if TYPE_CHECKING:
    from evergrad.core.tensor import Array

Shape = tuple[int, ...]
Index = tuple[slice, ...]


class Windows(NamedTuple):
    """Windows of ``kernel`` elements, ``dilation`` apart, every ``stride`` in dimensions of
    ``size`` elements that are padded by (before, after); negative padding leaves elements out."""

    size: Shape
    kernel: Shape
    stride: Shape
    padding: tuple[tuple[int, int], ...]
    dilation: Shape

    @property
    def padded(self) -> Shape:
        return tuple(n + low + high for n, (low, high) in zip(self.size, self.padding, strict=True))

    @property
    def reach(self) -> Shape:
        """How many elements lie from a window's first to its last."""
        return tuple(d * (k - 1) + 1 for d, k in zip(self.dilation, self.kernel, strict=True))

    @property
    def counts(self) -> Shape:
        """How many windows there are."""
        return _counts(self)

    @property
    def is_pointwise(self) -> bool:
        """Whether every element is a window by itself."""
        return self.kernel == self.stride == (1,) * len(self.size) and not self.is_padded

    @property
    def is_padded(self) -> bool:
        return any(low or high for low, high in self.padding)

    def offsets(self) -> Iterator[tuple[Shape, Index]]:
        """For every place in the window: which it is, and where in the padded dimensions all
        windows have it."""
        for offset in itertools.product(*map(range, self.kernel)):
            yield (
                offset,
                tuple(
                    slice(k * d, k * d + (c - 1) * s + 1, s)
                    for k, d, c, s in zip(
                        offset, self.dilation, self.counts, self.stride, strict=True
                    )
                ),
            )

    def inside(self) -> tuple[Index, Index]:
        """The part of the own and of the padded dimensions that the two have in common."""
        own, padded = [], []
        for n, (low, high) in zip(self.size, self.padding, strict=True):
            start, stop = max(0, -low), n + min(0, high)
            own.append(slice(start, stop))
            padded.append(slice(start + low, stop + low))
        return tuple(own), tuple(padded)

    def pad(self, x: Any, fill: object = 0) -> Any:
        """The array with its last dimensions padded; itself where there is nothing to pad."""
        if not self.is_padded:
            return x
        out: Any = pool.empty((*x.shape[: x.ndim - len(self.size)], *self.padded), x.dtype)
        out.fill(fill)
        own, padded = self.inside()
        out[(..., *padded)] = x[(..., *own)]
        return out

    def crop(self, padded: Any, out: Any) -> None:
        """Write the inside of a padded array to ``out``; the transpose of :meth:`pad`."""
        inner, outer = self.inside()
        if self.size != tuple(s.stop - s.start for s in inner):
            out[...] = 0
        out[(..., *inner)] = padded[(..., *outer)]

    def view(self, padded: Array) -> Array:
        """All windows of a padded array, without copying: [..., *kernel, *counts]."""
        rank = len(self.size)
        lead, steps = padded.strides[:-rank], padded.strides[-rank:]
        within = tuple(s * d for s, d in zip(steps, self.dilation, strict=True))
        between = tuple(s * d for s, d in zip(steps, self.stride, strict=True))
        return np.lib.stride_tricks.as_strided(
            padded,
            (*padded.shape[:-rank], *self.kernel, *self.counts),
            (*lead, *within, *between),
            writeable=False,
        )


def per_dim(name: str, value: Any, rank: int) -> Shape:
    """A number for all dimensions, or one for each."""
    if isinstance(value, int):
        return (value,) * rank
    values = tuple(int(v) for v in value)
    if len(values) == 1:
        return values * rank
    if len(values) != rank:
        raise RuntimeError(
            f"expected {name} to be a single integer value or a list of {rank} values, but got "
            f"{name}={list(values)}"
        )
    return values


@functools.lru_cache(maxsize=1024)
def _counts(windows: Windows) -> Shape:
    return tuple(
        (n - r) // s + 1
        for n, r, s in zip(windows.padded, windows.reach, windows.stride, strict=True)
    )
