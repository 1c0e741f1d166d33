"""Attention of new tokens to themselves and to those whose keys and values are kept in pages.

Queries are ``[sequences, tokens, heads, width]``, their keys and values ``[sequences, tokens,
shared heads, width]``; kept ones ``[pages, page, shared heads, width]``, of which a sequence has
those that its row of ``table`` names, with ``start`` tokens in all. A token attends to the tokens
kept of its sequence and to the new ones up to itself. Nothing of it has a derivative.
"""

from __future__ import annotations

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import bind
from evergrad.core.families import opaque
from evergrad.core.op import NONDIFFERENTIABLE
from evergrad.core.row_facts import AutocastPolicy, lowered
from evergrad.core.shapes import TensorType, tensor_type
from evergrad.core.tensor import Array, Tensor
from evergrad.errors import ShapeError


def _type(
    q: TensorType, k: TensorType, v: TensorType, keys: TensorType, values: TensorType,
    table: TensorType, start: TensorType, *, scale: float,
) -> TensorType:  # fmt: skip
    batch, length, heads, width = q.shape
    shared = k.shape[2]
    row = (shared, width)
    fits = k.shape == v.shape == (batch, length, *row) and keys.shape == values.shape
    fits = fits and keys.shape[2:] == row and start.shape == (batch,) == table.shape[:1]
    if not fits or heads % max(shared, 1) or 0 in keys.shape:
        shapes = ", ".join(str(list(t.shape)) for t in (q, k, v, keys, values, table, start))
        raise ShapeError(f"paged_attention(): {shapes} do not go together")
    if not q.dtype.is_floating_point or any(t.dtype is not q.dtype for t in (k, v, keys, values)):
        raise TypeError("paged_attention(): queries, keys and values are floats of one type")
    if any(t.dtype is not dtypes.int64 for t in (table, start)):
        raise TypeError("paged_attention(): the table and the starts are int64")
    return tensor_type(q.shape, q.dtype)


def _eval(
    q: Array,
    k: Array,
    v: Array,
    keys: Array,
    values: Array,
    table: Array,
    start: Array,
    *,
    scale: float,
) -> Array:
    out = np.empty(q.shape, q.dtype)
    groups = q.shape[2] // k.shape[2]
    step = np.arange(q.shape[1])
    for i, known in enumerate(start.tolist()):
        kept = [pool[table[i]].reshape(-1, *pool.shape[2:])[:known] for pool in (keys, values)]
        whole = [np.concatenate(pair) for pair in zip(kept, (k[i], v[i]), strict=True)]
        # (heads, keys, width)
        own, other = (np.repeat(part.swapaxes(0, 1), groups, 0) for part in whole)
        scores = q[i].swapaxes(0, 1) * q.dtype.type(scale) @ own.swapaxes(1, 2)
        new = scores[:, :, len(kept[0]) :]
        new[:, step > step[:, None]] = -np.inf
        weights = np.exp(scores - scores.max(2, keepdims=True))
        out[i] = (weights / weights.sum(2, keepdims=True) @ other).swapaxes(0, 1)
    return out


PAGED_ATTENTION = opaque(
    "paged_attention", _eval, _type, NONDIFFERENTIABLE, emit=lowered("kernels.attention.paged"),
    autocast=AutocastPolicy.KEEP, doc="Attention to new tokens and to those kept in pages.",
)  # fmt: skip


def paged_attention(
    query: Tensor, key: Tensor, value: Tensor, keys: Tensor, values: Tensor, table: Tensor,
    start: Tensor, *, scale: float,
) -> Tensor:  # fmt: skip
    """Attention of ``[sequences, tokens, heads, width]`` to a paged cache and to themselves."""
    given = (query, key, value, keys, values, table, start)
    return bind(PAGED_ATTENTION, *given, scale=float(scale))  # type: ignore[no-any-return]
