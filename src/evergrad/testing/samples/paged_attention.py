"""Samples of attention over a paged cache."""

from __future__ import annotations

import numpy as np

from evergrad.ops.rows.paged_attention import paged_attention
from evergrad.testing.samples import Array, normal, sample

_SCALE = 0.5


def _expected(
    q: Array, k: Array, v: Array, keys: Array, values: Array, table: Array, start: Array
) -> Array:
    out = np.zeros(q.shape)
    groups = q.shape[2] // k.shape[2]
    for i, t, h in np.ndindex(*q.shape[:3]):
        own = [(keys[table[i, j // 4], j % 4], values[table[i, j // 4], j % 4])
               for j in range(start[i])]  # fmt: skip
        seen = own + [(k[i, j], v[i, j]) for j in range(t + 1)]
        powers = np.exp([q[i, t, h] @ key[h // groups] * _SCALE for key, _ in seen])
        rows = np.array([value[h // groups] for _, value in seen])
        out[i, t, h] = powers @ rows / powers.sum()
    return out


def _enter(start: list[int], length: int, heads: int, shared: int, label: str) -> None:
    batch, pages = len(start), -(-max(*start, 1) // 4)
    q = normal(batch, length, heads, 3)
    k, v = (normal(batch, length, shared, 3, seed=i) for i in (1, 2))
    keys, values = (normal(5, 4, shared, 3, seed=i) for i in (3, 4))
    table = np.arange(batch * pages).reshape(batch, pages) * 2 % 5
    sample(
        "paged_attention", lambda ns, *args: paged_attention(*args, scale=_SCALE),
        q, k, v, keys, values, table, np.array(start), reference=_expected, torch=False,
        dtypes=("float32",), label=label,
    )  # fmt: skip


_enter([5, 0], 1, 2, 2, "one-token")
_enter([8, 3], 3, 2, 1, "several-tokens-shared-heads")
