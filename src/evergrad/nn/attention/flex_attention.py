"""Attention whose scores a function changes and whose mask a function gives.

``score_mod(score, b, h, q, kv)`` and ``mask_mod(b, h, q, kv)`` are written for single numbers;
``vmap`` runs them for all at once. Everything is plain ops, so every derivative follows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from evergrad.core import dtypes
from evergrad.core.tensor import Tensor
from evergrad.core.vmap import vmap
from evergrad.errors import DTypeError
from evergrad.nn.attention.block_mask import BlockMask, create_block_mask, create_mask
from evergrad.nn.attention.mods import MaskMod, and_masks, indices_of, noop_mask, or_masks
from evergrad.ops.rows.elementwise.basic import where

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
FlexKernelOptions = dict[str, Any]

# The score and its places by key, by query, by head and by batch, from the inside out.
_BY_DIMENSION = ((0, None, None, None, 0), (0, None, None, 0, None), (0, None, 0, None, None),
                 (0, 0, None, None, None))  # fmt: skip


class AuxRequest(NamedTuple):
    """What to give beside the result."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What was asked for beside the result."""

    lse: Tensor | None = None
    max_scores: Tensor | None = None


def flex_attention(
    query: Tensor, key: Tensor, value: Tensor, score_mod: ScoreMod | None = None,
    block_mask: BlockMask | None = None, scale: float | None = None, enable_gqa: bool = False,
    return_lse: bool = False, kernel_options: FlexKernelOptions | None = None, *,
    return_aux: AuxRequest | None = None,
) -> Any:  # fmt: skip
    """``softmax(score_mod(query @ key^T * scale)) @ value`` where ``block_mask`` allows.

    Query (B, Hq, L, E), key (B, Hkv, S, E), value (B, Hkv, S, Ev). ``return_lse`` also gives the
    logarithms of the sums of exponentials, (B, Hq, L).
    """
    _check(query, key, value, block_mask, enable_gqa)
    kind = dtypes.float64 if query.dtype is dtypes.float64 else dtypes.float32
    q, k, v = (x.to(kind) for x in (query, key, value))
    if enable_gqa:
        repeats = query.shape[1] // key.shape[1]
        k, v = (x.repeat_interleave(repeats, 1) for x in (k, v))
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = (q @ k.transpose(-2, -1)) * factor
    scores = _changed(scores, score_mod, block_mask)
    hidden = scores.isneginf().all(-1, keepdim=True)
    weights = where(hidden, 0.0, where(hidden, 0.0, scores).softmax(-1))
    result = (weights @ v).to(query.dtype)
    return _with_extras(result, scores, return_lse, return_aux)


def _changed(scores: Tensor, score_mod: ScoreMod | None, block_mask: BlockMask | None) -> Tensor:
    places = indices_of(scores.shape)
    if score_mod is not None:
        for dims in _BY_DIMENSION:
            score_mod = vmap(score_mod, in_dims=dims)
        scores = score_mod(scores, *places).to(scores.dtype)
    if block_mask is not None and block_mask.mask_mod is not noop_mask:
        batch, heads, queries, keys = scores.shape
        mask = create_mask(block_mask.mask_mod, batch, heads, queries, keys)
        scores = where(mask, scores, -math.inf)
    return scores


def _with_extras(
    result: Tensor, scores: Tensor, return_lse: bool, request: AuxRequest | None
) -> tuple[Tensor, AuxOutput] | tuple[Tensor, Tensor] | Tensor:
    if request is not None:
        lse = scores.logsumexp(-1) if request.lse else None
        return result, AuxOutput(lse, scores.amax(-1) if request.max_scores else None)
    return (result, scores.logsumexp(-1)) if return_lse else result


def _check(
    query: Tensor, key: Tensor, value: Tensor, mask: BlockMask | None, enable_gqa: bool
) -> None:
    if not query.ndim == key.ndim == value.ndim == 4:
        raise NotImplementedError(
            "Expected query, key, and value to be 4D tensors, but got query.dim(): "
            f"{query.ndim}, key.dim(): {key.ndim} and value.dim(): {value.ndim} instead."
        )
    if not query.dtype is key.dtype is value.dtype:
        raise ValueError(
            "Expected query, key, and value to have the same dtype, but got query.dtype: "
            f"{query.dtype}, key.dtype: {key.dtype}, and value.dtype: {value.dtype} instead."
        )
    if not query.is_floating_point():
        raise DTypeError(f"flex_attention needs floating-point numbers, not {query.dtype}")
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(
            f"Expect query and key/value to have the same embedding dimension but got "
            f"E={query.shape[-1]} and E={key.shape[-1]}."
        )
    _check_heads(query.shape[1], key.shape[1], enable_gqa)
    if mask is not None:
        mask.check_lengths(query.shape[-2], key.shape[-2])


def _check_heads(queries: int, keys: int, enable_gqa: bool) -> None:
    if not enable_gqa and queries != keys:
        raise ValueError(
            f"Expect query and key/value to have the same number of heads but got Hq={queries} and "
            f"Hkv={keys}. Try setting enable_gqa=True for GQA."
        )
    if queries % keys:
        raise ValueError(
            f"Expect number of query heads to be a multiple of kv heads for GQA but got "
            f"Hq={queries} and Hkv={keys}."
        )


__all__ = [
    "AuxOutput", "AuxRequest", "BlockMask", "FlexKernelOptions", "MaskMod", "and_masks",
    "create_block_mask", "create_mask", "flex_attention", "noop_mask", "or_masks",
]  # fmt: skip
