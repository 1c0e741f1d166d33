"""Keys and values of the tokens so far, so that one more token costs the same wherever it stands.

Buffers have the length of the context and are written in place; a token attends to all of it under
a mask. Shapes are then the same at every position, and one compiled program serves them all.
"""

# Methods of tensors are attached at run time and give Any.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import evergrad as eg
from evergrad.nn import functional as F


class LayerCache:
    """What one layer keeps: (1, nkv, context, hs), twice."""

    def __init__(self, heads: int, context: int, head_size: int, dtype: eg.dtype) -> None:
        self.keys = eg.zeros(1, heads, context, head_size, dtype=dtype)
        self.values = eg.zeros(1, heads, context, head_size, dtype=dtype)
        self.places = eg.arange(context)

    def begin(self, k: eg.Tensor, v: eg.Tensor) -> None:
        """Keep those of a whole sequence, (1, nkv, T, hs), from the first place on."""
        self.keys[:, :, : k.shape[2]] = k
        self.values[:, :, : v.shape[2]] = v

    def append(self, k: eg.Tensor, v: eg.Tensor, position: eg.Tensor) -> None:
        """Keep those of one token, (1, nkv, 1, hs), at its position, (1)."""
        here = (self.places == position)[:, None]  # (context, 1)
        self.keys.copy_(eg.where(here, k, self.keys))
        self.values.copy_(eg.where(here, v, self.values))

    def attend(self, q: eg.Tensor, position: eg.Tensor) -> eg.Tensor:  # (1, nh, 1, hs), (1)
        """What a token at this position sees. Places behind it hold zeros or an older sequence."""
        seen = (self.places <= position)[None]  # (1, context)
        shared = self.keys.shape[1] < q.shape[1]
        return F.scaled_dot_product_attention(
            q, self.keys, self.values, attn_mask=seen, enable_gqa=shared
        )


class Cache:
    """What all layers keep of one sequence, and the position of its next token.

    It begins with a whole sequence and goes on with single tokens.
    """

    def __init__(
        self, layers: int, heads: int, context: int, head_size: int, dtype: eg.dtype
    ) -> None:
        self.layers = [LayerCache(heads, context, head_size, dtype) for _ in range(layers)]
        self.position = eg.zeros(1, dtype=eg.int64)
        self.limit = context

    def reset(self) -> None:
        """Begin with another sequence."""
        self.position.zero_()

    def positions(self, length: int) -> eg.Tensor:
        """Where the next tokens stand, (length)."""
        return self.position.clone() if length == 1 else eg.arange(length)

    def advance(self, length: int) -> None:
        self.position.add_(length)
