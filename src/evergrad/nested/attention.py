"""Attention over ragged sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

from evergrad.core.tensor import Tensor
from evergrad.extension import provides
from evergrad.nested.jagged import NestedTensor
from evergrad.nested.jagged_rows import from_padded
from evergrad.ops.composite.attention import scaled_dot_product_attention as dense_attention
from evergrad.ops.surface.convert import adopt


@provides("ragged_attention")
def attend(
    query: Any, key: Any, value: Any, attn_mask: Tensor | None, dropout_p: float, is_causal: bool,
    scale: float | None, enable_gqa: bool,
) -> NestedTensor:  # fmt: skip
    """Every example attends to its own keys: on padded sequences, with the padding masked."""
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
    if attn_mask is not None or is_causal:
        raise RuntimeError(
            "No viable backend for scaled_dot_product_attention was found: nested sequences take "
            "neither attn_mask nor is_causal"
        )
    if key.ragged is not value.ragged:
        raise RuntimeError("key and value must have the same offsets")
    q, k, v = (x.to_padded_tensor(0.0) for x in (query, key, value))
    mask = _mask_of(key)
    found = dense_attention(q, k, v, mask, dropout_p, scale=scale, enable_gqa=enable_gqa)
    return from_padded(found, query)


def _mask_of(key: NestedTensor) -> Tensor:
    """True where a padded key is one."""
    cells = key.cells()
    there = np.zeros((cells.count, 1, 1, cells.longest), bool)
    there[cells.example, 0, 0, cells.place] = True
    return adopt(there)
