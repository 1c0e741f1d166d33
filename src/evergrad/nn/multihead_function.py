"""Attention with several heads as one function of its weights."""

from __future__ import annotations

import math
import warnings
from typing import Any

from evergrad.core import dtypes
from evergrad.core.package_name import package_name
from evergrad.core.source_location import user_stacklevel
from evergrad.core.tensor import Tensor
from evergrad.ops.composite.activations import softmax
from evergrad.ops.composite.attention import scaled_dot_product_attention
from evergrad.ops.composite.dropout import dropout
from evergrad.ops.composite.padding import pad
from evergrad.ops.rows.creation.constants import zeros
from evergrad.ops.rows.elementwise.basic import where
from evergrad.ops.rows.matmul import linear
from evergrad.ops.rows.movement.joining import cat
from evergrad.ops.rows.movement.views import expand

Pair = tuple[Tensor, Tensor]


def multi_head_attention_forward(
    query: Tensor, key: Tensor, value: Tensor, embed_dim_to_check: int, num_heads: int,
    in_proj_weight: Tensor | None, in_proj_bias: Tensor | None, bias_k: Tensor | None,
    bias_v: Tensor | None, add_zero_attn: bool, dropout_p: float, out_proj_weight: Tensor,
    out_proj_bias: Tensor | None, training: bool = True, key_padding_mask: Tensor | None = None,
    need_weights: bool = True, attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False, q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None, v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None, static_v: Tensor | None = None,
    average_attn_weights: bool = True, is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Query (T, B, E), key and value (S, B, E), or without a batch; gives output and weights.

    >>> layer, x = nn.MultiheadAttention(4, 2), eg.ones(3, 1, 4)
    >>> y, weights = F.multi_head_attention_forward(
    ...     x, x, x, 4, 2, layer.in_proj_weight, layer.in_proj_bias, None, None, False, 0.0,
    ...     layer.out_proj.weight, layer.out_proj.bias,
    ... )
    >>> y.shape, weights.shape
    (evergrad.Size([3, 1, 4]), evergrad.Size([1, 3, 3]))
    """
    if is_causal and attn_mask is None:
        raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
    _check_inputs(query, key, value)
    batched = query.ndim == 3
    if not batched:
        query, key, value = (t.unsqueeze(1) for t in (query, key, value))
        if key_padding_mask is not None:
            key_padding_mask = key_padding_mask.unsqueeze(0)
    if query.shape[-1] != embed_dim_to_check:
        raise AssertionError(
            f"was expecting embedding dimension of {embed_dim_to_check}, but got {query.shape[-1]}"
        )
    weights: Any = in_proj_weight
    if use_separate_proj_weight:
        weights = (q_proj_weight, k_proj_weight, v_proj_weight)
    _check_masks(key_padding_mask, attn_mask, query, key, num_heads)
    q, k, v = _projected((query, key, value), weights, in_proj_bias)  # (T or S, B, E)
    mask = _joined_mask(key_padding_mask, attn_mask, q, num_heads)
    if bias_k is not None and bias_v is not None:
        (k, v), mask = _with_further((k, v), (bias_k, bias_v), mask)
    if add_zero_attn:
        blank = zeros(1, 1, k.shape[-1], dtype=k.dtype)
        (k, v), mask = _with_further((k, v), (blank, blank), mask)
    q, k, v = (_split_heads(t, num_heads) for t in (q, k, v))  # (B, heads, T or S, head_dim)
    k = k if static_k is None else static_k.unflatten(0, q.shape[:2])
    v = v if static_v is None else static_v.unflatten(0, q.shape[:2])
    rate = dropout_p if training else 0.0
    attention: Tensor | None = None
    if need_weights:
        output, attention = _attend_with_weights(q, k, v, mask, rate)
    else:
        output = scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=rate)
    result = linear(output.permute(2, 0, 1, 3).flatten(2), out_proj_weight, out_proj_bias)
    if attention is not None and average_attn_weights:
        attention = attention.mean(dim=1)
    if batched:
        return result, attention
    return result.squeeze(1), None if attention is None else attention.squeeze(0)


def _check_inputs(query: Tensor, key: Tensor, value: Tensor) -> None:
    if query.ndim not in (2, 3):
        raise AssertionError(
            f"query should be unbatched 2D or batched 3D tensor but received {query.ndim}-D"
        )
    if not query.ndim == key.ndim == value.ndim:
        raise AssertionError(
            f"For {query.ndim}-D `query`, expected `key` and `value` to be {query.ndim}-D but "
            f"found {key.ndim}-D and {value.ndim}-D tensors respectively"
        )
    if key.shape[:-1] != value.shape[:-1]:
        raise AssertionError(f"key shape {key.shape} does not match value shape {value.shape}")


def _check_masks(
    padding: Tensor | None, mask: Tensor | None, query: Tensor, key: Tensor, heads: int
) -> None:
    """Masks have their full shape: a dimension of 1 would be repeated in silence."""
    steps, batch, _ = query.shape
    if padding is not None and tuple(padding.shape) != (batch, key.shape[0]):
        raise AssertionError(
            f"Expected key_padding_mask of shape {(batch, key.shape[0])}, but got "
            f"{tuple(padding.shape)}"
        )
    if mask is None:
        return
    if mask.dtype is not dtypes.bool_ and not mask.dtype.is_floating_point:
        raise AssertionError("only bool and floating types of attn_mask are supported")
    if padding is not None and padding.dtype is not mask.dtype and package_name() == "torch":
        warnings.warn(
            "Support for mismatched key_padding_mask and attn_mask is deprecated. Use same type "
            "for both instead.",
            stacklevel=user_stacklevel(),
        )
    wanted = (steps, key.shape[0])
    if tuple(mask.shape) not in (wanted, (batch * heads, *wanted)):
        raise RuntimeError(
            f"The shape of the attn_mask is {tuple(mask.shape)}, but should be {wanted} or "
            f"{(batch * heads, *wanted)}."
        )


def _projected(
    inputs: tuple[Tensor, Tensor, Tensor], weights: Any, bias: Tensor | None
) -> list[Tensor]:
    """Each input by its own weight; one product for all three if the inputs are one."""
    query, key, value = inputs
    if isinstance(weights, Tensor):
        if query is key and key is value:
            return list(linear(query, weights, bias).chunk(3, -1))
        weights = weights.chunk(3)
    biases: tuple[None, None, None] | tuple[Tensor, ...] = (
        (None,) * 3 if bias is None else bias.chunk(3)
    )
    return [linear(x, w, b) for x, w, b in zip(inputs, weights, biases, strict=True)]


def _joined_mask(
    padding: Tensor | None, mask: Tensor | None, q: Tensor, heads: int
) -> Tensor | None:
    """Both masks as one to add to the scores, (B, heads or 1, T or 1, S)."""
    parts = []
    if mask is not None:
        mask = _additive(mask, q)
        parts.append(mask.unflatten(0, (q.shape[1], heads)) if mask.ndim == 3 else mask)
    if padding is not None:
        parts.append(_additive(padding, q).unsqueeze(1).unsqueeze(1))
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else parts[0] + parts[1]


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    """A mask to add to scores: a boolean one hides where it is true."""
    if mask.dtype is dtypes.bool_:
        return where(mask, float("-inf"), zeros((), dtype=like.dtype))
    return mask.to(like.dtype)


def _with_further(pair: Pair, further: Pair, mask: Tensor | None) -> tuple[Pair, Tensor | None]:
    """One more key and value for every sample, which the mask lets everybody see."""
    batch = pair[0].shape[1]
    k, v = (
        cat([own, expand(more, (1, batch, more.shape[-1]))])
        for own, more in zip(pair, further, strict=True)
    )
    return (k, v), None if mask is None else pad(mask, (0, 1))


def _split_heads(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(2, (heads, x.shape[2] // heads)).permute(1, 2, 0, 3)


def _attend_with_weights(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, rate: float
) -> tuple[Tensor, Tensor]:
    scores = (q * (1.0 / math.sqrt(q.shape[-1]))) @ k.transpose(-2, -1)
    if mask is not None:
        scores = scores + mask
    weights = softmax(scores, -1)
    if rate:
        weights = dropout(weights, rate, True)
    return weights @ v, weights
