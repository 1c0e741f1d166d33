"""Sights: where tokens stand and which keys their queries attend to.

:class:`Cache` keeps keys and values of the tokens so far, so that one more token costs the same
wherever it stands. Buffers have the length of the context and are written in place; a token attends
to all of it under a mask. Shapes are then the same at every position, and one compiled program
serves them all. :class:`Segments` is for training: several texts in one row, none of which sees
another.
"""

# Methods of tensors are attached at run time and give Any.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import evergrad as eg
from evergrad.nn import functional as F


class LayerSight(Protocol):
    """What the queries of one layer attend to."""

    def attend(
        self, q: eg.Tensor, k: eg.Tensor, v: eg.Tensor, positions: eg.Tensor
    ) -> eg.Tensor:  # (B, nh, T, hs), twice (B, nkv, T, hs), (T) or (B, T)
        """The attended values, (B, nh, T, hs)."""


class Sight(Protocol):
    """Positions of the tokens that are given to a model, and the sight of each of its layers."""

    @property
    def layers(self) -> Sequence[LayerSight]: ...

    def positions(self, length: int) -> eg.Tensor:
        """Where the next tokens stand, (length) or (B, length)."""

    def advance(self, length: int) -> None:
        """All layers have seen them."""


class Segments:
    """Several texts in one row: a token sees those before it in its own text alone.

    ``numbers`` (B, T) has the number of the text of each token; each text is contiguous, and its
    positions count from 0.
    """

    def __init__(self, numbers: eg.Tensor, layers: int) -> None:
        same = numbers[:, :, None] == numbers[:, None]  # (B, T, T)
        before = eg.arange(numbers.shape[1])
        self.seen: eg.Tensor = (same & (before[:, None] >= before))[:, None]  # (B, 1, T, T)
        self.places: eg.Tensor = self.seen[:, 0].sum(-1) - 1  # (B, T)
        self.layers: list[Segments] = [self] * layers

    def positions(self, length: int) -> eg.Tensor:
        return self.places

    def advance(self, length: int) -> None:
        """Nothing is kept."""

    def attend(
        self, q: eg.Tensor, k: eg.Tensor, v: eg.Tensor, positions: eg.Tensor
    ) -> eg.Tensor:  # (B, nh, T, hs), twice (B, nkv, T, hs), (B, T)
        shared = k.shape[1] < q.shape[1]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self.seen, enable_gqa=shared)


class LayerCache:
    """What one layer keeps: (1, nkv, context, hs), twice."""

    def __init__(self, heads: int, context: int, head_size: int, dtype: eg.dtype) -> None:
        self.keys: eg.Tensor = eg.zeros(1, heads, context, head_size, dtype=dtype)
        self.values: eg.Tensor = eg.zeros(1, heads, context, head_size, dtype=dtype)
        self.places: eg.Tensor = eg.arange(context)

    def begin(self, k: eg.Tensor, v: eg.Tensor) -> None:
        """Keep those of a whole sequence, (1, nkv, T, hs), from the first place on."""
        self.keys[:, :, : k.shape[2]] = k
        self.values[:, :, : v.shape[2]] = v

    def append(self, k: eg.Tensor, v: eg.Tensor, position: eg.Tensor) -> None:
        """Keep those of one token, (1, nkv, 1, hs), at its position, (1)."""
        here = (self.places == position)[:, None]  # (context, 1)
        self.keys.copy_(eg.where(here, k, self.keys))
        self.values.copy_(eg.where(here, v, self.values))

    def attend(
        self, q: eg.Tensor, k: eg.Tensor, v: eg.Tensor, positions: eg.Tensor
    ) -> eg.Tensor:  # (1, nh, T, hs), twice (1, nkv, T, hs), (T)
        """One token sees what is kept, itself included; several are a beginning."""
        shared = k.shape[1] < q.shape[1]
        if q.shape[2] > 1:
            self.begin(k, v)
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=shared)
        self.append(k, v, positions)
        seen = (self.places <= positions)[None]  # (1, context): behind it are zeros or old tokens
        return F.scaled_dot_product_attention(
            q, self.keys, self.values, attn_mask=seen, enable_gqa=shared
        )


class Cache:
    """What all layers keep of one sequence, and the position of its next token.

    It begins with a whole sequence and continues with single tokens.
    """

    def __init__(
        self, layers: int, heads: int, context: int, head_size: int, dtype: eg.dtype
    ) -> None:
        self.layers: list[LayerCache] = [
            LayerCache(heads, context, head_size, dtype) for _ in range(layers)
        ]
        self.position: eg.Tensor = eg.zeros(1, dtype=eg.int64)
        self.limit = context

    def reset(self) -> None:
        """Begin with another sequence."""
        self.position.zero_()

    def positions(self, length: int) -> eg.Tensor:
        """Where the next tokens stand, (length)."""
        return self.position.clone() if length == 1 else eg.arange(length)

    def advance(self, length: int) -> None:
        self.position.add_(length)
