"""Samples of attention of sequences of different lengths."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import bind
from evergrad.core.rng.bit_generators import philox_chances
from evergrad.core.types import Attrs
from evergrad.ops.rows.jagged_attention import (
    JAGGED_ATTENTION_BACKWARD,
    JAGGED_DROPOUT_FACTORS,
    jagged_attention,
)
from evergrad.testing.samples import Array, normal, sample

if TYPE_CHECKING:
    from evergrad.core.types import Kwargs


def _expected(q: Array, k: Array, v: Array, ends: Array, other: Array, causal: bool) -> Array:
    out = np.zeros((*q.shape[:2], v.shape[2]))
    groups = q.shape[1] // k.shape[1]
    for (a, b), (c, d) in zip(pairwise(ends), pairwise(other), strict=True):
        for head in range(q.shape[1]):
            scores = q[a:b, head] @ k[c:d, head // groups].T * 0.5
            if causal:
                scores[np.arange(d - c) > np.arange(b - a)[:, None]] = -np.inf
            powers = np.exp(scores)
            if powers.size:
                out[a:b, head] = powers / powers.sum(1, keepdims=True) @ v[c:d, head // groups]
    return out


def _statistics(q: Array, k: Array, ends: Array, other: Array, causal: bool) -> Array:
    """Of each sequence, for each head, the largest scores and one over the sums of powers."""
    heads, groups = q.shape[1], q.shape[1] // k.shape[1]
    stats = np.zeros(2 * len(q) * heads)
    for (a, b), (c, d) in zip(pairwise(ends), pairwise(other), strict=True):
        own = stats[2 * heads * a : 2 * heads * b].reshape(heads, 2, b - a)
        for head in range(heads if d > c else 0):
            scores = q[a:b, head] @ k[c:d, head // groups].T * 0.5
            if causal:
                scores[np.arange(d - c) > np.arange(b - a)[:, None]] = -np.inf
            largest = scores.max(1, initial=-np.inf) if b > a else np.zeros(0)
            own[head] = largest, 1 / np.exp(scores - largest[:, None]).sum(1)
    return stats


def _enter(ends: list[int], other: list[int], heads: int, shared: int, causal: bool, label: str,
           tokens: int | None = None) -> None:  # fmt: skip
    q = normal(ends[-1] if tokens is None else tokens, heads, 2)
    k, v = normal(other[-1], shared, 2, seed=1), normal(other[-1], shared, 3, seed=2)
    g, out = (normal(*q.shape[:2], 3, seed=i) for i in (3, 4))
    stats = _statistics(q, k, np.array(ends), np.array(other), causal)
    offsets = np.array(ends), np.array(other)
    attrs: Attrs = {"scale": 0.5, "causal": causal, "dropout": 0.0}
    options: Kwargs = {"torch": False, "dtypes": ("float32",), "label": label}
    sample(
        "jagged_attention", lambda ns, *args: jagged_attention(*args, **attrs), q, k, v, *offsets,
        reference=partial(_expected, causal=causal), **options,
    )  # fmt: skip
    sample("jagged_attention_backward",
           lambda ns, *args: bind(JAGGED_ATTENTION_BACKWARD, *args, **attrs), g, out, stats, q,
           k, v, *offsets, **options)  # fmt: skip


_enter([0, 2, 5], [0, 2, 5], 2, 2, False, "plain")
_enter([0, 2, 5], [0, 2, 5], 2, 2, True, "causal")
_enter([0, 1, 1, 4], [0, 3, 3, 5], 2, 1, False, "cross-shared-heads")
_enter([0, 3], [0, 3], 4, 2, True, "causal-shared-heads")
_enter([0, 2, 3], [0, 2, 3], 1, 1, True, "tokens-outside", tokens=4)

# Two heads of 2 x 3 weights, each the multiple of a number of the stream.
_KEY, _BLOCK = np.array(5), np.array(-7)
sample(
    "jagged_dropout_factors",
    lambda ns, *drawn: bind(
        JAGGED_DROPOUT_FACTORS, *drawn, size=(2, 2, 3), kind=dtypes.float64, dropout=0.25
    ),
    _KEY, _BLOCK, torch=False, dtypes=("int64",),
    reference=lambda *drawn: np.reshape(
        philox_chances(5, -7, 0.75, np.arange(12, dtype=np.uint64)) / 0.75, (2, 2, 3)
    ),
)  # fmt: skip
