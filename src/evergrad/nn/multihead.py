"""Attention with several heads, as a layer."""

from __future__ import annotations

import math
from typing import Any

from evergrad.core import dtypes
from evergrad.core.tensor import Tensor
from evergrad.nn import functional as F
from evergrad.nn import init
from evergrad.nn.linear import NonDynamicallyQuantizableLinear
from evergrad.nn.module import Module
from evergrad.nn.parameter import Parameter
from evergrad.ops.creation import empty, zeros
from evergrad.ops.elementwise import where
from evergrad.ops.joining import cat
from evergrad.ops.movement import expand


class MultiheadAttention(Module):
    """Queries attend to keys in several heads; the heads' values are joined and projected."""

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True,
        add_bias_kv: bool = False, add_zero_attn: bool = False, kdim: int | None = None,
        vdim: int | None = None, batch_first: bool = False, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                f"embed_dim and num_heads must be greater than 0, got embed_dim={embed_dim} and "
                f"num_heads={num_heads} instead"
            )
        if embed_dim % num_heads:
            raise AssertionError("embed_dim must be divisible by num_heads")
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        self.add_zero_attn = add_zero_attn

        def parameter(*shape: int) -> Parameter:
            return Parameter(empty(*shape, device=device, dtype=dtype))

        if self._qkv_same_embed_dim:
            self.in_proj_weight = parameter(3 * embed_dim, embed_dim)
            for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight"):
                self.register_parameter(name, None)
        else:
            self.q_proj_weight = parameter(embed_dim, embed_dim)
            self.k_proj_weight = parameter(embed_dim, self.kdim)
            self.v_proj_weight = parameter(embed_dim, self.vdim)
            self.register_parameter("in_proj_weight", None)
        if bias:
            self.in_proj_bias = parameter(3 * embed_dim)
        else:
            self.register_parameter("in_proj_bias", None)
        self.out_proj = NonDynamicallyQuantizableLinear(
            embed_dim, embed_dim, bias=bias, device=device, dtype=dtype
        )
        if add_bias_kv:
            self.bias_k, self.bias_v = parameter(1, 1, embed_dim), parameter(1, 1, embed_dim)
        else:
            self.__dict__["bias_k"] = self.__dict__["bias_v"] = None
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        if self._qkv_same_embed_dim:
            init.xavier_uniform_(self.in_proj_weight)
        else:
            for weight in (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.constant_(self.in_proj_bias, 0.0)
            init.constant_(self.out_proj.bias, 0.0)
        if self.bias_k is not None:
            init.xavier_normal_(self.bias_k)
            init.xavier_normal_(self.bias_v)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None,
        need_weights: bool = True, attn_mask: Tensor | None = None,
        average_attn_weights: bool = True, is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """Query (T, B, E), key and value (S, B, E); batch first if so made; or without a batch."""
        if is_causal and attn_mask is None:
            raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
        batched = query.ndim == 3
        if not batched:
            query, key, value = (t.unsqueeze(1) for t in (query, key, value))
            if key_padding_mask is not None:
                key_padding_mask = key_padding_mask.unsqueeze(0)
        elif self.batch_first:
            query, key, value = (t.transpose(0, 1) for t in (query, key, value))
        q, k, v = self._project(query, key, value)  # (T or S, B, E)
        mask = self._joined_mask(key_padding_mask, attn_mask, q)
        k, v, mask = self._with_extra_keys(k, v, mask)
        q, k, v = (self._split_heads(t) for t in (q, k, v))  # (B, heads, T or S, head_dim)
        if need_weights:
            output, weights = self._attend_with_weights(q, k, v, mask)
        else:
            rate = self.dropout if self.training else 0.0
            output = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=rate)
            weights = None
        joined = output.permute(2, 0, 1, 3).flatten(2)  # (T, B, E)
        result = self.out_proj(joined)
        if weights is not None and average_attn_weights:
            weights = weights.mean(dim=1)
        if not batched:
            return result.squeeze(1), None if weights is None else weights.squeeze(0)
        return (result.transpose(0, 1) if self.batch_first else result), weights

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
        biases: Any = (None,) * 3
        if self.in_proj_bias is not None:
            biases = self.in_proj_bias.chunk(3)
        if not self._qkv_same_embed_dim:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        elif query is key and key is value:
            return list(F.linear(query, self.in_proj_weight, self.in_proj_bias).chunk(3, -1))
        else:
            weights = self.in_proj_weight.chunk(3)
        return [
            F.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True)
        ]

    def _joined_mask(self, padding: Tensor | None, mask: Tensor | None, q: Tensor) -> Tensor | None:
        """Both masks as one to add to the scores, (B, heads or 1, T or 1, S)."""
        parts = []
        batch = q.shape[1]
        if mask is not None:
            mask = _additive(mask, q)
            if mask.ndim == 3:
                mask = mask.unflatten(0, (batch, self.num_heads))
            parts.append(mask)
        if padding is not None:
            parts.append(_additive(padding, q).unsqueeze(1).unsqueeze(1))
        if not parts:
            return None
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]

    def _with_extra_keys(
        self, k: Tensor, v: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        batch = k.shape[1]
        if self.bias_k is not None:
            k = cat([k, expand(self.bias_k, (1, batch, self.embed_dim))])
            v = cat([v, expand(self.bias_v, (1, batch, self.embed_dim))])
            mask = None if mask is None else F.pad(mask, (0, 1))
        if self.add_zero_attn:
            blank = zeros(1, batch, self.embed_dim, dtype=k.dtype)
            k, v = cat([k, blank]), cat([v, blank])
            mask = None if mask is None else F.pad(mask, (0, 1))
        return k, v, mask

    def _split_heads(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (self.num_heads, self.head_dim)).permute(1, 2, 0, 3)  # type: ignore[no-any-return]

    def _attend_with_weights(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        scores = (q * (1.0 / math.sqrt(self.head_dim))) @ k.transpose(-2, -1)
        if mask is not None:
            scores = scores + mask
        weights = F.softmax(scores, -1)
        if self.dropout:
            weights = F.dropout(weights, self.dropout, self.training)
        return weights @ v, weights


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    """A mask to add to scores: a boolean one hides where it is true."""
    if mask.dtype is dtypes.bool_:
        return where(mask, float("-inf"), zeros((), dtype=like.dtype))
    return mask.to(like.dtype)  # type: ignore[no-any-return]
