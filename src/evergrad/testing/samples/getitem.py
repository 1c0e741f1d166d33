"""Samples of ``x[index]`` and ``x[index] = value``."""

from __future__ import annotations

from typing import Any

import numpy as np

from evergrad.testing.samples import booleans, normal, sample
from evergrad.testing.samples.indexing import at

__all__: list[str] = []  # samples are registered, nothing is exported

# -- reading ------------------------------------------------------------------------------------

for index, label in (
    (np.s_[1], "number"),
    (np.s_[-1, 0], "numbers"),
    (np.s_[0, 1, -1], "element"),
    (np.s_[1:], "slice"),
    (np.s_[:, ::2], "step"),
    (np.s_[:, 5:], "nothing"),
    (np.s_[..., 1], "ellipsis"),
    (np.s_[None, :, 1], "new dimension"),
    (np.s_[0, ..., None, :2], "mixed"),
):
    sample("slice", lambda ns, x, index=index: x[index], normal(2, 3, 2), label=label,
           reference=lambda x, index=index: x[index])  # fmt: skip
sample("slice", lambda ns, x: x[...], normal(), label="of a number")
sample("slice", lambda ns, x: tuple(x), normal(2, 2), label="iteration")
sample("slice", lambda ns, x: x.unbind(1), normal(2, 3), label="unbind")
sample("slice", lambda ns, x: x.split(2, 1), normal(2, 3), label="split")
sample("slice", lambda ns, x: x.chunk(2), normal(3, 2), label="chunk")
sample("slice", lambda ns, x: ns.tensor_split(x, (1, -1)), normal(4), label="tensor_split",
       reference=lambda x: np.array_split(x, (1, -1)))  # fmt: skip

sample("index", lambda ns, x, i: x[i], normal(3, 2), at(2, -1, 0), reference=lambda x, i: x[i])
sample("index", lambda ns, x, i: x[:, i], normal(2, 3), at([0, 2], [1, 1]), label="behind a slice",
       reference=lambda x, i: x[:, i])  # fmt: skip
sample("index", lambda ns, x, i, j: x[i, j], normal(3, 2, 2), at([0], [-1]), at(0, 1, 1),
       label="broadcast", reference=lambda x, i, j: x[i, j])  # fmt: skip
sample("index", lambda ns, x, i, j: x[i, :, j], normal(2, 3, 2), at(0, 1), at(1, 1), label="apart",
       reference=lambda x, i, j: x[i, :, j])  # fmt: skip
sample("index", lambda ns, x, i: x[1:, None, i, ::2], normal(2, 3, 3), at(2, 0), label="mixed",
       reference=lambda x, i: x[1:, None, i, ::2])  # fmt: skip
sample("index", lambda ns, x, i: x[i, 1], normal(3, 2), at(0, 2), label="and a number")
sample("index", lambda ns, x: x[[2, 0]], normal(3, 2), label="list", reference=lambda x: x[[2, 0]])
sample("index", lambda ns, x: x[[0, 1], [1, 0]], normal(3, 2), label="lists")
sample("index", lambda ns, x, i: x[i], normal(3, 2), at(), label="nothing")
sample("index", lambda ns, x: x[np.array([True, False, True])], normal(3, 2), label="mask")
sample("index", lambda ns, x: x[1:][np.array([[True], [False]]), :], normal(3, 1, 2),
       label="mask of rank 2")  # fmt: skip
sample("index", lambda ns, x: x[:, True], normal(2, 3), label="truth")
sample("index", lambda ns, x: x[False], normal(2, 3), label="falsehood")

# -- writing ------------------------------------------------------------------------------------


def _set(x: Any, index: object, value: object) -> object:
    y = x.clone() if hasattr(x, "clone") else x.copy()
    y[index] = value
    return y


sample("index_copy", lambda ns, x, i, v: _set(x, i, v), normal(3, 2), at(2, -3), normal(2, seed=1),
       label="assigned", reference=_set)  # fmt: skip
sample("index_copy", lambda ns, x, i: _set(x, (slice(None), i), 2.5), normal(2, 3), at(2, 2),
       label="number assigned", reference=lambda x, i: _set(x, np.s_[:, i], 2.5))  # fmt: skip
sample("index_copy", lambda ns, x, i, j, v: _set(x, (i, slice(None), j), v), normal(2, 3, 2),
       at(0, 1), at(1, 1), normal(2, 3, seed=1), label="assigned apart",
       reference=lambda x, i, j, v: _set(x, np.s_[i, :, j], v))  # fmt: skip
sample("where", lambda ns, x, m: _set(x, m, 2.5), normal(2, 3), booleans(2, 3),
       label="mask assigned", reference=lambda x, m: _set(x, m, 2.5))  # fmt: skip
sample("where", lambda ns, x, m, v: _set(x, m, v), normal(2, 3), booleans(2), normal(1, seed=1),
       label="mask of rows assigned", reference=lambda x, m, v: _set(x, m, v))  # fmt: skip
sample("where", lambda ns, x, m, v: ns.masked_fill(x, m, v), normal(2, 3), booleans(2, 3),
       normal(seed=1), label="masked_fill")  # fmt: skip
sample("where", lambda ns, x, m: x.masked_fill(m, -1), normal(3), booleans(2, 3),
       label="masked_fill broadcast")  # fmt: skip
