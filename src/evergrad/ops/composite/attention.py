"""Scaled dot-product attention: a plain function over rows."""

from __future__ import annotations

import math

from evergrad.core import dtypes
from evergrad.core.autocast import autocast_policy
from evergrad.core.bind import cast
from evergrad.core.composite import composite
from evergrad.core.compound import Compound
from evergrad.core.row_facts import AutocastPolicy
from evergrad.core.shapes import broadcast_shapes
from evergrad.core.tensor import Tensor
from evergrad.errors import DTypeError, ShapeError
from evergrad.extension import ExtensionPoint
from evergrad.ops.composite.activations import softmax, widened
from evergrad.ops.composite.dropout import dropout_noise
from evergrad.ops.rows.creation.constants import constant
from evergrad.ops.rows.elementwise.basic import exp, reciprocal, where
from evergrad.ops.rows.matmul import matmul
from evergrad.ops.rows.movement.diagonals import tril
from evergrad.ops.rows.movement.views import reshape, transpose
from evergrad.ops.rows.reduce.extrema import amax
from evergrad.ops.rows.reduce.sums import sum as total
from evergrad.ops.surface.handles import detach

_attend_ragged: ExtensionPoint[..., Tensor] = ExtensionPoint("ragged_attention")

# Attention of so many queries of a head, as in decoding, is a few products of vectors and matrices:
# the kernels of attention compute with blocks of queries.
FEW_QUERIES = 4


@autocast_policy(AutocastPolicy.LOWER)
def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """``softmax(query @ key^T * scale + mask) @ value``.

    A boolean mask says which places take part; a query that may look nowhere gives zeros. With
    ``enable_gqa`` several query heads share one head of keys and values.
    """
    if isinstance(query, Compound):
        options = attn_mask, dropout_p, is_causal, scale, enable_gqa
        return _attend_ragged(query, key, value, *options)
    _check(query, key, value, attn_mask, dropout_p, is_causal)
    scale = 1 / math.sqrt(query._type.shape[-1]) if scale is None else scale
    groups = _groups(query, key) if enable_gqa else 1
    q = _by_shared_head(query, groups)
    noise = _noise(q, key, attn_mask, groups, dropout_p) if dropout_p else None
    result = attended(
        q, key, value, attn_mask, noise, scale=scale, is_causal=is_causal, groups=groups
    )  # fmt: skip
    return _by_query_head(result, groups)


def _without_noise(q: Tensor, k: Tensor, v: Tensor, mask: object, noise: Tensor | None) -> int:
    return max(q._type.numel, k._type.numel) if noise is None else 0


@composite("scaled_dot_product_attention", least=32, size=_without_noise, keeps=3,
           aten="_scaled_dot_product_flash_attention_for_cpu")  # fmt: skip
def attended(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None, noise: Tensor | None, *,
    scale: float, is_causal: bool, groups: int,
) -> Tensor:  # fmt: skip
    """Attention of queries by shared head; weights are multiplied with ``noise`` (dropout). 16-bit
    floats are computed in float32, and rounded once."""
    target = q.dtype
    q, k, v = (widened(x) for x in (q, k, v))
    # Keys are scaled rather than queries: what is multiplied has a contiguous gradient.
    if q._type.shape[-2] > FEW_QUERIES:
        scores = _by_query_head(matmul(q, transpose(k * scale, -2, -1)), groups)
    else:
        scores = _by_query_head(matmul(q * scale, transpose(k, -2, -1)), groups)
    if is_causal:
        length, width = scores._type.shape[-2:]
        seen = tril(constant((length, width), True, dtypes.bool_))
        scores = where(seen, scores, -math.inf)
        weights = softmax(scores, -1)
    elif attn_mask is None:
        weights = softmax(scores, -1)
    else:
        weights = _softmax_or_zero(_masked(scores, attn_mask))
    if noise is not None:
        weights = weights * noise
    return cast(matmul(_by_shared_head(weights, groups), v), target)


def _check(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout_p: float, causal: bool
) -> None:
    if min(query.ndim, key.ndim, value.ndim) < 2:
        raise ShapeError(
            "Expected query, key, and value to all be  at least 2 dimensional, but got query.dim: "
            f"{query.ndim} key.dim: {key.ndim} and value.dim: {value.ndim} instead."
        )
    if not query.dtype is key.dtype is value.dtype:
        raise DTypeError(
            "Expected query, key, and value to have the same dtype, but got query.dtype: "
            f"{query.dtype.name} key.dtype: {key.dtype.name} and value.dtype: {value.dtype.name} "
            "instead."
        )
    if query.dtype.category < dtypes.FLOATING:
        raise DTypeError(f"attention needs floating-point numbers, not {query.dtype.name}")
    if mask is not None:
        if causal:
            raise RuntimeError(
                "_scaled_dot_product_attention: Explicit attn_mask should not be set when "
                "is_causal=True"
            )
        if mask.dtype not in (dtypes.bool_, dtypes.float32, query.dtype):
            raise DTypeError(
                "Expected attn_mask dtype to be bool or float or to match query dtype, but got "
                f"attn_mask.dtype: {mask.dtype.name} and  query.dtype: {query.dtype.name} instead."
            )
    check_dropout(dropout_p)


def check_dropout(p: float) -> None:
    """Refuse what is no probability."""
    if not 0 <= p <= 1:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p}")


def _groups(query: Tensor, key: Tensor) -> int:
    """How many query heads share a head of keys."""
    own, heads = query._type.shape[-3], key._type.shape[-3]
    if own % heads:
        raise ShapeError(
            "Number of heads in key and value must divide the number of heads in query"
        )
    return own // heads


def _by_shared_head(x: Tensor, groups: int) -> Tensor:
    """The query heads that share keys as one longer head: [..., heads, more queries, width]."""
    if groups == 1:
        return x
    *lead, own, length, width = x._type.shape
    return reshape(x, (*lead, own // groups, groups * length, width))


def _by_query_head(x: Tensor, groups: int) -> Tensor:
    """Back from shared heads to those of the query."""
    if groups == 1:
        return x
    *lead, heads, rows, width = x._type.shape
    return reshape(x, (*lead, heads * groups, rows // groups, width))


def _noise(q: Tensor, k: Tensor, mask: Tensor | None, groups: int, p: float) -> Tensor | None:
    """What the weights are multiplied with by dropout."""
    (*batch, rows, _), (*shared, columns, _) = q._type.shape, k._type.shape
    shape = (*broadcast_shapes(batch, shared), rows, columns)
    if groups > 1:
        shape = (*shape[:-3], shape[-3] * groups, rows // groups, columns)
    if mask is not None:
        shape = broadcast_shapes(shape, mask._type.shape)
    is_narrow = q.dtype in (dtypes.float16, dtypes.bfloat16)
    return dropout_noise(shape, dtypes.float32 if is_narrow else q.dtype, p)


def _masked(scores: Tensor, mask: Tensor) -> Tensor:
    if mask.dtype is dtypes.bool_:
        return where(mask, scores, -math.inf)
    return scores + mask


def _softmax_or_zero(scores: Tensor) -> Tensor:
    """``softmax`` along the last dimension, and zeros where every score is -inf."""
    largest = amax(detach(scores), -1, True)
    powers = exp(scores - where(largest == -math.inf, 0, largest))
    sums = total(powers, -1, True)
    return powers * reciprocal(where(sums == 0, 1, sums))
