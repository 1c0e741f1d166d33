"""Attention over ragged sequences, without padding."""

from __future__ import annotations

import math
from typing import Any

from evergrad.core.bind import cast
from evergrad.core.tensor import Tensor
from evergrad.extension import provides
from evergrad.nested.jagged import NestedTensor, jagged_tensor
from evergrad.ops.composite.activations import widened
from evergrad.ops.composite.attention import check_dropout
from evergrad.ops.rows.jagged_attention import jagged_attention
from evergrad.ops.rows.movement.views import movedim


@provides("ragged_attention")
def attend(
    query: Any, key: Any, value: Any, attn_mask: Tensor | None, dropout_p: float, is_causal: bool,
    scale: float | None, enable_gqa: bool,
) -> NestedTensor:  # fmt: skip
    """Every example attends to its own keys."""
    _check(query, key, value, attn_mask)
    check_dropout(dropout_p)
    heads, shared = query._type.shape[1], key._type.shape[1]
    if heads != shared and not enable_gqa:
        raise RuntimeError(
            f"{heads} heads of queries and {shared} of keys: several query heads share one with "
            "enable_gqa=True"
        )
    # Tokens first: that is how projections are in memory.
    q, k, v = (widened(movedim(x.live_elements(), 0, 1)) for x in (query, key, value))
    scale = 1 / math.sqrt(q._type.shape[-1]) if scale is None else scale
    found = jagged_attention(
        q, k, v, query._offsets, key._offsets, scale=scale, causal=is_causal, dropout=dropout_p
    )
    return jagged_tensor(movedim(cast(found, query.dtype), 1, 0), query._offsets, None, 2)


def _check(query: Any, key: Any, value: Any, attn_mask: Tensor | None) -> None:
    if not all(isinstance(x, NestedTensor) and x.ndim == 4 for x in (query, key, value)):
        raise RuntimeError(
            "No viable backend for scaled_dot_product_attention was found: query, key and value "
            "must all be nested tensors of [batch, heads, ragged, width]"
        )
    if any(x._ragged_dim != 2 or x._lengths is not None for x in (query, key, value)):
        raise RuntimeError(
            "No viable backend for scaled_dot_product_attention was found: the third dimension "
            "must be the ragged one, without gaps (transpose(1, 2) of [batch, ragged, heads, "
            "width])"
        )
    if attn_mask is not None:
        raise RuntimeError(
            "No viable backend for scaled_dot_product_attention was found: nested sequences take "
            "no attn_mask"
        )
    if key.ragged is not value.ragged:
        raise RuntimeError("key and value must have the same offsets")
    if len(query) != len(key):
        raise RuntimeError(f"{len(query)} sequences of queries, but {len(key)} of keys")
